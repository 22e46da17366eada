//! Which server a request goes to: its conversation's home, or the one with the fewest conversations; and none beyond what
//! its memory holds.
//!
//! Pure: inputs and `now` go in, [`Output`]s come out. One server's slots are the business of [`slots`](crate::slots).

mod ask;
mod breaker;
mod budget;
mod end;
mod estimate;
mod health;
mod homes;
mod invariants;
pub mod kv;
mod line;
mod models;
pub mod naming;
mod placement;
mod server;
mod snapshot;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use health::Health;
pub use health::State as ServerState;
use homes::{Homes, Left};
use line::{Line, Seeker, Turn};
use models::Models;
use placement::Tally;
use server::Server;
pub use snapshot::ServerSnapshot;
pub use types::{
    Affinity, Again, Ask, Budget, CHARACTERS_PER_TOKEN, Counts, Eligible, Ended, Facts, Key, Kv, KvSetting,
    Load, Output, Placed, Placement, Policy, Refusal, ServerId, ServerSpec, Ticket, Why,
};

/// The servers, and which conversation lives where.
#[derive(Debug)]
pub struct Fleet {
    policy: Policy,
    models: Models,
    /// By server, as the next two.
    health: Vec<Health>,
    tallies: Vec<Tally>,
    servers: Vec<Server>,
    homes: Homes,
    /// Every attempt that isn't over.
    attempts: HashMap<Ticket, Attempt>,
    /// Who waits for room, at the servers where somebody does.
    lines: BTreeMap<ServerId, Line>,
    /// Whose turn it was last.
    last_picked: Option<ServerId>,
    last_ticket: u64,
    outputs: Vec<Output>,
}

/// How far an attempt has come.
#[derive(Debug)]
enum Attempt {
    /// It stands in that server's line.
    Waits(ServerId),
    /// It is in flight.
    Sent(Sent),
}

/// A turn in flight.
#[derive(Debug)]
struct Sent {
    key: Option<Key>,
    server: ServerId,
    /// Of text in its request.
    characters: u64,
    /// Tokens that it is expected to take, as far as there was room for them.
    counts: u64,
    /// What it should find there.
    expects: Option<Left>,
}

impl Fleet {
    /// A fleet of which nothing is known yet but its configuration.
    #[must_use]
    pub fn new(policy: Policy, servers: Vec<ServerSpec>) -> Self {
        Self {
            models: Models::new(servers.len()),
            health: servers.iter().map(|_| Health::default()).collect(),
            tallies: servers.iter().map(Tally::new).collect(),
            homes: Homes::new(policy.affinity, servers.len()),
            servers: servers.into_iter().map(Server::new).collect(),
            attempts: HashMap::new(),
            lines: BTreeMap::new(),
            last_picked: None,
            last_ticket: 0,
            outputs: Vec::new(),
            policy,
        }
    }

    /// A request asks for a server: it is placed or refused at once, or waits for room. The outputs tell.
    pub fn ask(&mut self, ask: Ask, now: Instant) -> Ticket {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.homes.expire(now);
        if let Some(key) = ask.key {
            self.homes.wake(key, now);
        }
        self.seek(Seeker::new(ticket, ask, now), now);
        self.check_invariants(now);
        ticket
    }

    /// The server has begun to answer, with a status that is no fault of its own.
    pub fn began(&mut self, ticket: Ticket, now: Instant) {
        if let Some(Attempt::Sent(Sent { server, .. })) = self.attempts.get(&ticket) {
            let server = *server;
            self.works(server);
            self.serve_line(server, now);
            self.check_invariants(now);
        }
    }

    /// An attempt is over, whether it was placed or still waited. How many tokens of its conversation the server had lost,
    /// if it went home and found less than it had left. A ticket that is over already is ignored.
    ///
    /// A client that has changed how its conversation begins looks the same as a server that has lost it.
    pub fn ended(&mut self, ticket: Ticket, how: Ended, now: Instant) -> Option<u64> {
        let lost = self.end(ticket, how, now);
        self.homes.expire(now);
        self.check_invariants(now);
        lost
    }

    /// How many tokens of its conversation the server of an attempt has lost, as far as an answer tells that goes on.
    #[must_use]
    pub fn lost_so_far(&self, ticket: Ticket, counts: Counts) -> Option<u64> {
        match self.attempts.get(&ticket)? {
            Attempt::Sent(sent) => sent.expects?.lost(counts.bounded()),
            Attempt::Waits(_) => None,
        }
    }

    /// A server was asked how it is, and is well. One that was broken still has to show it with a turn.
    pub fn reached(&mut self, server: ServerId, now: Instant) {
        self.health[server.index()].heard(false);
        self.health[server.index()].breaker.reached(now);
        self.serve_line(server, now);
        self.check_invariants(now);
    }

    /// A server was asked how it is, and can't be reached.
    pub fn unreachable(&mut self, server: ServerId, now: Instant) {
        let pause = self.health[server.index()].breaker.unreachable(now);
        self.opened(server, pause);
        self.servers[server.index()].went_away();
        self.serve_line(server, now);
        self.check_invariants(now);
    }

    /// A server has failed a turn that another one could serve.
    pub fn failed_alone(&mut self, server: ServerId, now: Instant) {
        self.failed(server, now);
        self.serve_line(server, now);
        self.check_invariants(now);
    }

    /// A server loads its model.
    pub fn loading(&mut self, server: ServerId, now: Instant) {
        self.health[server.index()].heard(true);
        self.servers[server.index()].went_away();
        self.serve_line(server, now);
        self.check_invariants(now);
    }

    /// A server has not answered for a while when it was asked how it is. The turns that are there stay.
    pub fn silent(&mut self, server: ServerId, now: Instant) {
        self.health[server.index()].silent = true;
        self.serve_line(server, now);
        self.check_invariants(now);
    }

    /// More is known of a server. What `facts` leaves out stays as it was.
    pub fn learned(&mut self, server: ServerId, facts: Facts, now: Instant) {
        self.servers[server.index()].learn(&facts);
        self.tallies[server.index()].learn(self.servers[server.index()].facts.slots);
        if let Some(models) = facts.models {
            self.models.learn(server, models);
        }
        self.serve_line(server, now);
        self.check_invariants(now);
    }

    /// Other routers have turns in flight at `server`.
    #[must_use]
    pub fn others_are_at(&self, server: ServerId) -> bool {
        self.tallies[server.index()].others.in_flight > 0
    }

    /// What the other routers have at the servers, by [`ServerId`]: replaces what was said before.
    pub fn others(&mut self, loads: &[Load], now: Instant) {
        for (index, tally) in self.tallies.iter_mut().enumerate() {
            tally.others = loads.get(index).copied().unwrap_or_default().bounded();
        }
        self.serve_lines(now);
        self.check_invariants(now);
    }

    /// What this router has at the servers, by [`ServerId`].
    #[must_use]
    pub fn loads(&self) -> Vec<Load> {
        let of = |(index, tally): (usize, &Tally)| Load {
            live: self.homes.live(ServerId(index as u32)),
            in_flight: tally.busy,
            reserved: self.servers[index].expected,
        };
        self.tallies.iter().enumerate().map(of).collect()
    }

    /// Where a conversation lived when it was last heard of, in an earlier run. Called with the oldest first.
    pub fn remember(&mut self, key: Key, home: ServerId, last_used: Instant) {
        if home.index() < self.servers.len() {
            self.homes.remember(key, home, last_used);
        }
    }

    /// Where a conversation lives.
    #[must_use]
    pub fn home(&self, key: Key, now: Instant) -> Option<ServerId> {
        self.homes.home(key, now)
    }

    /// Whether a server gets turns.
    #[must_use]
    pub fn state(&self, server: ServerId, now: Instant) -> ServerState {
        self.health[server.index()].state(now)
    }

    /// A server for what is no turn: one that is up, or at least one that could serve it then. `None`: none has its model.
    #[must_use]
    pub fn able(&self, of: &Eligible, now: Instant) -> Option<ServerId> {
        let candidates = self.models.candidates(of);
        let is_up = |server: &&ServerId| self.state(**server, now) == ServerState::Up;
        candidates.iter().find(is_up).or(candidates.first()).copied()
    }

    /// Refuses everyone who waits.
    pub fn refuse_all(&mut self, why: Refusal) {
        let waiting: Vec<_> = self.lines.values().flat_map(Line::all).map(Turn::when_and_where).collect();
        for (since, ticket, server) in waiting {
            self.turn_away(ticket, server, why, since);
        }
    }

    /// Every name of every model, sorted.
    #[must_use]
    pub fn models(&self) -> Vec<String> {
        self.models.names()
    }

    /// What has to be done, in order; each is told once.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// When [`Fleet::tick`] has to be called, if nothing happens before.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let relief = self.lines.keys().filter_map(|server| {
            let idle = self.tallies[server.index()].requests == 0;
            self.servers[server.index()].overflow.filter(|_| idle).map(|overflow| overflow.until)
        });
        relief.chain(self.homes.next_expiry()).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Instant) {
        self.homes.expire(now);
        self.serve_lines(now);
        self.check_invariants(now);
    }

    fn serve_lines(&mut self, now: Instant) {
        let waited_for: Vec<ServerId> = self.lines.keys().copied().collect();
        waited_for.into_iter().for_each(|server| self.serve_line(server, now));
    }

    fn takes_turns(&self, server: ServerId, now: Instant) -> bool {
        self.health[server.index()].takes_turns(now)
    }
}
