//! Prompt tokens computed and cached, on every route, streamed or not.
use serde_json::{Value, json};
use session_slot_tests::client::{self, words};
use session_slot_tests::{Options, Router};

use crate::started;

const ROUTES: [(&str, &str); 5] = [
    ("/completion", "prompt"),
    ("/v1/completions", "prompt"),
    ("/v1/chat/completions", "messages"),
    ("/v1/messages", "messages"),
    ("/v1/responses", "input"),
];

async fn ask(router: &Router, route: &str, member: &str, text: &str, stream: bool) {
    let prompt = if member == "messages" { json!([{"role": "user", "content": text}]) } else { json!(text) };
    let mut body = json!({"agent_session_id": "s", member: prompt, "max_tokens": 4});
    if stream {
        body["stream"] = json!(true);
    }
    let answer = client::post_json(format!("{}{route}", router.url()), body.to_string()).await;
    assert_eq!(answer.status, 200, "{route}: {}", answer.text());
}

async fn check(stream: bool) {
    for (route, member) in ROUTES {
        let (fake, router) = started(Options::default()).await;
        ask(&router, route, member, &words("w", 10), stream).await;
        ask(&router, route, member, &words("w", 15), stream).await;
        let counts = |line: &Value| (line["prompt_computed"].clone(), line["prompt_cached"].clone());
        let lines = router.wait_requests(2).await;
        assert_eq!(counts(&lines[0]), (json!(10), json!(0)), "{route}");
        assert_eq!(counts(&lines[1]), (json!(5), json!(10)), "{route}");
        let totals = router.status().await["server"]["totals"].clone();
        assert_eq!(counts(&totals), (json!(15), json!(10)), "{route}");
        router.terminate().await;
        let row = router.database().session("s");
        assert_eq!(counts(&row), (json!(15), json!(10)), "{route}");
        assert_eq!(fake.look(|state| state.prompt_tokens_total()), 15);
    }
}

#[tokio::test]
async fn whole_answers_are_accounted_for_on_every_route() {
    check(false).await;
}

#[tokio::test]
async fn streamed_answers_are_accounted_for_on_every_route() {
    check(true).await;
}

#[tokio::test]
async fn asking_for_usage_in_a_stream_changes_nothing() {
    let (_fake, router) = started(Options::default()).await;
    for route in ["/v1/chat/completions", "/v1/completions"] {
        let body = json!({
            "agent_session_id": route, "messages": [{"role": "user", "content": "a b c"}], "prompt": "a b c",
            "stream": true, "stream_options": {"include_usage": true},
        });
        client::post_json(format!("{}{route}", router.url()), body.to_string()).await;
    }
    let lines = router.wait_requests(2).await;
    assert_eq!((&lines[0]["prompt_computed"], &lines[1]["prompt_computed"]), (&json!(3), &json!(3)));
}

#[tokio::test]
async fn embeddings_are_accounted_for() {
    let (_fake, router) = started(Options::default()).await;
    let body = json!({"agent_session_id": "s", "input": "a b c"}).to_string();
    client::post_json(format!("{}/v1/embeddings", router.url()), body).await;
    assert_eq!(router.wait_requests(1).await[0]["prompt_computed"], 3);
}

#[tokio::test]
async fn an_answer_whose_client_left_is_not_counted_as_known() {
    let (fake, router) = started(Options::default()).await;
    let body = json!({"agent_session_id": "s", "prompt": "HOLDEND:hold words", "stream": true}).to_string();
    let mut stream = client::stream_json(format!("{}/completion", router.url()), body).await;
    stream.read_until("out0").await;
    drop(stream);
    fake.wait_processing(0).await;
    let line = router.wait_requests(1).await.remove(0);
    assert!(line.get("prompt_computed").is_none(), "{line}");
    assert!(line["error"].as_str().is_some_and(|error| error.contains("left")), "{line}");
    router.terminate().await;
    assert_eq!(router.database().session("s")["prompt_computed"], 0);
    assert_eq!(router.database().session("s")["requests"], 1);
}
