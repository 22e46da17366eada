//! Clients that leave, servers that restart.
use std::time::{Duration, Instant};

use serde_json::json;
use session_slot_tests::client::{self, Outgoing};
use session_slot_tests::{FakeLlama, Options};

use crate::{complete, slots};

async fn keep_polling(fake: &FakeLlama) {
    loop {
        slots(fake).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_stream_whose_client_leaves_frees_its_slot_at_once() {
    let fake = FakeLlama::start(Options::default());
    let body = json!({"prompt": "HOLDEND:a", "stream": true}).to_string();
    let mut stream = client::stream_json(format!("{}/completion", fake.url()), body).await;
    stream.read_until("out0").await;
    assert_eq!(fake.look(|state| state.processing()), 1);
    drop(stream);
    // Under traffic that would put off the noticing of a client of a whole answer.
    tokio::select! {
        () = fake.wait_processing(0) => {}
        () = keep_polling(&fake) => {}
    }
}

/// A request that is answered whole, its client gone while it runs.
async fn abandoned_request(fake: &FakeLlama) {
    let body = json!({"prompt": "HOLD:a"}).to_string();
    let url = format!("{}/completion", fake.url());
    let request = tokio::spawn(client::send(Outgoing::post(url, body)));
    fake.wait_processing(1).await;
    request.abort();
}

#[tokio::test]
async fn a_whole_answer_whose_client_leaves_runs_on_for_a_second() {
    let fake = FakeLlama::start(Options::default());
    abandoned_request(&fake).await;
    let left = Instant::now();
    fake.wait_processing(0).await;
    assert!(left.elapsed() > Duration::from_millis(900), "{:?}", left.elapsed());
}

#[tokio::test]
async fn polling_keeps_the_server_from_noticing_that_a_client_has_left() {
    let fake = FakeLlama::start(Options::default());
    abandoned_request(&fake).await;
    let left = Instant::now();
    while left.elapsed() < Duration::from_millis(1500) {
        assert_eq!(slots(&fake).await.to_string().matches("\"is_processing\":true").count(), 1);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fake.release("a");
    fake.wait_processing(0).await;
}

#[tokio::test]
async fn a_deferred_request_whose_client_leaves_is_forgotten() {
    let fake = FakeLlama::start(Options::default().slots(1));
    let running = fake.foreign("HOLD:a", None);
    fake.wait_processing(1).await;
    let body = json!({"prompt": "waiting", "stream": true}).to_string();
    let url = format!("{}/completion", fake.url());
    let waiting = tokio::spawn(client::open(Outgoing::post(url, body)));
    fake.wait_until("one deferred", |state| state.deferred() == 1).await;
    waiting.abort();
    fake.wait_until("none deferred", |state| state.deferred() == 0).await;
    fake.release("a");
    running.await.expect("it should end");
}

#[tokio::test]
async fn a_restart_cuts_connections_and_forgets_slots_and_task_numbers() {
    let fake = FakeLlama::start(Options::default());
    complete(&fake, "one", json!(0)).await;
    let url = format!("{}/completion", fake.url());
    let body = json!({"prompt": "HOLD:a"}).to_string();
    let cut = tokio::spawn(client::try_send(Outgoing::post(url, body)));
    fake.wait_processing(1).await;
    fake.restart(Options::default().slots(2)).await;
    assert!(cut.await.expect("it should end").is_err());
    let shown = slots(&fake).await;
    assert_eq!(shown.as_array().map(Vec::len), Some(2));
    assert_eq!(shown[0].get("id_task"), None);
    complete(&fake, "two", json!(0)).await;
    assert_eq!(slots(&fake).await[0]["id_task"], 1);
}

#[tokio::test]
async fn a_stopped_server_refuses_connections_until_it_is_started_again() {
    let fake = FakeLlama::start(Options::default());
    fake.stop().await;
    let health = Outgoing::get(format!("{}/health", fake.url()));
    assert!(client::try_send(health.clone()).await.is_err());
    fake.start_again().await;
    assert_eq!(client::send(health).await.status, 200);
}

#[tokio::test]
async fn a_late_request_has_arrived_but_is_in_no_slot() {
    let fake = FakeLlama::start(Options::default());
    let late = fake.foreign("LATE:a", None);
    fake.wait_received(1).await;
    assert_eq!(fake.look(|state| (state.processing(), state.deferred())), (0, 0));
    fake.release("a");
    assert_eq!(late.await.expect("it should end").status, 200);
}
