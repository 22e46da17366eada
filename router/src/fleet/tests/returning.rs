//! Conversations return home, unless their home can't serve them.

use std::time::Duration;

use super::stage::{A, B, C, Stage, elsewhere, nobody, of, policy, sized, spec};
use crate::fleet::{
    Affinity, Ask, Eligible, Ended, Key, KvSetting, Placement, Policy, Refusal, ServerId, Why,
};

#[test]
fn a_conversation_returns_to_the_server_of_its_first_turn() {
    let mut stage = Stage::with(3);
    let first = stage.turn(of(1));
    assert_eq!(first.why, Why::New);
    stage.turn(of(2));
    let again = stage.turn(of(1));
    assert_eq!((again.server, again.why), (first.server, Why::Home));
    assert_eq!(stage.status(first.server).hits, 1);
}

#[test]
fn it_has_no_home_any_more_after_it_was_idle_for_the_time_allowed() {
    let mut stage = Stage::with(3);
    stage.turn(of(1));
    stage.wait(1799.0);
    assert_eq!(stage.turn(of(1)).why, Why::Home);
    stage.wait(1799.0);
    assert!(stage.home(1).is_some(), "its last turn counts");
    stage.wait(1.0);
    assert_eq!(stage.home(1), None);
    assert_eq!(stage.status(A).sessions, 0);
    assert_eq!(stage.turn(of(1)).why, Why::New);
}

#[test]
fn when_very_many_have_been_idle_for_too_long_none_of_them_has_a_home() {
    let affinity = Affinity { max_sessions: 500, ..policy().affinity };
    let mut stage = Stage::under(Policy { affinity, ..policy() }, 3);
    (1..=300).for_each(|key| _ = stage.turn(of(key)));
    stage.now += Duration::from_secs(1800);
    assert_eq!(stage.home(300), None);
    assert_eq!(stage.turn(of(300)).why, Why::New);
    (0..5).for_each(|_| stage.wait(0.0));
    let live: u64 = stage.fleet.loads().iter().map(|load| load.live).sum();
    assert_eq!(live, 1);
}

#[test]
fn a_turn_in_flight_keeps_its_conversation_however_long_it_takes() {
    let mut stage = Stage::with(3);
    let long = stage.go(of(1));
    stage.wait(7200.0);
    assert_eq!(stage.home(1), Some(long.server));
    stage.end(long.ticket, Ended::Complete { counts: None });
    assert_eq!(stage.turn(of(1)).why, Why::Home);
}

#[test]
fn beyond_the_number_allowed_those_idle_longest_lose_their_home() {
    let affinity = Affinity { max_sessions: 2, ..policy().affinity };
    let mut stage = Stage::under(Policy { affinity, ..policy() }, 3);
    (1..=3).for_each(|key| {
        stage.turn(of(key));
    });
    assert_eq!((stage.home(1), stage.home(2).is_some(), stage.home(3).is_some()), (None, true, true));
    let live: u64 = stage.fleet.loads().iter().map(|load| load.live).sum();
    assert_eq!(live, 2);
}

#[test]
fn it_moves_when_its_home_is_down_and_stays_where_it_went() {
    let mut stage = Stage::with(2);
    let home = stage.turn(of(1)).server;
    stage.breaks(home);
    let moved = stage.turn(of(1));
    assert_eq!(moved.why, Why::Moved { from: home });
    stage.wait(120.0);
    stage.reached(home);
    let stays = stage.turn(of(1));
    assert_eq!((stays.server, stays.why), (moved.server, Why::Home));
    assert_eq!(stage.status(moved.server).moves, 1);
}

#[test]
fn it_moves_when_its_home_loads_or_is_to_be_avoided_or_has_lost_its_model() {
    let mut stage = Stage::with(2);
    let home = stage.turn(of(1)).server;
    stage.fleet.loading(home, stage.now);
    let second = stage.turn(of(1)).server;
    assert_ne!(second, home);
    stage.reached(home);
    let third = stage.turn(elsewhere(of(1), second)).server;
    assert_eq!(third, home);
    stage.models(home, &["other"]);
    stage.models(second, &["this"]);
    let ask = Ask { of: Eligible::Model("this".into()), ..of(1) };
    assert_eq!(stage.turn(ask).why, Why::Moved { from: home });
}

#[test]
fn it_moves_when_others_have_all_slots_of_its_home_and_another_server_has_one_free() {
    let mut stage = Stage::with(2);
    stage.fleet.remember(Key(1), A, stage.now);
    for key in 2..=3 {
        stage.go(Ask { home: Some(A), ..of(key) });
    }
    let moved = stage.turn(of(1));
    assert_eq!((moved.server, moved.why), (B, Why::Moved { from: A }));
}

#[test]
fn it_stays_home_when_all_servers_are_saturated() {
    let mut stage = Stage::with(2);
    stage.fleet.remember(Key(1), A, stage.now);
    for key in 2..=5 {
        stage.go(Ask { home: Some(ServerId(key as u32 % 2)), ..of(key) });
    }
    assert_eq!(stage.turn(of(1)).why, Why::Home);
}

#[test]
fn it_stays_home_when_the_memory_of_the_server_with_a_free_slot_has_no_room_for_it() {
    let shared = vec![spec(KvSetting::Shared); 2];
    let mut stage = Stage::of(policy(), shared).knowing(A, 1, 10_000).knowing(B, 4, 1000);
    stage.go(Ask { home: Some(A), ..of(9) });
    stage.go(Ask { home: Some(B), ..sized(8, 800) });
    for (key, tokens, server) in [(1, 101, A), (2, 100, B), (3, 1, A)] {
        stage.fleet.remember(Key(key), A, stage.now);
        assert_eq!(stage.go(Ask { home: Some(A), ..sized(key, tokens) }).server, server, "{tokens}");
    }
}

#[test]
fn its_own_requests_in_flight_do_not_drive_it_away() {
    let mut stage = Stage::with(2);
    stage.slots(A, 1);
    stage.fleet.remember(Key(1), A, stage.now);
    let why: Vec<Why> = (0..4).map(|_| stage.go(of(1)).why).collect();
    assert_eq!(why, [Why::Home; 4]);
    assert_eq!(stage.status(A).in_flight, 1, "it is one conversation");
}

#[test]
fn what_the_routers_share_about_its_home_beats_what_this_one_knows() {
    let mut stage = Stage::with(3);
    stage.fleet.remember(Key(1), A, stage.now);
    let told = stage.turn(Ask { home: Some(C), ..of(1) });
    assert_eq!((told.server, told.why), (C, Why::Home));
    assert_eq!(stage.home(1), Some(C));
}

#[test]
fn a_home_that_is_not_in_the_configuration_any_more_is_none() {
    let mut stage = Stage::with(2);
    stage.fleet.remember(Key(1), ServerId(7), stage.now);
    assert_eq!(stage.turn(Ask { home: Some(ServerId(7)), ..of(1) }).why, Why::New);
}

#[test]
fn homes_of_an_earlier_run_are_kept_unless_something_newer_is_known() {
    let mut stage = Stage::with(2);
    stage.fleet.remember(Key(1), B, stage.now - Duration::from_secs(60));
    stage.fleet.remember(Key(1), A, stage.now);
    assert_eq!(stage.turn(of(1)).server, B);
}

#[test]
fn requests_of_nobody_have_no_home() {
    let mut stage = Stage::with(2);
    let servers: Vec<_> = (0..4).map(|_| stage.turn(nobody())).collect();
    assert!(servers.iter().all(|placed| placed.why == Why::Nobody));
    assert_eq!(stage.status(A).sessions + stage.status(B).sessions, 0);
}

#[test]
fn without_affinity_a_conversation_goes_in_turn_like_everybody() {
    let affinity = Affinity { enabled: false, ..policy().affinity };
    let mut stage = Stage::under(Policy { affinity, placement: Placement::RoundRobin, ..policy() }, 2);
    let servers: Vec<ServerId> = (0..4).map(|_| stage.turn(of(1)).server).collect();
    assert_eq!(servers, [A, B, A, B]);
    assert_eq!(stage.home(1), None);
}

#[test]
fn a_new_conversation_that_leaves_the_line_has_moved_nowhere() {
    let mut stage = Stage::sharing(1000);
    stage.go(super::stage::sized(1, 800));
    let waiting = stage.ask(super::stage::sized(2, 800));
    assert_eq!(stage.home(2), Some(A), "as long as it waits it counts there");
    stage.end(waiting, Ended::Left);
    assert_eq!(stage.home(2), None);
}

#[test]
fn a_model_that_no_server_has_is_refused_as_unknown() {
    let mut stage = Stage::with(2);
    let ask = Ask { of: Eligible::Model("this".into()), ..of(1) };
    assert_eq!(stage.turn(ask.clone()).why, Why::New, "as long as no server has said what it has");
    stage.models(A, &["that", "its-alias"]);
    stage.models(B, &["that"]);
    let refused = stage.ask(ask);
    assert_eq!(stage.refused[&refused], Refusal::UnknownModel);
    assert_eq!(stage.fleet.models(), ["its-alias", "that"]);
}
