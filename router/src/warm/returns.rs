//! The chance that a session comes back, and when: from its own gaps between turns, and everybody's.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;

const SESSIONS: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// A session's own history: its latest gaps.
const OWN_GAPS: usize = 8;
/// Of 1, 2, 4, ... seconds.
const BUCKETS: usize = 24;
/// Who has stayed away so long counts as gone, until it does come back.
const GONE_AFTER: Duration = Duration::from_secs(10 * 60);
/// A request may wait so long for its slot; after that, one that has come and never ended has been given up.
const WAITS_AT_MOST: Duration = Duration::from_secs(15 * 60);
/// Turn ends of which is not yet known how they went on.
const OPEN: usize = 8192;
/// Before anything is known, two of three come back.
const PRIOR_RETURNS: f64 = 2.0;
const PRIOR_ENDS: f64 = 3.0;
/// How much everybody's gaps weigh beside a session's own.
const OTHERS: f64 = 2.0;
/// At so many counts all of them are halved: old times fade.
const ENOUGH: f64 = 1024.0;
/// Seconds until a return, before anything is known.
const UNKNOWN_GAP: f64 = 30.0;

/// What is known of one session's coming and going.
#[derive(Debug, Default)]
struct Own {
    /// Seconds.
    gaps: VecDeque<f64>,
    /// Its last turn has ended, and nothing has come since.
    ended: Option<Instant>,
    /// A request has come, and has not ended.
    arrived: Option<Instant>,
    /// Its last turn end counts among the gone.
    gone: bool,
}

/// The gaps of all sessions.
#[derive(Debug)]
pub(super) struct Returns {
    sessions: LruCache<String, Own>,
    gaps: [f64; BUCKETS],
    gone: f64,
    open: VecDeque<(Instant, String)>,
}

impl Default for Returns {
    fn default() -> Self {
        Self { sessions: LruCache::new(SESSIONS), gaps: [0.0; BUCKETS], gone: 0.0, open: VecDeque::new() }
    }
}

impl Returns {
    /// It was there in an earlier run of the router; when, nobody knows.
    pub(super) fn known(&mut self, session: &str, now: Instant) {
        self.own(session).ended = Some(now);
    }

    /// A request of `session` has come.
    pub(super) fn arrived(&mut self, session: &str, now: Instant) {
        self.give_up(now);
        let own = self.own(session);
        own.arrived = Some(now);
        let Some(ended) = own.ended.take() else { return };
        let gap = now.saturating_duration_since(ended).as_secs_f64();
        own.gaps.push_back(gap);
        if own.gaps.len() > OWN_GAPS {
            own.gaps.pop_front();
        }
        if std::mem::take(&mut own.gone) {
            self.gone = (self.gone - 1.0).max(0.0);
        }
        self.gaps[bucket(gap)] += 1.0;
        self.fade();
    }

    /// A turn of `session` has ended.
    pub(super) fn ended(&mut self, session: &str, now: Instant) {
        let own = self.own(session);
        own.arrived = None;
        own.ended = Some(now);
        // Two turns at a time: the gap runs from the last end, which may come after the first was given up.
        if std::mem::take(&mut own.gone) {
            self.gone = (self.gone - 1.0).max(0.0);
        }
        self.open.push_back((now, session.to_owned()));
        self.give_up(now);
    }

    /// The chance that `session` comes back. It is certain while a request of it waits or runs.
    pub(super) fn chance_at(&self, session: &str, now: Instant) -> f64 {
        if self.is_here(session, now) { 1.0 } else { self.chance(session, self.idle(session, now)) }
    }

    /// Seconds until then, at least 1.
    pub(super) fn expected_at(&self, session: &str, now: Instant) -> f64 {
        if self.is_here(session, now) { 1.0 } else { self.expected(session, self.idle(session, now)) }
    }

    /// A request of it waits or runs.
    fn is_here(&self, session: &str, now: Instant) -> bool {
        let here = self.sessions.peek(session).and_then(|own| own.arrived);
        here.is_some_and(|arrived| now.saturating_duration_since(arrived) < WAITS_AT_MOST)
    }

    /// Seconds since `session` was last there.
    fn idle(&self, session: &str, now: Instant) -> f64 {
        let ended = self.sessions.peek(session).and_then(|own| own.ended);
        ended.map_or(0.0, |ended| now.saturating_duration_since(ended).as_secs_f64())
    }

    /// The chance that a session that has been away for `idle` seconds comes back.
    fn chance(&self, session: &str, idle: f64) -> f64 {
        let own = self.sessions.peek(session);
        let returns = own.map_or(0, |own| own.gaps.iter().filter(|gap| **gap > idle).count()) as f64;
        let longer = self.longer(idle);
        let others = (longer + PRIOR_RETURNS) / (longer + self.gone + PRIOR_ENDS);
        // Each of its own ends that lasted longer was followed by a return: the open one is the one in question.
        (returns + OTHERS * others) / (returns + OTHERS)
    }

    /// Seconds until a session comes back that has been away for `idle` seconds, if it does.
    fn expected(&self, session: &str, idle: f64) -> f64 {
        let own = self.sessions.peek(session).filter(|own| !own.gaps.is_empty());
        let gap = match own {
            Some(own) => median(own.gaps.iter().copied().filter(|gap| *gap > idle)),
            None => self.median_gap(idle),
        };
        // Overdue: the longer it has been away, the longer it may stay.
        gap.map_or(idle, |gap| gap - idle).max(1.0)
    }

    /// How many of everybody's gaps were longer.
    fn longer(&self, idle: f64) -> f64 {
        let shares = self.gaps.iter().enumerate().map(|(index, count)| count * above(index, idle));
        shares.sum()
    }

    /// The median of everybody's gaps that were longer.
    fn median_gap(&self, idle: f64) -> Option<f64> {
        let half = self.longer(idle) / 2.0;
        if half == 0.0 {
            return Some(UNKNOWN_GAP).filter(|gap| *gap > idle);
        }
        let mut before = 0.0;
        let middle = (0..BUCKETS).find(|index| {
            before += self.gaps[*index] * above(*index, idle);
            before >= half
        })?;
        let (from, to) = bounds(middle);
        Some((from.max(idle) + to) / 2.0)
    }

    fn own(&mut self, session: &str) -> &mut Own {
        self.sessions.get_or_insert_mut_ref(session, Own::default)
    }

    /// Counts those as gone that have been away for long.
    fn give_up(&mut self, now: Instant) {
        while let Some((ended, session)) = self.open.front() {
            if now.saturating_duration_since(*ended) < GONE_AFTER && self.open.len() <= OPEN {
                return;
            }
            // Forgotten for newer sessions: it has not come back for long either.
            let gone = match self.sessions.peek_mut(session.as_str()) {
                Some(own) if own.ended == Some(*ended) => !std::mem::replace(&mut own.gone, true),
                Some(_) => false,
                None => true,
            };
            self.gone += f64::from(u8::from(gone));
            self.open.pop_front();
        }
        self.fade();
    }

    fn fade(&mut self) {
        if self.gaps.iter().sum::<f64>() + self.gone >= ENOUGH {
            self.gaps.iter_mut().for_each(|count| *count /= 2.0);
            self.gone /= 2.0;
        }
    }
}

/// From 0 to 1 s, to 3 s, to 7 s, ...
fn bucket(gap: f64) -> usize {
    ((gap + 1.0).log2() as usize).min(BUCKETS - 1)
}

fn bounds(bucket: usize) -> (f64, f64) {
    (2_f64.powf(bucket as f64) - 1.0, 2_f64.powf(bucket as f64 + 1.0) - 1.0)
}

/// The share of a bucket that is longer than `idle`.
fn above(bucket: usize, idle: f64) -> f64 {
    let (from, to) = bounds(bucket);
    ((to - idle) / (to - from)).clamp(0.0, 1.0)
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Clock {
        returns: Returns,
        now: Instant,
    }

    impl Clock {
        fn new() -> Self {
            Self { returns: Returns::default(), now: Instant::now() }
        }

        fn pass(&mut self, seconds: u64) -> &mut Self {
            self.now += Duration::from_secs(seconds);
            self
        }

        /// Turns of no length with these gaps after them; after the last one, the session is away.
        fn turns(&mut self, session: &str, gaps: &[u64]) -> &mut Self {
            for gap in gaps {
                self.turn(session).pass(*gap);
            }
            self.turn(session)
        }

        fn turn(&mut self, session: &str) -> &mut Self {
            self.returns.arrived(session, self.now);
            self.returns.ended(session, self.now);
            self
        }

        fn chance(&self, session: &str) -> f64 {
            self.returns.chance_at(session, self.now)
        }

        fn expected(&self, session: &str) -> f64 {
            self.returns.expected_at(session, self.now)
        }
    }

    #[test]
    fn of_a_session_nobody_knows_two_in_three_come_back() {
        let clock = Clock::new();
        assert!((clock.chance("new") - 2.0 / 3.0).abs() < 1e-9);
        assert!((clock.expected("new") - 30.0).abs() < 1e-9);
    }

    #[test]
    fn who_always_came_back_will_most_likely_do_so_again() {
        let mut clock = Clock::new();
        clock.turns("steady", &[20; 8]);
        assert!(clock.chance("steady") > 0.9, "{}", clock.chance("steady"));
        assert!((clock.expected("steady") - 20.0).abs() < 1e-9);
        clock.pass(15);
        assert!((clock.expected("steady") - 5.0).abs() < 1e-9);
    }

    #[test]
    fn who_is_overdue_may_stay_away_as_long_again() {
        let mut clock = Clock::new();
        clock.turns("late", &[20; 8]).pass(300);
        assert!(clock.chance("late") < 0.7);
        assert!((clock.expected("late") - 300.0).abs() < 1e-9);
        clock.turn("late");
        assert!(clock.expected("late") >= 1.0);
    }

    #[test]
    fn a_request_that_waits_or_runs_is_certain_to_come() {
        let mut clock = Clock::new();
        clock.turn("a").pass(3600);
        clock.returns.arrived("a", clock.now);
        assert!((clock.chance("a") - 1.0).abs() < 1e-9 && (clock.expected("a") - 1.0).abs() < 1e-9);
        clock.pass(3600);
        assert!(clock.chance("a") < 1.0, "it has been given up");
    }

    #[test]
    fn one_shot_sessions_lower_the_chance_of_a_new_one() {
        let mut clock = Clock::new();
        for number in 0..50 {
            clock.turn(&format!("once {number}")).pass(60);
        }
        assert!(clock.chance("new") < 0.1, "{}", clock.chance("new"));
        clock.turns("steady", &[5; 8]);
        assert!(clock.chance("steady") > 0.8, "its own gaps count more: {}", clock.chance("steady"));
    }

    #[test]
    fn who_was_taken_for_gone_and_comes_back_counts_as_come_back() {
        let mut clock = Clock::new();
        let sessions = ["a", "b", "c", "d", "e", "f"];
        for session in sessions {
            clock.turn(session);
        }
        clock.pass(700).turn("z");
        let before = clock.chance("new");
        for session in sessions {
            clock.turn(session);
        }
        assert!(clock.chance("new") > 0.8 && before < 0.3, "{before} {}", clock.chance("new"));
    }

    #[test]
    fn a_new_session_is_expected_as_soon_as_others_came_back() {
        let mut clock = Clock::new();
        for number in 0..20 {
            clock.turns(&format!("agent {number}"), &[10]);
        }
        assert!((7.0..15.0).contains(&clock.expected("new")), "{}", clock.expected("new"));
    }

    #[test]
    fn old_times_fade() {
        let mut clock = Clock::new();
        for number in 0..2000 {
            clock.turn(&format!("once {number}")).pass(10);
        }
        clock.pass(3600);
        for number in 0..2000 {
            clock.turns(&format!("twice {}", number / 10), &[10]);
        }
        assert!(clock.chance("new") > 0.7, "{}", clock.chance("new"));
        assert!(clock.returns.gaps.iter().sum::<f64>() + clock.returns.gone < ENOUGH);
    }

    #[test]
    fn little_is_remembered_however_many_sessions_there_are() {
        let mut clock = Clock::new();
        for number in 0..10_000 {
            clock.turn(&format!("once {number}"));
        }
        assert_eq!(clock.returns.sessions.len(), SESSIONS.get());
        assert!(clock.returns.open.len() <= OPEN);
    }
}
