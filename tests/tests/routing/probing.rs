//! `/slots`: how often it is asked, and what becomes of requests when it says nothing.
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing, chat, chat_request};
use session_slot_tests::{FakeLlama, Options, Router, Session};

use crate::foreign::foreign_in;
use crate::{action_of, held_turn, last_words, slot_of, started, streamed_turn};

#[tokio::test]
async fn one_answer_serves_every_request_that_waited_for_it() {
    let (fake, router) = started(Options::default().slots(64)).await;
    // While it is on its way no slot may be named, so all others wait for the same look.
    let late = r#"{"prompt":"LATE:late anonymous"}"#;
    let late = client::send_later(Outgoing::post(format!("{}/completion", router.url()), late));
    fake.wait_received(1).await;
    let turns: Vec<_> =
        (0..50).map(|n| client::send_later(held_turn(&router, &format!("s{n}"), "turns"))).collect();
    router.wait_waiting(50).await;
    let before = fake.poll_count();
    fake.release("late");
    fake.wait_processing(50).await;
    let polls = fake.poll_count() - before;
    assert!(polls <= 8, "{polls} polls for 50 requests");
    fake.release("turns");
    late.await.expect("it should end");
    for turn in turns {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn requests_that_come_together_share_polls() {
    let (fake, router) = started(Options::default().slots(64)).await;
    chat(&router.url(), "first", "text").await;
    let before = fake.poll_count();
    let turns: Vec<_> =
        (0..50).map(|n| client::send_later(held_turn(&router, &format!("s{n}"), "turns"))).collect();
    fake.wait_processing(50).await;
    let polls = fake.poll_count() - before;
    // At worst each finds the look before it over; a second one for each would be a loop.
    assert!(polls <= 60, "{polls} polls for 50 requests");
    fake.release("turns");
    for turn in turns {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn a_router_with_nothing_to_do_asks_nothing() {
    let (fake, router) = started(Options::default()).await;
    chat(&router.url(), "a", "text").await;
    let running = client::send_later(held_turn(&router, "b", "gate"));
    fake.wait_processing(1).await;
    // A second after the last change, whatever was still to be asked has been.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = fake.poll_count();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fake.poll_count(), before);
    fake.release("gate");
    running.await.expect("it should end");
}

#[tokio::test]
async fn while_slots_is_silent_requests_go_after_a_quarter_of_a_second_by_the_leases_alone() {
    let (fake, router) = started(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "a", "first").await);
    fake.pause_slots();
    let asked = Instant::now();
    let running = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_received(2).await;
    assert!(asked.elapsed() >= Duration::from_millis(200), "{:?}", asked.elapsed());
    // The lease is enough to know that the slot is busy.
    let waiting = client::send_later(chat_request(&router.url(), "a", "third"));
    let other = chat(&router.url(), "b", "other").await;
    assert_ne!(slot_of(&other), home);
    assert_eq!(last_words(&fake), ["first", "a", "other"]);
    fake.release("gate");
    assert_eq!(slot_of(&running.await.expect("it should end")), home);
    assert_eq!(slot_of(&waiting.await.expect("it should end")), home);
    fake.resume_slots();
    assert_eq!(action_of(&chat(&router.url(), "b", "again").await), "home");
}

#[tokio::test]
async fn a_silent_server_is_asked_once_however_many_requests_come() {
    let (fake, router) = started(Options::default()).await;
    chat(&router.url(), "first", "text").await;
    router.wait_quiet().await;
    fake.pause_slots();
    let before = fake.poll_count();
    for round in 0..3 {
        let turns: Vec<_> = (0..10)
            .map(|n| client::send_later(chat_request(&router.url(), &format!("s{n}"), &format!("{round}"))))
            .collect();
        for turn in turns {
            assert_eq!(turn.await.expect("it should end").status, 200);
        }
    }
    // The one that hangs, and one that was already on its way.
    assert!(fake.poll_count() - before <= 2, "{} polls", fake.poll_count() - before);
    fake.resume_slots();
}

#[tokio::test]
async fn while_slots_is_silent_no_slot_is_named_that_an_anonymous_request_may_be_in() {
    let (fake, router) = started(Options::default().slots(2)).await;
    chat(&router.url(), "a", "first").await;
    router.wait_quiet().await;
    fake.pause_slots();
    let anonymous = Outgoing::post(format!("{}/completion", router.url()), r#"{"prompt":"HOLD:hold words"}"#);
    let anonymous = client::send_later(anonymous);
    fake.wait_processing(1).await;
    let waiting = client::send_later(chat_request(&router.url(), "a", "second"));
    let past_the_silence = |status: &Value| status["server"]["oldest_wait_ms"].as_u64() >= Some(600);
    router.wait_status("wait beyond the silence", past_the_silence).await;
    assert_eq!(fake.received().len(), 2);
    fake.release("hold");
    assert_eq!(anonymous.await.expect("it should end").status, 200);
    assert_eq!(action_of(&waiting.await.expect("it should end")), "home");
    fake.resume_slots();
}

#[tokio::test]
async fn after_the_silence_a_slot_with_foreign_work_is_seen_again() {
    let (fake, router) = started(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "a", "first").await);
    fake.pause_slots();
    assert_eq!(chat(&router.url(), "b", "other").await.status, 200);
    fake.resume_slots();
    let up = |status: &Value| status["server"]["reach"] == "up";
    router.wait_status("answer", up).await;
    let foreign = foreign_in(&fake, &router, home).await;
    let waiting = client::send_later(chat_request(&router.url(), "a", "second"));
    router.wait_waiting(1).await;
    fake.release("foreign");
    foreign.await.expect("it should end");
    assert_eq!(slot_of(&waiting.await.expect("it should end")), home);
}

fn without_slots() -> Options {
    Options { slots_endpoint: false, ..Options::default() }
}

#[tokio::test]
async fn without_slots_sessions_still_return_to_their_slot() {
    let (_fake, router) = started(without_slots()).await;
    let mut sessions = ["a", "b", "c", "d"].map(|id| Session::new(&router.url(), id));
    let mut homes = [None; 4];
    for turn in 0..3 {
        for (session, home) in sessions.iter_mut().zip(&mut homes) {
            let answer = session.say("some words").await;
            assert_eq!(slot_of(&answer), *home.get_or_insert(slot_of(&answer)));
            assert_eq!(answer.prompt_n().map(|n| n <= 3), Some(true), "turn {turn}");
        }
    }
}

#[tokio::test]
async fn without_slots_no_more_requests_are_sent_than_there_are_slots() {
    let (fake, router) = started(without_slots()).await;
    let turns: Vec<_> =
        (0..6).map(|n| client::send_later(held_turn(&router, &format!("s{n}"), "turns"))).collect();
    fake.wait_processing(4).await;
    router.wait_waiting(2).await;
    assert_eq!(fake.received().len(), 4);
    fake.release("turns");
    for turn in turns {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn without_slots_the_status_says_what_to_change() {
    let (_fake, router) = started(without_slots()).await;
    let seen = |status: &Value| status["server"]["reach"] == "no_slots";
    let status = router.wait_status("look at the server", seen).await;
    let advice = status["server"]["advice"][0].as_str().unwrap_or_default().to_owned();
    assert!(advice.contains("--slots"), "{advice}");
    router.wait_log(|line| line["level"] == "WARN" && line["message"] == json!(advice)).await;
}

#[tokio::test]
async fn a_slot_count_of_one_works() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let turns: Vec<_> = (0..8)
        .map(|n| client::send_later(chat_request(&router.url(), &format!("s{}", n % 3), "text")))
        .collect();
    for turn in turns {
        assert_eq!(slot_of(&turn.await.expect("it should end")), 0);
    }
    assert_eq!(fake.launches().len(), 8);
}

#[tokio::test]
async fn a_server_that_shows_its_slots_only_for_a_key_is_used_without_naming_any() {
    let (fake, router) = started(Options { api_key: Some("k".to_owned()), ..Options::default() }).await;
    for _ in 0..3 {
        let turn = chat_request(&router.url(), "a", "words").header("authorization", "Bearer k");
        let answer = client::send(turn).await;
        assert_eq!((answer.status.as_u16(), action_of(&answer)), (200, "free"));
    }
    assert!(fake.received().iter().all(|one| one.json().get("id_slot").is_none()));
    let status = router.status().await;
    let advice = status["server"]["advice"][0].as_str().unwrap_or_default().to_owned();
    assert!(advice.contains("--upstream-api-key-file"), "{advice}");
}

#[tokio::test]
async fn with_the_servers_key_the_router_sees_its_slots() {
    let fake = FakeLlama::start(Options { api_key: Some("k".to_owned()), ..Options::default() });
    let folder = tempfile::tempdir().expect("a temporary folder should be possible");
    let file = folder.path().join("key");
    std::fs::write(&file, "k\n").expect("the folder is ours");
    let router =
        Router::builder(&fake).flag("--upstream-api-key-file", &file.to_string_lossy()).start().await;
    assert_eq!(action_of(&chat(&router.url(), "a", "words").await), "new");
    assert_eq!(action_of(&chat(&router.url(), "a", "words").await), "home");
}

#[tokio::test]
async fn on_a_server_that_ignores_the_slot_named_every_request_is_served() {
    let (_fake, router) = started(Options { honour_id_slot: false, ..Options::default() }).await;
    let turns: Vec<_> = (0..24)
        .map(|n| {
            client::send_later(chat_request(&router.url(), &format!("s{}", n % 6), &format!("turn {n}")))
        })
        .collect();
    for turn in turns {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
    router.wait_quiet().await;
}

#[tokio::test]
async fn on_a_server_that_ignores_the_slot_named_an_answer_that_has_begun_frees_it() {
    let (fake, router) = started(Options { honour_id_slot: false, ..Options::default() }).await;
    let mut turns = Vec::new();
    for id in ["a", "b", "c", "d"] {
        turns.push(client::open(streamed_turn(&router, id, "HOLDEND:turns words")).await);
    }
    fake.wait_processing(4).await;
    fake.release("turns");
    for turn in turns {
        assert_eq!(turn.finish().await.expect("it should end").status, 200);
    }
}
