//! What `/slots` shows.
use serde_json::json;
use session_slot_tests::client::{self, Outgoing};
use session_slot_tests::{FakeLlama, Options};

use crate::{complete, slots};

#[tokio::test]
async fn an_unused_slot_shows_four_fields_and_a_used_one_its_last_task() {
    let fake = FakeLlama::start(Options::default().slots(2));
    complete(&fake, "one two three", json!(0)).await;
    let shown = slots(&fake).await;
    assert_eq!(shown[1], json!({"id": 1, "n_ctx": 8192, "speculative": false, "is_processing": false}));
    assert_eq!(shown[0]["id_task"], 0);
    assert_eq!(shown[0]["n_prompt_tokens"], 3 + 4 - 1);
    assert_eq!(shown[0]["n_prompt_tokens_processed"], 3);
    assert_eq!(shown[0]["n_prompt_tokens_cache"], 0);
    let next = json!([{"has_next_token": false, "has_new_line": false, "n_remain": 0, "n_decoded": 4}]);
    assert_eq!(shown[0]["next_token"], next);
}

#[tokio::test]
async fn one_counter_numbers_all_tasks_and_polls_use_it_too() {
    let fake = FakeLlama::start(Options::default());
    complete(&fake, "one", json!(0)).await;
    slots(&fake).await;
    complete(&fake, "two", json!(1)).await;
    let shown = slots(&fake).await;
    assert_eq!((&shown[0]["id_task"], &shown[1]["id_task"]), (&json!(0), &json!(2)));
}

#[tokio::test]
async fn a_cleared_slot_keeps_its_task_and_shows_no_tokens() {
    let fake = FakeLlama::start(Options::default_settings());
    complete(&fake, "one", json!(0)).await;
    complete(&fake, "two", json!(1)).await;
    let shown = slots(&fake).await;
    assert_eq!((&shown[0]["id_task"], &shown[0]["n_prompt_tokens"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn slots_can_be_silent_while_health_is_not() {
    let fake = FakeLlama::start(Options::default());
    fake.pause_slots();
    let url = format!("{}/slots", fake.url());
    let silent = tokio::spawn(client::send(Outgoing::get(url)));
    fake.wait_until("one poll", |state| state.poll_count() == 1).await;
    assert_eq!(client::get(format!("{}/health", fake.url())).await.status, 200);
    assert!(!silent.is_finished());
    fake.resume_slots();
    assert_eq!(silent.await.expect("it should end").status, 200);
}

#[tokio::test]
async fn a_full_server_says_so_if_asked() {
    let fake = FakeLlama::start(Options::default().slots(1));
    let url = format!("{}/slots?fail_on_no_slot=1", fake.url());
    assert_eq!(client::get(&url).await.status, 200);
    let running = fake.foreign("HOLD:a", None);
    fake.wait_processing(1).await;
    let full = client::get(&url).await;
    assert_eq!((full.status.as_u16(), &full.json()["error"]["message"]), (503, &json!("no slot available")));
    fake.release("a");
    running.await.expect("it should end");
}
