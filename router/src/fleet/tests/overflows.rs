//! A full server is busy, not broken.

use super::stage::{A, B, Stage, complete, nobody, of, policy, sized, spec};
use crate::fleet::{Again, Ask, Budget, Ended, Fleet, KvSetting, Output, Placed, Policy, ServerState};

const DONE: Ended = Ended::Complete { counts: None };

/// The same request, after `placed` was too large for its server.
fn again(ask: &Ask, placed: Placed, stage: &Stage) -> Ask {
    let Placed { server, reserved, .. } = placed;
    Ask { again: Some(Again::Full { server, reserved, since: stage.now }), ..ask.clone() }
}

#[test]
fn after_an_overflow_a_turn_goes_again_when_another_has_ended() {
    let mut stage = Stage::sharing(10_000);
    let other = stage.go(sized(1, 1000));
    let ask = sized(2, 4000);
    let placed = stage.go(ask.clone());
    stage.end(placed.ticket, Ended::Full);
    let ask = again(&ask, placed, &stage);
    let retry = stage.ask(ask);
    assert!(stage.waits(retry), "the memory is as full as before");
    stage.wait(5.0);
    assert!(stage.waits(retry));
    stage.end(other.ticket, DONE);
    assert_eq!(stage.placed[&retry].reserved, 5000, "a quarter more than was too little");
    assert_eq!((stage.status(A).overflows, stage.status(A).failures), (1, 0));
    assert_eq!(stage.status(A).state, ServerState::Up);
}

#[test]
fn after_an_overflow_with_nothing_else_in_flight_it_goes_again_after_a_second() {
    let mut stage = Stage::sharing(10_000);
    let ask = sized(1, 100);
    let placed = stage.go(ask.clone());
    stage.end(placed.ticket, Ended::Full);
    let ask = again(&ask, placed, &stage);
    let retry = stage.ask(ask);
    assert!(stage.waits(retry));
    let due = stage.fleet.next_due().expect("it is known when it goes");
    stage.wait(due.duration_since(stage.now).as_secs_f64());
    assert_eq!(stage.placed[&retry].reserved, 356, "at least 256 more");
}

#[test]
fn a_turn_that_was_too_large_again_and_again_waits_until_it_is_alone() {
    let mut stage = Stage::sharing(1000);
    let other = stage.go(sized(1, 50));
    let ask = sized(2, 800);
    let placed = stage.go(ask.clone());
    stage.end(placed.ticket, Ended::Full);
    let third = stage.go(sized(3, 50));
    let ask = again(&ask, placed, &stage);
    let retry = stage.ask(ask);
    stage.end(other.ticket, DONE);
    assert!(stage.waits(retry), "1056 tokens are more than there are, but its prompt is not");
    stage.end(third.ticket, DONE);
    assert_eq!(stage.placed[&retry].reserved, 900);
}

#[test]
fn it_keeps_its_place_before_those_that_came_later() {
    let mut stage = Stage::sharing(1000);
    let ask = sized(1, 800);
    let placed = stage.go(ask.clone());
    let ask = again(&ask, placed, &stage);
    stage.wait(1.0);
    let later = stage.ask(sized(2, 800));
    stage.end(placed.ticket, Ended::Full);
    let retry = stage.ask(ask);
    stage.wait(1.0);
    assert_eq!((stage.went(retry), stage.waits(later)), (Some(A), true));
}

#[test]
fn it_may_wait_though_the_line_is_full() {
    let mut stage = Stage::sharing(1000);
    let ask = sized(1, 800);
    let placed = stage.go(ask.clone());
    (2..=5).for_each(|key| {
        stage.ask(sized(key, 800));
    });
    stage.end(placed.ticket, Ended::Full);
    let ask = again(&ask, placed, &stage);
    let retry = stage.ask(ask);
    assert!(stage.waits(retry));
}

#[test]
fn an_overflow_shows_that_memory_is_shared() {
    let mut stage = Stage::of(policy(), vec![spec(KvSetting::Auto)]).knowing(A, 8, 1000);
    let busy = stage.go(sized(1, 600));
    assert_eq!(busy.reserved, 0);
    let placed = stage.go(sized(2, 600));
    stage.end(placed.ticket, Ended::Full);
    assert_eq!(stage.said, [Output::FoundShared { server: A, pool: 1000 }]);
    assert_eq!((stage.status(A).kv, stage.status(A).budget_used), ("shared", Some(600)));
    let waiting = stage.ask(sized(3, 600));
    assert!(stage.waits(waiting), "what was in flight before counts");
}

#[test]
fn what_an_overflow_has_shown_of_a_server_is_forgotten_when_it_was_away() {
    for away in [Fleet::unreachable, Fleet::loading] {
        let mut stage = Stage::of(policy(), vec![spec(KvSetting::Auto)]).knowing(A, 8, 1000);
        let before = stage.status(A).kv;
        let placed = stage.go(sized(1, 600));
        stage.end(placed.ticket, Ended::Full);
        assert_eq!(stage.status(A).kv, "shared");
        away(&mut stage.fleet, A, stage.now);
        assert_eq!(stage.status(A).kv, before);
    }
}

#[test]
fn memory_that_is_divided_by_the_configuration_stays_so() {
    let mut stage = Stage::of(policy(), vec![spec(KvSetting::Divided)]).knowing(A, 8, 1000);
    let placed = stage.go(sized(1, 600));
    stage.end(placed.ticket, Ended::Full);
    assert_eq!((stage.said.len(), stage.status(A).kv), (0, "divided"));
}

#[test]
fn without_a_budget_it_waits_all_the_same() {
    let budget = Budget { enabled: false, ..policy().budget };
    let mut stage = Stage::under(Policy { budget, ..policy() }, 1);
    let placed = stage.go(of(1));
    stage.end(placed.ticket, Ended::Full);
    let ask = again(&of(1), placed, &stage);
    let retry = stage.ask(ask);
    assert!(stage.waits(retry));
    stage.wait(1.0);
    assert_eq!(stage.placed[&retry].reserved, 0);
}

#[test]
fn it_goes_elsewhere_when_its_server_has_broken_meanwhile() {
    let mut stage = Stage::with(2);
    let placed = stage.go(Ask { home: Some(A), ..of(1) });
    stage.end(placed.ticket, Ended::Full);
    stage.breaks(A);
    let ask = again(&of(1), placed, &stage);
    assert_eq!(stage.go(ask).server, B);
}

#[test]
fn a_request_of_nobody_is_sent_again_too() {
    let mut stage = Stage::with(1);
    let placed = stage.go(nobody());
    stage.end(placed.ticket, Ended::Full);
    let ask = again(&nobody(), placed, &stage);
    let retry = stage.ask(ask);
    stage.wait(1.0);
    assert_eq!(stage.went(retry), Some(A));
}

#[test]
fn a_turn_that_was_too_large_is_expected_to_be_larger_also_as_another_request_until_one_has_ended_well() {
    let mut stage = Stage::sharing(10_000);
    let placed = stage.go(sized(1, 4000));
    stage.end(placed.ticket, Ended::Full);
    stage.wait(2.0);
    let other = stage.go(sized(2, 4000));
    assert_eq!(other.reserved, 4000, "another conversation");
    let placed = stage.go(sized(1, 4000));
    assert_eq!(placed.reserved, 5000);
    stage.end(placed.ticket, complete(4000, 0, 0));
    assert_eq!(stage.go(sized(1, 4000)).reserved, 4000);
}
