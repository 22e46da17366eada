//! A memory that is full, in the very bytes of llama-server b11549, and the ways in which a server can be broken.
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing, RawConnection, Streaming};
use session_slot_tests::fake::Breakage;
use session_slot_tests::{FakeLlama, Options};

use crate::{complete, words};

const WHOLE: &str =
    r#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
const EVENT: &str = "data: {\"error\":{\"code\":500,\"message\":\"Context size has been exceeded.\",\"type\":\"server_error\"}}\n\n";
const MESSAGES_EVENT: &str = "event: error\ndata: {\"code\":500,\"message\":\"Context size has been exceeded.\",\"type\":\"server_error\"}\n\n";

/// Every kind of route, and how its streams tell that the memory is full.
const ROUTES: [(&str, &str); 5] = [
    ("/completion", EVENT),
    ("/v1/completions", EVENT),
    ("/v1/chat/completions", EVENT),
    ("/v1/messages", MESSAGES_EVENT),
    ("/v1/responses", EVENT),
];

fn request(fake: &FakeLlama, path: &str, text: &str, stream: bool) -> Outgoing {
    let messages = json!([{"role": "user", "content": text}]);
    let body: Value = match path {
        "/v1/responses" => json!({"input": text, "stream": stream}),
        "/v1/chat/completions" | "/v1/messages" => json!({"messages": messages, "stream": stream}),
        _ => json!({"prompt": text, "stream": stream}),
    };
    Outgoing::post(format!("{}{path}", fake.url()), body.to_string())
}

async fn rest(stream: Streaming) -> String {
    stream.finish().await.expect("the stream should end in order").text()
}

#[tokio::test]
async fn before_the_first_word_a_stream_says_200_and_then_that_the_memory_is_full() {
    for (path, told) in ROUTES {
        let fake = FakeLlama::start(Options::default_settings());
        // The head is there as soon as the request is in its slot.
        let stream = client::open(request(&fake, path, "HOLD:a", true)).await;
        assert_eq!(
            (stream.status.as_u16(), &stream.headers["content-type"]),
            (200, &"text/event-stream".parse().expect("a value"))
        );
        fake.overflows();
        assert_eq!(rest(stream).await, told, "{path}");
    }
}

#[tokio::test]
async fn after_the_first_word_it_says_so_in_the_middle_of_the_stream_and_ends() {
    for (path, told) in ROUTES {
        let fake = FakeLlama::start(Options::default_settings());
        let mut stream = client::open(request(&fake, path, "HOLDEND:a", true)).await;
        stream.read_until("out0").await;
        fake.overflows();
        assert_eq!(rest(stream).await, told, "{path}");
    }
}

#[tokio::test]
async fn what_is_not_streamed_has_a_status_for_it() {
    for (path, _) in ROUTES {
        let fake = FakeLlama::start(Options::default_settings());
        let asked = client::send_later(request(&fake, path, "HOLD:a", false));
        fake.wait_processing(1).await;
        fake.overflows();
        let answer = asked.await.expect("an answer");
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (500, WHOLE), "{path}");
    }
}

#[tokio::test]
async fn a_prompt_too_long_for_its_slot_is_no_stream_even_if_one_was_asked_for() {
    let fake = FakeLlama::start(Options { n_ctx: 10, ..Options::default_settings() });
    let answer = client::send(request(&fake, "/v1/responses", &words("a", 11), true)).await;
    let told = r#"{"error":{"code":400,"message":"request (11 tokens) exceeds the available context size (10 tokens), try increasing it","n_ctx":10,"n_prompt_tokens":11,"type":"exceed_context_size_error"}}"#;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (400, told));
}

#[tokio::test]
async fn prompts_that_do_not_fit_together_all_fail_and_leave_every_slot_empty() {
    let options = Options { unified_pool_tokens: Some(250), ..Options::unified_keeping_slots() };
    let fake = FakeLlama::start(options);
    let first =
        client::open(request(&fake, "/v1/messages", &format!("HOLD:a {}", words("a", 149)), true)).await;
    let second = client::send(request(&fake, "/v1/chat/completions", &words("b", 150), false)).await;
    assert_eq!((second.status.as_u16(), rest(first).await.as_str()), (500, MESSAGES_EVENT));
    fake.wait_processing(0).await;
    assert!(fake.look(|state| state.slots().iter().all(|slot| slot.held_tokens() == 0)));
    assert_eq!(complete(&fake, &words("b", 150), json!(null)).await.status, 200);
}

#[tokio::test]
async fn a_server_that_is_full_for_whoever_comes_is_well_again_when_it_is_mended() {
    let fake = FakeLlama::start(Options::default_settings());
    fake.breaks(Breakage::Full);
    let stream = client::send(request(&fake, "/v1/chat/completions", "a", true)).await;
    assert_eq!((stream.status.as_u16(), stream.text().as_str()), (200, EVENT));
    let whole = client::send(request(&fake, "/v1/chat/completions", "a", false)).await;
    assert_eq!((whole.status.as_u16(), whole.text().as_str()), (500, WHOLE));
    fake.mends();
    assert_eq!(client::send(request(&fake, "/v1/chat/completions", "a", false)).await.status, 200);
}

#[tokio::test]
async fn a_connection_can_be_reset_before_and_after_the_head() {
    let fake = FakeLlama::start(Options::default());
    fake.breaks(Breakage::ResetBeforeHead);
    assert!(client::try_open(request(&fake, "/completion", "a", true)).await.is_err());
    fake.breaks(Breakage::ResetAfterHead);
    let mut stream = client::open(request(&fake, "/completion", "a", true)).await;
    assert_eq!(stream.status, 200);
    assert!(stream.next_chunk().await.expect("no orderly end").is_err());
    assert_eq!(client::get(format!("{}/health", fake.url())).await.status, 200);
}

#[tokio::test]
async fn a_server_can_answer_with_any_error_and_its_pages_are_well_meanwhile() {
    let fake = FakeLlama::start(Options::default());
    for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY] {
        fake.breaks(Breakage::Answers(status));
        let answer = complete(&fake, "a", json!(null)).await;
        assert_eq!(answer.status, status);
        assert!(!answer.text().contains("ontext"), "{}", answer.text());
    }
    assert_eq!(client::get(format!("{}/slots", fake.url())).await.status, 200);
    assert!(fake.launches().is_empty());
}

#[tokio::test]
async fn a_server_that_hangs_takes_connections_and_says_nothing_until_it_is_mended() {
    let fake = FakeLlama::start(Options::default());
    fake.breaks(Breakage::Hangs);
    let mut connection = RawConnection::open(&fake.url()).await;
    connection.send("HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    fake.wait_until("one request", |state| state.received().len() == 1).await;
    let early = tokio::time::timeout(Duration::from_millis(50), connection.read_until("\r\n\r\n")).await;
    assert!(early.is_err(), "{early:?}");
    fake.mends();
    assert!(connection.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 200"));
}
