//! What the fake remembers for the test: requests, launches, violations, polls.
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use super::slot::{SlotId, TaskId};
use super::task::Action;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its place in the order of arrival, from 0.
    pub number: usize,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// Whether it goes into a slot.
    pub takes_slot: bool,
    /// Whether it came from [`FakeLlama::foreign`](super::FakeLlama::foreign), past the router.
    pub foreign: bool,
    /// When it arrived.
    pub at: Instant,
}

impl Received {
    /// Whether it may be a question of the router's own, rather than a client's request.
    #[must_use]
    pub fn is_own_question(&self) -> bool {
        ["/slots", "/props", "/slots/0?action=save"].contains(&self.target.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the received body should be JSON")
    }

    /// A header's value, if there is one and it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A request went into a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The task's number.
    pub task: TaskId,
    /// The slot it runs in.
    pub slot: SlotId,
    /// Prompt tokens found in the slot.
    pub cache_n: usize,
    /// Prompt tokens computed.
    pub prompt_n: usize,
    /// Tokens that had been restored into the slot, and not been used since.
    pub restored: Option<usize>,
    /// The number of the request it belongs to.
    pub request: usize,
}

/// Something that was done to a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// Which.
    pub slot: SlotId,
    /// The number of the request that asked for it.
    pub request: usize,
    /// What.
    pub what: What,
}

/// What was done to a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A request went into it.
    Launched(Launch),
    /// So many tokens went into this file.
    Saved(String, usize),
    /// So many tokens came from this file.
    Restored(String, usize),
    /// It was emptied.
    Erased,
    /// This file could not be written, or read.
    Failed(String),
}

impl What {
    /// An action, and how many tokens it was about if it succeeded.
    pub(super) fn of(action: &Action, tokens: Option<usize>) -> Self {
        match (action, tokens) {
            (Action::Save(name), Some(tokens)) => Self::Saved(name.clone(), tokens),
            (Action::Restore(name), Some(tokens)) => Self::Restored(name.clone(), tokens),
            (Action::Save(name) | Action::Restore(name), None) => Self::Failed(name.clone()),
            (Action::Erase, _) => Self::Erased,
        }
    }
}

/// A file cut short has killed the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The number of the request that wanted it restored.
    pub request: usize,
    /// Whether that request came past the router.
    pub foreign: bool,
}

/// A request named a busy slot: the running one was damaged, or an action waits behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The slot named.
    pub slot: SlotId,
    /// The task that ran there.
    pub running: TaskId,
    /// The number of the request that named it.
    pub request: usize,
    /// Whether that request came past the router.
    pub foreign: bool,
}

/// Everything remembered since the first start; a restart forgets nothing of it.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) received: Vec<Received>,
    pub(super) arrivals: usize,
    pub(super) slot_takers: usize,
    pub(super) incomplete: usize,
    pub(super) launches: Vec<Launch>,
    pub(super) deeds: Vec<Deed>,
    pub(super) crashes: Vec<Crash>,
    pub(super) violations: Vec<Violation>,
    /// Requests that found somebody else's state restored in their slot.
    pub(super) misplaced: Vec<usize>,
    pub(super) polls: Vec<Instant>,
    pub(super) poll_count: usize,
}

impl Log {
    /// Counts an arrival and gives it its number.
    pub(super) fn arrival(&mut self, takes_slot: bool) -> usize {
        let number = self.arrivals;
        self.arrivals += 1;
        self.slot_takers += usize::from(takes_slot);
        number
    }

    /// A deferred request names its busy slot again each time it is woken: told once per victim.
    pub(super) fn violation(&mut self, violation: Violation) {
        if !self.violations.contains(&violation) {
            self.violations.push(violation);
        }
    }
}
