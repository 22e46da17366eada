//! Work that does not come through the router.
use std::time::Duration;

use session_slot_tests::client::{self, chat, chat_request};
use session_slot_tests::{Answer, FakeLlama, Options, Router};
use tokio::task::JoinHandle;

use crate::{action_of, last_words, slot_of, started};

/// Foreign work in this slot, seen by the router.
pub(crate) async fn foreign_in(fake: &FakeLlama, router: &Router, slot: i64) -> JoinHandle<Answer> {
    let foreign = fake.foreign("HOLD:foreign", Some(slot));
    fake.wait_processing(1).await;
    // Any request makes it look.
    client::post_json(format!("{}/completion", router.url()), r#"{"prompt":"look"}"#).await;
    router.wait_foreign(slot as usize).await;
    foreign
}

#[tokio::test]
async fn a_new_session_skips_a_slot_that_is_busy_with_foreign_work() {
    let fake = FakeLlama::start(Options::default());
    let foreign = fake.foreign("HOLD:foreign", Some(0));
    fake.wait_processing(1).await;
    let router = Router::start(&fake).await;
    router.wait_foreign(0).await;
    let mut homes = Vec::new();
    for id in ["a", "b", "c", "d"] {
        homes.push(slot_of(&chat(&router.url(), id, id).await));
    }
    assert!(!homes.contains(&0), "{homes:?}");
    fake.release("foreign");
    assert_eq!(foreign.await.expect("it should end").status, 200);
}

#[tokio::test]
async fn a_session_waits_for_its_own_slot_while_foreign_work_is_in_it() {
    let (fake, router) = started(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "a", "first").await);
    let foreign = foreign_in(&fake, &router, home).await;
    let second = client::send_later(chat_request(&router.url(), "a", "second"));
    router.wait_waiting(1).await;
    assert_eq!(chat(&router.url(), "b", "other").await.status, 200);
    assert_eq!(last_words(&fake), ["first", "look", "other"]);
    fake.release("foreign");
    foreign.await.expect("it should end");
    let second = second.await.expect("it should end");
    assert_eq!((slot_of(&second), action_of(&second)), (home, "home"));
}

#[tokio::test]
async fn new_sessions_wait_while_foreign_work_fills_every_slot() {
    let fake = FakeLlama::start(Options::default().slots(2));
    let foreign = [0, 1].map(|slot| fake.foreign(&format!("HOLD:{slot} foreign"), Some(slot)));
    fake.wait_processing(2).await;
    let router = Router::start(&fake).await;
    router.wait_foreign(1).await;
    let waiting = client::send_later(chat_request(&router.url(), "a", "a"));
    router.wait_waiting(1).await;
    assert_eq!(last_words(&fake), [""; 0]);
    fake.release("1");
    assert_eq!(slot_of(&waiting.await.expect("it should end")), 1);
    fake.release("0");
    for one in foreign {
        one.await.expect("it should end");
    }
}

#[tokio::test]
async fn waiting_for_foreign_work_costs_few_polls() {
    let (fake, router) = started(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "a", "first").await);
    let foreign = foreign_in(&fake, &router, home).await;
    let waiting = client::send_later(chat_request(&router.url(), "a", "second"));
    router.wait_waiting(1).await;
    let before = fake.poll_count();
    // The length of the measurement, not a wait for anything: looks after 0.1, 0.4, 1.6 and 2.8 s.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let polls = fake.poll_count() - before;
    assert!((1..=6).contains(&polls), "{polls} polls in 3 s");
    fake.release("foreign");
    foreign.await.expect("it should end");
    assert_eq!(waiting.await.expect("it should end").status, 200);
}

#[tokio::test]
async fn what_foreign_work_left_in_a_sessions_slot_does_not_confuse_it() {
    let (fake, router) = started(Options::without_ram_cache()).await;
    let home = slot_of(&chat(&router.url(), "a", "first words").await);
    fake.foreign("something else entirely", Some(home)).await.expect("it should end");
    let again = chat(&router.url(), "a", "first words").await;
    assert_eq!((slot_of(&again), action_of(&again), again.prompt_n()), (home, "home", Some(2)));
}
