//! Whether restored states are in fact reused: a 200 to a restore says nothing about that.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use crate::usage::Usage;

use super::types::{SavedState, Standing, StateId, Story};
use super::{SLACK, sharing};

/// States that turns under way have started from.
const UNDER_WAY: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// A state that should be shared nearly as a whole can't come out below the half at which llama-server reuses nothing.
const BEYOND_DOUBT: f64 = 0.75;
/// A restore that does not work leaves less than this part of what was promised: next to nothing. Where more is reused
/// it was the texts that differ: templates may drop an earlier turn's thinking.
const TENTH: u64 = 10;
const MISSES: u32 = 2;
const REFUSALS: u32 = 3;

/// What a turn says of the state it started from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was reused as it should be.
    Reused,
    /// It was not, although it is certain that the request shares it.
    Missed,
    /// It was not as a whole; but that much of it is shared was no more than an estimate.
    Misjudged,
}

/// The evidence in one life of one server.
#[derive(Debug)]
pub(super) struct Trust {
    misses: u32,
    refusals: u32,
    restored: LruCache<StateId, Arc<SavedState>>,
}

impl Default for Trust {
    fn default() -> Self {
        Self { misses: 0, refusals: 0, restored: LruCache::new(UNDER_WAY) }
    }
}

impl Trust {
    /// Why warm starts are off, if they are.
    pub(super) fn off(&self) -> Option<Standing> {
        let unreused = (self.misses >= MISSES).then_some(Standing::Unreused);
        unreused.or((self.refusals >= REFUSALS).then_some(Standing::Refused))
    }

    /// A turn starts from this state. It is kept until the turn ends, even if it is given up meanwhile.
    pub(super) fn restored(&mut self, state: Arc<SavedState>) {
        self.refusals = 0;
        self.restored.put(state.id, state);
    }

    /// The server answered a restore with an error.
    pub(super) fn refused(&mut self) {
        self.refusals += 1;
    }

    /// The turn that started from `state` has ended. `None`: nothing was to be expected of it.
    pub(super) fn judge(&mut self, state: StateId, story: Option<&Story>, usage: Usage) -> Option<Verdict> {
        let verdict = verdict(self.restored.get(&state)?, story, usage)?;
        match verdict {
            Verdict::Reused => self.misses = 0,
            Verdict::Missed => self.misses += 1,
            Verdict::Misjudged => {}
        }
        Some(verdict)
    }
}

fn verdict(state: &SavedState, story: Option<&Story>, usage: Usage) -> Option<Verdict> {
    let chain = story.map(|story| &story.chain).filter(|chain| !chain.is_empty());
    let whole = chain.is_none_or(|chain| sharing::is_beginning(state, chain));
    let promised = chain.map_or(state.prompt, |chain| sharing::shared_tokens(state, chain));
    if !sharing::is_enough(promised, state.tokens) {
        return None;
    }
    // The answer may be missing in the next request, where the agent drops the thinking: so its tokens are not promised.
    let least = if whole { promised.min(usage.prompt()).saturating_sub(SLACK) } else { promised / 2 };
    let shared = whole || promised as f64 >= BEYOND_DOUBT * state.tokens as f64;
    let nothing = usage.cached < SLACK || usage.cached < promised / TENTH;
    Some(match usage.cached >= least {
        true => Verdict::Reused,
        false if nothing && shared && state.knows_prompt() => Verdict::Missed,
        false => Verdict::Misjudged,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warm::tests::{chain, story, usage};

    fn state(id: u64, said: &[&str], prompt: u64, tokens: u64) -> Arc<SavedState> {
        Arc::new(SavedState {
            id: StateId(id),
            session: "a".to_owned(),
            user: None,
            fingerprint: "f".to_owned(),
            layout: None,
            tokens,
            prompt,
            bytes: tokens * 1000,
            chain: chain("system", said),
        })
    }

    fn judged(state: &Arc<SavedState>, said: &[&str], cached: u64) -> Option<Verdict> {
        let mut trust = Trust::default();
        trust.restored(state.clone());
        trust.judge(state.id, Some(&story("system", said)), usage(3000 - cached, cached))
    }

    #[test]
    fn a_state_is_reused_if_the_turn_found_all_but_64_tokens_of_it() {
        let state = state(1, &["hello"], 1400, 1440);
        assert_eq!(judged(&state, &["hello", "hi", "more"], 1386), Some(Verdict::Reused));
        assert_eq!(judged(&state, &["hello", "hi", "more"], 0), Some(Verdict::Missed));
        assert_eq!(judged(&state, &["hello", "hi", "more"], 63), Some(Verdict::Missed));
    }

    #[test]
    fn a_template_that_drops_earlier_thinking_is_no_evidence_against_restoring() {
        let state = state(1, &["hello"], 1400, 1440);
        assert_eq!(judged(&state, &["hello", "hi", "more"], 700), Some(Verdict::Misjudged));
        assert_eq!(judged(&state, &["hello", "hi", "more"], 140), Some(Verdict::Misjudged));
        assert_eq!(judged(&state, &["hello", "hi", "more"], 139), Some(Verdict::Missed), "less than a tenth");
    }

    #[test]
    fn a_state_of_which_nobody_knows_where_the_prompt_ends_is_no_evidence_either() {
        let state = state(1, &["hello"], 1440, 1440);
        assert_eq!(judged(&state, &["hello", "hi", "more"], 0), Some(Verdict::Misjudged));
        assert_eq!(judged(&state, &["hello", "hi", "more"], 1386), Some(Verdict::Reused));
    }

    #[test]
    fn an_agent_that_drops_its_last_thinking_still_reuses_the_prompt() {
        let state = state(1, &["hello"], 1400, 2000);
        assert_eq!(judged(&state, &["hello", "hi", "more"], 1398), Some(Verdict::Reused));
    }

    #[test]
    fn a_state_that_shares_about_half_may_be_misjudged_without_harm() {
        let half = "x".repeat(600);
        let state = state(1, &[&half, &"y".repeat(400)], 1000, 1000);
        assert_eq!(judged(&state, &[&half, "other"], 560), Some(Verdict::Reused));
        assert_eq!(judged(&state, &[&half, "other"], 0), Some(Verdict::Misjudged));
    }

    #[test]
    fn a_state_that_shares_nearly_all_is_no_estimate() {
        let most = "x".repeat(900);
        let state = state(1, &[&most, &"y".repeat(100)], 1000, 1010);
        assert_eq!(judged(&state, &[&most, "other"], 0), Some(Verdict::Missed));
    }

    #[test]
    fn nothing_is_concluded_about_a_request_that_says_something_else() {
        let state = state(1, &[&"x".repeat(4000)], 1400, 1440);
        assert_eq!(judged(&state, &["summary"], 0), None);
        let mut trust = Trust::default();
        assert_eq!(trust.judge(StateId(9), Some(&story("system", &["hello"])), usage(9, 0)), None);
    }

    #[test]
    fn two_misses_in_a_row_are_enough_and_one_between_two_hits_is_not() {
        let (state, said) = (state(1, &["hello"], 1400, 1440), story("system", &["hello", "hi", "more"]));
        let mut trust = Trust::default();
        let mut turn = |cached| {
            trust.restored(state.clone());
            trust.judge(state.id, Some(&said), usage(1500 - cached, cached));
            trust.off()
        };
        assert_eq!(turn(0), None);
        assert_eq!(turn(1430), None);
        assert_eq!(turn(0), None);
        assert_eq!(turn(0), Some(Standing::Unreused));
    }

    #[test]
    fn three_refusals_in_a_row_are_enough() {
        let mut trust = Trust::default();
        trust.refused();
        trust.refused();
        trust.restored(state(1, &["hello"], 1400, 1440));
        trust.refused();
        trust.refused();
        assert_eq!(trust.off(), None);
        trust.refused();
        assert_eq!(trust.off(), Some(Standing::Refused));
    }
}
