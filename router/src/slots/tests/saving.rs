//! Single scenes of saved states: when they are saved, where they are restored, and what waits meanwhile.

use std::collections::HashMap;
use std::time::Duration;

use super::world::{Runs, World, ended, session, turn};
use crate::slots::{
    Action, End, Evict, Fill, Grant, Launch, PinPolicy, Policy, Reading, SlotId, Start, Want,
};
use crate::usage::Usage;
use crate::warm;

/// A server with a save path, on which even short states are worth a file.
fn saving(slots: usize) -> World {
    let warm = warm::Policy { min_tokens: 1, ..warm::Policy::default() };
    let mut world = World::under(slots, Policy { warm, evict: Evict::Lru, ..Policy::default() });
    world.warm_up();
    world
}

/// The same, on default settings.
fn saving_and_clearing(slots: usize) -> World {
    let mut world = saving(slots);
    world.clears_idle = true;
    world
}

/// The layout of its states is not known yet.
fn unmeasured(slots: usize) -> World {
    let mut world = saving(slots);
    world.table.warm().restarted();
    world.table.warm().served_by("the server");
    world
}

fn is_restored(grant: &Grant) -> bool {
    matches!(grant.launch.fill(), Fill::Restore(_))
}

#[test]
fn who_takes_a_slot_waits_until_its_owners_state_is_saved() {
    let mut world = saving(1);
    world.turn("a");
    assert!(world.ask(turn("b")).is_none(), "first a's state is saved");
    assert_eq!(world.save_all(), 1);
    world.settle();
    let ticket = *world.grants.last().expect("b is granted");
    assert!(matches!(&world.granted[&ticket].action, Action::Evict(a) if a.as_str() == "a"));
}

#[test]
fn what_a_request_without_a_session_may_overwrite_is_saved_first() {
    let mut world = saving(2);
    world.turn("a");
    let grant = world.ask(Want::Anonymous).expect("the other slot is free");
    world.run(&grant);
    world.turn("b");
    assert!(world.ask(Want::Anonymous).is_none(), "it would take a's slot or b's");
    // Nor does a further look have more of them saved.
    world.pass(Duration::from_secs(1));
    let saved = world.states.saves.iter().map(|save| save.slot).collect::<Vec<_>>();
    assert_eq!(saved, [SlotId(0)], "the server takes the one that was used least recently");
    world.save_all();
    world.settle();
    let ticket = *world.grants.last().expect("granted");
    assert_eq!(world.granted[&ticket].action, Action::Anonymous);
}

#[test]
fn an_evicted_session_starts_from_its_saved_state() {
    let mut world = saving(1);
    world.turn("a");
    world.evicting_turn("b");
    let back = world.evicting_turn("a");
    assert!(is_restored(&back), "{:?}", back.launch);
    world.finds_nothing_lost("a");
}

#[test]
fn a_state_too_short_to_be_worth_it_is_not_saved() {
    let mut world = World::under(1, Policy::default());
    world.warm_up();
    world.turn("a");
    assert!(world.ask(turn("b")).is_some(), "512 tokens are the least");
}

#[test]
fn a_save_that_fails_is_not_tried_again_and_nobody_waits_for_it() {
    let mut world = saving(1);
    world.turn("a");
    let ticket = world.enqueue(turn("b"));
    world.settle();
    let save = world.states.saves[0];
    world.save(save, true);
    world.settle();
    assert!(world.granted.contains_key(&ticket) && world.states.saves.is_empty());
}

#[test]
fn the_same_state_is_saved_once() {
    let mut world = saving(2);
    world.turn("a");
    world.table.save_all();
    world.settle();
    assert_eq!(world.save_all(), 1);
    world.turn("b");
    world.settle();
    assert!(world.ask(turn("c")).is_some(), "a's slot is taken at once: its state is in a file");
}

#[test]
fn at_the_end_every_idle_slot_is_saved_and_none_that_is_at_work() {
    let mut world = saving(3);
    world.turn("a");
    world.turn("b");
    let running = world.running("c");
    world.table.save_all();
    assert!(world.table.saving());
    world.settle();
    assert_eq!(world.states.saves.iter().map(|save| save.slot).collect::<Vec<_>>(), [SlotId(0), SlotId(1)]);
    world.save_all();
    assert!(!world.table.saving());
    world.end(&running);
}

#[test]
fn on_a_server_that_clears_idle_slots_a_state_is_saved_before_anything_else_starts() {
    let mut world = saving_and_clearing(2);
    world.knows_that_it_clears();
    let running = world.running("a");
    let waiting = world.enqueue(turn("b"));
    world.settle();
    if world.granted.contains_key(&waiting) {
        let grant = world.granted[&waiting].clone();
        world.run(&grant);
    }
    let tokens = world.stop(running.launch.slot().expect("pinned"));
    world.table.release(running.lease, ended(tokens), world.now);
    let next = world.enqueue(turn("c"));
    world.settle();
    assert!(!world.granted.contains_key(&next), "a's state is saved first");
    while world.save_all() > 0 {
        world.settle();
    }
    assert!(world.granted.contains_key(&next));
}

#[test]
fn on_a_server_that_clears_idle_slots_nothing_starts_between_a_restore_and_its_request() {
    let mut world = saving_and_clearing(2);
    world.knows_that_it_clears();
    world.turn("a");
    world.save_all();
    world.turn("b");
    world.save_all();
    let back = world.ask(turn("a")).expect("its slot is free");
    assert!(matches!(back.launch, Launch::Pin { fill: Fill::Restore(_), alone: true, .. }));
    let other = world.enqueue(turn("c"));
    world.settle();
    assert!(!world.granted.contains_key(&other));
    world.run(&back);
    world.save_all();
    world.settle();
    assert!(world.granted.contains_key(&other));
}

#[test]
fn a_session_whose_slot_is_at_work_for_somebody_else_starts_from_its_state_in_another_one() {
    let mut world = saving(2);
    let (slot, ..) = world.turn("a");
    world.table.save_all();
    world.settle();
    world.save_all();
    world.start(slot.0 as usize, Runs::Foreign);
    let back = world.ask(turn("a")).expect("the other slot is free");
    assert!(is_restored(&back) && back.launch.slot() != Some(slot));
    world.run(&back);
}

#[test]
fn after_a_restart_of_the_server_sessions_start_from_their_states() {
    let mut world = saving(2);
    world.turn("a");
    world.table.save_all();
    world.settle();
    world.save_all();
    world.restart();
    world.probe();
    world.warm_up();
    let back = world.ask(turn("a")).expect("a slot is free");
    assert!(is_restored(&back));
    world.run(&back);
    world.finds_nothing_lost("a");
}

#[test]
fn a_restart_during_a_save_leaves_nobody_waiting() {
    let mut world = saving(1);
    world.turn("a");
    let ticket = world.enqueue(turn("b"));
    world.settle();
    world.states.saves.clear();
    world.restart();
    world.probe();
    world.pass(Duration::from_secs(2));
    assert!(world.granted.contains_key(&ticket) && !world.table.saving());
}

#[test]
fn the_layout_of_states_is_measured_in_the_first_slot_that_holds_nothing_of_worth() {
    let mut world = unmeasured(2);
    let first = world.ask(turn("a")).expect("a slot is free");
    assert_eq!(first.launch.fill(), Fill::Measure);
    world.run(&first);
    world.table.warm().measured(1);
    assert_eq!(world.ask(turn("b")).expect("a slot is free").launch.fill(), Fill::Nothing);
}

#[test]
fn what_a_server_does_to_idle_slots_shows_before_its_first_turn_ends() {
    for clears in [true, false] {
        let mut world = unmeasured(2);
        world.clears_idle = clears;
        let first = world.ask(turn("a")).expect("a slot is free");
        assert_eq!(first.launch.fill(), Fill::Measure);
        world.fill(&first);
        world.land(first.lease);
        world.table.landed(first.lease);
        world.pass(Duration::from_secs(1));
        world.probe();
        assert_eq!(world.table.snapshot(world.now).clears_idle, Some(clears));
        world.end(&first);
        assert_eq!(world.save_all(), usize::from(clears), "where nothing is cleared nothing has to be saved");
    }
}

#[test]
fn what_was_cleared_before_it_could_be_saved_is_looked_for_in_the_ram_cache() {
    let mut world = unmeasured(3);
    world.clears_idle = true;
    world.turn("a");
    world.table.warm().measured(1);
    assert_eq!(world.save_all(), 1);
    for _ in 0..30 {
        world.turn("c");
        world.save_all();
        world.settle();
    }
    let again = world.running("a");
    let other = world.ask(turn("b")).expect("a slot is free");
    // In one batch a's turn ends and b's request starts, which clears what a has left.
    let tokens = world.stop(again.launch.slot().expect("pinned"));
    world.land(other.lease);
    world.table.landed(other.lease);
    world.table.release(again.lease, ended(tokens), world.now);
    world.end(&other);
    world.save_all();
    world.settle();
    let back = world.ask(turn("a")).expect("a slot is free");
    assert_eq!(back.launch.fill(), Fill::Prime, "the state in the file is an earlier one");
    let mut chance = |may_try| world.table.warm().ram_hit(&session("a"), may_try);
    assert!(chance(true) > 0.85 && chance(false) < 0.55);
}

#[test]
fn nobody_waits_for_ever_for_siblings_whose_states_are_never_saved() {
    let mut world = saving(6);
    let siblings = ["s0", "s4", "s8", "s10", "s12"];
    for name in siblings {
        world.turn(name);
    }
    world.said = Some(HashMap::new());
    let mut reads = world.running(siblings[0]);
    let new = world.enqueue(turn("s2"));
    for next in &siblings[1..] {
        world.pass(Duration::from_secs(29));
        assert!(!world.granted.contains_key(&new), "before {next}: one reads what s2 begins with");
        let following = world.running(next);
        world.end(&reads);
        world.settle();
        for save in world.states.saves.clone() {
            world.save(save, true);
        }
        reads = following;
    }
    world.pass(Duration::from_secs(29));
    assert!(world.granted.contains_key(&new));
}

#[test]
fn where_requests_run_one_at_a_time_one_that_takes_much_longer_than_others_is_not_waited_for() {
    let mut world = saving_and_clearing(3);
    for name in ["a", "b", "c", "a"] {
        world.turn(name);
        world.save_all();
        world.settle();
    }
    // As if turns took a second, and what they left had often been cleared before it could be saved.
    let usage = Usage { computed: 500, cached: 0, generated: 1, reading: None };
    let left = warm::Turn { story: None, usage: Some(usage), restored: None };
    world.table.warm().ended(&session("c"), left, world.now);
    for _ in 0..20 {
        world.table.warm().ran(&session("c"), Duration::from_secs(1), usage, 0);
        world.table.warm().seen(&session("c"), true);
    }
    let longest = world.table.warm().quiet_for().expect("too much was lost");
    world.running("b");
    let waiting = world.enqueue(turn("a"));
    world.pass(longest / 2);
    assert!(!world.granted.contains_key(&waiting), "b may be about to end");
    world.pass(longest);
    assert!(world.granted.contains_key(&waiting));
}

#[test]
fn where_no_slot_is_ever_named_nothing_is_saved() {
    let warm = warm::Policy { min_tokens: 1, ..warm::Policy::default() };
    let mut world = World::under(2, Policy { warm, pin: PinPolicy::Never, ..Policy::default() });
    world.clears_idle = true;
    world.warm_up();
    for name in ["a", "b", "a"] {
        world.turn(name);
    }
    world.table.save_all();
    world.settle();
    assert!(world.states.saves.is_empty() && !world.table.saving(), "it could not be restored");
}

#[test]
fn at_the_end_every_slot_is_saved_also_on_a_server_that_clears_idle_slots() {
    let mut world = saving_and_clearing(3);
    let grants = ["a", "b", "c"].map(|name| world.running(name));
    // They end side by side, so that none is cleared.
    for grant in &grants {
        let tokens = world.stop(grant.launch.slot().expect("pinned"));
        world.table.release(grant.lease, ended(tokens), world.now);
    }
    world.table.save_all();
    let mut saved = 0;
    while world.table.saving() {
        world.pass(Duration::from_millis(20));
        saved += world.save_all();
    }
    assert_eq!(saved, 3);
}

#[test]
fn nobody_waits_to_save_what_a_server_that_has_gone_held() {
    for reading in [Reading::Refused, Reading::Loading] {
        let mut world = saving(2);
        world.turn("a");
        let probe = world.table.probe_asked();
        world.answer(probe, reading.clone());
        world.table.save_all();
        let probe = world.table.probe_asked();
        world.answer(probe, reading);
        assert!(!world.table.saving());
    }
}

#[test]
fn a_request_to_a_server_that_loads_its_model_is_sent_though_nobody_knows_which_it_is() {
    let mut world = saving(2);
    world.turn("a");
    let probe = world.table.probe_asked();
    world.table.observe(probe, Reading::Loading, world.now);
    let ticket = world.enqueue(turn("a"));
    let probe = world.table.probe_asked();
    world.answer(probe, Reading::Loading);
    assert!(world.granted.contains_key(&ticket), "the server's 503 tells its client more than silence");
}

#[test]
fn a_save_that_breaks_off_is_not_begun_again_for_the_same_waiter() {
    let mut world = saving(1);
    world.turn("a");
    let ticket = world.enqueue(turn("b"));
    world.settle();
    let save = world.states.saves.pop().expect("a's state is being saved");
    world.table.release(save.lease, End::Broken, world.now);
    world.pass(Duration::from_secs(5));
    assert!(world.granted.contains_key(&ticket) && world.states.saves.is_empty());
}

#[test]
fn what_was_restored_on_a_server_that_has_restarted_since_is_not_started() {
    let mut world = saving(1);
    world.turn("a");
    world.evicting_turn("b");
    let ticket = world.enqueue(turn("a"));
    world.settle();
    world.save_all();
    world.settle();
    let back = world.granted[&ticket].clone();
    assert!(is_restored(&back));
    world.on_the_way.clear();
    world.restart();
    world.probe();
    assert_eq!(world.table.may_start(back.lease, world.now), Start::Never);
}

#[test]
fn a_session_whose_slot_a_request_without_a_session_has_taken_starts_from_its_state_elsewhere() {
    let mut world = saving(2);
    let (slot, ..) = world.turn("a");
    world.table.save_all();
    world.settle();
    world.save_all();
    let other = world.ask(Want::Named(slot.0.into())).expect("it is free");
    world.land(other.lease);
    world.table.landed(other.lease);
    world.settle();
    let back = world.ask(turn("a")).expect("the other slot is free");
    assert!(is_restored(&back) && back.launch.slot() != Some(slot));
}

#[test]
fn what_slots_hold_from_before_the_server_became_another_is_not_saved() {
    let mut world = saving(1);
    world.turn("a");
    world.table.distrust_slots();
    assert!(world.ask(turn("b")).is_some(), "there is nothing to save first");
}

#[test]
fn with_pinning_off_nothing_is_restored() {
    let warm = warm::Policy { min_tokens: 1, ..warm::Policy::default() };
    let mut world = World::under(1, Policy { pin: PinPolicy::Never, warm, ..Policy::default() });
    world.warm_up();
    world.turn("a");
    world.turn("b");
    assert_eq!(world.ask(turn("a")).expect("the slot is free").launch.fill(), Fill::Nothing);
}

impl World {
    /// A turn that may have to wait for a save; its grant.
    fn evicting_turn(&mut self, name: &str) -> Grant {
        let ticket = self.enqueue(turn(name));
        self.settle();
        self.save_all();
        self.settle();
        let grant = self.granted.get(&ticket).expect("it is granted once the state is saved").clone();
        self.run(&grant);
        grant
    }

    /// Something runs beside something else, so that the table sees slots cleared.
    fn knows_that_it_clears(&mut self) {
        for name in ["x", "y", "x"] {
            self.evicting_turn(name);
            self.save_all();
            self.settle();
        }
        assert_eq!(self.table.clears_idle, Some(true));
    }

    fn finds_nothing_lost(&self, name: &str) {
        let held = self.states.slots.values().filter(|content| content.session.as_str() == name);
        assert_eq!(held.count(), 1, "{name}'s state is in one slot");
    }
}
