//! What is known of the server besides its slots, what to advise, and the counts since the start.

use std::time::Duration;

use serde::Serialize;
use tracing::{info, warn};

use super::waits::Waits;
use crate::slots::{Action, Fill, Grant, Launch, Reading, Refusal, TableSnapshot};
use crate::upstream::{Props, Upstream};

/// What is known of the server besides its slots.
#[derive(Debug, Default, Clone)]
pub(super) struct Server {
    pub(super) props: Option<Props>,
    /// `/props` has to be asked again: the server is new to us.
    pub(super) stale: bool,
    pub(super) reach: Reach,
    pub(super) advice: Vec<&'static str>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reach {
    #[default]
    Unknown,
    Up,
    NoSlots,
    Silent,
    Loading,
    Unreachable,
}

/// Counts since the router's start.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Totals {
    /// Requests to slot-taking routes.
    pub requests: u64,
    /// ... that returned to their session's slot.
    pub home: u64,
    /// ... of a session that got a slot nobody owned.
    pub new: u64,
    /// ... of a session that took another one's slot.
    pub evict: u64,
    /// ... of a session that took another slot for once, as its own was busy.
    pub spill: u64,
    /// ... of a session, whose slot llama-server chose.
    pub free: u64,
    /// ... without a session.
    pub anonymous: u64,
    /// ... that were held back.
    pub waited: u64,
    /// ... by how long they were held back, in milliseconds.
    #[serde(rename = "granted_after_ms")]
    pub(super) waits: Waits,
    /// ... whose client left while they waited.
    pub abandoned: u64,
    /// ... that got no slot in time.
    pub timed_out: u64,
    /// ... that found too many waiting.
    pub refused_full: u64,
    /// Times that work past the router took a session's slot.
    pub overwritten: u64,
    /// Slots that were primed first.
    pub primed: u64,
    /// Signs of life that waiting clients were sent.
    pub keepalives: u64,
    /// Streams that had begun and fell silent.
    pub stalled: u64,
    /// Requests in which Claude Code's billing line was replaced.
    pub billing_lines_replaced: u64,
    /// Probes of `/slots`.
    pub probes: u64,
    /// Prompt tokens the server computed, as its answers say.
    pub prompt_computed: u64,
    /// Prompt tokens it took from a cache.
    pub prompt_cached: u64,
}

/// What the status page shows of one server.
#[derive(Debug, Clone, Serialize)]
pub struct ServerSnapshot {
    pub(super) url: String,
    pub(super) reach: Reach,
    pub(super) build: Option<String>,
    pub(super) context_per_slot: Option<u64>,
    /// What to change in the server's settings.
    pub(super) advice: Vec<&'static str>,
    #[serde(flatten)]
    pub(crate) table: TableSnapshot,
    pub(super) totals: Totals,
}

const ADVICE_CLEARS: &str = "llama-server empties idle slots whenever a request starts (its default settings), so \
    each turn comes back through its RAM cache: start it with `--parallel 4 --no-kv-unified` (the context is then \
    divided among the slots) or with `--no-cache-idle-slots`, and turns find their slot as they left it";
const ADVICE_NO_SLOTS: &str = "llama-server's /slots can't be read, so the router sees neither foreign work nor which \
    caches are warm: start it with `--slots`, and give the router its key with --upstream-api-key-file if it has one";

impl Server {
    pub(super) fn note(&mut self, reading: &Reading, upstream: &Upstream) {
        let reach = match reading {
            Reading::Slots(_) => Reach::Up,
            Reading::Silent => Reach::Silent,
            Reading::Blind(_) => Reach::NoSlots,
            Reading::Loading => Reach::Loading,
            Reading::Refused => Reach::Unreachable,
        };
        let before = std::mem::replace(&mut self.reach, reach);
        if before == reach {
            return;
        }
        match reach {
            Reach::Unreachable => warn!(
                url = upstream.address(),
                "llama-server can't be reached; requests are answered with 502 until it is"
            ),
            Reach::Loading => info!(url = upstream.address(), "llama-server is loading its model"),
            Reach::NoSlots => self.advise(ADVICE_NO_SLOTS),
            Reach::Up => self.advice.retain(|advice| *advice != ADVICE_NO_SLOTS),
            Reach::Unknown | Reach::Silent => {}
        }
    }

    /// It may have come back with other settings.
    pub(super) fn start_anew(&mut self) {
        self.stale = true;
        self.advice.retain(|advice| *advice != ADVICE_CLEARS);
    }

    pub(super) fn learn(&mut self, clears_idle: bool) {
        if clears_idle {
            self.advise(ADVICE_CLEARS);
        } else {
            self.advice.retain(|advice| *advice != ADVICE_CLEARS);
        }
    }

    fn advise(&mut self, advice: &'static str) {
        if !self.advice.contains(&advice) {
            warn!("{advice}");
            self.advice.push(advice);
        }
    }
}

impl Totals {
    pub(super) fn count(&mut self, grant: &Grant, waited: Duration) {
        let by_action = match grant.action {
            Action::Home => &mut self.home,
            Action::New => &mut self.new,
            Action::Evict(_) => &mut self.evict,
            Action::Spill(_) => &mut self.spill,
            Action::Free => &mut self.free,
            Action::Anonymous => &mut self.anonymous,
        };
        *by_action += 1;
        self.waited += u64::from(grant.waited);
        self.waits.count(waited);
        self.primed +=
            u64::from(matches!(grant.launch, Launch::Pin { fill: Fill::Prime | Fill::Measure, .. }));
    }

    pub(super) fn count_refusal(&mut self, why: Refusal) {
        match why {
            Refusal::Full { .. } | Refusal::SessionFull { .. } => self.refused_full += 1,
            Refusal::TimedOut { .. } => self.timed_out += 1,
            Refusal::Unreachable | Refusal::Stopping => {}
        }
    }
}
