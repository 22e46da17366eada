//! Single scenes of work past the router: overwritten slots, standstills, and requests that outlive their clients.

use std::time::Duration;

use super::world::{Runs, World, ended, turn};
use crate::slots::{
    Action, Concurrent, Due, End, Grant, Home, Mark, PinPolicy, Policy, Reading, Shape, SlotId, SlotTable,
    Want,
};

const MINUTE: Duration = Duration::from_secs(60);

fn resumable() -> Shape {
    Shape { resumable: true, ..Shape::default() }
}

/// A resumable turn that is at work.
fn resumable_turn(world: &mut World, name: &str) -> Grant {
    let ticket = world.enqueue_shaped(turn(name), resumable());
    world.settle();
    let grant = world.granted[&ticket].clone();
    world.land(grant.lease);
    world.table.landed(grant.lease);
    world.settle();
    grant
}

#[test]
fn a_sessions_slot_taken_by_direct_traffic_is_noticed_once_and_the_session_is_cold() {
    let mut world = World::new(2, PinPolicy::Auto);
    let (home, ..) = world.turn("a");
    for _ in 0..2 {
        world.start(home.0 as usize, Runs::Foreign);
        world.probe();
        world.stop(home);
        world.probe();
    }
    assert_eq!(world.overwritten, [("a".to_owned(), home)]);
    assert!(!world.table.snapshot(world.now).slots[home.0 as usize].warm);
    let (again, action, _) = world.turn("a");
    assert_eq!((again, action), (home, Action::Home));
    world.start(home.0 as usize, Runs::Foreign);
    world.probe();
    assert_eq!(world.overwritten.len(), 2, "what the next turn left can be lost again");
}

#[test]
fn what_the_routers_own_requests_do_to_a_sessions_slot_is_no_direct_traffic() {
    let mut world = World::new(2, PinPolicy::Auto);
    let (home, ..) = world.turn("a");
    world.turn("b");
    for want in [Want::Named(0), Want::Anonymous, turn("c"), turn("a")] {
        let grant = world.ask(want).expect("a slot is free");
        world.run(&grant);
        world.probe();
    }
    let gone = world.ask(turn("a")).expect("its slot is free");
    world.land(gone.lease);
    world.table.release(gone.lease, End::Broken, world.now);
    world.stop(home);
    world.pass(MINUTE);
    assert_eq!(world.overwritten, []);
}

#[test]
fn what_happened_while_the_router_was_down_is_not_called_overwritten() {
    let mut world = World::new(1, PinPolicy::Auto);
    let (home, ..) = world.turn("a");
    world.table = SlotTable::new(Policy::default());
    let left = Some(Mark { id_task: 1, tokens: 7 });
    let hint = Home { slot: home, left };
    world.table.restore([(super::world::session("a"), Some(hint))], world.now);
    world.probe();
    world.probe();
    assert_eq!(world.overwritten, []);
}

fn at_work_past_the_router(stuck: Option<Duration>) -> World {
    let mut world = World::under(2, Policy { stuck, ..Policy::default() });
    world.start(1, Runs::Foreign);
    world.probe();
    world
}

fn shown_as_stuck(world: &World) -> bool {
    world.table.snapshot(world.now).slots[1].stuck
}

#[test]
fn foreign_work_without_progress_is_reported_once_when_the_time_is_over() {
    let mut world = at_work_past_the_router(Some(10 * MINUTE));
    world.pass(9 * MINUTE);
    assert_eq!((world.stuck.len(), shown_as_stuck(&world)), (0, false));
    world.pass(20 * MINUTE);
    assert_eq!((world.stuck.as_slice(), shown_as_stuck(&world)), ([SlotId(1)].as_slice(), true));
}

#[test]
fn progress_of_whatever_kind_begins_the_time_anew() {
    let mut world = at_work_past_the_router(Some(10 * MINUTE));
    for step in 0..10 {
        world.pass(6 * MINUTE);
        let seen = &mut world.server[1].seen;
        match step % 3 {
            0 => seen.progress.read = Some(step),
            1 => seen.progress.generated = Some(step),
            _ => seen.tokens = Some(1000 + step),
        }
    }
    assert_eq!(world.stuck, []);
    world.pass(11 * MINUTE);
    assert!(shown_as_stuck(&world));
    world.server[1].seen.progress.generated = Some(99);
    world.pass(MINUTE);
    assert!(!shown_as_stuck(&world), "it goes on");
}

#[test]
fn a_long_answer_of_the_routers_own_is_never_stuck() {
    let mut world = World::new(2, PinPolicy::Auto);
    for want in [turn("a"), Want::Anonymous] {
        let grant = world.ask(want).expect("a slot is free");
        world.land(grant.lease);
        world.settle();
        world.pass(MINUTE);
    }
    for _ in 0..60 {
        world.pass(MINUTE);
        world.probe();
    }
    assert_eq!(world.stuck, []);
}

#[test]
fn foreign_work_nobody_waits_for_is_looked_at_twice_a_minute_and_not_at_all_without_a_limit() {
    for (stuck, expected) in [(Some(10 * MINUTE), 18..=20), (None, 0..=0)] {
        let mut world = at_work_past_the_router(stuck);
        let before = world.table.asked.0;
        world.pass(10 * MINUTE);
        let looks = world.table.asked.0 - before;
        assert!(expected.contains(&looks), "{looks} looks in 10 minutes");
    }
}

#[test]
fn a_server_that_is_silent_or_hides_its_slots_is_not_looked_at_in_a_tight_loop() {
    let mut world = at_work_past_the_router(Some(10 * MINUTE));
    world.now += MINUTE;
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Silent);
    assert!(matches!(world.table.next_probe(), Some(Due::At(at)) if at > world.now));
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Blind(Some(2)));
    assert_eq!(world.table.next_probe(), None);
}

#[test]
fn a_resumable_request_keeps_its_slot_however_long_it_outlives_its_client() {
    for end in [End::Broken, ended(7)] {
        let mut world = World::new(1, PinPolicy::Auto);
        let grant = resumable_turn(&mut world, "a");
        world.table.release(grant.lease, end, world.now);
        let next = world.enqueue(turn("a"));
        world.pass(20 * MINUTE);
        assert!(!world.granted.contains_key(&next), "{end:?}: llama-server is still at work in the slot");
        world.stop(SlotId(0));
        world.pass(Duration::from_secs(2));
        assert_eq!(world.granted[&next].action, Action::Home, "{end:?}");
    }
}

#[test]
fn a_resumable_request_that_has_really_ended_frees_its_slot_at_once_and_leaves_it_warm() {
    let mut world = World::new(1, PinPolicy::Auto);
    let grant = resumable_turn(&mut world, "a");
    let tokens = world.stop(SlotId(0));
    world.table.release(grant.lease, ended(tokens), world.now);
    let next = world.enqueue(turn("a"));
    world.pass(Duration::from_millis(5));
    assert!(world.granted.contains_key(&next));
    assert!(world.table.snapshot(world.now).slots[0].warm);
}

#[test]
fn one_that_was_never_sent_or_was_refused_frees_its_slot_though_it_could_have_been_resumed() {
    for end in [End::Unsent, End::Declined] {
        let mut world = World::new(1, PinPolicy::Auto);
        let ticket = world.enqueue_shaped(turn("a"), resumable());
        world.settle();
        world.table.release(world.granted[&ticket].lease, end, world.now);
        assert!(world.ask(turn("b")).is_some());
    }
}

#[test]
fn without_slots_to_look_at_a_resumable_request_is_given_longer_than_others() {
    let mut world = World::new(1, PinPolicy::Auto);
    let look = |world: &mut World| {
        let probe = world.table.probe_asked();
        world.answer(probe, Reading::Blind(Some(1)));
    };
    let ticket = world.enqueue_shaped(turn("a"), resumable());
    look(&mut world);
    world.table.release(world.granted[&ticket].lease, End::Broken, world.now);
    let next = world.enqueue(turn("b"));
    for (minutes, granted) in [(5, false), (6, true)] {
        world.now += minutes * MINUTE;
        look(&mut world);
        look(&mut world);
        assert_eq!(world.granted.contains_key(&next), granted);
    }
}

#[test]
fn without_slots_to_look_at_a_resumable_request_whose_answer_has_ended_is_over() {
    let mut world = World::new(1, PinPolicy::Auto);
    let tickets = ["a", "b"].map(|name| {
        let ticket = world.enqueue_shaped(turn(name), resumable());
        let probe = world.table.probe_asked();
        world.answer(probe, Reading::Blind(Some(1)));
        let lease = world.granted[&ticket].lease;
        world.table.release(lease, End::Complete { usage: None, slot: None }, world.now);
        ticket
    });
    assert_eq!(world.grants, tickets);
}

#[test]
fn a_request_beside_one_that_outlives_its_client_may_spill() {
    let mut world = World::with(3, PinPolicy::Auto, Concurrent::Spill);
    world.turn("a");
    let grant = resumable_turn(&mut world, "a");
    world.table.release(grant.lease, End::Broken, world.now);
    assert_eq!(world.ask(turn("a")).expect("two slots are free").action, Action::Spill(None));
}
