//! One of three servers is away for some seconds, under load: only who had been told a word already notices.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use session_slot_tests::client::{self, chat_body};
use session_slot_tests::{Options, Streaming};

use crate::stage::Stage;

const AGENTS: usize = 6;
/// An agent begins another conversation after so many turns: those that have a home stay there.
const TURNS: usize = 3;
/// The router leaves a broken server alone for one second, then for two, then for four: then it has been away for three.
const THIRD_PAUSE_S: u64 = 4;

#[derive(Debug, Default)]
struct Seen {
    over: AtomicBool,
    whole: AtomicUsize,
    /// Broke off after a word.
    cut: AtomicUsize,
}

/// All that came of an answer, however it ended.
async fn read(mut stream: Streaming) -> String {
    let mut text = Vec::new();
    while let Some(Ok(chunk)) = stream.next_chunk().await {
        text.extend_from_slice(&chunk);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Turn after turn, every other one streamed.
async fn agent(base: String, index: usize, seen: Arc<Seen>) {
    for turn in 0.. {
        if seen.over.load(Ordering::Relaxed) {
            return;
        }
        let mut body = chat_body(Some(&format!("{index}-{}", turn / TURNS)), "hello");
        let streamed = turn % 2 == 0;
        body["stream"] = streamed.into();
        let stream = client::stream_json(format!("{base}/v1/chat/completions"), body.to_string()).await;
        let (status, text) = (stream.status, read(stream).await);
        let ended = if streamed { text.contains("data: [DONE]") } else { text.ends_with('}') };
        if status == 200 && ended && !text.contains("\"error\"") {
            seen.whole.fetch_add(1, Ordering::Relaxed);
        } else {
            assert!(text.contains("\"content\":\""), "it had not begun: {status} {text}");
            seen.cut.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn of_a(status: &Value, name: &str) -> Value {
    status["servers"][0][name].clone()
}

#[tokio::test]
async fn an_outage_under_load_fails_no_turn_that_has_not_begun_and_the_server_is_used_again() {
    let options = Options { sse_interval: Duration::from_millis(10), ..Options::default() };
    let stage = Stage::open(3, &options).await;
    let seen = Arc::new(Seen::default());
    let agents = (0..AGENTS).map(|index| tokio::spawn(agent(stage.router.url(), index, Arc::clone(&seen))));
    let agents: Vec<_> = agents.collect();
    stage
        .fake("a")
        .wait_until("turns", |state| state.launches().len() > AGENTS && state.processing() > 0)
        .await;
    stage.fake("a").stop().await;
    stage.router.wait_log(|line| line["server"] == "a" && line["pause_s"] == THIRD_PAUSE_S).await;
    stage.fake("a").start_again().await;
    let served = stage.fake("a").launches().len();
    stage.fake("a").wait_until("turns again", |state| state.launches().len() > served + AGENTS).await;
    seen.over.store(true, Ordering::Relaxed);
    for agent in join_all(agents).await {
        agent.expect("no turn should fail that has not begun");
    }
    let status = stage.router.wait_status("a works again", |status| of_a(status, "state") == "up").await;
    assert!(of_a(&status, "failures").as_u64() >= Some(3), "{status:#}");
    let cut = seen.cut.load(Ordering::Relaxed);
    assert!(cut <= AGENTS && seen.whole.load(Ordering::Relaxed) > 10 * AGENTS, "{seen:?}");
}
