//! The matrix of `fleet`: how much several real llama-servers reuse, by who chooses among them.
//!
//! * `fronts`: each way of choosing, as a program before the servers;
//! * `stack`: fresh servers with one of the ways before them;
//! * `measure`: one cell of the matrix;
//! * `tables`: the cells as Markdown;
//! * `judge`: what is to be reached.

mod fronts;
mod judge;
mod measure;
mod stack;
mod tables;

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;

pub use fronts::Fronts;
pub use judge::judge;
pub use measure::{Bench, Cell};
pub use stack::Servers;
pub use tables::print;

use crate::warm::Settings;

/// How much the servers can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Case {
    /// All that is in flight.
    Ample,
    /// Less than four turns need, in one KV memory for all slots.
    Small,
}

/// Who chooses the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Way {
    /// The router: in turn.
    RoundRobin,
    /// The router: the server with the fewest requests in flight.
    LeastBusy,
    /// The router: the server where the session was; a new one goes to the least busy.
    Home,
    /// The router: the server where the session was; a new one goes where the fewest sessions live.
    HomeSpread,
    /// The router: as least busy, without a token budget and without trying a full server again.
    LeastBusyUnbudgeted,
    /// sglang-router, cache aware, with its own settings.
    Sglang,
    /// sglang-router, cache aware, with settings that suit this replay.
    SglangTuned,
    /// LiteLLM with session affinity.
    Litellm,
    /// nginx with a consistent hash of the session.
    Nginx,
}

/// What was measured under one settings in one case.
#[derive(Debug)]
pub struct Row {
    /// The servers'.
    pub settings: Settings,
    /// How much they can hold.
    pub case: Case,
    /// What each way reached, or why it could not be measured.
    pub ways: BTreeMap<Way, Result<Cell, String>>,
}

impl Case {
    /// Divided memory can't be overfilled: a slot has its part or the prompt is refused.
    #[must_use]
    pub fn is_possible(self, settings: Settings) -> bool {
        self == Self::Ample || settings == Settings::Default
    }
}

impl Row {
    fn cell(&self, way: Way) -> Option<&Cell> {
        self.ways.get(&way)?.as_ref().ok()
    }

    fn name(&self) -> String {
        format!("{}, {}", self.settings, self.case)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ample => "ample memory",
            Self::Small => "small memory",
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RoundRobin => "round robin",
            Self::LeastBusy => "least busy",
            Self::Home => "home",
            Self::HomeSpread => "home + spread",
            Self::LeastBusyUnbudgeted => "least busy, no budget",
            Self::Sglang => "sglang-router, `cache_aware`",
            Self::SglangTuned => "sglang-router, tuned",
            Self::Litellm => "LiteLLM, `session_affinity`",
            Self::Nginx => "nginx, consistent hash",
        })
    }
}
