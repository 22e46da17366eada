//! Saved states on the real server: what was read once is not read again.
use serde_json::Value;

use crate::talk::{Prompt, Talk};
use crate::{PRIMER, Stage, slot_of};

/// What a turn adds, with all that the chat template puts around it, and what a restored state may lack.
const NEW: u64 = 160;

/// Conversations that have nothing in common.
fn talks(stage: &Stage, ids: &[&str]) -> Vec<Talk> {
    ids.iter().map(|id| Talk::long(&stage.router.url(), id, id)).collect()
}

/// A turn, and what the server computed for it.
async fn say(stage: &Stage, talk: &mut Talk) -> (usize, Prompt, u64) {
    let before = stage.server.counters().await;
    let (answer, prompt) = talk.say().await;
    (slot_of(&answer), prompt, stage.server.counters().await.since(before).computed)
}

/// A turn that finds what its session sent before.
async fn say_warm(stage: &Stage, talk: &mut Talk) -> usize {
    let before = talk.before.expect("it has had a turn");
    let (slot, prompt, computed) = say(stage, talk).await;
    let warm = stage.router.status().await["server"]["warm"].clone();
    assert!(prompt.reuses(before), "{}: {prompt:?} after {before:?}, {warm:#}", talk.id);
    assert!(computed <= NEW, "{}: {computed} computed of {prompt:?}", talk.id);
    slot
}

async fn warm(stage: &Stage, member: &str) -> Value {
    stage.router.status().await["server"]["warm"][member].clone()
}

pub(crate) async fn an_evicted_session_comes_back_from_its_saved_state(stage: &mut Stage) {
    let mut talks = talks(stage, &["a", "b"]);
    for talk in &mut talks {
        say(stage, talk).await;
    }
    for talk in &mut talks {
        say_warm(stage, talk).await;
    }
    assert_eq!((warm(stage, "reused").await, warm(stage, "unreused").await), (2.into(), 0.into()));
}

pub(crate) async fn a_state_comes_back_in_another_slot(stage: &mut Stage) {
    let mut talks = talks(stage, &["a", "b", "c"]);
    let home = say(stage, &mut talks[0]).await.0;
    say(stage, &mut talks[1]).await;
    // In the place of the first one.
    assert_eq!(say(stage, &mut talks[2]).await.0, home);
    say_warm(stage, &mut talks[2]).await;
    assert_ne!(say_warm(stage, &mut talks[0]).await, home);
}

pub(crate) async fn states_come_back_after_a_restart_of_the_server(stage: &mut Stage) {
    let mut talks = talks(stage, &["a", "b"]);
    for talk in &mut talks {
        say(stage, talk).await;
    }
    stage.server.restart().await;
    say_warm(stage, &mut talks[0]).await;
}

pub(crate) async fn what_slots_held_at_the_routers_stop_comes_back(stage: &mut Stage) {
    let mut talks = talks(stage, &["a", "b"]);
    for talk in &mut talks {
        say(stage, talk).await;
    }
    assert!(stage.router.terminate().await.success());
    stage.server.restart().await;
    stage.start_router().await;
    for talk in &mut talks {
        talk.move_to(&stage.router.url());
        say_warm(stage, talk).await;
    }
}

pub(crate) async fn without_its_window_in_the_file_states_end_by_themselves(stage: &mut Stage) {
    let mut talks = talks(stage, &["a", "b"]);
    for _ in 0..2 {
        for talk in &mut talks {
            say(stage, talk).await;
        }
    }
    assert_eq!(warm(stage, "standing").await, "unreused");
    let advice = stage.router.status().await["server"]["advice"].to_string();
    assert!(advice.contains("--swa-full"), "{advice}");
    let counts = (warm(stage, "saved").await, warm(stage, "restored").await);
    say(stage, &mut talks[0]).await;
    assert_eq!((warm(stage, "saved").await, warm(stage, "restored").await), counts);
}

pub(crate) async fn states_of_another_cache_type_are_never_used(stage: &mut Stage) {
    let mut talks = talks(stage, &["a", "b"]);
    for talk in &mut talks {
        say(stage, talk).await;
    }
    stage.restart_server_with(&["--parallel", "1", "--no-kv-unified", "--cache-type-k", "q8_0"]).await;
    let (_, prompt, computed) = say(stage, &mut talks[0]).await;
    assert!(computed >= prompt.tokens && computed <= prompt.tokens + PRIMER, "{computed} of {prompt:?}");
    assert_eq!(warm(stage, "restored").await, 0);
    // The server would have refused it, and said so.
    assert!(!stage.server.log().iter().any(|line| line.contains("restore slot")));
}

pub(crate) async fn a_second_session_with_the_same_system_text_computes_only_its_own(stage: &mut Stage) {
    let mut talks = ["a", "b"].map(|id| Talk::long(&stage.router.url(), id, "system"));
    let (_, first, _) = say(stage, &mut talks[0]).await;
    let (_, second, computed) = say(stage, &mut talks[1]).await;
    assert!(second.cached * 10 >= first.tokens * 8, "{second:?} after {first:?}");
    assert!(computed <= NEW, "{computed} computed of {second:?}");
    // Each goes on from its own.
    for talk in &mut talks {
        say_warm(stage, talk).await;
    }
}

pub(crate) async fn where_idle_slots_are_cleared_states_come_back_too(stage: &mut Stage) {
    let mut talks = talks(stage, &["a", "b", "c"]);
    // What the RAM cache is good for is seen in the second round.
    for _ in 0..2 {
        for talk in &mut talks {
            say(stage, talk).await;
        }
    }
    for talk in &mut talks {
        say_warm(stage, talk).await;
    }
    assert!(warm(stage, "reused").await.as_u64() > Some(0));
}
