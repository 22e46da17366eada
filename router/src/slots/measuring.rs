//! Where the layout of states is measured: in the turn's own slot, or in another one if that teaches more.
//!
//! What a server does to idle slots shows when a task starts beside a slot that holds something. On a server that has run
//! nothing yet the one-word prompt therefore goes into another slot than the turn that it is run for: what becomes of it
//! when the turn starts shows in time to save that very turn when it ends.

use std::time::Instant;

use super::slot::{By, Expecting};
use super::types::{LeaseId, SlotId};
use super::{Sight, SlotTable};

impl SlotTable {
    /// The slot in which the one-word prompt of a lease with a [`super::Fill`] is to run. It is taken until
    /// [`SlotTable::measured`].
    pub fn slot_to_measure(&mut self, lease: LeaseId) -> Option<SlotId> {
        let held = self.held_mut(lease)?;
        held.primes = true;
        let own = held.launch.slot()?;
        let Some(other) = self.untried_slot(own) else { return Some(own) };
        self.slots[other.index()].lease = Some(lease.number);
        self.held_mut(lease)?.beside = Some(other);
        Some(other)
    }

    /// The one-word prompt has run. What it left in another slot than the lease's own is to be seen before that starts.
    pub fn measured(&mut self, lease: LeaseId, now: Instant) {
        let probe = self.asked.next();
        let Some(held) = self.held_mut(lease) else { return };
        held.primes = false;
        let Some(beside) = held.beside.take() else { return };
        self.free_beside(Some(beside));
        self.slots[beside.index()].expecting = Some(Expecting::new(By::Primer, probe, now));
    }

    pub(super) fn free_beside(&mut self, beside: Option<SlotId>) {
        let probe = self.asked.next();
        if let Some(slot) = beside.and_then(|beside| self.slots.get_mut(beside.index())) {
            slot.lease = None;
            slot.fresh_from = probe;
        }
    }

    /// A free slot besides `own`, if the server has run nothing yet.
    fn untried_slot(&self, own: SlotId) -> Option<SlotId> {
        let used = self.slots.iter().any(|slot| slot.seen.id_task.is_some());
        if used || self.clears_idle.is_some() || self.sight != Sight::Clear {
            return None;
        }
        let mut slots = (0..self.slots.len()).rev().map(SlotId::from_index);
        slots.find(|id| {
            let slot = &self.slots[id.index()];
            *id != own && slot.is_free() && slot.expecting.is_none() && slot.fresh_from <= slot.seen_by
        })
    }
}
