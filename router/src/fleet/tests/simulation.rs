//! Thousands of seeded random schedules: requests that come, leave, are tried again; servers that fill up, die, restart,
//! load, drop what they hold; other routers; time that passes.
//!
//! The servers are in `world`, which knows better than the fleet what they really hold. This file checks from outside: a
//! conversation returns home unless one of the reasons in the rules holds, no server gets a turn while its breaker is open
//! and only one while it is half-open, no budget is exceeded but by what an estimate was too low, and in the end everyone
//! has been placed or refused. A failure prints its seed.

use std::collections::HashSet;
use std::time::Duration;

use super::stage::{Stage, policy, spec};
use super::world::{Answer, World};
use crate::fleet::{
    Affinity, Again, Ask, Budget, Eligible, Ended, Key, KvSetting, Load, Output, Placed, Placement, Policy,
    Refusal, ServerId, ServerSpec, Ticket, Why,
};
use crate::random::{Random, for_each_seed};

/// A request, through all its attempts.
#[derive(Debug, Clone)]
struct Request {
    ask: Ask,
    since: std::time::Instant,
    retries: u32,
    moved: bool,
}

struct Simulation {
    stage: Stage,
    world: World,
    random: Random,
    policy: Policy,
    /// Attempts without an outcome yet.
    open: Vec<(Ticket, Request)>,
    flying: Vec<(Placed, Request)>,
    others: Vec<Load>,
    /// How often every conversation has spoken.
    spoken: [u64; 12],
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let policy = Policy {
            placement: [Placement::Spread, Placement::Spread, Placement::LeastBusy, Placement::RoundRobin]
                [random.below(4)],
            affinity: Affinity { enabled: random.below(8) > 0, max_sessions: 40, ..policy().affinity },
            budget: Budget {
                enabled: random.below(8) > 0,
                max_waiting: [3, 64][random.below(2)],
                ..policy().budget
            },
        };
        let servers = 1 + random.below(4);
        let settings = [KvSetting::Auto, KvSetting::Shared, KvSetting::Divided];
        let specs = (0..servers)
            .map(|_| ServerSpec {
                weight: [1.0, 1.0, 2.5][random.below(3)],
                ..spec(settings[random.below(3)])
            })
            .collect();
        let mut stage = Stage::of(policy, specs);
        let world = World::new(servers, &mut random);
        (0..servers as u32).for_each(|id| stage.fleet.learned(ServerId(id), world.facts(id), stage.now));
        let others = vec![Load::default(); servers];
        Self { stage, world, random, policy, open: Vec::new(), flying: Vec::new(), others, spoken: [0; 12] }
    }

    fn servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.world.servers.len() as u32).map(ServerId)
    }

    fn step(&mut self, arrivals: bool) {
        let long = if self.random.below(100) == 0 { 1_000_000 } else { 0 };
        self.stage.now += Duration::from_millis(self.random.below(400) as u64 + long);
        match self.random.below(12) {
            0..=3 if arrivals => self.arrive(),
            4 => self.begin_one(),
            5..=7 => self.end_one(arrivals),
            8 if arrivals => self.leave_one(),
            9 if self.random.below(6) == 0 => self.upset(arrivals),
            10 => self.poll(),
            _ if arrivals && self.random.below(8) == 0 => self.hear_others(),
            _ => self.stage.fleet.tick(self.stage.now),
        }
        self.take_outcomes();
    }

    fn arrive(&mut self) {
        let who = self.random.below(14);
        let key = (who < 12).then_some(Key(who as u128));
        let characters = match key {
            Some(_) => {
                self.spoken[who] += 1 + self.random.below(4) as u64;
                self.spoken[who] * 1000
            }
            None => self.random.below(20_000) as u64,
        };
        let of = match self.random.below(8) {
            0 => Eligible::Only(ServerId(self.random.below(self.world.servers.len()) as u32)),
            1 => Eligible::Model("model".into()),
            2 => Eligible::Model(["odd", "none"][self.random.below(2)].into()),
            _ => Eligible::Any,
        };
        let max_output = [None, Some(100)][self.random.below(2)];
        let home = None;
        let ask = Ask { key, home, of, characters, max_output, answers: 1, again: None };
        self.ask(Request { ask, since: self.stage.now, retries: 0, moved: false });
    }

    fn ask(&mut self, request: Request) {
        let must = self.home_it_must_go_to(&request.ask);
        let ticket = self.stage.fleet.ask(request.ask.clone(), self.stage.now);
        if let (Some(must), Some(key)) = (must, request.ask.key) {
            assert_eq!(
                self.stage.fleet.home(key, self.stage.now),
                Some(must),
                "it belongs home: {request:?}"
            );
        }
        self.open.push((ticket, request));
    }

    /// The rules, once more and slowly.
    fn home_it_must_go_to(&self, ask: &Ask) -> Option<ServerId> {
        let home = self.stage.fleet.home(ask.key?, self.stage.now)?;
        let serves = |id: ServerId| {
            let excluded = matches!(ask.again, Some(Again::Elsewhere { not }) if not == id);
            !excluded && self.world.is_eligible(id, &ask.of) && self.world.takes_turns(id, self.stage.now)
        };
        let waits_there = matches!(ask.again, Some(Again::Full { server, .. }) if server != home);
        if !serves(home) || waits_there {
            return None;
        }
        let has_room = |id: ServerId, but: Option<Key>| {
            let here = self.flying.iter().filter(|(placed, _)| placed.server == id);
            let nobodies = here.clone().filter(|(_, request)| request.ask.key.is_none()).count() as u64;
            let keys: HashSet<Key> = here.filter_map(|(_, request)| request.ask.key).collect();
            let keys = keys.into_iter().filter(|key| Some(*key) != but).count() as u64;
            nobodies + keys + self.others[id.index()].in_flight
                < u64::from(self.world.servers[id.index()].slots)
        };
        let elsewhere = self.servers().any(|id| id != home && serves(id) && has_room(id, None));
        let full = matches!(ask.again, Some(Again::Full { .. }));
        (full || has_room(home, ask.key) || !elsewhere).then_some(home)
    }

    fn take_outcomes(&mut self) {
        self.stage.hear();
        for said in std::mem::take(&mut self.stage.said) {
            match said {
                Output::Opened { server, pause } => self.world.opened(server, self.stage.now + pause),
                Output::Closed { server } => self.world.closed(server),
                Output::FoundShared { server, .. } => assert!(self.world.servers[server.index()].shares),
                other => panic!("{other:?}"),
            }
        }
        let decided = |(ticket, _): &(Ticket, Request)| !self.stage.waits(*ticket);
        let (decided, open): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open).into_iter().partition(decided);
        self.open = open;
        let mut placed: Vec<_> = decided
            .into_iter()
            .filter_map(|(ticket, request)| Some((*self.stage.placed.get(&ticket)?, request)))
            .collect();
        placed.sort_by_key(|(placed, _)| placed.ticket);
        placed.into_iter().for_each(|(placed, request)| self.send(placed, request));
        self.check_budgets();
    }

    fn send(&mut self, placed: Placed, request: Request) {
        let now = self.stage.now;
        assert!(
            self.world.takes_turns(placed.server, now),
            "it was sent to a server that is not there: {placed:?}"
        );
        assert!(self.world.is_eligible(placed.server, &request.ask.of), "that server may not serve it");
        self.world.sent(&placed, &request.ask, &mut self.random);
        self.flying.push((placed, request));
        let total = self.stage.fleet.snapshot(now)[placed.server.index()].budget_total;
        if let Some(total) = total.filter(|_| placed.reserved > 0) {
            let others = self.others[placed.server.index()].reserved;
            assert!(
                self.reserved_at(placed.server) + others <= total,
                "within the budget, with the others' turns"
            );
        }
    }

    /// What is reserved stays within the share; so what is really taken exceeds it by no more than estimates were too low.
    fn check_budgets(&self) {
        let seen = self.stage.fleet.snapshot(self.stage.now);
        for (id, seen) in self.servers().zip(&seen).filter(|(_, seen)| seen.budget_total.is_some()) {
            assert!(self.reserved_at(id) <= seen.budget_total.unwrap_or(0), "within the budget");
            assert_eq!(self.world.servers[id.index()].pool * 9 / 10, seen.budget_total.unwrap_or(0));
        }
    }

    fn reserved_at(&self, id: ServerId) -> u64 {
        let here = self.flying.iter().filter(|(placed, _)| placed.server == id);
        here.map(|(placed, _)| placed.reserved).sum()
    }

    fn begin_one(&mut self) {
        let tickets: Vec<Ticket> = self.flying.iter().map(|(placed, _)| placed.ticket).collect();
        if let Some(ticket) = self.random.pick(&tickets)
            && self.world.answer(ticket) == Answer::Well
        {
            self.stage.fleet.began(ticket, self.stage.now);
        }
    }

    fn end_one(&mut self, arrivals: bool) {
        if self.flying.is_empty() {
            return;
        }
        let (placed, request) = self.flying.swap_remove(self.random.below(self.flying.len()));
        let how = match self.world.answer(placed.ticket) {
            Answer::Well if self.random.below(12) == 0 => Ended::Declined,
            Answer::Well if arrivals && self.random.below(12) == 0 => Ended::Left,
            Answer::Well if self.random.below(24) == 0 => Ended::Doubtful,
            Answer::Well => self.world.complete(&placed, &request.ask),
            Answer::Full => Ended::Full,
            Answer::Loading => Ended::NotReady,
            Answer::Dead => Ended::Broken,
        };
        self.end(placed, request, how);
    }

    fn end(&mut self, placed: Placed, request: Request, how: Ended) {
        self.world.over(placed.ticket);
        if how == Ended::NotReady {
            self.world.servers[placed.server.index()].known_loading = true;
        }
        if matches!(how, Ended::Complete { .. } | Ended::Declined) {
            self.world.servers[placed.server.index()].known_loading = false;
        }
        let lost = self.stage.fleet.ended(placed.ticket, how, self.stage.now);
        if lost.is_some() {
            assert_eq!(placed.why, Why::Home);
            assert!(self.world.has_dropped(&placed), "nothing was lost there");
        }
        self.take_outcomes();
        self.retry(placed, request, how);
    }

    fn retry(&mut self, placed: Placed, mut request: Request, how: Ended) {
        let Placed { server, reserved, .. } = placed;
        match how {
            Ended::Full if request.retries < self.policy.budget.retries => {
                request.retries += 1;
                request.ask.again = Some(Again::Full { server, reserved, since: request.since });
            }
            Ended::Broken | Ended::Doubtful | Ended::NotReady if !request.moved => {
                request.moved = true;
                request.ask.again = Some(Again::Elsewhere { not: server });
            }
            _ => return,
        }
        self.ask(request);
    }

    /// A client goes, while its request waits or is in flight.
    fn leave_one(&mut self) {
        if self.random.below(2) == 0 && !self.open.is_empty() {
            let (ticket, _) = self.open.swap_remove(self.random.below(self.open.len()));
            self.stage.fleet.ended(ticket, Ended::Left, self.stage.now);
        } else if self.random.below(4) == 0 && !self.flying.is_empty() {
            let (placed, request) = self.flying.swap_remove(self.random.below(self.flying.len()));
            self.end(placed, request, Ended::Left);
        }
    }

    /// Something happens to a server.
    fn upset(&mut self, arrivals: bool) {
        let id = ServerId(self.random.below(self.world.servers.len()) as u32);
        match self.random.below(4) {
            0 if arrivals => self.world.die(id),
            1 => self.world.restart(id),
            2 if arrivals => self.world.drop_kv(id),
            _ => {
                let facts = self.world.facts(id.0);
                self.stage.fleet.learned(id, facts, self.stage.now);
            }
        }
    }

    fn poll(&mut self) {
        let id = ServerId(self.random.below(self.world.servers.len()) as u32);
        let (fleet, now) = (&mut self.stage.fleet, self.stage.now);
        match self.world.poll(id, now) {
            Answer::Dead => {
                fleet.unreachable(id, now);
                self.take_outcomes();
                self.world.unreachable(id);
            }
            Answer::Loading => fleet.loading(id, now),
            _ => fleet.reached(id, now),
        }
    }

    fn hear_others(&mut self) {
        let id = self.random.below(self.others.len());
        let held = self.random.below(2) as u64;
        self.others[id] = Load { live: held * 3, in_flight: held, reserved: held * 2000 };
        self.stage.fleet.others(&self.others, self.stage.now);
    }

    /// Nobody comes any more, and every server recovers: everybody gets an answer, without anything happening but ends, polls
    /// and the calls that the fleet asks for.
    fn finish(&mut self) {
        self.others.fill(Load::default());
        self.stage.fleet.others(&self.others, self.stage.now);
        self.servers().for_each(|id| self.world.revive(id));
        for id in self.servers() {
            self.world.poll(id, self.stage.now);
            self.stage.fleet.reached(id, self.stage.now);
        }
        self.take_outcomes();
        for _ in 0..10_000 {
            if !self.flying.is_empty() {
                self.stage.now += Duration::from_millis(50);
                self.end_one(false);
            } else if !self.open.is_empty() {
                let due =
                    self.stage.fleet.next_due().expect("who waits with nothing in flight is sent some time");
                self.stage.now = self.stage.now.max(due);
                self.stage.fleet.tick(self.stage.now);
            } else {
                return;
            }
            self.take_outcomes();
        }
        panic!("{} still wait", self.open.len());
    }
}

#[test]
fn random_schedules_send_everyone_home_within_budgets_and_past_broken_servers_and_lose_nobody() {
    for_each_seed(|seed| {
        let mut simulation = Simulation::new(seed);
        (0..250).for_each(|_| simulation.step(true));
        simulation.finish();
        let refused = simulation.stage.refused.values();
        assert!(refused.into_iter().all(|why| *why != Refusal::Stopping));
        assert!(simulation.stage.fleet.loads().iter().all(|load| load.in_flight == 0 && load.reserved == 0));
    });
}
