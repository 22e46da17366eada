//! Which slot a session's request goes to, when it has to wait, and what is sent of it.
mod bodies;
mod direct;
mod foreign;
mod full;
mod homes;
mod leaving;
mod probing;
mod spilling;
mod waiting;

use serde_json::Value;
use session_slot_tests::client::{Outgoing, chat_request};
use session_slot_tests::{Answer, FakeLlama, Options, Router};

async fn started(options: Options) -> (FakeLlama, Router) {
    let fake = FakeLlama::start(options);
    let router = Router::start(&fake).await;
    (fake, router)
}

/// The slot the router says it used.
fn slot_of(answer: &Answer) -> i64 {
    let slot = answer.header("x-slot-router-slot").expect("the answer should name its slot");
    slot.parse().expect("a slot should be a number")
}

/// How the router says it came by the slot.
fn action_of(answer: &Answer) -> &str {
    answer.header("x-slot-router-action").expect("the answer should name its action")
}

/// A chat turn of a session whose answer comes as a stream.
fn streamed_turn(router: &Router, session: &str, text: &str) -> Outgoing {
    let mut body = session_slot_tests::client::chat_body(Some(session), text);
    body["stream"] = true.into();
    Outgoing::post(format!("{}/v1/chat/completions", router.url()), body.to_string())
}

/// A chat turn of a session that stays in its slot until the gate of this name is opened.
fn held_turn(router: &Router, session: &str, gate: &str) -> Outgoing {
    chat_request(&router.url(), session, &format!("HOLD:{gate} of {session}"))
}

/// The last words of the slot-taking requests that came through the router, in order of arrival.
fn last_words(fake: &FakeLlama) -> Vec<String> {
    let said = |body: Value| {
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        let text = messages.last().map_or(&body["prompt"], |last| &last["content"]);
        text.as_str().and_then(|text| text.split_whitespace().last()).unwrap_or_default().to_owned()
    };
    fake.received().iter().filter(|one| !one.foreign).map(|one| said(one.json())).collect()
}
