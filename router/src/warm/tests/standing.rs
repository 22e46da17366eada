//! When warm starts are off, and when they come back.

use std::sync::Arc;

use super::{LAYOUT, Server, session, story, usage};
use crate::chain::Part;
use crate::warm::{
    Cause, Effect, Occasion, Policy, Reread, RestoreError, SaveError, Standing, StateId, Story, Turn, Warm,
};

/// Standings said since the last look.
fn said(server: &mut Server) -> Vec<Standing> {
    let effects = server.warm.take_effects().into_iter();
    effects
        .filter_map(|effect| if let Effect::Turned(standing) = effect { Some(standing) } else { None })
        .collect()
}

fn first() -> Story {
    story("agent", &["hello"])
}

fn next() -> Story {
    story("agent", &["hello", "hi", "more"])
}

/// A session whose state has been saved and restored, and of which the next turn found so many tokens.
fn restored(server: &mut Server, name: &str, cached: u64) -> StateId {
    let state = server.turn(name, first(), usage(1394, 0)).save(name);
    server.warm.restored(state, Ok(server.written(1403)), server.now);
    server.turn_from(name, next(), usage(1500 - cached, cached), Some(state));
    state
}

#[test]
fn nothing_is_saved_before_the_server_is_known_or_where_nobody_wants_it() {
    let mut warm = Warm::new(Policy::default());
    assert!(!warm.is_on() && !warm.needs_measure());
    warm.supported(true);
    assert_eq!(warm.snapshot().standing, Standing::Unknown);
    warm.served_by("server");
    assert!(warm.is_on() && warm.needs_measure());
    assert_eq!(warm.take_effects(), [], "that they work is nothing to speak of");
    let unwanted = Server::with(Policy { enabled: false, ..Policy::default() }, LAYOUT, 20_000);
    assert_eq!(unwanted.warm.snapshot().standing, Standing::Disabled);
    assert!(!unwanted.warm.needs_measure());
}

#[test]
fn restored_states_that_are_reused_spare_tokens() {
    let mut server = Server::small();
    restored(&mut server, "a", 1400);
    let snapshot = server.warm.snapshot();
    assert_eq!((snapshot.restored, snapshot.reused, snapshot.unreused), (1, 1, 0));
    assert_eq!(snapshot.tokens_spared, 1400);
}

#[test]
fn two_restored_states_that_are_not_reused_turn_warm_starts_off_until_the_server_restarts() {
    let mut server = Server::small();
    let kept = server.turn("c", story("other", &["hello"]), usage(1394, 0)).save("c");
    let one = restored(&mut server, "a", 0);
    assert!(server.warm.is_on());
    let two = restored(&mut server, "b", 0);
    assert!(!server.warm.is_on());
    let effects = server.warm.take_effects();
    assert!([one, two, kept].iter().all(|state| effects.contains(&Effect::Forget(*state))), "{effects:?}");
    assert!(effects.contains(&Effect::Turned(Standing::Unreused)));
    assert!(!server.pays("a", Occasion::Eviction, 0));
    server.warm.restarted();
    server.warm.served_by("server");
    assert!(server.warm.is_on());
    assert_eq!(said(&mut server), [Standing::On]);
}

#[test]
fn two_turns_that_were_cut_off_do_not_turn_warm_starts_off() {
    let mut server = Server::small();
    for name in ["a", "b"] {
        let story = Some(Arc::new(first()));
        server.warm.ended(&session(name), Turn { story, usage: None, restored: None }, server.now);
        let state = server.warm.begin(&session(name), 1403, server.now);
        server.warm.saved(state, Ok(server.written(1403)), server.now);
        server.warm.restored(state, Ok(server.written(1403)), server.now);
        server.turn_from(name, next(), usage(1500, 0), Some(state));
        assert_eq!(server.state_for(name, &next()), None, "it is not tried again");
    }
    assert!(server.warm.is_on());
    assert_eq!(server.warm.snapshot().unreused, 2);
}

#[test]
fn a_file_with_another_number_of_tokens_is_not_what_was_saved() {
    let mut server = Server::small();
    let state = server.turn("a", first(), usage(1394, 0)).save("a");
    assert!(server.warm.may_hold(state, 1403) && !server.warm.may_hold(state, 1402));
    server.warm.restored(state, Ok(server.written(1402)), server.now);
    assert_eq!(server.state_for("a", &next()), None);
    assert_eq!(server.warm.snapshot().restore_failures, 1);
}

#[test]
fn three_refused_restores_in_a_row_turn_warm_starts_off() {
    let mut server = Server::small();
    for name in ["a", "b", "c"] {
        assert!(server.warm.is_on());
        let state = server.turn(name, first(), usage(1394, 0)).save(name);
        server.warm.restored(state, Err(RestoreError::Refused), server.now);
        assert_eq!(server.state_for(name, &next()), None, "it is not tried again");
    }
    assert_eq!(said(&mut server), [Standing::Refused]);
    assert_eq!(server.warm.snapshot().restore_failures, 3);
}

#[test]
fn a_missing_file_is_forgotten_and_held_against_nobody() {
    let mut server = Server::small();
    for wrong in [RestoreError::Missing, RestoreError::Mismatch].repeat(3) {
        let state = server.turn("a", first(), usage(1394, 0)).save("a");
        server.warm.restored(state, Err(wrong), server.now);
        assert!(server.forgotten().contains(&state));
    }
    assert!(server.warm.is_on());
}

#[test]
fn a_server_without_a_save_path_turns_warm_starts_off_until_it_has_one() {
    let mut server = Server::small();
    let state = server.warm.begin(&session("a"), 1000, server.now);
    server.warm.saved(state, Err(SaveError::Unsupported), server.now);
    assert_eq!(said(&mut server), [Standing::Unsupported]);
    server.warm.supported(false);
    assert_eq!(said(&mut server), []);
    server.warm.supported(true);
    assert_eq!(said(&mut server), [Standing::On]);
}

#[test]
fn a_state_made_before_the_layout_was_known_is_used_within_that_life_only() {
    let mut server = Server::small();
    server.warm.restarted();
    server.warm.served_by("server");
    let state = server.turn("a", first(), usage(1394, 0)).save("a");
    assert_eq!(server.state_for("a", &next()), Some(state));
    server.warm.restarted();
    assert_eq!(server.forgotten(), [state]);
}

#[test]
fn measuring_stamps_the_states_made_before_and_they_outlive_a_restart() {
    let mut server = Server::small();
    server.warm.restarted();
    server.warm.served_by("server");
    let state = server.turn("a", first(), usage(1394, 0)).save("a");
    server.warm.take_effects();
    server.warm.measured(LAYOUT);
    let effects = server.warm.take_effects();
    let stamped = |effect: &Effect| matches!(effect, Effect::Register(row) if row.layout == Some(LAYOUT));
    assert!(effects.len() == 1 && effects.iter().all(stamped), "{effects:?}");
    server.warm.restarted();
    server.warm.served_by("server");
    assert!(server.warm.needs_measure(), "the layout may be another now");
    server.warm.measured(LAYOUT);
    assert_eq!(server.state_for("a", &next()), Some(state));
}

#[test]
fn measuring_in_vain_twice_is_enough_until_a_save_works_out() {
    let mut server = Server::small();
    let state = server.turn("a", first(), usage(1394, 0)).save("a");
    server.warm.restarted();
    server.warm.served_by("server");
    assert!(server.warm.needs_measure());
    server.warm.unmeasured(SaveError::NoRoom);
    assert!(server.warm.needs_measure());
    server.warm.unmeasured(SaveError::NoRoom);
    assert!(!server.warm.needs_measure());
    assert_eq!(server.state_for("a", &next()), None, "its layout can't be told");
    server.turn("b", story("other", &["hello"]), usage(1394, 0)).save("b");
    assert!(server.warm.needs_measure());
    assert_eq!(server.state_for("a", &next()), Some(state));
}

#[test]
fn a_server_that_comes_back_is_measured_again() {
    let mut server = Server::small();
    for _ in 0..2 {
        server.warm.restarted();
        server.warm.served_by("server");
        assert!(server.warm.needs_measure());
        server.warm.unmeasured(SaveError::Failed);
        server.warm.unmeasured(SaveError::Failed);
        assert!(!server.warm.needs_measure());
    }
}

#[test]
fn what_was_learned_of_a_servers_speed_survives_its_restart_but_not_another_server() {
    let mut server = Server::small();
    server.turn("a", first(), usage(1394, 0)).save("a");
    let before = server.warm.snapshot();
    server.warm.restarted();
    server.warm.served_by("server");
    assert_eq!(server.warm.snapshot().read_s_per_token, before.read_s_per_token);
    assert!(before.bytes_per_token.is_some());
    server.warm.served_by("another");
    let other = server.warm.snapshot();
    assert_eq!((other.read_s_per_token, other.bytes_per_token, other.states), (None, None, 0));
    assert_eq!(other.bytes, before.bytes, "its states are still there");
}

#[test]
fn a_turn_that_reads_its_prompt_again_is_reported_with_the_part_that_changed() {
    let mut server = Server::small();
    server.turn("a", first(), usage(1394, 0)).turn("a", story("other", &["hello"]), usage(1394, 0));
    let cause = Cause::Changed(Part::System);
    let reread = Reread { session: "a".to_owned(), computed: 1394, cached: 0, before: 1394, cause };
    assert_eq!(server.warm.take_effects(), [Effect::Reread(reread)]);
}
