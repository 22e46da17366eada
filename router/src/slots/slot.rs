//! What the table knows of one slot.

use std::time::{Duration, Instant};

use session_slot_identity::SessionId;

use super::direct::Standstill;
use super::types::{Mark, ProbeId, SeenSlot};

/// So long `/slots` may be silent while a server reads a part of a long prompt.
const LONGEST_BATCH: Duration = Duration::from_secs(10);

/// What was left in a slot is still to be seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expecting {
    /// Who has left it.
    pub(super) by: By,
    /// This probe, or a later one, shows it.
    pub(super) probe: ProbeId,
    /// By then it is asked for, if nothing else asks before: the session's next turn often does.
    pub(super) due: Instant,
    /// When that was first to be.
    pub(super) since: Instant,
}

/// Who has left something in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// A turn of the slot's owner, under this task if that was seen.
    Turn(Option<i64>),
    /// A one-word prompt.
    Primer,
}

impl Expecting {
    /// It shows in `probe`, which is asked at `due`.
    pub(super) fn new(by: By, probe: ProbeId, due: Instant) -> Self {
        Self { by, probe, due, since: due }
    }

    /// It is worth waiting for: `/slots` may be silent for long, but not for ever.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        now < self.since + LONGEST_BATCH
    }
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    /// The session whose home this is.
    pub(super) owner: Option<SessionId>,
    /// The lease that runs here.
    pub(super) lease: Option<u64>,
    /// As `/slots` showed it last.
    pub(super) seen: SeenSlot,
    /// The probe that showed it so.
    pub(super) seen_by: ProbeId,
    /// It was seen at work, and not for a lease known to be here: foreign work, or one of the requests whose slot
    /// llama-server chose.
    pub(super) stranger: bool,
    /// Since when a stranger has made no progress.
    pub(super) standstill: Option<Standstill>,
    /// What the owner's last turn left here.
    pub(super) left: Option<Mark>,
    /// What was saved of it, or could not be.
    pub(super) kept: Option<Mark>,
    /// It is to be seen whether what a turn has just left here is to be saved.
    pub(super) save_due: bool,
    /// A turn of the owner has just ended here.
    pub(super) expecting: Option<Expecting>,
    /// The greatest task number on the server when the slot was first seen idle with its present task.
    pub(super) idle_since: Option<i64>,
    /// It was seen to hold something of its present task. A request that was given up at once leaves an empty slot,
    /// too, and that says nothing of the server.
    pub(super) has_held: bool,
    /// Answers to earlier probes may still show the lease that has just ended.
    pub(super) fresh_from: ProbeId,
    /// See `SlotTable::uses`.
    pub(super) last_used: u64,
}

impl Slot {
    /// The slot holds exactly what its owner left there.
    pub(super) fn is_warm(&self) -> bool {
        !self.seen.processing && self.left.is_some() && self.left == self.mark()
    }

    /// Nothing is in it: llama-server does not consult its RAM cache for a request that names it.
    pub(super) fn is_empty(&self) -> bool {
        self.seen.id_task.is_none() || self.seen.tokens == Some(0)
    }

    /// Orders slots: one that nobody owns first, and of those an empty one.
    pub(super) fn unowned_first(&self) -> (bool, bool) {
        (self.owner.is_some(), self.owner.is_none() && !self.is_empty())
    }

    /// Nothing runs in it, as far as leases and `/slots` tell.
    pub(super) fn is_free(&self) -> bool {
        self.lease.is_none() && !self.stranger
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.standstill.is_some_and(|standstill| standstill.told)
    }

    /// The mark by which its present state is known again; `None` for no state.
    pub(super) fn mark(&self) -> Option<Mark> {
        let tokens = self.seen.tokens.filter(|tokens| *tokens > 0)?;
        Some(Mark { id_task: self.seen.id_task?, tokens })
    }

    pub(super) fn disown(&mut self) {
        self.owner = None;
        self.left = None;
        self.expecting = None;
    }

    /// After a server restart: who owned it is still a good hint, what it held is gone.
    pub(super) fn reset(&mut self) {
        *self = Self { owner: self.owner.take(), last_used: self.last_used, ..Self::default() };
    }
}
