//! What must always hold of the table, checked after every change in debug builds.

use super::SlotTable;
use super::types::{Concurrent, SlotId};

impl SlotTable {
    /// Panics when the table contradicts itself. Called after every change in debug builds.
    pub(super) fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let id = SlotId::from_index(index);
            if let Some(number) = slot.lease {
                let held = self.leases.get(&number).expect("a slot's lease exists");
                let its = [held.location, held.beside];
                assert!(its.contains(&Some(id)), "a slot's lease runs in that slot, or measures there");
            }
            if let Some(owner) = &slot.owner {
                assert_eq!(self.home_of(owner), Some(id), "the owner of slot {index} has its home there");
            }
        }
        for (session, known) in &self.sessions {
            if let Some(slot) = known.home {
                let owner = self.slots[slot.index()].owner.as_ref();
                assert_eq!(owner, Some(session), "a session's home slot is its own");
            }
        }
        self.check_leases();
    }

    fn check_leases(&self) {
        for (number, held) in &self.leases {
            if let Some(slot) = held.location {
                assert_eq!(self.slots[slot.index()].lease, Some(*number), "a lease holds its slot alone");
            }
            if let Some(session) = &held.session {
                let running = self.running.get(session).expect("a session with a lease is running");
                assert!(running.contains(number), "a session's lease is known as its own");
                assert!(
                    running.len() == 1 || self.policy.concurrent == Concurrent::Spill,
                    "a session runs one turn at a time"
                );
            }
        }
        assert!(self.running.values().flatten().all(|number| self.leases.contains_key(number)));
        let tickets: Vec<_> = self.waiters.iter().map(|waiter| waiter.ticket).collect();
        assert!(tickets.is_sorted(), "waiters stand in order of arrival");
    }
}
