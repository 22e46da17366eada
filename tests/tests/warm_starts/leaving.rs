//! Clients that leave meanwhile, and work past the router that comes in between.
use std::time::Duration;

use session_slot_tests::{Answer, Session, client};
use tokio::task::JoinHandle;

use crate::stage::Stage;
use crate::{LEFT, reused, small, text};

/// Nobody waits longer than this for a save that does not come to its end: the router gives it up after a minute.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_client_that_leaves_during_its_restore_harms_nobody() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    stage.fake.faults(|faults| faults.hold_restores = true);
    let leaving = client::send_later(talks[0].turn(&text("a", 1)));
    stage.fake.wait_until("a held restore", |state| state.action_held()).await;
    leaving.abort();
    let waiting = client::send_later(talks[1].turn(&text("b", 1)));
    stage.router.wait_waiting(1).await;
    stage.fake.faults(|faults| faults.hold_restores = false);
    assert_eq!(reused(&waiting.await.expect("it should end")), LEFT);
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), LEFT);
    stage.router.wait_quiet().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_another_session_is_saved_for_it_harms_nobody() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a"]).await;
    stage.fake.faults(|faults| faults.hold_saves = true);
    let leaving = client::send_later(stage.talk("b").turn(&text("b", 0)));
    stage.fake.wait_until("a held save", |state| state.action_held()).await;
    leaving.abort();
    stage.fake.faults(|faults| faults.hold_saves = false);
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), LEFT);
    stage.router.wait_quiet().await;
    assert_eq!(stage.count("b"), 0);
}

/// `a` is about to be saved when somebody else takes its slot for as long as the test likes.
async fn saved_too_late(slots: usize) -> (Stage, Vec<Session>, Pending) {
    let stage = Stage::open(small(slots)).await;
    let talks = stage.first_turns(&["a"]).await;
    let (slot, _) = stage.steps()[0];
    stage.first_turns(&["x", "y", "z"][..slots - 1]).await;
    let before = stage.asked("save");
    stage.fake.faults(|faults| faults.late = true);
    let evicting = client::send_later(stage.talk("b").turn(&text("b", 0)));
    stage.wait_asked("save", before + 1).await;
    let fake = &stage.fake;
    let foreign = fake.foreign("HOLD:foreign words", Some(slot.0 as i64));
    fake.wait_processing(1).await;
    fake.faults(|faults| faults.late = false);
    fake.wait_until("the save behind it", |state| state.deferred() == 1).await;
    (stage, talks, Pending { evicting, foreign })
}

/// What is still under way.
struct Pending {
    evicting: JoinHandle<Answer>,
    foreign: JoinHandle<Answer>,
}

#[tokio::test]
async fn what_was_saved_too_late_is_not_taken_for_the_sessions_state() {
    let (stage, mut talks, pending) = saved_too_late(1).await;
    stage.fake.release("foreign");
    assert_eq!(pending.foreign.await.expect("it should end").status, 200);
    assert_eq!(pending.evicting.await.expect("it should end").status, 200);
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    assert_eq!(stage.asked("restore"), 0);
}

#[tokio::test]
async fn a_save_that_hangs_behind_foreign_work_does_not_hold_its_slot_for_ever() {
    let (stage, _talks, pending) = saved_too_late(2).await;
    // The foreign work goes on for ever, and the save behind it; the other slot is free.
    let evicting = tokio::time::timeout(PATIENCE, pending.evicting).await;
    let evicting = evicting.expect("it should not wait for ever").expect("it should end");
    assert_eq!(evicting.status, 200);
    stage.fake.release("foreign");
    pending.foreign.await.expect("it should end");
    stage.router.wait_quiet().await;
}

#[tokio::test]
async fn foreign_work_in_a_slot_makes_its_session_cold_but_not_its_saved_state() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    assert_eq!(
        stage.fake.foreign("words of somebody else", Some(0)).await.expect("it should end").status,
        200
    );
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), LEFT);
    // What `b` had left was overwritten before it could be saved.
    assert_eq!(reused(&talks[1].say(&text("b", 1)).await), 0);
}
