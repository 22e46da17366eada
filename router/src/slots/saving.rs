//! Saved states: when the table has a slot's state saved, and which requests start from one.
//!
//! A save is a lease of the table's own: while it goes on the slot is taken, and whatever would endanger it waits as it
//! would for a request on its way. On a server that clears idle slots that is everything, as any start would clear the
//! slot first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use session_slot_identity::SessionId;

use super::decide::{Placing, Verdict};
use super::queue::Waiter;
use super::slot::{By, Expecting, Slot};
use super::types::{End, Fill, Launch, LeaseId, Mark, Output, PinPolicy, ProbeId, SlotId, Start};
use super::{Held, Phase, Sight, SlotTable};
use crate::usage::Usage;
use crate::warm::{Occasion, RestoreError, SaveError, Source, StateId, Story, Turn, Warm, Written};

/// Nobody waits longer for what its siblings read, one after the other.
const LONGEST_SHARED: Duration = Duration::from_secs(120);

/// What a lease is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// A request.
    Request,
    /// Saving the state that has this mark.
    Save { state: StateId, mark: Mark },
}

impl SlotTable {
    /// What is known of saved states: to be told of the server, and asked for the status page.
    pub fn warm(&mut self) -> &mut Warm {
        &mut self.warm
    }

    /// The save that an [`Output::Save`] asked for has ended.
    pub fn save_ended(&mut self, lease: LeaseId, outcome: Result<Written, SaveError>, now: Instant) {
        let Some(held) = self.held_mut(lease) else { return };
        let Work::Save { state, mark } = held.work else { return };
        // What was given up has been counted, and is not used: the slot may have held something else by then.
        let given_up = !held.is_saving();
        let slot = self.remove_lease(lease.number).and_then(|held| held.location);
        if let Some(slot) = slot {
            // Also if it went wrong: it would again.
            self.slots[slot.index()].kept = Some(mark);
        }
        if !given_up {
            self.warm.saved(state, outcome, now);
        }
        self.reconsider();
        self.look_again_to_save();
        self.check_invariants();
    }

    /// The restore of a lease with this [`Fill::Restore`] has ended; [`SlotTable::may_start`] follows.
    pub fn restored(
        &mut self,
        lease: LeaseId,
        fill: Fill,
        outcome: Result<Written, RestoreError>,
        now: Instant,
    ) {
        let Fill::Restore(state) = fill else { return };
        if let Some(held) = self.held_mut(lease) {
            held.restored = outcome.is_ok().then_some(state);
            let filled = held.launch.slot().and_then(|slot| self.slots.get_mut(slot.index()));
            // It stands beside the number of an earlier task, but no task that started since has left it alone.
            filled.into_iter().for_each(|slot| slot.idle_since = Some(i64::MAX));
        }
        // Also of a lease that a restart has ended: the state may have been the cause.
        self.warm.restored(state, outcome, now);
    }

    /// If everything is to be saved: another look is wanted for it.
    pub(super) fn look_again_to_save(&mut self) {
        let next = self.asked.next();
        self.save_all_from.iter_mut().for_each(|from| *from = next);
    }

    /// Every slot whose state is worth it is to be saved, once, as the router or the server is about to stop.
    pub fn save_all(&mut self) {
        self.save_all_from = Some(self.asked.next());
    }

    /// Slots are being saved, or [`SlotTable::save_all`] has not been answered by a look at the slots yet.
    #[must_use]
    pub fn saving(&self) -> bool {
        self.save_all_from.is_some() || self.leases.values().any(Held::is_save)
    }

    /// The server has gone, and the saves under way with it.
    pub(super) fn abandon_saves(&mut self, now: Instant) {
        let saves = self.leases.values().filter_map(|held| held.state_saved());
        for state in saves.collect::<Vec<_>>() {
            self.warm.saved(state, Err(SaveError::Failed), now);
        }
        self.save_all_from = None;
    }

    /// A save is given up: its slot may be at work for somebody else by now.
    pub(super) fn abandon_save(&mut self, lease: LeaseId, now: Instant) {
        let Some(held) = self.held_mut(lease).filter(|held| held.is_saving()) else { return };
        let (Work::Save { state, mark }, Some(slot)) = (held.work, held.location) else { return };
        // Not tried again: it would hang again.
        self.slots[slot.index()].kept = Some(mark);
        self.warm.saved(state, Err(SaveError::Failed), now);
    }

    /// A slot that is being saved is seen at work: foreign work was there first, and the save stands behind it. It is
    /// given up; the slot stays taken until it is seen idle.
    pub(super) fn give_up_saves(&mut self, now: Instant) {
        let stuck = |held: &Held| {
            held.is_saving() && held.location.is_some_and(|slot| self.slots[slot.index()].seen.processing)
        };
        let stuck: Vec<u64> =
            self.leases.iter().filter(|(_, held)| stuck(held)).map(|(number, _)| *number).collect();
        for number in stuck {
            self.release(LeaseId { generation: self.generation, number }, End::Broken, now);
        }
    }

    /// Starts the saves that are due, before anything that `probe` lets go.
    pub(super) fn save_due(&mut self, probe: ProbeId, now: Instant) {
        if self.sight == Sight::Silent {
            return;
        }
        let all = self.save_all_from.is_some_and(|from| from <= probe);
        let mut left = false;
        for slot in (0..self.slots.len()).map(SlotId::from_index) {
            let due = self.slots[slot.index()].save_due || all;
            let occasion = due.then(|| self.occasion(slot, all, now)).flatten();
            let free = self.obstacle(slot, probe).is_none();
            // One that can't be started now, as something is on its way, is looked at again.
            let later = occasion.is_some_and(|_| !free || !self.start_save(slot, probe, now));
            self.slots[slot.index()].save_due = later;
            left |= later;
        }
        if all && !left || self.sight != Sight::Clear {
            self.save_all_from = None;
        }
    }

    /// Why the state in `slot` should be saved although nobody wants the slot.
    fn occasion(&self, slot: SlotId, all: bool, now: Instant) -> Option<Occasion> {
        let stop = all.then_some(Occasion::Stop);
        let cleared_soon = (self.clears_idle == Some(true)).then_some(Occasion::TurnEnd);
        let occasions = [stop, cleared_soon, Some(Occasion::Shared)].into_iter().flatten();
        occasions.into_iter().find(|occasion| self.wants_save(slot, *occasion, now))
    }

    /// `slot` holds what its owner left there, which is in no file, and saving it pays.
    pub(super) fn wants_save(&self, slot: SlotId, occasion: Occasion, now: Instant) -> bool {
        let slot = &self.slots[slot.index()];
        let (Some(owner), Some(mark)) = (&slot.owner, slot.left) else { return false };
        let unsaved = self.sight == Sight::Clear && slot.is_warm() && slot.kept != Some(mark);
        unsaved && self.saves() && self.save_pays(owner, mark.tokens, occasion, now)
    }

    /// A slot whose state is to be saved before `width` tasks go where the server likes: nothing is left but such slots, and
    /// of those this was used least recently, as the server chooses if none begins like the request.
    pub(super) fn at_risk(&self, width: usize, probe: ProbeId, now: Instant) -> Option<SlotId> {
        let slots = (0..self.slots.len()).map(SlotId::from_index);
        let free = slots.filter(|slot| self.obstacle(*slot, probe).is_none());
        let (of_worth, others): (Vec<_>, Vec<_>) =
            free.partition(|slot| self.wants_save(*slot, Occasion::Eviction, now));
        let oldest = of_worth.into_iter().min_by_key(|slot| self.slots[slot.index()].last_used);
        oldest.filter(|_| others.len() < width)
    }

    /// States are saved. Nothing is ever restored where no slot is named.
    fn saves(&self) -> bool {
        self.warm.is_on() && self.policy.pin != PinPolicy::Never
    }

    /// As [`Warm::save_pays`], with those who would wait meanwhile. At the end of a turn nobody starts before it is saved.
    fn save_pays(&self, owner: &SessionId, tokens: u64, occasion: Occasion, now: Instant) -> bool {
        let waiting = if occasion == Occasion::TurnEnd { self.waiters.len() } else { 0 };
        self.warm.save_pays(owner, tokens, occasion, self.leases.len() + waiting, now)
    }

    /// Has the state in `slot`, which is free, saved. False if that would be dangerous now.
    pub(super) fn start_save(&mut self, slot: SlotId, probe: ProbeId, now: Instant) -> bool {
        let alone = !self.keeps_idle();
        // One that has ended somewhere since the probe was asked may have overwritten this very slot.
        let overwritten = self.departed.iter().any(|gone| *gone > probe);
        if overwritten || self.leases.values().any(|held| self.endangers_saves(held, alone, probe)) {
            return false;
        }
        let launch = Launch::Pin { slot, fill: Fill::Nothing, alone };
        let state = &self.slots[slot.index()];
        let (Some(owner), Some(mark)) = (state.owner.clone(), state.left) else { return false };
        let state = self.warm.begin(&owner, mark.tokens, now);
        self.next_lease += 1;
        let number = self.next_lease;
        self.slots[slot.index()].lease = Some(number);
        self.leases.insert(number, Held::save(launch, slot, Work::Save { state, mark }, now));
        let lease = LeaseId { generation: self.generation, number };
        self.outputs.push(Output::Save { lease, slot, state });
        true
    }

    /// Something runs, and on this server too much is lost when a turn ends while another request starts: nothing starts before
    /// this moment. One that takes much longer than others seldom ends just then, and is not waited for.
    pub(super) fn quiet_until(&self, now: Instant) -> Option<Instant> {
        let longest = self.warm.quiet_for().filter(|_| self.clears_idle == Some(true) && self.saves())?;
        let runs = |held: &&Held| !held.is_save() && matches!(held.phase, Phase::Running);
        let running = self.leases.values().filter(runs);
        running.map(|held| held.granted_at + longest).max().filter(|until| *until > now)
    }

    /// It may start where a state is saved; or, where every start clears the idle slots, start at all.
    fn endangers_saves(&self, held: &Held, alone: bool, probe: ProbeId) -> bool {
        let starts_nothing = held.landed || held.is_prepared() || held.is_saving();
        held.location.is_none() && !held.shows_in(probe) || alone && !starts_nothing
    }

    /// Whether the request of a lease may be sent, whose slot has been filled or measured. It is taken for sent then.
    pub fn may_start(&mut self, lease: LeaseId, now: Instant) -> Start {
        if self.held_mut(lease).is_none() {
            return Start::Never;
        }
        if self.would_clear_unsaved(now) {
            return Start::Later;
        }
        self.filled(lease);
        Start::Now
    }

    /// Whether the one-word prompt may be sent that shows the layout, for a lease whose slot is to be filled with a state.
    /// Nothing is saved then before that has run.
    pub fn may_measure(&mut self, lease: LeaseId, now: Instant) -> Start {
        let later = self.would_clear_unsaved(now);
        match self.held_mut(lease) {
            None => Start::Never,
            Some(_) if later => Start::Later,
            Some(held) => {
                held.primes = true;
                Start::Now
            }
        }
    }

    /// Whatever starts now clears slots whose states are being saved, or are about to be.
    fn would_clear_unsaved(&self, now: Instant) -> bool {
        let clears = !self.keeps_idle() && self.is_seen() && self.warm.is_on();
        let unseen = |slot: &Slot| slot.expecting.is_some_and(|expecting| expecting.is_awaited(now));
        clears && (self.slots.iter().any(unseen) || self.leases.values().any(Held::is_saving))
    }

    /// `/slots` is answered, if not at once: while the server reads a long prompt it answers nothing.
    pub(super) fn is_seen(&self) -> bool {
        matches!(self.sight, Sight::Clear | Sight::Silent)
    }

    /// While `/slots` is silent nobody knows whether a slot is idle. Whoever has a state to start from, or takes the slot
    /// of one who has none in a file, is no worse off if it waits for the answer: its request would wait behind it.
    pub(super) fn waits_for_sight(&self, waiter: &Waiter, session: &SessionId, slot: SlotId) -> bool {
        let of_worth = |slot: &Slot| slot.left.is_some() && slot.kept != slot.left;
        self.sight == Sight::Silent
            && self.warm.is_on()
            && (of_worth(&self.slots[slot.index()])
                || self.warm.source_for(session, waiter.story.as_deref()).is_some())
    }

    /// A turn has just ended whose slot the next start would clear: nothing starts before its state has been seen, and
    /// saved.
    pub(super) fn awaits_save(&self, probe: ProbeId, now: Instant) -> bool {
        if self.clears_idle != Some(true) || !self.is_seen() || !self.saves() {
            return false;
        }
        let unseen = |expecting: Expecting| expecting.probe > probe && expecting.is_awaited(now);
        let pays = |owner| self.save_pays(owner, self.warm.left_by(owner), Occasion::TurnEnd, now);
        let ended = self.slots.iter().filter(|slot| slot.expecting.is_some_and(unseen));
        let is_clear = self.sight == Sight::Clear;
        let somewhere = self.unplaced.iter().filter(|unplaced| is_clear && unplaced.probe > probe);
        let somewhere = somewhere.map(|unplaced| &unplaced.session);
        ended.filter_map(|slot| slot.owner.as_ref()).chain(somewhere).any(pays)
    }

    /// The state that a request of `session` starts from, where its slot is not provably warm.
    pub(super) fn source(&self, waiter: &Waiter, session: &SessionId) -> Option<Source> {
        if self.sight != Sight::Clear || !self.warm.is_on() {
            return None;
        }
        let source = self.warm.source_for(session, waiter.story.as_deref())?;
        // What the server itself has put aside is at least as recent, if it is still there.
        let in_ram = self.clears_idle == Some(true) && self.left_something(session);
        // What comes of one try is awaited before the next one is risked.
        let is_tried = self.leases.values().any(|held| held.launch.fill() == Fill::Prime);
        let chance = if in_ram { self.warm.ram_hit(session, !is_tried) } else { 0.0 };
        let kept = self.warm.prompt_of(session) as f64 * chance;
        (source.tokens as f64 >= kept).then_some(source)
    }

    /// Puts a saved state into `slot` first. As with a primer, on a server that clears idle slots nothing may start
    /// before the request has got there.
    pub(super) fn pin_restored(
        &self,
        slot: SlotId,
        source: Source,
        probe: ProbeId,
        placing: Placing,
    ) -> Verdict {
        self.pin(slot, probe, placing, Fill::Restore(source.state), !self.keeps_idle())
    }

    /// Until when the first request of a session waits for another one that reads the same beginning just now: reading
    /// it twice at once would take them both longer. `None`: it need not.
    pub(super) fn shares_with_running(&self, waiter: &Waiter, now: Instant) -> Option<Instant> {
        let story = waiter.story.as_deref().filter(|_| self.warm.is_on() && self.is_seen())?;
        let shared = |other: &Story| {
            let shared = self.warm.shared_reading(story, other);
            (shared > 0.0).then(|| Duration::from_secs_f64(shared))
        };
        let running = self
            .leases
            .values()
            .filter(|held| held.session.is_some() && !held.spilled && matches!(held.phase, Phase::Running));
        let running = running.filter_map(|held| {
            let shared = shared(held.story.as_deref()?)?;
            Some(held.worth_waiting_until(shared, now))
        });
        // Its turn has ended, but what it left has not been seen yet, or is just being saved.
        let ended = self.slots.iter().filter_map(|slot| {
            let shared = shared(self.warm.story_of(slot.owner.as_ref()?)?)?;
            let lease = slot.lease.and_then(|number| self.leases.get(&number));
            let saved_since = lease.filter(|held| held.is_saving()).map(|held| held.granted_at);
            let left = slot.expecting.filter(|left| matches!(left.by, By::Turn(_)) && left.is_awaited(now));
            Some(saved_since.or(left.map(|left| left.since))? + shared)
        });
        let longest = waiter.since + LONGEST_SHARED;
        running.chain(ended).max().map(|until| until.min(longest)).filter(|until| *until > now)
    }

    /// Takes in what a turn teaches.
    pub(super) fn learn(&mut self, lesson: Lesson, usage: Option<Usage>, now: Instant) {
        let Lesson { session, story, primed, restored, granted_at } = lesson;
        if let Some(usage) = usage.filter(|_| primed) {
            self.warm.ram_tried(&session, story.as_deref(), usage);
        }
        self.warm.ended(&session, Turn { story, usage, restored }, now);
        if let Some(usage) = usage {
            let others = |held: &&Held| !held.is_save() && held.session.as_ref() != Some(&session);
            let requests = self.leases.values().filter(others).count() + self.waiters.len();
            let others = requests.min(self.slots.len().saturating_sub(1));
            self.warm.ran(&session, now.saturating_duration_since(granted_at), usage, others);
        }
    }
}

/// What a turn teaches about reading, returning, and the state it started from.
#[derive(Debug)]
pub(super) struct Lesson {
    session: SessionId,
    story: Option<Arc<Story>>,
    /// Its slot was primed, so that the server looked for its state in the RAM cache.
    primed: bool,
    /// The state that was put into the slot it ran in.
    restored: Option<StateId>,
    granted_at: Instant,
}

impl Held {
    /// It is the table's own, not a request's.
    pub(super) fn is_save(&self) -> bool {
        self.work != Work::Request
    }

    /// Its slot is being saved.
    pub(super) fn is_saving(&self) -> bool {
        self.is_save() && matches!(self.phase, Phase::Running)
    }

    /// Nothing is started for it before [`SlotTable::may_start`] says so.
    fn is_prepared(&self) -> bool {
        self.landing_from.is_none() && !self.primes
    }

    /// `None`: no turn of a session at its home.
    pub(super) fn lesson(&self) -> Option<Lesson> {
        let session = self.session.clone().filter(|_| !self.spilled)?;
        let as_prepared = self.location.is_some() && self.location == self.launch.slot();
        Some(Lesson {
            session,
            story: self.story.clone(),
            primed: as_prepared && self.launch.fill() == Fill::Prime,
            restored: self.restored.filter(|_| as_prepared),
            granted_at: self.granted_at,
        })
    }

    fn save(launch: Launch, slot: SlotId, work: Work, now: Instant) -> Self {
        Self { location: Some(slot), work, ..Self::new(launch, now) }
    }

    fn state_saved(&self) -> Option<StateId> {
        match self.work {
            Work::Save { state, .. } => Some(state),
            Work::Request => None,
        }
    }

    /// While it reads: a minute at most, as it ends by itself. Once it answers, half as long again as reading takes.
    fn worth_waiting_until(&self, shared: Duration, now: Instant) -> Instant {
        const LONGEST: Duration = Duration::from_secs(60);
        match self.generates_since {
            None => self.granted_at + LONGEST.max(shared),
            Some(at) => {
                let read_for = at.saturating_duration_since(self.granted_at);
                (at + shared.max(read_for) / 2).min(now + LONGEST)
            }
        }
    }
}
