//! A request whose session's home is busy: may it run beside, and where (`concurrent = "spill"`).
//!
//! It gets another slot for this once. Its session's home stays; who owned the slot taken loses it, and afterwards the
//! slot is nobody's. No other session may be the worse for it, so where that is not certain the request waits:
//!
//! * Only a request that surely runs in the slot it names spills. Where the server chooses (`pin = "never"`, several
//!   tasks, routes that heed no slot or only in some builds, a server that has not said how many slots it has) nobody's
//!   slot could be spared.
//! * Nor does anything run beside a request of the session whose slot the server chose: where that ends may become
//!   the session's home.
//! * Nor while the session's own turn is leaving: its slot is about to be free, and what comes next belongs there (but
//!   not behind one that goes on without its client).
//! * A slot that may hold something of a session seen within five minutes is not taken. It surely holds nothing if
//!   `/slots` has just shown it empty; what a silent server, or one without `/slots`, has in it can't be known.
//! * A server that clears idle slots, or that may be one, moves what they hold to a RAM cache that may be too small
//!   whenever something starts. So no idle slot may hold something of such a session, and the slot has to be empty:
//!   then the server neither looks into its RAM cache, taking another session's state, nor overwrites a slot unsaved.

use std::time::{Duration, Instant};

use session_slot_identity::SessionId;

use super::decide::{Placing, Target, Verdict, Why};
use super::queue::Waiter;
use super::types::{Concurrent, Fill, Heeds, ProbeId, SlotId};
use super::{Phase, Sight, Slot, SlotTable};
use crate::warm::Occasion;

/// A session seen within this time is expected back.
const RECENTLY: Duration = Duration::from_secs(5 * 60);

impl SlotTable {
    pub(super) fn may_spill(&self, waiter: &Waiter) -> bool {
        self.policy.concurrent == Concurrent::Spill && waiter.shape.heeds_slot == Heeds::Yes
    }

    /// A session's requests go one after another, but for those that may spill.
    pub(super) fn goes_after_its_own(&self, waiter: &Waiter) -> bool {
        let Some(session) = waiter.want.session() else { return false };
        let Some(running) = self.running.get(session) else { return false };
        let where_named = |number: &u64| {
            let held = &self.leases[number];
            held.location.is_some() && held.location == held.launch.slot()
        };
        let beside = matches!(self.target(waiter), Target::Home(_)) && running.iter().all(where_named);
        !(self.may_spill(waiter) && beside)
    }

    /// Another slot for a request of `session`, whose home can't be named because of `why`.
    pub(super) fn spill(
        &self,
        waiter: &Waiter,
        session: &SessionId,
        why: Why,
        probe: ProbeId,
        now: Instant,
    ) -> Verdict {
        if !self.may_spill(waiter) || self.is_leaving_home(session) || self.is_outdated(probe) {
            return Verdict::Wait(why);
        }
        if let Some(slot) = self.spare_slot(probe, now) {
            if self.wants_save(slot, Occasion::Eviction, now) {
                return Verdict::Save(slot);
            }
            return self.pin(slot, probe, Placing::Spill, Fill::Nothing, false);
        }
        // What is on its way will show what the server does with idle slots, and empty them if it does.
        let on_the_way = self.leases.values().any(|held| !held.landed);
        if on_the_way && self.sight == Sight::Clear && !self.keeps_idle() {
            return Verdict::Wait(Why::Landing);
        }
        Verdict::Wait(why)
    }

    fn is_leaving_home(&self, session: &SessionId) -> bool {
        let mut running = self.running.get(session).into_iter().flatten();
        running.any(|number| {
            let held = &self.leases[number];
            !held.spilled && matches!(held.phase, Phase::Leaving { detached: false, .. })
        })
    }

    /// A request has ended since the probe was asked: what it left may look like an empty slot.
    fn is_outdated(&self, probe: ProbeId) -> bool {
        let ended = !self.departed.is_empty() || self.slots.iter().any(|slot| slot.fresh_from > probe);
        self.sight == Sight::Clear && ended
    }

    /// The free slot to take first of those that no session misses.
    fn spare_slot(&self, probe: ProbeId, now: Instant) -> Option<SlotId> {
        if !self.keeps_idle() && self.slots.iter().any(|slot| slot.is_free() && self.is_missed(slot, now)) {
            return None;
        }
        let spare = |id: &SlotId| {
            let slot = &self.slots[id.index()];
            let harmless = self.keeps_idle() || self.shows_empty(slot);
            self.obstacle(*id, probe).is_none() && harmless && !self.is_missed(slot, now)
        };
        let slots = (0..self.slots.len()).map(SlotId::from_index).filter(spare);
        self.first_to_go(slots, now)
    }

    /// The server is known to leave idle slots as they are.
    pub(super) fn keeps_idle(&self) -> bool {
        self.clears_idle == Some(false)
    }

    /// It may hold something of a session that is expected back.
    fn is_missed(&self, slot: &Slot, now: Instant) -> bool {
        slot.owner.as_ref().is_some_and(|owner| self.seen_recently(owner, now)) && !self.shows_empty(slot)
    }

    fn shows_empty(&self, slot: &Slot) -> bool {
        self.sight == Sight::Clear && slot.is_empty()
    }

    fn seen_recently(&self, session: &SessionId, now: Instant) -> bool {
        let seen = self.sessions.peek(session).and_then(|known| known.seen);
        self.running.contains_key(session)
            || seen.is_some_and(|seen| now.saturating_duration_since(seen) <= RECENTLY)
    }
}
