//! Which slot a request gets, and what waiting inside the server does.
use serde_json::json;
use session_slot_tests::client::{self, Outgoing};
use session_slot_tests::fake::{DAMAGED, SlotId};
use session_slot_tests::{FakeLlama, Options};

use crate::{complete, slot_of, words};

#[tokio::test]
async fn a_named_slot_is_used_and_wraps_around() {
    let fake = FakeLlama::start(Options::default());
    for (named, used) in [(json!(2), 2), (json!(5), 1), (json!(-2), 2), (json!(1.7), 1)] {
        assert_eq!(slot_of(&fake, &words("a", 20), named.clone()).await, used, "{named}");
    }
}

#[tokio::test]
async fn what_is_not_a_number_names_no_slot() {
    let fake = FakeLlama::start(Options::default());
    for (named, name) in [(json!("2"), "a"), (json!(null), "b"), (json!(-1), "c")] {
        // The last unused slot first, and never the one named.
        let expected = match name {
            "a" => 3,
            "b" => 2,
            _ => 1,
        };
        assert_eq!(slot_of(&fake, &words(name, 20), named).await, expected, "{name}");
    }
}

#[tokio::test]
async fn two_sessions_with_one_system_prompt_are_put_in_one_slot() {
    let fake = FakeLlama::start(Options::default());
    let system = words("system", 20);
    let one = slot_of(&fake, &format!("{system} {}", words("a", 20)), json!(null)).await;
    let two = slot_of(&fake, &format!("{system} {}", words("b", 20)), json!(null)).await;
    assert_eq!(one, two);
}

#[tokio::test]
async fn a_prompt_with_a_tenth_in_common_takes_the_least_recently_used_slot() {
    let fake = FakeLlama::start(Options::default().slots(2));
    let first = slot_of(&fake, &words("a", 20), json!(null)).await;
    let second = slot_of(&fake, &format!("a0 a1 {}", words("b", 18)), json!(null)).await;
    assert_ne!(first, second);
    assert_eq!(slot_of(&fake, &words("c", 20), json!(null)).await, first);
}

#[tokio::test]
async fn naming_a_busy_slot_damages_the_request_that_runs_in_it() {
    let fake = FakeLlama::start(Options::default());
    let running = fake.foreign("first HOLD:a", Some(1));
    fake.wait_processing(1).await;
    let intruder = fake.foreign("second", Some(1));
    fake.wait_until("one deferred", |state| state.deferred() == 1).await;
    fake.release("a");
    let damaged = running.await.expect("it should end");
    assert_eq!(damaged.status, 200);
    assert!(damaged.text().contains(DAMAGED), "{}", damaged.text());
    assert!(!intruder.await.expect("it should end").text().contains(DAMAGED));
    let violations = fake.look(|state| state.violations().to_vec());
    assert_eq!((violations.len(), violations[0].slot), (1, SlotId(1)));
}

#[tokio::test]
#[should_panic(expected = "busy slots were named")]
async fn dropping_a_fake_whose_busy_slot_was_named_fails_the_test() {
    let fake = FakeLlama::start(Options::default());
    let _running = fake.foreign("first HOLD:a", Some(1));
    fake.wait_processing(1).await;
    let url = format!("{}/completion", fake.url());
    let intruder = json!({"prompt": "second", "id_slot": 1}).to_string();
    tokio::spawn(client::send(Outgoing::post(url, intruder)));
    fake.wait_until("one deferred", |state| state.deferred() == 1).await;
}

#[tokio::test]
async fn a_release_that_wakes_a_task_for_a_busy_slot_leaves_the_free_slot_idle() {
    let fake = FakeLlama::start(Options::default().slots(2));
    let long = fake.foreign("long HOLD:long", Some(0));
    let short = fake.foreign("short HOLD:short", Some(1));
    fake.wait_processing(2).await;
    let pinned = fake.foreign("pinned", Some(0));
    fake.wait_until("one deferred", |state| state.deferred() == 1).await;
    let unpinned = fake.foreign("unpinned", None);
    fake.wait_until("two deferred", |state| state.deferred() == 2).await;
    fake.release("short");
    short.await.expect("it should end");
    assert_eq!(fake.look(|state| (state.processing(), state.deferred())), (1, 2));
    fake.release("long");
    for request in [long, pinned, unpinned] {
        assert_eq!(request.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn a_slot_action_woken_first_leaves_those_behind_it_hanging() {
    let fake = FakeLlama::start(Options { slot_save: true, ..Options::default().slots(1) });
    let running = fake.foreign("running HOLD:a", None);
    fake.wait_processing(1).await;
    let url = format!("{}/slots/0?action=erase", fake.url());
    let erased = tokio::spawn(client::send(Outgoing::post(url, "{}")));
    // The running request is not the router's, so this is no violation.
    fake.wait_until("the action deferred", |state| state.deferred() == 1).await;
    let behind = fake.foreign("behind", None);
    fake.wait_until("both deferred", |state| state.deferred() == 2).await;
    fake.release("a");
    running.await.expect("it should end");
    assert_eq!(erased.await.expect("it should end").status, 200);
    assert_eq!(fake.look(|state| (state.processing(), state.deferred())), (0, 1));
    assert_eq!(complete(&fake, "another", json!(null)).await.status, 200);
    assert_eq!(behind.await.expect("woken by the other").status, 200);
}

#[tokio::test]
async fn further_choices_take_further_slots() {
    let fake = FakeLlama::start(Options::default());
    let body = json!({"messages": [{"role": "user", "content": "HOLD:a"}], "n": 3}).to_string();
    let url = format!("{}/v1/chat/completions", fake.url());
    let answer = tokio::spawn(client::send(Outgoing::post(url, body)));
    fake.wait_processing(3).await;
    fake.release("a");
    let answer = answer.await.expect("it should end").json();
    assert_eq!(answer["choices"].as_array().map(Vec::len), Some(3));
    assert_eq!(fake.look(|state| state.processing()), 0);
}

#[tokio::test]
async fn a_build_that_ignores_id_slot_chooses_itself() {
    let fake = FakeLlama::start(Options { honour_id_slot: false, ..Options::default() });
    assert_eq!(slot_of(&fake, "hello", json!(0)).await, 3);
}
