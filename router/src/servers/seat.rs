//! One attempt of one request at one server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Member, Servers};
use crate::fleet::{Again, Counts, Ended, Key, Placed, ServerId, Why};
use crate::usage::Usage;

/// No answer tells of more tokens, whatever it says; sums of these never run over.
const MOST: u64 = 1 << 40;

/// A place at one server, for one attempt. Ends exactly once: as one of its methods says, or when it is dropped, which
/// means that its client has left or that it was never sent.
#[derive(Debug)]
pub(crate) struct Seat {
    servers: Arc<Servers>,
    server: ServerId,
    /// `None`: there is only one server, so there is nothing to keep.
    taken: Option<Taken>,
}

#[derive(Debug)]
struct Taken {
    placed: Placed,
    /// When the request first asked for a server.
    since: Instant,
    waited: Option<Duration>,
    begun: Instant,
    /// Its conversation, if other routers know of its home.
    shared: Option<Key>,
    over: bool,
}

impl Seat {
    /// At the only server there is.
    pub(super) fn only(servers: &Arc<Servers>) -> Self {
        Self { servers: Arc::clone(servers), server: ServerId(0), taken: None }
    }

    pub(super) fn new(servers: &Arc<Servers>, placed: Placed, since: Instant, asked: Instant) -> Self {
        let begun = Instant::now();
        let waited = placed.waited.then(|| begun.saturating_duration_since(asked));
        servers.member(placed.server).seats.fetch_add(1, Ordering::Relaxed);
        let taken = Taken { placed, since, waited, begun, shared: None, over: false };
        Self { servers: Arc::clone(servers), server: placed.server, taken: Some(taken) }
    }

    /// The same; where this conversation lives is shared with other routers.
    pub(super) fn of_shared(mut self, key: Key) -> Self {
        if let Some(taken) = &mut self.taken {
            taken.shared = Some(key);
        }
        self
    }

    pub(crate) fn server(&self) -> ServerId {
        self.server
    }

    pub(crate) fn member(&self) -> &Member {
        self.servers.member(self.server)
    }

    /// The server's name, where there are several.
    pub(crate) fn name(&self) -> Option<&Arc<str>> {
        self.taken.as_ref().map(|_| &self.member().name)
    }

    /// Why it is at this server, where there are several.
    pub(crate) fn why(&self) -> Option<Why> {
        self.taken.as_ref().map(|taken| taken.placed.why)
    }

    /// How long the request waited for room.
    pub(crate) fn waited(&self) -> Option<Duration> {
        self.taken.as_ref().and_then(|taken| taken.waited)
    }

    /// The server has begun to answer, with a status that is no fault of its own.
    pub(crate) fn began(&self) {
        let Some(taken) = &self.taken else { return };
        self.servers.change(|state| state.fleet.began(taken.placed.ticket, Instant::now()));
    }

    /// How many tokens of its conversation the server had lost, as far as an answer tells that goes on.
    pub(crate) fn lost(&self, usage: Usage) -> Option<u64> {
        let ticket = self.taken.as_ref()?.placed.ticket;
        self.servers.change(|state| state.fleet.lost_so_far(ticket, counts(usage)))
    }

    /// The server ran the request. How many tokens of its conversation it had lost.
    pub(crate) fn complete(mut self, usage: Option<Usage>) -> Option<u64> {
        self.end(Ended::Complete { counts: usage.map(counts) })
    }

    /// The server answered with an error of the client's.
    pub(crate) fn declined(mut self) {
        self.end(Ended::Declined);
    }

    /// The server's memory was full.
    pub(crate) fn full(mut self) -> Option<Again> {
        let taken = self.taken.as_ref();
        let again = taken.map(|taken| Again::Full {
            server: self.server,
            reserved: taken.placed.reserved,
            since: taken.since,
        });
        self.end(Ended::Full);
        again
    }

    /// The connection or the server broke. Where it may be tried again, if there are several.
    pub(crate) fn broken(self) -> Option<Again> {
        self.elsewhere(Ended::Broken)
    }

    /// The server broke, or the request is at fault. Where that shows, if there are several.
    pub(crate) fn doubtful(self) -> Option<Again> {
        self.elsewhere(Ended::Doubtful)
    }

    /// The server is not ready.
    pub(crate) fn not_ready(self) -> Option<Again> {
        self.elsewhere(Ended::NotReady)
    }

    fn elsewhere(mut self, how: Ended) -> Option<Again> {
        let again = self.taken.as_ref().map(|_| Again::Elsewhere { not: self.server });
        self.end(how);
        again
    }

    fn end(&mut self, how: Ended) -> Option<u64> {
        let taken = self.taken.as_mut().filter(|taken| !taken.over)?;
        taken.over = true;
        let (ticket, took) = (taken.placed.ticket, taken.begun.elapsed());
        if let Some(key) = taken.shared {
            self.servers.rested(key);
        }
        self.servers.member(self.server).seats.fetch_sub(1, Ordering::Relaxed);
        self.servers.change(|state| {
            if matches!(how, Ended::Complete { .. }) {
                state.pace.ran(took);
            }
            state.fleet.ended(ticket, how, Instant::now())
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.end(Ended::Left);
    }
}

fn counts(usage: Usage) -> Counts {
    let [prompt, cached, generated] =
        [usage.prompt(), usage.cached, usage.generated].map(|tokens| tokens.min(MOST));
    Counts { prompt, cached, generated }
}
