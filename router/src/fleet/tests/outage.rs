//! Ten minutes without one of three servers, under load, in virtual time: whoever has not been told a word yet is answered
//! by another server, and the one that comes back is used again.

use std::time::{Duration, Instant};

use super::stage::{A, B, C, Stage, complete, elsewhere, policy, sized, spec};
use crate::fleet::{Ask, Budget, Ended, KvSetting, Placed, Policy, Ticket};
use crate::random::Random;

const AGENTS: usize = 24;
/// An agent begins another conversation after so many turns: those that have a home stay there.
const TURNS: u64 = 12;
/// Of each server, in tokens: enough for all turns on three servers, and too little on two.
const POOL: u64 = 40_000;
const POLLED_EVERY: Duration = Duration::from_secs(5);

/// Seconds since the start.
const DIES: u64 = 60;
const LOADS: u64 = 660;
const IS_BACK: u64 = 670;
const ENDS: u64 = 720;

#[derive(Debug, Clone, Copy)]
enum Doing {
    Thinks {
        until: Instant,
    },
    /// For room; `moved`: its server has failed it.
    Waits {
        ticket: Ticket,
        moved: bool,
    },
    Flies {
        placed: Placed,
        moved: bool,
        word: Instant,
        end: Instant,
    },
}

struct Agent {
    doing: Doing,
    turns: u64,
    characters: u64,
    cached: u64,
}

struct Outage {
    stage: Stage,
    random: Random,
    begun: Instant,
    agents: Vec<Agent>,
    polled: Instant,
    /// Failed after their first word: nobody can take that back.
    cut: u64,
    /// Failed before it, and were sent again.
    sent_again: u64,
    /// Whole answers of the server that was away, since it is back.
    back: u64,
}

impl Outage {
    fn new(seed: u64) -> Self {
        let policy = Policy { budget: Budget { max_waiting: 64, ..policy().budget }, ..policy() };
        let stage = Stage::of(policy, vec![spec(KvSetting::Shared); 3]);
        let stage = [A, B, C].into_iter().fold(stage, |stage, server| stage.knowing(server, 4, POOL));
        let (begun, mut random) = (stage.now, Random(seed));
        let agents = (0..AGENTS).map(|_| {
            let until = begun + Duration::from_millis(random.below(3000) as u64);
            Agent { doing: Doing::Thinks { until }, turns: 0, characters: 0, cached: 0 }
        });
        let agents = agents.collect();
        Self { stage, random, begun, agents, polled: begun, cut: 0, sent_again: 0, back: 0 }
    }

    fn at(&self, second: u64) -> Instant {
        self.begun + Duration::from_secs(second)
    }

    fn is_between(&self, from: u64, until: u64) -> bool {
        (self.at(from)..self.at(until)).contains(&self.stage.now)
    }

    /// From one event to the next until nobody is at work any more.
    fn run(&mut self) {
        while let Some(next) = self.next_event() {
            let alive = self.stage.now < self.at(DIES);
            self.stage.now = next;
            if alive && next >= self.at(DIES) {
                self.die();
            }
            if next >= self.polled + POLLED_EVERY {
                self.poll();
            }
            self.stage.fleet.tick(next);
            self.stage.hear();
            (0..AGENTS).for_each(|agent| self.go_on(agent));
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let due = |agent: &Agent| match agent.doing {
            Doing::Thinks { until } => (until < self.at(ENDS)).then_some(until),
            Doing::Flies { end, .. } => Some(end),
            Doing::Waits { .. } => None,
        };
        let is_over =
            |agent: &Agent| matches!(agent.doing, Doing::Thinks { until } if until >= self.at(ENDS));
        if self.agents.iter().all(is_over) {
            return None;
        }
        let world = [DIES, LOADS, IS_BACK].map(|second| self.at(second)).into_iter();
        let world = world.filter(|at| *at > self.stage.now).chain([self.polled + POLLED_EVERY]);
        self.agents.iter().filter_map(due).chain(world).chain(self.stage.fleet.next_due()).min()
    }

    /// All that runs there ends, well begun or not.
    fn die(&mut self) {
        for agent in 0..AGENTS {
            if let Doing::Flies { placed, moved, word, .. } = self.agents[agent].doing
                && placed.server == B
            {
                self.fail(agent, placed, moved, Ended::Broken, word <= self.stage.now);
            }
        }
    }

    fn poll(&mut self) {
        self.polled = self.stage.now;
        let (fleet, now) = (&mut self.stage.fleet, self.stage.now);
        match now.duration_since(self.begun).as_secs() {
            DIES..LOADS => fleet.unreachable(B, now),
            LOADS..IS_BACK => fleet.loading(B, now),
            _ => fleet.reached(B, now),
        }
        self.stage.hear();
    }

    fn go_on(&mut self, agent: usize) {
        match self.agents[agent].doing {
            Doing::Thinks { until } if until <= self.stage.now && until < self.at(ENDS) => self.speak(agent),
            Doing::Flies { placed, end, .. } if end <= self.stage.now => self.complete(agent, placed),
            Doing::Waits { ticket, moved } => self.look(agent, ticket, moved),
            _ => {}
        }
    }

    fn speak(&mut self, agent: usize) {
        let of = &mut self.agents[agent];
        if of.turns.is_multiple_of(TURNS) {
            (of.characters, of.cached) = (2000, 0);
        }
        of.turns += 1;
        of.characters += 500 + self.random.below(3000) as u64;
        self.ask(agent, self.ask_of(agent), false);
    }

    fn ask_of(&self, agent: usize) -> Ask {
        let of = &self.agents[agent];
        let session = (agent as u64 * 1000 + of.turns.div_ceil(TURNS)).into();
        Ask { characters: of.characters, max_output: None, ..sized(session, 0) }
    }

    fn ask(&mut self, agent: usize, ask: Ask, moved: bool) {
        let ticket = self.stage.ask(ask);
        self.agents[agent].doing = Doing::Waits { ticket, moved };
        self.look(agent, ticket, moved);
    }

    /// Whether there is room now.
    fn look(&mut self, agent: usize, ticket: Ticket, moved: bool) {
        assert!(!self.stage.refused.contains_key(&ticket), "{:?}", self.stage.refused.get(&ticket));
        let Some(placed) = self.stage.placed.remove(&ticket) else { return };
        if placed.server == B && self.is_between(DIES, LOADS) {
            return self.fail(agent, placed, moved, Ended::Broken, false);
        }
        if placed.server == B && self.is_between(LOADS, IS_BACK) {
            return self.fail(agent, placed, moved, Ended::NotReady, false);
        }
        self.stage.began(ticket);
        let word = self.stage.now + Duration::from_millis(50 + self.random.below(3000) as u64);
        let end = word + Duration::from_millis(self.random.below(8000) as u64);
        self.agents[agent].doing = Doing::Flies { placed, moved, word, end };
    }

    fn fail(&mut self, agent: usize, placed: Placed, moved: bool, how: Ended, begun: bool) {
        self.stage.end(placed.ticket, how);
        if begun {
            self.cut += 1;
            return self.think(agent);
        }
        assert!(!moved, "a turn without a word has failed twice, at {:?}", self.stage.now - self.begun);
        self.sent_again += 1;
        self.ask(agent, elsewhere(self.ask_of(agent), placed.server), true);
    }

    fn complete(&mut self, agent: usize, placed: Placed) {
        let prompt = self.agents[agent].characters * 2 / 7;
        let generated = 20 + self.random.below(300) as u64;
        self.stage.end(placed.ticket, complete(prompt, self.agents[agent].cached, generated));
        self.agents[agent].cached = prompt + generated;
        self.back += u64::from(placed.server == B && self.stage.now >= self.at(IS_BACK));
        self.think(agent);
    }

    fn think(&mut self, agent: usize) {
        let until = self.stage.now + Duration::from_millis(500 + self.random.below(4000) as u64);
        self.agents[agent].doing = Doing::Thinks { until };
    }
}

#[test]
fn ten_minutes_without_one_of_three_servers_fail_no_turn_that_has_not_said_a_word() {
    for seed in 1..=4 {
        let mut outage = Outage::new(seed);
        outage.run();
        assert!(outage.cut > 0 && outage.sent_again > 0, "seed {seed}: nothing ran there when it died");
        assert!(outage.back > 0, "seed {seed}: it is not used again");
        assert!(outage.stage.fleet.loads().iter().all(|load| load.in_flight == 0 && load.reserved == 0));
        let waits = [A, B, C].map(|server| outage.stage.status(server).waits);
        assert!(waits.iter().sum::<u64>() > 0, "seed {seed}: two servers should be too few for all at once");
    }
}
