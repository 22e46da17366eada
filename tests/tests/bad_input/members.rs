//! Routing members that can't be used.
use session_slot_tests::client::{self, Answer};
use session_slot_tests::{FakeLlama, Options, Outgoing, Router};

use super::{PROMPT, anthropic_error, openai_error, refused_in_log, untouched};

const OPENAI_ROUTES: [&str; 4] = ["/v1/chat/completions", "/v1/completions", "/completion", "/v1/responses"];

async fn post(router: &Router, path: &str, members: &str) -> Answer {
    let body = format!(r#"{{"prompt":"{PROMPT}","messages":[],{members}}}"#);
    client::send(Outgoing::post(format!("{}{path}", router.url()), body)).await
}

#[tokio::test]
async fn a_routing_member_that_is_there_twice_is_refused_by_name() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let twice = [
        ("agent_session_id", r#""agent_session_id":"a","agent_session_id":"b""#),
        ("agent_session_id", r#""agent_session_id":"a","agent_session_i\u0064":"a""#),
        ("agent_name", r#""agent_name":"a","agent_session_id":"b","agent_name":"a""#),
        ("client_type", r#""client_type":null,"client_type":null"#),
    ];
    for (member, members) in twice {
        let answer = post(&router, "/v1/chat/completions", members).await;
        let message = openai_error(&answer, 400, "invalid_request_error");
        assert!(message.contains(member), "{message}");
    }
    assert!(untouched(&fake));
    refused_in_log(&router, twice.len(), 400).await;
}

#[tokio::test]
async fn a_session_id_of_a_wrong_type_is_refused_in_the_openai_shape() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let types = [("true", "boolean"), ("[1]", "array"), (r#"{"a":"b"}"#, "object")];
    for path in OPENAI_ROUTES {
        for (value, kind) in types {
            let answer = post(&router, path, &format!(r#""agent_session_id":{value}"#)).await;
            let message = openai_error(&answer, 400, "invalid_request_error");
            assert!(message.contains("agent_session_id") && message.contains(kind), "{message}");
        }
    }
    assert!(untouched(&fake));
    refused_in_log(&router, OPENAI_ROUTES.len() * types.len(), 400).await;
}

#[tokio::test]
async fn a_session_id_of_a_wrong_type_is_refused_in_the_anthropic_shape_on_its_route() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let answer = post(&router, "/v1/messages", r#""agent_session_id":false"#).await;
    let message = anthropic_error(&answer, 400, "invalid_request_error");
    assert!(message.contains("agent_session_id"), "{message}");
    assert!(untouched(&fake));
    refused_in_log(&router, 1, 400).await;
}

#[tokio::test]
async fn a_session_id_may_have_512_bytes_and_not_one_more() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let id = |bytes: usize| format!(r#""agent_session_id":"{}""#, "x".repeat(bytes));
    assert_eq!(post(&router, "/v1/chat/completions", &id(512)).await.status, 200);
    let answer = post(&router, "/v1/chat/completions", &id(513)).await;
    let message = openai_error(&answer, 400, "invalid_request_error");
    assert!(message.contains("512") && message.contains("513"), "{message}");
    let answer = post(&router, "/v1/messages", &id(100_000)).await;
    anthropic_error(&answer, 400, "invalid_request_error");
    // Bytes, not letters.
    let umlauts = format!(r#""agent_session_id":"{}""#, "\u{fc}".repeat(257));
    openai_error(&post(&router, "/completion", &umlauts).await, 400, "invalid_request_error");
    assert_eq!(fake.received().len(), 1);
}

#[tokio::test]
async fn half_a_surrogate_pair_is_refused_and_a_whole_one_is_not() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let answer = post(&router, "/v1/chat/completions", r#""agent_session_id":"\ud83d""#).await;
    openai_error(&answer, 400, "invalid_request_error");
    let answer = post(&router, "/v1/chat/completions", r#""agent_session_id":"\ud83d\ude00""#).await;
    assert_eq!(answer.status, 200);
    assert_eq!(router.wait_requests(2).await[1]["agent_session_id"], "\u{1f600}");
}

#[tokio::test]
async fn control_characters_in_an_id_can_not_forge_a_log_line() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).log_format("text").start().await;
    let members =
        r#""agent_session_id":"a\n2026-01-01T00:00:00 INFO request forged\u001b[2J","agent_name":"x\u2028y""#;
    assert_eq!(post(&router, "/v1/chat/completions", members).await.status, 200);
    router.terminate().await;
    let lines = router.log_lines();
    assert!(!lines.iter().any(|line| line.starts_with("2026-01-01")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(['\u{1b}', '\u{2028}'])), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.contains("method=")).count(), 1, "{lines:?}");
}
