//! What pays: which state to start from, which to save, which to let go.

use std::time::Instant;

use session_slot_identity::SessionId;

use super::turns::Last;
use super::types::{Occasion, SavedState, Share, Source, Story};
use super::{SLACK, UNPROVEN, Warm, sharing};

/// Seconds are estimates, and writing wears the disk: a save has to pay by so much.
const MARGIN: f64 = 1.25;

impl Warm {
    /// The state whose reading is spared at the least cost of restoring it.
    pub(super) fn best_source(&self, session: &SessionId, story: Option<&Story>) -> Option<Source> {
        let enough = self.policy.min_tokens.max(1);
        let candidates = self.catalog.candidates(session, story, self.policy.share);
        let gains = candidates.filter(|one| one.tokens >= enough).map(|one| {
            let gain = self.costs.read_time(one.tokens) - self.costs.restore_time(one.state.bytes);
            (gain, Source { state: one.state.id, tokens: one.tokens })
        });
        let best = gains.filter(|(gain, _)| *gain > 0.0).max_by(|one, two| one.0.total_cmp(&two.0));
        best.map(|(_, source)| source)
    }

    /// Saving is worth its time, if there is room.
    pub(super) fn is_worth(
        &self,
        session: &str,
        tokens: u64,
        occasion: Occasion,
        delayed: usize,
        now: Instant,
    ) -> bool {
        let bytes = self.costs.bytes_of(tokens);
        let lost = tokens.saturating_sub(self.covering(session).map_or(0, |(_, tokens)| tokens));
        let chance = self.returns.chance_at(session, now);
        let restoring = self.costs.restore_time(self.costs.bytes_of(lost));
        let spared = (self.costs.read_time(lost) - restoring) * chance;
        let (save, waiting) = (self.costs.save_time(bytes), 1.0 + delayed as f64);
        let (benefit, cost) = match occasion {
            Occasion::Eviction => (spared, save * waiting),
            // The server may still have it in its RAM cache, from which it comes back at no cost. Only what is
            // proven counts: a save that was needless costs less than a missing one.
            Occasion::TurnEnd => (
                spared * (1.0 - self.ram_hit_later(session).unwrap_or(UNPROVEN)),
                save * waiting + restoring * chance,
            ),
            Occasion::Shared => (self.spared_to_others(session, tokens), save * waiting),
            // Nobody waits, but whoever stops does.
            Occasion::Stop => (spared, save),
        };
        benefit > cost * MARGIN
    }

    /// Seconds that a new session is spared by a state of what `session` has just left, by the chance that one comes
    /// that begins alike. 0 if it has a state to start from already.
    fn spared_to_others(&self, session: &str, tokens: u64) -> f64 {
        let last = self.turns.last(session);
        let Some((last, story)) = last.and_then(|last| Some((last, last.story.as_deref()?))) else {
            return 0.0;
        };
        self.spared_by(story, last.prompt, tokens)
    }

    /// As [`Warm::spared_to_others`], by a state of so many tokens, of which so many are a prompt that says `story`.
    fn spared_by(&self, story: &Story, prompt: u64, tokens: u64) -> f64 {
        let preamble = sharing::preamble_tokens(prompt, &story.chain);
        if preamble < self.policy.min_tokens
            || !sharing::is_enough(preamble, tokens)
            || self.catalog.covers_preamble(story, self.policy.share)
        {
            return 0.0;
        }
        let restoring = self.costs.restore_time(self.costs.bytes_of(tokens));
        (self.costs.read_time(preamble) - restoring) * self.preambles.chance()
    }

    /// What has to go for a new state of `session`; `None` if all of that is worth more.
    pub(super) fn room_for(&self, session: &str, tokens: u64, now: Instant) -> Option<Vec<super::StateId>> {
        let bytes = self.costs.bytes_of(tokens);
        let chance = self.returns.chance_at(session, now);
        let own = (self.costs.read_time(tokens) - self.costs.restore_time(bytes)).max(0.0) * chance;
        let worth = own.max(self.spared_to_others(session, tokens));
        let covering = self.covering(session).map(|(state, _)| state.id);
        self.victims(bytes, worth, covering, now)
    }

    /// What is worth less than a state of so many bytes that takes the place of the session's own, and has to go for it.
    fn victims(
        &self,
        bytes: u64,
        worth: f64,
        replaced: Option<super::StateId>,
        now: Instant,
    ) -> Option<Vec<super::StateId>> {
        let bytes = bytes.max(1);
        self.catalog.victims(bytes, worth / bytes as f64, |state| {
            if Some(state.id) == replaced && sharing::donates(state).is_none() {
                0.0
            } else {
                self.value(state, now)
            }
        })
    }

    /// What a usable state is worth by the byte: seconds it spares, by the chance that it is wanted.
    pub(super) fn value(&self, state: &SavedState, now: Instant) -> f64 {
        let restoring = self.costs.restore_time(state.bytes);
        let spares = |tokens, chance: f64| (self.costs.read_time(tokens) - restoring).max(0.0) * chance;
        let covered = self.covering(&state.session).filter(|(newest, _)| newest.id == state.id);
        let own =
            covered.map_or(0.0, |(_, tokens)| spares(tokens, self.returns.chance_at(&state.session, now)));
        let others = sharing::donates(state).filter(|tokens| *tokens >= self.policy.min_tokens);
        let others = others.map_or(0.0, |tokens| spares(tokens, self.preambles.chance()));
        (own + others) / state.bytes.max(1) as f64
    }

    /// The session's own usable state from which its next turn would start, and how many tokens of the last one it holds.
    fn covering(&self, session: &str) -> Option<(&SavedState, u64)> {
        let last = self.turns.last(session).map(|last| last.story.as_deref());
        let own = self.catalog.own(session).map(|state| match last {
            // Only an earlier run of the router knew what it said.
            None => (&**state, state.tokens),
            Some(Some(story)) if sharing::is_beginning(state, &story.chain) => (&**state, state.tokens),
            Some(Some(story)) => (&**state, sharing::shared_tokens(state, &story.chain)),
            Some(None) if state.chain.is_empty() => (&**state, state.tokens),
            Some(None) => (&**state, 0),
        });
        own.filter(|(state, tokens)| sharing::is_enough(*tokens, state.tokens))
            .max_by_key(|(_, tokens)| *tokens)
    }

    /// Seconds until what `session` has in its slot is there again once the slot is lost.
    pub(super) fn seconds_lost(&self, session: &str, tokens: u64, now: Instant) -> f64 {
        let cold = self.costs.read_time(tokens);
        if !self.is_on() {
            return cold;
        }
        let covering = self.covering(session);
        let (covered, bytes) = covering.map_or((0, 0), |(state, tokens)| (tokens, state.bytes));
        let rest = tokens.saturating_sub(covered);
        let worth = tokens >= self.policy.min_tokens && rest > SLACK;
        let seconds = if worth && self.is_worth(session, tokens, Occasion::Eviction, 0, now) {
            let bytes = self.costs.bytes_of(tokens);
            self.costs.save_time(bytes) + self.costs.restore_time(bytes)
        } else {
            self.costs.restore_time(bytes) + self.costs.read_time(rest)
        };
        seconds.min(cold)
    }

    /// Seconds of reading lost with what `session` left by its last turn, cleared before it could be saved.
    pub(super) fn seconds_cleared(&self, session: &str) -> f64 {
        let left = self.turns.last(session).map_or(0, |last| last.held);
        let covered = self.covering(session).map_or(0, |(_, tokens)| tokens);
        let lost = left.saturating_sub(covered);
        if left < self.policy.min_tokens {
            0.0
        } else {
            self.costs.read_time(lost) * (1.0 - self.ram_hit_later(session).unwrap_or(0.0))
        }
    }

    /// See [`Warm::lends`]. What may be taken is not looked for among what begins like `story` alone: to the server texts
    /// that differ near their end begin alike, too.
    pub(super) fn lends_safely(&self, story: &Story) -> bool {
        let (mut lends, mut since) = (false, 0_u64);
        for (session, last) in self.turns.latest_first() {
            since = since.saturating_add(self.costs.bytes_of(last.held));
            let is_gone = self.ram.proven(since).is_some_and(|chance| chance < UNPROVEN);
            if !is_gone && !self.is_spare(session, last) || !self.may_know_of(last, story) {
                return false;
            }
            lends |= !is_gone && self.ram.hoped(since) > UNPROVEN && begins_alike(last, story);
        }
        lends
    }

    /// `session` does not depend on what it left in the RAM cache: it has that in a file, or it is too short for one.
    fn is_spare(&self, session: &str, last: &Last) -> bool {
        let kept = self.covering(session).map_or(0, |(_, tokens)| tokens);
        self.is_short(last.held) || kept > 0 && last.held <= kept + SLACK
    }

    /// Whoever says `story` may find what that turn left.
    fn may_know_of(&self, last: &Last, story: &Story) -> bool {
        let share = self.policy.share;
        let other = last.story.as_deref();
        other.map_or(share == Share::All, |other| sharing::may_share(other.user.as_deref(), story, share))
    }

    /// Seconds of reading that `story` is spared by what a turn that says `other` leaves.
    pub(super) fn seconds_shared(&self, story: &Story, other: &Story) -> f64 {
        let common = story.chain.common(&other.chain);
        let text = common.checked_sub(1).map_or(0, |last| other.chain.nodes()[last].end);
        let (tokens, all) = (self.costs.tokens_of(text), self.costs.tokens_of(other.chain.len()));
        let shares = sharing::may_share(other.user.as_deref(), story, self.policy.share);
        let enough = tokens >= self.policy.min_tokens && sharing::is_enough(tokens, all);
        if !shares || !enough || !self.would_be_shared(other, all) {
            return 0.0;
        }
        (self.costs.read_time(tokens) - self.costs.restore_time(self.costs.bytes_of(all))).max(0.0)
    }

    /// A state of so many tokens that says `story` would be saved for others, as far as can be told before its turn ends.
    fn would_be_shared(&self, story: &Story, tokens: u64) -> bool {
        let Some(now) = self.clock.filter(|now| !self.is_full(*now)) else { return false };
        let bytes = self.costs.bytes_of(tokens);
        let spared = self.spared_by(story, tokens, tokens);
        spared > self.costs.save_time(bytes) * MARGIN && self.victims(bytes, spared, None, now).is_some()
    }
}

/// What a turn left shares so much with `story` that the server reuses it.
fn begins_alike(last: &Last, story: &Story) -> bool {
    let Some(other) = last.story.as_deref() else { return false };
    let shared = sharing::beginning_tokens(last.prompt, &other.chain, story.chain.common(&other.chain));
    shared > SLACK && sharing::is_enough(shared, last.held)
}
