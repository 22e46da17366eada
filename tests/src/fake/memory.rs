//! Where tokens live besides a running request: the RAM cache, idle slots, the pool, saved files.
use super::engine::Engine;
use super::failure::Failure;
use super::slot::{Slot, SlotId};
use super::task::Action;
use super::tokens::Token;

impl Engine {
    /// The slot's tokens go to the RAM cache, and what fits the prompt better comes back.
    pub(super) fn exchange(&mut self, slot: SlotId, prompt: &[Token]) {
        if !self.ram.is_on() {
            return;
        }
        let slot = &mut self.slots[slot.0];
        self.ram.save(&slot.tokens);
        if let Some(better) = self.ram.take_better(&slot.tokens, prompt) {
            slot.tokens = better;
        }
    }

    /// With `--cache-idle-slots` every launch saves the idle slots, and a unified KV clears them.
    pub(super) fn save_idle_slots(&mut self) {
        if !self.options.saves_idle_slots() {
            return;
        }
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_processing()) {
            self.ram.save(&slot.tokens);
            if self.options.kv_unified {
                slot.tokens.clear();
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
                let running = self.slots.iter_mut().filter_map(|slot| slot.running.as_mut());
                return running.for_each(|running| running.failed = true);
            };
            slot.tokens.clear();
        }
    }

    /// Does a slot action; the answer is how many tokens it was about.
    pub(super) fn act(&mut self, slot: SlotId, action: &Action) -> Result<usize, Failure> {
        let reused = self.options.restore_is_reused;
        let slot = &mut self.slots[slot.0];
        match action {
            Action::Save(name) => {
                self.files.insert(name.clone(), slot.tokens.clone());
                Ok(slot.tokens.len())
            }
            Action::Restore(name) => {
                let saved = self.files.get(name).ok_or_else(|| {
                    Failure::invalid("Unable to restore slot, no available space or invalid file")
                })?;
                // A state that won't be reused is told, but not kept.
                slot.tokens = if reused { saved.clone() } else { Vec::new() };
                slot.restored = true;
                Ok(saved.len())
            }
            Action::Erase => {
                let erased = slot.tokens.len();
                slot.tokens.clear();
                Ok(erased)
            }
        }
    }
}
