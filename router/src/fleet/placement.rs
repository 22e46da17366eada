//! Which server gets a request: its conversation's home, or the one that has the least to do.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use super::Fleet;
use super::line::Seeker;
use super::types::{Again, Ask, Load, Placement, Refusal, ServerId, ServerSpec, Why};

/// The shortest time after which a refused request is worth trying again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// One server's numbers that every choice looks at: small, so that those of a thousand servers are read quickly.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tally {
    /// Slots, times the server's weight. A server that hasn't said how many it has counts as having one.
    capacity: f64,
    weight: f64,
    slots: Option<u32>,
    /// This router's requests in flight.
    pub(super) requests: u64,
    /// This router's conversations in flight; a request of none counts as one.
    pub(super) busy: u64,
    /// This router's requests that wait for room.
    pub(super) waiting: u64,
    /// What other routers have there.
    pub(super) others: Load,
}

impl Tally {
    pub(super) fn new(spec: &ServerSpec) -> Self {
        Self {
            capacity: spec.weight,
            weight: spec.weight,
            slots: None,
            requests: 0,
            busy: 0,
            waiting: 0,
            others: Load::default(),
        }
    }

    pub(super) fn learn(&mut self, slots: Option<u32>) {
        self.slots = slots;
        self.capacity = f64::from(slots.unwrap_or(1).max(1)) * self.weight;
    }

    /// A request is sent there, the first of its conversation or not.
    pub(super) fn enter(&mut self, first: bool) {
        self.requests += 1;
        self.busy += u64::from(first);
    }

    /// A request that was sent there is over, the last of its conversation or not.
    pub(super) fn leave(&mut self, last: bool) {
        self.requests -= 1;
        self.busy -= u64::from(last);
    }

    /// Conversations in flight, of all routers.
    pub(super) fn conversations(&self) -> u64 {
        self.busy + self.others.in_flight
    }

    /// A slot is free.
    fn has_free_slot(&self) -> bool {
        self.conversations() < u64::from(self.slots.unwrap_or(1))
    }

    /// All slots are taken, without counting `own` conversations. Never, if it isn't known how many there are.
    fn is_saturated(&self, own: u64) -> bool {
        self.slots.is_some_and(|slots| self.conversations().saturating_sub(own) >= u64::from(slots))
    }

    fn requests_in_all(&self) -> u64 {
        self.requests + self.waiting + self.others.in_flight
    }
}

impl Fleet {
    /// A server for a request, or why there is none.
    pub(super) fn choose(&self, seeker: &Seeker, now: Instant) -> Result<(ServerId, Why), Refusal> {
        let ask = &seeker.ask;
        let candidates = self.models.candidates(&ask.of);
        if candidates.is_empty() {
            return Err(Refusal::UnknownModel);
        }
        let home = self.known_home(ask);
        let server =
            self.full_before(ask, now).or_else(|| self.home_that_serves(home, candidates, seeker, now));
        let server = server.or_else(|| self.pick(candidates, |id| self.may_serve(id, ask, now)));
        // One turn shows whether it works again: that is worth waiting for, if there is nothing else.
        let server = server.or_else(|| self.pick(candidates, |id| self.is_on_trial(id, ask, now)));
        match server {
            Some(server) => Ok((server, self.why(ask, home, server))),
            None => Err(self.down(candidates, now)),
        }
    }

    fn why(&self, ask: &Ask, home: Option<ServerId>, server: ServerId) -> Why {
        match home {
            _ if ask.key.is_none() || !self.policy.affinity.enabled => Why::Nobody,
            None => Why::New,
            Some(home) if home == server => Why::Home,
            Some(from) => Why::Moved { from },
        }
    }

    fn known_home(&self, ask: &Ask) -> Option<ServerId> {
        let awake = self.homes.awake(ask.key?).filter(|_| self.policy.affinity.enabled)?;
        ask.home.filter(|home| home.index() < self.servers.len()).or(awake.known.home)
    }

    /// The server that was full, for a request that waits for room there.
    fn full_before(&self, ask: &Ask, now: Instant) -> Option<ServerId> {
        match ask.again {
            Some(Again::Full { server, .. }) if self.takes_turns(server, now) => Some(server),
            _ => None,
        }
    }

    /// The home, or if all its slots are taken, a server with a free one and memory. Without such a server, it waits at home.
    fn home_that_serves(
        &self,
        home: Option<ServerId>,
        candidates: &[ServerId],
        seeker: &Seeker,
        now: Instant,
    ) -> Option<ServerId> {
        let ask = &seeker.ask;
        let home =
            home.filter(|home| candidates.binary_search(home).is_ok() && self.may_serve(*home, ask, now))?;
        let here =
            ask.key.and_then(|key| self.homes.awake(key)).is_some_and(|awake| awake.at.contains(&home));
        if !self.tallies[home.index()].is_saturated(u64::from(here)) {
            return Some(home);
        }
        // Looked up once: a thousand servers may be asked.
        let habits = self.habits(seeker);
        let free = |id: ServerId| {
            id != home
                && self.tallies[id.index()].has_free_slot()
                && self.may_serve(id, ask, now)
                && self.has_memory_for(habits, seeker, id)
        };
        self.pick(candidates, free).or(Some(home))
    }

    fn is_on_trial(&self, server: ServerId, ask: &Ask, now: Instant) -> bool {
        !self.health[server.index()].is_shut(now) && !is_excluded(server, ask)
    }

    fn may_serve(&self, server: ServerId, ask: &Ask, now: Instant) -> bool {
        self.takes_turns(server, now) && !is_excluded(server, ask)
    }

    /// The best of `candidates`, which stand in order; among equals, the next in turn.
    fn pick(&self, candidates: &[ServerId], fits: impl Fn(ServerId) -> bool) -> Option<ServerId> {
        let turn = candidates.partition_point(|id| Some(*id) <= self.last_picked);
        let in_turn = candidates[turn..].iter().chain(&candidates[..turn]).copied();
        let mut fitting = in_turn.filter(|id| fits(*id));
        match self.policy.placement {
            Placement::RoundRobin => fitting.next(),
            Placement::LeastBusy => fitting.min_by(|one, other| self.by_requests(*one, *other)),
            Placement::Spread => fitting
                .min_by(|one, other| self.by_live(*one, *other).then_with(|| self.by_requests(*one, *other))),
        }
    }

    fn by_live(&self, one: ServerId, other: ServerId) -> Ordering {
        self.per_slot(one, other, |id, tally| self.homes.live(id) + tally.others.live)
    }

    fn by_requests(&self, one: ServerId, other: ServerId) -> Ordering {
        self.per_slot(one, other, |_, tally| tally.requests_in_all())
    }

    /// Compares `count / capacity` of both, without dividing.
    fn per_slot(&self, one: ServerId, other: ServerId, count: impl Fn(ServerId, &Tally) -> u64) -> Ordering {
        let (first, second) = (&self.tallies[one.index()], &self.tallies[other.index()]);
        let share = |id, tally: &Tally, against: &Tally| count(id, tally) as f64 * against.capacity;
        share(one, first, second).total_cmp(&share(other, second, first))
    }

    fn down(&self, candidates: &[ServerId], now: Instant) -> Refusal {
        let pauses = candidates.iter().map(|id| self.health[id.index()].pause_left(now));
        Refusal::Down { retry_after: pauses.min().unwrap_or_default().max(RETRY_AFTER) }
    }
}

fn is_excluded(server: ServerId, ask: &Ask) -> bool {
    matches!(ask.again, Some(Again::Elsewhere { not }) if not == server)
}
