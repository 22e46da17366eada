//! What an answer of `/slots` changes.

use std::time::{Duration, Instant};

use super::slot::{By, Expecting};
use super::types::{Home, Launch, Mark, Output, ProbeId, Reading, Refusal, SeenSlot, SlotId};
use super::{Held, Phase, Sight, Slot, SlotTable, Unplaced};

/// Without `/slots`, how long llama-server is given to notice that a client has left. It looks after one second
/// without traffic when the request is not a stream.
const BLIND_GRACE: Duration = Duration::from_secs(2);
/// ... to end a request that goes on without its client: longer than most answers take.
const BLIND_GRACE_DETACHED: Duration = Duration::from_secs(10 * 60);

/// Looks a request that may still be on its way has to be missing in, after its client has left.
const IDLE_LOOKS: u8 = 2;

impl SlotTable {
    /// The answer to `probe`, or its silence. Grants whoever may go.
    pub fn observe(&mut self, probe: ProbeId, reading: Reading, now: Instant) {
        match reading {
            Reading::Slots(seen) => self.see(probe, &seen, now),
            Reading::Silent => self.go_silent(now),
            Reading::Blind(count) => self.go_blind(count, now),
            Reading::Loading => self.lose_server(Sight::Loading, now),
            Reading::Refused => {
                self.lose_server(Sight::Unknown, now);
                self.refuse_all(Refusal::Unreachable);
            }
        }
        // While it loads, or can't be reached, nothing can be restored anyway.
        if !self.unknown || !self.is_seen() {
            self.save_due(probe, now);
            self.grant_waiting(probe, now);
        }
        self.check_invariants();
    }

    fn go_silent(&mut self, now: Instant) {
        self.sight = Sight::Silent;
        self.look_later(now);
        self.look_at_strangers_later(now);
    }

    /// This look showed nothing of those who are leaving.
    fn look_later(&mut self, now: Instant) {
        for held in self.leases.values_mut() {
            if let Phase::Leaving { poll, .. } = &mut held.phase {
                poll.missed(now);
            }
        }
    }

    fn see(&mut self, probe: ProbeId, seen: &[SeenSlot], now: Instant) {
        if self.counted && self.shows_restart(seen) {
            self.restart(now);
        }
        let first_look = !self.counted;
        if seen.iter().all(|slot| slot.id_task.is_none()) {
            self.warm.has_run_nothing();
        }
        self.resize(seen.len());
        self.sight = Sight::Clear;
        let newest_task = seen.iter().filter_map(|slot| slot.id_task).max();
        self.note_overwritten(seen);
        self.see_each(probe, seen, newest_task, first_look, now);
        self.give_up_saves(now);
        self.unpin_unheeded(probe);
        self.locate(probe);
        if self.foreign(probe) > 0 {
            self.warm.ran_something_else();
        }
        self.settle_leaving(probe, now);
        self.note_left(probe);
        self.place_unplaced(probe);
        self.learn_clearing(newest_task);
        self.watch_strangers(now);
    }

    /// A used slot keeps a task number while the server lives. Its numbers need not grow in every slot, since tasks
    /// that had to wait start out of order; but if all of them went back, counting has begun anew.
    fn shows_restart(&self, seen: &[SeenSlot]) -> bool {
        let pairs =
            || self.slots.iter().map(|slot| slot.seen.id_task).zip(seen.iter().map(|now| now.id_task));
        let mut used = pairs().filter(|(before, _)| before.is_some()).peekable();
        let lost = pairs().any(|(before, now)| before.is_some() && now.is_none());
        seen.len() != self.slots.len()
            || lost
            || used.peek().is_some() && used.all(|(before, now)| now < before)
    }

    /// Voids every lease; assignments stay as hints, all of them cold.
    fn restart(&mut self, now: Instant) {
        self.abandon_saves(now);
        self.unknown |= self.warm.is_on();
        self.warm.restarted();
        self.generation.0 += 1;
        self.leases.clear();
        self.running.clear();
        self.departed.clear();
        self.unplaced.clear();
        self.slots.iter_mut().for_each(Slot::reset);
        self.clears_idle = None;
        self.landing_poll.reset();
        self.foreign_poll.reset();
        self.stuck_poll = None;
        self.outputs.push(Output::Restarted);
    }

    fn lose_server(&mut self, sight: Sight, now: Instant) {
        if self.sight != sight {
            self.restart(now);
            self.sight = sight;
        }
    }

    /// Sessions whose slot no longer exists lose their home and get a new one with their next turn.
    fn resize(&mut self, count: usize) {
        self.counted = true;
        let gone = self.slots.split_off(count.min(self.slots.len()));
        for session in gone.into_iter().filter_map(|slot| slot.owner) {
            self.lose_home(&session);
        }
        self.slots.resize_with(count, Slot::default);
        // What was sent before the server had said how many slots it has can't have more.
        self.leases.values_mut().for_each(|held| held.width = held.width.min(count.max(1)));
    }

    fn go_blind(&mut self, count: Option<u32>, now: Instant) {
        if let Some(count) = count {
            let count = count as usize;
            if self.counted && count != self.slots.len() {
                self.restart(now);
            }
            self.resize(count);
        }
        self.sight = Sight::Blind;
        self.departed.clear();
        self.slots.iter_mut().for_each(|slot| {
            slot.expecting = None;
            slot.stranger = false;
            slot.standstill = None;
        });
        self.unplaced.clear();
        self.stuck_poll = None;
        self.release_where(now, |held| match &held.phase {
            Phase::Leaving { since, detached, .. } => {
                now >= *since + if *detached { BLIND_GRACE_DETACHED } else { BLIND_GRACE }
            }
            Phase::Running => false,
        });
        self.look_later(now);
    }

    /// Takes over what each slot looks like.
    fn see_each(
        &mut self,
        probe: ProbeId,
        seen: &[SeenSlot],
        newest_task: Option<i64>,
        first_look: bool,
        at: Instant,
    ) {
        for (slot, now) in self.slots.iter_mut().zip(seen) {
            let before = std::mem::replace(&mut slot.seen, *now);
            slot.seen_by = probe;
            let holds = now.tokens.is_some_and(|tokens| tokens > 0);
            slot.has_held = holds || slot.has_held && before.id_task == now.id_task;
            if now.processing {
                slot.idle_since = None;
            } else if slot.idle_since.is_none() || before.id_task != now.id_task {
                // At the first look at a server that has long been running: a used slot that is empty was idle when
                // a later task started, and was cleared then.
                let cleared = first_look && now.tokens == Some(0);
                slot.has_held |= cleared;
                slot.idle_since = if cleared { now.id_task } else { newest_task };
            }
            slot.stranger = now.processing && slot.lease.is_none() && slot.fresh_from <= probe;
            let held = slot.lease.filter(|_| now.processing).and_then(|number| self.leases.get_mut(&number));
            if let Some(held) = held.filter(|held| held.may_show_in(probe)) {
                held.seen_in(probe);
                held.task = held.task.or(now.id_task);
                if now.progress.generated > Some(0) {
                    held.generates_since.get_or_insert(at);
                }
            }
        }
    }

    /// Builds that ignore `id_slot` on some routes run a request elsewhere. It shows when its answer has begun and the
    /// slot named for it is idle, while a newer task is at work: from then on its slot counts as the server's choice.
    fn unpin_unheeded(&mut self, probe: ProbeId) {
        let strangers = self.slots.iter().filter(|slot| slot.stranger).filter_map(|slot| slot.seen.id_task);
        let Some(newest) = strangers.max() else { return };
        for (number, held) in &mut self.leases {
            let Some(slot) = held.location.filter(|_| held.answered.is_some_and(|from| from <= probe)) else {
                continue;
            };
            let slot = &mut self.slots[slot.index()];
            if slot.lease == Some(*number) && !slot.seen.processing && Some(newest) > held.after_task {
                slot.lease = None;
                held.location = None;
                held.shown_from = probe;
                held.launch = Launch::Free { alone: false };
            }
        }
    }

    /// Finds out which requests whose slot llama-server chose have landed. A task newer than any that was seen when
    /// the request was granted may be its own; but of several such requests none is known to have landed before as
    /// many tasks are seen as there are requests: taking one that is still on its way for landed would allow a slot
    /// to be named that it may get.
    fn locate(&mut self, probe: ProbeId) {
        let strangers = self.slots.iter().enumerate().filter(|(_, slot)| slot.stranger);
        let strangers: Vec<(usize, Option<i64>)> =
            strangers.map(|(index, slot)| (index, slot.seen.id_task)).collect();
        let open =
            self.leases.iter_mut().filter(|(_, held)| held.location.is_none() && held.may_show_in(probe));
        let mut open: Vec<(&u64, &mut Held)> = open.collect();
        self.departed.retain(|gone| *gone > probe);
        let requests = open.iter().map(|(_, held)| held.width).sum::<usize>() + self.departed.len();
        for (number, held) in &mut open {
            let fitting: Vec<_> = strangers.iter().filter(|(_, task)| *task > held.after_task).collect();
            if fitting.len() >= requests {
                held.seen_in(probe);
            }
            // Alone on its way and alone among the new tasks, this is its slot.
            if let ([(index, _)], 1) = (fitting.as_slice(), requests) {
                held.location = Some(SlotId::from_index(*index));
                self.slots[*index].lease = Some(**number);
                self.slots[*index].stranger = false;
            }
        }
    }

    /// Ends the leases whose client has left once llama-server is seen to have stopped.
    fn settle_leaving(&mut self, probe: ProbeId, now: Instant) {
        for held in self.leases.values_mut() {
            let Phase::Leaving { poll, probe: from, idle_seen, .. } = &mut held.phase else { continue };
            if *from > probe {
                continue;
            }
            let works = |slot: &SlotId| self.slots[slot.index()].seen.processing;
            let busy = match held.location {
                // What shows the layout may run beside it.
                Some(slot) => works(&slot) || held.beside.as_ref().is_some_and(works),
                None => self.slots.iter().any(|slot| slot.stranger && slot.seen.id_task > held.after_task),
            };
            if !busy && held.landed && held.location.is_some() {
                *idle_seen = IDLE_LOOKS;
            } else if poll.missed(now) {
                *idle_seen = if busy { 0 } else { *idle_seen + 1 };
            }
        }
        self.release_where(now, |held| matches!(held.phase, Phase::Leaving { idle_seen: IDLE_LOOKS.., .. }));
    }

    fn release_where(&mut self, now: Instant, ended: impl Fn(&Held) -> bool) {
        let numbers: Vec<u64> =
            self.leases.iter().filter(|(_, held)| ended(held)).map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(held) = self.remove_lease(number) else { continue };
            let Some(slot) = held.location else { continue };
            let slot = &mut self.slots[slot.index()];
            // This very answer showed the slot idle, and what the broken turn left in it.
            slot.fresh_from = ProbeId::default();
            // Another task than was seen of it, or one although it never got there: what is there is somebody else's.
            let own = held.task.map_or(held.landed, |task| Some(task) == slot.seen.id_task);
            let home = own && held.session.is_some() && held.session == slot.owner && !held.spilled;
            if home && slot.lease.is_none() {
                slot.expecting = Some(Expecting::new(By::Turn(held.task), ProbeId::default(), now));
            }
        }
    }

    /// Records what finished turns have left in their slots.
    fn note_left(&mut self, probe: ProbeId) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(expecting) = slot.expecting.take_if(|expecting| expecting.probe <= probe) else {
                continue;
            };
            let By::Turn(task) = expecting.by else { continue };
            let same_task = task.is_none() || task == slot.seen.id_task;
            let undisturbed = slot.lease.is_none() && !slot.seen.processing && same_task;
            slot.left = slot.mark().filter(|_| undisturbed);
            slot.save_due = slot.left.is_some();
            if let Some(session) = slot.owner.clone() {
                if self.clears_idle == Some(true) {
                    self.warm.seen(&session, same_task && slot.seen.tokens == Some(0));
                }
                let home = Home { slot: SlotId::from_index(index), left: slot.left };
                self.outputs.push(Output::Left { session, home });
            }
        }
    }

    /// Finds the slots llama-server chose by what they hold now.
    fn place_unplaced(&mut self, probe: ProbeId) {
        let (ready, later) =
            std::mem::take(&mut self.unplaced).into_iter().partition(|entry| entry.probe <= probe);
        self.unplaced = later;
        let ready: Vec<Unplaced> = ready;
        for entry in ready {
            let found = self.only_slot_holding(entry.tokens);
            let nowhere = !self.slots.iter().any(|slot| slot.seen.tokens == Some(entry.tokens));
            if self.clears_idle == Some(true) && (found.is_some() || nowhere) {
                self.warm.seen(&entry.session, nowhere);
            }
            let Some((slot, mark)) = found else { continue };
            self.move_home(&entry.session, slot);
            let found = &mut self.slots[slot.index()];
            found.left = Some(mark);
            found.save_due = true;
            self.outputs.push(Output::Left { session: entry.session, home: Home { slot, left: Some(mark) } });
        }
    }

    fn only_slot_holding(&self, tokens: u64) -> Option<(SlotId, Mark)> {
        let mut holding = self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let mark = slot.mark().filter(|mark| mark.tokens == tokens)?;
            // One that holds what its owner has left is not where another turn ran.
            let may_be = slot.is_free() && !slot.seen.processing && !slot.is_warm();
            may_be.then_some((SlotId::from_index(index), mark))
        });
        holding.next().filter(|_| holding.next().is_none())
    }

    /// A slot that was idle when a later task started shows what the server does to idle slots: on default
    /// settings it moves them to its RAM cache and empties them. One that is emptied while others are kept was
    /// purged for want of memory, which is another matter.
    fn learn_clearing(&mut self, newest_task: Option<i64>) {
        let outlived = |slot: &&Slot| {
            let idle = slot.lease.is_none() && !slot.seen.processing && slot.seen.id_task.is_some();
            idle && slot.has_held && slot.idle_since < newest_task
        };
        let held: Vec<u64> = self.slots.iter().filter(outlived).filter_map(|slot| slot.seen.tokens).collect();
        if held.is_empty() {
            return;
        }
        let clears_idle = held.iter().all(|tokens| *tokens == 0);
        if self.clears_idle.replace(clears_idle) != Some(clears_idle) {
            self.outputs.push(Output::Learned { clears_idle });
        }
    }
}

impl Held {
    /// The answer to `probe` was asked for after this request was sent.
    fn may_show_in(&self, probe: ProbeId) -> bool {
        self.landing_from.is_some_and(|from| from <= probe)
    }

    /// The answer to `probe` shows it at work.
    fn seen_in(&mut self, probe: ProbeId) {
        if !std::mem::replace(&mut self.landed, true) {
            self.shown_from = probe;
        }
    }
}
