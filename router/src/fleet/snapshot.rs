//! What the status page shows of the servers.

use std::time::Instant;

use super::Fleet;
use super::health::State;
use super::types::{Kv, ServerId};

/// What the status page shows of one server of the fleet.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ServerSnapshot {
    /// Its name.
    pub name: String,
    /// Whether it gets turns.
    pub state: State,
    /// How many slots it has.
    pub slots: Option<u32>,
    /// Models, each under all its names; `None`: not known yet.
    pub models: Option<Vec<String>>,
    /// Conversations that live there and are not idle for too long, of this router and the others.
    pub sessions: u64,
    /// Of these, with a turn in flight.
    pub in_flight: u64,
    /// `shared`, `divided` or `unknown`.
    pub kv: &'static str,
    /// Tokens reserved, of this router and the others; `None` where no memory is shared.
    pub budget_used: Option<u64>,
    /// Tokens that may be reserved.
    pub budget_total: Option<u64>,
    /// Turns that wait for room now.
    pub waiting: usize,
    /// A moving mean over all sessions; `None`: not known yet.
    pub characters_per_token: Option<f64>,
    /// Turns that went home.
    pub hits: u64,
    /// Conversations that came from another server.
    pub moves: u64,
    /// Turns that had to wait for room.
    pub waits: u64,
    /// Times that it was full.
    pub overflows: u64,
    /// Times that it was broken.
    pub failures: u64,
    /// Turns that went home and found less than their conversation had left.
    pub evictions: u64,
    /// Tokens that these had to read again.
    pub tokens_lost: u64,
}

impl Fleet {
    /// Everything there is to see now, by [`ServerId`].
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Vec<ServerSnapshot> {
        (0..self.servers.len() as u32).map(|server| self.snapshot_of(ServerId(server), now)).collect()
    }

    fn snapshot_of(&self, id: ServerId, now: Instant) -> ServerSnapshot {
        let (server, tally) = (&self.servers[id.index()], &self.tallies[id.index()]);
        let shares = matches!(server.kv, Kv::Shared { .. }) && self.policy.budget.enabled;
        let seen = server.seen;
        ServerSnapshot {
            name: server.spec.name.to_string(),
            state: self.health[id.index()].state(now),
            slots: server.facts.slots,
            models: self.models.of(id).cloned(),
            sessions: self.homes.live(id) + tally.others.live,
            in_flight: tally.conversations(),
            kv: server.kv.name(),
            budget_used: shares.then(|| server.expected + tally.others.reserved),
            budget_total: server.limit(&self.policy.budget),
            waiting: tally.waiting as usize,
            characters_per_token: server.rate,
            hits: seen.hits,
            moves: seen.moves,
            waits: seen.waits,
            overflows: seen.overflows,
            failures: seen.failures,
            evictions: seen.evictions,
            tokens_lost: seen.tokens_lost,
        }
    }
}
