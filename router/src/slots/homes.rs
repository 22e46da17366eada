//! Which session lives in which slot, and what it has left there.

use std::time::{Duration, Instant};

use session_slot_identity::SessionId;

use super::slot::{By, Expecting};
use super::types::{Output, SlotId};
use super::{Known, SlotTable};

/// When a turn has ended, `/slots` is asked within this time for what it left. The session's next turn, or anybody
/// else's, would ask anyway; direct traffic in between only makes the slot look cold or, at worst, wrongly warm.
const LOOK_AFTER: Duration = Duration::from_millis(10);

impl SlotTable {
    /// The next probe shows what `session` left in `slot`: what later proves the slot warm.
    pub(super) fn expect_left(&mut self, slot: SlotId, session: &SessionId, task: Option<i64>, now: Instant) {
        self.move_home(session, slot);
        // What is on its way to a slot of the server's choice may get this one before it is looked at.
        if task.is_none() && self.leases.values().any(|held| held.location.is_none() && !held.landed) {
            return;
        }
        let probe = self.asked.next();
        self.slots[slot.index()].expecting = Some(Expecting::new(By::Turn(task), probe, now + LOOK_AFTER));
    }

    /// Makes `slot` the home of `session`, evicting who had it.
    pub(super) fn move_home(&mut self, session: &SessionId, slot: SlotId) -> Option<SessionId> {
        let old = self.home_of(session);
        if old == Some(slot) {
            return None;
        }
        if let Some(old) = old {
            self.slots[old.index()].disown();
        }
        self.remember(session, Some(slot));
        self.give(slot, session)
    }

    /// Hands `slot` to `session`; the earlier owner, if any, loses its home.
    pub(super) fn give(&mut self, slot: SlotId, session: &SessionId) -> Option<SessionId> {
        let slot = &mut self.slots[slot.index()];
        let before = slot.owner.replace(session.clone());
        slot.left = None;
        slot.expecting = None;
        let evicted = before.filter(|owner| owner != session)?;
        self.lose_home(&evicted);
        Some(evicted)
    }

    /// `slot` is nobody's home from now on; who had it, if anybody.
    pub(super) fn vacate(&mut self, slot: SlotId) -> Option<SessionId> {
        let evicted = self.slots[slot.index()].owner.take();
        self.slots[slot.index()].disown();
        if let Some(evicted) = &evicted {
            self.lose_home(evicted);
        }
        evicted
    }

    /// The server has become another one without a restart (other adapters): what slots hold is nobody's any more, and
    /// must not be saved as if it had been made on it.
    pub fn distrust_slots(&mut self) {
        for slot in &mut self.slots {
            (slot.left, slot.expecting, slot.save_due) = (None, None, false);
        }
    }

    pub(super) fn lose_home(&mut self, session: &SessionId) {
        if let Some(known) = self.sessions.peek_mut(session) {
            known.home = None;
        }
        self.outputs.push(Output::Evicted { session: session.clone() });
    }

    /// Puts `session` at the front of the LRU order. The session that falls off its end loses its slot.
    pub(super) fn remember(&mut self, session: &SessionId, home: Option<SlotId>) {
        let known = Known { home, ..self.sessions.peek(session).copied().unwrap_or_default() };
        if let Some((forgotten, Known { home: Some(slot), .. })) = self.sessions.push(session.clone(), known)
            && forgotten != *session
        {
            self.slots[slot.index()].disown();
        }
    }

    pub(super) fn home_of(&self, session: &SessionId) -> Option<SlotId> {
        self.sessions.peek(session)?.home
    }

    /// The session has had a turn in this life of the server: something of it may be left there.
    pub(super) fn was_here(&self, session: &SessionId) -> bool {
        self.sessions.peek(session).is_some_and(|known| known.life == self.generation)
    }

    /// And nobody has been let take that from the server's RAM cache.
    pub(super) fn left_something(&self, session: &SessionId) -> bool {
        self.was_here(session) && !self.warm.may_be_lent(session)
    }

    pub(super) fn mark_here(&mut self, session: &SessionId, now: Instant) {
        if let Some(known) = self.sessions.peek_mut(session) {
            known.life = self.generation;
            known.seen = Some(now);
        }
    }

    pub(super) fn mark_seen(&mut self, session: &SessionId, now: Instant) {
        if let Some(known) = self.sessions.peek_mut(session) {
            known.seen = Some(now);
        }
    }
}
