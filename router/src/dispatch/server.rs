//! What is known of the server besides its slots, what to advise, and the counts since the start.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::Serialize;
use tracing::{info, warn};

use super::advice::{Advice, Seen};
use super::waits::Waits;
use super::warm::WarmSnapshot;
use crate::front::Counts;
use crate::slots::{Action, Fill, Grant, Launch, Reading, Refusal, TableSnapshot};
use crate::upstream::Props;
use crate::warm::Standing;

/// Of the states looked for in the RAM cache, fewer than so many found: it is too small.
const FEW_FOUND: f64 = 0.3;

/// A server that has not said what it is is asked again after this.
const PAUSE: Duration = Duration::from_secs(5);

/// What is known of the server besides its slots.
#[derive(Debug, Default, Clone)]
pub(super) struct Server {
    /// As the log names it.
    pub(super) url: String,
    pub(super) props: Option<Props>,
    /// What saved states know it by.
    pub(super) identity: Option<String>,
    /// The types of its cache, if its command line has been seen since it started.
    pub(super) cache_types: Option<String>,
    /// It has to be asked again what it is: it is new to us, or has not said.
    pub(super) stale: bool,
    /// It was asked, and did not say: not before then again.
    pub(super) asked_until: Option<Instant>,
    /// Counts how often it has become another one: what was said before is not about it.
    pub(super) life: u64,
    pub(super) reach: Reach,
    /// Bytes that its RAM cache would need, if that is known.
    pub(super) ram_needed: Option<u64>,
    /// In the order in which it is shown.
    pub(super) advice: BTreeSet<Advice>,
}

/// How the server is asked what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Introduction {
    /// Nothing is granted meanwhile.
    First,
    /// It has not said: it may never do so, and nobody waits for that.
    Again,
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
    /// What was counted in front of the slots, where they are the only ones.
    #[serde(flatten)]
    pub(super) front: Option<Counts>,
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
    pub(super) advice: Vec<String>,
    pub(super) warm: WarmSnapshot,
    #[serde(flatten)]
    pub(crate) table: TableSnapshot,
    pub(super) totals: Totals,
}

impl ServerSnapshot {
    /// With what was counted in front of this server's slots.
    pub(crate) fn with_front(mut self, counts: Counts) -> Self {
        self.totals.front = Some(counts);
        self
    }
}

impl Server {
    /// Nothing is known of it yet but where it is.
    pub(super) fn at(url: String) -> Self {
        Self { url, stale: true, ..Self::default() }
    }

    pub(super) fn note(&mut self, reading: &Reading) {
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
                url = self.url,
                "llama-server can't be reached: start it; until then its requests go to other servers if there are any, or are \
                 answered with 502"
            ),
            Reach::Loading => info!(url = self.url, "llama-server is loading its model"),
            Reach::NoSlots => self.advise(Advice::NoSlots),
            Reach::Up => self.take_back(Advice::NoSlots),
            Reach::Unknown | Reach::Silent => {}
        }
    }

    /// It may have come back with other settings.
    pub(super) fn start_anew(&mut self) {
        self.becomes_another();
        self.cache_types = None;
        self.take_back(Advice::Clears);
        self.take_back(Advice::CacheRam);
    }

    /// Nobody knows what it is before it has said so.
    pub(super) fn becomes_another(&mut self) {
        self.stale = true;
        self.asked_until = None;
        self.life += 1;
    }

    /// Whether, and how, it is to be asked now what it is.
    pub(super) fn introduction(&mut self, now: Instant) -> Option<Introduction> {
        if !self.stale || self.asked_until.is_some_and(|until| now < until) {
            return None;
        }
        let first = self.asked_until.replace(now + PAUSE).is_none();
        Some(if first { Introduction::First } else { Introduction::Again })
    }

    pub(super) fn learn(&mut self, clears_idle: bool) {
        self.advise_if(clears_idle, Advice::Clears);
        if !clears_idle {
            self.take_back(Advice::CacheRam);
        }
    }

    /// So many of the states that were cleared to the RAM cache have been found there again, from 0 to 1; it would
    /// need `needed` bytes.
    pub(super) fn finds_in_ram(&mut self, share: f64, needed: Option<u64>) {
        self.ram_needed = needed;
        self.advise_if(share < FEW_FOUND && self.advice.contains(&Advice::Clears), Advice::CacheRam);
    }

    /// Whether saved states are used.
    pub(super) fn stands(&mut self, standing: Standing) {
        self.advise_if(standing == Standing::Unsupported, Advice::SavePath);
        self.advise_if(standing == Standing::Unreused, Advice::SwaFull);
    }

    /// Whether states are saved that nobody can look after.
    pub(super) fn saves_unseen(&mut self, unseen: bool) {
        self.advise_if(unseen, Advice::WarmDir);
    }

    /// All the advice there is, in words.
    pub(super) fn advice(&self) -> Vec<String> {
        self.advice.iter().map(|advice| advice.text(self.seen())).collect()
    }

    fn seen(&self) -> Seen {
        let slots = self.props.as_ref().and_then(|props| props.total_slots);
        Seen { slots, ram_needed: self.ram_needed }
    }

    fn advise_if(&mut self, applies: bool, advice: Advice) {
        if applies { self.advise(advice) } else { self.take_back(advice) }
    }

    fn advise(&mut self, advice: Advice) {
        if !self.advice.insert(advice) {
            return;
        }
        let text = advice.text(self.seen());
        if advice.is_an_offer() {
            info!(url = self.url, "{text}");
        } else {
            warn!(url = self.url, "{text}");
        }
    }

    fn take_back(&mut self, advice: Advice) {
        self.advice.remove(&advice);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_say_what_it_is_is_asked_again_after_a_pause_and_nobody_waits_for_it() {
        let (mut server, now) = (Server::at("http://host".to_owned()), Instant::now());
        assert_eq!(server.introduction(now), Some(Introduction::First));
        assert_eq!(server.introduction(now + PAUSE / 2), None);
        assert_eq!(server.introduction(now + PAUSE), Some(Introduction::Again));
        assert_eq!(server.introduction(now + PAUSE), None);
        server.start_anew();
        assert_eq!(server.introduction(now + PAUSE), Some(Introduction::First), "it is another one");
        server.stale = false;
        assert_eq!(server.introduction(now + 9 * PAUSE), None, "it has said so");
    }
}
