//! No server gets more than its shared memory holds; who doesn't fit waits in line.

use super::stage::{A, B, Stage, complete, of, policy, sized, spec};
use crate::fleet::{Ask, Budget, Eligible, Ended, Facts, KvSetting, Load, Policy, Refusal, ServerSpec, Why};

const DONE: Ended = Ended::Complete { counts: None };

#[test]
fn a_turn_that_does_not_fit_waits_until_there_is_room() {
    let mut stage = Stage::sharing(1000);
    let first = stage.go(sized(1, 600));
    assert_eq!(first.reserved, 600);
    let second = stage.ask(sized(2, 400));
    assert!(stage.waits(second), "900 tokens may be reserved, and 300 are left");
    assert_eq!((stage.status(A).waiting, stage.status(A).budget_used), (1, Some(600)));
    stage.end(first.ticket, DONE);
    assert!(stage.placed[&second].waited);
    assert_eq!((stage.status(A).waits, stage.status(A).budget_used), (1, Some(400)));
}

#[test]
fn those_that_wait_are_served_in_the_order_in_which_they_came() {
    let mut stage = Stage::sharing(1000);
    let first = stage.go(sized(1, 900));
    let waiting: Vec<_> = (2..=4).map(|key| stage.ask(sized(key, 500))).collect();
    stage.end(first.ticket, DONE);
    let served: Vec<bool> = waiting.iter().map(|ticket| !stage.waits(*ticket)).collect();
    assert_eq!(served, [true, false, false]);
}

#[test]
fn small_turns_pass_a_large_one_until_its_patience_ends() {
    let mut stage = Stage::sharing(1000);
    let long = stage.go(sized(1, 500));
    let large = stage.ask(sized(2, 800));
    stage.wait(19.0);
    let small = stage.go(sized(3, 100));
    assert!(!small.waited);
    stage.end(small.ticket, DONE);
    stage.wait(1.0);
    let late = stage.ask(sized(4, 100));
    assert!(stage.waits(late), "there is room for it, but it is the large one's turn");
    stage.end(long.ticket, DONE);
    assert_eq!((stage.went(large), stage.went(late)), (Some(A), Some(A)));
}

#[test]
fn when_the_one_at_the_head_leaves_those_behind_go_on() {
    let mut stage = Stage::sharing(1000);
    stage.go(sized(1, 500));
    let large = stage.ask(sized(2, 800));
    stage.wait(30.0);
    let small = stage.ask(sized(3, 100));
    assert!(stage.waits(small));
    stage.end(large, Ended::Left);
    assert_eq!(stage.went(small), Some(A));
}

#[test]
fn a_turn_that_would_fill_the_memory_alone_goes_when_nothing_else_is_there() {
    let mut stage = Stage::sharing(1000);
    let first = stage.go(sized(1, 10));
    let filling = stage.ask(sized(2, 950));
    assert!(stage.waits(filling));
    stage.end(first.ticket, DONE);
    assert_eq!(stage.went(filling), Some(A));
    let other = stage.ask(sized(3, 1));
    assert!(stage.waits(other));
}

#[test]
fn a_turn_larger_than_the_memory_is_sent_at_once_and_gives_nobody_room() {
    let mut stage = Stage::sharing(1000);
    stage.go(sized(1, 500));
    let head = stage.ask(sized(2, 450));
    let huge = stage.go(sized(3, 1001));
    assert_eq!(huge.reserved, 400, "what is left");
    assert!(stage.waits(head));
    let small = stage.ask(sized(4, 100));
    assert!(stage.waits(small));
    stage.end(huge.ticket, Ended::Declined);
    assert_eq!(stage.went(small), Some(A));
}

#[test]
fn too_many_do_not_wait() {
    let mut stage = Stage::sharing(1000);
    stage.go(sized(1, 900));
    let waiting: Vec<_> = (2..=5).map(|key| stage.ask(sized(key, 500))).collect();
    let refused = stage.ask(sized(6, 500));
    assert_eq!(stage.refused[&refused], Refusal::Crowded { waiting: 4 });
    assert_eq!(stage.home(6), None);
    assert!(waiting.iter().all(|ticket| stage.waits(*ticket)));
}

#[test]
fn a_prompt_is_expected_to_grow_at_the_conversations_own_rate() {
    let mut stage = Stage::sharing(100_000);
    let ask = |characters| Ask { characters, ..of(1) };
    let first = stage.go(ask(3500));
    assert_eq!(first.reserved, 1000, "3.5 characters a token before anything is known");
    stage.end(first.ticket, complete(1750, 0, 0));
    let second = stage.go(ask(4500));
    assert_eq!(second.reserved, 2250, "1750, and 1000 characters at 2 a token");
    stage.end(second.ticket, complete(2250, 1750, 0));
    assert_eq!(stage.go(ask(450)).reserved, 225, "a shorter prompt in proportion");
}

#[test]
fn an_answer_is_expected_as_long_as_the_conversations_longest_but_no_longer_than_its_client_wants() {
    let mut stage = Stage::sharing(100_000);
    let ask = |max_output| Ask { max_output, ..of(1) };
    let first = stage.go(ask(None));
    assert_eq!(first.reserved, 512, "before anything is known");
    stage.end(first.ticket, complete(0, 0, 3000));
    for key in 2..=40 {
        let short = stage.go(of(key));
        stage.end(short.ticket, complete(0, 0, 100));
    }
    assert_eq!(stage.go(ask(Some(32_000))).reserved, 3000);
    assert_eq!(stage.go(ask(Some(20))).reserved, 20);
}

#[test]
fn every_answer_that_is_wanted_takes_room_and_a_text_that_is_only_read_none_but_its_own() {
    let mut stage = Stage::sharing(100_000);
    for (answers, reserved) in [(1, 1300), (3, 1900), (0, 1000)] {
        let ask = Ask { answers, max_output: Some(300), ..sized(answers.into(), 1000) };
        assert_eq!(stage.go(ask).reserved, reserved);
    }
}

#[test]
fn a_server_that_gives_short_answers_is_expected_to_go_on_so() {
    let mut stage = Stage::sharing(100_000);
    for key in 1..=100 {
        let placed = stage.go(of(key));
        stage.end(placed.ticket, complete(0, 0, if key % 50 == 0 { 5000 } else { 100 }));
    }
    let reserved = stage.go(Ask { max_output: None, ..of(101) }).reserved;
    assert!((100..=125).contains(&reserved), "19 of 20 are no longer: {reserved}");
}

#[test]
fn what_other_routers_have_reserved_is_not_there() {
    let mut stage = Stage::sharing(1000);
    stage.fleet.others(&[Load { reserved: 500, ..Load::default() }], stage.now);
    let waiting = stage.ask(sized(1, 500));
    assert!(stage.waits(waiting));
    stage.fleet.others(&[Load { reserved: 400, ..Load::default() }], stage.now);
    stage.hear();
    assert_eq!(stage.went(waiting), Some(A));
    assert_eq!(stage.fleet.loads()[0].reserved, 500);
}

#[test]
fn who_waits_at_a_server_that_goes_down_goes_elsewhere() {
    let shared = vec![spec(KvSetting::Shared); 2];
    let mut stage = Stage::of(policy(), shared).knowing(A, 4, 1000).knowing(B, 4, 1000);
    stage.go(Ask { home: Some(A), ..sized(1, 900) });
    let waiting = stage.ask(Ask { home: Some(A), ..sized(2, 500) });
    assert!(stage.waits(waiting));
    stage.unreachable(A);
    assert_eq!((stage.went(waiting), stage.placed[&waiting].why), (Some(B), Why::Moved { from: A }));
}

#[test]
fn who_waits_is_refused_when_no_other_server_is_up() {
    let mut stage = Stage::sharing(1000);
    stage.go(sized(1, 900));
    let waiting = stage.ask(sized(2, 500));
    stage.fleet.loading(A, stage.now);
    stage.hear();
    assert!(matches!(stage.refused[&waiting], Refusal::Down { .. }));
    assert_eq!(stage.home(2), None);
}

#[test]
fn when_the_router_stops_those_that_wait_are_refused() {
    let mut stage = Stage::sharing(1000);
    let first = stage.go(sized(1, 900));
    let waiting = [stage.ask(sized(2, 500)), stage.ask(sized(3, 500))];
    stage.fleet.refuse_all(Refusal::Stopping);
    stage.hear();
    assert!(waiting.iter().all(|ticket| stage.refused[ticket] == Refusal::Stopping));
    stage.end(first.ticket, DONE);
    assert_eq!(stage.status(A).budget_used, Some(0));
}

#[test]
fn without_a_budget_nobody_waits_and_nothing_is_reserved() {
    let budget = Budget { enabled: false, ..policy().budget };
    let mut stage =
        Stage::of(Policy { budget, ..policy() }, vec![spec(KvSetting::Shared)]).knowing(A, 4, 1000);
    assert!((1..=3).all(|key| stage.go(sized(key, 900)).reserved == 0));
    assert_eq!((stage.status(A).budget_used, stage.status(A).budget_total), (None, None));
}

#[test]
fn whether_memory_is_shared_is_said_by_the_configuration_or_else_by_what_is_known() {
    let kv = |setting, budget_tokens, shared| {
        let spec = ServerSpec { budget_tokens, ..spec(setting) };
        let mut stage = Stage::of(policy(), vec![spec]);
        let facts = Facts { shared, context: Some(1000), ..Facts::default() };
        stage.fleet.learned(A, facts, stage.now);
        let seen = stage.status(A);
        (seen.kv, seen.budget_total)
    };
    assert_eq!(kv(KvSetting::Auto, None, None), ("unknown", None));
    assert_eq!(kv(KvSetting::Auto, None, Some(true)), ("shared", Some(900)));
    assert_eq!(kv(KvSetting::Auto, None, Some(false)), ("divided", None));
    assert_eq!(kv(KvSetting::Auto, Some(2000), Some(false)), ("shared", Some(1800)));
    assert_eq!(kv(KvSetting::Shared, None, Some(false)), ("shared", Some(900)));
    assert_eq!(kv(KvSetting::Divided, Some(2000), Some(true)), ("divided", None));
}

#[test]
fn a_request_for_one_server_waits_there_though_another_has_room() {
    let shared = vec![spec(KvSetting::Shared); 2];
    let mut stage = Stage::of(policy(), shared).knowing(A, 4, 1000).knowing(B, 4, 1000);
    stage.go(Ask { of: Eligible::Only(A), ..sized(1, 900) });
    let waiting = stage.ask(Ask { of: Eligible::Only(A), ..sized(2, 900) });
    assert!(stage.waits(waiting));
}
