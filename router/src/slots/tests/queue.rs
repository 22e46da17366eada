//! Single scenes of the queue: who goes first, and who finds it full.

use super::world::{World, ended, turn};
use crate::slots::{End, Grant, PinPolicy, Policy, Queue, Refusal, Shape, SlotId, Ticket, Want};

fn limited(slots: usize, max_waiting: usize, max_per_session: usize) -> World {
    let queue = Queue { max_waiting, max_per_session, ..Queue::default() };
    let mut world = World::under(slots, Policy { queue, ..Policy::default() });
    world.probe();
    world
}

fn try_turn(world: &mut World, name: &str) -> Result<Ticket, Refusal> {
    world.try_enqueue(turn(name), Shape::default())
}

/// Serves everyone on a server of one slot, beginning with `first`; the order of those that waited.
fn order_behind(world: &mut World, first: &Grant) -> Vec<Ticket> {
    world.end(first);
    let mut done = world.grants.len() - 1;
    while done < world.grants.len() {
        let grant = world.granted[&world.grants[done]].clone();
        world.land(grant.lease);
        world.table.landed(grant.lease);
        world.end(&grant);
        done += 1;
    }
    let of_first = world.grants.iter().position(|ticket| *ticket == first.ticket).expect("it was granted");
    world.grants[of_first + 1..].to_vec()
}

/// A server where a waiter may be passed so often.
fn overtaking(slots: usize, overtake: u32) -> World {
    let queue = Queue { overtake, ..Queue::default() };
    World::under(slots, Policy { queue, ..Policy::default() })
}

#[test]
fn a_session_whose_slot_holds_its_cache_passes_a_cold_one_three_times_and_no_more() {
    let mut world = overtaking(1, 3);
    let first = world.running("a");
    let cold = world.enqueue(turn("b"));
    let warm = ["a"; 5].map(|name| world.enqueue(turn(name)));
    world.settle();
    let order = order_behind(&mut world, &first);
    assert_eq!(order, [warm[0], warm[1], warm[2], cold, warm[3], warm[4]]);
}

#[test]
fn nobody_is_passed_by_a_session_whose_cache_is_gone() {
    let mut world = overtaking(2, 3);
    world.turn("a");
    let others = ["x", "y"].map(|name| world.running(name));
    let [cold, again] = ["b", "a"].map(|name| world.enqueue(turn(name)));
    world.settle();
    assert_eq!(order_behind(&mut world, &others[0])[1..], [cold, again]);
}

#[test]
fn a_session_with_many_requests_takes_turns_with_those_that_have_one() {
    let mut world = overtaking(1, 0);
    let first = world.running("x");
    let [a1, a2, a3, b1, c1] = ["a", "a", "a", "b", "c"].map(|name| world.enqueue(turn(name)));
    world.settle();
    assert_eq!(order_behind(&mut world, &first), [a1, b1, c1, a2, a3]);
}

#[test]
fn who_comes_after_a_session_has_had_its_turn_does_not_pass_its_next_request() {
    let mut world = World::new(1, PinPolicy::Auto);
    let first = world.running("x");
    let [a1, a2] = ["a", "a"].map(|name| world.enqueue(turn(name)));
    world.settle();
    world.end(&first);
    let of_a = world.granted[&a1].clone();
    let b1 = world.enqueue(turn("b"));
    world.land(of_a.lease);
    world.settle();
    assert_eq!(order_behind(&mut world, &of_a), [a2, b1]);
}

#[test]
fn requests_without_a_session_each_stand_in_a_line_of_their_own() {
    let mut world = World::new(1, PinPolicy::Auto);
    let first = world.running("x");
    let [one, two] = [0, 1].map(|_| world.enqueue(Want::Named(0)));
    let a1 = world.enqueue(turn("a"));
    world.settle();
    assert_eq!(order_behind(&mut world, &first), [one, two, a1]);
}

#[test]
fn one_more_than_may_wait_is_refused_and_told_how_many_do() {
    let mut world = limited(1, 2, 8);
    world.running("a");
    for name in ["b", "c"] {
        try_turn(&mut world, name).expect("there is room");
    }
    assert_eq!(try_turn(&mut world, "d"), Err(Refusal::Full { waiting: 2 }));
    assert_eq!(world.table.snapshot(world.now).waiting, 2, "who was refused does not wait");
}

#[test]
fn whoever_leaves_the_queue_makes_room() {
    let mut world = limited(1, 1, 8);
    world.running("a");
    let ticket = try_turn(&mut world, "b").expect("there is room");
    assert!(try_turn(&mut world, "c").is_err());
    world.table.leave(ticket);
    assert!(try_turn(&mut world, "c").is_ok());
}

#[test]
fn a_burst_that_finds_free_slots_is_not_refused_before_they_are_taken() {
    let mut world = limited(4, 1, 8);
    for name in ["a", "b", "c", "d"] {
        try_turn(&mut world, name).expect("a slot is free");
    }
    try_turn(&mut world, "e").expect("one may wait");
    assert_eq!(try_turn(&mut world, "f"), Err(Refusal::Full { waiting: 1 }));
    // On their way one after another.
    world.settle();
    assert_eq!((world.granted.len(), world.table.waiting()), (4, 1));
}

#[test]
fn one_session_cannot_fill_the_queue() {
    let mut world = limited(2, 100, 2);
    world.running("a");
    for _ in 0..2 {
        try_turn(&mut world, "a").expect("there is room");
    }
    assert_eq!(try_turn(&mut world, "a"), Err(Refusal::SessionFull { waiting: 2 }));
    assert!(try_turn(&mut world, "b").is_ok());
}

#[test]
fn a_request_for_several_slots_keeps_none_free_while_its_own_session_is_at_work() {
    let mut world = World::new(3, PinPolicy::Auto);
    world.running("a");
    let wide = world.enqueue_shaped(turn("a"), Shape { tasks: 2, ..Shape::default() });
    world.settle();
    assert!(world.ask(turn("b")).is_some(), "no slot that it keeps free would let the other one go");
    assert!(!world.granted.contains_key(&wide));
}

#[test]
fn when_a_request_for_several_slots_leaves_those_it_kept_waiting_go() {
    let mut world = World::new(2, PinPolicy::Auto);
    world.running("x");
    let wide = world.enqueue_shaped(turn("a"), Shape { tasks: 2, ..Shape::default() });
    world.settle();
    let behind = world.enqueue(turn("b"));
    world.settle();
    assert!(!world.granted.contains_key(&behind), "room is kept for the one before it");
    world.table.leave(wide);
    world.settle();
    assert!(world.granted.contains_key(&behind), "there is a free slot, and nobody before it any more");
}

#[test]
fn two_requests_for_all_slots_go_one_after_the_other() {
    let mut world = World::new(2, PinPolicy::Auto);
    let all = Shape { tasks: 2, ..Shape::default() };
    let first = world.running("x");
    let [one, two] = ["a", "b"].map(|name| world.enqueue_shaped(turn(name), all));
    world.settle();
    assert_eq!(world.granted.len(), 1);
    world.end(&first);
    for ticket in [one, two] {
        let grant = world.granted[&ticket].clone();
        let slots = [(); 2].map(|()| world.land(grant.lease));
        world.settle();
        for slot in slots {
            world.stop(slot);
        }
        world.table.release(grant.lease, End::Complete { usage: None, slot: None }, world.now);
        world.settle();
    }
    assert_eq!(world.grants[1..], [one, two]);
}

#[test]
fn changes_elsewhere_do_not_put_off_a_waiter_whose_slot_is_free() {
    let mut world = World::new(2, PinPolicy::Auto);
    let home = world.turn("a").0;
    let other = world.running("b");
    let ticket = world.enqueue(turn("a"));
    let probe = world.table.probe_asked();
    let reading = world.reading();
    // Ends between the question and its answer, as some request always does on a busy server.
    let tokens = world.stop(other.launch.slot().expect("pinned"));
    world.table.release(other.lease, ended(tokens), world.now);
    world.answer(probe, reading);
    assert_eq!(world.granted.get(&ticket).and_then(|grant| grant.launch.slot()), Some(home));
}

#[test]
fn an_answer_asked_for_before_a_request_without_a_slot_began_names_no_slot_it_may_be_in() {
    let mut world = World::new(2, PinPolicy::Auto);
    world.turn("a");
    world.turn("b");
    let free = world.ask(Want::Anonymous).expect("a slot is free");
    let ticket = world.enqueue(turn("a"));
    let probe = world.table.probe_asked();
    let before = world.reading();
    let slot = world.land(free.lease);
    assert_eq!(slot, SlotId(0), "the least recently used one is that of a");
    world.table.landed(free.lease);
    world.answer(probe, before);
    assert!(!world.granted.contains_key(&ticket), "it is at work in the slot of a");
}
