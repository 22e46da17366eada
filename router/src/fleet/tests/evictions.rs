//! A turn that goes home and finds less than its conversation had left there counts as evicted.

use super::stage::{A, Stage, complete, elsewhere, of, sized};
use crate::fleet::{Ask, Ended, Load};

fn first_turn(stage: &mut Stage) {
    let placed = stage.go(Ask { home: Some(A), ..of(1) });
    assert_eq!(stage.end(placed.ticket, complete(1000, 0, 200)), None);
}

fn next(stage: &mut Stage, how: Ended) -> Option<u64> {
    let placed = stage.go(of(1));
    stage.end(placed.ticket, how)
}

#[test]
fn what_is_missing_is_told_and_counted() {
    let mut stage = Stage::with(1);
    first_turn(&mut stage);
    assert_eq!(next(&mut stage, complete(1500, 100, 10)), Some(1100));
    let seen = stage.status(A);
    assert_eq!((seen.evictions, seen.tokens_lost), (1, 1100));
}

#[test]
fn finding_all_or_nearly_all_is_no_loss() {
    let mut stage = Stage::with(1);
    first_turn(&mut stage);
    assert_eq!(next(&mut stage, complete(1500, 1200, 0)), None);
    assert_eq!(next(&mut stage, complete(1600, 1436, 0)), None);
}

#[test]
fn an_answer_of_which_the_client_keeps_only_a_part_is_no_loss() {
    let mut stage = Stage::with(1);
    first_turn(&mut stage);
    assert_eq!(next(&mut stage, complete(1100, 995, 0)), None);
}

#[test]
fn a_prompt_shorter_than_the_last_needs_no_more_than_itself() {
    let mut stage = Stage::with(1);
    first_turn(&mut stage);
    assert_eq!(next(&mut stage, complete(500, 499, 0)), None);
}

#[test]
fn at_a_new_server_nothing_can_be_lost() {
    let mut stage = Stage::with(2);
    first_turn(&mut stage);
    let moved = stage.go(elsewhere(of(1), A));
    assert_eq!(stage.end(moved.ticket, complete(1500, 0, 0)), None);
}

#[test]
fn two_turns_of_a_conversation_side_by_side_are_not_judged_by_each_other() {
    let mut stage = Stage::with(1);
    first_turn(&mut stage);
    let (one, other) = (stage.go(of(1)), stage.go(of(1)));
    assert_eq!(stage.end(one.ticket, complete(1500, 1200, 500)), None);
    assert_eq!(stage.end(other.ticket, complete(1500, 1, 500)), None);
}

#[test]
fn an_answer_that_tells_nothing_leaves_nothing_to_compare_with() {
    let mut stage = Stage::with(1);
    first_turn(&mut stage);
    assert_eq!(next(&mut stage, Ended::Complete { counts: None }), None);
    assert_eq!(next(&mut stage, complete(1500, 0, 0)), None);
}

#[test]
fn numbers_that_cannot_be_true_do_not_run_over() {
    let mut stage = Stage::sharing(1000);
    let odd = Load { live: u64::MAX, in_flight: u64::MAX, reserved: u64::MAX };
    for _ in 0..2 {
        assert_eq!(next(&mut stage, complete(u64::MAX, u64::MAX, u64::MAX)), None);
        let placed = stage.go(sized(1, 10));
        stage.fleet.others(&[odd], stage.now);
        assert!(stage.status(A).budget_used >= Some(u64::from(u32::MAX)));
        stage.fleet.others(&[], stage.now);
        stage.end(placed.ticket, Ended::Left);
    }
}
