//! What was read once is not read again: which states are saved, what they are worth, and whether that works. Pure.
//!
//! A *state* is what llama-server has written of a slot's cache into a file. Here is decided whether saving and restoring
//! pays, which state a request starts from, and what goes when there is no room. The slot table asks; `dispatch` carries
//! out what comes of it.
//!
//! * `types`: the words other modules use;
//! * `costs`: what reading, saving and restoring take on this server, as measured;
//! * `returns`: the chance that a session comes back, and when;
//! * `catalog`: which states there are, whose they are, and what they begin with;
//! * `trust`: whether restored states are in fact reused.

mod types;

use std::time::Instant;

use session_slot_identity::SessionId;

pub use types::*;

use crate::usage::Usage;

/// Everything known about saved states of one server.
#[derive(Debug)]
pub struct Warm {
    policy: Policy,
    effects: Vec<Effect>,
    next: u64,
}

impl Warm {
    /// Nothing is saved, and nothing known of the server: off until [`Warm::served_by`] and [`Warm::supported`].
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, effects: Vec::new(), next: 0 }
    }

    // ---- the server

    /// Takes over what an earlier run has registered, least recently used first.
    pub fn load(&mut self, _states: Vec<SavedState>, _now: Instant) {}

    /// Which server this is: states of others are never used on it.
    pub fn served_by(&mut self, _fingerprint: &str) {}

    /// Whether it saves and restores at all (it has a `--slot-save-path`).
    pub fn supported(&mut self, _supported: bool) {}

    /// How large a state of a one-token prompt is, in bytes: tells KV types and the number of sequences apart, which no
    /// page of the server does. States of another layout are never used.
    pub fn measured(&mut self, _layout: u64) {}

    /// The layout is not known in this life of the server; it has to be before anything is restored.
    #[must_use]
    pub fn needs_measure(&self) -> bool {
        false
    }

    /// The server has restarted: what turned warm starts off may be gone, and the layout may be another.
    pub fn restarted(&mut self) {}

    /// The user's room for states, in bytes, once the folder has been looked at.
    pub fn room(&mut self, _bytes: u64) {}

    /// States are saved and restored now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        false
    }

    // ---- turns

    /// A request of `session` has come.
    pub fn arrived(&mut self, _session: &SessionId, _now: Instant) {}

    /// A turn of `session` has ended. `landed` is false where its slot was not the one prepared for it: nothing is
    /// concluded about the state it started from.
    pub fn ended(&mut self, _session: &SessionId, _turn: Turn, _now: Instant) {}

    // ---- decisions

    /// The saved state from which a request of `session` best starts, if restoring one pays.
    #[must_use]
    pub fn source_for(&self, _session: &SessionId, _story: Option<&Story>) -> Option<Source> {
        None
    }

    /// Tokens that `session` left in its slot by its last turn; 0 if not known.
    #[must_use]
    pub fn left_by(&self, _session: &SessionId) -> u64 {
        0
    }

    /// The chance that a state cleared to the server's RAM cache is found there again, from 0 to 1.
    #[must_use]
    pub fn ram_hit(&self) -> f64 {
        0.5
    }

    /// A turn that went back to the RAM cache for its state reused `usage.cached` of at least `expected` tokens.
    pub fn ram_tried(&mut self, _expected: u64, _usage: Usage) {}

    /// Saving the `tokens` that `session` left in its slot pays. `delayed`: requests that would wait meanwhile.
    #[must_use]
    pub fn save_pays(
        &self,
        _session: &SessionId,
        _tokens: u64,
        _occasion: Occasion,
        _delayed: usize,
        _now: Instant,
    ) -> bool {
        false
    }

    /// Seconds of reading a new request with this story would be spared by a state that another session's turn, whose
    /// story is `other`, is about to leave. 0 if they share too little, or may not.
    #[must_use]
    pub fn shared_reading(&self, _story: &Story, _other: &Story) -> f64 {
        0.0
    }

    /// What losing the slot costs `session`: seconds of reading (or restoring), by the chance that it returns, over the
    /// time until then.
    #[must_use]
    pub fn loss(&self, _session: &SessionId, _tokens: u64, _now: Instant) -> f64 {
        0.0
    }

    // ---- saving and restoring

    /// A save of `session`'s slot begins. It counts once [`Warm::saved`] says so.
    pub fn begin(
        &mut self,
        _session: &SessionId,
        _tokens: u64,
        _occasion: Occasion,
        _now: Instant,
    ) -> StateId {
        self.next += 1;
        StateId(self.next)
    }

    /// How the save went.
    pub fn saved(&mut self, _state: StateId, _outcome: Result<Written, SaveError>, _now: Instant) {}

    /// How a restore went.
    pub fn restored(&mut self, _state: StateId, _outcome: Result<Written, RestoreError>, _now: Instant) {}

    // ---- what comes of it

    /// What has to be done since the last call, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// For the status page.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let _ = &self.policy;
        Snapshot::default()
    }
}
