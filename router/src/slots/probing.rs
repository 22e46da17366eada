//! When `/slots` has to be asked next.
//!
//! A probe is asked at once only for news: a waiter nobody has looked at, a lease that has just ended. Everything
//! that is merely waited for is asked after in growing intervals, since llama-server notices that the client of a
//! request without a stream has left only after a second without any traffic.

use std::time::{Duration, Instant};

use super::types::{Due, ProbeId, SlotId};
use super::{Phase, Sight, SlotTable, Waiter, Want};

/// Growing intervals between looks at the same thing.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    steps: &'static [Duration],
    step: usize,
    due: Option<Instant>,
}

const PATIENT: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_millis(1200)];
const LANDING: [Duration; 9] = [
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(40),
    Duration::from_millis(80),
    Duration::from_millis(160),
    Duration::from_millis(320),
    Duration::from_millis(1200),
];

impl Backoff {
    /// For work that ends in its own time.
    pub(super) fn patient() -> Self {
        Self { steps: &PATIENT, step: 0, due: None }
    }

    /// For a request on its way into a slot, which is a matter of milliseconds unless a prefill is under way.
    pub(super) fn landing() -> Self {
        Self { steps: &LANDING, step: 0, due: None }
    }

    /// Begins, unless it has begun.
    pub(super) fn start(&mut self, now: Instant) {
        if self.due.is_none() {
            self.due = Some(now + self.steps[self.step]);
        }
    }

    /// A look at `now` was in vain. True when it was due, so that it counts and the next one is further away.
    pub(super) fn missed(&mut self, now: Instant) -> bool {
        if self.due.is_some_and(|due| now < due) {
            return false;
        }
        let first = self.due.is_none();
        self.step = if first { 0 } else { (self.step + 1).min(self.steps.len() - 1) };
        self.due = Some(now + self.steps[self.step]);
        !first
    }

    /// Nothing is waited for any more.
    pub(super) fn reset(&mut self) {
        self.step = 0;
        self.due = None;
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

impl SlotTable {
    /// When the next probe is due; `None` = not before something else happens. Meaningless while one is under way.
    #[must_use]
    pub fn next_probe(&self) -> Option<Due> {
        if self.has_news() {
            return Some(Due::Now);
        }
        let leaving = self.leases.values().filter_map(|held| match &held.phase {
            Phase::Leaving { poll, .. } => poll.due(),
            Phase::Running => None,
        });
        let polls = [self.landing_poll.due(), self.foreign_poll.due()];
        leaving.chain(polls.into_iter().flatten()).min().map(Due::At)
    }

    /// A probe is sent; the number under which its answer is to be reported.
    pub fn probe_asked(&mut self) -> ProbeId {
        self.asked = self.asked.next();
        self.asked
    }

    /// The number of the probe asked last.
    #[must_use]
    pub fn latest_probe(&self) -> ProbeId {
        self.asked
    }

    /// Something no probe has been asked for yet, and that an answer could change.
    fn has_news(&self) -> bool {
        let fresh = |probe: ProbeId| probe > self.asked;
        self.slots.iter().any(|slot| slot.expecting.is_some_and(fresh))
            || self.unplaced.iter().any(|unplaced| fresh(unplaced.probe))
            || self.waiters.iter().any(|waiter| fresh(waiter.probe) && self.could_go(waiter))
    }

    /// Leases alone would let this waiter go: only then is it worth asking the server.
    pub(super) fn could_go(&self, waiter: &Waiter) -> bool {
        if !self.counted || self.sight == Sight::Loading {
            return true;
        }
        if self.taken() + self.width(waiter.shape) > self.slots.len() {
            return false;
        }
        let free = |slot: SlotId| self.slots[slot.index()].lease.is_none();
        match &waiter.want {
            Want::Session(session) if self.running.contains_key(session) => false,
            Want::Session(session) if waiter.shape.heeds_slot => {
                self.sessions.peek(session).copied().flatten().is_none_or(free)
            }
            Want::Named(number) if waiter.shape.heeds_slot => free(self.wrap(*number)),
            Want::Session(_) | Want::Anonymous | Want::Named(_) => true,
        }
    }
}
