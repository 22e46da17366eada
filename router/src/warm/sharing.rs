//! How much of a state another request shares, as far as their texts tell, and whether it may.

use crate::chain::Chain;

use super::preambles;
use super::types::{SavedState, Share, Story};

/// llama-server reuses nothing of a named slot's state unless the request shares half of it. Estimates are a bit off.
const LEAST_SHARE: f64 = 0.55;

/// All that the state's request said is what a request that says `chain` begins with.
pub(super) fn is_beginning(state: &SavedState, chain: &Chain) -> bool {
    !state.chain.is_empty() && state.chain.common(chain) == state.chain.nodes().len()
}

/// How many tokens of a request that says `chain` the state most likely holds.
pub(super) fn shared_tokens(state: &SavedState, chain: &Chain) -> u64 {
    match is_beginning(state, chain) {
        true => state.prompt,
        false => beginning_tokens(state.prompt, &state.chain, state.chain.common(chain)),
    }
}

/// So many tokens of so many are enough for llama-server to reuse any.
pub(super) fn is_enough(shared: u64, of: u64) -> bool {
    shared > 0 && shared as f64 >= LEAST_SHARE * of as f64
}

/// The tokens a new session with the state's preamble would be spared, if there are enough of them.
pub(super) fn donates(state: &SavedState) -> Option<u64> {
    let preamble = preamble_tokens(state.prompt, &state.chain);
    is_enough(preamble, state.tokens).then_some(preamble)
}

/// Tokens of the preamble of a prompt of so many that says `chain`.
pub(super) fn preamble_tokens(prompt: u64, chain: &Chain) -> u64 {
    beginning_tokens(prompt, chain, chain.preamble())
}

/// The tokens of the first so many nodes of a prompt of so many tokens that says `chain`.
pub(super) fn beginning_tokens(prompt: u64, chain: &Chain, nodes: usize) -> u64 {
    (prompt as f64 * chain.share(nodes)) as u64
}

/// A new session that begins as `chain` does could start from the state.
pub(super) fn gives_preamble(state: &SavedState, chain: &Chain) -> bool {
    let preamble = preambles::hash(chain);
    preamble.is_some() && preambles::hash(&state.chain) == preamble && donates(state).is_some()
}

/// Whoever says `story` may know of what somebody with the client key of this name has said.
pub(super) fn may_share(user: Option<&str>, story: &Story, share: Share) -> bool {
    match share {
        Share::All => true,
        Share::SameKey => user == story.user.as_deref(),
    }
}
