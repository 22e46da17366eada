//! Where each route tells cached and computed tokens.
use serde_json::{Value, json};
use session_slot_tests::client::{self, Session};
use session_slot_tests::{FakeLlama, Options};

use crate::{complete, streamed, words};

/// The same conversation twice; the second time all but the last token is cached.
async fn twice(fake: &FakeLlama, path: &str, body: Value) -> Value {
    let url = format!("{}{path}", fake.url());
    client::post_json(&url, body.to_string()).await;
    client::post_json(&url, body.to_string()).await.json()
}

#[tokio::test]
async fn each_route_tells_cached_and_computed_tokens_in_its_own_place() {
    let fake = FakeLlama::start(Options::default());
    let messages = json!([{"role": "user", "content": words("m", 10)}]);
    let answer = twice(&fake, "/completion", json!({"prompt": words("p", 10)})).await;
    assert_eq!((&answer["timings"]["cache_n"], &answer["timings"]["prompt_n"]), (&json!(9), &json!(1)));
    for (path, body) in [
        ("/v1/completions", json!({"prompt": words("q", 10)})),
        ("/v1/chat/completions", json!({"messages": messages})),
    ] {
        let answer = twice(&fake, path, body).await;
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 9, "{path}");
        assert_eq!(answer["usage"]["prompt_tokens"], 10, "{path}");
        assert_eq!(answer["timings"]["cache_n"], 9, "{path}");
    }
    let system = words("s", 10);
    let answer = twice(&fake, "/v1/messages", json!({"system": system, "messages": messages})).await;
    assert_eq!(
        answer["usage"],
        json!({"cache_read_input_tokens": 19, "input_tokens": 1, "output_tokens": 4})
    );
    let answer = twice(&fake, "/v1/responses", json!({"input": words("r", 10)})).await;
    assert_eq!(answer["usage"]["input_tokens"], 10);
    assert_eq!(answer["usage"]["input_tokens_details"]["cached_tokens"], 9);
}

#[tokio::test]
async fn openai_streams_always_tell_timings_but_usage_only_if_asked() {
    let fake = FakeLlama::start(Options::default());
    let mut body = json!({"messages": [{"role": "user", "content": "hello"}]});
    let path = "/v1/chat/completions";
    let without = streamed(&fake, path, body.clone()).await;
    assert!(without.contains("\"timings\"") && !without.contains("\"usage\""), "{without}");
    assert!(without.ends_with("data: [DONE]\n\n"), "{without}");
    body["stream_options"] = json!({"include_usage": true});
    assert!(streamed(&fake, path, body).await.contains("\"usage\""));
}

#[tokio::test]
async fn a_llama_stream_tells_timings_in_its_last_event_and_has_no_done() {
    let fake = FakeLlama::start(Options::default());
    let text = streamed(&fake, "/completion", json!({"prompt": "a b", "n_predict": 2})).await;
    let events: Vec<&str> = text.split_terminator("\n\n").collect();
    assert_eq!(events.len(), 3);
    assert!(events[2].contains("\"timings\"") && !events[1].contains("\"timings\""), "{text}");
}

#[tokio::test]
async fn an_anthropic_stream_tells_its_input_in_message_start() {
    let fake = FakeLlama::start(Options::default());
    let body = json!({"messages": [{"role": "user", "content": "a b c"}], "max_tokens": 1});
    let text = streamed(&fake, "/v1/messages", body).await;
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(
        names,
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    );
    let start = text.lines().nth(1).unwrap_or_default();
    assert!(start.contains("\"input_tokens\":3"), "{start}");
}

#[tokio::test]
async fn a_responses_stream_tells_its_usage_in_response_completed() {
    let fake = FakeLlama::start(Options::default());
    let body = json!({"input": "a b c", "max_output_tokens": 1});
    let text = streamed(&fake, "/v1/responses", body).await;
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!((names[0], names[1]), ("response.created", "response.in_progress"));
    assert_eq!(names.last(), Some(&"response.completed"));
    assert_eq!(text.matches("\"input_tokens\":3").count(), 1, "{text}");
}

#[tokio::test]
async fn a_responses_stream_tells_timings_next_to_the_response_and_counts_no_items() {
    let fake = FakeLlama::start(Options::default());
    let text = streamed(&fake, "/v1/responses", json!({"input": "a b c"})).await;
    let events: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    let last = events.last().expect("there should be events");
    assert_eq!((&last["timings"]["prompt_n"], &last["response"]["timings"]), (&json!(3), &Value::Null));
    assert!(!text.contains("_index\""), "{text}");
    let begun = events[0]["response"].as_object().expect("it should be told");
    assert!(begun.keys().all(|key| ["id", "object", "status"].contains(&key.as_str())), "{begun:?}");
}

#[tokio::test]
async fn an_answer_shorter_than_its_limit_has_ended_by_itself() {
    let fake = FakeLlama::start(Options { sse_events: Some(2), ..Options::default() });
    let body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 32_000});
    let anthropic = streamed(&fake, "/v1/messages", body.clone()).await;
    assert!(anthropic.contains(r#""stop_reason":"end_turn""#), "{anthropic}");
    let openai = streamed(&fake, "/v1/chat/completions", body).await;
    assert!(openai.contains(r#""finish_reason":"stop""#), "{openai}");
    assert!(openai.contains("out1") && !openai.contains("out2"), "{openai}");
}

#[tokio::test]
async fn the_metrics_count_computed_prompt_tokens() {
    let fake = FakeLlama::start(Options::default());
    complete(&fake, &words("a", 10), json!(0)).await;
    complete(&fake, &words("a", 12), json!(0)).await;
    let metrics = client::get(format!("{}/metrics", fake.url())).await.text();
    assert!(metrics.contains("\nllamacpp:prompt_tokens_total 12\n"), "{metrics}");
}

#[tokio::test]
async fn the_time_that_reading_took_is_told_as_the_options_say() {
    let mut options = Options::default();
    options.pace.read_ms = 2.5;
    let fake = FakeLlama::start(options);
    let answer = complete(&fake, &words("a", 10), json!(0)).await;
    assert_eq!(answer.json()["timings"]["prompt_ms"], 25.0);
}

#[tokio::test]
async fn a_request_can_have_its_own_word_back() {
    let fake = FakeLlama::start(Options::default());
    let mut session = Session::anonymous(&fake.url());
    let answer = session.say("ECHO:canary words").await;
    assert_eq!(answer.json()["choices"][0]["message"]["content"], "canary out1 out2 out3");
    assert_eq!(session.say("more").await.cache_n(), Some(5));
}

#[tokio::test]
async fn a_growing_conversation_reuses_what_the_server_said_itself() {
    let fake = FakeLlama::start(Options::default());
    let mut session = Session::anonymous(&fake.url());
    session.say("one two three").await;
    let second = session.say("four").await;
    // Three words and three of the four it said: the last was never put through the model.
    assert_eq!((second.cache_n(), second.prompt_n()), (Some(6), Some(2)));
}
