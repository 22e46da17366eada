//! Who waits: how many may, and in which order they are looked at.
//!
//! Each session has a line of its own, and a request without a session is a line by itself. The heads of the lines are
//! looked at in the order in which they became heads, then those with one request of their session before them, and so
//! on. A head is thus passed by nobody who came later, and a session with many requests takes turns with those that
//! have one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use session_slot_identity::SessionId;

use super::decide::Target;
use super::types::{Output, ProbeId, Refusal, Shape, Ticket, Want};
use super::{Sight, SlotTable};
use crate::warm::Story;

/// A request that has not been granted yet.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) want: Want,
    pub(super) shape: Shape,
    /// What it says, as far as states are found by it.
    pub(super) story: Option<Arc<Story>>,
    pub(super) since: Instant,
    /// The first probe whose answer may decide about it: one asked after it arrived.
    pub(super) probe: ProbeId,
    /// Something may let it go since: an answer to this probe or a later one is wanted. Earlier answers still count,
    /// or a trickle of changes elsewhere would hold it up for ever.
    pub(super) news: ProbeId,
    /// Its place among the heads: when it came, or when a request of its session before it went.
    pub(super) turn: u64,
    /// How many that came later have passed it, as their slots held their caches.
    pub(super) overtaken: u32,
    /// It could not be granted at once.
    pub(super) waited: bool,
    /// The save that was begun for it last.
    pub(super) saving: Option<u64>,
}

impl SlotTable {
    /// A request arrives; `story` is what it says, for sessions. It is granted, refused or kept waiting by a later
    /// [`SlotTable::observe`].
    ///
    /// # Errors
    /// When too many wait already.
    pub fn enqueue(
        &mut self,
        want: Want,
        shape: Shape,
        story: Option<Arc<Story>>,
        now: Instant,
    ) -> Result<Ticket, Refusal> {
        if let Some(session) = want.session() {
            self.mark_seen(session, now);
            self.warm.arrived(session, now);
        }
        let probe = self.asked.next();
        let ticket = Ticket(self.next_ticket + 1);
        let mut waiter = Waiter {
            ticket,
            want,
            shape,
            story,
            since: now,
            probe,
            news: probe,
            turn: 0,
            overtaken: 0,
            waited: false,
            saving: None,
        };
        waiter.waited = !self.could_go(&waiter);
        self.find_room(&waiter)?;
        waiter.turn = self.next_turn();
        self.next_ticket = ticket.0;
        self.waiters.push_back(waiter);
        self.check_invariants();
        Ok(ticket)
    }

    /// A waiter's client has left, or its time is over: it is gone at once and moves nothing.
    pub fn leave(&mut self, ticket: Ticket) {
        let kept_room = self.waiters.iter().any(|waiter| waiter.ticket == ticket && waiter.shape.tasks > 1);
        self.waiters.retain(|waiter| waiter.ticket != ticket);
        if kept_room {
            // Others may have stood behind it although there are free slots: no lease has to end for them.
            self.reconsider();
        }
        self.check_invariants();
    }

    /// Refuses everyone who waits, for instance at the end of draining.
    pub fn refuse_all(&mut self, why: Refusal) {
        for waiter in self.waiters.drain(..) {
            self.outputs.push(Output::Refused { ticket: waiter.ticket, why });
        }
        self.check_invariants();
    }

    /// Requests held back now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    fn find_room(&self, new: &Waiter) -> Result<(), Refusal> {
        let queue = &self.policy.queue;
        let waiting = self.held_back(self.waiters.iter().chain([new]));
        if waiting > queue.max_waiting {
            return Err(Refusal::Full { waiting: waiting - 1 });
        }
        let Some(session) = new.want.session() else { return Ok(()) };
        let line = self.waiters.iter().filter(|waiter| waiter.want.session() == Some(session));
        let waiting = self.held_back(line.chain([new]));
        if waiting > queue.max_per_session {
            return Err(Refusal::SessionFull { waiting: waiting - 1 });
        }
        Ok(())
    }

    /// How many of these have to wait. Whoever came since the last answer of `/slots` stands in the queue as well, but
    /// for as many as there are free slots only until the next one: a burst of them is no reason to refuse any.
    fn held_back<'a>(&self, waiters: impl Iterator<Item = &'a Waiter>) -> usize {
        if !self.counted || self.sight == Sight::Loading {
            return waiters.filter(|waiter| waiter.waited).count();
        }
        let (held, fresh): (Vec<&Waiter>, Vec<&Waiter>) = waiters.partition(|waiter| waiter.waited);
        let free = self.slots.iter().filter(|slot| slot.is_free()).count();
        held.len() + fresh.len().saturating_sub(free.min(self.slots.len().saturating_sub(self.taken())))
    }

    /// Who is to be looked at, as indexes, the first first: in turn, but a head whose slot holds its cache passes those
    /// before it that would have to read everything, or restore it, until one of them has been passed often enough.
    pub(super) fn in_turn(&self, probe: ProbeId) -> Vec<usize> {
        let mut order: Vec<usize> = Vec::with_capacity(self.waiters.len());
        for (behind, _, index) in self.by_turn() {
            let passes = |other: &usize| {
                let other = &self.waiters[*other];
                other.overtaken < self.policy.queue.overtake && !self.finds_its_cache(other, probe)
            };
            let warm = behind == 0 && self.finds_its_cache(&self.waiters[index], probe);
            let passed = if warm { order.iter().rev().take_while(|other| passes(other)).count() } else { 0 };
            order.insert(order.len() - passed, index);
        }
        order
    }

    fn finds_its_cache(&self, waiter: &Waiter, probe: ProbeId) -> bool {
        let Target::Home(session) = self.target(waiter) else { return false };
        self.home_of(session)
            .is_some_and(|home| self.slots[home.index()].is_warm() && self.obstacle(home, probe).is_none())
    }

    /// Whoever has been passed by one of `granted` that came later.
    pub(super) fn note_overtaken(&mut self, granted: &[Waiter]) {
        for waiter in &mut self.waiters {
            let passing = granted.iter().filter(|other| other.turn > waiter.turn).count();
            waiter.overtaken = waiter.overtaken.saturating_add(u32::try_from(passing).unwrap_or(u32::MAX));
        }
    }

    /// Each waiter's place: how many of its session stand before it, its turn, its index.
    fn by_turn(&self) -> Vec<(usize, u64, usize)> {
        let mut before: HashMap<&SessionId, usize> = HashMap::new();
        let mut order: Vec<(usize, u64, usize)> = Vec::with_capacity(self.waiters.len());
        for (index, waiter) in self.waiters.iter().enumerate() {
            let behind = waiter.want.session().map_or(0, |session| {
                let count = before.entry(session).or_default();
                *count += 1;
                *count - 1
            });
            order.push((behind, waiter.turn, index));
        }
        order.sort_unstable();
        order
    }

    /// A request has been granted: those of its session that are behind it let everyone pass who waits now.
    pub(super) fn send_to_the_back(&mut self, granted: &Want) {
        let Some(session) = granted.session() else { return };
        let turn = self.next_turn();
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.want.session() == Some(session)) {
            waiter.turn = turn;
        }
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Something has changed that may let waiters go: an answer asked for after it is wanted.
    pub(super) fn reconsider(&mut self) {
        let probe = self.asked.next();
        for waiter in &mut self.waiters {
            waiter.news = probe;
        }
    }
}
