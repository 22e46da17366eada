//! Where tokens live besides a running request: the RAM cache, idle slots, the pool.
use super::engine::Engine;
use super::slot::{Slot, SlotId};
use super::tokens::Token;

impl Engine {
    /// The slot's tokens go to the RAM cache, and what fits the prompt better comes back.
    pub(super) fn exchange(&mut self, slot: SlotId, prompt: &[Token]) {
        if !self.ram.is_on() {
            return;
        }
        let slot = &mut self.slots[slot.0];
        self.ram.save(slot.worth_keeping());
        if let Some(better) = self.ram.take_better(&slot.tokens, prompt) {
            slot.clear();
            slot.tokens = better;
        }
    }

    /// With `--cache-idle-slots` every launch saves the idle slots, and a unified KV clears them.
    pub(super) fn save_idle_slots(&mut self) {
        if !self.options.saves_idle_slots() {
            return;
        }
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_processing()) {
            self.ram.save(slot.worth_keeping());
            if self.options.kv_unified {
                slot.clear();
            }
        }
    }

    /// When the unified pool is full idle slots are purged unsaved, lowest first; when there are
    /// none left all running requests fail.
    pub(super) fn make_room(&mut self) {
        let Some(pool) = self.options.unified_pool_tokens.filter(|_| self.options.kv_unified) else {
            return;
        };
        while self.slots.iter().map(Slot::held_tokens).sum::<usize>() > pool {
            let purgeable = |slot: &&mut Slot| !slot.is_processing() && !slot.tokens.is_empty();
            let Some(slot) = self.slots.iter_mut().find(purgeable) else {
                return self.fail_all();
            };
            slot.clear();
        }
    }

    /// All that runs fails, and nothing is left in any slot.
    pub(super) fn fail_all(&mut self) {
        for slot in &mut self.slots {
            slot.clear();
            if let Some(running) = &mut slot.running {
                running.failed = true;
                running.unread = None;
            }
        }
    }
}
