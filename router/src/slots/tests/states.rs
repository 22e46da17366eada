//! Who holds what: the states in the model's slots and files, and what a wrong save or restore would do to them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use session_slot_identity::SessionId;

use super::world::{World, agent_of, are_alike, user_of};
use crate::slots::{Fill, Grant, LeaseId, SlotId};
use crate::warm::{RestoreError, SaveError, StateId, Written};

/// What a slot or a file holds: whose, of which task, how many tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) session: SessionId,
    pub(super) task: i64,
    pub(super) tokens: u64,
}

/// A save that the table has asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Save {
    pub(super) lease: LeaseId,
    pub(super) slot: SlotId,
    pub(super) state: StateId,
}

#[derive(Debug, Default)]
pub(super) struct States {
    /// What sessions have left in the slots. Others' work is not noted.
    pub(super) slots: HashMap<usize, Content>,
    /// `None`: somebody else's, past the router.
    pub(super) files: HashMap<StateId, Option<Content>>,
    pub(super) saves: Vec<Save>,
    /// Whose each granted request is.
    pub(super) sessions: HashMap<LeaseId, SessionId>,
    /// What the server has put aside, the latest last.
    ram: Vec<Content>,
    /// Leases for which a slot is primed that the table takes for empty.
    primed_empty: HashSet<LeaseId>,
    /// Something has run that is no session's.
    pub(super) others_ran: bool,
    /// Tasks whose end has told what they left.
    pub(super) told: HashSet<i64>,
}

impl States {
    /// A slot is cleared: what it holds goes to the RAM cache.
    pub(super) fn clear(&mut self, index: usize) {
        let Some(content) = self.slots.remove(&index) else { return };
        self.ram.retain(|older| older.session != content.session);
        self.ram.push(content);
    }

    /// The server has nothing any more but its files.
    pub(super) fn restart(&mut self) {
        self.slots.clear();
        self.ram.clear();
        self.primed_empty.clear();
        self.others_ran = false;
    }

    /// Its session goes on from a file, whoever takes it from the RAM cache, or has too little to lose.
    fn is_spare(&self, content: &Content, min_tokens: u64) -> bool {
        let told = self.told.contains(&content.task);
        let enough =
            |file: &Content| file.session == content.session && (!told || file.tokens + 64 >= content.tokens);
        content.tokens < min_tokens || self.files.values().any(|file| file.as_ref().is_none_or(enough))
    }
}

impl World {
    /// Warm starts work on this server, and even short states are worth a file.
    pub(super) fn warm_up(&mut self) {
        self.warm = true;
        self.introduce();
    }

    /// The table is told which server this is.
    pub(super) fn introduce(&mut self) {
        let measures = self.measures;
        let warm = self.table.warm();
        warm.served_by("the server");
        warm.supported(true);
        if !measures {
            warm.measured(1);
        }
        self.table.introduced();
    }

    /// The server carries out a save; panics if the slot is not idle.
    pub(super) fn save(&mut self, save: Save, fails: bool) {
        self.states.saves.retain(|other| other.lease != save.lease);
        let index = save.slot.0 as usize;
        assert_eq!(self.server[index].runs, None, "a slot was to be saved that is at work");
        let held = self.server[index].seen.tokens.unwrap_or(0);
        let outcome = if fails { Err(SaveError::Failed) } else { Ok(written(held)) };
        if !fails {
            let content = self.states.slots.get(&index).cloned();
            // After a client has left, what somebody else's work left in the slot can't be told from its own; and what
            // was on its way may have cleared the slot.
            let excused = self.has_foreign_work || held == 0;
            assert!(content.is_some() || excused, "a state was saved that is no session's");
            self.states.files.insert(save.state, content);
        }
        self.table.save_ended(save.lease, outcome, self.now);
        self.collect_outputs();
    }

    /// The server has gone in the middle of its saves.
    pub(super) fn fail_saves(&mut self) {
        for save in std::mem::take(&mut self.states.saves) {
            self.table.save_ended(save.lease, Err(SaveError::Failed), self.now);
        }
    }

    /// The server puts a state into the slot of a granted request; panics if it is not idle, or the state is neither this
    /// session's nor of one that begins alike and has the same client key.
    pub(super) fn restore(&mut self, grant: &Grant, state: StateId, fails: bool) {
        let slot = grant.launch.slot().expect("a restore has a slot");
        let index = slot.0 as usize;
        assert_eq!(self.server[index].runs, None, "a state was restored into a slot that is at work");
        let Some(content) = self.states.files.get(&state).cloned() else {
            // Forgotten since the grant.
            self.table.restored(grant.lease, grant.launch.fill(), Err(RestoreError::Missing), self.now);
            return self.collect_outputs();
        };
        let session = self.states.sessions.get(&grant.lease);
        let fits = |whose: &SessionId| {
            session
                .is_some_and(|session| session == whose || self.said.is_some() && are_alike(session, whose))
        };
        assert!(content.iter().all(|content| fits(&content.session)), "another session's state");
        let tokens = content.as_ref().map_or(1, |content| content.tokens);
        let outcome = if fails { Err(RestoreError::Refused) } else { Ok(written(tokens)) };
        let used = self.server[index].seen.id_task.is_some();
        self.server[index].seen.tokens = used.then_some(if fails { 0 } else { tokens });
        self.states.slots.remove(&index);
        self.states.slots.extend(content.filter(|_| !fails).map(|content| (index, content)));
        self.table.restored(grant.lease, grant.launch.fill(), outcome, self.now);
        self.collect_outputs();
    }

    pub(super) fn note_primed(&mut self, grant: &Grant) {
        let slot = grant.launch.slot().filter(|_| grant.launch.fill() == Fill::Prime);
        let shown = slot.and_then(|slot| self.table.slot(slot));
        if shown.is_some_and(|shown| shown.tokens.unwrap_or(0) == 0) {
            self.states.primed_empty.insert(grant.lease);
        }
    }

    /// A request has got to its slot: panics if a session that is new to the server has taken another one's state from the
    /// RAM cache which that one needs, or which is of another client key.
    pub(super) fn takes_nobodys_state(&mut self, lease: LeaseId) {
        let Some(session) = self.states.sessions.get(&lease).cloned() else { return };
        let earlier = |(other, whose): (&LeaseId, &SessionId)| {
            *whose == session && other.generation == lease.generation && other.number < lease.number
        };
        if !self.states.primed_empty.contains(&lease) || self.states.sessions.iter().any(earlier) {
            return;
        }
        assert!(!self.states.others_ran, "nobody knows whose state it may take");
        let found =
            self.states.ram.iter().rposition(|content| agent_of(&content.session) == agent_of(&session));
        let Some(content) = found.map(|at| self.states.ram.remove(at)) else { return };
        assert_eq!(user_of(&content.session), user_of(&session), "another user's state was taken");
        assert!(
            self.states.is_spare(&content, self.min_tokens()),
            "{content:?} was taken, which is in no file"
        );
    }

    /// The request whose slot was filled has got there: what was restored is still in it.
    pub(super) fn finds_what_was_restored(&self, grant: &Grant, restored: StateId) {
        let index = grant.launch.slot().expect("it has a slot").0 as usize;
        let (found, file) = (self.states.slots.get(&index), self.states.files.get(&restored));
        // Its file may be gone by now.
        assert!(file.is_none_or(|file| found == file.as_ref()), "{found:?} instead of {file:?}");
    }

    /// A task starts in a slot: panics if that spoils a save.
    pub(super) fn spoils_no_save(&self, index: usize) {
        let spoilt = |save: &&Save| save.slot.0 as usize == index || self.clears_idle;
        assert_eq!(self.states.saves.iter().find(spoilt).map(|save| save.slot), None, "it was being saved");
    }
}

fn written(tokens: u64) -> Written {
    Written { tokens, bytes: tokens * 1000, took: Duration::from_millis(1) }
}
