//! Where conversations go that have no home.

use super::stage::{A, B, C, Stage, nobody, of, policy, spec};
use crate::fleet::{Ask, Eligible, Facts, Key, KvSetting, Load, Placement, Policy, ServerId, ServerSpec};

fn with(placement: Placement, servers: usize) -> Stage {
    Stage::under(Policy { placement, ..policy() }, servers)
}

#[test]
fn new_conversations_spread_over_the_servers_though_all_look_idle() {
    let mut stage = Stage::with(3);
    let mut servers: Vec<ServerId> = (1..=6).map(|key| stage.turn(of(key)).server).collect();
    servers.sort_unstable();
    assert_eq!(servers, [A, A, B, B, C, C]);
}

#[test]
fn a_server_with_more_slots_gets_more_of_them() {
    let mut stage = Stage::with(2);
    stage.slots(B, 6);
    (1..=8).for_each(|key| {
        stage.turn(of(key));
    });
    assert_eq!((stage.status(A).sessions, stage.status(B).sessions), (2, 6));
}

#[test]
fn a_weight_counts_like_slots() {
    let heavy = ServerSpec { weight: 3.0, ..spec(KvSetting::Divided) };
    let mut stage = Stage::of(policy(), vec![spec(KvSetting::Divided), heavy]);
    (1..=8).for_each(|key| {
        stage.turn(of(key));
    });
    assert_eq!((stage.status(A).sessions, stage.status(B).sessions), (2, 6));
}

#[test]
fn among_servers_with_as_many_conversations_the_one_with_fewer_in_flight_gets_the_next() {
    let mut stage = Stage::with(2);
    let first = stage.go(of(1)).server;
    let second = stage.turn(of(2)).server;
    assert_ne!(first, second);
    assert_eq!(stage.turn(nobody()).server, second);
    assert_eq!(stage.turn(nobody()).server, second);
}

#[test]
fn what_other_routers_have_there_counts_too() {
    let mut stage = Stage::with(2);
    stage.fleet.others(&[Load { live: 2, ..Load::default() }], stage.now);
    let servers: Vec<ServerId> = (1..=2).map(|key| stage.turn(of(key)).server).collect();
    assert_eq!(servers, [B, B]);
    stage.fleet.others(&[], stage.now);
    assert_eq!(stage.turn(of(3)).server, A, "a router that is gone has nothing there any more");
}

#[test]
fn least_busy_looks_at_requests_in_flight_alone() {
    let mut stage = with(Placement::LeastBusy, 2);
    stage.fleet.remember(Key(8), A, stage.now);
    stage.go(Ask { home: Some(B), ..of(9) });
    let servers: Vec<ServerId> = (1..=3).map(|key| stage.turn(of(key)).server).collect();
    assert_eq!(servers, [A, A, A]);
}

#[test]
fn round_robin_goes_in_turn_past_those_that_are_down() {
    let mut stage = with(Placement::RoundRobin, 3);
    stage.unreachable(B);
    let servers: Vec<ServerId> = (1..=4).map(|key| stage.turn(of(key)).server).collect();
    assert_eq!(servers, [A, C, A, C]);
}

#[test]
fn only_servers_with_the_model_are_in_question() {
    let mut stage = Stage::with(3);
    stage.models(A, &["small"]);
    stage.models(B, &["small", "large"]);
    stage.models(C, &["large"]);
    let large = |key| Ask { of: Eligible::Model("large".into()), ..of(key) };
    let mut servers: Vec<ServerId> = (1..=4).map(|key| stage.turn(large(key)).server).collect();
    servers.sort_unstable();
    assert_eq!(servers, [B, B, C, C]);
    assert_eq!(stage.turn(Ask { of: Eligible::Only(C), ..large(5) }).server, C);
}

#[test]
fn a_model_that_a_server_has_dropped_is_not_asked_of_it() {
    let mut stage = Stage::with(2);
    stage.models(A, &["large"]);
    stage.models(B, &["large"]);
    stage.models(A, &["small"]);
    // What is not told again stays as it was.
    stage.fleet.learned(B, Facts { slots: Some(4), ..Facts::default() }, stage.now);
    let large = |key| Ask { of: Eligible::Model("large".into()), ..of(key) };
    assert!((1..=3).all(|key| stage.turn(large(key)).server == B));
}
