//! The servers of the simulation as they really are, and what has been said about them.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::stage::complete;
use crate::fleet::{Ask, Eligible, Ended, Facts, Key, Placed, ServerId, Ticket};
use crate::random::Random;

/// What becomes of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Well,
    Full,
    Loading,
    Dead,
}

pub(super) struct World {
    pub(super) servers: Vec<Server>,
    turns: HashMap<Ticket, Turn>,
}

pub(super) struct Server {
    pub(super) slots: u32,
    pub(super) pool: u64,
    /// Its memory is shared, whatever is said of it.
    pub(super) shares: bool,
    says_so: bool,
    health: Answer,
    models: Vec<String>,
    /// The fleet has heard that it loads.
    pub(super) known_loading: bool,
    /// Its breaker is not closed: until when it is open, and which turns were sent since.
    broken: Option<(Instant, HashSet<Ticket>)>,
    /// The fleet could not ask it how it is, and has not been able to since.
    silent: bool,
    /// It has dropped what it held, some time.
    dropped: bool,
    /// Tokens of each conversation.
    holds: HashMap<Key, u64>,
}

struct Turn {
    server: ServerId,
    prompt: u64,
    output: u64,
    answer: Answer,
}

impl World {
    pub(super) fn new(servers: usize, random: &mut Random) -> Self {
        let server = |_| Server {
            slots: 1 + random.below(4) as u32,
            pool: 8_000 + random.below(20_000) as u64,
            shares: random.below(2) == 0,
            says_so: random.below(2) == 0,
            health: Answer::Well,
            models: ["model", "odd"][..1 + random.below(2)].iter().map(|name| (*name).to_owned()).collect(),
            known_loading: false,
            broken: None,
            silent: false,
            dropped: false,
            holds: HashMap::new(),
        };
        Self { servers: (0..servers).map(server).collect(), turns: HashMap::new() }
    }

    pub(super) fn facts(&self, id: u32) -> Facts {
        let server = &self.servers[id as usize];
        Facts {
            slots: Some(server.slots),
            context: Some(server.pool),
            shared: server.says_so.then_some(server.shares),
            models: Some(server.models.clone()),
        }
    }

    pub(super) fn is_eligible(&self, id: ServerId, of: &Eligible) -> bool {
        match of {
            Eligible::Any => true,
            Eligible::Only(server) => *server == id,
            Eligible::Model(name) => self.servers[id.index()].models.iter().any(|model| **model == **name),
        }
    }

    /// As the fleet should see it.
    pub(super) fn takes_turns(&self, id: ServerId, now: Instant) -> bool {
        let server = &self.servers[id.index()];
        let tried = |since: &HashSet<Ticket>| since.iter().any(|ticket| self.turns.contains_key(ticket));
        let broken = server.broken.as_ref().is_some_and(|(until, since)| now < *until || tried(since));
        !server.known_loading && !broken
    }

    pub(super) fn opened(&mut self, id: ServerId, until: Instant) {
        let server = &mut self.servers[id.index()];
        server.broken = Some((until, HashSet::new()));
        server.silent = false;
    }

    pub(super) fn unreachable(&mut self, id: ServerId) {
        self.servers[id.index()].silent = true;
    }

    pub(super) fn closed(&mut self, id: ServerId) {
        let server = &mut self.servers[id.index()];
        server.broken = None;
        server.silent = false;
    }

    /// A turn gets there. What it really takes is up to a fifth more or less than a character count tells.
    pub(super) fn sent(&mut self, placed: &Placed, ask: &Ask, random: &mut Random) {
        let prompt = ask.characters * 10 / (28 + random.below(15) as u64);
        let output = (20 + random.below(600) as u64).min(ask.max_output.unwrap_or(u64::MAX));
        let server = &mut self.servers[placed.server.index()];
        if let Some((_, since)) = &mut server.broken {
            since.insert(placed.ticket);
        }
        let here = self.turns.values().filter(|turn| turn.server == placed.server);
        let taken: u64 =
            here.filter(|turn| turn.answer == Answer::Well).map(|turn| turn.prompt + turn.output).sum();
        let overflows = server.shares && taken + prompt + output > server.pool;
        let answer = if overflows && server.health == Answer::Well { Answer::Full } else { server.health };
        self.turns.insert(placed.ticket, Turn { server: placed.server, prompt, output, answer });
    }

    pub(super) fn answer(&self, ticket: Ticket) -> Answer {
        self.turns[&ticket].answer
    }

    pub(super) fn over(&mut self, ticket: Ticket) {
        self.turns.remove(&ticket);
    }

    pub(super) fn complete(&mut self, placed: &Placed, ask: &Ask) -> Ended {
        let turn = &self.turns[&placed.ticket];
        let (prompt, output) = (turn.prompt, turn.output);
        let Some(key) = ask.key else { return complete(prompt, 0, output) };
        let holds = self.servers[placed.server.index()].holds.entry(key).or_default();
        let cached = prompt.min(*holds);
        *holds = (prompt + output).max(*holds);
        complete(prompt, cached, output)
    }

    pub(super) fn has_dropped(&self, placed: &Placed) -> bool {
        self.servers[placed.server.index()].dropped
    }

    pub(super) fn die(&mut self, id: ServerId) {
        self.servers[id.index()].health = Answer::Dead;
        self.turns.values_mut().filter(|turn| turn.server == id).for_each(|turn| turn.answer = Answer::Dead);
        self.drop_kv(id);
    }

    /// A dead server loads, one that loads is ready.
    pub(super) fn restart(&mut self, id: ServerId) {
        let health = &mut self.servers[id.index()].health;
        *health = if *health == Answer::Dead { Answer::Loading } else { Answer::Well };
    }

    pub(super) fn revive(&mut self, id: ServerId) {
        self.servers[id.index()].health = Answer::Well;
    }

    pub(super) fn drop_kv(&mut self, id: ServerId) {
        let server = &mut self.servers[id.index()];
        server.holds.clear();
        server.dropped = true;
    }

    /// What a poll hears.
    pub(super) fn poll(&mut self, id: ServerId, now: Instant) -> Answer {
        let server = &mut self.servers[id.index()];
        match server.health {
            Answer::Dead => {}
            health => server.known_loading = health == Answer::Loading,
        }
        if !matches!(server.health, Answer::Dead | Answer::Loading)
            && std::mem::take(&mut server.silent)
            && let Some((until, _)) = &mut server.broken
        {
            *until = now.min(*until);
        }
        server.health
    }
}
