//! Into which slot a session's turn goes, and what is put there first.

use std::time::Instant;

use session_slot_identity::SessionId;

use super::decide::{Placing, Verdict, Why};
use super::queue::Waiter;
use super::types::{Evict, Fill, PinPolicy, ProbeId, SlotId};
use super::{Held, Slot, SlotTable};
use crate::warm::Occasion;

impl SlotTable {
    /// A session goes to its own slot, waiting for it (or spilling) if need be; else to a slot nobody owns; else to
    /// the one whose owner is to lose it.
    pub(super) fn place(
        &self,
        waiter: &Waiter,
        session: &SessionId,
        probe: ProbeId,
        now: Instant,
    ) -> Verdict {
        match self.home_of(session).map(|home| (home, self.obstacle(home, probe))) {
            Some((home, None)) if self.slots[home.index()].is_warm() => {
                self.pin_session(waiter, session, home, probe, Placing::Stay)
            }
            Some((home, None)) => self.fill_and_pin(waiter, session, home, probe, Placing::Stay, now),
            // Another's work is in its slot, so nothing of the session is: with a saved state any slot will do.
            Some((home, Some(why))) if self.starts_elsewhere(waiter, session, home, why) => {
                self.settle_anywhere(waiter, session, probe, now)
            }
            Some((_, Some(why))) => self.spill(waiter, session, why, probe, now),
            None => self.settle_anywhere(waiter, session, probe, now),
        }
    }

    /// What `session` left in `home`, which can't be named because of `why`, is being overwritten, and there is a saved
    /// state to start from.
    pub(super) fn starts_elsewhere(
        &self,
        waiter: &Waiter,
        session: &SessionId,
        home: SlotId,
        why: Why,
    ) -> bool {
        let held = self.slots[home.index()].lease.and_then(|number| self.leases.get(&number));
        let others = held.is_some_and(|held| held.session.as_ref() != Some(session) && !held.is_save());
        (why == Why::Foreign || others) && self.source(waiter, session).is_some()
    }

    /// A slot nobody owns, or else the one whose owner is to lose it.
    fn settle_anywhere(&self, waiter: &Waiter, session: &SessionId, probe: ProbeId, now: Instant) -> Verdict {
        let slots = || (0..self.slots.len()).map(SlotId::from_index);
        let free = slots().filter(|slot| self.obstacle(*slot, probe).is_none());
        match self.first_to_go(free, now) {
            Some(slot) => self.fill_and_pin(waiter, session, slot, probe, Placing::Settle, now),
            None => {
                let waits_for = |why| slots().any(|slot| self.obstacle(slot, probe) == Some(why));
                let why = [Why::Unseen, Why::Foreign].into_iter().find(|why| waits_for(*why));
                Verdict::Wait(why.unwrap_or(Why::Busy))
            }
        }
    }

    /// Of free slots the one to take: one that nobody owns, empty if there is such a one; else as the policy says.
    pub(super) fn first_to_go(&self, free: impl Iterator<Item = SlotId>, now: Instant) -> Option<SlotId> {
        let loss = |slot: &Slot| match (&slot.owner, self.policy.evict) {
            (Some(owner), Evict::Cost) => self.warm.loss(owner, slot.seen.tokens.unwrap_or(0), now),
            _ => 0.0,
        };
        let ranked = free.map(|id| {
            let slot = &self.slots[id.index()];
            (id, slot.unowned_first(), loss(slot), slot.last_used)
        });
        let first = ranked.min_by(|one, two| {
            let by_owner = one.1.cmp(&two.1);
            by_owner.then(one.2.total_cmp(&two.2)).then(one.3.cmp(&two.3))
        });
        first.map(|(slot, ..)| slot)
    }

    /// Into `slot`, which does not hold what the session left: with a saved state, if there is one that is worth it.
    fn fill_and_pin(
        &self,
        waiter: &Waiter,
        session: &SessionId,
        slot: SlotId,
        probe: ProbeId,
        placing: Placing,
        now: Instant,
    ) -> Verdict {
        let source = self.source(waiter, session);
        let is_new = self.warm.left_by(session) == 0;
        if source.is_none()
            && is_new
            && let Some(until) = self.shares_with_running(waiter, now)
        {
            return Verdict::Wait(Why::Until(until));
        }
        if self.waits_for_sight(waiter, session, slot) {
            return Verdict::Wait(Why::Unseen);
        }
        if placing == Placing::Settle && self.wants_save(slot, Occasion::Eviction, now) {
            return Verdict::Save(slot);
        }
        match source {
            Some(source) => self.pin_restored(slot, source, probe, placing),
            None => self.pin_session(waiter, session, slot, probe, placing),
        }
    }

    /// Pinning must never cost reuse. On a server that empties idle slots at every start, a session's earlier
    /// state lies in the RAM cache. llama-server looks there only when the named slot is neither empty nor holds
    /// much of the request's beginning (another session's state with the same system prompt does), so a slot that
    /// is not provably the session's own is filled with something else first.
    fn pin_session(
        &self,
        waiter: &Waiter,
        session: &SessionId,
        slot: SlotId,
        probe: ProbeId,
        placing: Placing,
    ) -> Verdict {
        let state = &self.slots[slot.index()];
        let known = self.left_something(session) || placing == Placing::Stay && state.is_warm();
        let fill = |fill: bool| if fill { Fill::Prime } else { Fill::Nothing };
        if self.warm.needs_measure() && !state.is_warm() {
            return self.pin(slot, probe, placing, Fill::Measure, !self.keeps_idle());
        }
        let (prime, alone) = match (self.policy.pin, self.clears_idle) {
            (PinPolicy::Always | PinPolicy::Never, _) | (_, Some(false)) => (false, false),
            // A session that was never here has nothing in the RAM cache: priming an empty slot for it would make
            // the server hand it, and so take away, the state of another session with the same system prompt. That is only
            // done where nobody needs it.
            (_, Some(true)) if !known => {
                let prime = !state.is_empty() || self.lends(waiter);
                (prime, prime)
            }
            (_, Some(true)) => (placing == Placing::Settle || !state.is_warm(), true),
            // Not seen yet. Where a session's state can't be, it may have gone to the RAM cache. Where it is, it may go
            // there as soon as anything else starts: alone, what the server does shows before others can suffer from it.
            (_, None) => {
                let elsewhere = known && self.has_run() && (placing == Placing::Settle || state.is_empty());
                (elsewhere, elsewhere || known && self.has_run())
            }
        };
        self.pin(slot, probe, placing, fill(prime), alone)
    }

    /// Another session's state in the RAM cache may go to this one. While anything runs it may not: what that leaves could be
    /// there by then.
    fn lends(&self, waiter: &Waiter) -> bool {
        self.leases.values().all(Held::is_save) && self.warm.lends(waiter.story.as_deref())
    }

    /// The server has run something, and has several slots: one that is alone is never cleared.
    fn has_run(&self) -> bool {
        self.slots.len() > 1 && self.slots.iter().any(|slot| slot.seen.id_task.is_some())
    }
}
