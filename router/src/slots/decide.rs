//! May this waiter go now.
//!
//! Two things decide where llama-server puts a request: the slot named in it, or its own choice among the idle
//! slots *at the moment the request gets there*. The router can't see that moment. So while a request without a
//! named slot is on its way, no slot may be named (it might just be taken), and while a named one is on its way none
//! may be sent without a name (it might take the named slot first). Both races end in a request naming a busy slot,
//! which makes llama-server mix another session's text into a running answer. "On its way" ends when `/slots` shows
//! it at work, when its answer begins, or when it has ended: it has *landed*.

use std::time::Instant;

use session_slot_identity::SessionId;

use super::queue::Waiter;
use super::types::{Action, Fill, Grant, Heeds, Launch, LeaseId, Output, PinPolicy, ProbeId, SlotId, Want};
use super::{Backoff, Held, Sight, SlotTable};
use crate::warm::Occasion;

/// What is to be done with a waiter now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Go(Launch, Placing),
    Wait(Why),
    /// This slot would be taken from a session whose state in it is to be saved first.
    Save(SlotId),
}

/// Which slot a waiter is after.
pub(super) enum Target<'a> {
    /// The home of this session, or one to become its home.
    Home(&'a SessionId),
    /// The slot its body names.
    Named(SlotId),
    /// Whatever the server chooses.
    Any,
}

/// What becomes of the session's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placing {
    /// It has its slot, or there is no session.
    Stay,
    /// The slot becomes its home.
    Settle,
    /// It stays where it is though the request goes elsewhere.
    Spill,
}

/// What a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// A lease has to end.
    Busy,
    /// Something sent earlier has to land.
    Landing,
    /// Work that did not come through the router has to end.
    Foreign,
    /// `/slots` has to be seen.
    Unseen,
    /// Another session reads just now what this request begins with, from where it starts then; or what runs is about to
    /// end. Not beyond this.
    Until(Instant),
}

impl SlotTable {
    /// Grants whoever may go, in turn, given the answer to `probe`.
    pub(super) fn grant_waiting(&mut self, probe: ProbeId, now: Instant) {
        self.note_who_waits(now);
        let order = self.in_turn(probe);
        self.patience_ends = None;
        let awaits_save = self.awaits_save(probe, now);
        let mut line: Vec<Option<Waiter>> = self.waiters.drain(..).map(Some).collect();
        let (mut landing, mut unseen, mut foreign, mut granted) = (false, false, false, Vec::new());
        for index in order {
            let Some(mut waiter) = line[index].take_if(|waiter| waiter.probe <= probe) else { continue };
            match self.decide(&waiter, probe, awaits_save, now) {
                Verdict::Go(launch, placing) => {
                    self.grant(&waiter, launch, placing, now);
                    granted.push(waiter);
                }
                verdict => {
                    let why = self.prepare_for(&mut waiter, verdict, probe, now);
                    landing |= why == Why::Landing;
                    unseen |= why == Why::Unseen;
                    foreign |= why == Why::Foreign;
                    // Behind one that waits for a landing nobody may pass: a later start would put the landing off.
                    let last =
                        landing || self.keeps_room_for(&waiter) || self.was_passed_enough(&waiter, why);
                    waiter.waited = true;
                    line[index] = Some(waiter);
                    if last {
                        break;
                    }
                }
            }
        }
        self.waiters = line.into_iter().flatten().collect();
        self.note_overtaken(&granted);
        granted.iter().for_each(|waiter| self.send_to_the_back(&waiter.want));
        // Foreign work may have come in front of a save, which then waits for it.
        let watched =
            landing || unseen || self.save_all_from.is_some() || self.leases.values().any(Held::is_saving);
        pace(&mut self.landing_poll, watched, now);
        pace(&mut self.foreign_poll, foreign, now);
    }

    /// Why a waiter still waits, and what is done about it.
    fn prepare_for(&mut self, waiter: &mut Waiter, verdict: Verdict, probe: ProbeId, now: Instant) -> Why {
        let is_saving = |number| self.leases.get(&number).is_some_and(Held::is_saving);
        match verdict {
            Verdict::Wait(why) => {
                if let Why::Until(until) = why {
                    self.patience_ends = Some(self.patience_ends.map_or(until, |soonest| soonest.min(until)));
                }
                why
            }
            // One slot is enough for it.
            Verdict::Save(_) if waiter.saving.is_some_and(is_saving) => Why::Busy,
            // While the save goes on the slot is taken, and so this is what the waiter waits for.
            Verdict::Save(slot) if self.start_save(slot, probe, now) => {
                waiter.saving = Some(self.next_lease);
                Why::Busy
            }
            Verdict::Save(_) | Verdict::Go(..) => Why::Landing,
        }
    }

    fn note_who_waits(&mut self, now: Instant) {
        let sessions = self.waiters.iter().filter_map(|waiter| waiter.want.session().cloned());
        for session in sessions.collect::<Vec<_>>() {
            self.mark_seen(&session, now);
        }
    }

    /// Nobody may pass one that needs several slots: it would never find them free at the same time. But there is
    /// nothing to keep free for it while it waits for what no free slot would change.
    fn keeps_room_for(&self, waiter: &Waiter) -> bool {
        let strangers = self.slots.iter().filter(|slot| slot.stranger).count();
        let surely_foreign = strangers.saturating_sub(self.hidden());
        let hopeless = surely_foreign + self.width(waiter) > self.slots.len();
        waiter.shape.tasks > 1 && !hopeless && !self.goes_after_its_own(waiter)
    }

    /// It waits for the server to say what its slots hold or do, and others, to whom that is no matter, have passed it.
    fn was_passed_enough(&self, waiter: &Waiter, why: Why) -> bool {
        why == Why::Unseen && waiter.overtaken >= self.policy.queue.overtake
    }

    fn decide(&self, waiter: &Waiter, probe: ProbeId, awaits_save: bool, now: Instant) -> Verdict {
        if self.goes_after_its_own(waiter) {
            return Verdict::Wait(Why::Busy);
        }
        if !self.counted || self.sight == Sight::Loading {
            // A client's own choice of slot can't be checked now, so such requests go one by one.
            return self.free_launch(matches!(waiter.want, Want::Named(_)));
        }
        let width = self.width(waiter);
        if self.taken() + width > self.slots.len() {
            return Verdict::Wait(Why::Busy);
        }
        if self.taken() + self.foreign(probe) + width > self.slots.len() {
            return Verdict::Wait(Why::Foreign);
        }
        if let Some(until) = self.quiet_until(now) {
            return Verdict::Wait(Why::Until(until));
        }
        if awaits_save || self.may_go_anywhere(waiter) && self.has_unseen_ends(probe) {
            return Verdict::Wait(Why::Unseen);
        }
        if self.chooses_itself(waiter)
            && let Some(slot) = self.at_risk(width, probe, now)
        {
            return Verdict::Save(slot);
        }
        if waiter.shape.tasks > 1 {
            return self.free_launch(true);
        }
        let verdict = match self.target(waiter) {
            Target::Home(session) => self.place(waiter, session, probe, now),
            Target::Named(slot) => match self.obstacle(slot, probe) {
                Some(why) => Verdict::Wait(why),
                None if self.wants_save(slot, Occasion::Eviction, now) => Verdict::Save(slot),
                None => self.pin(slot, probe, Placing::Stay, Fill::Nothing, false),
            },
            Target::Any => self.free_launch(false),
        };
        match verdict {
            // It perhaps runs elsewhere than in the slot it names, so nothing else may be on its way.
            Verdict::Go(Launch::Pin { slot, fill, .. }, placing)
                if waiter.shape.heeds_slot == Heeds::Perhaps =>
            {
                self.pin(slot, probe, placing, fill, true)
            }
            verdict => verdict,
        }
    }

    /// The server chooses its slot, or may choose another one than it names.
    fn may_go_anywhere(&self, waiter: &Waiter) -> bool {
        self.chooses_itself(waiter) || waiter.shape.heeds_slot == Heeds::Perhaps
    }

    /// The server chooses its slots.
    fn chooses_itself(&self, waiter: &Waiter) -> bool {
        waiter.shape.tasks > 1 || matches!(self.target(waiter), Target::Any)
    }

    /// A turn has ended since `probe` was asked. What it has left has to be seen before anything starts that may run in
    /// its slot, or the other's state would be taken for the session's own.
    fn has_unseen_ends(&self, probe: ProbeId) -> bool {
        let mut expecting = self.slots.iter().filter_map(|slot| slot.expecting);
        self.sight == Sight::Clear && expecting.any(|expecting| expecting.probe > probe)
    }

    /// Which slot a waiter is after.
    pub(super) fn target<'a>(&self, waiter: &'a Waiter) -> Target<'a> {
        if waiter.shape.tasks > 1 || waiter.shape.heeds_slot == Heeds::No {
            return Target::Any;
        }
        match &waiter.want {
            Want::Session(session) if self.policy.pin != PinPolicy::Never => Target::Home(session),
            Want::Named(number) => Target::Named(self.wrap(*number)),
            Want::Session(_) | Want::Anonymous => Target::Any,
        }
    }

    /// Slots at work for nobody known, as the answer to `probe` shows them.
    pub(super) fn foreign(&self, probe: ProbeId) -> usize {
        let strangers = self.slots.iter().filter(|slot| slot.stranger).count();
        let somewhere = self.leases.values().filter(|held| held.location.is_none() && held.shows_in(probe));
        strangers.saturating_sub(somewhere.map(|held| held.width).sum())
    }

    pub(super) fn pin(
        &self,
        slot: SlotId,
        probe: ProbeId,
        placing: Placing,
        fill: Fill,
        alone: bool,
    ) -> Verdict {
        let blocked = self.leases.values().any(|held| {
            let seen = held.shows_in(probe) && self.sight == Sight::Clear;
            let unseen = held.location.is_none() && !seen;
            unseen || !held.landed && (alone || held.is_alone())
        });
        if blocked {
            return Verdict::Wait(Why::Landing);
        }
        Verdict::Go(Launch::Pin { slot, fill, alone }, placing)
    }

    fn free_launch(&self, alone: bool) -> Verdict {
        let mut on_the_way = self.leases.values().filter(|held| !held.landed);
        if on_the_way.any(|held| alone || held.is_alone() || !held.is_free()) {
            return Verdict::Wait(Why::Landing);
        }
        Verdict::Go(Launch::Free { alone }, Placing::Stay)
    }

    /// What keeps `slot` from being named.
    pub(super) fn obstacle(&self, slot: SlotId, probe: ProbeId) -> Option<Why> {
        let slot = &self.slots[slot.index()];
        if slot.stranger {
            return Some(Why::Foreign);
        }
        // A silent server tells nothing about a lease that has just ended; the leases alone decide then.
        let stale = slot.fresh_from > probe && self.sight == Sight::Clear;
        match slot.lease {
            Some(_) => Some(Why::Busy),
            None => stale.then_some(Why::Unseen),
        }
    }

    /// `id_slot` as llama-server reads it: modulo the number of slots, in its unsigned 64-bit arithmetic.
    pub(super) fn wrap(&self, number: i64) -> SlotId {
        let count = self.slots.len().max(1) as u64;
        SlotId::from_index((number.cast_unsigned() % count) as usize)
    }

    fn grant(&mut self, waiter: &Waiter, launch: Launch, placing: Placing, now: Instant) {
        let slots_seen = self.slots_seen();
        self.next_lease += 1;
        let number = self.next_lease;
        let session = waiter.want.session().cloned();
        let is_new = session.as_ref().is_some_and(|session| !self.left_something(session));
        if is_new && launch.fill() == Fill::Prime {
            self.warm.lent();
        }
        if session.is_none() || placing == Placing::Spill || waiter.shape.tasks > 1 {
            self.warm.ran_something_else();
        }
        let action = self.settle(session.as_ref(), launch, placing, now);
        self.hold(number, session, launch, placing, waiter, now);
        self.outputs.push(Output::Granted(Grant {
            ticket: waiter.ticket,
            lease: LeaseId { generation: self.generation, number },
            launch,
            action,
            waited: waiter.waited,
            slots_seen,
        }));
    }

    fn settle(
        &mut self,
        session: Option<&SessionId>,
        launch: Launch,
        placing: Placing,
        now: Instant,
    ) -> Action {
        let Some(session) = session else { return Action::Anonymous };
        let home = self.home_of(session);
        self.remember(session, home);
        self.mark_here(session, now);
        match (launch.slot(), placing) {
            (None, _) => Action::Free,
            (Some(_), Placing::Stay) => Action::Home,
            (Some(slot), Placing::Settle) => self.move_home(session, slot).map_or(Action::New, Action::Evict),
            (Some(slot), Placing::Spill) => Action::Spill(self.vacate(slot)),
        }
    }

    fn hold(
        &mut self,
        number: u64,
        session: Option<SessionId>,
        launch: Launch,
        placing: Placing,
        waiter: &Waiter,
        now: Instant,
    ) {
        let width = self.width(waiter);
        let location = launch.slot().filter(|_| waiter.shape.heeds_slot == Heeds::Yes);
        if let Some(slot) = location {
            let taken = &mut self.slots[slot.index()];
            taken.lease = Some(number);
            // What a turn before has left, if it has not been seen yet, never will be.
            taken.expecting = None;
            self.touch(slot);
        } else {
            // It may run where a turn has ended that a silent server has not shown yet.
            self.slots.iter_mut().for_each(|slot| slot.expecting = None);
        }
        if let Some(session) = &session {
            self.running.entry(session.clone()).or_default().push(number);
        }
        self.landing_poll.reset();
        let primes = matches!(launch.fill(), Fill::Prime | Fill::Measure);
        let filled = launch.fill() != Fill::Nothing;
        let after_task = self.slots.iter().filter_map(|slot| slot.seen.id_task).max();
        let landing_from = (!filled).then(|| self.asked.next());
        let held = Held {
            session,
            spilled: placing == Placing::Spill,
            location,
            width,
            after_task,
            resumable: waiter.shape.resumable,
            primes,
            landing_from,
            story: waiter.story.clone(),
            ..Held::new(launch, now)
        };
        self.leases.insert(number, held);
    }
}

impl Held {
    /// The answer to `probe` shows whatever slots it has.
    pub(super) fn shows_in(&self, probe: ProbeId) -> bool {
        self.landed && self.shown_from <= probe
    }

    fn is_alone(&self) -> bool {
        matches!(self.launch, Launch::Pin { alone: true, .. } | Launch::Free { alone: true })
    }

    fn is_free(&self) -> bool {
        matches!(self.launch, Launch::Free { .. })
    }
}

/// Keeps a poll going while somebody needs it.
fn pace(poll: &mut Backoff, needed: bool, now: Instant) {
    if needed {
        poll.missed(now);
    } else {
        poll.reset();
    }
}
