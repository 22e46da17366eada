//! Nobody starves: what may pass a waiter is bounded, in thousands of seeded schedules.

use std::collections::{HashMap, HashSet};

use super::simulation::Simulation;
use super::world::{World, turn};
use crate::random::for_each_seed;
use crate::slots::queue::Waiter;
use crate::slots::{Heeds, PinPolicy, ProbeId, Reading, Shape, Ticket, Want};

/// So many answers of `/slots` in a row may leave a waiter whose slot is free and who waits for nothing else: one that
/// was asked for before its slot became free, and one before what runs elsewhere was seen to run there.
const LOOKS: u32 = 3;

/// How often in a row each waiter was left though it could go.
#[derive(Default)]
pub(super) struct Patience(HashMap<Ticket, u32>);

impl Patience {
    /// Panics when one that could go has been left too often: it could before the answer and after it, or its slot is
    /// still free and somebody with a later turn has been granted another.
    pub(super) fn note(&mut self, before: &Waiting, after: &Waiting, granted: &[Ticket]) {
        let latest = granted.iter().filter_map(|ticket| before.turns.get(ticket)).max();
        let passed =
            |ticket: &Ticket| latest > before.turns.get(ticket) && after.home_is_free.contains(ticket);
        let left = before.could_go.iter().filter(|ticket| after.could_go.contains(ticket) || passed(ticket));
        self.0 = left.map(|ticket| (*ticket, self.0.get(ticket).copied().unwrap_or_default() + 1)).collect();
        let worst = self.0.iter().find(|(_, looks)| **looks > LOOKS);
        assert_eq!(worst, None, "its slot is free and it is left waiting");
    }
}

/// The queue at one moment.
pub(super) struct Waiting {
    turns: HashMap<Ticket, u64>,
    /// The home of their session is idle, on the server and as far as leases go, and requests need not run one at a time.
    home_is_free: HashSet<Ticket>,
    /// ... and nothing is on its way, and nobody waits for several slots.
    could_go: HashSet<Ticket>,
}

impl World {
    /// Who waits, and who of those has nothing in his way, given the answer to `probe`.
    pub(super) fn waiting(&self, probe: ProbeId, reading: &Reading) -> Waiting {
        let waiters = &self.table.waiters;
        let free = waiters.iter().filter(|waiter| self.home_is_free(waiter, probe, reading));
        let home_is_free: HashSet<Ticket> = free.map(|waiter| waiter.ticket).collect();
        Waiting {
            turns: waiters.iter().map(|waiter| (waiter.ticket, waiter.turn)).collect(),
            could_go: if self.is_quiet() { home_is_free.clone() } else { HashSet::new() },
            home_is_free,
        }
    }

    fn is_quiet(&self) -> bool {
        let landed = self.on_the_way.is_empty() && self.table.leases.values().all(|held| held.landed);
        landed && self.table.waiters.iter().all(|waiter| waiter.shape.tasks == 1)
    }

    fn home_is_free(&self, waiter: &Waiter, probe: ProbeId, reading: &Reading) -> bool {
        let (Reading::Slots(seen), Want::Session(session)) = (reading, &waiter.want) else { return false };
        let table = &self.table;
        let Some(home) = table.home_of(session).map(|slot| slot.0 as usize) else { return false };
        if table.quiet_until(self.now).is_some() {
            return false;
        }
        let room = self.server.iter().any(|slot| slot.runs.is_none()) && table.taken() < self.server.len();
        let idle = self.server[home].runs.is_none() && seen.get(home).is_some_and(|slot| !slot.processing);
        let plain = waiter.shape.heeds_slot == Heeds::Yes && table.policy.pin != PinPolicy::Never;
        let next = waiter.probe <= probe && !table.running.contains_key(session);
        room && idle && plain && next && table.slots[home].lease.is_none()
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
        let most = simulation.world.server.len() + simulation.world.table.policy.queue.overtake as usize;
        assert!(passed <= most, "{passed} have passed it");
    });
}
