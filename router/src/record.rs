//! What is written down of one request: its log line and its row in the event log. Never a body, query or key.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use http::{Method, StatusCode};
use tracing::info;

use crate::dispatch::{Lease, Who};
use crate::fleet::Why;
use crate::identify::Source;
use crate::servers::Seat;
use crate::slots::{Action, SlotId};
use crate::store::{Event, Store, Write};
use crate::usage::Usage;

/// The longest route that is written down, in bytes.
const ROUTE_MAX: usize = 256;
/// The longest method. HTTP allows any word.
const METHOD_MAX: usize = 32;

/// The facts of one request, written when it is dropped: whatever ends a request, it leaves exactly one line.
#[derive(Debug)]
pub(crate) struct Record {
    store: Store,
    started: Instant,
    method: String,
    route: String,
    who: Who,
    session: Option<String>,
    conflict: Option<Source>,
    asked_slot: Option<String>,
    slots_seen: Option<Arc<str>>,
    slot: Option<u32>,
    action: &'static str,
    evicted: Option<String>,
    waited: Option<Duration>,
    /// Since when it has been waiting for a slot, until it gets one.
    waiting_since: Option<Instant>,
    status: Option<StatusCode>,
    usage: Option<Usage>,
    /// Tokens of the saved state its slot was filled with.
    restored: Option<u64>,
    /// The server's name, where there are several.
    server: Option<Arc<str>>,
    /// Why that server.
    place: Option<&'static str>,
    /// Its server is another router, whose word on slots stands.
    passed_on: bool,
    /// Tokens of its conversation that the server had lost.
    lost: Option<u64>,
    error: Option<String>,
}

impl Record {
    pub(crate) fn new(store: &Store, method: &Method, path: &str) -> Self {
        Self {
            store: store.clone(),
            started: Instant::now(),
            method: cut(method.as_str(), METHOD_MAX).to_owned(),
            route: cut(path, ROUTE_MAX).to_owned(),
            who: Who::default(),
            session: None,
            conflict: None,
            asked_slot: None,
            slots_seen: None,
            slot: None,
            action: "pass",
            evicted: None,
            waited: None,
            waiting_since: None,
            status: None,
            usage: None,
            restored: None,
            server: None,
            place: None,
            passed_on: false,
            lost: None,
            error: None,
        }
    }

    pub(crate) fn anonymous(&mut self) {
        self.action = "anonymous";
    }

    pub(crate) fn asked_slot(&mut self, text: Option<&str>) {
        self.asked_slot = text.map(str::to_owned);
    }

    /// The request belongs to a session and has not been granted yet. `conflict` names another one.
    pub(crate) fn session(&mut self, session: &str, conflict: Option<Source>) {
        self.session = Some(session.to_owned());
        self.conflict = conflict;
        self.action = "wait";
    }

    pub(crate) fn who(&mut self, who: &Who) {
        self.who = who.clone();
    }

    pub(crate) fn granted(&mut self, lease: &Lease) {
        self.slots_seen = Some(Arc::clone(&lease.slots_seen));
        self.slot = lease.launch.slot().map(|slot| slot.0);
        self.has_waited(lease.waited);
        (self.action, self.evicted) = match &lease.action {
            Action::Home => ("home", None),
            Action::New => ("new", None),
            Action::Evict(session) => ("evict", Some(session.to_string())),
            Action::Spill(evicted) => ("spill", evicted.as_ref().map(ToString::to_string)),
            Action::Free => ("free", None),
            Action::Anonymous => ("anonymous", None),
        };
    }

    /// The session's id in its escaped form.
    pub(crate) fn session_shown(&self) -> Option<Cow<'_, str>> {
        maybe_escaped(&self.session)
    }

    /// `home`, `new`, `evict`, `spill`, `free`, `anonymous`, `wait` or `pass`.
    pub(crate) fn action(&self) -> &'static str {
        self.action
    }

    /// How long it was held back, also if it never got a slot.
    pub(crate) fn waited_ms(&self) -> u64 {
        let waiting = self.waiting_since.map(|since| since.elapsed()).unwrap_or_default();
        let waited = self.waited.unwrap_or_default().saturating_add(waiting);
        u64::try_from(waited.as_millis()).unwrap_or(u64::MAX)
    }

    /// It asks for a slot now, or for room at a server first.
    pub(crate) fn waits(&mut self) {
        self.waiting_since = Some(Instant::now());
    }

    fn has_waited(&mut self, waited: Option<Duration>) {
        self.waited = self.waited.into_iter().chain(waited).reduce(Duration::saturating_add);
        self.waiting_since = None;
    }

    /// It has a place at a server, where there are several.
    pub(crate) fn seated(&mut self, seat: &Seat) {
        let (Some(server), Some(why)) = (seat.name(), seat.why()) else { return };
        self.server = Some(Arc::clone(server));
        self.place = Some(match why {
            Why::Home => "home",
            Why::New => "new",
            Why::Moved { .. } => "moved",
            Why::Nobody => "nobody",
        });
        self.has_waited(seat.waited());
        self.passed_on = seat.member().slots.is_none();
        if self.passed_on {
            self.action = "sidecar";
        } else {
            // For a slot there.
            self.waits();
        }
    }

    /// A request that takes no slot goes to this server, where there are several.
    pub(crate) fn passes_to(&mut self, server: &Arc<str>) {
        self.server = Some(Arc::clone(server));
    }

    /// The server's name, where there are several.
    pub(crate) fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Its server is another router, whose word on slots stands.
    pub(crate) fn is_passed_on(&self) -> bool {
        self.passed_on
    }

    /// The server had lost so many tokens of its conversation.
    pub(crate) fn lost(&mut self, tokens: Option<u64>) {
        self.lost = tokens.or(self.lost);
    }

    /// What the server had lost, as far as it is known.
    pub(crate) fn tokens_lost(&self) -> Option<u64> {
        self.lost
    }

    pub(crate) fn status(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    /// The server ran the request.
    pub(crate) fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.is_success())
    }

    /// Where it runs, as far as it is known.
    pub(crate) fn ran_in(&mut self, slot: Option<SlotId>) {
        self.slot = slot.map(|slot| slot.0);
    }

    /// Its slot was filled with a saved state of so many tokens first.
    pub(crate) fn restored(&mut self, tokens: Option<u64>) {
        self.restored = tokens;
    }

    /// The slot used, if it is known.
    pub(crate) fn slot(&self) -> Option<u32> {
        self.slot
    }

    pub(crate) fn refused(&mut self, status: StatusCode, reason: &str) {
        self.status = Some(status);
        self.error = Some(reason.to_owned());
    }

    /// What went wrong first counts: the rest follows from it.
    pub(crate) fn failed(&mut self, reason: &str) {
        self.error.get_or_insert_with(|| reason.to_owned());
    }

    pub(crate) fn usage(&mut self, usage: Option<Usage>, slot: Option<u32>) {
        self.usage = usage;
        self.slot = slot.or(self.slot);
    }

    fn log(&self, status: u16) {
        let took_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let action = match &self.evicted {
            Some(session) => format!("{} {session}", self.action),
            None => self.action.to_owned(),
        };
        // Whatever comes from a client is written in its escaped form: control characters can't forge a line.
        let (agent_name, session) = (maybe_escaped(&self.who.agent_name), maybe_escaped(&self.session));
        let (client_type, asked_slot) =
            (maybe_escaped(&self.who.client_type), maybe_escaped(&self.asked_slot));
        let (parent, window) = (maybe_escaped(&self.who.parent), maybe_escaped(&self.who.window));
        info!(
            method = &*self.method,
            route = &*escaped(&self.route),
            agent_name = agent_name.as_deref(),
            agent_session_id = session.as_deref(),
            client_type = client_type.as_deref(),
            source = self.who.source.as_ref().map(tracing::field::display),
            conflict = self.conflict.as_ref().map(tracing::field::display),
            parent = parent.as_deref(),
            window = window.as_deref(),
            id_slot = asked_slot.as_deref(),
            slots = self.slots_seen.as_deref(),
            slot = self.slot,
            action = &*escaped(&action),
            waited_ms = self.waited_ms(),
            status,
            prompt_computed = self.usage.map(|usage| usage.computed),
            prompt_cached = self.usage.map(|usage| usage.cached),
            restored = self.restored,
            server = self.server.as_deref(),
            place = self.place,
            lost = self.lost,
            took_ms,
            error = self.error.as_deref(),
            "request"
        );
    }

    fn event(&mut self, status: u16) -> Event {
        Event {
            at: Utc::now(),
            method: std::mem::take(&mut self.method),
            route: std::mem::take(&mut self.route),
            agent_name: self.who.agent_name.take(),
            session: self.session.take(),
            client_type: self.who.client_type.take(),
            source: self.who.source.take().map(|source| source.to_string()),
            conflict: self.conflict.take().map(|source| source.to_string()),
            parent: self.who.parent.take(),
            window: self.who.window.take(),
            asked_slot: self.asked_slot.take(),
            slots_seen: self.slots_seen.take().map(|seen| seen.to_string()),
            slot: self.slot,
            action: self.action.to_owned(),
            evicted: self.evicted.take(),
            waited_ms: self.waited_ms(),
            status,
            computed: self.usage.map(|usage| usage.computed),
            cached: self.usage.map(|usage| usage.cached),
            restored: self.restored,
            server: self.server.take().map(|server| server.to_string()),
            lost: self.lost,
            error: self.error.take(),
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // As nginx writes it: the client left before it got an answer.
        let status = self.status.map_or(499, |status| status.as_u16());
        if self.status.is_none() && self.error.is_none() {
            self.error = Some("the client left".to_owned());
        }
        self.log(status);
        let event = self.event(status);
        self.store.record(Write::Event(Box::new(event)));
    }
}

fn maybe_escaped(text: &Option<String>) -> Option<Cow<'_, str>> {
    text.as_deref().map(escaped)
}

/// Control characters, quotes, backslashes and the like in their `\x` form, so that a line stays a line.
fn escaped(text: &str) -> Cow<'_, str> {
    if text.chars().any(|character| character.is_control() || is_line_breaking(character)) {
        text.escape_default().to_string().into()
    } else {
        text.into()
    }
}

/// Unicode's line separators and the marks that reorder text on a terminal.
fn is_line_breaking(character: char) -> bool {
    matches!(character, '\u{2028}' | '\u{2029}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn control_characters_and_line_separators_are_escaped() {
        assert_eq!(escaped("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
        assert_eq!(escaped("a\u{2028}b"), "a\\u{2028}b");
    }

    #[test]
    fn ordinary_text_of_any_language_stays_readable() {
        assert_eq!(escaped("Sitzung \u{fc} 7"), "Sitzung \u{fc} 7");
    }
}
