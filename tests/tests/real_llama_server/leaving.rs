//! Clients that leave while the server is at work for them.
use std::time::{Duration, Instant};

use serde_json::json;
use session_slot_tests::client;

use crate::talk::Talk;
use crate::{Stage, action_of, slot_of};

/// More than any server generates before it notices that the client has left.
const LONG: u64 = 1500;

pub(crate) async fn a_session_goes_on_after_its_client_has_left_a_stream(stage: &mut Stage) {
    let mut talk = Talk::new(&stage.router.url(), "a");
    let (first, _) = talk.say().await;
    let mut left = talk.clone();
    left.ask();
    let more = json!({"max_tokens": LONG, "ignore_eos": true, "stream": true});
    let mut stream = client::open(left.request(&more)).await;
    stream.read_until("\"content\"").await;
    drop(stream);
    goes_on(stage, talk, slot_of(&first)).await;
}

pub(crate) async fn a_session_goes_on_after_its_client_has_left_a_whole_answer(stage: &mut Stage) {
    let mut talk = Talk::new(&stage.router.url(), "a");
    let (first, _) = talk.say().await;
    let home = slot_of(&first);
    let mut left = talk.clone();
    left.ask();
    let running = client::send_later(left.request(&json!({"max_tokens": LONG, "ignore_eos": true})));
    wait_processing(stage, home).await;
    running.abort();
    goes_on(stage, talk, home).await;
}

/// The next turn waits until the server has stopped, and finds what the session sent before.
async fn goes_on(stage: &Stage, mut talk: Talk, home: usize) {
    let before = talk.before.expect("it has had a turn");
    let (answer, prompt) = talk.say().await;
    assert_eq!((action_of(&answer), slot_of(&answer)), ("home", home));
    assert!(answer.json()["usage"]["completion_tokens"].as_u64() <= Some(8), "{}", answer.text());
    assert!(prompt.reuses(before), "{prompt:?} after {before:?}");
    // It has been stopped, not waited for to its end.
    assert_eq!(stage.server.cancelled(), 1);
    let counters = stage.server.counters().await;
    assert!(counters.generated < LONG, "{counters:?}");
}

pub(crate) async fn wait_processing(stage: &Stage, slot: usize) {
    let started = Instant::now();
    while stage.server.slots().await[slot]["is_processing"] != true {
        assert!(started.elapsed() < Duration::from_secs(60), "the request should be at work");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
