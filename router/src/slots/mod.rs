//! One server's slot table: who owns which slot, who runs in it, who waits for it. Pure: no clock, no I/O.
//!
//! The table is a state machine. It takes inputs ([`SlotTable::enqueue`], [`SlotTable::release`],
//! [`SlotTable::observe`], ...) and queues [`Output`]s that `dispatch` turns into effects. A request is granted in
//! one place only, [`SlotTable::observe`]: whatever happened before, nothing is sent until an answer of `/slots`
//! that was asked for *afterwards* (or its silence) has been taken into account.
//!
//! * `types`: the words other modules use;
//! * `slot`: what is known of one slot;
//! * `homes`: which session lives in which slot, and what it has left there;
//! * `queue`: who waits, in which order;
//! * `decide`: may this waiter go now;
//! * `place`: into which slot a session's turn goes, and what is put there first;
//! * `spill`: where a request goes whose home is busy;
//! * `saving`: when a slot's state is saved, and which requests start from a saved one;
//! * `measuring`: where the layout of states is measured;
//! * `observe`: what an answer of `/slots` changes;
//! * `direct`: work that did not come through the router;
//! * `probing`: when `/slots` has to be asked next;
//! * `invariants`: what must always hold.

mod decide;
mod direct;
mod homes;
mod invariants;
mod measuring;
mod observe;
mod place;
mod probing;
mod queue;
mod saving;
mod slot;
mod spill;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use lru::LruCache;
use session_slot_identity::SessionId;

use probing::Backoff;
use queue::Waiter;
use saving::Work;
use slot::Slot;
pub use types::*;

use crate::usage::Usage;
use crate::warm::{StateId, Story, Warm};

/// How many sessions are remembered; the least recently used one beyond that is forgotten.
pub const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::new(65_536).expect("a positive constant");

/// More slots than any server has.
const UNCOUNTED: usize = 1 << 16;

/// The slot table of one llama-server.
#[derive(Debug)]
pub struct SlotTable {
    policy: Policy,
    /// Saved states.
    warm: Warm,
    generation: Generation,
    /// One a slot. Before the server has said how many it has: as many as the restored hints speak of.
    slots: Vec<Slot>,
    /// The server has said how many slots it has.
    counted: bool,
    /// Every session known, most recently used first.
    sessions: LruCache<SessionId, Known>,
    /// Leases of this generation, in the order they were granted.
    leases: BTreeMap<u64, Held>,
    /// The leases a session runs under: one, as a session's turns go one after another, or more where they may spill.
    running: HashMap<SessionId, Vec<u64>>,
    /// In order of arrival.
    waiters: VecDeque<Waiter>,
    /// One for each ended lease whose slot never became known: answers to earlier probes may still show its task.
    departed: Vec<ProbeId>,
    /// Sessions whose last turn went to a slot of the server's choice that is not known yet.
    unplaced: Vec<Unplaced>,
    /// Whether the server empties idle slots whenever a task starts. `None` until seen.
    clears_idle: Option<bool>,
    /// Probes asked so far; the number of the latest one.
    asked: ProbeId,
    /// What the latest answer was worth.
    sight: Sight,
    /// The server has just restarted, and which one it is now has not been asked yet: states can't be used before.
    unknown: bool,
    landing_poll: Backoff,
    foreign_poll: Backoff,
    /// When foreign work is looked at although nobody waits.
    stuck_poll: Option<Instant>,
    /// Whoever waits for another request to read what both begin with has waited long enough then.
    patience_ends: Option<Instant>,
    /// The first look after which everything worth it is saved.
    save_all_from: Option<ProbeId>,
    next_lease: u64,
    next_ticket: u64,
    /// Counts arrivals, and departures that let others pass (see `queue`).
    turns: u64,
    /// Counts uses; a slot remembers the count of its latest use. Gives LRU order without a clock.
    uses: u64,
    outputs: Vec<Output>,
}

/// What is remembered of a session.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    home: Option<SlotId>,
    /// The life of the server in which it was granted a turn last. Of an earlier life nothing is left there.
    life: Generation,
    /// When a request of it last came, went or waited.
    seen: Option<Instant>,
}

/// A request that was granted and has not ended.
#[derive(Debug)]
struct Held {
    session: Option<SessionId>,
    launch: Launch,
    /// It runs beside its session's home, for this once: what it leaves is nobody's.
    spilled: bool,
    /// Where it runs: known at once for a pin; for a free launch once seen beyond doubt.
    location: Option<SlotId>,
    /// How many slots it takes.
    width: usize,
    /// Its answer had begun when this probe was asked: a slot named for it that is idle then was never heeded.
    answered: Option<ProbeId>,
    /// The newest task seen when it was granted: its own will be newer.
    after_task: Option<i64>,
    /// The server has begun with it (seen in `/slots`, or an answer has begun).
    landed: bool,
    /// Its task, once it was seen at work in the slot it is known to run in.
    task: Option<i64>,
    /// Answers to this probe and later ones show the slots it takes, once it has landed.
    shown_from: ProbeId,
    /// See [`Shape::resumable`].
    resumable: bool,
    /// Only answers to this probe and later ones can show it landed; `None` while its slot is being filled.
    landing_from: Option<ProbeId>,
    /// What the request says, as far as states are found by it.
    story: Option<Arc<Story>>,
    /// The state that was put into its slot.
    restored: Option<StateId>,
    /// A one-word prompt runs for it, or is about to.
    primes: bool,
    /// This slot is taken for it as well, while the layout of states is measured there.
    beside: Option<SlotId>,
    work: Work,
    granted_at: Instant,
    /// It has read its prompt and was seen to generate then.
    generates_since: Option<Instant>,
    phase: Phase,
}

impl Held {
    /// A request (or the table's own work) of one task that nothing is known of yet but how it is launched.
    fn new(launch: Launch, now: Instant) -> Self {
        Self {
            session: None,
            launch,
            spilled: false,
            location: None,
            width: 1,
            answered: None,
            after_task: None,
            landed: false,
            task: None,
            shown_from: ProbeId::default(),
            resumable: false,
            landing_from: None,
            story: None,
            restored: None,
            primes: false,
            beside: None,
            work: Work::Request,
            granted_at: now,
            generates_since: None,
            phase: Phase::Running,
        }
    }
}

#[derive(Debug)]
enum Phase {
    Running,
    /// The client or the server's connection is gone; llama-server may still be at work.
    Leaving {
        since: Instant,
        poll: Backoff,
        /// The request does not need its client.
        detached: bool,
        /// Only answers to this probe and later ones tell anything about it.
        probe: ProbeId,
        /// Due looks that found its slot idle.
        idle_seen: u8,
    },
}

#[derive(Debug)]
struct Unplaced {
    session: SessionId,
    /// Tokens its slot must hold now: prompt + generated - 1 (the last token sampled is never evaluated).
    tokens: u64,
    probe: ProbeId,
}

/// What the router can see of the server's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// Nothing has been heard yet.
    Unknown,
    /// `/slots` was answered.
    Clear,
    /// The latest probe has not been answered in time.
    Silent,
    /// The server has no `/slots`.
    Blind,
    /// The server is loading its model.
    Loading,
}

impl SlotTable {
    /// An empty table. The number of slots is learned from the server.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::with_session_capacity(policy, MAX_SESSIONS)
    }

    /// As [`SlotTable::new`], remembering at most `capacity` sessions.
    #[must_use]
    pub fn with_session_capacity(policy: Policy, capacity: NonZeroUsize) -> Self {
        Self {
            policy,
            warm: Warm::new(policy.warm),
            generation: Generation(1),
            slots: Vec::new(),
            counted: false,
            sessions: LruCache::new(capacity),
            leases: BTreeMap::new(),
            running: HashMap::new(),
            waiters: VecDeque::new(),
            departed: Vec::new(),
            unplaced: Vec::new(),
            clears_idle: None,
            asked: ProbeId(0),
            sight: Sight::Unknown,
            unknown: false,
            landing_poll: Backoff::landing(),
            foreign_poll: Backoff::patient(),
            stuck_poll: None,
            patience_ends: None,
            save_all_from: None,
            next_lease: 0,
            next_ticket: 0,
            turns: 0,
            uses: 0,
            outputs: Vec::new(),
        }
    }

    /// Takes over what an earlier run stored, least recently used first. Hints only: nothing is warm before
    /// `/slots` proves it. When a session was seen last is not stored, so it may just have been.
    pub fn restore(&mut self, sessions: impl IntoIterator<Item = (SessionId, Option<Home>)>, now: Instant) {
        for (session, home) in sessions {
            let slot = home.map(|home| home.slot);
            self.remember(&session, slot);
            self.mark_here(&session, now);
            if let Some(home) = home {
                self.grow_to(home.slot);
                self.give(home.slot, &session);
                self.touch(home.slot);
                self.slots[home.slot.index()].left = home.left;
            }
        }
        self.outputs.clear();
        self.check_invariants();
    }

    /// After an [`Output::Restarted`]: [`SlotTable::warm`] has been told which server this is, or nobody knows.
    pub fn introduced(&mut self) {
        if std::mem::take(&mut self.unknown) {
            self.reconsider();
            self.look_again_to_save();
        }
    }

    /// The slot of a lease with a [`Fill`] has been filled; the request itself is sent now.
    pub fn filled(&mut self, lease: LeaseId) {
        let probe = self.asked.next();
        if let Some(held) = self.held_mut(lease) {
            held.landing_from = Some(probe);
        }
    }

    /// Where a lease's request runs, as far as that has been seen or is certain.
    #[must_use]
    pub fn location(&self, lease: LeaseId) -> Option<SlotId> {
        self.leases.get(&lease.number).filter(|_| lease.generation == self.generation)?.location
    }

    /// The server has begun to answer a lease's request, so it has a slot there.
    pub fn landed(&mut self, lease: LeaseId) {
        let probe = self.asked.next();
        let Some(held) = self.held_mut(lease) else { return };
        held.answered.get_or_insert(probe);
        // Of several tasks, the first to answer says nothing of the others.
        if held.width == 1 && !std::mem::replace(&mut held.landed, true) {
            held.shown_from = probe;
            self.reconsider();
        }
    }

    /// A lease ends. Later calls for the same lease, and leases of an earlier generation, are ignored.
    pub fn release(&mut self, lease: LeaseId, end: End, now: Instant) {
        if lease.generation != self.generation {
            return;
        }
        let session = self.leases.get(&lease.number).and_then(|held| held.session.clone());
        if let Some(session) = session {
            self.mark_seen(&session, now);
        }
        self.abandon_save(lease, now);
        match end {
            End::Unsent | End::Declined => drop(self.remove_lease(lease.number)),
            // It is most likely over, so the looks begin close to each other, and without `/slots` it is taken for over.
            End::Complete { usage, .. } if self.is_resumable(lease) && self.sight != Sight::Blind => {
                if let Some(lesson) = self.leases.get(&lease.number).and_then(Held::lesson) {
                    self.learn(lesson, usage, now);
                }
                self.start_leaving(lease.number, Backoff::landing(), now);
            }
            End::Complete { usage, slot } => self.complete(lease.number, usage, slot, now),
            End::Broken => {
                if let Some(lesson) = self.leases.get(&lease.number).and_then(Held::lesson) {
                    self.learn(lesson, None, now);
                }
                self.start_leaving(lease.number, Backoff::patient(), now);
            }
        }
        self.reconsider();
        self.check_invariants();
    }

    /// What has to be done since the last call, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        let mut outputs = std::mem::take(&mut self.outputs);
        outputs.extend(self.warm.take_effects().into_iter().map(Output::Warm));
        outputs
    }

    /// Everything a person or a monitor may want to see, at this moment.
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> TableSnapshot {
        TableSnapshot {
            generation: self.generation,
            clears_idle: self.clears_idle,
            slots: (0..self.slots.len()).map(|index| self.slot_snapshot(index)).collect(),
            leases: self.leases.values().filter(|held| !held.is_save()).count(),
            waiting: self.waiters.len(),
            oldest_wait: self.waiters.front().map(|waiter| now.saturating_duration_since(waiter.since)),
            sessions: self.sessions.len(),
        }
    }

    /// One slot of [`SlotTable::snapshot`].
    #[must_use]
    pub fn slot(&self, slot: SlotId) -> Option<SlotSnapshot> {
        (slot.index() < self.slots.len()).then(|| self.slot_snapshot(slot.index()))
    }

    /// How many slots the server has, as far as it has said.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    fn slot_snapshot(&self, index: usize) -> SlotSnapshot {
        let slot = &self.slots[index];
        SlotSnapshot {
            slot: SlotId::from_index(index),
            session: slot.owner.as_ref().map(ToString::to_string),
            leased: slot.lease.is_some(),
            processing: slot.seen.processing,
            foreign: slot.stranger,
            stuck: slot.is_stuck(),
            warm: slot.is_warm(),
            tokens: slot.seen.tokens,
        }
    }

    fn held_mut(&mut self, lease: LeaseId) -> Option<&mut Held> {
        if lease.generation != self.generation {
            return None;
        }
        self.leases.get_mut(&lease.number)
    }

    /// Forgets a lease and frees its slot and its session.
    fn remove_lease(&mut self, number: u64) -> Option<Held> {
        let held = self.leases.remove(&number)?;
        let probe = self.asked.next();
        self.free_beside(held.beside);
        if held.location.is_none() && self.counted {
            self.departed.extend(std::iter::repeat_n(probe, held.width));
        }
        if let Some(slot) = held.location {
            let freed = &mut self.slots[slot.index()];
            freed.lease = None;
            freed.fresh_from = probe;
            if !held.is_save() {
                self.touch(slot);
            }
        }
        if let Some(session) = &held.session
            && let Some(running) = self.running.get_mut(session)
        {
            running.retain(|other| *other != number);
            if running.is_empty() {
                self.running.remove(session);
            }
        }
        Some(held)
    }

    fn complete(&mut self, number: u64, usage: Option<Usage>, told: Option<SlotId>, now: Instant) {
        let Some(held) = self.remove_lease(number) else { return };
        if let Some(lesson) = held.lesson() {
            self.learn(lesson, usage, now);
        }
        let Some(session) = held.session.filter(|_| !held.spilled) else { return };
        let told = told.filter(|slot| slot.index() < self.slots.len());
        match told.or(held.location) {
            Some(slot) => self.expect_left(slot, &session, held.task, now),
            None => self.unplaced.extend(usage.map(|usage| Unplaced {
                session,
                tokens: usage.held(),
                probe: self.asked.next(),
            })),
        }
    }

    /// The lease stays until `/slots` shows that the server has stopped.
    fn start_leaving(&mut self, number: u64, mut poll: Backoff, now: Instant) {
        if let Some(held) = self.leases.get_mut(&number) {
            poll.start(now);
            let (probe, detached) = (self.asked.next(), held.resumable);
            held.phase = Phase::Leaving { since: now, poll, detached, probe, idle_seen: 0 };
        }
    }

    fn is_resumable(&mut self, lease: LeaseId) -> bool {
        self.held_mut(lease).is_some_and(|held| held.resumable)
    }

    /// Slots taken by leases.
    fn taken(&self) -> usize {
        self.leases.values().map(|held| held.width).sum()
    }

    /// Slots taken by leases that are not known to be in a certain one, or that were not when they ended.
    fn hidden(&self) -> usize {
        let hidden = self.leases.values().filter(|held| held.location.is_none());
        hidden.map(|held| held.width).sum::<usize>() + self.departed.len()
    }

    /// Slots that a request takes.
    fn width(&self, waiter: &Waiter) -> usize {
        // A server that has not said how many slots it has: narrowed down once it does (see `resize`).
        let all = if self.counted { self.slots.len().max(1) } else { UNCOUNTED };
        match (&waiter.want, waiter.shape.tasks) {
            (_, 0 | 1) => 1,
            // Its first task, or each of them, names a slot: it has to find the whole server idle.
            (Want::Named(_), _) => all,
            (_, tasks) => all.min(tasks as usize),
        }
    }

    fn touch(&mut self, slot: SlotId) {
        self.uses += 1;
        self.slots[slot.index()].last_used = self.uses;
    }

    fn grow_to(&mut self, slot: SlotId) {
        if self.slots.len() <= slot.index() {
            self.slots.resize_with(slot.index() + 1, Slot::default);
        }
    }

    fn slots_seen(&self) -> Arc<str> {
        let words = self.slots.iter().enumerate().map(|(index, slot)| {
            let busy = slot.lease.is_some() || slot.seen.processing || slot.stranger;
            format!("{index}:{}", if busy { "busy" } else { "idle" })
        });
        words.collect::<Vec<_>>().join(" ").into()
    }

    #[cfg(test)]
    fn is_leaving(&self, lease: LeaseId) -> bool {
        let held = self.leases.get(&lease.number).filter(|_| lease.generation == self.generation);
        held.is_some_and(|held| matches!(held.phase, Phase::Leaving { .. }))
    }
}
