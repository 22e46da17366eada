//! llama-server's RAM prompt cache (`--cache-ram`): saved slot states, moved back on a better match.
use std::collections::VecDeque;

use super::tokens::{Token, common_prefix};

/// A state is only worth loading if at least this share of it is kept.
const LEAST_KEPT: f64 = 0.25;

/// The saved states, oldest first.
#[derive(Debug, Default)]
pub(super) struct RamCache {
    capacity: usize,
    states: VecDeque<Vec<Token>>,
}

impl RamCache {
    /// A cache for this many tokens; 0 is no cache.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, states: VecDeque::new() }
    }

    /// Whether there is a cache at all.
    pub(super) fn is_on(&self) -> bool {
        self.capacity > 0
    }

    /// The number of states and of tokens in them, for state dumps.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.states.len(), self.states.iter().map(Vec::len).sum())
    }

    /// Keeps a copy of a slot's tokens. One state never contains another, and the oldest states
    /// go when there is no room, except the last one.
    pub(super) fn save(&mut self, tokens: &[Token]) {
        let held = |state: &Vec<Token>| common_prefix(state, tokens) == tokens.len();
        if !self.is_on() || tokens.is_empty() || self.states.iter().any(held) {
            return;
        }
        self.states.retain(|state| common_prefix(state, tokens) < state.len());
        self.states.push_back(tokens.to_vec());
        while self.states.len() > 1 && self.size().1 > self.capacity {
            self.states.pop_front();
        }
    }

    /// Takes out the state that fits `wanted` better than what the slot `has`: better in the share
    /// of itself that is kept *and* in the share of the prompt it covers. It is moved, not copied.
    pub(super) fn take_better(&mut self, has: &[Token], wanted: &[Token]) -> Option<Vec<Token>> {
        let mut best = None;
        let (mut keep, mut cover) = fit(has, wanted);
        for (index, state) in self.states.iter().enumerate() {
            let (state_keep, state_cover) = fit(state, wanted);
            if state_keep >= LEAST_KEPT && state_keep > keep && state_cover > cover {
                (keep, cover, best) = (state_keep, state_cover, Some(index));
            }
        }
        self.states.remove(best?)
    }
}

/// The share of `state` that `wanted` would keep, and the share of `wanted` it covers. Anything
/// keeps more than an empty state.
fn fit(state: &[Token], wanted: &[Token]) -> (f64, f64) {
    let common = common_prefix(state, wanted) as f64;
    let keep = if state.is_empty() { -1.0 } else { common / state.len() as f64 };
    (keep, common / wanted.len() as f64)
}
