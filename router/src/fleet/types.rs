//! What goes into the fleet and comes out of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prompt tokens spent per character before a session's own rate is known: 3.5 characters a token.
pub const CHARACTERS_PER_TOKEN: f64 = 3.5;

/// One server, by its place in the configuration, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u32);

impl ServerId {
    /// Its place in lists of all servers.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a conversation is known by: a hash of its session's id, or of how its requests begin. The same conversation has
/// the same key in every router that shares its homes with this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub u128);

/// One attempt of one request, from [`Fleet::ask`](super::Fleet::ask) to [`Fleet::ended`](super::Fleet::ended).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What decides about servers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Where conversations go that have no home.
    pub placement: Placement,
    /// How long they have one.
    pub affinity: Affinity,
    /// How much a server with shared KV memory may be given.
    pub budget: Budget,
}

/// Where a conversation without a home goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// To the server with the fewest live conversations per slot, then the fewest in flight per slot, then in turn.
    #[default]
    Spread,
    /// To the server with the fewest requests in flight per slot, then in turn.
    LeastBusy,
    /// In turn.
    RoundRobin,
}

/// How long conversations have a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affinity {
    /// They return there at all.
    pub enabled: bool,
    /// Idle for longer, they have none.
    pub ttl: Duration,
    /// So many have one; beyond, those idle longest lose it.
    pub max_sessions: usize,
}

/// How much a server with shared KV memory may be given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// It is heeded.
    pub enabled: bool,
    /// The share of the memory that turns in flight may be expected to take, from 0 to 1.
    pub share: f64,
    /// A turn that has waited for room so long is passed by nobody.
    pub patience: Duration,
    /// So often a turn is sent again whose server was full.
    pub retries: u32,
    /// So many may wait for room at one server.
    pub max_waiting: usize,
}

/// A server's KV memory, as the configuration says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvSetting {
    /// It is found out.
    #[default]
    Auto,
    /// All slots share it.
    Shared,
    /// Each slot has a part of it.
    Divided,
}

/// A server's KV memory, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kv {
    /// All slots share so many tokens.
    Shared {
        /// Tokens.
        pool: u64,
    },
    /// Each slot has a part of it, and can't take another's.
    Divided,
    /// Not known yet.
    Unknown,
}

/// One server, as the configuration has it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSpec {
    /// Its name.
    pub name: Arc<str>,
    /// Its slots count so many times in comparisons; above 0.
    pub weight: f64,
    /// Its memory.
    pub kv: KvSetting,
    /// The size of its shared memory in tokens, if it is given.
    pub budget_tokens: Option<u64>,
}

/// What a server has said of itself, or its command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// How many slots it has.
    pub slots: Option<u32>,
    /// The context that each slot shows, in tokens.
    pub context: Option<u64>,
    /// Whether its KV memory is shared, as its command line or the number of its slots tells.
    pub shared: Option<bool>,
    /// The models it has, each under all its names.
    pub models: Option<Vec<String>>,
}

/// A request that asks for a server.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Its conversation, if it is known.
    pub key: Option<Key>,
    /// Where other routers say the conversation's home is: beats what is known here.
    pub home: Option<ServerId>,
    /// Which servers may serve it.
    pub of: Eligible,
    /// Characters of text in it.
    pub characters: u64,
    /// Tokens an answer may have at most, if the client says so.
    pub max_output: Option<u64>,
    /// So many answers are wanted; none where a text is only read, as for embeddings.
    pub answers: u32,
    /// It has been tried before.
    pub again: Option<Again>,
}

/// A further attempt of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// That server was full: the turn waits for room there, keeping its place in the line, and is expected to take more
    /// than was reserved before.
    Full {
        /// The server.
        server: ServerId,
        /// The tokens that were too few.
        reserved: u64,
        /// When the request first asked for a server.
        since: Instant,
    },
    /// That server is broken, or not ready: any other one.
    Elsewhere {
        /// Not this one.
        not: ServerId,
    },
}

/// Which servers may serve a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eligible {
    /// All.
    Any,
    /// Those that have this model.
    Model(Arc<str>),
    /// This one.
    Only(ServerId),
}

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// The request goes to a server now.
    Placed(Placed),
    /// It goes nowhere.
    Refused {
        /// Whose.
        ticket: Ticket,
        /// The reason.
        why: Refusal,
    },
    /// A server's breaker has opened: it gets nothing before the pause is over, and then one turn to show that it works.
    Opened {
        /// The server.
        server: ServerId,
        /// For how long.
        pause: Duration,
    },
    /// A server that was broken works again.
    Closed {
        /// The server.
        server: ServerId,
    },
    /// An overflow has shown that this server's memory is shared.
    FoundShared {
        /// The server.
        server: ServerId,
        /// Tokens.
        pool: u64,
    },
}

/// A request's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Whose.
    pub ticket: Ticket,
    /// Where it goes.
    pub server: ServerId,
    /// Why there.
    pub why: Why,
    /// The tokens reserved for it; 0 where no memory is shared.
    pub reserved: u64,
    /// It had to wait for room.
    pub waited: bool,
}

/// Why a request goes to its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its conversation lives there.
    Home,
    /// Its conversation had no home, and lives there from now on.
    New,
    /// Its home was down, saturated or had not the model, and it lives there from now on.
    Moved {
        /// Where it lived.
        from: ServerId,
    },
    /// It belongs to no conversation that is known.
    Nobody,
}

/// Why a request goes nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No server has its model.
    UnknownModel,
    /// The servers that could serve it are down; worth trying again after that.
    Down {
        /// When the next of them is tried.
        retry_after: Duration,
    },
    /// Too many wait for room already.
    Crowded {
        /// So many.
        waiting: usize,
    },
    /// The router is stopping.
    Stopping,
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The server ran it; with what its answer tells.
    Complete {
        /// If it tells it.
        counts: Option<Counts>,
    },
    /// The server answered with an error of the client's, or said that it is busy: nothing is learned.
    Declined,
    /// The server's memory was full.
    Full,
    /// The connection or the server broke.
    Broken,
    /// The server broke, or the request is at fault: nothing is learned before another server has answered.
    Doubtful,
    /// The server is not ready: it loads its model, or is about to stop.
    NotReady,
    /// Its client left, or it was never sent.
    Left,
}

/// Tokens of one turn, as its answer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Of the prompt, in all.
    pub prompt: u64,
    /// Of these, taken from a cache.
    pub cached: u64,
    /// Generated.
    pub generated: u64,
}

/// Nothing has more tokens than that: numbers beyond are nonsense, and their sums must not run over.
const TOKENS_MAX: u64 = u32::MAX as u64;

impl Counts {
    /// What of it can be true.
    pub(super) fn bounded(self) -> Self {
        let Self { prompt, cached, generated } = self;
        let prompt = prompt.min(TOKENS_MAX);
        Self { prompt, cached: cached.min(prompt), generated: generated.min(TOKENS_MAX) }
    }
}

/// What another router that shares this one's homes has at a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Conversations whose home it is and that are not idle for too long.
    pub live: u64,
    /// Of these, with a turn in flight.
    pub in_flight: u64,
    /// Tokens reserved.
    pub reserved: u64,
}

impl Load {
    /// What of it can be true.
    pub(super) fn bounded(self) -> Self {
        let bound = |number: u64| number.min(TOKENS_MAX);
        Self { live: bound(self.live), in_flight: bound(self.in_flight), reserved: bound(self.reserved) }
    }
}
