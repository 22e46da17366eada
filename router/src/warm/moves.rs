//! What becomes of a save and of a restore.

use std::sync::Arc;
use std::time::Instant;

use session_slot_identity::SessionId;

use super::{Effect, RestoreError, SaveError, SavedState, StateId, Warm, Written};

impl Warm {
    /// A save of `session`'s slot begins. It counts once [`Warm::saved`] says so.
    pub fn begin(&mut self, session: &SessionId, tokens: u64, now: Instant) -> StateId {
        self.clock = Some(now);
        self.next += 1;
        let id = StateId(self.next);
        let last = self.turns.last(session.as_str()).cloned().unwrap_or_default();
        let story = last.story.unwrap_or_default();
        let prompt = if last.prompt == 0 { tokens } else { last.prompt.min(tokens) };
        for victim in self.room_for(session.as_str(), tokens, now).unwrap_or_default() {
            self.forget(victim);
        }
        self.catalog.begin(SavedState {
            id,
            session: session.as_str().to_owned(),
            user: story.user.as_deref().map(ToOwned::to_owned),
            fingerprint: self.catalog.fingerprint().unwrap_or_default().to_owned(),
            layout: self.catalog.layout(),
            tokens,
            prompt,
            bytes: self.costs.bytes_of(tokens),
            chain: story.chain.clone(),
        });
        id
    }

    /// How the save went.
    pub fn saved(&mut self, state: StateId, outcome: Result<Written, SaveError>, now: Instant) {
        self.clock = Some(now);
        // The slot may have held something else by then.
        let expected = self.catalog.pending(state).map(|state| state.tokens);
        let outcome = outcome.and_then(|written| match Some(written.tokens) == expected {
            true => Ok(written),
            false => Err(SaveError::Failed),
        });
        match outcome {
            Ok(written) => self.keep(state, written, now),
            Err(why) => self.lose(state, why, now),
        }
        self.settle();
    }

    fn keep(&mut self, id: StateId, written: Written, now: Instant) {
        self.costs.saved(written);
        self.in_vain = 0;
        let Some(state) = self.catalog.commit(id, written.bytes) else {
            self.effects.push(Effect::Forget(id));
            return;
        };
        self.counts.saved += 1;
        let replaced = self.catalog.replaced_by(&state);
        self.effects.push(Effect::Register(state));
        for old in replaced {
            self.forget(old);
        }
        self.shrink(now);
        if self.catalog.get(id).is_none() {
            self.counts.no_room.set(true);
        }
    }

    fn lose(&mut self, state: StateId, why: SaveError, now: Instant) {
        self.counts.save_failures += 1;
        if self.catalog.abandon(state) {
            // What there is of the file is torn.
            self.effects.push(Effect::Forget(state));
        }
        match why {
            SaveError::Unsupported => self.supported = Some(false),
            SaveError::NoRoom => {
                self.full = Some(now);
                self.counts.no_room.set(true);
            }
            SaveError::Failed => {}
        }
    }

    /// As far as is known `state` has so many tokens. A file that has another number is not the one that was saved.
    #[must_use]
    pub fn may_hold(&self, state: StateId, tokens: u64) -> bool {
        self.catalog.get(state).is_none_or(|known| known.tokens == tokens)
    }

    /// How a restore went.
    pub fn restored(&mut self, state: StateId, outcome: Result<Written, RestoreError>, now: Instant) {
        self.clock = Some(now);
        let known = self.catalog.get(state).map(Arc::clone);
        match outcome {
            Ok(written) if self.may_hold(state, written.tokens) => {
                self.counts.restored += 1;
                self.costs.restored(written);
                self.catalog.touch(state);
                known.into_iter().for_each(|known| self.trust.restored(known));
            }
            Err(RestoreError::Unsupported) => {
                self.counts.restore_failures += 1;
                self.supported = Some(false);
            }
            wrong => {
                self.counts.restore_failures += 1;
                if wrong == Err(RestoreError::Refused) {
                    self.trust.refused();
                }
                self.forget(state);
            }
        }
        self.settle();
    }
}
