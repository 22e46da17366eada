//! Thousands of seeded random schedules: arrivals, landings, ends, clients that leave at every stage, requests that
//! outlive them, a full queue, late and missing answers, restarts of the server.
//!
//! The model in `world` panics when a request names a busy slot; this file checks the rest: nothing is granted
//! twice, no save or restore meets a busy slot or the wrong session's state, a session runs one turn at a time unless it may spill, no spilled request harms a session, a primed slot is still filled when its request lands, and everyone is
//! served once the arrivals stop. Who has left the queue is granted nothing, and no longer queue comes about than allowed.
//! A failure prints its seed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::world::{Runs, World, ended, turn};
use crate::random::{Random, for_each_seed};
use crate::slots::{
    Concurrent, Due, End, Evict, Fill, Generation, Grant, Heeds, Launch, LeaseId, PinPolicy, Policy, ProbeId,
    Queue, Reading, Refusal, Shape, SlotId, Start, Ticket, Want,
};
use crate::warm::{self, SaveError, StateId};

/// A probe under way: asked, then read by the server, then delivered.
enum Probe {
    None,
    Asked(ProbeId),
    Read(ProbeId, Reading),
}

pub(super) struct Simulation {
    pub(super) world: World,
    /// There is work past the router.
    pub(super) foreign: bool,
    /// Who has left the queue.
    left: HashSet<Ticket>,
    /// Requests that may go on without their client.
    resumable: HashSet<Ticket>,
    random: Random,
    sessions: usize,
    /// There are no requests but those of sessions, of one task each, whose clients stay to the end.
    siblings: bool,
    probe: Probe,
    waiting: Vec<Ticket>,
    /// Granted requests whose client is still there, in whatever stage.
    live: Vec<Grant>,
    /// Leases whose slot is being or has been primed, with whether the primer has ended.
    priming: Vec<LeaseId>,
    /// Leases whose state has been restored, or could not be.
    restoring: HashSet<LeaseId>,
    /// Leases whose state could not be restored.
    unrestored: HashSet<LeaseId>,
    /// Leases whose request has been sent after a restore or a measurement.
    started: HashSet<LeaseId>,
    /// Leases for which the layout is being measured in this slot, or has been.
    measuring: HashMap<LeaseId, Option<SlotId>>,
    running: HashSet<LeaseId>,
    /// Leases that a restart of the server has ended, and whose end has not been heard of yet.
    void: Vec<LeaseId>,
    /// In this life of the server that the table knows the server has died.
    died_in: Option<Generation>,
}

impl Simulation {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut pin =
            [PinPolicy::Auto, PinPolicy::Auto, PinPolicy::Always, PinPolicy::Never][random.below(4)];
        let concurrent = [Concurrent::Wait, Concurrent::Spill][random.below(2)];
        let queue = Queue {
            max_waiting: [256, 256, 3, 1][random.below(4)],
            max_per_session: [8, 8, 1][random.below(3)],
            ..Queue::default()
        };
        let evict = [Evict::Lru, Evict::Cost][random.below(2)];
        let mut warm = warm::Policy { min_tokens: [1, 1, 130][random.below(3)], ..warm::Policy::default() };
        // Many sessions of two agents, whose states are mostly too short for files, and nothing else.
        let siblings = random.below(6) == 0;
        if siblings {
            (warm.min_tokens, pin) = ([130, 200][random.below(2)], PinPolicy::Auto);
        }
        let policy = Policy { pin, concurrent, queue, evict, warm, ..Policy::default() };
        let mut world = World::under(1 + random.below(5), policy);
        world.clears_idle = random.below(2) == 0 || siblings;
        world.measures = random.below(2) == 0;
        if random.below(2) == 0 || siblings {
            world.warm_up();
        }
        world.said = (random.below(2) == 0 || siblings).then(HashMap::new);
        let sessions = if siblings { 40 } else { [7, 7, 25][random.below(3)] };
        Self {
            world,
            foreign: true,
            left: HashSet::new(),
            resumable: HashSet::new(),
            random,
            sessions,
            siblings,
            probe: Probe::None,
            waiting: Vec::new(),
            live: Vec::new(),
            priming: Vec::new(),
            restoring: HashSet::new(),
            unrestored: HashSet::new(),
            started: HashSet::new(),
            measuring: HashMap::new(),
            running: HashSet::new(),
            void: Vec::new(),
            died_in: None,
        }
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound)
    }

    pub(super) fn step(&mut self, arrivals: bool) {
        // Now and then everybody thinks for long, so that sessions come to be old.
        let minutes = if self.random.below(60) == 0 { self.random.below(8) as u64 } else { 0 };
        self.world.now += Duration::from_millis(self.random.below(40) as u64 + minutes * 60_000);
        match self.random.below(10) {
            0 | 1 if arrivals => self.arrive(),
            2 => self.leave_while_waiting(arrivals),
            3 if !self.siblings => self.leave_while_running(arrivals),
            4 | 5 => self.advance_one(),
            6 => self.end_one(),
            9 if self.random.below(4) == 0 => self.begin_answer(),
            7 if self.random.below(40) == 0 => self.restart(arrivals),
            7 if !self.void.is_empty() => self.end_late(),
            7 => self.foreign(arrivals),
            _ => self.probe_on(),
        }
        self.take_grants();
    }

    fn arrive(&mut self) {
        let want = match self.random.below(8) {
            0 if !self.siblings => Want::Anonymous,
            1 if !self.siblings => Want::Named(self.random.below(9) as i64 - 3),
            _ => turn(&format!("s{}", self.random.below(self.sessions))),
        };
        let tasks =
            if self.random.below(6) == 0 && !self.siblings { 2 + self.random.below(3) as u32 } else { 1 };
        let heeds = [Heeds::Yes, Heeds::Yes, Heeds::Yes, Heeds::Yes, Heeds::Perhaps, Heeds::No];
        let resumable = self.random.below(6) == 0;
        let shape = Shape { tasks, heeds_slot: heeds[self.random.below(6)], resumable };
        let Queue { max_waiting, max_per_session, .. } = self.world.table.policy.queue;
        match self.world.try_enqueue(want, shape) {
            Ok(ticket) => {
                let counted = self.world.table.counted;
                assert!(!counted || self.world.table.waiting() <= max_waiting + self.world.server.len());
                self.waiting.push(ticket);
                self.resumable.extend(resumable.then_some(ticket));
            }
            Err(Refusal::Full { waiting }) => {
                assert!((max_waiting..=self.waiting.len() + 1).contains(&waiting))
            }
            Err(Refusal::SessionFull { waiting }) => assert!(waiting >= max_per_session),
            Err(why) => panic!("{why:?}"),
        }
    }

    fn leave_while_waiting(&mut self, arrivals: bool) {
        if let Some(ticket) = self.random.pick(&self.waiting).filter(|_| arrivals) {
            self.world.table.leave(ticket);
            self.left.insert(ticket);
            self.waiting.retain(|other| *other != ticket);
        }
    }

    /// The client of a request goes; the server stops its work at some later step, or it never gets there.
    fn leave_while_running(&mut self, arrivals: bool) {
        if self.live.is_empty() || !arrivals || self.random.below(3) > 0 {
            return;
        }
        let grant = self.live.swap_remove(self.random.below(self.live.len()));
        let end = self.early_end(&grant);
        self.world.table.release(grant.lease, end, self.world.now);
        self.priming.retain(|lease| *lease != grant.lease);
        self.world.on_the_way.retain(|(lease, _)| *lease != grant.lease);
    }

    fn early_end(&mut self, grant: &Grant) -> End {
        let begun = self.running.contains(&grant.lease);
        match self.random.below(4) {
            // Before anything was sent, or the server wants nothing of it.
            0 if !begun && !self.priming.contains(&grant.lease) => End::Unsent,
            1 if !begun && !self.priming.contains(&grant.lease) => End::Declined,
            // It looks as if it were over.
            2 if begun && self.resumable.contains(&grant.ticket) => End::Complete { usage: None, slot: None },
            _ => End::Broken,
        }
    }

    /// The server carries out a save, or fails to.
    fn save_one(&mut self) {
        let saves = self.world.states.saves.clone();
        if let Some(save) = self.random.pick(&saves) {
            let fails = self.is_unnoticed() || self.random.below(8) == 0;
            self.world.save(save, fails);
        }
    }

    /// A request whose slot is filled with a saved state gets one stage further.
    fn advance_restored(&mut self, grant: &Grant, state: StateId) {
        if self.restoring.contains(&grant.lease) {
            if !self.may_start(grant.lease) {
                return;
            }
            if !self.unrestored.contains(&grant.lease) {
                self.world.finds_what_was_restored(grant, state);
            }
            return self.start(grant.lease);
        }
        self.priming.push(grant.lease);
        self.restoring.insert(grant.lease);
        if !self.world.table.warm().is_measured() {
            self.unrestored.insert(grant.lease);
            return;
        }
        let fails = self.random.below(8) == 0;
        self.world.restore(grant, state, fails);
        self.unrestored.extend(fails.then_some(grant.lease));
    }

    /// The request of a slot that has been filled was sent in an earlier step; else it is in this one, if it may be.
    fn may_start(&mut self, lease: LeaseId) -> bool {
        if self.started.contains(&lease) {
            return true;
        }
        if self.world.table.may_start(lease, self.world.now) == Start::Now {
            self.started.insert(lease);
        }
        false
    }

    /// The measurement of the layout gets one stage further. False: there is none, or not any more.
    fn measure(&mut self, lease: LeaseId, fill: Fill) -> bool {
        match self.measuring.get(&lease).copied() {
            None if fill != Fill::Measure
                && self.world.table.warm().needs_measure()
                && self.world.table.may_measure(lease, self.world.now) == Start::Later =>
            {
                true
            }
            None if fill == Fill::Measure || self.world.table.warm().needs_measure() => {
                let slot = self.world.table.slot_to_measure(lease).expect("it is pinned");
                self.priming.push(lease);
                self.measuring.insert(lease, Some(slot));
                self.world.start(slot.0 as usize, Runs::Primer(lease));
                true
            }
            Some(Some(slot)) => {
                self.world.stop(slot);
                let warm = self.world.table.warm();
                if self.random.below(4) == 0 {
                    warm.unmeasured(SaveError::Failed)
                } else {
                    warm.measured(1)
                }
                self.world.table.measured(lease, self.world.now);
                self.measuring.insert(lease, None);
                true
            }
            _ => false,
        }
    }

    /// Something on its way gets one stage further.
    fn advance_one(&mut self) {
        self.save_one();
        let on_the_way = self.world.on_the_way.clone();
        let Some((lease, launch)) = self.random.pick(&on_the_way) else { return };
        let grant = self.live.iter().find(|grant| grant.lease == lease).cloned();
        match launch {
            Launch::Pin { fill: Fill::Measure | Fill::Restore(_), .. }
                if self.measure(lease, launch.fill()) => {}
            Launch::Pin { fill: Fill::Measure, .. } if self.may_start(lease) => self.start(lease),
            Launch::Pin { fill: Fill::Measure, .. } => {}
            Launch::Pin { fill: Fill::Restore(state), .. } => {
                self.advance_restored(&grant.expect("its client is there"), state);
            }
            Launch::Pin { slot, fill: Fill::Prime, .. } if !self.priming.contains(&lease) => {
                self.priming.push(lease);
                self.world.start(slot.0 as usize, Runs::Primer(lease));
            }
            Launch::Pin { slot, fill: Fill::Prime, .. } if self.runs(slot) == Some(Runs::Primer(lease)) => {
                self.world.stop(slot);
                self.world.table.filled(lease);
            }
            Launch::Pin { slot, fill: Fill::Prime, .. } => {
                let tokens = self.world.server[slot.0 as usize].seen.tokens;
                assert_ne!(tokens, Some(0), "the primed slot was emptied again before its request got there");
                self.start(lease);
            }
            _ => self.start(lease),
        }
    }

    fn start(&mut self, lease: LeaseId) {
        self.world.land(lease);
        self.running.insert(lease);
    }

    fn runs(&self, slot: SlotId) -> Option<Runs> {
        self.world.server[slot.0 as usize].runs
    }

    /// The first bytes of an answer reach the router.
    fn begin_answer(&mut self) {
        let answering: Vec<LeaseId> =
            self.live.iter().map(|grant| grant.lease).filter(|lease| self.running.contains(lease)).collect();
        if let Some(lease) = self.random.pick(&answering) {
            self.world.table.landed(lease);
        }
    }

    /// The server ends the work in one slot; the router hears of it if the client is still there.
    fn end_one(&mut self) {
        let slot = SlotId(self.random.below(self.world.server.len()) as u32);
        match self.runs(slot) {
            Some(Runs::Foreign) => drop(self.world.stop(slot)),
            Some(Runs::Lease(lease)) => {
                let tokens = self.world.stop(slot);
                let elsewhere = self.world.server.iter().any(|slot| slot.runs == Some(Runs::Lease(lease)));
                if elsewhere || self.world.on_the_way.iter().any(|(other, _)| *other == lease) {
                    return;
                }
                self.running.remove(&lease);
                self.live.retain(|grant| grant.lease != lease);
                let end = ended(tokens);
                if !self.world.table.is_leaving(lease) {
                    let left = self.world.states.slots.get(&(slot.0 as usize));
                    self.world.states.told.extend(left.map(|content| content.task));
                    self.world.table.release(lease, end, self.world.now);
                }
            }
            Some(Runs::Primer(lease)) if !self.priming.contains(&lease) => drop(self.world.stop(slot)),
            _ => {}
        }
    }

    /// Direct traffic, but only while no answer is under way: what it then races with can't be seen by anybody.
    fn foreign(&mut self, arrivals: bool) {
        let quiet = self.foreign
            && !self.is_unnoticed()
            && matches!(self.probe, Probe::None)
            && self.world.states.saves.is_empty()
            && self.world.on_the_way.is_empty();
        if let Some(slot) = self.world.free_choice().filter(|_| quiet && arrivals && !self.world.clears_idle)
        {
            self.world.start(slot, Runs::Foreign);
        }
    }

    /// Only while nothing is under way: a request that reaches the new server before the table has noticed it is lost to
    /// the table.
    fn restart(&mut self, arrivals: bool) {
        let quiet = matches!(self.probe, Probe::None) && self.world.on_the_way.is_empty();
        let used = self.world.server.iter().any(|slot| slot.seen.id_task.is_some());
        if quiet && used && arrivals {
            self.world.restart();
            self.died_in = Some(self.world.table.generation);
            self.void.extend(self.live.drain(..).map(|grant| grant.lease));
            self.priming.clear();
            self.running.clear();
            self.world.fail_saves();
        }
    }

    /// A lease that a restart has ended is released: once the restart has been noticed that moves nothing.
    fn end_late(&mut self) {
        let lease = self.void.swap_remove(self.random.below(self.void.len()));
        if self.is_unnoticed() {
            // All that is seen of it so far is that the connection is gone.
            return self.world.table.release(lease, End::Broken, self.world.now);
        }
        let before = format!("{:?}", self.world.table.snapshot(self.world.now));
        let ends = [End::Unsent, End::Declined, End::Broken, ended(7)];
        self.world.table.landed(lease);
        self.world.table.release(lease, ends[self.random.below(4)], self.world.now);
        assert_eq!(format!("{:?}", self.world.table.snapshot(self.world.now)), before);
    }

    fn is_unnoticed(&self) -> bool {
        self.died_in == Some(self.world.table.generation)
    }

    fn probe_on(&mut self) {
        self.probe = match std::mem::replace(&mut self.probe, Probe::None) {
            Probe::None => match self.world.table.next_probe() {
                Some(Due::At(at)) if at > self.world.now => Probe::None,
                Some(_) => Probe::Asked(self.world.table.probe_asked()),
                None => Probe::None,
            },
            Probe::Asked(probe) if self.goes_silent() => {
                // Whoever has come meanwhile is decided about without the server.
                let drawn = self.world.table.probe_asked();
                self.world.answer(drawn, Reading::Silent);
                Probe::Asked(probe)
            }
            Probe::Read(probe, reading) if self.goes_silent() => {
                let drawn = self.world.table.probe_asked();
                self.world.answer(drawn, Reading::Silent);
                Probe::Read(probe, reading)
            }
            Probe::Asked(probe) => Probe::Read(probe, self.world.reading()),
            Probe::Read(probe, reading) => {
                self.world.answer(probe, reading);
                Probe::None
            }
        };
    }

    /// Not while there is work past the router, whose slot might be named, nor before the server has said how many slots
    /// it has: neither can be helped.
    fn goes_silent(&mut self) -> bool {
        if self.is_unnoticed() {
            return false;
        }
        let alone =
            self.world.table.counted && self.world.server.iter().all(|slot| slot.runs != Some(Runs::Foreign));
        alone && self.random.below(5) == 0 && self.world.table.next_probe() == Some(Due::Now)
    }

    fn take_grants(&mut self) {
        assert!(
            self.left.iter().all(|ticket| !self.world.granted.contains_key(ticket)),
            "who has left was granted"
        );
        let granted: Vec<Ticket> =
            self.waiting.iter().copied().filter(|ticket| self.world.granted.contains_key(ticket)).collect();
        self.waiting.retain(|ticket| !granted.contains(ticket));
        self.live.extend(granted.iter().map(|ticket| self.world.granted[ticket].clone()));
    }

    fn finish(&mut self, seed: u64) {
        for _ in 0..60_000 {
            if self.waiting.is_empty() && self.live.is_empty() && !self.world.table.saving() {
                return;
            }
            self.step(false);
        }
        panic!("seed {seed}: {} still wait: {:#?}", self.waiting.len(), self.world.table);
    }
}

#[test]
fn random_schedules_never_name_a_busy_slot_and_serve_everyone() {
    for_each_seed(|seed| {
        let mut simulation = Simulation::new(seed);
        (0..300).for_each(|_| simulation.step(true));
        simulation.finish(seed);
    });
}
