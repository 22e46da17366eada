//! Single scenes: one rule of the table each.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::world::{Runs, World, session, turn};
use crate::slots::{
    Action, Due, End, Evict, Fill, Heeds, Home, Launch, Mark, PinPolicy, Policy, Reading, Refusal, Shape,
    SlotId, SlotTable, Want,
};

fn plain(slot: u32) -> Launch {
    Launch::Pin { slot: SlotId(slot), fill: Fill::Nothing, alone: false }
}

#[test]
fn a_session_returns_to_its_own_slot() {
    let mut world = World::new(4, PinPolicy::Auto);
    let (slot, action, _) = world.turn("a");
    assert_eq!(action, Action::New);
    let (other, ..) = world.turn("b");
    assert_ne!(slot, other);
    assert_eq!(world.turn("a"), (slot, Action::Home, plain(slot.0)));
}

#[test]
fn a_new_session_evicts_the_least_recently_used_one_when_every_slot_is_owned() {
    let mut world = World::new(2, PinPolicy::Auto);
    let (of_a, ..) = world.turn("a");
    world.turn("b");
    world.turn("b");
    assert_eq!(world.turn("c"), (of_a, Action::Evict(session("a")), plain(of_a.0)));
}

#[test]
fn a_busy_slot_is_never_evicted() {
    let mut world = World::new(2, PinPolicy::Auto);
    world.turn("a");
    let (of_b, ..) = world.turn("b");
    let running = world.ask(turn("a")).expect("its slot is free");
    world.land(running.lease);
    let grant = world.ask(turn("c")).expect("the slot of b is free");
    assert_eq!(grant.action, Action::Evict(session("b")));
    assert_eq!(grant.launch.slot(), Some(of_b));
}

#[test]
fn a_session_waits_for_its_own_slot_though_another_is_free() {
    let mut world = World::new(2, PinPolicy::Auto);
    let first = world.ask(turn("a")).expect("a slot is free");
    let second = world.enqueue(turn("a"));
    world.settle();
    assert!(!world.granted.contains_key(&second));
    let slot = world.run(&first);
    let grant = &world.granted[&second];
    assert_eq!(grant.launch.slot(), Some(slot));
    assert!(grant.waited);
}

#[test]
fn new_sessions_that_find_every_slot_busy_are_served_in_order_of_arrival() {
    let mut world = World::new(1, PinPolicy::Auto);
    let running = world.ask(turn("a")).expect("a slot is free");
    let waiting: Vec<_> = ["b", "c", "d"].map(|name| world.enqueue(turn(name))).into();
    world.settle();
    world.run(&running);
    for ticket in &waiting {
        let grant = world.granted[ticket].clone();
        world.run(&grant);
    }
    assert_eq!(world.grants[1..], waiting);
}

#[test]
fn a_waiter_that_leaves_moves_nothing() {
    let mut world = World::new(1, PinPolicy::Auto);
    let (slot, ..) = world.turn("a");
    let running = world.ask(turn("a")).expect("its slot is free");
    let gone = world.enqueue(turn("b"));
    world.settle();
    world.table.leave(gone);
    world.run(&running);
    assert!(!world.granted.contains_key(&gone));
    let (again, action, _) = world.turn("a");
    assert_eq!((again, action), (slot, Action::Home));
}

#[test]
fn foreign_work_is_skipped_by_new_sessions_and_waited_for_by_the_owner() {
    let mut world = World::new(2, PinPolicy::Auto);
    let (of_a, ..) = world.turn("a");
    world.start(of_a.0 as usize, Runs::Foreign);
    let ticket = world.enqueue(turn("a"));
    world.settle();
    assert!(!world.granted.contains_key(&ticket));
    let (of_b, action, _) = world.turn("b");
    assert_eq!(action, Action::New);
    assert_ne!(of_b, of_a);
    world.stop(of_a);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.granted[&ticket].launch.slot(), Some(of_a));
}

#[test]
fn waiting_for_foreign_work_does_not_poll_in_a_tight_loop() {
    let mut world = World::new(1, PinPolicy::Auto);
    world.start(0, Runs::Foreign);
    world.enqueue(turn("a"));
    world.settle();
    let before = world.table.probe_asked().0;
    world.pass(Duration::from_secs(12));
    let probes = world.table.probe_asked().0 - before;
    assert!((8..=16).contains(&probes), "{probes} probes in 12 s");
}

#[test]
fn no_slot_is_named_while_a_request_without_one_is_on_its_way() {
    let mut world = World::new(4, PinPolicy::Auto);
    world.turn("a");
    let free = world.ask(Want::Anonymous).expect("a slot is free");
    assert_eq!(free.launch, Launch::Free { alone: false });
    let ticket = world.enqueue(turn("a"));
    world.pass(Duration::from_secs(5));
    assert!(!world.granted.contains_key(&ticket), "it could have named the slot the other one gets");
    world.land(free.lease);
    world.pass(Duration::from_secs(2));
    assert!(world.granted.contains_key(&ticket));
}

#[test]
fn a_request_without_a_slot_is_held_while_a_named_one_is_on_its_way() {
    let mut world = World::new(4, PinPolicy::Auto);
    let pinned = world.ask(turn("a")).expect("a slot is free");
    let ticket = world.enqueue(Want::Anonymous);
    world.pass(Duration::from_secs(5));
    assert!(!world.granted.contains_key(&ticket), "llama-server could have given it the named slot");
    world.table.landed(pinned.lease);
    world.settle();
    assert!(world.granted.contains_key(&ticket));
}

#[test]
fn anonymous_requests_count_against_the_slots() {
    let mut world = World::new(2, PinPolicy::Auto);
    for _ in 0..2 {
        let grant = world.ask(Want::Anonymous).expect("a slot is free");
        world.land(grant.lease);
    }
    let ticket = world.enqueue(turn("a"));
    world.pass(Duration::from_secs(5));
    assert!(!world.granted.contains_key(&ticket));
}

#[test]
fn a_slot_named_by_a_client_is_waited_for_and_taken_modulo_the_slot_count() {
    let mut world = World::new(4, PinPolicy::Auto);
    let grant = world.ask(Want::Named(-2)).expect("slot 2 is free");
    assert_eq!(grant.launch, plain(2));
    assert!(world.ask(Want::Named(6)).is_none(), "6 names slot 2 as well, which is busy");
}

#[test]
fn after_a_client_has_left_the_slot_stays_leased_until_it_is_seen_idle() {
    let mut world = World::new(1, PinPolicy::Auto);
    let grant = world.ask(turn("a")).expect("a slot is free");
    let slot = world.land(grant.lease);
    world.table.landed(grant.lease);
    world.table.release(grant.lease, End::Broken, world.now);
    let ticket = world.enqueue(turn("b"));
    world.pass(Duration::from_secs(30));
    assert!(!world.granted.contains_key(&ticket), "llama-server is still at work in the slot");
    world.stop(slot);
    world.pass(Duration::from_secs(2));
    assert!(world.granted.contains_key(&ticket));
}

#[test]
fn however_many_clients_have_left_llama_server_has_a_second_without_traffic_to_notice_it() {
    let mut world = World::new(3, PinPolicy::Auto);
    for name in ["a", "b", "c"] {
        let grant = world.ask(turn(name)).expect("a slot is free");
        world.land(grant.lease);
        world.table.landed(grant.lease);
        world.table.release(grant.lease, End::Broken, world.now);
        world.pass(Duration::from_millis(700));
    }
    world.pass(Duration::from_secs(3));
    let asked = world.table.asked.0;
    world.pass(Duration::from_secs(12));
    assert!(world.table.asked.0 - asked <= 10, "asked more often than every 1.2 s");
}

#[test]
fn a_request_whose_client_left_before_it_landed_may_still_land() {
    let mut world = World::new(1, PinPolicy::Auto);
    let grant = world.ask(turn("a")).expect("a slot is free");
    world.table.release(grant.lease, End::Broken, world.now);
    let ticket = world.enqueue(turn("b"));
    world.pass(Duration::from_millis(150));
    assert!(!world.granted.contains_key(&ticket), "one idle look proves nothing");
    let slot = world.land(grant.lease);
    world.pass(Duration::from_secs(5));
    assert!(!world.granted.contains_key(&ticket));
    world.stop(slot);
    world.pass(Duration::from_secs(5));
    assert!(world.granted.contains_key(&ticket));
}

#[test]
fn a_silent_server_leaves_the_decision_to_the_leases() {
    let mut world = World::new(2, PinPolicy::Auto);
    let (slot, ..) = world.turn("a");
    let ticket = world.enqueue(turn("a"));
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Silent);
    assert_eq!(world.granted[&ticket].launch.slot(), Some(slot));
}

#[test]
fn an_unreachable_server_refuses_everyone_who_waits_and_voids_the_leases() {
    let mut world = World::new(1, PinPolicy::Auto);
    let running = world.ask(turn("a")).expect("a slot is free");
    let ticket = world.enqueue(turn("b"));
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Refused);
    assert_eq!(world.refused.get(&ticket), Some(&Refusal::Unreachable));
    world.on_the_way.clear();
    let next = world.ask(turn("a")).expect("the old lease is void");
    assert_eq!(next.action, Action::Home, "the assignment stays as a hint");
    world.table.release(running.lease, End::Complete { usage: None, slot: None }, world.now);
    assert!(world.ask(turn("c")).is_none(), "a late release of an old lease frees nothing");
}

#[test]
fn a_restart_is_seen_by_slots_that_have_lost_their_task() {
    let mut world = World::new(2, PinPolicy::Auto);
    world.turn("a");
    let generation = world.table.snapshot(world.now).generation;
    world.server.fill_with(Default::default);
    world.probe();
    let snapshot = world.table.snapshot(world.now);
    assert_ne!(snapshot.generation, generation);
    assert!(snapshot.slots.iter().all(|slot| !slot.warm));
    assert_eq!(snapshot.slots[0].session.as_deref(), Some("a"));
}

#[test]
fn a_smaller_slot_count_sends_the_sessions_that_no_longer_fit_elsewhere() {
    let mut world = World::new(3, PinPolicy::Auto);
    for name in ["a", "b", "c"] {
        world.turn(name);
    }
    world.server.truncate(1);
    world.server.fill_with(Default::default);
    world.probe();
    let (slot, action, _) = world.turn("c");
    assert_eq!((slot, action), (SlotId(0), Action::Evict(session("a"))));
}

#[test]
fn while_the_server_loads_requests_are_passed_on_for_it_to_answer() {
    let mut world = World::new(1, PinPolicy::Auto);
    for name in ["a", "b", "c"] {
        let ticket = world.enqueue(turn(name));
        let probe = world.table.probe_asked();
        world.answer(probe, Reading::Loading);
        assert_eq!(world.granted[&ticket].launch, Launch::Free { alone: false });
    }
}

#[test]
fn a_slot_is_warm_only_while_it_shows_what_its_session_left() {
    let mut world = World::new(2, PinPolicy::Auto);
    let (slot, ..) = world.turn("a");
    let warm = |world: &World| world.table.snapshot(world.now).slots[slot.0 as usize].warm;
    assert!(warm(&world));
    world.start(slot.0 as usize, Runs::Foreign);
    world.stop(slot);
    world.probe();
    assert!(!warm(&world));
}

#[test]
fn stored_hints_prove_warmth_after_a_router_restart_only_if_the_marks_agree() {
    let mut world = World::new(2, PinPolicy::Auto);
    let (slot, ..) = world.turn("a");
    let seen = world.server[slot.0 as usize].seen;
    let mark = Mark { id_task: seen.id_task.expect("used"), tokens: seen.tokens.expect("used") };
    for (left, warm) in [(mark, true), (Mark { tokens: mark.tokens + 1, ..mark }, false)] {
        world.table = SlotTable::new(Policy::default());
        world.table.restore([(session("a"), Some(Home { slot, left: Some(left) }))], world.now);
        world.probe();
        assert_eq!(world.table.snapshot(world.now).slots[slot.0 as usize].warm, warm);
    }
}

#[test]
fn on_a_server_that_clears_idle_slots_a_cold_session_is_primed_and_a_warm_one_pinned() {
    let mut world = World::clearing(4);
    for name in ["a", "b", "c"] {
        world.turn(name);
    }
    assert_eq!(world.table.snapshot(world.now).clears_idle, Some(true));
    let (of_c, _, launch) = world.turn("c");
    assert_eq!(
        launch,
        Launch::Pin { slot: of_c, fill: Fill::Nothing, alone: true },
        "its slot still holds its state"
    );
    let (of_a, _, launch) = world.turn("a");
    assert_eq!(
        launch,
        Launch::Pin { slot: of_a, fill: Fill::Prime, alone: true },
        "its slot has been emptied"
    );
    let (of_d, _, launch) = world.turn("d");
    assert_eq!(launch, plain(of_d.0), "a new session has nothing in the RAM cache");
}

#[test]
fn a_new_session_is_primed_where_another_one_that_began_alike_loses_nothing_by_it() {
    let mut world = World::clearing(4);
    world.said = Some(HashMap::new());
    world.warm_up();
    for name in ["s0", "s1"] {
        world.turn(name);
    }
    assert_eq!(world.table.snapshot(world.now).clears_idle, Some(true));
    assert_eq!(
        world.turn("s2").2.fill(),
        Fill::Prime,
        "s0 left what s2 begins with, and is too short for a file"
    );
    assert_eq!(world.turn("other").2.fill(), Fill::Prime, "s1 is of the same agent");
    world.said = None;
    assert_eq!(world.turn("s4").2.fill(), Fill::Nothing, "nobody knows what it says");
}

#[test]
fn until_it_is_known_what_becomes_of_idle_slots_a_warm_session_starts_alone() {
    let mut world = World::new(2, PinPolicy::Auto);
    world.clears_idle = true;
    let runs = ["a", "b"].map(|name| world.running(name));
    runs.iter().for_each(|run| world.end(run));
    let (first, second) = (world.enqueue(turn("a")), world.enqueue(turn("b")));
    world.settle();
    assert!(!world.granted.contains_key(&second), "the start of the first may empty its slot");
    let Launch::Pin { fill: Fill::Nothing, alone: true, .. } = world.granted[&first].launch else {
        panic!("{:?}", world.granted[&first].launch)
    };
    world.land(world.granted[&first].lease);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.granted[&second].launch.fill(), Fill::Prime, "and it has");
}

#[test]
fn a_busy_slot_that_outlived_a_start_does_not_hide_that_the_server_clears_idle_slots() {
    let mut world = World::clearing(4);
    let long = world.ask(turn("long")).expect("a slot is free");
    world.land(long.lease);
    for name in ["a", "b", "c"] {
        world.turn(name);
    }
    assert_eq!(world.table.snapshot(world.now).clears_idle, Some(true));
    world.stop(long.launch.slot().expect("pinned"));
    world.table.release(long.lease, End::Complete { usage: None, slot: None }, world.now);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.table.snapshot(world.now).clears_idle, Some(true));
}

#[test]
fn after_a_server_restart_a_known_session_is_not_primed_since_nothing_of_it_is_left() {
    let mut world = World::clearing(4);
    for name in ["a", "b", "c"] {
        world.turn(name);
    }
    world.server.fill_with(Default::default);
    world.probe();
    for name in ["a", "b", "c"] {
        let (_, action, launch) = world.turn(name);
        assert_eq!(action, Action::Home);
        assert!(
            !matches!(launch, Launch::Pin { fill: Fill::Prime, .. }),
            "it would take another session's state"
        );
    }
    let (_, _, launch) = world.turn("a");
    assert!(matches!(launch, Launch::Pin { fill: Fill::Prime, .. }));
}

#[test]
fn a_request_given_up_before_it_had_read_anything_does_not_look_like_clearing() {
    let mut world = World::new(4, PinPolicy::Auto);
    world.settle();
    // Past the router: it took a slot and left nothing there.
    world.start(0, Runs::Foreign);
    world.server[0].seen.tokens = Some(0);
    world.probe();
    world.stop(SlotId(0));
    world.server[0].seen.tokens = Some(0);
    world.probe();
    let running = world.ask(Want::Named(1)).expect("a slot is free");
    world.land(running.lease);
    world.probe();
    assert_ne!(world.table.snapshot(world.now).clears_idle, Some(true));
}

#[test]
fn one_purged_slot_among_kept_ones_is_not_taken_for_clearing() {
    let mut world = World::new(4, PinPolicy::Auto);
    for name in ["a", "b", "c", "d"] {
        world.turn(name);
    }
    world.server[0].seen.tokens = Some(0);
    world.probe();
    assert_eq!(world.table.snapshot(world.now).clears_idle, Some(false));
}

#[test]
fn nothing_starts_between_a_primer_and_its_request() {
    let mut world = World::clearing(4);
    for name in ["a", "b", "c"] {
        world.turn(name);
    }
    let primed = world.ask(turn("a")).expect("its slot is free");
    let slot = primed.launch.slot().expect("pinned");
    let others = [world.enqueue(turn("b")), world.enqueue(Want::Anonymous)];
    world.start(slot.0 as usize, Runs::Primer(primed.lease));
    world.pass(Duration::from_secs(3));
    world.stop(slot);
    world.table.filled(primed.lease);
    world.pass(Duration::from_secs(3));
    assert!(others.iter().all(|ticket| !world.granted.contains_key(ticket)));
    world.land(primed.lease);
    world.pass(Duration::from_secs(3));
    assert!(world.granted.contains_key(&others[0]));
}

#[test]
fn with_pin_never_a_session_gets_the_slot_it_was_seen_in() {
    let mut world = World::new(4, PinPolicy::Never);
    let (slot, action, launch) = world.turn("a");
    assert_eq!((action, launch), (Action::Free, Launch::Free { alone: false }));
    let owner = world.table.snapshot(world.now).slots[slot.0 as usize].session.clone();
    assert_eq!(owner.as_deref(), Some("a"));
}

#[test]
fn a_server_without_slots_endpoint_is_used_by_leases_alone() {
    let mut world = World::new(2, PinPolicy::Auto);
    let first = world.enqueue(turn("a"));
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Blind(Some(2)));
    let slot = world.granted[&first].launch.slot().expect("pinned");
    let lease = world.granted[&first].lease;
    world.table.release(lease, End::Broken, world.now);
    let second = world.enqueue(turn("a"));
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Blind(Some(2)));
    assert!(!world.granted.contains_key(&second), "llama-server needs a moment to notice");
    world.now += Duration::from_secs(3);
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Blind(Some(2)));
    assert_eq!(world.granted[&second].launch.slot(), Some(slot));
}

#[test]
fn an_idle_table_asks_nothing() {
    let mut world = World::new(2, PinPolicy::Auto);
    world.turn("a");
    world.pass(Duration::from_secs(60));
    assert_eq!(world.table.next_probe(), None::<Due>);
}

#[test]
fn a_request_of_several_tasks_starts_alone_and_counts_as_many_slots() {
    let mut world = World::new(4, PinPolicy::Auto);
    let wide = Shape { tasks: 3, ..Shape::default() };
    let ticket = world.enqueue_shaped(turn("a"), wide);
    world.settle();
    let grant = world.granted[&ticket].clone();
    assert_eq!(grant.launch, Launch::Free { alone: true });
    let next = world.enqueue(turn("b"));
    world.land(grant.lease);
    world.table.landed(grant.lease);
    world.pass(Duration::from_secs(3));
    assert!(
        !world.granted.contains_key(&next),
        "two of its tasks are still on their way to slots of their choice"
    );
    world.land(grant.lease);
    world.land(grant.lease);
    world.pass(Duration::from_secs(3));
    assert!(world.granted.contains_key(&next));
    let more = world.enqueue_shaped(Want::Anonymous, wide);
    world.pass(Duration::from_secs(3));
    assert!(!world.granted.contains_key(&more), "no three slots are free");
}

#[test]
fn a_request_for_more_tasks_than_slots_has_the_server_to_itself() {
    let mut world = World::new(2, PinPolicy::Auto);
    let running = world.ask(turn("a")).expect("a slot is free");
    let ticket = world.enqueue_shaped(Want::Anonymous, Shape { tasks: 9, ..Shape::default() });
    world.settle();
    assert!(!world.granted.contains_key(&ticket));
    world.run(&running);
    assert!(world.granted.contains_key(&ticket));
    assert!(world.ask(turn("b")).is_none());
}

#[test]
fn a_route_that_does_not_heed_the_slot_gets_none_named() {
    let mut world = World::new(4, PinPolicy::Auto);
    let ticket = world.enqueue_shaped(turn("a"), Shape { heeds_slot: Heeds::No, ..Shape::default() });
    world.settle();
    assert_eq!(world.granted[&ticket].launch, Launch::Free { alone: false });
}

#[test]
fn a_server_that_ignores_the_slot_named_does_not_lose_one_to_it() {
    let mut world = World::new(2, PinPolicy::Auto);
    let grant = world.ask(turn("a")).expect("a slot is free");
    let named = grant.launch.slot().expect("pinned");
    world.on_the_way.clear();
    world.start(1 - named.0 as usize, Runs::Lease(grant.lease));
    world.table.landed(grant.lease);
    let next = world.ask(turn("b")).expect("the slot that was named is free");
    assert_eq!(next.launch.slot(), Some(named));
}

#[test]
fn a_new_router_sees_at_its_first_look_that_the_server_clears_idle_slots() {
    let mut world = World::clearing(4);
    for name in ["a", "b", "c"] {
        world.turn(name);
    }
    let hints = ["a", "b", "c"].into_iter().enumerate();
    world.table = SlotTable::new(Policy::default());
    world.table.restore(
        hints.map(|(slot, name)| (session(name), Some(Home { slot: SlotId(slot as u32), left: None }))),
        world.now,
    );
    let (_, _, launch) = world.turn("a");
    assert!(matches!(launch, Launch::Pin { fill: Fill::Prime, .. }), "{launch:?}");
}

proptest! {
    /// Turns one after another, against the plainest LRU there is.
    #[test]
    fn sessions_in_turn_get_the_slots_of_a_naive_lru(slots in 1_usize..6, turns in prop::collection::vec(0_u8..9, 1..60)) {
        let mut world = World::under(slots, Policy { evict: Evict::Lru, ..Policy::default() });
        let mut naive: Vec<(Option<u8>, usize)> = (0..slots).map(|slot| (None, slot)).collect();
        for who in turns {
            let position = naive.iter().position(|(owner, _)| *owner == Some(who))
                .or_else(|| naive.iter().position(|(owner, _)| owner.is_none()))
                .unwrap_or(0);
            let (_, expected) = naive.remove(position);
            naive.push((Some(who), expected));
            let (slot, ..) = world.turn(&format!("session {who}"));
            prop_assert_eq!(slot.0 as usize, expected);
        }
    }
}
