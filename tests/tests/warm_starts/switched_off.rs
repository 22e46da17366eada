//! Warm starts end by themselves where they do no good, and it is said why and what to change.
use serde_json::Value;
use session_slot_tests::{FakeLlama, Options, Router, Session};

use crate::stage::{self, MIN_TOKENS, Stage};
use crate::{LEFT, reused, small, text};

fn advice(status: &Value) -> String {
    status["server"]["advice"].to_string()
}

/// Log lines that say this, on any level.
fn said(router: &Router, what: &str) -> usize {
    let says = |line: &&Value| line["message"].as_str().is_some_and(|message| message.contains(what));
    router.log().iter().filter(says).count()
}

/// A sliding window: restores are answered with 200, and nothing is reused.
fn sliding() -> Options {
    Options { restore_is_reused: false, ..small(1) }
}

/// The same server with `--swa-full`.
fn reusing(stage: &Stage) -> Options {
    Options { restore_is_reused: true, ..stage.options.clone() }
}

async fn rounds(talks: &mut [Session], ids: &[&str], turns: std::ops::Range<usize>) {
    for turn in turns {
        for (talk, id) in talks.iter_mut().zip(ids) {
            talk.say(&text(id, turn)).await;
        }
    }
}

#[tokio::test]
async fn states_that_are_not_reused_twice_are_not_tried_again_and_the_flag_that_helps_is_told() {
    let stage = Stage::open(sliding()).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    rounds(&mut talks, &["a", "b"], 1..4).await;
    stage.wait_standing("unreused").await;
    assert_eq!(stage.asked("restore"), 2);
    let saves = stage.asked("save");
    rounds(&mut talks, &["a", "b"], 4..6).await;
    assert_eq!((stage.asked("restore"), stage.asked("save")), (2, saves));
    let status = stage.router.status().await;
    assert!(advice(&status).contains("--swa-full"), "{status:#}");
    assert_eq!(status["server"]["warm"]["unreused"], 2);
    assert_eq!(said(&stage.router, "--swa-full"), 1);
}

#[tokio::test]
async fn one_state_that_is_reused_in_between_shows_that_they_work() {
    let stage = Stage::open(sliding()).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    talks[0].say(&text("a", 1)).await;
    stage.fake.restart(reusing(&stage)).await;
    talks[1].say(&text("b", 1)).await;
    talks[0].say(&text("a", 2)).await;
    assert_eq!(stage.warm().await["standing"], "on");
}

#[tokio::test]
async fn a_server_that_was_restarted_with_the_flag_is_tried_again() {
    let stage = Stage::open(sliding()).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    rounds(&mut talks, &["a", "b"], 1..4).await;
    stage.wait_standing("unreused").await;
    stage.fake.restart(reusing(&stage)).await;
    rounds(&mut talks, &["a", "b"], 4..5).await;
    assert!(reused(&talks[0].say(&text("a", 5)).await) > LEFT);
    let status = stage.router.status().await;
    assert_eq!(status["server"]["warm"]["standing"], "on");
    assert!(!advice(&status).contains("--swa-full"), "{status:#}");
}

#[tokio::test]
async fn a_restore_that_is_refused_leaves_an_erased_slot_and_a_cold_start() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    stage.fake.faults(|faults| faults.fail_restores = true);
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    assert_eq!(stage.story()[3..], ["save b", "failed", "erase", "a"]);
    assert_eq!(stage.warm().await["restore_failures"], 1);
    assert_eq!(stage.warm().await["standing"], "on");
}

#[tokio::test]
async fn three_refused_restores_in_a_row_end_warm_starts_until_the_server_restarts() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    stage.fake.faults(|faults| faults.fail_restores = true);
    rounds(&mut talks, &["a", "b"], 1..4).await;
    stage.wait_standing("refused").await;
    assert_eq!(stage.asked("restore"), 3);
    stage.fake.faults(|faults| faults.fail_restores = false);
    rounds(&mut talks, &["a", "b"], 4..5).await;
    assert_eq!(stage.asked("restore"), 3);
    stage.restart_server().await;
    rounds(&mut talks, &["a", "b"], 5..7).await;
    assert_eq!(stage.warm().await["standing"], "on");
    assert!(stage.asked("restore") > 3);
}

#[tokio::test]
async fn two_refused_restores_and_a_good_one_end_nothing() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    for turn in [1, 3] {
        stage.fake.faults(|faults| faults.fail_restores = true);
        rounds(&mut talks, &["a", "b"], turn..turn + 1).await;
        stage.fake.faults(|faults| faults.fail_restores = false);
        rounds(&mut talks, &["a", "b"], turn + 1..turn + 2).await;
    }
    assert_eq!((stage.warm().await["standing"].clone(), stage.asked("restore")), ("on".into(), 8));
}

#[tokio::test]
async fn without_a_save_path_nothing_is_tried_and_one_line_says_how_to_get_one() {
    let fake = FakeLlama::start(small(1));
    let router = Router::builder(&fake).config(&format!("[warm]\n{MIN_TOKENS}\n")).start().await;
    let mut talks = ["a", "b"].map(|id| Session::new(&router.url(), id));
    rounds(&mut talks, &["a", "b"], 0..3).await;
    router.wait_status("no save path", |status| status["server"]["warm"]["standing"] == "unsupported").await;
    assert_eq!((stage::asked(&fake, "save"), stage::asked(&fake, "restore")), (0, 0));
    assert_eq!((stage::asked(&fake, "erase"), said(&router, "--slot-save-path")), (0, 1));
    assert!(advice(&router.status().await).contains("--slot-save-path"));
}

#[tokio::test]
async fn a_server_that_gets_a_save_path_is_used_from_then_on() {
    let folder = tempfile::tempdir().expect("a temporary folder should be possible");
    let fake = FakeLlama::start(small(1));
    let router = Router::builder(&fake).config(&format!("[warm]\n{MIN_TOKENS}\n"));
    let router = router.flag("--warm-dir", &folder.path().to_string_lossy()).start().await;
    let mut talks = ["a", "b"].map(|id| Session::new(&router.url(), id));
    rounds(&mut talks, &["a", "b"], 0..1).await;
    fake.restart(small(1).saving_to(folder.path())).await;
    rounds(&mut talks, &["a", "b"], 1..2).await;
    assert!(reused(&talks[0].say(&text("a", 2)).await) > LEFT);
    assert!(!advice(&router.status().await).contains("--slot-save-path"));
}
