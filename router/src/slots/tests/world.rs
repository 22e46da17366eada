//! A model of llama-server's slots that the table's grants act on, one step at a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use session_slot_identity::SessionId;

use super::fairness::Patience;
use super::states::{Content, Save, States};
use crate::slots::{
    Action, Concurrent, Due, End, Fill, Grant, Heeds, Launch, LeaseId, Output, PinPolicy, Policy, ProbeId,
    Reading, Refusal, SeenSlot, Shape, SlotId, SlotTable, Start, Ticket, Want,
};
use crate::usage::Usage;
use crate::warm::tests::story;
use crate::warm::{Effect, Story};

const FIVE_MINUTES: Duration = Duration::from_secs(5 * 60);

/// A slot as the server has it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ServerSlot {
    pub(super) seen: SeenSlot,
    /// What runs in it.
    pub(super) runs: Option<Runs>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runs {
    Lease(LeaseId),
    /// The one-token prompt that fills an empty slot.
    Primer(LeaseId),
    Foreign,
}

/// The table, the server and the requests between them.
pub(super) struct World {
    pub(super) table: SlotTable,
    pub(super) now: Instant,
    pub(super) server: Vec<ServerSlot>,
    pub(super) clears_idle: bool,
    next_task: i64,
    /// Granted and not seen by the server yet.
    pub(super) on_the_way: Vec<(LeaseId, Launch)>,
    /// The requests that are not of the usual shape.
    shapes: HashMap<Ticket, Shape>,
    /// Leases whose request the server runs where it likes, whatever slot they name.
    unheeding: HashSet<LeaseId>,
    pub(super) granted: HashMap<Ticket, Grant>,
    pub(super) refused: HashMap<Ticket, Refusal>,
    /// In the order they were granted.
    pub(super) grants: Vec<Ticket>,
    pub(super) overwritten: Vec<(String, SlotId)>,
    pub(super) stuck: Vec<SlotId>,
    pub(super) states: States,
    /// Something ran past the router.
    pub(super) has_foreign_work: bool,
    /// It saves and restores states.
    pub(super) warm: bool,
    /// The layout of its states is not known before it was measured.
    pub(super) measures: bool,
    /// The table knows which server this is.
    server_is_known: bool,
    /// How often each session has asked, if its requests have a text: every other session is of the same agent.
    pub(super) said: Option<HashMap<SessionId, usize>>,
    patience: Patience,
    witness: Witness,
}

/// What a spilled request must not harm.
#[derive(Default)]
struct Witness {
    /// The session of each request that waits.
    asking: HashMap<Ticket, SessionId>,
    /// When a request of it came last.
    seen: HashMap<SessionId, Instant>,
    /// The session of each granted request that was not spilled.
    at_home: HashMap<LeaseId, SessionId>,
    /// Where a session's last turn ended, and its task there.
    left: HashMap<SessionId, (usize, Option<i64>)>,
}

pub(super) fn session(name: &str) -> SessionId {
    SessionId::new(name).expect("a valid test session")
}

pub(super) fn turn(name: &str) -> Want {
    Want::Session(session(name))
}

/// Sessions of one agent begin alike.
pub(super) fn agent_of(session: &SessionId) -> &'static str {
    if session.as_str().ends_with(['0', '2', '4', '6', '8']) { "the even agent" } else { "the odd agent" }
}

/// Whose client key a session's requests have.
pub(super) fn user_of(session: &SessionId) -> Option<Arc<str>> {
    session.as_str().ends_with('7').then(|| "bob".into())
}

/// What one of them left the other may start from.
pub(super) fn are_alike(one: &SessionId, other: &SessionId) -> bool {
    agent_of(one) == agent_of(other) && user_of(one) == user_of(other)
}

/// The end of an answer that left so many tokens in its slot.
pub(super) fn ended(tokens: u64) -> End {
    let usage = Usage { computed: tokens, cached: 0, generated: 1, reading: None };
    End::Complete { usage: Some(usage), slot: None }
}

impl World {
    pub(super) fn new(slots: usize, policy: PinPolicy) -> Self {
        Self::with(slots, policy, Concurrent::Wait)
    }

    pub(super) fn spilling(slots: usize) -> Self {
        Self::with(slots, PinPolicy::Auto, Concurrent::Spill)
    }

    pub(super) fn with(slots: usize, pin: PinPolicy, concurrent: Concurrent) -> Self {
        Self::under(slots, Policy { pin, concurrent, ..Policy::default() })
    }

    pub(super) fn under(slots: usize, policy: Policy) -> Self {
        Self {
            table: SlotTable::new(policy),
            now: Instant::now(),
            server: vec![ServerSlot::default(); slots],
            clears_idle: false,
            next_task: 0,
            on_the_way: Vec::new(),
            shapes: HashMap::new(),
            unheeding: HashSet::new(),
            granted: HashMap::new(),
            refused: HashMap::new(),
            grants: Vec::new(),
            overwritten: Vec::new(),
            stuck: Vec::new(),
            states: States::default(),
            has_foreign_work: false,
            warm: false,
            measures: false,
            server_is_known: true,
            said: None,
            patience: Patience::default(),
            witness: Witness::default(),
        }
    }

    pub(super) fn clearing(slots: usize) -> Self {
        Self { clears_idle: true, ..Self::new(slots, PinPolicy::Auto) }
    }

    pub(super) fn reading(&self) -> Reading {
        Reading::Slots(self.server.iter().map(|slot| slot.seen).collect())
    }

    /// The least that is saved.
    pub(super) fn min_tokens(&self) -> u64 {
        self.table.policy.warm.min_tokens
    }

    /// Asks and answers one probe.
    pub(super) fn probe(&mut self) {
        let probe = self.table.probe_asked();
        let reading = self.reading();
        self.answer(probe, reading);
    }

    pub(super) fn answer(&mut self, probe: ProbeId, reading: Reading) {
        let before = self.owners();
        let (waiting, granted) = (self.waiting(probe, &reading), self.grants.len());
        self.table.observe(probe, reading.clone(), self.now);
        self.collect(&before);
        self.table.renew_probes(probe);
        if !std::mem::replace(&mut self.server_is_known, true) {
            self.introduce();
        }
        // What is renewed was decided about by this answer already.
        let left = self.waiting(self.table.asked.next(), &reading);
        self.patience.note(&waiting, &left, &self.grants[granted..]);
    }

    /// Probes while the table has news to ask about.
    pub(super) fn settle(&mut self) {
        for _ in 0..1000 {
            match self.table.next_probe() {
                Some(Due::Now) => self.probe(),
                _ => return,
            }
        }
        panic!("the table probes in a tight loop");
    }

    /// Lets `time` pass, probing whenever the table wants to.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        while let Some(Due::At(due)) =
            self.table.next_probe().filter(|due| matches!(due, Due::At(at) if *at <= end))
        {
            self.now = self.now.max(due);
            self.probe();
            self.settle();
        }
        self.now = end;
    }

    /// The session that owns each slot.
    pub(super) fn owners(&self) -> Vec<Option<String>> {
        self.table.snapshot(self.now).slots.into_iter().map(|slot| slot.session).collect()
    }

    /// Panics when a spilled request takes what another session of the last five minutes would find in its slot, or
    /// its own session's home.
    fn witness(&mut self, grant: &Grant, before: &[Option<String>]) {
        let Some(session) = self.witness.asking.remove(&grant.ticket) else { return };
        if !matches!(grant.action, Action::Spill(_)) {
            self.witness.at_home.insert(grant.lease, session);
            return;
        }
        let slot = grant.launch.slot().expect("a spilled request names its slot").0 as usize;
        assert!(
            self.owners().contains(&Some(session.to_string())),
            "{session} has lost its home by spilling"
        );
        let Some(Some(owner)) = before.get(slot) else { return };
        let owner = SessionId::new(owner).expect("it was one");
        let seen = self.server[slot].seen;
        let warm = self.witness.left.get(&owner) == Some(&(slot, seen.id_task)) && seen.tokens > Some(0);
        let away = self.now.saturating_duration_since(self.witness.seen[&owner]);
        assert!(
            !warm || away > FIVE_MINUTES,
            "{session} was spilled into the warm slot of {owner}, seen {away:?} ago"
        );
    }

    pub(super) fn collect_outputs(&mut self) {
        self.collect(&self.owners());
    }

    fn collect(&mut self, before: &[Option<String>]) {
        for output in self.table.take_outputs() {
            match output {
                Output::Granted(grant) => {
                    if let Some(session) = self.witness.asking.get(&grant.ticket) {
                        self.states.sessions.insert(grant.lease, session.clone());
                    }
                    self.witness(&grant, before);
                    self.note_primed(&grant);
                    let shape = self.shapes.get(&grant.ticket).copied().unwrap_or_default();
                    let parts = self.server.len().min(shape.tasks as usize);
                    // Of the routes that perhaps heed the slot, every other request is to one that does not.
                    if shape.heeds_slot == Heeds::Perhaps && grant.lease.number % 2 == 0 {
                        self.unheeding.insert(grant.lease);
                    }
                    self.on_the_way.extend(std::iter::repeat_n((grant.lease, grant.launch), parts));
                    self.grants.push(grant.ticket);
                    self.granted.insert(grant.ticket, grant);
                }
                Output::Refused { ticket, why } => drop(self.refused.insert(ticket, why)),
                Output::Overwritten { session, slot } => self.overwritten.push((session.to_string(), slot)),
                Output::Restarted if self.warm => self.server_is_known = false,
                Output::Stuck { slot, .. } => self.stuck.push(slot),
                Output::Save { lease, slot, state } => self.states.saves.push(Save { lease, slot, state }),
                Output::Warm(Effect::Forget(state)) => drop(self.states.files.remove(&state)),
                _ => {}
            }
        }
    }

    pub(super) fn enqueue(&mut self, want: Want) -> Ticket {
        self.enqueue_shaped(want, Shape::default())
    }

    /// A request of several tasks, or to a route that does not heed `id_slot`.
    pub(super) fn enqueue_shaped(&mut self, want: Want, shape: Shape) -> Ticket {
        self.try_enqueue(want, shape).expect("there is room")
    }

    pub(super) fn try_enqueue(&mut self, want: Want, shape: Shape) -> Result<Ticket, Refusal> {
        let story = self.says(&want);
        let ticket = self.table.enqueue(want.clone(), shape, story, self.now)?;
        self.shapes.insert(ticket, shape);
        if let Want::Session(session) = want {
            self.witness.seen.insert(session.clone(), self.now);
            self.witness.asking.insert(ticket, session);
        }
        Ok(ticket)
    }

    /// What a request says: what its agent always begins with, and all that its session has said so far.
    fn says(&mut self, want: &Want) -> Option<Arc<Story>> {
        let (said, session) = (self.said.as_mut()?, want.session()?);
        let turns = said.entry(session.clone()).or_default();
        *turns += 1;
        let turns: Vec<String> = (0..*turns).map(|turn| format!("{session} says {turn}")).collect();
        // Every now and then it says something else.
        let agent = agent_of(session).repeat(if turns.len() % 5 == 4 { 1 } else { 2 });
        let said = story(&agent, &turns.iter().map(String::as_str).collect::<Vec<_>>());
        Some(Arc::new(Story { user: user_of(session), ..said }))
    }

    /// Enqueues and settles; the grant, if there was one.
    pub(super) fn ask(&mut self, want: Want) -> Option<Grant> {
        let ticket = self.enqueue(want);
        self.settle();
        self.granted.get(&ticket).cloned()
    }

    /// The server launches a request. Panics when that would damage a running one.
    pub(super) fn land(&mut self, lease: LeaseId) -> SlotId {
        let position =
            self.on_the_way.iter().position(|(other, _)| *other == lease).expect("it is on the way");
        let (_, launch) = self.on_the_way.remove(position);
        let slot = match launch {
            Launch::Pin { slot, .. } if !self.unheeding.contains(&lease) => slot.0 as usize,
            Launch::Pin { .. } => self.free_choice().expect("no more are sent than there are slots"),
            Launch::Free { .. } => self.free_choice().expect("the table sends no more than there are slots"),
        };
        self.start(slot, Runs::Lease(lease));
        self.takes_nobodys_state(lease);
        SlotId(slot as u32)
    }

    pub(super) fn free_choice(&self) -> Option<usize> {
        let idle = self.server.iter().enumerate().filter(|(_, slot)| slot.runs.is_none());
        idle.min_by_key(|(_, slot)| slot.seen.id_task).map(|(index, _)| index)
    }

    pub(super) fn start(&mut self, index: usize, runs: Runs) {
        assert_eq!(
            self.server[index].runs, None,
            "a request named busy slot {index}: llama-server damages an answer"
        );
        if runs == Runs::Foreign {
            self.has_foreign_work = true;
        } else {
            self.spoils_no_save(index);
        }
        self.next_task += 3;
        if self.clears_idle {
            for (other, slot) in self.server.iter_mut().enumerate() {
                if slot.runs.is_none() && slot.seen.id_task.is_some() {
                    slot.seen.tokens = Some(0);
                    if other != index {
                        self.states.clear(other);
                    }
                }
            }
        }
        let tokens = 100 + self.next_task as u64;
        self.server[index] = ServerSlot {
            seen: SeenSlot {
                id_task: Some(self.next_task),
                tokens: Some(tokens),
                processing: true,
                ..SeenSlot::default()
            },
            runs: Some(runs),
        };
        self.states.slots.remove(&index);
        if let Runs::Lease(lease) = runs
            && let Some(session) = self.states.sessions.get(&lease)
        {
            let content = Content { session: session.clone(), task: self.next_task, tokens };
            self.states.slots.insert(index, content);
        } else {
            self.states.others_ran |= !matches!(runs, Runs::Primer(_));
        }
    }

    /// The server dies and starts again with nothing in its slots.
    pub(super) fn restart(&mut self) {
        self.server.fill_with(ServerSlot::default);
        self.on_the_way.clear();
        self.states.restart();
        self.next_task = 0;
    }

    /// The server has ended what runs in `slot`; the tokens it holds now.
    pub(super) fn stop(&mut self, slot: SlotId) -> u64 {
        let index = slot.0 as usize;
        let slot = &mut self.server[index];
        if let Some(Runs::Lease(lease)) = slot.runs
            && let Some(session) = self.witness.at_home.get(&lease)
        {
            self.witness.left.insert(session.clone(), (index, slot.seen.id_task));
        }
        slot.seen.processing = false;
        slot.runs = None;
        slot.seen.tokens.expect("a used slot holds tokens")
    }

    /// Puts into a granted request's slot what is to be put there first.
    pub(super) fn fill(&mut self, grant: &Grant) {
        let Some(slot) = grant.launch.slot() else { return };
        match grant.launch.fill() {
            Fill::Nothing => return,
            Fill::Prime => {
                self.start(slot.0 as usize, Runs::Primer(grant.lease));
                self.stop(slot);
            }
            Fill::Measure => self.measure(grant),
            Fill::Restore(state) => self.restore(grant, state, false),
        }
        self.table.filled(grant.lease);
    }

    /// Runs the one-word prompt that shows the layout of states.
    fn measure(&mut self, grant: &Grant) {
        let slot = self.table.slot_to_measure(grant.lease).expect("pinned");
        self.start(slot.0 as usize, Runs::Primer(grant.lease));
        self.stop(slot);
        self.table.measured(grant.lease, self.now);
        if Some(slot) != grant.launch.slot() {
            assert_eq!(self.table.may_start(grant.lease, self.now), Start::Later, "it has to be seen first");
        }
        self.pass(Duration::from_millis(1));
        assert_eq!(self.table.may_start(grant.lease, self.now), Start::Now);
    }

    /// Carries out the saves that the table has asked for.
    pub(super) fn save_all(&mut self) -> usize {
        let saves = self.states.saves.clone();
        saves.iter().for_each(|save| self.save(*save, false));
        saves.len()
    }

    /// Runs a granted request from its launch to its end.
    pub(super) fn run(&mut self, grant: &Grant) -> SlotId {
        self.fill(grant);
        let slot = self.land(grant.lease);
        let tokens = self.stop(slot);
        self.table.release(grant.lease, ended(tokens), self.now);
        self.pass(Duration::from_millis(20));
        slot
    }

    /// A turn of a session that is at work.
    pub(super) fn running(&mut self, name: &str) -> Grant {
        let grant = self.ask(turn(name)).expect("a slot is free");
        self.land(grant.lease);
        self.table.landed(grant.lease);
        self.settle();
        grant
    }

    /// The end of a turn that is at work in a slot of its own.
    pub(super) fn end(&mut self, grant: &Grant) {
        let tokens = self.stop(grant.launch.slot().expect("pinned"));
        self.table.release(grant.lease, ended(tokens), self.now);
        self.pass(Duration::from_millis(20));
    }

    /// One whole turn; where it ran and how the table decided.
    pub(super) fn turn(&mut self, name: &str) -> (SlotId, Action, Launch) {
        let grant = self.ask(turn(name)).expect("a slot is free");
        let slot = self.run(&grant);
        (slot, grant.action, grant.launch)
    }
}
