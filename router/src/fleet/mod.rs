//! Which server a request goes to: its conversation's home, or the one with the fewest conversations; and none beyond what
//! its memory holds.
//!
//! Pure: inputs and `now` go in, [`Output`]s come out. One server's slots are the business of [`slots`](crate::slots).

mod types;

use std::time::Instant;

pub use types::{
    Affinity, Again, Ask, Budget, CHARACTERS_PER_TOKEN, Counts, Eligible, Ended, Facts, Key, Kv, KvSetting,
    Load, Output, Placed, Placement, Policy, Refusal, ServerId, ServerSpec, Ticket, Why,
};

/// The servers, and which conversation lives where.
#[derive(Debug)]
pub struct Fleet {}

impl Fleet {
    /// A fleet of which nothing is known yet but its configuration.
    #[must_use]
    pub fn new(policy: Policy, servers: Vec<ServerSpec>) -> Self {
        todo!("{policy:?} {servers:?}")
    }

    /// A request asks for a server: it is placed or refused at once, or waits for room. The outputs tell.
    pub fn ask(&mut self, ask: Ask, now: Instant) -> Ticket {
        todo!("{ask:?} {now:?}")
    }

    /// The server has begun to answer, with a status that is no fault of its own.
    pub fn began(&mut self, ticket: Ticket, now: Instant) {
        todo!("{ticket:?} {now:?}")
    }

    /// An attempt is over, whether it was placed or still waited. How many tokens of its conversation the server had lost,
    /// if it went home and found less than it had left. A ticket that is over already is ignored.
    pub fn ended(&mut self, ticket: Ticket, how: Ended, now: Instant) -> Option<u64> {
        todo!("{ticket:?} {how:?} {now:?}")
    }

    /// A server was asked how it is, and is well.
    pub fn reached(&mut self, server: ServerId, now: Instant) {
        todo!("{server:?} {now:?}")
    }

    /// A server was asked how it is, and can't be reached.
    pub fn unreachable(&mut self, server: ServerId, now: Instant) {
        todo!("{server:?} {now:?}")
    }

    /// A server loads its model.
    pub fn loading(&mut self, server: ServerId, now: Instant) {
        todo!("{server:?} {now:?}")
    }

    /// More is known of a server. What `facts` leaves out stays as it was.
    pub fn learned(&mut self, server: ServerId, facts: Facts, now: Instant) {
        todo!("{server:?} {facts:?} {now:?}")
    }

    /// What the other routers have at the servers, by [`ServerId`]: replaces what was said before.
    pub fn others(&mut self, loads: &[Load], now: Instant) {
        todo!("{loads:?} {now:?}")
    }

    /// What this router has at the servers, by [`ServerId`].
    #[must_use]
    pub fn loads(&self) -> Vec<Load> {
        todo!()
    }

    /// Where a conversation lived when it was last heard of, in an earlier run. Called with the oldest first.
    pub fn remember(&mut self, key: Key, home: ServerId, last_used: Instant) {
        todo!("{key:?} {home:?} {last_used:?}")
    }

    /// Where a conversation lives.
    #[must_use]
    pub fn home(&self, key: Key, now: Instant) -> Option<ServerId> {
        todo!("{key:?} {now:?}")
    }

    /// Refuses everyone who waits.
    pub fn refuse_all(&mut self, why: Refusal) {
        todo!("{why:?}")
    }

    /// Every name of every model, sorted.
    #[must_use]
    pub fn models(&self) -> Vec<String> {
        todo!()
    }

    /// What has to be done, in order; each is told once.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        todo!()
    }

    /// When [`Fleet::tick`] has to be called, if nothing happens before.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        todo!()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        todo!("{now:?}")
    }

    /// Everything there is to see now, by [`ServerId`].
    #[must_use]
    pub fn snapshot(&self, now: Instant) -> Vec<ServerSnapshot> {
        todo!("{now:?}")
    }
}

/// What the status page shows of one server of the fleet.
#[derive(Debug, Clone, serde::Serialize)]
pub struct ServerSnapshot {
    /// Its name.
    pub name: String,
    /// Whether it gets turns.
    pub state: ServerState,
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

/// Whether a server gets turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It does.
    Up,
    /// It loads its model.
    Loading,
    /// It is broken.
    Down,
    /// It was broken, and gets one turn to show that it works again.
    HalfOpen,
}
