//! Clients that leave.
use std::time::{Duration, Instant};

use serde_json::json;
use session_slot_tests::client::{self, RawConnection, chat, chat_request};
use session_slot_tests::{Options, Router};

use crate::{action_of, held_turn, last_words, slot_of, started, streamed_turn};

#[tokio::test]
async fn a_request_whose_client_leaves_while_it_waits_is_never_sent_and_evicts_nobody() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let running = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_processing(1).await;
    let leaving = client::send_later(chat_request(&router.url(), "b", "left"));
    router.wait_waiting(1).await;
    leaving.abort();
    router.wait_waiting(0).await;
    fake.release("gate");
    running.await.expect("it should end");
    assert_eq!(action_of(&chat(&router.url(), "a", "again").await), "home");
    assert_eq!(last_words(&fake), ["a", "again"]);
    router.terminate().await;
    assert!(router.database().rows("SELECT * FROM sessions").iter().all(|row| row["session"] != "b"));
    let line = router.request_log().into_iter().find(|line| line["agent_session_id"] == "b");
    let line = line.expect("it should be in the log");
    assert_eq!(
        (&line["status"], &line["action"], &line["slot"]),
        (&json!(499), &json!("wait"), &json!(null))
    );
}

#[tokio::test]
async fn those_behind_one_that_left_the_queue_move_up() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let running = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_processing(1).await;
    let mut waiting = Vec::new();
    for (count, id) in (1..).zip(["b", "c", "d"]) {
        waiting.push(client::send_later(chat_request(&router.url(), id, id)));
        router.wait_waiting(count).await;
    }
    waiting.remove(0).abort();
    router.wait_waiting(2).await;
    fake.release("gate");
    running.await.expect("it should end");
    for turn in waiting {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
    assert_eq!(last_words(&fake), ["a", "c", "d"]);
}

#[tokio::test]
async fn after_a_client_of_a_whole_answer_has_left_its_slot_is_not_granted_before_it_is_idle() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let leaving = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_processing(1).await;
    leaving.abort();
    // The server runs on until it has been left alone for a second; polls put that off.
    let (left, polls) = (Instant::now(), fake.poll_count());
    let next = chat(&router.url(), "b", "next").await;
    assert_eq!((next.status.as_u16(), slot_of(&next)), (200, 0));
    assert!(left.elapsed() > Duration::from_millis(900), "{:?}", left.elapsed());
    assert!(left.elapsed() < Duration::from_secs(12), "{:?}", left.elapsed());
    assert!(fake.poll_count() - polls <= 10, "{} polls", fake.poll_count() - polls);
    fake.assert_clean();
}

#[tokio::test]
async fn after_a_client_has_left_the_session_itself_waits_for_its_slot_too() {
    let (fake, router) = started(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "a", "first").await);
    let leaving = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_processing(1).await;
    leaving.abort();
    let again = chat(&router.url(), "a", "again").await;
    assert_eq!((slot_of(&again), action_of(&again)), (home, "home"));
    fake.assert_clean();
}

#[tokio::test]
async fn after_a_client_of_a_stream_has_left_its_slot_is_granted_again_once_it_is_idle() {
    let (fake, router) = started(Options::default().slots(1)).await;
    for round in 0..5 {
        let turn = streamed_turn(&router, &format!("s{round}"), "HOLDEND:never words");
        let mut stream = client::open(turn).await;
        stream.read_until("out0").await;
        drop(stream);
        assert_eq!(chat(&router.url(), "next", &format!("{round}")).await.status, 200);
    }
    fake.assert_clean();
}

#[tokio::test]
async fn a_client_that_leaves_before_its_request_has_landed_leaves_no_slot_named_too_early() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let leaving = client::send_later(chat_request(&router.url(), "a", "LATE:late HOLD:gate words"));
    fake.wait_received(1).await;
    leaving.abort();
    let next = client::send_later(chat_request(&router.url(), "b", "next"));
    // The left one only lands now, and is at work while the next one waits.
    fake.release("late");
    let next = next.await.expect("it should end");
    assert_eq!((next.status.as_u16(), slot_of(&next)), (200, 0));
    fake.assert_clean();
}

#[tokio::test]
async fn a_client_that_leaves_after_the_last_byte_leaves_everything_in_order() {
    let (fake, router) = started(Options::default()).await;
    for round in 0..20 {
        let body = format!(r#"{{"prompt":"words of round {round}","agent_session_id":"s"}}"#);
        let mut connection = raw_request(&router, &body).await;
        connection.read_until("\r\n\r\n").await;
        connection.read_until("\"truncated\":false}").await;
        drop(connection);
    }
    let lines = router.wait_requests(20).await;
    router.wait_quiet().await;
    assert!(lines.iter().all(|line| line["status"] == 200 && line["slot"] == lines[0]["slot"]), "{lines:?}");
    assert_eq!(fake.launches().len(), 20);
}

#[tokio::test]
async fn a_client_that_reads_only_the_head_leaves_everything_in_order() {
    let (fake, router) = started(Options::default().slots(1)).await;
    for round in 0..10 {
        let body = format!(r#"{{"prompt":"words","agent_session_id":"s{round}","stream":true}}"#);
        let mut connection = raw_request(&router, &body).await;
        connection.read_until("\r\n\r\n").await;
    }
    router.wait_quiet().await;
    assert_eq!(chat(&router.url(), "after", "text").await.status, 200);
    assert_eq!(fake.launches().len(), 11);
}

#[tokio::test]
async fn half_a_request_is_never_sent() {
    let (fake, router) = started(Options::default()).await;
    let mut connection = RawConnection::open(&router.url()).await;
    let head = "POST /completion HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    connection.send(format!("{head}content-length: 1000\r\n\r\n{{\"agent_session_id\":\"s\",")).await;
    drop(connection);
    let lines = router.wait_requests(1).await;
    assert_eq!(lines[0]["action"], "anonymous");
    assert_eq!(chat(&router.url(), "other", "text").await.status, 200);
    assert_eq!(fake.received().len(), 1);
    assert_eq!(fake.look(|state| state.incomplete()), 0);
}

#[tokio::test]
async fn twenty_clients_that_come_and_leave_at_any_time_do_no_harm() {
    let (fake, router) = started(Options::default().slots(2)).await;
    for round in 0..5 {
        let mut turns: Vec<_> = (0..20)
            .map(|n| client::send_later(streamed_turn(&router, &format!("s{}", n % 5), "some words here")))
            .collect();
        // As many have been sent as it takes, others are anywhere between arriving and waiting.
        fake.wait_received(round * 20 / 4 + 1).await;
        for turn in turns.iter().step_by(2) {
            turn.abort();
        }
        for turn in turns.drain(..) {
            assert!(turn.await.map_or_else(|error| error.is_cancelled(), |answer| answer.status == 200));
        }
    }
    router.wait_quiet().await;
    assert_eq!(chat(&router.url(), "after", "text").await.status, 200);
    fake.assert_clean();
}

async fn raw_request(router: &Router, body: &str) -> RawConnection {
    let mut connection = RawConnection::open(&router.url()).await;
    let head = "POST /completion HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    connection.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).await;
    connection
}
