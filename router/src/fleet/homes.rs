//! Which conversation lives where: bounded, and with a time after which a home is lost.
//!
//! A conversation with a turn that waits or is in flight is kept apart from those that rest, so that it can't be forgotten.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Instant;

use lru::LruCache;

use super::estimate::Habits;
use super::types::{Affinity, Key, ServerId};

/// No call forgets more than so many, so that none takes long.
const FORGOTTEN_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct Homes {
    affinity: Affinity,
    /// Those without a turn, idle longest last.
    resting: LruCache<Key, Known>,
    awake: HashMap<Key, Awake>,
    /// By server: how many live there.
    live: Vec<u64>,
}

/// What is known of one conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub(super) home: Option<ServerId>,
    last_used: Instant,
    pub(super) habits: Habits,
    pub(super) left: Option<Left>,
}

/// What a conversation's last turn left at its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) server: ServerId,
    /// Tokens of its prompt.
    pub(super) prompt: u64,
    /// Tokens of prompt and answer.
    pub(super) tokens: u64,
}

/// A conversation with turns.
#[derive(Debug)]
pub(super) struct Awake {
    pub(super) known: Known,
    /// Turns that wait or are in flight.
    pub(super) turns: u32,
    /// Where those in flight are.
    pub(super) at: Vec<ServerId>,
}

impl Homes {
    pub(super) fn new(affinity: Affinity, servers: usize) -> Self {
        let most = NonZeroUsize::new(affinity.max_sessions).unwrap_or(NonZeroUsize::MIN);
        Self { affinity, resting: LruCache::new(most), awake: HashMap::new(), live: vec![0; servers] }
    }

    /// Forgets conversations that have been idle for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            if self.next_expiry().is_none_or(|due| now < due) {
                return;
            }
            if let Some((_, known)) = self.resting.pop_lru() {
                self.count(known.home, None);
            }
        }
    }

    /// When the next conversation has been idle for too long.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.resting.peek_lru().map(|(_, known)| known.last_used + self.affinity.ttl)
    }

    /// A turn of a conversation has come.
    pub(super) fn wake(&mut self, key: Key, now: Instant) {
        let known = self.resting.pop(&key);
        if let Some(known) = &known
            && self.has_lapsed(known, now)
        {
            self.count(known.home, None);
        }
        let known = known.filter(|known| !self.has_lapsed(known, now));
        let new = Known { home: None, last_used: now, habits: Habits::default(), left: None };
        let awake = self.awake.entry(key).or_insert_with(|| Awake {
            known: known.unwrap_or(new),
            turns: 0,
            at: Vec::new(),
        });
        awake.turns += 1;
    }

    /// A turn of a conversation is over.
    pub(super) fn rest(&mut self, key: Key, now: Instant) {
        let Some(awake) = self.awake.get_mut(&key) else { return };
        awake.turns -= 1;
        if awake.turns > 0 {
            return;
        }
        let Some(Awake { known, .. }) = self.awake.remove(&key) else { return };
        if known.home.is_some() || !known.habits.is_empty() {
            self.lay_down(key, Known { last_used: now, ..known });
        }
    }

    fn lay_down(&mut self, key: Key, known: Known) {
        if let Some((_, forgotten)) = self.resting.push(key, known) {
            self.count(forgotten.home, None);
        }
    }

    /// What was known in an earlier run: counts for less than anything heard since.
    pub(super) fn remember(&mut self, key: Key, home: ServerId, last_used: Instant) {
        if !self.affinity.enabled || self.awake.contains_key(&key) || self.resting.contains(&key) {
            return;
        }
        self.count(None, Some(home));
        self.lay_down(key, Known { home: Some(home), last_used, habits: Habits::default(), left: None });
    }

    /// A conversation that is awake.
    pub(super) fn awake(&self, key: Key) -> Option<&Awake> {
        self.awake.get(&key)
    }

    /// What is known of a conversation that is awake.
    pub(super) fn known_mut(&mut self, key: Key) -> Option<&mut Known> {
        self.awake.get_mut(&key).map(|awake| &mut awake.known)
    }

    pub(super) fn home(&self, key: Key, now: Instant) -> Option<ServerId> {
        let resting = || self.resting.peek(&key).filter(|known| !self.has_lapsed(known, now));
        self.awake.get(&key).map(|awake| &awake.known).or_else(resting)?.home
    }

    /// A conversation that is awake lives there from now on. Where it lived.
    pub(super) fn settle(&mut self, key: Key, home: Option<ServerId>) -> Option<ServerId> {
        let known = self.awake.get_mut(&key).map(|awake| &mut awake.known)?;
        let before = std::mem::replace(&mut known.home, home);
        self.count(before, home);
        before
    }

    /// A turn of a conversation is sent there. Whether it is the conversation's only one there.
    pub(super) fn enter(&mut self, key: Key, server: ServerId) -> bool {
        let Some(awake) = self.awake.get_mut(&key) else { return true };
        let first = !awake.at.contains(&server);
        awake.at.push(server);
        first
    }

    /// A turn that was sent there is over. Whether it was the conversation's only one there.
    pub(super) fn leave(&mut self, key: Key, server: ServerId) -> bool {
        let Some(awake) = self.awake.get_mut(&key) else { return true };
        if let Some(place) = awake.at.iter().position(|at| *at == server) {
            awake.at.swap_remove(place);
        }
        !awake.at.contains(&server)
    }

    /// How many live there.
    pub(super) fn live(&self, server: ServerId) -> u64 {
        self.live[server.index()]
    }

    /// Every home.
    pub(super) fn all(&self) -> impl Iterator<Item = ServerId> {
        let awake = self.awake.values().map(|awake| &awake.known);
        self.resting.iter().map(|(_, known)| known).chain(awake).filter_map(|known| known.home)
    }

    /// Turns of conversations, in all.
    pub(super) fn turns(&self) -> usize {
        self.awake.values().map(|awake| awake.turns as usize).sum()
    }

    fn has_lapsed(&self, known: &Known, now: Instant) -> bool {
        now >= known.last_used + self.affinity.ttl
    }

    fn count(&mut self, before: Option<ServerId>, after: Option<ServerId>) {
        if let Some(before) = before {
            self.live[before.index()] -= 1;
        }
        if let Some(after) = after {
            self.live[after.index()] += 1;
        }
    }
}
