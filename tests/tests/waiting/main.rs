//! What clients see while they wait, and when something goes wrong on the way.
mod alive;
mod ends;
mod leaving;
mod odd_servers;
mod stalls;

use session_slot_tests::client::{self, Outgoing, Streaming};
use session_slot_tests::router::RouterBuilder;
use session_slot_tests::{FakeLlama, Options, Router};

/// Signs of life after a moment, so that a test need not wait long.
const QUICK: &str = "[keepalive]\nafter = 0.05\nevery = 0.05\n";

fn one_slot() -> FakeLlama {
    FakeLlama::start(Options::default().slots(1))
}

fn quick(fake: &FakeLlama) -> RouterBuilder {
    Router::builder(fake).config(QUICK)
}

/// A turn of a session on any route; `members` come after the session's id.
fn turn(router: &Router, path: &str, session: &str, members: &str) -> Outgoing {
    Outgoing::post(
        format!("{}{path}", router.url()),
        format!(r#"{{"agent_session_id":"{session}",{members}}}"#),
    )
}

const CHAT: &str = "/v1/chat/completions";

/// The members of a turn that says `text`, streamed.
fn streamed(text: &str) -> String {
    format!(r#""stream":true,"messages":[{{"role":"user","content":"{text}"}}]"#)
}

/// The one slot is taken until the gate is released: whoever comes now waits.
async fn taken(fake: &FakeLlama, router: &Router, gate: &str) -> tokio::task::JoinHandle<client::Answer> {
    let text = format!("HOLD:{gate} a b c");
    let running = client::send_later(client::chat_request(&router.url(), "first", &text));
    fake.wait_processing(1).await;
    running
}

async fn opened(request: Outgoing) -> Streaming {
    client::open(request).await
}
