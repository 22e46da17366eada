//! A broken server gets nothing for a while, then one turn at a time until one begins well.

use std::time::Duration;

use super::stage::{A, B, Stage, of};
use crate::fleet::{Ask, Eligible, Ended, Output, Refusal, ServerState};

fn to_a(key: u128) -> Ask {
    Ask { of: Eligible::Only(A), ..of(key) }
}

fn retry_after(stage: &mut Stage) -> Duration {
    let ticket = stage.ask(to_a(99));
    match stage.refused.get(&ticket) {
        Some(Refusal::Down { retry_after }) => *retry_after,
        other => panic!("refused as down: {other:?}"),
    }
}

#[test]
fn a_broken_server_gets_nothing_and_others_get_its_turns() {
    let mut stage = Stage::with(2);
    let placed = stage.go(to_a(1));
    stage.end(placed.ticket, Ended::Broken);
    assert_eq!(stage.said, [Output::Opened { server: A, pause: Duration::from_secs(1) }]);
    assert_eq!((stage.status(A).state, stage.status(A).failures), (ServerState::Down, 1));
    assert!((1..=6).all(|key| stage.turn(of(key)).server == B));
}

#[test]
fn when_all_that_could_serve_it_are_down_a_request_is_told_when_the_next_one_is_tried() {
    let mut stage = Stage::with(2);
    stage.breaks(A);
    assert_eq!(retry_after(&mut stage), Duration::from_secs(1));
    stage.wait(1.0);
    stage.breaks(A);
    assert_eq!(retry_after(&mut stage), Duration::from_secs(2));
    stage.breaks(B);
    stage.wait(0.5);
    let ticket = stage.ask(of(1));
    assert_eq!(stage.refused[&ticket], Refusal::Down { retry_after: Duration::from_secs(1) });
}

#[test]
fn each_failed_trial_doubles_the_pause_up_to_a_minute() {
    let mut stage = Stage::with(1);
    stage.breaks(A);
    for _ in 0..8 {
        let pause = stage.status(A).state;
        assert_eq!(pause, ServerState::Down);
        let wait = retry_after(&mut stage).as_secs_f64();
        stage.wait(wait);
        let trial = stage.go(to_a(1));
        stage.end(trial.ticket, Ended::Broken);
    }
    let pauses: Vec<u64> = stage
        .said
        .iter()
        .map(|said| match said {
            Output::Opened { pause, .. } => pause.as_secs(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
}

#[test]
fn many_turns_that_break_together_are_one_failure_to_the_pause() {
    let mut stage = Stage::with(1);
    let placed: Vec<_> = (1..=5).map(|key| stage.go(to_a(key))).collect();
    placed.iter().for_each(|placed| {
        stage.end(placed.ticket, Ended::Broken);
    });
    assert_eq!(retry_after(&mut stage), Duration::from_secs(1));
}

#[test]
fn after_the_pause_one_turn_at_a_time_shows_whether_the_server_works() {
    let mut stage = Stage::with(1);
    stage.breaks(A);
    stage.wait(1.0);
    assert_eq!(stage.status(A).state, ServerState::HalfOpen);
    let trial = stage.go(to_a(1));
    let (second, third) = (stage.ask(to_a(2)), stage.ask(to_a(3)));
    assert!(stage.waits(second) && stage.waits(third));
    stage.end(trial.ticket, Ended::Left);
    assert!(stage.went(second).is_some() && stage.waits(third), "the next one is the trial");
    stage.began(second);
    assert!(stage.went(third).is_some());
    assert_eq!(stage.said.last(), Some(&Output::Closed { server: A }));
    stage.go(to_a(4));
    assert_eq!(stage.status(A).state, ServerState::Up);
}

#[test]
fn a_server_that_answers_a_poll_still_has_to_show_that_it_runs_turns() {
    let mut stage = Stage::with(1);
    stage.breaks(A);
    stage.reached(A);
    assert_eq!(stage.status(A).state, ServerState::Down);
    stage.wait(1.0);
    stage.reached(A);
    assert_eq!(stage.status(A).state, ServerState::HalfOpen);
    stage.go(to_a(1));
    let second = stage.ask(to_a(2));
    assert!(stage.waits(second));
}

#[test]
fn an_error_of_the_client_shows_that_the_server_works() {
    let mut stage = Stage::with(1);
    stage.breaks(A);
    stage.wait(1.0);
    let trial = stage.go(to_a(1));
    stage.end(trial.ticket, Ended::Declined);
    stage.breaks(A);
    assert_eq!(retry_after(&mut stage), Duration::from_secs(1), "the pauses begin anew");
}

#[test]
fn a_full_or_loading_server_is_not_broken() {
    let mut stage = Stage::with(1);
    for how in [Ended::Full, Ended::NotReady] {
        let placed = stage.go(to_a(1));
        stage.end(placed.ticket, how);
    }
    assert_eq!((stage.said.len(), stage.status(A).failures), (0, 0));
    assert_eq!(stage.status(A).state, ServerState::Loading);
    retry_after(&mut stage);
    stage.reached(A);
    assert_eq!(stage.status(A).state, ServerState::Up);
    stage.go(to_a(2));
}

#[test]
fn a_ticket_that_is_over_is_ignored() {
    let mut stage = Stage::with(1);
    let placed = stage.turn(to_a(1));
    assert_eq!(stage.end(placed.ticket, Ended::Broken), None);
    stage.began(placed.ticket);
    assert_eq!((stage.said.len(), stage.status(A).failures), (0, 0));
}

#[test]
fn others_wait_for_the_end_of_a_trial_if_no_other_server_could_serve_them() {
    let mut stage = Stage::with(1);
    stage.breaks(A);
    stage.wait(1.0);
    let trial = stage.go(of(1));
    let (second, third) = (stage.ask(of(2)), stage.ask(of(3)));
    assert!(stage.waits(second) && stage.waits(third));
    stage.began(trial.ticket);
    assert_eq!((stage.went(second), stage.went(third)), (Some(A), Some(A)));
}

#[test]
fn those_who_waited_for_a_trial_are_told_when_it_fails() {
    let mut stage = Stage::with(1);
    stage.breaks(A);
    stage.wait(1.0);
    let trial = stage.go(of(1));
    let second = stage.ask(of(2));
    stage.end(trial.ticket, Ended::Broken);
    assert_eq!(stage.refused[&second], Refusal::Down { retry_after: Duration::from_secs(2) });
}

#[test]
fn a_server_that_could_not_be_reached_is_tried_as_soon_as_it_can() {
    let mut stage = Stage::with(1);
    for _ in 0..7 {
        stage.unreachable(A);
        stage.wait(60.0);
    }
    stage.unreachable(A);
    assert_eq!(stage.status(A).state, ServerState::Down);
    stage.reached(A);
    assert_eq!(stage.status(A).state, ServerState::HalfOpen);
}

#[test]
fn a_server_whose_turns_fail_is_not_believed_when_it_says_that_it_is_well() {
    let mut stage = Stage::with(1);
    stage.breaks(A);
    stage.reached(A);
    assert_eq!(stage.status(A).state, ServerState::Down);
}

#[test]
fn a_turn_that_may_be_at_fault_itself_breaks_nothing_before_another_server_has_served_it() {
    let mut stage = Stage::with(2);
    let placed = stage.go(to_a(1));
    stage.end(placed.ticket, Ended::Doubtful);
    assert_eq!((stage.said.len(), stage.status(A).state), (0, ServerState::Up));
    stage.fleet.failed_alone(A, stage.now);
    assert_eq!((stage.status(A).state, stage.status(A).failures), (ServerState::Down, 1));
    assert_eq!(stage.status(B).state, ServerState::Up);
}

#[test]
fn a_server_that_has_fallen_silent_keeps_its_turns_and_gets_no_others_before_it_speaks() {
    let mut stage = Stage::with(2);
    let placed = stage.go(to_a(1));
    stage.fleet.silent(A, stage.now);
    assert_eq!((stage.status(A).state, stage.status(A).in_flight), (ServerState::Silent, 1));
    assert!((2..=6).all(|key| stage.turn(of(key)).server == B));
    stage.wait(3600.0);
    assert_eq!(stage.turn(of(7)).server, B, "a trial would hang, too");
    stage.began(placed.ticket);
    assert_eq!(stage.status(A).state, ServerState::Up);
    stage.fleet.silent(A, stage.now);
    stage.fleet.reached(A, stage.now);
    assert_eq!(stage.status(A).state, ServerState::Up);
}
