//! The matrix of `warm`: how much is reused straight at a real llama-server, behind hearth and behind the router.
//!
//! * `stack`: a server with one of the ways before it;
//! * `measure`: one cell of the matrix, and what a private server for each session would reach;
//! * `tables`: the cells as Markdown;
//! * `judge`: what is to be reached.

mod judge;
mod measure;
mod stack;
mod tables;

use std::collections::BTreeMap;
use std::fmt;

use clap::ValueEnum;

pub use judge::judge;
pub use measure::{Bench, Ideal, Known};
pub use stack::Programs;
pub use tables::print;

use crate::report::Report;

/// Slots of each server, but hearth's.
pub const SLOTS: usize = 4;

/// What llama-server is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Settings {
    /// No number of slots: four with one KV memory, emptied into the RAM cache whenever a request starts.
    Default,
    /// Four slots with a KV memory each.
    Advised,
}

/// What happens to the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Case {
    /// Nothing, and the server's RAM cache holds them all.
    Ample,
    /// Nothing, but the server's RAM cache holds two or three of them.
    Short,
    /// The server is restarted in the middle; the router is told before.
    Restart,
    /// The server is killed in the middle and started again.
    Killed,
    /// They share a long system text and say little.
    Shared,
}

/// What stands between the sessions and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Way {
    /// Nothing.
    Direct,
    /// hearth, before a server with one slot.
    Hearth,
    /// The router, which saves nothing.
    Off,
    /// The router with warm starts, evicting the least recently used.
    Lru,
    /// The router with warm starts, evicting what is cheapest to lose.
    Cost,
}

/// What was measured under one settings, in one case, with so many sessions.
#[derive(Debug)]
pub struct Row {
    /// The server's.
    pub settings: Settings,
    /// What happened.
    pub case: Case,
    /// How many.
    pub sessions: usize,
    /// What a private server for each session reaches.
    pub ideal: Ideal,
    /// What each way reached, or why it could not be measured.
    pub ways: BTreeMap<Way, Result<Report, String>>,
}

impl Settings {
    /// llama-server's flags, besides those that all servers get.
    pub(crate) fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::Advised => &["--parallel", "4", "--no-kv-unified"],
        }
    }
}

impl Case {
    /// The server goes away after half the turns.
    fn restarts(self) -> bool {
        matches!(self, Self::Restart | Self::Killed)
    }

    /// It is only measured with the largest number of sessions.
    #[must_use]
    pub fn is_special(self) -> bool {
        !matches!(self, Self::Ample | Self::Short)
    }
}

impl Way {
    fn saves(self) -> bool {
        matches!(self, Self::Lru | Self::Cost)
    }

    fn is_router(self) -> bool {
        self.saves() || self == Self::Off
    }
}

impl Row {
    fn report(&self, way: Way) -> Option<&Report> {
        self.ways.get(&way)?.as_ref().ok()
    }

    /// Reuse in % of what private servers would reach.
    fn of_ideal(&self, way: Way) -> Option<f64> {
        Some(100.0 * self.report(way)?.server_reuse_percent? / self.ideal.report.reuse_percent)
    }

    /// Of the tokens that all sessions but the first need not read, as the first has read the same: % spared.
    fn of_shared(&self, way: Way) -> Option<f64> {
        let spared = self.ideal.report.computed as f64 - self.report(way)?.server_computed? as f64;
        Some(100.0 * spared / self.ideal.shared_beyond? as f64)
    }

    fn name(&self) -> String {
        format!("{}, {}, {} sessions", self.settings, self.case, self.sessions)
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Advised => "`--parallel 4 --no-kv-unified`",
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ample => "ample RAM cache",
            Self::Short => "short RAM cache",
            Self::Restart => "planned restart",
            Self::Killed => "server killed",
            Self::Shared => "shared system text",
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Hearth => "hearth",
            Self::Off => "router, no warm starts",
            Self::Lru => "router, `lru`",
            Self::Cost => "router, `cost`",
        })
    }
}
