//! Nobody starves: what may pass a waiter is bounded, in thousands of seeded schedules.

use std::collections::HashMap;

use super::simulation::{Simulation, for_each_seed};
use super::world::{World, turn};
use crate::slots::{Grant, Heeds, PinPolicy, ProbeId, Reading, Shape, Ticket, Want};

/// So many answers of `/slots` in a row may leave a waiter whose slot is free and who waits for nothing else: one that
/// was asked for before its slot became free, and one before what runs elsewhere was seen to run there.
const LOOKS: u32 = 3;

/// How often in a row each waiter was left though it could go.
#[derive(Default)]
pub(super) struct Patience(HashMap<Ticket, u32>);

impl Patience {
    /// Panics when one of those that could go has been left waiting too often.
    pub(super) fn note(&mut self, could_go: Vec<Ticket>, granted: &HashMap<Ticket, Grant>) {
        let left = could_go.into_iter().filter(|ticket| !granted.contains_key(ticket));
        self.0 = left.map(|ticket| (ticket, self.0.get(&ticket).copied().unwrap_or_default() + 1)).collect();
        let worst = self.0.iter().find(|(_, looks)| **looks > LOOKS);
        assert_eq!(worst, None, "its slot is free and it is left waiting");
    }
}

impl World {
    /// Waiters with nothing in their way: their session's home is idle, on the server and as far as leases go, nothing is
    /// on its way, and nobody waits for several slots.
    pub(super) fn could_go_now(&self, probe: ProbeId, reading: &Reading) -> Vec<Ticket> {
        let Reading::Slots(seen) = reading else { return Vec::new() };
        let table = &self.table;
        let room = self.server.iter().filter(|slot| slot.runs.is_none()).count();
        let quiet = self.on_the_way.is_empty() && table.leases.values().all(|held| held.landed);
        let taken: usize = table.leases.values().map(|held| held.width).sum();
        let wide = table.waiters.iter().any(|waiter| waiter.shape.tasks > 1);
        let never = table.policy.pin == PinPolicy::Never;
        if !quiet || wide || never || room == 0 || taken >= self.server.len() {
            return Vec::new();
        }
        let free = |waiter: &&crate::slots::queue::Waiter| {
            let Want::Session(session) = &waiter.want else { return false };
            let Some(home) = table.home_of(session) else { return false };
            let home = home.0 as usize;
            let idle = self.server[home].runs.is_none() && !seen.get(home).is_none_or(|slot| slot.processing);
            let plain = waiter.shape.heeds_slot == Heeds::Yes && waiter.probe <= probe;
            idle && plain && table.slots[home].lease.is_none() && !table.running.contains_key(session)
        };
        table.waiters.iter().filter(free).map(|waiter| waiter.ticket).collect()
    }
}

/// What the one waits for that all the others might pass.
fn wanted(simulation: &mut Simulation) -> (Want, Shape) {
    let slots = simulation.world.server.len() as u32;
    match simulation.below(4) {
        0 => (turn("w"), Shape::default()),
        1 => (Want::Anonymous, Shape::default()),
        2 => (turn("w"), Shape { tasks: 1 + slots / 2, ..Shape::default() }),
        _ => (Want::Anonymous, Shape { tasks: slots, ..Shape::default() }),
    }
}

#[test]
fn a_steady_trickle_of_others_passes_nobody_who_waits_for_a_slot_of_his_own_or_for_several() {
    for_each_seed(|seed| {
        let mut simulation = Simulation::new(seed);
        simulation.foreign = false;
        (0..100).for_each(|_| simulation.step(true));
        let (want, shape) = wanted(&mut simulation);
        let Ok(ticket) = simulation.world.try_enqueue(want, shape) else { return };
        let before = simulation.world.grants.len();
        for _ in 0..20_000 {
            if simulation.world.granted.contains_key(&ticket) {
                break;
            }
            // It is not in the simulation's list, so it never leaves.
            simulation.step(true);
        }
        let later = simulation.world.grants[before..].iter().take_while(|other| **other != ticket);
        let passed = later.filter(|other| **other > ticket).count();
        assert!(
            simulation.world.granted.contains_key(&ticket),
            "it waits for ever: {:#?}",
            simulation.world.table
        );
        assert!(passed <= simulation.world.server.len(), "{passed} have passed it");
    });
}
