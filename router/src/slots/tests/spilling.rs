//! Single scenes of `concurrent = "spill"`: a session's request whose home is busy.

use std::time::Duration;

use super::world::{Runs, World, ended, session, turn};
use crate::slots::{
    Action, Concurrent, End, Fill, Grant, Heeds, Home, Launch, PinPolicy, Policy, Reading, Shape, SlotId,
    SlotTable, Ticket, Want,
};

const MINUTE: Duration = Duration::from_secs(60);
const FIVE_MINUTES: Duration = Duration::from_secs(5 * 60);

fn waits(world: &mut World, name: &str) -> Ticket {
    let ticket = world.enqueue(turn(name));
    world.pass(Duration::from_secs(3));
    assert!(!world.granted.contains_key(&ticket), "{:?}", world.granted.get(&ticket));
    ticket
}

/// Two slots on a server that is known to keep what is in them: `a` is at work in its home, `b` has the other one.
fn one_at_work_one_idle() -> (World, Grant) {
    let mut world = World::spilling(2);
    world.turn("a");
    world.turn("b");
    let main = world.running("a");
    (world, main)
}

#[test]
fn a_second_request_runs_in_a_slot_nobody_owns_and_the_home_stays_whichever_ends_first() {
    for side_first in [true, false] {
        let mut world = World::spilling(3);
        let (home, ..) = world.turn("a");
        let main = world.running("a");
        let side = world.ask(turn("a")).expect("two slots are free");
        assert_eq!((&side.action, side.waited), (&Action::Spill(None), false));
        assert_ne!(side.launch.slot(), Some(home));
        world.land(side.lease);
        let both = if side_first { [&side, &main] } else { [&main, &side] };
        for grant in both {
            world.end(grant);
        }
        assert_eq!(world.owners().into_iter().flatten().collect::<Vec<_>>(), ["a"]);
        assert!(world.table.snapshot(world.now).slots[home.0 as usize].warm);
        let (again, action, _) = world.turn("a");
        assert_eq!((again, action), (home, Action::Home));
    }
}

#[test]
fn a_session_unseen_for_more_than_five_minutes_loses_its_slot_to_a_spill() {
    let (mut world, main) = one_at_work_one_idle();
    world.pass(FIVE_MINUTES + MINUTE);
    let side = world.ask(turn("a")).expect("b is not expected back");
    assert_eq!(side.action, Action::Spill(Some(session("b"))));
    world.run(&side);
    assert_eq!(world.owners(), [Some("a".to_owned()), None]);
    world.end(&main);
    assert_eq!(world.turn("b").1, Action::New);
    assert_eq!(world.turn("a").1, Action::Home);
}

#[test]
fn of_several_slots_the_least_recently_used_one_is_taken() {
    let mut world = World::spilling(4);
    for name in ["a", "b", "c", "d", "b"] {
        world.turn(name);
    }
    world.running("a");
    world.pass(FIVE_MINUTES + MINUTE);
    let taken = [world.ask(turn("a")), world.ask(turn("a"))].map(|side| side.expect("two are old").action);
    assert_eq!(taken, ["c", "d"].map(|name| Action::Spill(Some(session(name)))));
}

#[test]
fn a_slot_of_a_session_seen_within_five_minutes_is_not_taken() {
    let (mut world, main) = one_at_work_one_idle();
    world.pass(FIVE_MINUTES - MINUTE);
    let ticket = waits(&mut world, "a");
    world.end(&main);
    let grant = &world.granted[&ticket];
    assert_eq!((&grant.action, grant.waited), (&Action::Home, true));
    assert_eq!(world.turn("b").1, Action::Home);
}

#[test]
fn a_session_that_runs_elsewhere_or_waits_is_expected_back_however_long_that_takes() {
    let mut world = World::spilling(3);
    let (home, ..) = world.turn("b");
    world.turn("a");
    let main = world.running("b");
    let side = world.ask(turn("b")).expect("a slot is free");
    world.land(side.lease);
    world.end(&main);
    world.running("a");
    world.pass(FIVE_MINUTES + MINUTE);
    waits(&mut world, "a");
    assert_eq!(world.turn("b"), (home, Action::Home, main.launch));
}

#[test]
fn a_session_that_has_waited_for_long_keeps_its_slot() {
    let mut world = World::spilling(3);
    world.turn("a");
    world.turn("b");
    world.running("a");
    let anonymous = world.ask(Want::Anonymous).expect("a slot is free");
    let [side, of_b] = ["a", "b"].map(|name| world.enqueue(turn(name)));
    world.pass(FIVE_MINUTES + MINUTE);
    world.land(anonymous.lease);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.granted[&of_b].action, Action::Home);
    assert!(!world.granted.contains_key(&side));
}

#[test]
fn several_spill_at_once_each_into_a_slot_of_its_own_and_those_beyond_wait() {
    let mut world = World::spilling(4);
    world.turn("a");
    world.turn("b");
    let main = world.running("a");
    let sides = [(); 2].map(|()| world.ask(turn("a")).expect("a slot is free"));
    for side in &sides {
        assert_eq!(side.action, Action::Spill(None));
        world.land(side.lease);
    }
    let fourth = waits(&mut world, "a");
    world.end(&sides[0]);
    assert_eq!(world.granted[&fourth].action, Action::Spill(None));
    world.land(world.granted[&fourth].lease);
    world.end(&main);
    let (home, action, _) = world.turn("a");
    assert_eq!((Some(home), action), (main.launch.slot(), Action::Home));
}

#[test]
fn when_its_home_is_free_again_a_request_goes_there_though_a_spilled_one_still_runs() {
    let mut world = World::spilling(2);
    let main = world.running("a");
    let side = world.ask(turn("a")).expect("a slot is free");
    world.land(side.lease);
    world.end(&main);
    let next = world.ask(turn("a")).expect("its home is free");
    assert_eq!((next.action, next.launch.slot()), (Action::Home, main.launch.slot()));
}

#[test]
fn a_session_that_has_lost_its_home_while_a_spilled_request_runs_gets_a_new_one_at_once() {
    let mut world = World::spilling(3);
    world.turn("b");
    let main = world.running("a");
    let side = world.ask(turn("a")).expect("a slot is free");
    world.land(side.lease);
    world.end(&main);
    world.turn("c");
    assert_eq!(world.turn("b").1, Action::Evict(session("a")));
    let (home, action, _) = world.turn("a");
    assert_eq!(action, Action::Evict(session("c")));
    world.end(&side);
    assert_eq!(world.turn("a").0, home);
}

#[test]
fn a_session_whose_home_is_busy_with_foreign_work_spills() {
    let mut world = World::spilling(3);
    let (home, ..) = world.turn("a");
    world.start(home.0 as usize, Runs::Foreign);
    let side = world.ask(turn("a")).expect("a slot is free");
    assert_eq!(side.action, Action::Spill(None));
    world.run(&side);
    world.stop(home);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.turn("a").0, home);
}

#[test]
fn what_follows_a_turn_whose_client_has_left_waits_for_its_home() {
    let mut world = World::spilling(2);
    let main = world.running("a");
    world.table.release(main.lease, End::Broken, world.now);
    let next = waits(&mut world, "a");
    world.stop(main.launch.slot().expect("pinned"));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.granted[&next].launch.slot(), main.launch.slot());
}

#[test]
fn what_a_spilled_request_left_when_its_client_went_belongs_to_nobody() {
    let mut world = World::spilling(2);
    let main = world.running("a");
    let side = world.ask(turn("a")).expect("a slot is free");
    let taken = world.land(side.lease);
    world.table.release(side.lease, End::Broken, world.now);
    world.stop(taken);
    world.pass(Duration::from_secs(2));
    world.end(&main);
    assert_eq!(world.owners()[taken.0 as usize], None);
    assert_eq!(
        world.turn("b"),
        (taken, Action::New, Launch::Pin { slot: taken, fill: Fill::Nothing, alone: false })
    );
}

#[test]
fn requests_that_may_go_where_the_server_likes_wait_for_what_their_session_has_running() {
    let shape = |tasks, heeds_slot| Shape { tasks, heeds_slot, ..Shape::default() };
    for shape in [shape(2, Heeds::Yes), shape(1, Heeds::No), shape(1, Heeds::Perhaps)] {
        let mut world = World::spilling(4);
        let main = world.running("a");
        let ticket = world.enqueue_shaped(turn("a"), shape);
        world.pass(Duration::from_secs(3));
        assert!(!world.granted.contains_key(&ticket), "{shape:?}");
        world.end(&main);
        assert!(world.granted.contains_key(&ticket), "{shape:?}");
    }
}

#[test]
fn nothing_spills_beside_a_request_whose_slot_the_server_chose() {
    let mut world = World::spilling(4);
    world.turn("a");
    let unpinned = world.enqueue_shaped(turn("a"), Shape { heeds_slot: Heeds::No, ..Shape::default() });
    world.settle();
    let lease = world.granted[&unpinned].lease;
    let slot = world.land(lease);
    let next = waits(&mut world, "a");
    world.stop(slot);
    world.table.release(lease, End::Complete { usage: None, slot: None }, world.now);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.granted[&next].action, Action::Home);
}

#[test]
fn with_pin_never_a_sessions_requests_go_one_after_another() {
    let mut world = World::with(3, PinPolicy::Never, Concurrent::Spill);
    let first = world.ask(turn("a")).expect("a slot is free");
    world.land(first.lease);
    waits(&mut world, "a");
}

#[test]
fn a_session_that_has_no_home_yet_waits_for_the_request_that_may_give_it_one() {
    let mut world = World::spilling(3);
    let ticket = world.enqueue_shaped(turn("a"), Shape { heeds_slot: Heeds::No, ..Shape::default() });
    world.settle();
    let slot = world.land(world.granted[&ticket].lease);
    let next = waits(&mut world, "a");
    let tokens = world.stop(slot);
    let end = ended(tokens);
    world.table.release(world.granted[&ticket].lease, end, world.now);
    world.pass(Duration::from_secs(1));
    assert_eq!(
        (&world.granted[&next].action, world.granted[&next].launch.slot()),
        (&Action::Home, Some(slot))
    );
}

/// A server that clears idle slots, seen to do so: `a` is at work, the slots of `b` and `c` have been emptied.
fn clearing_with_one_at_work() -> (World, Grant) {
    let mut world = World::spilling(3);
    world.clears_idle = true;
    for name in ["a", "b", "c"] {
        world.turn(name);
    }
    let main = world.ask(turn("a")).expect("its slot is free");
    let slot = main.launch.slot().expect("pinned");
    world.start(slot.0 as usize, Runs::Primer(main.lease));
    world.stop(slot);
    world.table.filled(main.lease);
    world.land(main.lease);
    world.table.landed(main.lease);
    world.settle();
    (world, main)
}

#[test]
fn on_a_server_that_clears_idle_slots_an_emptied_slot_is_taken_without_a_primer() {
    let (mut world, main) = clearing_with_one_at_work();
    let side = world.ask(turn("a")).expect("the slot of b is empty");
    assert_eq!(side.action, Action::Spill(Some(session("b"))));
    let plain = Launch::Pin { slot: side.launch.slot().expect("pinned"), fill: Fill::Nothing, alone: false };
    assert_eq!(side.launch, plain, "a primer would take another session's state from the RAM cache");
    world.run(&side);
    world.end(&main);
    let (_, action, launch) = world.turn("a");
    assert_eq!(action, Action::Home);
    assert!(
        matches!(launch, Launch::Pin { fill: Fill::Nothing, .. }),
        "its slot was never emptied: {launch:?}"
    );
}

#[test]
fn on_a_server_that_clears_idle_slots_nothing_spills_while_another_session_is_warm() {
    let (mut world, main) = clearing_with_one_at_work();
    world.turn("b");
    let ticket = waits(&mut world, "a");
    world.end(&main);
    assert_eq!(world.granted[&ticket].action, Action::Home);
}

#[test]
fn on_a_server_that_clears_idle_slots_what_a_spilled_request_left_is_not_overwritten_unsaved() {
    let (mut world, main) = clearing_with_one_at_work();
    let sides = [(); 2].map(|()| world.ask(turn("a")).expect("two slots are empty"));
    for side in &sides {
        world.land(side.lease);
    }
    for side in &sides {
        world.end(side);
    }
    let third = waits(&mut world, "a");
    world.end(&main);
    assert_eq!(world.granted[&third].action, Action::Home);
}

#[test]
fn a_request_right_behind_the_first_one_the_router_has_seen_spills_once_that_has_landed() {
    for clears_idle in [true, false] {
        let mut world = World::spilling(3);
        world.clears_idle = clears_idle;
        world.turn("b");
        let main = world.ask(turn("a")).expect("a slot is free");
        let side = waits(&mut world, "a");
        // No answer has begun yet: only `/slots` shows it.
        world.land(main.lease);
        world.pass(Duration::from_secs(3));
        assert_eq!(world.granted[&side].action, Action::Spill(None), "clears_idle: {clears_idle}");
    }
}

#[test]
fn what_a_silent_server_holds_is_not_taken_for_empty() {
    let mut world = World::spilling(2);
    let hints = ["a", "b"].into_iter().zip([SlotId(0), SlotId(1)]);
    let hints = hints.map(|(name, slot)| (session(name), Some(Home { slot, left: None })));
    world.table.restore(hints, world.now);
    let main = world.running("a");
    // The turn of b fills its slot, unseen.
    let of_b = world.enqueue(turn("b"));
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Silent);
    let slot = world.land(world.granted[&of_b].lease);
    world.stop(slot);
    let end_of_b = End::Complete { usage: None, slot: None };
    world.table.release(world.granted[&of_b].lease, end_of_b, world.now);
    let side = world.enqueue(turn("a"));
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Silent);
    assert!(!world.granted.contains_key(&side));
    world.end(&main);
    assert_eq!(world.granted[&side].action, Action::Home);
}

#[test]
fn an_answer_from_before_a_turn_ended_does_not_show_its_slot_to_be_empty() {
    let (mut world, _main) = clearing_with_one_at_work();
    let of_b = world.ask(turn("b")).expect("a slot is free");
    let side = world.enqueue(turn("a"));
    let probe = world.table.probe_asked();
    let before = world.reading();
    let slot = world.land(of_b.lease);
    let tokens = world.stop(slot);
    world.table.release(of_b.lease, ended(tokens), world.now);
    world.answer(probe, before);
    assert!(!world.granted.contains_key(&side), "its start would take what b has just left");
}

#[test]
fn on_a_server_without_slots_endpoint_a_second_request_waits() {
    let mut world = World::spilling(3);
    for _ in 0..2 {
        world.enqueue(turn("a"));
        let probe = world.table.probe_asked();
        world.answer(probe, Reading::Blind(Some(3)));
    }
    assert_eq!(world.granted.len(), 1);
    let probe = world.table.probe_asked();
    let others = world.enqueue(Want::Named(2));
    world.answer(probe, Reading::Blind(Some(3)));
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Blind(Some(3)));
    assert!(world.granted.contains_key(&others), "nobody is held up by it");
}

#[test]
fn after_a_restart_of_the_router_every_session_may_just_have_been_seen() {
    let (mut world, _) = one_at_work_one_idle();
    world.stop(SlotId(0));
    world.table = SlotTable::new(Policy { concurrent: Concurrent::Spill, ..Policy::default() });
    world.granted.clear();
    let hints = ["a", "b"].into_iter().zip([SlotId(0), SlotId(1)]);
    let hints = hints.map(|(name, slot)| (session(name), Some(Home { slot, left: None })));
    world.table.restore(hints, world.now);
    world.running("a");
    waits(&mut world, "a");
    world.pass(FIVE_MINUTES + MINUTE);
    world.enqueue(turn("c"));
    world.settle();
    assert!(world.granted.values().any(|grant| grant.action == Action::Spill(Some(session("b")))));
}
