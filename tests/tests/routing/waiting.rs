//! Waiting: nothing that waits is sent, and whoever came first goes first.
use serde_json::json;
use session_slot_tests::Options;
use session_slot_tests::client::{self, Outgoing, chat, chat_body, chat_request};

use crate::{action_of, held_turn, last_words, slot_of, started};

#[tokio::test]
async fn a_sessions_next_turn_waits_for_the_one_that_runs_and_is_not_sent_meanwhile() {
    let (fake, router) = started(Options::default()).await;
    let first = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_processing(1).await;
    let second = client::send_later(chat_request(&router.url(), "a", "second"));
    router.wait_waiting(1).await;
    // Others come and go, so that the router decides again and again.
    for id in ["b", "c", "d", "e"] {
        assert_eq!(chat(&router.url(), id, id).await.status, 200);
    }
    assert_eq!(last_words(&fake), ["a", "b", "c", "d", "e"]);
    fake.release("gate");
    let home = slot_of(&first.await.expect("it should end"));
    let second = second.await.expect("it should end");
    assert_eq!((slot_of(&second), action_of(&second)), (home, "home"));
    assert_eq!(last_words(&fake).last().map(String::as_str), Some("second"));
}

#[tokio::test]
async fn when_all_slots_are_busy_new_sessions_go_in_order_of_arrival() {
    let (fake, router) = started(Options::default().slots(2)).await;
    let mut running = Vec::new();
    for (count, id) in (1..).zip(["a", "b"]) {
        running.push(client::send_later(held_turn(&router, id, id)));
        fake.wait_processing(count).await;
    }
    for (count, id) in (1..).zip(["c", "d", "e", "f"]) {
        running.push(client::send_later(held_turn(&router, id, id)));
        router.wait_waiting(count).await;
    }
    assert_eq!(last_words(&fake), ["a", "b"]);
    for (count, gate) in (3..).zip(["b", "a", "d", "c"]) {
        fake.release(gate);
        fake.wait_received(count).await;
    }
    assert_eq!(last_words(&fake), ["a", "b", "c", "d", "e", "f"]);
    fake.release("e");
    fake.release("f");
    for turn in running {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
    assert_eq!(fake.look(|state| state.deferred()), 0);
}

#[tokio::test]
async fn one_that_waits_for_its_own_slot_does_not_hold_up_those_behind_it() {
    let (fake, router) = started(Options::default()).await;
    let first = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_processing(1).await;
    let second = client::send_later(chat_request(&router.url(), "a", "second"));
    router.wait_waiting(1).await;
    let anonymous = Outgoing::post(format!("{}/completion", router.url()), r#"{"prompt":"anonymous"}"#);
    assert_eq!(client::send(anonymous).await.status, 200);
    assert_eq!(action_of(&chat(&router.url(), "new", "new").await), "new");
    fake.release("gate");
    assert_eq!(first.await.expect("it should end").status, 200);
    assert_eq!(second.await.expect("it should end").status, 200);
}

#[tokio::test]
async fn the_turns_of_one_session_run_in_the_order_they_came() {
    let (fake, router) = started(Options::default()).await;
    let mut turns = vec![client::send_later(held_turn(&router, "s", "0"))];
    fake.wait_processing(1).await;
    for turn in 1..6 {
        turns.push(client::send_later(chat_request(&router.url(), "s", &format!("turn {turn}"))));
        router.wait_waiting(turn).await;
    }
    fake.release("0");
    for turn in turns {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
    assert_eq!(last_words(&fake), ["s", "1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn how_long_it_waited_is_told() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let first = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_processing(1).await;
    let second = client::send_later(chat_request(&router.url(), "b", "text"));
    let waited_a_while = |status: &serde_json::Value| status["server"]["oldest_wait_ms"].as_u64() >= Some(50);
    router.wait_status("wait of 50 ms", waited_a_while).await;
    fake.release("gate");
    let waited = |answer: &session_slot_tests::Answer| {
        answer.header("x-slot-router-waited-ms").and_then(|text| text.parse::<u64>().ok())
    };
    assert_eq!(waited(&first.await.expect("it should end")), Some(0));
    assert!(waited(&second.await.expect("it should end")) >= Some(50));
    let totals = router.status().await["server"]["totals"].clone();
    assert_eq!((&totals["waited"], &totals["evict"]), (&json!(1), &json!(1)));
}

#[tokio::test]
async fn two_hundred_requests_of_twenty_sessions_are_all_served_and_no_busy_slot_is_named() {
    let (fake, router) = started(Options::default()).await;
    let requests = (0..200).map(|number| {
        let session = format!("s{}", number % 20);
        client::send_later(chat_request(&router.url(), &session, &format!("{session} says {number}")))
    });
    for request in requests.collect::<Vec<_>>() {
        assert_eq!(request.await.expect("it should end").status, 200);
    }
    router.wait_quiet().await;
    // Until the server has shown what it does with idle slots there may be a primer besides.
    let turns = fake.received().iter().filter(|one| one.target == "/v1/chat/completions").count();
    assert_eq!(turns, 200);
    fake.assert_clean();
}

#[tokio::test]
async fn a_request_for_several_answers_takes_no_slot_that_another_is_on_its_way_to() {
    let (fake, router) = started(Options::default().slots(2)).await;
    let mut body = chat_body(Some("a"), "LATE:several HOLD:hold words");
    body["n"] = json!(2);
    let several = Outgoing::post(format!("{}/v1/chat/completions", router.url()), body.to_string());
    let several = client::send_later(several);
    fake.wait_received(1).await;
    let other = client::send_later(chat_request(&router.url(), "b", "LATE:other words"));
    let both_known = |status: &serde_json::Value| {
        let server = &status["server"];
        server["leases"].as_u64().unwrap_or(0) + server["waiting"].as_u64().unwrap_or(0) == 2
    };
    router.wait_status("second request", both_known).await;
    fake.release("several");
    fake.wait_processing(2).await;
    fake.release("other");
    // If it was sent, it arrives at a busy slot now.
    router.wait_status("second request", both_known).await;
    fake.release("hold");
    assert_eq!(several.await.expect("it should end").status, 200);
    assert_eq!(other.await.expect("it should end").status, 200);
    fake.assert_clean();
}
