//! The table, the server and the agents, from one event to the next.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use session_slot_router::slots::{
    Due, End, Evict, Fill, Grant, Launch, LeaseId, Output, Policy, Shape, SlotTable, Ticket, Want,
};
use session_slot_router::usage::Usage;
use session_slot_router::warm::{self, Effect, RestoreError, StateId, Written};

use super::agent::{Agent, Content};
use super::patterns::Pattern;
use super::server::{Server, generating_takes, reading_takes};
use crate::rng::Rng;

const SLOTS: usize = 4;
/// Room for saved states: the router's default on a large disk.
const ROOM: u64 = 20 << 30;

/// What a pattern came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Turns that were answered.
    pub turns: u64,
    /// Prompt tokens read although the session's last turn had left them.
    pub reread: u64,
    /// From a turn's coming to its first token, all turns together.
    pub waits: Duration,
    /// Turns that the table refused.
    pub refused: u64,
}

impl Tally {
    /// With another one.
    pub fn add(&mut self, other: Self) {
        self.turns += other.turns;
        self.reread += other.reread;
        self.waits += other.waits;
        self.refused += other.refused;
    }

    /// Seconds from a turn's coming to its first token.
    #[must_use]
    pub fn mean_wait(&self) -> f64 {
        self.waits.as_secs_f64() / self.turns.max(1) as f64
    }
}

#[derive(Debug)]
enum Event {
    Comes(usize),
    Saved(LeaseId, Written),
    Restored(LeaseId, StateId, Written),
    Answers(LeaseId),
    Ends(LeaseId),
}

/// A turn on its way to its answer.
#[derive(Debug)]
struct Turn {
    came: Instant,
    prompt: Content,
    slot: usize,
    usage: Usage,
}

struct World {
    table: SlotTable,
    server: Server,
    agents: Vec<Agent>,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    events_made: u64,
    asking: HashMap<Ticket, Turn>,
    running: HashMap<LeaseId, Turn>,
    tally: Tally,
}

/// Plays a pattern under one way to evict, with or without warm starts.
#[must_use]
pub fn play(pattern: &Pattern, seed: u64, evict: Evict, warm: bool) -> Tally {
    let mut rng = Rng::new(seed, 0);
    let habits = (pattern.agents)(&mut rng);
    let mut world = World::new(evict, warm);
    for (index, habit) in habits.into_iter().enumerate() {
        world.agents.push(Agent::new(index, habit, seed));
        world.schedule(world.now + habit.start, Event::Comes(index));
    }
    world.run_until(world.now + pattern.lasts);
    world.tally
}

impl World {
    fn new(evict: Evict, warm: bool) -> Self {
        let warm_policy = warm::Policy { enabled: warm, ..warm::Policy::default() };
        let mut table = SlotTable::new(Policy { evict, warm: warm_policy, ..Policy::default() });
        let known = table.warm();
        known.served_by("simulation");
        known.supported(true);
        known.measured(1);
        known.room(ROOM);
        Self {
            table,
            server: Server::new(SLOTS),
            agents: Vec::new(),
            now: Instant::now(),
            events: BTreeMap::new(),
            events_made: 0,
            asking: HashMap::new(),
            running: HashMap::new(),
            tally: Tally::default(),
        }
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.events_made += 1;
        self.events.insert((at, self.events_made), event);
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            self.settle();
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let look = match self.table.next_probe() {
                Some(Due::At(at)) => Some(at),
                _ => None,
            };
            let Some(next) = event.into_iter().chain(look).min().filter(|next| *next <= end) else { return };
            self.now = self.now.max(next);
            if event == Some(next) {
                if let Some((_, event)) = self.events.pop_first() {
                    self.happen(event);
                }
            } else {
                self.look();
            }
        }
    }

    /// Does what the table asks for, until it has nothing to ask at once.
    fn settle(&mut self) {
        self.carry_out();
        while self.table.next_probe() == Some(Due::Now) {
            self.look();
        }
    }

    fn look(&mut self) {
        let probe = self.table.probe_asked();
        self.table.observe(probe, self.server.reading(), self.now);
        self.table.renew_probes(probe);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        loop {
            let outputs = self.table.take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Granted(grant) => self.granted(&grant),
                    Output::Refused { ticket, .. } => self.refused(ticket),
                    Output::Save { lease, slot, state } => {
                        let written = self.server.save(slot.0 as usize, state);
                        self.schedule(self.now + written.took, Event::Saved(lease, written));
                    }
                    Output::Warm(Effect::Forget(state)) => self.server.forget(state),
                    _ => {}
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Comes(agent) => self.comes(agent),
            Event::Saved(lease, written) => self.table.save_ended(lease, Ok(written), self.now),
            Event::Restored(lease, state, written) => {
                self.table.restored(lease, Fill::Restore(state), Ok(written), self.now);
                self.fill_and_begin(lease);
            }
            Event::Answers(lease) => self.answers(lease),
            Event::Ends(lease) => self.ends(lease),
        }
    }

    fn comes(&mut self, index: usize) {
        let agent = &mut self.agents[index];
        let prompt = agent.ask(self.now);
        let (want, story) = (Want::Session(agent.session.clone()), agent.story());
        let turn = Turn { came: self.now, prompt, slot: 0, usage: Usage::default() };
        match self.table.enqueue(want, Shape::default(), Some(story), self.now) {
            Ok(ticket) => drop(self.asking.insert(ticket, turn)),
            Err(_) => self.gives_up(index),
        }
    }

    fn refused(&mut self, ticket: Ticket) {
        if let Some(turn) = self.asking.remove(&ticket) {
            self.gives_up(turn.prompt.agent);
        }
    }

    fn gives_up(&mut self, agent: usize) {
        self.tally.refused += 1;
        let next = self.agents[agent].next(self.now) + Duration::from_secs(1);
        self.schedule(next, Event::Comes(agent));
    }

    fn granted(&mut self, grant: &Grant) {
        let turn = self.asking.remove(&grant.ticket).expect("a turn is granted once");
        let slot = grant.launch.slot().map_or_else(|| self.server.choose(), |slot| slot.0 as usize);
        self.running.insert(grant.lease, Turn { slot, ..turn });
        match grant.launch {
            Launch::Pin { fill: Fill::Restore(state), .. } => self.restore(grant.lease, slot, state),
            Launch::Pin { fill: Fill::Prime | Fill::Measure, .. } => {
                self.server.prime(slot);
                self.fill_and_begin(grant.lease);
            }
            Launch::Pin { fill: Fill::Nothing, .. } | Launch::Free { .. } => self.begin(grant.lease),
        }
    }

    fn restore(&mut self, lease: LeaseId, slot: usize, state: StateId) {
        match self.server.restore(slot, state) {
            Some(written) => self.schedule(self.now + written.took, Event::Restored(lease, state, written)),
            None => {
                self.table.restored(lease, Fill::Restore(state), Err(RestoreError::Missing), self.now);
                self.fill_and_begin(lease);
            }
        }
    }

    fn fill_and_begin(&mut self, lease: LeaseId) {
        self.table.filled(lease);
        self.begin(lease);
    }

    fn begin(&mut self, lease: LeaseId) {
        let turn = self.running.get_mut(&lease).expect("it was granted");
        let cached = self.server.begin(turn.slot, &turn.prompt);
        let computed = turn.prompt.tokens - cached;
        let reading = reading_takes(computed);
        turn.usage = Usage { computed, cached, generated: 0, reading: Some(reading) };
        self.schedule(self.now + reading, Event::Answers(lease));
    }

    fn answers(&mut self, lease: LeaseId) {
        self.table.landed(lease);
        let turn = &self.running[&lease];
        let agent = &self.agents[turn.prompt.agent];
        let could = agent.left.map_or(0, |left| left.common(&turn.prompt));
        self.tally.turns += 1;
        self.tally.reread += could.saturating_sub(turn.usage.cached);
        self.tally.waits += self.now - turn.came;
        let end = self.now + generating_takes(agent.answer_tokens());
        self.schedule(end, Event::Ends(lease));
    }

    fn ends(&mut self, lease: LeaseId) {
        let turn = self.running.remove(&lease).expect("it was answered");
        let agent = &mut self.agents[turn.prompt.agent];
        let (left, generated) = agent.hear();
        let next = agent.next(self.now);
        self.server.end(turn.slot, left);
        let usage = Usage { generated, ..turn.usage };
        self.table.release(lease, End::Complete { usage: Some(usage), slot: None }, self.now);
        self.schedule(next, Event::Comes(turn.prompt.agent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evictions::PATTERNS;

    #[test]
    fn nobody_is_refused_and_the_same_seed_comes_to_the_same() {
        for pattern in &PATTERNS {
            let tally = play(pattern, 1, Evict::Lru, true);
            assert!(tally.turns > 20 && tally.refused == 0, "{}: {tally:?}", pattern.name);
            assert_eq!(tally.reread, play(pattern, 1, Evict::Lru, true).reread, "{}", pattern.name);
        }
    }

    #[test]
    fn without_warm_starts_a_cycle_of_more_sessions_than_slots_reads_everything_again_under_lru() {
        let cycle = &PATTERNS[0];
        let tally = play(cycle, 1, Evict::Lru, false);
        // 4000 tokens of system text alone, in each turn but the first five.
        assert!(tally.reread > (tally.turns - 5) * 4000, "{tally:?}");
    }
}
