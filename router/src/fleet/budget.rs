//! A server's shared memory: how large it is, and what of it a turn gets.

use super::server::Server;
use super::types::{Budget, Kv, KvSetting, ServerSpec};

/// Whether there is room for a turn, and what is reserved for it then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// There is: tokens reserved, and tokens that its caller is told.
    Enough {
        /// What the turn counts for.
        counts: u64,
        /// What its caller hears: 0 where no memory is shared.
        told: u64,
    },
    /// Its prompt alone is larger than all the memory, so the server will refuse it: it needs no room, and gets what there
    /// is, so that nobody else does until it is over.
    Oversized {
        /// What is left.
        counts: u64,
    },
    /// There isn't.
    TooLittle,
}

/// What a turn is expected to take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    /// Tokens of its prompt.
    pub(super) prompt: u64,
    /// Tokens of prompt and answer, at least 1.
    pub(super) tokens: u64,
}

impl Kv {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shared { .. } => "shared",
            Self::Divided => "divided",
            Self::Unknown => "unknown",
        }
    }
}

impl Server {
    /// What configuration, facts and overflows tell of its memory.
    pub(super) fn kv_as_known(&self) -> Kv {
        let ServerSpec { kv, budget_tokens, .. } = self.spec;
        let shared = match kv {
            KvSetting::Shared => Some(true),
            KvSetting::Divided => Some(false),
            KvSetting::Auto if budget_tokens.is_some() || self.found_shared => Some(true),
            KvSetting::Auto => self.facts.shared,
        };
        let pool = budget_tokens.or(self.facts.context).filter(|pool| *pool > 0);
        match (shared, pool) {
            (Some(false), _) => Kv::Divided,
            (Some(true), Some(pool)) => Kv::Shared { pool },
            _ => Kv::Unknown,
        }
    }

    /// The tokens that turns in flight may be expected to take, if that is heeded.
    pub(super) fn limit(&self, budget: &Budget) -> Option<u64> {
        match self.kv {
            Kv::Shared { pool } if budget.enabled => Some(((pool as f64 * budget.share) as u64).max(1)),
            _ => None,
        }
    }

    /// Whether a turn fits, with what `others` have reserved. One beyond the limit fits when nothing else is reserved.
    pub(super) fn room(&self, Need { prompt, tokens }: Need, others: u64, budget: &Budget) -> Room {
        let (Some(limit), Kv::Shared { pool }) = (self.limit(budget), self.kv) else {
            return Room::Enough { counts: tokens, told: 0 };
        };
        let left = limit.saturating_sub(self.expected + others);
        let counts = tokens.min(limit);
        match () {
            () if prompt > pool => Room::Oversized { counts: left },
            () if counts <= left => Room::Enough { counts, told: counts },
            () => Room::TooLittle,
        }
    }
}
