//! What bad input gets: a clear error in the dialect of the route, one log line, and nothing lost.
mod bodies;
mod framing;
mod members;
mod sizes;
mod upstream;

use serde_json::Value;
use session_slot_tests::client::Answer;
use session_slot_tests::fake::Received;
use session_slot_tests::{FakeLlama, Router};

/// A word that stands in every prompt here and must never stand in a log.
const PROMPT: &str = "canary-in-the-prompt";

/// Ends the router and checks that its log has exactly this many lines about requests, all with this status, and no
/// prompt text. Returns them.
async fn refused_in_log(router: &Router, count: usize, status: u16) -> Vec<Value> {
    router.wait_requests(count).await;
    assert_eq!(router.terminate().await.code(), Some(0));
    let lines = router.request_log();
    assert_eq!(lines.len(), count, "{lines:#?}");
    for line in &lines {
        assert_eq!(line["status"], status, "{line}");
        assert!(line["error"].is_string(), "{line}");
    }
    let log = [router.log_lines(), router.stderr_lines()].concat().join("\n");
    assert!(!log.contains(PROMPT), "{log}");
    let events = router.database().events();
    assert_eq!(events.len(), count, "{events:#?}");
    assert!(!format!("{events:?}").contains(PROMPT));
    lines
}

/// The message of an error in the shape of OpenAI and llama-server.
fn openai_error(answer: &Answer, status: u16, kind: &str) -> String {
    let body = answer.json();
    assert_eq!(answer.status, status, "{body}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!((&body["error"]["code"], &body["error"]["type"]), (&status.into(), &kind.into()), "{body}");
    message(&body)
}

/// The message of an error in the shape of Anthropic.
fn anthropic_error(answer: &Answer, status: u16, kind: &str) -> String {
    let body = answer.json();
    assert_eq!(answer.status, status, "{body}");
    assert_eq!((&body["type"], &body["error"]["type"]), (&"error".into(), &kind.into()), "{body}");
    message(&body)
}

fn message(body: &Value) -> String {
    let message = body["error"]["message"].as_str().expect("an error should have a message");
    assert!(!message.contains(PROMPT), "{message}");
    message.to_owned()
}

/// Whether nothing but the router's own questions has reached the server.
fn untouched(fake: &FakeLlama) -> bool {
    fake.look(|state| state.incomplete() == 0 && state.received().iter().all(Received::is_own_question))
}
