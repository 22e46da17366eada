//! What each session's last turn said and left, and why a turn read again what had been read.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use crate::chain::first_difference;
use crate::usage::Usage;

use super::SLACK;
use super::types::{Cause, Reread, SavedState, Story, Turn};

const SESSIONS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Less than this part of a prompt read again is nothing to speak of.
const TWENTIETH: u64 = 20;

/// A session's last turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Last {
    pub(super) story: Option<Arc<Story>>,
    /// Tokens of its prompt; 0 if not known.
    pub(super) prompt: u64,
    /// Tokens left in its slot; 0 if not known.
    pub(super) held: u64,
    /// How much sessions had left when it came, since the turn before.
    since: Option<u64>,
    /// The server's life it was in.
    life: u64,
    /// As [`Turns::lent`] was when it ended.
    lent: u64,
    /// That saving it would not pay has been counted.
    pub(super) not_worth: Cell<bool>,
}

impl Last {
    /// The turn that left what was saved.
    pub(super) fn of(state: &SavedState) -> Self {
        let user = state.user.as_deref().map(Arc::from);
        let story = Story { chain: state.chain.clone(), user };
        Self { story: Some(Arc::new(story)), prompt: state.prompt, held: state.tokens, ..Self::default() }
    }
}

/// The last turns of the sessions.
#[derive(Debug)]
pub(super) struct Turns {
    last: LruCache<String, Last>,
    /// Counts the server's lives.
    life: u64,
    /// How often a new session has been let take another one's state from the server's RAM cache.
    lent: u64,
    /// Nothing but these has run on the server in this life.
    are_all: bool,
}

impl Default for Turns {
    fn default() -> Self {
        Self { last: LruCache::new(SESSIONS), life: 0, lent: 0, are_all: false }
    }
}

impl Turns {
    /// The last turn of a session.
    pub(super) fn last(&self, session: &str) -> Option<&Last> {
        self.last.peek(session)
    }

    /// What the server's slots and its RAM cache had is gone.
    pub(super) fn restarted(&mut self) {
        self.life += 1;
        self.are_all = false;
    }

    /// Nothing has run on the server yet, or something that is no session's turn has.
    pub(super) fn set_are_all(&mut self, are_all: bool) {
        self.are_all = are_all;
    }

    /// What the server may have in its RAM cache was left by these turns.
    pub(super) fn are_all(&self) -> bool {
        self.are_all
    }

    /// A new session may have taken another one's state from the RAM cache.
    pub(super) fn lent(&mut self) {
        self.lent += 1;
    }

    /// What a session left may have been lent since.
    pub(super) fn may_be_lent(&self, session: &str) -> bool {
        self.last.peek(session).is_some_and(|last| last.lent != self.lent)
    }

    /// The last turns of all sessions in this life of the server, the latest first.
    pub(super) fn latest_first(&self) -> impl Iterator<Item = (&str, &Last)> {
        let turns = self.last.iter().filter(|(_, last)| last.life == self.life);
        turns.map(|(session, last)| (session.as_str(), last))
    }

    /// Tokens that sessions have left since the last turn of this one, what it left itself included; each session counts
    /// once. `None`: it has had no turn in this life of the server.
    pub(super) fn left_since(&self, session: &str) -> Option<u64> {
        let own = self.last.peek(session).filter(|last| last.life == self.life)?.held;
        let others = self.latest_first().take_while(|(name, _)| *name != session);
        Some(others.fold(own, |sum, (_, last)| sum.saturating_add(last.held)))
    }

    /// As many as there will be when this session returns, going by how many there were the last time. `None`: it has not
    /// returned yet.
    pub(super) fn expected_since(&self, session: &str) -> Option<u64> {
        self.last.peek(session)?.since
    }

    /// A turn has ended. Says what it read again, if that is worth mentioning. `saved`: the turn before, if all that is known
    /// of it is what was saved then.
    pub(super) fn ended(&mut self, session: &str, turn: &Turn, saved: Option<Last>) -> Option<Reread> {
        let since = self.left_since(session);
        let last = Last {
            since,
            story: turn.story.clone(),
            prompt: turn.usage.map_or(0, |usage| usage.prompt()),
            held: turn.usage.map_or(0, |usage| usage.held()),
            life: self.life,
            lent: self.lent,
            not_worth: Cell::new(false),
        };
        let before = self.last.put(session.to_owned(), last).or(saved)?;
        reread(session, &before, turn.story.as_deref()?, turn.usage?)
    }
}

fn reread(session: &str, before: &Last, story: &Story, usage: Usage) -> Option<Reread> {
    let short = before.prompt.saturating_sub(usage.cached);
    if short <= SLACK + before.prompt / TWENTIETH {
        return None;
    }
    let told = before.story.as_deref().filter(|told| !told.chain.is_empty() && !story.chain.is_empty())?;
    let cause = first_difference(&told.chain, &story.chain).map_or(Cause::Lost, Cause::Changed);
    let Usage { computed, cached, .. } = usage;
    Some(Reread { session: session.to_owned(), computed, cached, before: before.prompt, cause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Part;
    use crate::warm::tests::{story, usage};

    fn turn(said: &[&str], computed: u64, cached: u64) -> Turn {
        Turn {
            story: Some(Arc::new(story("system", said))),
            usage: Some(usage(computed, cached)),
            restored: None,
        }
    }

    fn cause(turns: &[Turn]) -> Option<Cause> {
        let mut all = Turns::default();
        let reports = turns.iter().map(|turn| all.ended("a", turn, None));
        reports.last().flatten().map(|reread| reread.cause)
    }

    #[test]
    fn a_turn_that_goes_on_where_the_last_one_ended_and_reads_everything_has_lost_its_cache() {
        let mut turns = Turns::default();
        assert_eq!(turns.ended("a", &turn(&["one"], 2000, 0), None), None);
        let reread = turns.ended("a", &turn(&["one", "two", "three"], 2500, 0), None);
        let expected =
            Reread { session: "a".to_owned(), computed: 2500, cached: 0, before: 2000, cause: Cause::Lost };
        assert_eq!(reread, Some(expected));
    }

    #[test]
    fn a_turn_that_says_something_else_names_the_part_that_changed() {
        let before = turn(&["one", "two", "three"], 2000, 0);
        let changed = cause(&[before.clone(), turn(&["one", "other", "three"], 1500, 500)]);
        assert_eq!(changed, Some(Cause::Changed(Part::Message(2))));
        let mut system = turn(&["one", "two", "three"], 2000, 0);
        system.story = Some(Arc::new(story("another system", &["one", "two", "three"])));
        assert_eq!(cause(&[before, system]), Some(Cause::Changed(Part::System)));
    }

    #[test]
    fn a_turn_that_reuses_what_it_should_is_not_mentioned() {
        let before = turn(&["one"], 2000, 0);
        assert_eq!(cause(&[before.clone(), turn(&["one", "two"], 500, 1990)]), None);
        assert_eq!(cause(&[before.clone(), turn(&["one", "two"], 600, 1840)]), None, "64 tokens and 5%");
        assert_eq!(cause(&[before, turn(&["one", "two"], 700, 1830)]), Some(Cause::Lost));
    }

    #[test]
    fn nothing_is_said_where_texts_or_counts_are_unknown() {
        let before = turn(&["one"], 2000, 0);
        let mute = Turn { story: None, ..turn(&[], 2500, 0) };
        assert_eq!(cause(&[before.clone(), mute.clone()]), None);
        assert_eq!(cause(&[mute, before.clone()]), None);
        let uncounted = Turn { usage: None, ..turn(&["one", "two"], 0, 0) };
        assert_eq!(cause(&[before.clone(), uncounted.clone()]), None);
        assert_eq!(cause(&[uncounted, before]), None);
    }

    #[test]
    fn what_sessions_have_left_since_a_turn_counts_each_of_them_once() {
        let mut turns = Turns::default();
        for name in ["a", "b", "c", "b"] {
            turns.ended(name, &turn(&["one"], 2000, 0), None);
        }
        let held = turns.last("a").expect("a turn").held;
        let left = |name| turns.left_since(name).map(|left| left / held);
        assert_eq!([left("a"), left("b"), left("c"), left("d")], [Some(3), Some(1), Some(2), None]);
        let expected = |name| turns.expected_since(name).map(|left| left / held);
        assert_eq!([expected("b"), expected("a")], [Some(2), None], "b returned when c had been there");
    }

    #[test]
    fn what_sessions_left_before_a_restart_of_the_server_counts_no_more() {
        let mut turns = Turns::default();
        for name in ["a", "b"] {
            turns.ended(name, &turn(&["one"], 2000, 0), None);
        }
        turns.restarted();
        turns.ended("b", &turn(&["one", "two"], 2000, 0), None);
        assert_eq!((turns.left_since("a"), turns.left_since("b")), (None, Some(2009)));
        assert_eq!(turns.latest_first().map(|(name, _)| name).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn what_a_turn_left_is_its_prompt_and_its_answer_but_the_last_token() {
        let mut turns = Turns::default();
        turns.ended("a", &turn(&["one"], 2000, 100), None);
        let last = turns.last("a").expect("a turn");
        assert_eq!((last.prompt, last.held), (2100, 2109));
    }
}
