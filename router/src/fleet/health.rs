//! Whether a server gets turns: its breaker, and whether it loads its model.

use std::time::{Duration, Instant};

use super::breaker::Breaker;

/// One server's.
#[derive(Debug, Default)]
pub(super) struct Health {
    pub(super) breaker: Breaker,
    /// It has said that it isn't ready, and nothing since.
    pub(super) loading: bool,
    /// It has not answered for a while, and said nothing since: it hangs, or has no time for us.
    pub(super) silent: bool,
}

/// Whether a server gets turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It does.
    Up,
    /// It loads its model.
    Loading,
    /// It has not answered for a while: the turns that are there stay, and no others are sent.
    Silent,
    /// It is broken.
    Down,
    /// It was broken, and gets one turn to show that it works again.
    HalfOpen,
}

impl Health {
    /// It has said something.
    pub(super) fn heard(&mut self, loading: bool) {
        (self.loading, self.silent) = (loading, false);
    }

    /// A turn may be sent there.
    pub(super) fn takes_turns(&self, now: Instant) -> bool {
        !self.loading && !self.silent && self.breaker.lets_through(now)
    }

    /// Nothing is sent there for a while: whoever waits had better go elsewhere.
    pub(super) fn is_shut(&self, now: Instant) -> bool {
        self.loading || self.silent || self.breaker.is_open(now)
    }

    /// How long its breaker is still open.
    pub(super) fn pause_left(&self, now: Instant) -> Duration {
        self.breaker.until().map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    pub(super) fn state(&self, now: Instant) -> State {
        match self.breaker.until() {
            Some(until) if now < until => State::Down,
            _ if self.loading => State::Loading,
            _ if self.silent => State::Silent,
            Some(_) => State::HalfOpen,
            None => State::Up,
        }
    }
}
