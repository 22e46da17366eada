//! What slot actions do: a state goes from a slot into a file, from a file into a slot, or away.
use super::engine::{Attempt, Engine};
use super::failure::Failure;
use super::records::{Crash, Deed, Log, Violation, What};
use super::slot::{Restored, SlotId};
use super::states::Bad;
use super::task::{Act, Action, Moved, Task, Work};

impl Engine {
    /// An action waits for its slot; while the test holds it everything else waits for it.
    pub(super) fn attempt_action(&mut self, task: Task, log: &mut Log) -> Attempt {
        let slot = self.wrap(task.named.unwrap_or(0));
        if let Some(running) = &self.slots[slot.0].running {
            // Somebody else's work may have come in between: nobody could have known.
            if !running.foreign {
                let (running, request, foreign) = (running.owner, task.request, task.foreign);
                log.violation(Violation { slot, running, request, foreign });
            }
            return Attempt::MustWait(task);
        }
        if self.holds(&task) {
            self.held = Some(task);
        } else {
            self.perform(slot, task, log);
        }
        Attempt::Done
    }

    /// The faults have changed: an action that was held may go on, and what came after it.
    pub(super) fn go_on(&mut self, log: &mut Log) {
        if self.killed.is_some() || self.held.as_ref().is_none_or(|task| self.holds(task)) {
            return;
        }
        let Some(task) = self.held.take() else { return };
        let slot = self.wrap(task.named.unwrap_or(0));
        self.perform(slot, task, log);
        while !self.is_blocked()
            && let Some(task) = self.inbox.pop_front()
        {
            self.submit(task, log);
        }
    }

    fn holds(&self, task: &Task) -> bool {
        let faults = &self.disk.faults;
        let Work::Act(act) = &task.work else { return false };
        match act.action {
            Action::Save(_) => faults.hold_saves,
            Action::Restore(_) => faults.hold_restores,
            Action::Erase => false,
        }
    }

    fn perform(&mut self, slot: SlotId, task: Task, log: &mut Log) {
        let (request, foreign) = (task.request, task.foreign);
        let Work::Act(Act { action, answer }) = task.work else { return };
        let done = match &action {
            Action::Save(name) => self.save(slot, name),
            Action::Restore(name) => match self.restore(slot, name) {
                Err(Bad::Deadly) => {
                    self.killed = Some((Crash { request, foreign }, answer));
                    return;
                }
                done => done.map_err(|_| Failure::no_state()),
            },
            Action::Erase => Ok(self.erase(slot)),
        };
        if self.options.record {
            let what = What::of(&action, done.as_ref().ok().map(|moved| moved.tokens));
            log.deeds.push(Deed { slot, request, what });
        }
        // A client that has left doesn't need the answer.
        let _ = answer.send(done);
    }

    fn save(&mut self, slot: SlotId, name: &str) -> Result<Moved, Failure> {
        let tokens = &self.slots[slot.0].tokens;
        if self.disk.faults.fail_saves {
            return Err(Failure::not_saved());
        }
        let written = self.disk.write(name, tokens, &self.options);
        let bytes = written.ok_or_else(Failure::not_saved)?;
        Ok(Moved { tokens: tokens.len(), bytes })
    }

    /// Whatever the slot held is gone, also when the file is bad.
    fn restore(&mut self, slot: SlotId, name: &str) -> Result<Moved, Bad> {
        let read = self.disk.read(name, &self.options);
        let read = if self.disk.faults.fail_restores { Err(Bad::Refused) } else { read };
        let slot = &mut self.slots[slot.0];
        slot.clear();
        let state = read?;
        let moved = Moved { tokens: state.tokens.len(), bytes: state.bytes };
        slot.tokens = state.tokens;
        let reused = self.options.restore_is_reused;
        slot.restored = Some(Restored { tokens: moved.tokens, reused, spoiled: state.spoiled });
        Ok(moved)
    }

    fn erase(&mut self, slot: SlotId) -> Moved {
        let slot = &mut self.slots[slot.0];
        let tokens = slot.tokens.len();
        slot.clear();
        Moved { tokens, bytes: 0 }
    }
}
