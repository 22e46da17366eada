//! Which slot a task gets: llama-server's `get_available_slot`, with its surprises.
use super::engine::Engine;
use super::slot::SlotId;
use super::tokens::{Token, common_prefix};

/// `--slot-prompt-similarity`: a slot is similar if more than this share of the prompt is in it.
const SIMILAR: f64 = 0.1;
/// A slot that would keep less than this share of its tokens is saved to the RAM cache first.
const KEPT: f64 = 0.5;

/// A slot, and whether it is exchanged with the RAM cache before the task goes in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) slot: SlotId,
    pub(super) update_cache: bool,
}

impl Engine {
    /// The slot a prompt gets. A named slot is chosen even if it is busy (the caller finds that
    /// out *after* the RAM cache was exchanged: that is what damages the running request).
    pub(super) fn choose(&self, named: Option<i64>, prompt: &[Token]) -> Option<Choice> {
        let (similar, common) = self.most_similar(named, prompt);
        if let Some(slot) = named.map(|raw| self.wrap(raw)).or(similar) {
            // For an empty slot this is 0/0, NaN, which is not below anything: naming an empty
            // slot never looks into the RAM cache.
            let kept = common as f64 / self.slot(slot).tokens.len() as f64;
            return Some(Choice { slot, update_cache: kept < KEPT });
        }
        let slot = self.least_recently_used()?;
        Some(Choice { slot, update_cache: true })
    }

    /// `id_slot` wraps without an error, by C's unsigned remainder.
    pub(super) fn wrap(&self, raw: i64) -> SlotId {
        SlotId((raw.cast_unsigned() % self.slots.len() as u64) as usize)
    }

    /// The idle slot that shares most with the prompt, and how many tokens that is. If a slot is
    /// named only that one is looked at, and only if its number needed no wrapping.
    fn most_similar(&self, named: Option<i64>, prompt: &[Token]) -> (Option<SlotId>, usize) {
        let looked_at = |id: SlotId| named.is_none_or(|raw| raw == id.0 as i64);
        let mut best = (None, 0);
        for slot in self.slots.iter().filter(|slot| !slot.is_processing() && looked_at(slot.id)) {
            let common = common_prefix(&slot.tokens, prompt);
            if common > best.1 && common as f64 > SIMILAR * prompt.len() as f64 {
                best = (Some(slot.id), common);
            }
        }
        best
    }

    /// Among slots used equally long ago (above all: never) the last one.
    fn least_recently_used(&self) -> Option<SlotId> {
        let idle = self.slots.iter().filter(|slot| !slot.is_processing());
        idle.rev().min_by_key(|slot| slot.last_used).map(|slot| slot.id)
    }
}
