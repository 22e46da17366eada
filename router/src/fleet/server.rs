//! What is known of one server beyond what every choice looks at.

use std::time::{Duration, Instant};

use super::estimate::Outputs;
use super::types::{Counts, Facts, Kv, ServerSpec, Why};

/// After an overflow with nothing else in flight there, a server gets nothing of its line for so long.
const RELIEF: Duration = Duration::from_secs(1);

/// How much a new answer counts in the mean of characters per token.
const WEIGHT_OF_NEW: f64 = 0.1;

/// One server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) spec: ServerSpec,
    pub(super) facts: Facts,
    pub(super) kv: Kv,
    /// An overflow has shown that its memory is shared, and it hasn't been away since.
    pub(super) found_shared: bool,
    pub(super) outputs: Outputs,
    /// Characters per token.
    pub(super) rate: Option<f64>,
    /// What its turns in flight are expected to take.
    pub(super) expected: u64,
    /// So many turns have ended there.
    pub(super) ends: u64,
    pub(super) overflow: Option<Overflow>,
    pub(super) seen: Seen,
}

/// The last overflow, as long as nothing has happened since that could have made room.
#[derive(Debug, Clone, Copy)]
pub(super) struct Overflow {
    /// Turns that had ended then.
    ends: u64,
    /// Until then, if nothing is in flight there.
    pub(super) until: Instant,
}

/// What has happened there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) hits: u64,
    pub(super) moves: u64,
    pub(super) waits: u64,
    pub(super) overflows: u64,
    pub(super) failures: u64,
    pub(super) evictions: u64,
    pub(super) tokens_lost: u64,
}

impl Server {
    pub(super) fn new(spec: ServerSpec) -> Self {
        let mut server = Self {
            spec,
            facts: Facts::default(),
            kv: Kv::Unknown,
            found_shared: false,
            outputs: Outputs::default(),
            rate: None,
            expected: 0,
            ends: 0,
            overflow: None,
            seen: Seen::default(),
        };
        server.kv = server.kv_as_known();
        server
    }

    /// What `facts` leaves out stays as it was.
    pub(super) fn learn(&mut self, facts: &Facts) {
        self.facts.slots = facts.slots.or(self.facts.slots);
        self.facts.context = facts.context.or(self.facts.context);
        self.facts.shared = facts.shared.or(self.facts.shared);
        self.kv = self.kv_as_known();
    }

    /// It was away, and may come back as another one: what an overflow has shown is not true for ever.
    pub(super) fn went_away(&mut self) {
        self.found_shared = false;
        self.kv = self.kv_as_known();
    }

    /// A turn that is expected to take so many tokens is sent.
    pub(super) fn take(&mut self, tokens: u64) {
        self.expected += tokens;
    }

    /// A turn is sent here, and not because it was full here before.
    pub(super) fn placed(&mut self, why: Why) {
        self.seen.hits += u64::from(why == Why::Home);
        self.seen.moves += u64::from(matches!(why, Why::Moved { .. }));
    }

    /// Such a turn is over.
    pub(super) fn give_back(&mut self, tokens: u64) {
        self.expected -= tokens;
        self.ends += 1;
    }

    /// A turn with so many characters has ended.
    pub(super) fn answered(&mut self, characters: u64, counts: Counts) {
        self.outputs.saw(counts.generated);
        if characters > 0 && counts.prompt > 0 {
            let rate = characters as f64 / counts.prompt as f64;
            self.rate = Some(self.rate.map_or(rate, |mean| mean + (rate - mean) * WEIGHT_OF_NEW));
        }
    }

    /// It was full. Its shared memory, if this has shown that it is shared.
    pub(super) fn overflowed(&mut self, now: Instant) -> Option<u64> {
        self.seen.overflows += 1;
        self.overflow = Some(Overflow { ends: self.ends, until: now + RELIEF });
        self.found_shared = true;
        let before = self.kv;
        self.kv = self.kv_as_known();
        match self.kv {
            Kv::Shared { pool } if self.kv != before => Some(pool),
            _ => None,
        }
    }

    /// Forgets the last overflow when another turn has ended there since, or when its pause is over with nothing in flight.
    pub(super) fn recover(&mut self, in_flight: u64, now: Instant) {
        self.overflow =
            self.overflow.filter(|last| self.ends == last.ends && (in_flight > 0 || now < last.until));
    }
}
