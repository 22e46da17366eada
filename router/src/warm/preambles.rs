//! How often a new session begins as an earlier one did: what a shared beginning is worth.

use std::num::NonZeroUsize;

use lru::LruCache;

use crate::chain::Chain;

const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// At so many new sessions the counts are halved: old times fade.
const ENOUGH: f64 = 256.0;

/// The preambles of sessions' first requests.
#[derive(Debug)]
pub(super) struct Preambles {
    seen: LruCache<u64, ()>,
    sessions: f64,
    alike: f64,
}

impl Default for Preambles {
    fn default() -> Self {
        Self { seen: LruCache::new(REMEMBERED), sessions: 0.0, alike: 0.0 }
    }
}

impl Preambles {
    /// A session's first request said this.
    pub(super) fn began(&mut self, chain: &Chain) {
        let Some(preamble) = hash(chain) else { return };
        self.sessions += 1.0;
        if self.seen.put(preamble, ()).is_some() {
            self.alike += 1.0;
        }
        if self.sessions >= ENOUGH {
            self.sessions /= 2.0;
            self.alike /= 2.0;
        }
    }

    /// The chance that a new session begins as one that has been seen.
    pub(super) fn chance(&self) -> f64 {
        (self.alike + 1.0) / (self.sessions + 2.0)
    }
}

/// What tells a chain's preamble from others.
pub(super) fn hash(chain: &Chain) -> Option<u64> {
    let last = chain.preamble().checked_sub(1)?;
    chain.nodes().get(last).map(|node| node.hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warm::tests::chain;

    #[test]
    fn agents_that_all_begin_alike_make_a_shared_beginning_likely() {
        let mut preambles = Preambles::default();
        assert!((preambles.chance() - 0.5).abs() < 1e-9);
        (0..30).for_each(|number| preambles.began(&chain("agent", &[&number.to_string()])));
        assert!(preambles.chance() > 0.9);
    }

    #[test]
    fn sessions_that_each_begin_differently_make_it_unlikely() {
        let mut preambles = Preambles::default();
        (0..30).for_each(|number| preambles.began(&chain(&number.to_string(), &["hello"])));
        assert!(preambles.chance() < 0.05);
    }

    #[test]
    fn requests_without_a_preamble_count_neither_way() {
        let mut preambles = Preambles::default();
        (0..30).for_each(|_| preambles.began(&chain("", &["hello"])));
        assert!((preambles.chance() - 0.5).abs() < 1e-9);
    }
}
