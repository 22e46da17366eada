//! The server is killed, and started again, while clients are at every stage of their turns.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use session_slot_tests::client::{self, Outgoing};
use session_slot_tests::{Answer, Router};

use crate::Stage;
use crate::talk::{Talk, prose};

/// Twice as many as slots: half of them wait.
const CLIENTS: usize = 8;

/// Between an error and the next try.
const BACK_OFF: Duration = Duration::from_millis(200);

/// What came of the clients' turns.
#[derive(Debug, Default)]
struct Seen {
    over: AtomicBool,
    whole: AtomicUsize,
    errors: AtomicUsize,
}

pub(crate) async fn a_crash_of_the_server_leaves_nobody_without_an_answer(stage: &mut Stage) {
    let seen = Arc::new(Seen::default());
    let base = stage.router.url();
    let clients = (0..CLIENTS).map(|client| tokio::spawn(go_on(base.clone(), client, Arc::clone(&seen))));
    let clients: Vec<_> = clients.collect();
    wait_for_load(&stage.router, &seen, 0).await;
    stage.server.restart().await;
    let whole = seen.whole.load(Ordering::Relaxed);
    wait_for_load(&stage.router, &seen, whole).await;
    seen.over.store(true, Ordering::Relaxed);
    for client in join_all(clients).await {
        client.expect("every turn should get an answer or an error");
    }
    assert!(seen.errors.load(Ordering::Relaxed) > 0, "the crash should have met somebody: {seen:?}");
    // Nothing is leased any more, and all goes on.
    stage.router.wait_quiet().await;
    Talk::new(&base, "later").say().await;
}

/// Some turns have come to a good end since there were `earlier`; others run, others wait.
async fn wait_for_load(router: &Router, seen: &Seen, earlier: usize) {
    let loaded = |status: &serde_json::Value| {
        let some = |name: &str| status["server"][name].as_u64() > Some(0);
        some("leases") && some("waiting") && seen.whole.load(Ordering::Relaxed) >= earlier + CLIENTS / 2
    };
    router.wait_status("turns that end, run and wait", loaded).await;
}

/// Turn after turn of one session, whole and streamed.
async fn go_on(base: String, client: usize, seen: Arc<Seen>) {
    for turn in 0.. {
        if seen.over.load(Ordering::Relaxed) {
            return;
        }
        let stream = (client + turn).is_multiple_of(2);
        let answer = client::try_send(request(&base, client, turn, stream)).await;
        // Not even a stream may just break off.
        let answer = answer.unwrap_or_else(|error| panic!("client {client}, streamed {stream}: {error}"));
        if is_whole(&answer, stream) {
            seen.whole.fetch_add(1, Ordering::Relaxed);
        } else {
            seen.errors.fetch_add(1, Ordering::Relaxed);
            // As agents do, or they would all ask thousands of times while the server starts.
            tokio::time::sleep(BACK_OFF).await;
        }
    }
}

fn request(base: &str, client: usize, turn: usize, stream: bool) -> Outgoing {
    let text = prose(&format!("client {client} turn {turn}"), 20);
    let body = json!({
        "messages": [{"role": "user", "content": text}], "max_tokens": 12, "ignore_eos": true, "stream": stream,
        "agent_session_id": format!("client-{client}"),
    });
    Outgoing::post(format!("{base}/v1/chat/completions"), body.to_string())
}

/// Whether the answer is all there; if it is not, it says so.
fn is_whole(answer: &Answer, stream: bool) -> bool {
    let text = answer.text();
    let failed = text.contains("\"error\"");
    let ended = if stream { text.contains("data: [DONE]") } else { answer.status == 200 };
    assert!(
        failed || (ended && answer.status == 200),
        "neither whole nor an error: {}: {text}",
        answer.status
    );
    !failed
}
