//! Many clients at once, on few slots.
use futures_util::future::join_all;
use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing};
use session_slot_tests::{Answer, Streaming};
use tokio::task::JoinHandle;

use crate::Stage;
use crate::talk::{Talk, prose};

const CLIENTS: usize = 32;
const SLOTS: usize = 4;

/// Answers asked for at once: two of them need more slots than half of all, so neither may wait with some in hand.
const NUMBERS: [usize; 3] = [3, 4, 3];

/// One turn of a session, half of them streamed.
fn turn(base: &str, client: usize, more: &Value) -> Outgoing {
    let text = prose(&format!("client {client}"), 30);
    let mut body = json!({
        "messages": [{"role": "user", "content": text}], "max_tokens": 6, "temperature": 0,
        "stream": client.is_multiple_of(2), "agent_session_id": name(client),
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    Outgoing::post(format!("{base}/v1/chat/completions"), body.to_string())
}

fn name(client: usize) -> String {
    format!("client-{client}")
}

pub(crate) async fn thirty_two_clients_all_end_in_the_order_they_came(stage: &mut Stage) {
    let holders = hold_all_slots(stage).await;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        clients.push(client::send_later(turn(&stage.router.url(), client, &json!({}))));
        // The next one comes when this one waits, so that the order is known.
        stage.router.wait_waiting(client as u64 + 1).await;
    }
    drop(holders);
    for client in join_all(clients).await {
        assert_whole(&client.expect("a client should get an answer"));
    }
    assert_in_order(&stage.router.wait_requests(SLOTS + CLIENTS).await);
}

/// A session in each slot that says more than anybody waits for; to be dropped.
async fn hold_all_slots(stage: &Stage) -> Vec<Streaming> {
    let long = json!({"max_tokens": 1500, "ignore_eos": true, "stream": true});
    let mut holders = Vec::new();
    for holder in 0..SLOTS {
        let mut stream = client::open(turn(&stage.router.url(), CLIENTS + holder, &long)).await;
        stream.read_until("\"content\"").await;
        holders.push(stream);
    }
    holders
}

fn assert_whole(answer: &Answer) {
    let text = answer.text();
    assert_eq!(answer.status, 200, "{text}");
    assert!(
        text.contains("data: [DONE]") || answer.json()["choices"][0]["finish_reason"].is_string(),
        "{text}"
    );
}

/// The log's lines come as requests end; one after the other in each slot.
fn assert_in_order(lines: &[Value]) {
    let came = |line: &Value| (0..CLIENTS).find(|client| line["agent_session_id"] == name(*client));
    let in_slot = |slot| lines.iter().filter(move |line| line["slot"] == slot).filter_map(came);
    let slots: Vec<Vec<usize>> = (0..SLOTS).map(|slot| in_slot(slot).collect()).collect();
    assert_eq!(slots.iter().map(Vec::len).sum::<usize>(), CLIENTS, "{slots:?}: {lines:#?}");
    assert!(slots.iter().all(|slot| slot.is_sorted()), "{slots:?}");
}

pub(crate) async fn requests_for_several_answers_get_along_with_sessions(stage: &mut Stage) {
    let base = stage.router.url();
    let mut talks = Talk::all(&base, &["a", "b", "c", "d"]);
    for talk in &mut talks {
        talk.say().await;
    }
    let several = NUMBERS.map(|n| several(&base, n));
    let sessions = join_all(talks.iter_mut().map(Talk::say));
    let (answers, _) = tokio::join!(join_all(several), sessions);
    for (answer, n) in answers.into_iter().zip(NUMBERS) {
        let answer = answer.expect("a request should get an answer");
        let choices = answer.json()["choices"].as_array().map_or(0, Vec::len);
        assert_eq!((answer.status.as_u16(), choices), (200, n), "{}", answer.text());
    }
}

/// A request for `n` answers, each of which takes a slot.
fn several(base: &str, n: usize) -> JoinHandle<Answer> {
    let text = prose(&format!("{n} answers"), 30);
    let body = json!({"messages": [{"role": "user", "content": text}], "max_tokens": 6, "n": n});
    client::send_later(Outgoing::post(format!("{base}/v1/chat/completions"), body.to_string()))
}
