//! Slot actions: states in files, and what restored ones are good for.
use serde_json::json;
use session_slot_tests::client::{self, Answer};
use session_slot_tests::fake::What;
use session_slot_tests::{FakeLlama, Options};
use tempfile::TempDir;

use crate::{complete, slots, words};

async fn action(fake: &FakeLlama, slot: usize, action: &str, file: &str) -> Answer {
    let url = format!("{}/slots/{slot}?action={action}", fake.url());
    client::post_json(url, json!({"filename": file}).to_string()).await
}

/// A fake that keeps states by name.
fn saving() -> FakeLlama {
    FakeLlama::start(Options { slot_save: true, ..Options::default() })
}

/// A fake with a folder for states, and a hundred words of `a` saved in it as `f`.
async fn with_a_state(options: Options) -> (FakeLlama, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder should be possible");
    let fake = FakeLlama::start(options.saving_to(folder.path()));
    complete(&fake, &words("a", 100), json!(0)).await;
    assert_eq!(action(&fake, 0, "save", "f").await.status, 200);
    (fake, folder)
}

fn told(answer: &Answer) -> (u16, String) {
    let error = answer.json()["error"].clone();
    (answer.status.as_u16(), error["message"].as_str().unwrap_or_default().to_owned())
}

fn held(fake: &FakeLlama, slot: usize) -> usize {
    fake.look(|state| state.slots()[slot].held_tokens())
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
async fn a_save_tells_the_tokens_and_bytes_of_the_file_it_writes() {
    let (fake, folder) = with_a_state(Options::default()).await;
    let saved = action(&fake, 0, "save", "g").await.json();
    assert_eq!((&saved["n_saved"], &saved["n_written"]), (&json!(103), &json!(68 + 103 * 100)));
    assert_eq!(saved["n_saved"], slots(&fake).await[0]["n_prompt_tokens"]);
    let file = std::fs::metadata(folder.path().join("g")).expect("the file should be there");
    assert_eq!(json!(file.len()), saved["n_written"]);
    assert!(saved["timings"]["save_ms"].as_f64() > Some(0.0), "{saved}");
    let restored = action(&fake, 1, "restore", "g").await.json();
    assert_eq!((&restored["n_restored"], &restored["n_read"]), (&json!(103), &saved["n_written"]));
}

#[tokio::test]
async fn without_a_save_path_every_action_is_refused_before_anything_else() {
    let fake = FakeLlama::start(Options::default());
    for (slot, kind, file) in [(0, "save", "f"), (0, "restore", "/"), (0, "erase", ""), (99, "none", "")] {
        let answer = action(&fake, slot, kind, file).await;
        assert_eq!(answer.json()["error"]["type"], "not_supported_error", "{kind}");
        assert_eq!(answer.status, 501, "{kind}");
    }
}

#[tokio::test]
async fn a_name_that_is_no_file_name_is_refused_and_touches_no_slot() {
    let (fake, _folder) = with_a_state(Options::default()).await;
    for name in ["/", "", "../x", "a/b", "a\\b", "..", "a.", " a", "a\n"] {
        for kind in ["save", "restore"] {
            let answer = action(&fake, 0, kind, name).await;
            assert_eq!(told(&answer), (400, "Invalid filename".to_owned()), "{kind} {name:?}");
        }
    }
    assert_eq!(held(&fake, 0), 103);
}

#[tokio::test]
async fn a_restore_takes_no_task_and_clears_no_other_slot() {
    let (fake, _folder) = with_a_state(Options::default_settings()).await;
    complete(&fake, &words("b", 50), json!(2)).await;
    action(&fake, 0, "restore", "f").await;
    action(&fake, 1, "restore", "f").await;
    let shown = slots(&fake).await;
    assert_eq!((&shown[0]["id_task"], &shown[0]["n_prompt_tokens"]), (&json!(0), &json!(103)));
    assert_eq!((shown[1].get("id_task"), shown[1].get("n_prompt_tokens")), (None, None));
    assert_eq!(held(&fake, 2), 53);
    // Like any idle slot it is cleared by the next task elsewhere.
    complete(&fake, &words("c", 50), json!(3)).await;
    assert_eq!((held(&fake, 0), held(&fake, 1)), (0, 0));
}

#[tokio::test]
async fn an_erased_slot_shows_its_task_and_no_tokens() {
    let fake = saving();
    complete(&fake, "one two", json!(0)).await;
    assert_eq!(action(&fake, 0, "erase", "").await.json()["n_erased"], 5);
    let shown = slots(&fake).await;
    assert_eq!((&shown[0]["id_task"], &shown[0]["n_prompt_tokens"]), (&json!(0), &json!(0)));
}

/// How many tokens of `f`, which holds 103, a prompt reuses that shares `count` of them.
async fn reused(count: usize) -> Option<u64> {
    let (fake, _folder) = with_a_state(Options::without_ram_cache()).await;
    action(&fake, 1, "restore", "f").await;
    let prompt = format!("{} {}", words("a", count), words("b", 40));
    complete(&fake, &prompt, json!(1)).await.cache_n()
}

#[tokio::test]
async fn a_restored_state_is_reused_if_half_of_it_fits() {
    assert_eq!([reused(100).await, reused(60).await, reused(45).await], [Some(100), Some(60), Some(0)]);
}

#[tokio::test]
async fn a_200_from_restore_is_not_reuse_with_a_sliding_window() {
    let (fake, _folder) = with_a_state(Options { restore_is_reused: false, ..Options::default() }).await;
    assert_eq!(action(&fake, 0, "restore", "f").await.status, 200);
    assert_eq!(slots(&fake).await[0]["n_prompt_tokens"], 103);
    assert_eq!(complete(&fake, &words("a", 101), json!(0)).await.cache_n(), Some(0));
    let launch = fake.launches()[1];
    assert_eq!((launch.restored, launch.cache_n), (Some(103), 0));
}

#[tokio::test]
async fn what_is_no_state_is_refused_and_leaves_the_slot_empty() {
    let (fake, folder) = with_a_state(Options::default()).await;
    std::fs::write(folder.path().join("junk"), "no state").expect("the folder is ours");
    for name in ["missing", "junk"] {
        complete(&fake, &words("b", 50), json!(1)).await;
        let (status, message) = told(&action(&fake, 1, "restore", name).await);
        assert!(status == 400 && message.starts_with("Unable to restore slot"), "{name}: {message}");
        assert_eq!(held(&fake, 1), 0, "{name}");
    }
}

#[tokio::test]
async fn a_state_of_another_layout_is_refused() {
    let (fake, folder) = with_a_state(Options::default()).await;
    let usual = || Options::default().saving_to(folder.path());
    for other in [Options { layout: 44, ..usual() }, Options { bytes_per_token: 60, ..usual() }] {
        fake.restart(other).await;
        assert_eq!(action(&fake, 0, "restore", "f").await.status, 400);
    }
    fake.restart(usual()).await;
    assert_eq!(action(&fake, 0, "restore", "f").await.status, 200);
}

#[tokio::test]
async fn a_state_of_another_model_is_taken_and_who_goes_on_from_it_talks_nonsense() {
    let (fake, folder) = with_a_state(Options::default()).await;
    let mut other = Options::default().saving_to(folder.path());
    other.served.path = "/models/another.gguf".to_owned();
    fake.restart(other).await;
    assert_eq!(action(&fake, 0, "restore", "f").await.status, 200);
    let answer = complete(&fake, &words("a", 101), json!(0)).await;
    assert!(answer.text().contains(session_slot_tests::fake::DAMAGED), "{}", answer.text());
}

#[tokio::test]
async fn a_state_cut_short_kills_the_server() {
    let (fake, folder) = with_a_state(Options::default()).await;
    let path = folder.path().join("f");
    let whole = std::fs::read(&path).expect("the file should be there");
    std::fs::write(&path, &whole[..whole.len() - 1]).expect("the folder is ours");
    assert!(fake.foreign_action(1, "restore", "f").await.is_err());
    fake.wait_until("a crash", |state| state.crashes().len() == 1).await;
    let health = client::Outgoing::get(format!("{}/health", fake.url()));
    assert!(client::try_send(health.clone()).await.is_err());
    fake.start_again().await;
    assert_eq!(client::send(health).await.status, 200);
    assert_eq!(held(&fake, 0), 0);
}

#[tokio::test]
#[should_panic(expected = "the server was killed by bad files")]
async fn dropping_a_fake_that_was_killed_fails_the_test() {
    let (fake, folder) = with_a_state(Options::default()).await;
    let file = std::fs::File::options().write(true).open(folder.path().join("f"));
    file.and_then(|file| file.set_len(5000)).expect("the folder is ours");
    let url = format!("{}/slots/1?action=restore", fake.url());
    let restore = client::Outgoing::post(url, json!({"filename": "f"}).to_string());
    assert!(client::try_send(restore).await.is_err());
    fake.wait_until("a crash", |state| state.crashes().len() == 1).await;
}

#[tokio::test]
async fn a_full_disk_fails_the_save_and_keeps_a_torn_file() {
    let (fake, folder) = with_a_state(Options::default()).await;
    fake.faults(|faults| faults.room = Some(5000));
    let (status, message) = told(&action(&fake, 0, "save", "g").await);
    assert_eq!((status, message.as_str()), (500, "Unable to save slot"));
    assert_eq!(std::fs::metadata(folder.path().join("g")).map(|file| file.len()).ok(), Some(5000));
    assert_eq!(held(&fake, 0), 103);
    assert!(fake.foreign_action(1, "restore", "g").await.is_err());
    fake.wait_until("a crash", |state| state.crashes().len() == 1).await;
}

#[tokio::test]
async fn saves_and_restores_can_be_made_to_fail() {
    let (fake, _folder) = with_a_state(Options::default()).await;
    fake.faults(|faults| (faults.fail_saves, faults.fail_restores) = (true, true));
    assert_eq!(action(&fake, 0, "save", "g").await.status, 500);
    assert_eq!(action(&fake, 0, "restore", "f").await.status, 400);
    assert_eq!(held(&fake, 0), 0);
    fake.faults(|faults| (faults.fail_saves, faults.fail_restores) = (false, false));
    assert_eq!(action(&fake, 0, "restore", "f").await.status, 200);
    let deeds: Vec<What> = fake.deeds().into_iter().skip(2).map(|deed| deed.what).collect();
    let failed = |name: &str| What::Failed(name.to_owned());
    assert_eq!(deeds, [failed("g"), failed("f"), What::Restored("f".to_owned(), 103)]);
}

#[tokio::test]
async fn while_a_save_takes_long_the_server_does_nothing_else() {
    let (fake, _folder) = with_a_state(Options::default()).await;
    let (mut running, url) = (fake.foreign("HOLDEND:a", Some(2)), fake.url());
    fake.wait_until("a first word", |state| state.slots()[2].said() == 1).await;
    fake.faults(|faults| faults.hold_saves = true);
    let save = client::Outgoing::post(format!("{url}/slots/0?action=save"), r#"{"filename":"g"}"#);
    let save = client::send_later(save);
    fake.wait_until("a held save", |state| state.action_held()).await;
    let look = client::send_later(client::Outgoing::get(format!("{url}/slots")));
    let other = fake.foreign("other words", None);
    fake.release("a");
    fake.wait_until("all of them", |state| state.poll_count() == 1 && state.slot_taker_count() == 3).await;
    assert_eq!(client::get(format!("{url}/health")).await.status, 200);
    assert_eq!((fake.launches().len(), save.is_finished(), look.is_finished()), (2, false, false));
    assert!(futures_util::FutureExt::now_or_never(&mut running).is_none());
    fake.faults(|faults| faults.hold_saves = false);
    assert_eq!(save.await.expect("it should end").json()["n_saved"], 103);
    for ended in [look, running, other] {
        assert_eq!(ended.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn an_action_that_comes_late_finds_the_slot_as_it_is_then() {
    let (fake, _folder) = with_a_state(Options::default()).await;
    fake.faults(|faults| faults.late = true);
    let url = format!("{}/slots/0?action=save", fake.url());
    let save = client::send_later(client::Outgoing::post(url, r#"{"filename":"g"}"#));
    let taken = |state: &session_slot_tests::fake::State| {
        state.received().iter().filter(|one| one.target.ends_with("save")).count() == 2
    };
    fake.wait_until("the save", taken).await;
    let foreign = fake.foreign("HOLD:a foreign", Some(0));
    fake.wait_processing(1).await;
    fake.faults(|faults| faults.late = false);
    fake.wait_until("the save deferred", |state| state.deferred() == 1).await;
    // Nobody could have known: it is no violation.
    fake.assert_clean();
    fake.release("a");
    foreign.await.expect("it should end");
    assert_eq!(save.await.expect("it should end").json()["n_saved"], 5);
}

#[tokio::test]
#[should_panic(expected = "busy slots were named")]
async fn an_action_in_a_slot_where_a_request_of_the_router_runs_fails_the_test() {
    let fake = saving();
    let body = json!({"prompt": "HOLD:a", "id_slot": 1}).to_string();
    let _running = client::send_later(client::Outgoing::post(format!("{}/completion", fake.url()), body));
    fake.wait_processing(1).await;
    let url = format!("{}/slots/1?action=erase", fake.url());
    let _action = client::send_later(client::Outgoing::post(url, "{}"));
    fake.wait_until("one deferred", |state| state.deferred() == 1).await;
}
