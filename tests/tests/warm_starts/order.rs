//! Who may overtake whom: a waiter whose state is in the free slot, a few times.
use serde_json::Value;
use session_slot_tests::Answer;
use session_slot_tests::client::{self, words};
use tokio::task::JoinHandle;

use crate::stage::Stage;
use crate::{small, text};

/// A session's turn that runs until it is let go.
fn holding(stage: &Stage, id: &str, turn: usize) -> JoinHandle<Answer> {
    client::send_later(stage.talk(id).turn(&format!("HOLD:{id} {}", text(id, turn))))
}

/// In the one slot runs `a`; a cold session waits, and behind it six more turns of `a`. How many of these are sent before
/// the cold one.
async fn overtaken(more: &str) -> usize {
    let stage = Stage::with(small(1), more).await;
    stage.first_turns(&["a"]).await;
    let running = holding(&stage, "a", 1);
    stage.fake.wait_processing(1).await;
    let mut waiting = vec![client::send_later(stage.talk("cold").turn(&words("cold-0-", 200)))];
    stage.router.wait_waiting(1).await;
    for turn in 2..8 {
        waiting.push(client::send_later(stage.talk("a").turn(&text("a", turn))));
        stage.router.wait_waiting(turn as u64).await;
    }
    stage.fake.release("a");
    for one in waiting.into_iter().chain([running]) {
        assert_eq!(one.await.expect("it should end").status, 200);
    }
    let turns: Vec<String> = stage.story().into_iter().filter(|step| !step.contains(' ')).collect();
    let cold = turns.iter().position(|turn| turn == "cold").expect("it should have been sent");
    assert_eq!(turns.len(), 9, "{turns:?}");
    // The first turn and the one that ran.
    cold - 2
}

#[tokio::test]
async fn warm_waiters_overtake_a_cold_one_at_most_three_times() {
    assert_eq!(overtaken("").await, 3);
}

#[tokio::test]
async fn with_overtake_0_everybody_is_served_in_turn() {
    assert_eq!(overtaken("[queue]\novertake = 0").await, 0);
}

#[tokio::test]
async fn a_waiter_whose_state_is_in_the_slot_goes_before_a_cold_one() {
    let stage = Stage::open(small(2)).await;
    let homes = stage.first_turns(&["a", "b"]).await;
    let running = [holding(&stage, "a", 1), holding(&stage, "b", 1)];
    stage.fake.wait_processing(2).await;
    let cold = client::send_later(stage.talk("cold").turn(&format!("HOLD:cold {}", words("cold-0-", 200))));
    stage.router.wait_waiting(1).await;
    let warm = client::send_later(homes[0].turn(&text("a", 2)));
    stage.router.wait_waiting(2).await;
    stage.fake.release("a");
    // The slot of `a` is free: whoever takes it first, `a` finds its state there.
    assert_eq!(warm.await.expect("it should end").status, 200);
    stage.fake.release("cold");
    stage.fake.release("b");
    for one in running.into_iter().chain([cold]) {
        assert_eq!(one.await.expect("it should end").status, 200);
    }
    let told: Vec<Value> = stage.router.wait_requests(6).await;
    assert!(told.iter().all(|line| line["status"] == 200));
    let story: Vec<String> = stage.story().into_iter().filter(|step| !step.contains(' ')).collect();
    assert_eq!(story, ["a", "b", "a", "b", "a", "cold"]);
}
