//! Which session a request belongs to, as its agent, the user's rules and the user's key say.
mod rules;
mod signals;
mod users;

use serde_json::Value;
use session_slot_tests::client::{self, Answer, Outgoing, chat_body};
use session_slot_tests::{FakeLlama, Router};

/// Claude Code's body: its session is a text in a text.
const CLAUDE: &str = r#"{"model": "m","messages":[{"role":"user","content":"a b c"}],
 "metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"s\"}"}}"#;

/// A chat turn without any session of ours.
fn turn(router: &Router) -> Outgoing {
    Outgoing::post(format!("{}/v1/chat/completions", router.url()), chat_body(None, "a b c").to_string())
}

async fn turn_with(router: &Router, headers: &[(&str, &str)]) -> Answer {
    let request = headers.iter().fold(turn(router), |request, (name, value)| request.header(name, value));
    client::send(request).await
}

/// The session of the last of `count` requests, as the log tells it.
async fn session_of(router: &Router, count: usize) -> Value {
    router.wait_requests(count).await.remove(count - 1)["agent_session_id"].clone()
}

/// What reached the server last, apart from probes.
fn last_received(fake: &FakeLlama) -> session_slot_tests::fake::Received {
    fake.received().into_iter().rfind(|one| one.takes_slot).expect("a request that takes a slot")
}
