//! What is written down of requests: log lines, rows, headers, status. And what becomes of a bad database.
mod lines;
mod pages;
mod rows;
mod storage;
mod usage;

use serde_json::{Value, json};
use session_slot_tests::client::{Outgoing, chat_body};
use session_slot_tests::{FakeLlama, Options, Router};

async fn started(options: Options) -> (FakeLlama, Router) {
    let fake = FakeLlama::start(options);
    let router = Router::start(&fake).await;
    (fake, router)
}

/// A chat turn of an agent that says everything about itself.
fn introduced(router: &Router, session: &str, text: &str) -> Outgoing {
    let mut body = chat_body(Some(session), text);
    body["agent_name"] = json!("pi");
    body["client_type"] = json!("tui");
    body["id_slot"] = json!(3);
    Outgoing::post(format!("{}/v1/chat/completions?key=query", router.url()), body.to_string())
}

/// Requests the router refuses, with the status and a word of the reason.
fn refused() -> Vec<(String, u16, &'static str)> {
    let long = "x".repeat(513);
    [
        (r#"{"prompt":"a","agent_session_id":"s","agent_session_id":"t"}"#.to_owned(), "more than once"),
        (
            r#"{"prompt":"a","agent_name":"s","agent_session_id":"s","agent_name":"t"}"#.to_owned(),
            "more than once",
        ),
        (r#"{"client_type":"s","client_type":"s","prompt":"a"}"#.to_owned(), "more than once"),
        (r#"{"prompt":"a","agent_session_id":["s"]}"#.to_owned(), "must be a string"),
        (r#"{"prompt":"a","agent_session_id":{"s":1}}"#.to_owned(), "must be a string"),
        (r#"{"prompt":"a","agent_session_id":true}"#.to_owned(), "must be a string"),
        (json!({"prompt": "a", "agent_session_id": long}).to_string(), "at most 512 bytes"),
        (r#"{"prompt":"a","agent_session_id":"\ud800"}"#.to_owned(), "surrogate"),
    ]
    .map(|(body, reason)| (body, 400, reason))
    .into()
}

fn completion(router: &Router, body: &str) -> Outgoing {
    Outgoing::post(format!("{}/completion", router.url()), body.to_owned())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
