//! Slot actions.
use serde_json::json;
use session_slot_tests::client::{self, Answer};
use session_slot_tests::{FakeLlama, Options};

use crate::{complete, slots, words};

async fn action(fake: &FakeLlama, slot: usize, action: &str, file: &str) -> Answer {
    let url = format!("{}/slots/{slot}?action={action}", fake.url());
    client::post_json(url, json!({"filename": file}).to_string()).await
}

#[tokio::test]
async fn a_saved_slot_can_be_restored_into_another_one_after_a_restart() {
    let options = Options { slot_save: true, ..Options::default() };
    let fake = FakeLlama::start(options.clone());
    complete(&fake, &words("a", 100), json!(0)).await;
    assert_eq!(action(&fake, 0, "save", "f").await.json()["n_saved"], 103);
    fake.restart(options).await;
    assert_eq!(action(&fake, 1, "restore", "f").await.json()["n_restored"], 103);
    assert_eq!(complete(&fake, &words("a", 101), json!(1)).await.prompt_n(), Some(1));
    assert_eq!(action(&fake, 1, "restore", "missing").await.status, 400);
    assert_eq!(action(&fake, 7, "save", "g").await.json()["n_written"], 68);
}

#[tokio::test]
async fn a_restored_slot_does_not_show_its_tokens_until_its_next_use() {
    let fake = FakeLlama::start(Options { slot_save: true, ..Options::default() });
    complete(&fake, "one two", json!(0)).await;
    action(&fake, 0, "save", "f").await;
    action(&fake, 0, "restore", "f").await;
    assert_eq!(slots(&fake).await[0].get("n_prompt_tokens"), None);
    complete(&fake, "one two", json!(0)).await;
    assert_eq!(slots(&fake).await[0]["n_prompt_tokens"], 5);
}

#[tokio::test]
async fn a_200_from_restore_is_not_reuse_with_a_sliding_window() {
    let options = Options { slot_save: true, restore_is_reused: false, ..Options::default() };
    let fake = FakeLlama::start(options);
    complete(&fake, &words("a", 100), json!(0)).await;
    action(&fake, 0, "save", "f").await;
    assert_eq!(action(&fake, 1, "restore", "f").await.status, 200);
    assert_eq!(complete(&fake, &words("a", 101), json!(1)).await.cache_n(), Some(0));
}
