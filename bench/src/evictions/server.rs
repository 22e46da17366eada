//! A llama-server with four slots that knows what each holds, and how long things take.

use std::collections::HashMap;
use std::time::Duration;

use session_slot_router::slots::{Reading, SeenSlot};
use session_slot_router::warm::{StateId, Written};

use super::agent::Content;

/// As an 8B model on a graphics card with 1000 tokens/s and a disk with 1 GB/s has it.
const READ_PER_TOKEN: Duration = Duration::from_millis(1);
const GENERATE_PER_TOKEN: Duration = Duration::from_millis(20);
const BYTES_PER_TOKEN: u64 = 128 << 10;
const SAVE_PER_TOKEN: Duration = Duration::from_micros(131);
const RESTORE_PER_TOKEN: Duration = Duration::from_micros(66);

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    seen: SeenSlot,
    holds: Option<Content>,
    /// It was restored and not used yet.
    restored: bool,
}

/// The server.
#[derive(Debug)]
pub(super) struct Server {
    slots: Vec<Slot>,
    files: HashMap<StateId, Content>,
    next_task: i64,
}

impl Server {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots: vec![Slot::default(); slots], files: HashMap::new(), next_task: 0 }
    }

    pub(super) fn reading(&self) -> Reading {
        Reading::Slots(self.slots.iter().map(|slot| slot.seen).collect())
    }

    /// The idle slot that was used least recently.
    pub(super) fn choose(&self) -> usize {
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| !slot.seen.processing);
        idle.min_by_key(|(_, slot)| slot.seen.id_task).map_or(0, |(index, _)| index)
    }

    /// Begins to read a prompt in a slot; tokens it need not read.
    pub(super) fn begin(&mut self, slot: usize, prompt: &Content) -> u64 {
        self.next_task += 1;
        let slot = &mut self.slots[slot];
        assert!(!slot.seen.processing, "a request named a busy slot: llama-server damages an answer");
        let common = slot.holds.map_or(0, |holds| {
            let common = holds.common(prompt);
            // A restored state of which less than half is of use is thrown away.
            if slot.restored && common < holds.tokens / 2 { 0 } else { common }
        });
        slot.seen = SeenSlot {
            id_task: Some(self.next_task),
            tokens: Some(prompt.tokens),
            processing: true,
            ..SeenSlot::default()
        };
        (slot.holds, slot.restored) = (Some(*prompt), false);
        // The last token of a prompt is always read.
        common.min(prompt.tokens - 1)
    }

    pub(super) fn end(&mut self, slot: usize, left: Content) {
        let slot = &mut self.slots[slot];
        (slot.seen.processing, slot.seen.tokens, slot.holds) = (false, Some(left.tokens), Some(left));
    }

    /// A one-word prompt.
    pub(super) fn prime(&mut self, slot: usize) {
        self.next_task += 1;
        let seen = SeenSlot { id_task: Some(self.next_task), tokens: Some(2), ..SeenSlot::default() };
        self.slots[slot] = Slot { seen, ..Slot::default() };
    }

    pub(super) fn save(&mut self, slot: usize, state: StateId) -> Written {
        let tokens = self.slots[slot].holds.map_or(0, |holds| holds.tokens);
        self.files.extend(self.slots[slot].holds.map(|holds| (state, holds)));
        written(tokens, SAVE_PER_TOKEN)
    }

    pub(super) fn restore(&mut self, slot: usize, state: StateId) -> Option<Written> {
        let holds = *self.files.get(&state)?;
        let slot = &mut self.slots[slot];
        slot.seen.tokens = slot.seen.id_task.map(|_| holds.tokens);
        (slot.holds, slot.restored) = (Some(holds), true);
        Some(written(holds.tokens, RESTORE_PER_TOKEN))
    }

    pub(super) fn forget(&mut self, state: StateId) {
        self.files.remove(&state);
    }
}

pub(super) fn reading_takes(tokens: u64) -> Duration {
    READ_PER_TOKEN * tokens as u32
}

pub(super) fn generating_takes(tokens: u64) -> Duration {
    GENERATE_PER_TOKEN * tokens as u32
}

fn written(tokens: u64, per_token: Duration) -> Written {
    Written { tokens, bytes: tokens * BYTES_PER_TOKEN, took: per_token * tokens as u32 }
}
