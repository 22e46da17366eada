//! What was read once is not read again: which states are saved, what they are worth, and whether that works. Pure.
//!
//! A *state* is what llama-server has written of a slot's cache into a file. Here is decided whether saving and restoring
//! pays, which state a request starts from, and what goes when there is no room. The slot table asks; `dispatch` carries
//! out what comes of it.
//!
//! * `types`: the words other modules use;
//! * `costs`: what reading, saving and restoring take on this server, as measured;
//! * `returns`: the chance that a session comes back, and when;
//! * `moves`: what becomes of a save and of a restore;
//! * `preambles`: the chance that a new session begins as an earlier one did;
//! * `quiet`: whether requests had better run one at a time;
//! * `ram`: how often the server's own RAM cache helps;
//! * `turns`: what each session's last turn said and left;
//! * `catalog`: which states there are, whose they are, and what they begin with;
//! * `sharing`: how much of a state another request shares;
//! * `worth`: what pays;
//! * `trust`: whether restored states are in fact reused.

mod catalog;
mod costs;
mod moves;
mod preambles;
mod quiet;
mod ram;
mod returns;
mod sharing;
#[cfg(test)]
pub(crate) mod tests;
mod trust;
mod turns;
mod types;
mod worth;

use std::cell::Cell;
use std::time::{Duration, Instant};

use session_slot_identity::SessionId;

pub use types::*;

use crate::chain::first_difference;
use crate::usage::Usage;
use catalog::Catalog;
use costs::Costs;
use preambles::Preambles;
use quiet::{Outlook, Quiet};
use ram::Ram;
use returns::Returns;
use trust::{Trust, Verdict};
use turns::{Last, Turns};

/// llama-server reads the last few tokens again even of what it has; fewer than this tell nothing.
const SLACK: u64 = 64;
/// A full disk is tried again after this time, or once something was deleted.
const FULL_FOR: Duration = Duration::from_secs(5 * 60);

/// Tokens that the server reads at one go, and answers nothing meanwhile (llama-server's `--batch-size`).
const BATCH: u64 = 2048;

/// The chance that a state is in the server's RAM cache, where nothing shows it.
const UNPROVEN: f64 = 0.5;

/// After so many attempts in vain the layout is not measured, and so nothing restored, until a save works out.
const TRIES: u32 = 2;

/// Everything known about saved states of one server.
#[derive(Debug)]
pub struct Warm {
    policy: Policy,
    catalog: Catalog,
    costs: Costs,
    /// The server these are the costs of.
    costs_of: Option<String>,
    returns: Returns,
    preambles: Preambles,
    ram: Ram,
    quiet: Quiet,
    turns: Turns,
    trust: Trust,
    supported: Option<bool>,
    /// Attempts to measure the layout since something was last saved, or the server began.
    in_vain: u32,
    /// The disk was full then.
    full: Option<Instant>,
    /// The latest moment heard of.
    clock: Option<Instant>,
    counts: Counts,
    /// What was last said of [`Effect::Turned`]: silence means that they work.
    said: Option<Standing>,
    said_no_room: bool,
    effects: Vec<Effect>,
    next: u64,
}

/// What the status page counts. Questions count too, hence the cells.
#[derive(Debug, Default)]
struct Counts {
    saved: u64,
    restored: u64,
    reused: u64,
    unreused: u64,
    save_failures: u64,
    restore_failures: u64,
    tokens_spared: u64,
    not_worth: Cell<u64>,
    /// A state found no room since the last [`Warm::take_effects`].
    no_room: Cell<bool>,
}

impl Warm {
    /// Nothing is saved, and nothing known of the server: off until [`Warm::served_by`] and [`Warm::supported`].
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            catalog: Catalog::default(),
            costs: Costs::default(),
            costs_of: None,
            returns: Returns::default(),
            preambles: Preambles::default(),
            ram: Ram::default(),
            quiet: Quiet::default(),
            turns: Turns::default(),
            trust: Trust::default(),
            supported: None,
            in_vain: 0,
            full: None,
            clock: None,
            counts: Counts::default(),
            said: None,
            said_no_room: false,
            effects: Vec::new(),
            next: 0,
        }
    }

    // ---- the server

    /// Takes over what an earlier run has registered, least recently used first.
    pub fn load(&mut self, states: Vec<SavedState>, now: Instant) {
        self.clock = Some(now);
        for state in states {
            self.next = self.next.max(state.id.0);
            if state.layout.is_none() {
                // Nobody can tell any more under which settings it was made.
                self.effects.push(Effect::Forget(state.id));
                continue;
            }
            self.returns.known(&state.session, now);
            self.catalog.load(state);
        }
        self.shrink(now);
    }

    /// Which server this is: states of others are never used on it.
    pub fn served_by(&mut self, fingerprint: &str) {
        let before = self.catalog.fingerprint();
        if before == Some(fingerprint) {
            return;
        }
        if before.is_some() {
            self.restarted();
        }
        if self.costs_of.as_deref() != Some(fingerprint) {
            self.costs = Costs::default();
            self.ram = Ram::default();
            self.costs_of = Some(fingerprint.to_owned());
        }
        self.catalog.served_by(fingerprint);
        self.settle();
    }

    /// Whether it saves and restores at all (it has a `--slot-save-path`).
    pub fn supported(&mut self, supported: bool) {
        self.supported = Some(supported);
        self.settle();
    }

    /// How large a state of a one-token prompt is, in bytes: tells KV types and the number of sequences apart, which no
    /// page of the server does. States of another layout are never used.
    pub fn measured(&mut self, layout: u64) {
        self.costs.one_word(layout);
        let stamped = self.catalog.measured(layout);
        self.effects.extend(stamped.into_iter().map(Effect::Register));
    }

    /// The state of a one-word prompt could not be saved. Tried again a few times only: it costs the turn time.
    pub fn unmeasured(&mut self, why: SaveError) {
        self.in_vain += 1;
        if why == SaveError::Unsupported {
            self.supported = Some(false);
            self.settle();
        }
    }

    /// The layout is not known in this life of the server; it has to be before anything is restored.
    #[must_use]
    pub fn needs_measure(&self) -> bool {
        self.restores() && !self.is_measured()
    }

    /// The layout is known.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.catalog.layout().is_some()
    }

    /// States are restored now, once the layout is known.
    fn restores(&self) -> bool {
        self.is_on() && (self.is_measured() || self.in_vain < TRIES)
    }

    /// The server has restarted: what turned warm starts off may be gone, and the layout may be another. It may even be
    /// another server: off until [`Warm::served_by`] says which.
    pub fn restarted(&mut self) {
        for state in self.catalog.restarted() {
            self.forget(state);
        }
        self.trust = Trust::default();
        self.in_vain = 0;
        self.said_no_room = false;
        self.quiet = Quiet::default();
        self.turns.restarted();
        self.settle();
    }

    /// The user's room for states, in bytes, once the folder has been looked at.
    pub fn room(&mut self, bytes: u64) {
        self.catalog.set_room(bytes);
        if let Some(now) = self.clock {
            self.shrink(now);
        }
    }

    /// States are saved and restored now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.standing() == Standing::On
    }

    // ---- turns

    /// A request of `session` has come.
    pub fn arrived(&mut self, session: &SessionId, now: Instant) {
        self.clock = Some(now);
        self.returns.arrived(session.as_str(), now);
    }

    /// A turn of `session` has ended. Where its slot was not the one prepared for it, [`Turn::restored`] is `None`:
    /// nothing is concluded about the state.
    pub fn ended(&mut self, session: &SessionId, turn: Turn, now: Instant) {
        self.clock = Some(now);
        let name = session.as_str();
        self.returns.ended(name, now);
        let known = self.turns.last(name).is_some();
        let newest = self.catalog.own(name).next().filter(|_| !known);
        let saved = newest.map(|state| Last::of(state));
        if let Some(usage) = turn.usage {
            self.costs.turn(usage, turn.story.as_ref().map(|story| story.chain.len()));
        }
        if let Some((state, usage)) = turn.restored.zip(turn.usage) {
            self.judge(name, state, turn.story.as_deref(), usage);
        }
        let is_new = !known && saved.is_none();
        if let Some(story) = turn.story.as_ref().filter(|_| is_new) {
            self.preambles.began(&story.chain);
        }
        self.effects.extend(self.turns.ended(name, &turn, saved).map(Effect::Reread));
    }

    /// A turn of `session` with this usage took so long from its start to its end; so many others ran beside it, or would
    /// have.
    pub fn ran(&mut self, session: &SessionId, took: Duration, usage: Usage, others: usize) {
        let outlook = self.costs.measured().read.map(|_| Outlook {
            others,
            batch: self.costs.read_time(usage.computed.min(BATCH)),
            at_stake: self.seconds_cleared(session.as_str()),
        });
        self.quiet.ended(took, outlook);
    }

    /// What `session` has just left in its slot has been looked at, on a server that clears idle slots. `cleared`: it was
    /// gone before it could be saved.
    pub fn seen(&mut self, session: &SessionId, cleared: bool) {
        if self.is_on() {
            let lost = if cleared { self.seconds_cleared(session.as_str()) } else { 0.0 };
            self.quiet.seen(lost);
        }
    }

    /// So much is lost of turns that end while another request starts that requests had better run one at a time. `Some`: so
    /// long others wait for one that runs.
    #[must_use]
    pub fn quiet_for(&self) -> Option<Duration> {
        self.is_on().then(|| self.quiet.waits()).flatten()
    }

    fn judge(&mut self, session: &str, state: StateId, story: Option<&Story>, usage: Usage) {
        match self.trust.judge(state, story, usage) {
            Some(Verdict::Reused) => {
                self.counts.reused += 1;
                self.counts.tokens_spared += usage.cached;
            }
            Some(verdict) => {
                self.counts.unreused += 1;
                let own = self.catalog.get(state).is_some_and(|state| state.session == session);
                match verdict {
                    Verdict::Misjudged if !own => self.catalog.keep_from_others(state),
                    _ => self.forget(state),
                }
            }
            None => {}
        }
        self.settle();
    }

    // ---- decisions

    /// The saved state from which a request of `session` best starts, if restoring one pays.
    #[must_use]
    pub fn source_for(&self, session: &SessionId, story: Option<&Story>) -> Option<Source> {
        self.restores().then(|| self.best_source(session, story)).flatten()
    }

    /// Tokens that `session` left in its slot by its last turn; 0 if not known.
    #[must_use]
    pub fn left_by(&self, session: &SessionId) -> u64 {
        self.turns.last(session.as_str()).map_or(0, |last| last.held)
    }

    /// Tokens of the prompt of its last turn; 0 if not known.
    #[must_use]
    pub fn prompt_of(&self, session: &SessionId) -> u64 {
        self.turns.last(session.as_str()).map_or(0, |last| last.prompt)
    }

    /// What the last turn of `session` said; `None` if not known.
    #[must_use]
    pub fn story_of(&self, session: &SessionId) -> Option<&Story> {
        self.turns.last(session.as_str())?.story.as_deref()
    }

    /// The share of states that were looked for in the server's RAM cache of late and were there, from 0 to 1.
    #[must_use]
    pub fn ram_share(&self) -> f64 {
        self.ram.share()
    }

    /// The chance that what `session` left by its last turn is in the server's RAM cache. `may_try`: finding it out is worth
    /// something.
    #[must_use]
    pub fn ram_hit(&self, session: &SessionId, may_try: bool) -> f64 {
        let Some(tokens) = self.turns.left_since(session.as_str()) else { return 0.0 };
        let within = self.costs.bytes_of(tokens);
        if may_try { self.ram.hoped(within) } else { self.ram.proven(within).unwrap_or(UNPROVEN) }
    }

    /// The chance that what `session` has just left will be there when it returns, if anything shows it.
    fn ram_hit_later(&self, session: &str) -> Option<f64> {
        self.ram.proven(self.costs.bytes_of(self.turns.expected_since(session)?))
    }

    /// A new session that says `story` had better start from what another one's turn left in the RAM cache, where the server
    /// finds it: one begins alike, and whatever else the server may give it instead is a session's that does not depend on it,
    /// and has the same client key.
    #[must_use]
    pub fn lends(&self, story: Option<&Story>) -> bool {
        story.is_some_and(|story| self.turns.are_all() && self.restores() && self.lends_safely(story))
    }

    /// A new session has been let look into the RAM cache, and may have taken another one's state.
    pub fn lent(&mut self) {
        self.turns.lent();
    }

    /// What `session` left is not worth a file, and another one may have taken it from the RAM cache since.
    #[must_use]
    pub fn may_be_lent(&self, session: &SessionId) -> bool {
        let name = session.as_str();
        self.is_short(self.left_by(session)) && self.turns.may_be_lent(name)
    }

    /// So much is known to be there, and not worth a file.
    fn is_short(&self, tokens: u64) -> bool {
        (1..self.policy.min_tokens).contains(&tokens)
    }

    /// The server has been seen to have run nothing yet.
    pub fn has_run_nothing(&mut self) {
        self.turns.set_are_all(true);
    }

    /// The server runs something that is no turn of a session, or not at its home: nobody knows what that leaves.
    pub fn ran_something_else(&mut self) {
        self.turns.set_are_all(false);
    }

    /// A turn of `session` that says `story` went back to the RAM cache for its state. What its last prompt had must be
    /// there again; its answer needn't, as agents leave out what a model has only thought. Nothing is learned from a turn
    /// that does not go on where the last one ended.
    pub fn ram_tried(&mut self, session: &SessionId, story: Option<&Story>, usage: Usage) {
        let Some(last) = self.turns.last(session.as_str()).filter(|last| last.prompt > 0) else { return };
        let Some(since) = self.turns.left_since(session.as_str()) else { return };
        let goes_on = match (last.story.as_deref(), story) {
            (Some(before), Some(now)) => {
                first_difference(&before.chain, &now.chain).is_none() && now.chain.len() >= before.chain.len()
            }
            _ => true,
        };
        if goes_on && !self.may_be_lent(session) {
            self.ram.tried(usage.cached + SLACK >= last.prompt, self.costs.bytes_of(since));
        }
    }

    /// How large the server's RAM cache would have to be, in bytes, for what was last looked for in vain. `None` before
    /// anything was, or before it is known how large states are.
    #[must_use]
    pub fn ram_needed(&self) -> Option<u64> {
        self.costs.measured().size?;
        self.ram.needed()
    }

    /// Saving the `tokens` that `session` left in its slot pays. `delayed`: requests that would wait meanwhile.
    #[must_use]
    pub fn save_pays(
        &self,
        session: &SessionId,
        tokens: u64,
        occasion: Occasion,
        delayed: usize,
        now: Instant,
    ) -> bool {
        if !self.is_on() || self.is_full(now) || tokens < self.policy.min_tokens.max(1) {
            return false;
        }
        if !self.is_worth(session.as_str(), tokens, occasion, delayed, now) {
            // The same question is asked again with each look at the slots.
            let last = self.turns.last(session.as_str()).filter(|_| occasion != Occasion::Shared);
            if last.is_some_and(|last| !last.not_worth.replace(true)) {
                self.counts.not_worth.set(self.counts.not_worth.get() + 1);
            }
            return false;
        }
        let fits = self.room_for(session.as_str(), tokens, now).is_some();
        if !fits {
            self.counts.no_room.set(true);
        }
        fits
    }

    /// The disk was full just now.
    fn is_full(&self, now: Instant) -> bool {
        self.full.is_some_and(|since| now.saturating_duration_since(since) < FULL_FOR)
    }

    /// Seconds of reading a new request with this story would be spared by a state that another session's turn, whose
    /// story is `other`, is about to leave. 0 if they share too little, or may not, or it would not be saved.
    #[must_use]
    pub fn shared_reading(&self, story: &Story, other: &Story) -> f64 {
        if self.restores() { self.seconds_shared(story, other) } else { 0.0 }
    }

    /// What losing the slot costs `session`: seconds of reading (or restoring), by the chance that it returns, over the
    /// time until then.
    #[must_use]
    pub fn loss(&self, session: &SessionId, tokens: u64, now: Instant) -> f64 {
        let session = session.as_str();
        let seconds = self.seconds_lost(session, tokens, now);
        seconds * self.returns.chance_at(session, now) / self.returns.expected_at(session, now)
    }

    // ---- what comes of it

    /// What has to be done since the last call, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        if self.counts.no_room.take() && !std::mem::replace(&mut self.said_no_room, true) {
            self.effects.push(Effect::NoRoom);
        }
        std::mem::take(&mut self.effects)
    }

    /// For the status page.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let (counts, measured) = (&self.counts, self.costs.measured());
        Snapshot {
            standing: self.standing(),
            states: self.catalog.usable().count(),
            bytes: self.catalog.bytes(),
            room: self.catalog.room(),
            saved: counts.saved,
            restored: counts.restored,
            reused: counts.reused,
            unreused: counts.unreused,
            save_failures: counts.save_failures,
            restore_failures: counts.restore_failures,
            tokens_spared: counts.tokens_spared,
            not_worth: counts.not_worth.get(),
            one_at_a_time: self.quiet_for().is_some(),
            read_s_per_token: measured.read,
            save_s_per_byte: measured.save,
            restore_s_per_byte: measured.restore,
            bytes_per_token: measured.size,
        }
    }

    /// Seconds that saving so many tokens should take.
    #[must_use]
    pub fn save_time(&self, tokens: u64) -> f64 {
        self.costs.save_time(self.costs.bytes_of(tokens))
    }

    /// Seconds that restoring so many bytes should take.
    #[must_use]
    pub fn restore_time(&self, bytes: u64) -> f64 {
        self.costs.restore_time(bytes)
    }

    fn standing(&self) -> Standing {
        match (self.policy.enabled, self.supported) {
            (false, _) => Standing::Disabled,
            (true, Some(false)) => Standing::Unsupported,
            (true, Some(true)) if self.catalog.fingerprint().is_some() => {
                self.trust.off().unwrap_or(Standing::On)
            }
            (true, _) => Standing::Unknown,
        }
    }

    /// Says so if warm starts have turned off or on again.
    fn settle(&mut self) {
        let standing = self.standing();
        let said = self.said.unwrap_or(Standing::On);
        if matches!(standing, Standing::Unknown | Standing::Disabled) || standing == said {
            return;
        }
        self.said = Some(standing);
        if standing == Standing::Unreused {
            let useless: Vec<StateId> = self.catalog.usable().map(|state| state.id).collect();
            useless.into_iter().for_each(|state| self.forget(state));
        }
        self.effects.push(Effect::Turned(standing));
    }

    fn forget(&mut self, state: StateId) {
        if self.catalog.remove(state) {
            self.full = None;
            self.effects.push(Effect::Forget(state));
        }
    }

    /// Lets go of the least valuable until the rest fits.
    fn shrink(&mut self, now: Instant) {
        for victim in self.catalog.surplus(|state| self.value(state, now)) {
            self.forget(victim);
        }
    }
}
