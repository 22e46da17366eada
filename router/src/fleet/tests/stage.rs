//! A fleet, its clock, and short words for what happens on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fleet::{
    Affinity, Again, Ask, Budget, Counts, Eligible, Ended, Facts, Fleet, Key, KvSetting, Output, Placed,
    Placement, Policy, Refusal, ServerId, ServerSnapshot, ServerSpec, Ticket,
};

pub(super) const A: ServerId = ServerId(0);
pub(super) const B: ServerId = ServerId(1);
pub(super) const C: ServerId = ServerId(2);

pub(super) struct Stage {
    pub(super) fleet: Fleet,
    pub(super) now: Instant,
    pub(super) placed: HashMap<Ticket, Placed>,
    pub(super) refused: HashMap<Ticket, Refusal>,
    /// What else was said.
    pub(super) said: Vec<Output>,
}

pub(super) fn policy() -> Policy {
    Policy {
        placement: Placement::Spread,
        affinity: Affinity { enabled: true, ttl: Duration::from_secs(1800), max_sessions: 64 },
        budget: Budget {
            enabled: true,
            share: 0.9,
            patience: Duration::from_secs(20),
            retries: 3,
            max_waiting: 4,
        },
    }
}

pub(super) fn spec(kv: KvSetting) -> ServerSpec {
    ServerSpec { name: Arc::from("server"), weight: 1.0, kv, budget_tokens: None }
}

/// An answer with so many tokens in all.
pub(super) fn complete(prompt: u64, cached: u64, generated: u64) -> Ended {
    Ended::Complete { counts: Some(Counts { prompt, cached, generated }) }
}

/// A request of a conversation, with no text and no answer to speak of.
pub(super) fn of(key: u128) -> Ask {
    Ask {
        key: Some(Key(key)),
        home: None,
        of: Eligible::Any,
        characters: 0,
        max_output: Some(0),
        answers: 1,
        again: None,
    }
}

/// A request of no conversation.
pub(super) fn nobody() -> Ask {
    Ask { key: None, ..of(0) }
}

/// A request of a new conversation that takes just so many tokens.
pub(super) fn sized(key: u128, tokens: u64) -> Ask {
    Ask { characters: tokens * 7 / 2, ..of(key) }
}

pub(super) fn elsewhere(ask: Ask, not: ServerId) -> Ask {
    Ask { again: Some(Again::Elsewhere { not }), ..ask }
}

impl Stage {
    pub(super) fn of(policy: Policy, servers: Vec<ServerSpec>) -> Self {
        let fleet = Fleet::new(policy, servers);
        Self { fleet, now: Instant::now(), placed: HashMap::new(), refused: HashMap::new(), said: Vec::new() }
    }

    /// So many servers with divided memory and two slots each.
    pub(super) fn with(servers: usize) -> Self {
        Self::under(policy(), servers)
    }

    pub(super) fn under(policy: Policy, servers: usize) -> Self {
        let mut stage = Self::of(policy, vec![spec(KvSetting::Divided); servers]);
        (0..servers as u32).for_each(|server| stage.slots(ServerId(server), 2));
        stage
    }

    /// One server with four slots that share so many tokens.
    pub(super) fn sharing(pool: u64) -> Self {
        Self::of(policy(), vec![spec(KvSetting::Shared)]).knowing(A, 4, pool)
    }

    pub(super) fn knowing(mut self, server: ServerId, slots: u32, context: u64) -> Self {
        let facts = Facts { slots: Some(slots), context: Some(context), ..Facts::default() };
        self.fleet.learned(server, facts, self.now);
        self
    }

    pub(super) fn slots(&mut self, server: ServerId, slots: u32) {
        self.fleet.learned(server, Facts { slots: Some(slots), ..Facts::default() }, self.now);
    }

    pub(super) fn models(&mut self, server: ServerId, models: &[&str]) {
        let models = Some(models.iter().map(|model| (*model).to_owned()).collect());
        self.fleet.learned(server, Facts { models, ..Facts::default() }, self.now);
    }

    pub(super) fn ask(&mut self, ask: Ask) -> Ticket {
        let ticket = self.fleet.ask(ask, self.now);
        self.hear();
        ticket
    }

    /// Asks, and is placed at once.
    pub(super) fn go(&mut self, ask: Ask) -> Placed {
        let ticket = self.ask(ask);
        *self.placed.get(&ticket).unwrap_or_else(|| panic!("placed at once: {:?}", self.refused.get(&ticket)))
    }

    /// A whole turn that tells nothing. Where it was.
    pub(super) fn turn(&mut self, ask: Ask) -> Placed {
        let placed = self.go(ask);
        self.end(placed.ticket, Ended::Complete { counts: None });
        placed
    }

    pub(super) fn end(&mut self, ticket: Ticket, how: Ended) -> Option<u64> {
        let lost = self.fleet.ended(ticket, how, self.now);
        self.hear();
        lost
    }

    pub(super) fn began(&mut self, ticket: Ticket) {
        self.fleet.began(ticket, self.now);
        self.hear();
    }

    /// A turn that was sent there breaks.
    pub(super) fn breaks(&mut self, server: ServerId) {
        let placed = self.go(Ask { of: Eligible::Only(server), ..nobody() });
        self.end(placed.ticket, Ended::Broken);
    }

    /// It can't be asked how it is.
    pub(super) fn unreachable(&mut self, server: ServerId) {
        self.fleet.unreachable(server, self.now);
        self.hear();
    }

    /// It was asked how it is, and is well.
    pub(super) fn reached(&mut self, server: ServerId) {
        self.fleet.reached(server, self.now);
        self.hear();
    }

    pub(super) fn wait(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
        self.fleet.tick(self.now);
        self.hear();
    }

    pub(super) fn waits(&self, ticket: Ticket) -> bool {
        !self.placed.contains_key(&ticket) && !self.refused.contains_key(&ticket)
    }

    pub(super) fn went(&self, ticket: Ticket) -> Option<ServerId> {
        self.placed.get(&ticket).map(|placed| placed.server)
    }

    pub(super) fn home(&self, key: u128) -> Option<ServerId> {
        self.fleet.home(Key(key), self.now)
    }

    pub(super) fn status(&self, server: ServerId) -> ServerSnapshot {
        self.fleet.snapshot(self.now).swap_remove(server.index())
    }

    pub(super) fn hear(&mut self) {
        for output in self.fleet.take_outputs() {
            match output {
                Output::Placed(placed) => {
                    let before = self.placed.insert(placed.ticket, placed);
                    assert!(before.is_none() && !self.refused.contains_key(&placed.ticket), "told once");
                }
                Output::Refused { ticket, why } => {
                    let before = self.refused.insert(ticket, why);
                    assert!(before.is_none() && !self.placed.contains_key(&ticket), "told once");
                }
                other => self.said.push(other),
            }
        }
    }
}
