//! Restarts of either side: what was saved comes back, and what is about to be lost is saved.
use session_slot_tests::Session;
use session_slot_tests::client::{self, Outgoing};

use crate::stage::Stage;
use crate::{LEFT, reused, small, text};

const IDS: [&str; 3] = ["a", "b", "c"];

/// Whoever is said to come back does so with all that was left.
async fn assert_warm(talks: &mut [Session], ids: &[&str], stage: &Stage) {
    for (talk, id) in talks.iter_mut().zip(ids) {
        talk.move_to(&stage.router.url());
        assert_eq!(reused(&talk.say(&text(id, 1)).await), LEFT, "{id}: {:?}", stage.story());
    }
}

#[tokio::test]
async fn states_that_were_saved_come_back_after_a_restart_of_the_server() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&IDS).await;
    stage.restart_server().await;
    // `c` was in the slot when the server ended.
    assert_warm(&mut talks[..2], &IDS, &stage).await;
    assert_eq!(reused(&talks[2].say(&text("c", 1)).await), 0);
}

#[tokio::test]
async fn at_its_stop_the_router_saves_what_the_slots_hold() {
    let mut stage = Stage::open(small(4)).await;
    let mut talks = stage.first_turns(&IDS).await;
    assert!(stage.router.terminate().await.success());
    let mut saved = stage.story()[3..].to_vec();
    saved.sort();
    assert_eq!(saved, ["save a", "save b", "save c"]);
    stage.restart_server().await;
    stage.start_router().await;
    assert_warm(&mut talks, &IDS, &stage).await;
}

#[tokio::test]
async fn a_turn_that_runs_while_the_router_stops_is_saved_when_it_has_ended() {
    let mut stage = Stage::open(small(4)).await;
    let mut a = stage.talk("a");
    let said = format!("HOLDEND:a {}", text("a", 0));
    let running = client::send_later(a.turn(&said));
    stage.fake.wait_until("a first word", |state| state.slots().iter().any(|slot| slot.said() == 1)).await;
    stage.router.send_term();
    stage.router.wait_log(|line| line["message"].as_str().is_some_and(|text| text.contains("stop"))).await;
    stage.fake.release("a");
    assert!(a.keep(&said, &running.await.expect("it should end")));
    stage.router.wait_exit().await;
    assert_eq!(stage.story(), ["a", "save a"]);
    stage.restart_server().await;
    stage.start_router().await;
    a.move_to(&stage.router.url());
    assert_eq!(reused(&a.say(&text("a", 1)).await), LEFT + 1);
}

#[tokio::test]
async fn after_a_restart_of_the_router_alone_sessions_are_in_their_slots_and_nothing_is_restored() {
    let mut stage = Stage::open(small(4)).await;
    let mut talks = stage.first_turns(&IDS).await;
    stage.router.terminate().await;
    stage.start_router().await;
    assert_warm(&mut talks, &IDS, &stage).await;
    assert_eq!(stage.asked("restore"), 0);
}

#[tokio::test]
async fn states_outlive_a_router_that_was_killed() {
    let mut stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&IDS).await;
    stage.router.database().wait_rows("SELECT * FROM states", |rows| rows.len() == 2).await;
    stage.router.kill().await;
    stage.start_router().await;
    assert_warm(&mut talks[..2], &IDS, &stage).await;
}

#[tokio::test]
async fn a_request_to_save_everything_saves_what_the_slots_hold() {
    let stage = Stage::open(small(4)).await;
    let mut talks = stage.first_turns(&IDS).await;
    let answer = client::send(Outgoing::post(format!("{}/router/save", stage.router.url()), "")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // All is on disk when it is answered.
    let mut saved = stage.story()[3..].to_vec();
    saved.sort();
    assert_eq!(saved, ["save a", "save b", "save c"]);
    // Slots are as they were.
    assert_warm(&mut talks, &IDS, &stage).await;
    stage.restart_server().await;
    for (talk, id) in talks.iter_mut().zip(IDS) {
        assert_eq!(reused(&talk.say(&text(id, 2)).await), LEFT, "{id}");
    }
}

#[tokio::test]
async fn a_server_that_ends_during_a_save_costs_nothing_but_that_state() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a"]).await;
    stage.fake.faults(|faults| faults.hold_saves = true);
    let evicting = client::send_later(stage.talk("b").turn(&text("b", 0)));
    stage.fake.wait_until("a held save", |state| state.action_held()).await;
    stage.restart_server().await;
    stage.fake.faults(|faults| faults.hold_saves = false);
    evicting.await.expect("it should get an answer");
    talks[0].say(&text("a", 1)).await;
    stage.router.wait_quiet().await;
}

#[tokio::test]
async fn a_state_that_the_server_died_of_is_not_restored_again() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    stage.fake.faults(|faults| faults.hold_restores = true);
    let deadly = client::send_later(talks[0].turn(&text("a", 1)));
    stage.fake.wait_until("a held restore", |state| state.action_held()).await;
    stage.restart_server().await;
    stage.fake.faults(|faults| faults.hold_restores = false);
    assert_eq!(deadly.await.expect("it should get an answer").status, 502);
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    assert_eq!(stage.asked("restore"), 1);
}
