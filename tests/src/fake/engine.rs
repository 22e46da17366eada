//! The slots, the queue of deferred tasks and the RAM cache: llama-server's scheduling, no I/O.
use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::failure::Failure;
use super::options::Options;
use super::ram::RamCache;
use super::records::{Crash, Deed, Launch, Log, Violation, What};
use super::slot::{LastTask, Running, Slot, SlotId, TaskId};
use super::states::Disk;
use super::task::{Generate, Moved, Task, Work};
use super::tokens::token;

/// What a damaged request says instead of its own words.
pub(super) const DAMAGED: &str = "DAMAGED";

/// One run of the server, from its start to its end.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) options: Options,
    pub(super) slots: Vec<Slot>,
    pub(super) deferred: VecDeque<Task>,
    pub(super) ram: RamCache,
    /// Saved states: they outlive a run.
    pub(super) disk: Disk,
    /// The action that is under way; the server does nothing else meanwhile.
    pub(super) held: Option<Task>,
    /// What came in since.
    pub(super) inbox: VecDeque<Task>,
    /// A bad file has killed the server. The answer is kept, or somebody would say that it does not come.
    pub(super) killed: Option<(Crash, oneshot::Sender<Result<Moved, Failure>>)>,
    pub(super) prompt_tokens_total: usize,
    pub(super) predicted_tokens_total: usize,
    next_task: i64,
    clock: i64,
}

/// What became of a task that was offered to the slots.
pub(super) enum Attempt {
    Done,
    Failed,
    MustWait(Task),
}

impl Engine {
    pub(super) fn new(options: Options, disk: Disk) -> Self {
        Self {
            slots: (0..options.slots).map(Slot::new).collect(),
            deferred: VecDeque::new(),
            ram: RamCache::new(options.ram_cache_tokens),
            disk,
            held: None,
            inbox: VecDeque::new(),
            killed: None,
            prompt_tokens_total: 0,
            predicted_tokens_total: 0,
            next_task: 0,
            clock: 0,
            options,
        }
    }

    /// The next task number; polls use numbers up as well.
    pub(super) fn next_task(&mut self) -> TaskId {
        self.next_task += 1;
        TaskId(self.next_task - 1)
    }

    pub(super) fn slot(&self, id: SlotId) -> &Slot {
        &self.slots[id.0]
    }

    /// Whether the pool was full and took this task with it.
    pub(super) fn has_failed(&self, task: TaskId) -> bool {
        let failed = |running: &Running| running.owner == task && running.failed;
        self.slots.iter().any(|slot| slot.running.as_ref().is_some_and(failed))
    }

    /// Whether the server does nothing but one slot action, or nothing at all any more.
    pub(super) fn is_blocked(&self) -> bool {
        self.held.is_some() || self.killed.is_some()
    }

    /// Takes a new task: into a slot, or to the end of the queue.
    pub(super) fn submit(&mut self, task: Task, log: &mut Log) {
        if self.is_blocked() {
            self.inbox.push_back(task);
        } else if let Attempt::MustWait(task) = self.attempt(task, log) {
            self.deferred.push_back(task);
        }
    }

    /// Says one token. Returns the word, or why there is none.
    pub(super) fn say(&mut self, task: TaskId, role: &str, word: &str) -> Result<String, Failure> {
        if self.has_failed(task) {
            return Err(Failure::pool_full());
        }
        let mut said = word.to_owned();
        for slot in self.slots.iter_mut() {
            let (Some(running), Some(last)) = (&mut slot.running, &mut slot.last) else {
                continue;
            };
            if running.owner != task {
                continue;
            }
            if running.damaged {
                DAMAGED.clone_into(&mut said);
            }
            last.decoded += 1;
            self.predicted_tokens_total += 1;
            // A token is put through the model, and so held by the slot, when the next one is asked.
            slot.tokens.extend(running.unread.replace(token(role, &said)));
        }
        self.make_room();
        if self.has_failed(task) { Err(Failure::pool_full()) } else { Ok(said) }
    }

    /// Ends a task, done or not, wherever it is. Each slot it frees wakes exactly one other.
    pub(super) fn end(&mut self, task: TaskId, log: &mut Log) {
        self.deferred.retain(|deferred| deferred.id != task);
        self.inbox.retain(|waiting| waiting.id != task);
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            let Some(running) = slot.running.take_if(|running| running.owner == task) else {
                continue;
            };
            self.clock += 1;
            slot.last_used = self.clock;
            if running.is_child {
                slot.clear();
            }
            self.wake(SlotId(index), log);
        }
    }

    /// A slot was freed: one deferred task is looked at, the first that names this slot or else
    /// the first of all. If that one can't start the slot stays idle, whoever else is waiting.
    fn wake(&mut self, freed: SlotId, log: &mut Log) {
        loop {
            let names_it = |task: &Task| task.named == Some(freed.0 as i64);
            let index = self.deferred.iter().position(names_it).unwrap_or(0);
            let Some(task) = self.deferred.remove(index) else {
                return;
            };
            match self.attempt(task, log) {
                // It was in the slot for a moment, and leaving it wakes the next.
                Attempt::Failed => {}
                Attempt::Done => return,
                Attempt::MustWait(task) => return self.deferred.push_back(task),
            }
        }
    }

    fn attempt(&mut self, task: Task, log: &mut Log) -> Attempt {
        match task.work {
            Work::Act(_) => self.attempt_action(task, log),
            Work::Generate(_) => self.attempt_generation(task, log),
        }
    }

    fn attempt_generation(&mut self, task: Task, log: &mut Log) -> Attempt {
        let Work::Generate(work) = &task.work else {
            return Attempt::Done;
        };
        let Some(choice) = self.choose(task.named, &work.tokens) else {
            return Attempt::MustWait(task);
        };
        if choice.update_cache && work.uses_cache {
            self.exchange(choice.slot, &work.tokens);
        }
        if let Some(running) = &mut self.slots[choice.slot.0].running {
            running.damaged = true;
            let (slot, running) = (choice.slot, running.owner);
            let (request, foreign) = (task.request, task.foreign);
            log.violation(Violation { slot, running, request, foreign });
            return Attempt::MustWait(task);
        }
        if self.free_besides(choice.slot).len() < work.children {
            return Attempt::MustWait(task);
        }
        self.launch(choice.slot, task, log)
    }

    fn free_besides(&self, taken: SlotId) -> Vec<SlotId> {
        let others = self.slots.iter().filter(|slot| slot.id != taken && !slot.is_processing());
        others.map(|slot| slot.id).collect()
    }

    fn launch(&mut self, slot: SlotId, task: Task, log: &mut Log) -> Attempt {
        let Work::Generate(work) = task.work else {
            return Attempt::Done;
        };
        if work.tokens.len() >= self.options.n_ctx {
            let failure = Failure::too_long(work.tokens.len(), self.options.n_ctx);
            let _ = work.answer.send(Err(failure));
            return Attempt::Failed;
        }
        if self.slots[slot.0].holds_anothers_state(&work.tokens) && !task.foreign {
            log.misplaced.push(task.request);
        }
        let children = self.free_besides(slot).into_iter().take(work.children);
        for (child, index) in children.collect::<Vec<_>>().into_iter().zip(1..) {
            self.occupy(child, TaskId(task.id.0 + index), task.id, task.foreign, &work);
        }
        let launch = self.occupy(slot, task.id, task.id, task.foreign, &work);
        let launch = Launch { request: task.request, ..launch };
        self.prompt_tokens_total += launch.prompt_n;
        if self.options.record {
            log.launches.push(launch);
            log.deeds.push(Deed { slot, request: task.request, what: What::Launched(launch) });
        }
        self.save_idle_slots();
        self.make_room();
        // If the client has left by now, its ticket's drop ends the task again.
        let _ = work.answer.send(Ok(launch));
        Attempt::Done
    }

    /// Puts a prompt into a slot. The last prompt token is always computed: its logits are needed.
    fn occupy(&mut self, slot: SlotId, id: TaskId, owner: TaskId, foreign: bool, work: &Generate) -> Launch {
        let slot = &mut self.slots[slot.0];
        let held = slot.found_by(&work.tokens);
        let cached = if work.uses_cache { held.min(work.tokens.len() - 1) } else { 0 };
        let computed = work.tokens.len() - cached;
        slot.tokens.clone_from(&work.tokens);
        let restored = slot.restored.take();
        slot.last = Some(LastTask { id, limit: work.limit, computed, cached, decoded: 0 });
        let mut running = Running::new(owner, id != owner, foreign);
        running.damaged = cached > 0 && restored.is_some_and(|restored| restored.spoiled);
        slot.running = Some(running);
        let restored = restored.map(|restored| restored.tokens);
        Launch { task: owner, slot: slot.id, cache_n: cached, prompt_n: computed, restored, request: 0 }
    }
}
