//! The files of states: whole or not used, removed when nobody wants them, and nobody else's business.
use std::fs;

use session_slot_tests::client::words;
use session_slot_tests::{FakeLlama, Options, Router, Session};

use crate::stage::{self, MIN_TOKENS, Stage};
use crate::{LEFT, reused, small, text};

/// `a` is saved in the one file there is, `b` in the slot.
async fn with_one_state() -> (Stage, Vec<Session>) {
    let stage = Stage::open(small(1)).await;
    let talks = stage.first_turns(&["a", "b"]).await;
    (stage, talks)
}

#[tokio::test]
async fn a_missing_file_is_a_cold_start() {
    let (stage, mut talks) = with_one_state().await;
    fs::remove_file(stage.file()).expect("the folder is ours");
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    assert_eq!(stage.asked("restore"), 0);
    assert_eq!(stage.warm().await["standing"], "on");
}

#[tokio::test]
async fn a_file_cut_short_is_never_sent_and_a_cold_start() {
    // The server would be killed by it, and with it the test.
    let (stage, mut talks) = with_one_state().await;
    let file = fs::File::options().write(true).open(stage.file()).expect("the file should be there");
    let length = file.metadata().expect("it should have a length").len();
    file.set_len(length - 1).expect("the folder is ours");
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    assert_eq!(stage.asked("restore"), 0);
}

#[tokio::test]
async fn a_file_cut_short_while_the_router_was_away_is_never_sent() {
    let (mut stage, mut talks) = with_one_state().await;
    let file = stage.file();
    stage.router.terminate().await;
    let whole = fs::read(&file).expect("the file should be there");
    fs::write(&file, &whole[..whole.len() / 2]).expect("the folder is ours");
    stage.start_router().await;
    talks[0].move_to(&stage.router.url());
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    assert_eq!(stage.asked("restore"), 0);
    assert!(!file.exists(), "{:?}", stage.files());
}

#[tokio::test]
async fn a_state_is_written_under_another_name_until_it_is_whole() {
    let (stage, _talks) = with_one_state().await;
    let whole = stage.file();
    stage.fake.faults(|faults| faults.room = Some(5000));
    stage.first_turns(&["c"]).await;
    // The torn file is gone, and would not have been taken for a whole one.
    assert_eq!(stage.file(), whole);
    let written = stage.fake.look(|state| {
        let saves = state.received().iter().filter(|one| one.target.ends_with("?action=save"));
        saves.map(|one| one.json()["filename"].clone()).collect::<Vec<_>>()
    });
    assert!(written.iter().all(|name| stage.files().iter().all(|file| name != file)), "{written:?}");
}

#[tokio::test]
async fn at_its_start_the_router_removes_its_orphans_and_leaves_all_other_files() {
    let (mut stage, mut talks) = with_one_state().await;
    stage.router.terminate().await;
    let states = stage.files();
    let (stem, ending) = states[0].rsplit_once('.').expect("a name should have an ending");
    let last = if stem.ends_with('0') { '1' } else { '0' };
    let orphan = format!("{}{last}.{ending}", &stem[..stem.len() - 1]);
    let others = ["notes.txt", "model.gguf", "mine.kv"];
    for name in others.iter().copied().chain([orphan.as_str()]) {
        fs::write(stage.states().join(name), "something").expect("the folder is ours");
    }
    stage.start_router().await;
    let mut expected: Vec<String> = others.map(str::to_owned).into_iter().chain(states).collect();
    expected.sort();
    assert_eq!(stage.files(), expected);
    talks[0].move_to(&stage.router.url());
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), LEFT);
}

#[cfg(unix)]
#[tokio::test]
async fn the_folder_is_the_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (stage, _talks) = with_one_state().await;
    let folder = fs::metadata(stage.states()).expect("the router should have made the folder");
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn the_names_of_files_tell_nothing() {
    let stage = Stage::open(small(1)).await;
    for id in ["canary", "kanarienvogel", "third"] {
        stage.talk(id).say(&words(&format!("{id}-0-"), 200)).await;
    }
    let files = stage.files();
    assert_eq!(files.len(), 2);
    for name in &files {
        let stem = name.split('.').next().unwrap_or_default();
        assert!(stem.len() >= 16 && stem.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    }
}

#[tokio::test]
async fn another_routers_states_in_the_same_folder_are_neither_used_nor_removed() {
    let (stage, mut talks) = with_one_state().await;
    stage.router.terminate().await;
    let theirs = stage.files();
    let state_dir = tempfile::tempdir().expect("a temporary folder should be possible");
    let other = stage.builder().state_dir(state_dir.path()).start().await;
    talks[0].move_to(&other.url());
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    assert!(theirs.iter().all(|file| stage.files().contains(file)), "{:?} of {theirs:?}", stage.files());
    assert_eq!(stage.asked("restore"), 0);
}

/// A server whose folder the router does not see.
async fn by_name_alone() -> (FakeLlama, Router) {
    let fake = FakeLlama::start(Options { slot_save: true, ..small(1) });
    let router = Router::builder(&fake).config(&format!("[warm]\n{MIN_TOKENS}\n")).start().await;
    (fake, router)
}

#[tokio::test]
async fn where_the_folder_is_not_seen_states_are_known_by_name_and_it_is_said_what_is_missing() {
    let (fake, router) = by_name_alone().await;
    let mut talks = ["a", "b"].map(|id| Session::new(&router.url(), id));
    for turn in 0..3 {
        for (talk, id) in talks.iter_mut().zip(["a", "b"]) {
            let found = reused(&talk.say(&text(id, turn)).await);
            assert_eq!(found, if turn == 0 { 0 } else { LEFT + (turn as u64 - 1) * (LEFT + 1) });
        }
    }
    let advice = router.status().await["server"]["advice"].to_string();
    assert!(advice.contains("--warm-dir") || advice.contains("warm.dir"), "{advice}");
    assert!(stage::asked(&fake, "restore") >= 4);
}

#[tokio::test]
async fn where_files_can_not_be_removed_their_names_are_used_again() {
    let (fake, router) = by_name_alone().await;
    let ids = ["a", "b", "c", "d"];
    let mut talks = ids.map(|id| Session::new(&router.url(), id));
    // Each state takes the place of its session's last one.
    for turn in 0..8 {
        for (talk, id) in talks.iter_mut().zip(ids) {
            talk.say(&text(id, turn)).await;
        }
    }
    let saved: Vec<String> = fake.look(|state| {
        let saves = state.received().iter().filter(|one| one.target.ends_with("?action=save"));
        saves.map(|one| one.json()["filename"].to_string()).filter(|name| name != "\"/\"").collect()
    });
    let distinct: std::collections::HashSet<&String> = saved.iter().collect();
    assert!(
        saved.len() >= 24 && distinct.len() * 2 <= saved.len(),
        "{} names for {} saves",
        distinct.len(),
        saved.len()
    );
}

#[tokio::test]
async fn after_a_restart_of_the_router_states_known_by_name_are_used() {
    let fake = FakeLlama::start(Options { slot_save: true, ..small(1) });
    let state_dir = tempfile::tempdir().expect("a temporary folder should be possible");
    let builder =
        || Router::builder(&fake).config(&format!("[warm]\n{MIN_TOKENS}\n")).state_dir(state_dir.path());
    let router = builder().start().await;
    let mut talk = Session::new(&router.url(), "a");
    talk.say(&text("a", 0)).await;
    Session::new(&router.url(), "b").say(&text("b", 0)).await;
    router.terminate().await;
    let router = builder().start().await;
    talk.move_to(&router.url());
    assert_eq!(reused(&talk.say(&text("a", 1)).await), LEFT);
}
