//! Who holds what: the states in the model's slots and files, and what a wrong save or restore would do to them.

use std::collections::HashMap;
use std::time::Duration;

use session_slot_identity::SessionId;

use super::world::{World, agent_of};
use crate::slots::{Grant, LeaseId, SlotId};
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
    /// session's nor of one that begins alike.
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
            let alike = |session| self.said.is_some() && agent_of(session) == agent_of(whose);
            session.is_some_and(|session| session == whose || alike(session))
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
