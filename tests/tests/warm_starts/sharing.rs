//! A new session starts from the state of another one that began alike, if it may.
use session_slot_tests::client::words;
use session_slot_tests::{Answer, Session};
use tempfile::TempDir;

use crate::stage::Stage;
use crate::{reused, small};

/// The system text that all sessions of one agent begin with.
const SHARED: usize = 400;
const OWN: usize = 40;

fn system() -> String {
    words("system", SHARED)
}

/// A first turn, with a system text.
async fn begin(stage: &Stage, id: &str, key: Option<&str>) -> Answer {
    let mut talk = stage.talk(id).system(&system());
    if let Some(key) = key {
        talk = talk.key(key);
    }
    talk.say(&words(&format!("{id}-0-"), OWN)).await
}

#[tokio::test]
async fn a_new_session_starts_from_the_state_of_another_that_began_alike() {
    let stage = Stage::open(small(4)).await;
    assert_eq!(reused(&begin(&stage, "a", None).await), 0);
    assert_eq!(reused(&begin(&stage, "b", None).await), SHARED as u64, "{:?}", stage.story());
    assert_eq!(reused(&begin(&stage, "c", None).await), SHARED as u64, "{:?}", stage.story());
}

#[tokio::test]
async fn a_shared_beginning_is_found_after_restarts_of_both_sides() {
    let mut stage = Stage::open(small(4)).await;
    for id in ["a", "b"] {
        begin(&stage, id, None).await;
    }
    stage.router.terminate().await;
    stage.restart_server().await;
    stage.start_router().await;
    assert_eq!(reused(&begin(&stage, "c", None).await), SHARED as u64, "{:?}", stage.story());
}

#[tokio::test]
async fn a_session_that_began_from_another_ones_state_goes_on_from_its_own() {
    let stage = Stage::open(small(2)).await;
    let mut talks: Vec<Session> = ["a", "b", "c"].iter().map(|id| stage.talk(id).system(&system())).collect();
    for turn in 0..3 {
        for (talk, id) in talks.iter_mut().zip(["a", "b", "c"]) {
            let found = reused(&talk.say(&words(&format!("{id}-{turn}-"), 100)).await);
            let left = SHARED as u64 + 103 + (turn as u64).saturating_sub(1) * 104;
            assert!(
                turn == 0 || found == left,
                "turn {turn} of {id}: {found} of {left}: {:?}",
                stage.story()
            );
        }
    }
}

#[tokio::test]
async fn a_beginning_shorter_than_min_tokens_is_not_worth_it() {
    let stage = Stage::open(small(4)).await;
    for id in ["a", "b", "c"] {
        let mut talk = stage.talk(id).system(&words("system", 50));
        assert_eq!(reused(&talk.say(&words(&format!("{id}-0-"), 20)).await), 0);
    }
    assert_eq!((stage.asked("restore"), stage.count("save a")), (0, 0));
}

#[tokio::test]
async fn a_router_without_keys_tells_users_apart_by_those_they_have_for_the_server() {
    let stage = Stage::open(small(4)).await;
    begin(&stage, "a", Some("ann's")).await;
    assert_eq!(reused(&begin(&stage, "b", Some("bob's")).await), 0);
    assert_eq!(reused(&begin(&stage, "c", None).await), 0);
    assert_eq!(reused(&begin(&stage, "d", Some("ann's")).await), SHARED as u64, "{:?}", stage.story());
}

#[tokio::test]
async fn a_session_that_says_something_else_starts_from_nothing() {
    let stage = Stage::open(small(4)).await;
    for id in ["a", "b"] {
        begin(&stage, id, None).await;
    }
    let before = stage.asked("restore");
    let mut other = stage.talk("c").system(&format!("otherwise {}", system()));
    assert_eq!(reused(&other.say(&words("c-0-", OWN)).await), 0);
    assert_eq!(stage.asked("restore"), before);
}

/// A router with two users.
async fn with_users(more: &str) -> (Stage, TempDir) {
    let mut stage = Stage::with(small(4), more).await;
    let keys = tempfile::tempdir().expect("a temporary folder should be possible");
    let file = keys.path().join("keys");
    std::fs::write(&file, "ann key-of-ann\nbob key-of-bob\n").expect("the folder is ours");
    stage.router.terminate().await;
    stage.router = stage.builder().flag("--api-key-file", &file.to_string_lossy()).start().await;
    (stage, keys)
}

#[tokio::test]
async fn the_states_of_another_key_are_not_used() {
    let (stage, _keys) = with_users("").await;
    for id in ["a", "b"] {
        begin(&stage, id, Some("key-of-ann")).await;
    }
    let before = stage.asked("restore");
    assert_eq!(reused(&begin(&stage, "c", Some("key-of-bob")).await), 0);
    assert_eq!(stage.asked("restore"), before);
    // Ann's own new session still finds it.
    assert_eq!(reused(&begin(&stage, "d", Some("key-of-ann")).await), SHARED as u64);
}

#[tokio::test]
async fn the_states_of_all_keys_are_used_if_the_user_says_so() {
    let (stage, _keys) = with_users("share = \"all\"").await;
    for id in ["a", "b"] {
        begin(&stage, id, Some("key-of-ann")).await;
    }
    assert_eq!(reused(&begin(&stage, "c", Some("key-of-bob")).await), SHARED as u64, "{:?}", stage.story());
}

#[tokio::test]
async fn a_session_of_another_key_with_the_same_id_has_a_state_of_its_own() {
    let (stage, _keys) = with_users("").await;
    let mut talks = ["key-of-ann", "key-of-bob"].map(|key| stage.talk("same").key(key));
    let text = words("same-0-", 300);
    assert_eq!(reused(&talks[0].say(&text).await), 0);
    stage.first_turns_as("key-of-ann", &["w", "x", "y", "z"]).await;
    // Word for word what Ann has said, whose state is saved by now.
    assert_eq!(reused(&talks[1].say(&text).await), 0);
}
