//! When `/slots` has to be asked next.
//!
//! A probe is asked at once only for news: a waiter nobody has looked at, a slot that has just become free. Everything
//! that is merely waited for is asked after in growing intervals, since llama-server notices that the client of a
//! request without a stream has left only after a second without any traffic.

use std::time::{Duration, Instant};

use super::decide::{Target, Why};
use super::queue::Waiter;
use super::types::{Due, ProbeId, SlotId};
use super::{Phase, Sight, SlotTable};

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

    /// The interval has stopped growing.
    fn is_steady(&self) -> bool {
        self.step + 1 == self.steps.len()
    }
}

impl SlotTable {
    /// When the next probe is due; `None` = not before something else happens. Meaningless while one is under way.
    #[must_use]
    pub fn next_probe(&self) -> Option<Due> {
        if self.has_news() {
            return Some(Due::Now);
        }
        let expecting = self.slots.iter().filter_map(|slot| slot.expecting);
        let expected =
            expecting.filter(|expecting| expecting.probe > self.asked).map(|expecting| expecting.due);
        expected.chain(self.stuck_poll).chain(self.patience_ends).chain(self.next_look()).min().map(Due::At)
    }

    /// When to look again at what is merely waited for. What is looked at in the longest intervals is looked at
    /// together: one after the other, two of them would leave llama-server no second without traffic.
    fn next_look(&self) -> Option<Instant> {
        let leaving = self.leases.values().filter_map(|held| match &held.phase {
            Phase::Leaving { poll, .. } => Some(poll),
            Phase::Running => None,
        });
        let polls = leaving.chain([&self.landing_poll, &self.foreign_poll]);
        let (steady, growing): (Vec<&Backoff>, Vec<&Backoff>) = polls.partition(|poll| poll.is_steady());
        let together = steady.into_iter().filter_map(Backoff::due).max();
        growing.into_iter().filter_map(Backoff::due).chain(together).min()
    }

    /// A probe is sent; the number under which its answer is to be reported.
    pub fn probe_asked(&mut self) -> ProbeId {
        self.asked = self.asked.next();
        self.asked
    }

    /// Probes after `probe` were never sent: the server was silent, and only numbers were drawn for those who came
    /// meanwhile. Now that it has answered, what they asked for is asked anew.
    pub fn renew_probes(&mut self, probe: ProbeId) {
        let next = self.asked.next();
        let renew = |wanted: &mut ProbeId| {
            if *wanted > probe {
                *wanted = next;
            }
        };
        for waiter in &mut self.waiters {
            renew(&mut waiter.probe);
            renew(&mut waiter.news);
        }
        self.unplaced.iter_mut().for_each(|unplaced| renew(&mut unplaced.probe));
        self.save_all_from.iter_mut().for_each(renew);
        let expecting = self.slots.iter_mut().filter_map(|slot| slot.expecting.as_mut());
        expecting.for_each(|expecting| renew(&mut expecting.probe));
    }

    /// `probe` will never be answered: what a turn has left is still to be seen.
    pub fn lost(&mut self, probe: ProbeId, now: Instant) {
        let next = self.asked.next();
        for expecting in self.slots.iter_mut().filter_map(|slot| slot.expecting.as_mut()) {
            if expecting.probe <= probe {
                (expecting.probe, expecting.due) = (next, now + PATIENT[0]);
            }
        }
    }

    /// Something no probe has been asked for yet, and that an answer could change.
    fn has_news(&self) -> bool {
        let fresh = |probe: ProbeId| probe > self.asked;
        if self.save_all_from.is_some_and(fresh) {
            return true;
        }
        self.unplaced.iter().any(|unplaced| fresh(unplaced.probe))
            || self.waiters.iter().any(|waiter| fresh(waiter.news) && self.could_go(waiter))
    }

    /// Leases alone would let this waiter go: only then is it worth asking the server.
    pub(super) fn could_go(&self, waiter: &Waiter) -> bool {
        if !self.counted || self.sight == Sight::Loading {
            return true;
        }
        if self.taken() + self.width(waiter) > self.slots.len() {
            return false;
        }
        if self.goes_after_its_own(waiter) {
            return false;
        }
        let free = |slot: SlotId| self.slots[slot.index()].lease.is_none();
        match self.target(waiter) {
            Target::Home(session) => {
                let elsewhere = |home| self.starts_elsewhere(waiter, session, home, Why::Busy);
                let home = self.home_of(session);
                self.may_spill(waiter) || home.is_none_or(|home| free(home) || elsewhere(home))
            }
            Target::Named(slot) => free(slot),
            Target::Any => true,
        }
    }
}
