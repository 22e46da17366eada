//! What must always hold of the fleet, checked after every change in debug builds.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::budget::Room;
use super::types::{Key, ServerId};
use super::{Attempt, Fleet, Sent};

impl Fleet {
    /// Panics when the fleet contradicts itself. Called after every change in debug builds.
    pub(super) fn check_invariants(&self, now: Instant) {
        if !cfg!(debug_assertions) {
            return;
        }
        for server in (0..self.servers.len() as u32).map(ServerId) {
            self.check_sums(server);
            self.check_line(server, now);
            if let Some(trial) = self.health[server.index()].breaker.trial() {
                let sent = self.attempts.get(&trial);
                assert!(
                    matches!(sent, Some(Attempt::Sent(sent)) if sent.server == server),
                    "a trial is in flight"
                );
            }
        }
        self.check_homes();
    }

    fn sent_to(&self, server: ServerId) -> impl Iterator<Item = &Sent> {
        let sent = self.attempts.values().filter_map(|attempt| match attempt {
            Attempt::Sent(sent) => Some(sent),
            Attempt::Waits(_) => None,
        });
        sent.filter(move |sent| sent.server == server)
    }

    fn check_sums(&self, server: ServerId) {
        let tally = &self.tallies[server.index()];
        let expected: u64 = self.sent_to(server).map(|sent| sent.counts).sum();
        assert_eq!(
            self.servers[server.index()].expected,
            expected,
            "what is reserved is what turns in flight take"
        );
        assert_eq!(tally.requests, self.sent_to(server).count() as u64, "requests in flight are counted");
        let known: HashSet<Key> = self.sent_to(server).filter_map(|sent| sent.key).collect();
        let unknown = self.sent_to(server).filter(|sent| sent.key.is_none()).count();
        assert_eq!(tally.busy, (known.len() + unknown) as u64, "conversations in flight are counted");
    }

    fn check_line(&self, server: ServerId, now: Instant) {
        let waiting = self.lines.get(&server).map(super::line::Line::all).unwrap_or_default();
        assert_eq!(self.tallies[server.index()].waiting, waiting.len() as u64, "who waits is counted");
        let order: Vec<_> = waiting.iter().map(|turn| (turn.seeker.since, turn.seeker.ticket)).collect();
        assert!(order.is_sorted(), "waiters stand in the order in which they came");
        let here = |turn: &&super::line::Turn| {
            turn.server == server
                && matches!(self.attempts.get(&turn.seeker.ticket), Some(Attempt::Waits(at)) if *at == server)
        };
        assert!(waiting.iter().all(|turn| here(&turn)), "a waiter waits in one line");
        let Some(head) = waiting.first() else { return };
        assert!(
            !self.health[server.index()].is_shut(now),
            "nobody waits for room at a server that gets nothing"
        );
        let goes = self.servers[server.index()].overflow.is_none()
            && self.takes_turns(server, now)
            && self.room(head) != Room::TooLittle;
        assert!(!goes, "nobody waits for room that is there");
    }

    fn check_homes(&self) {
        let mut live: HashMap<ServerId, u64> = HashMap::new();
        self.homes.all().for_each(|home| *live.entry(home).or_default() += 1);
        for server in (0..self.servers.len() as u32).map(ServerId) {
            assert_eq!(
                self.homes.live(server),
                live.get(&server).copied().unwrap_or(0),
                "live ones are counted"
            );
        }
        let waiting: usize = self.lines.values().map(|line| line.all().len()).sum();
        let waits = self.attempts.values().filter(|attempt| matches!(attempt, Attempt::Waits(_))).count();
        assert_eq!(waiting, waits, "who waits stands in a line");
        let keyed = self
            .attempts
            .values()
            .filter(|attempt| matches!(attempt, Attempt::Sent(sent) if sent.key.is_some()));
        let in_line = self.lines.values().flat_map(super::line::Line::all);
        let waiting_keyed = in_line.filter(|turn| turn.seeker.ask.key.is_some()).count();
        assert_eq!(
            self.homes.turns(),
            keyed.count() + waiting_keyed,
            "a conversation is awake as long as it has turns"
        );
    }
}
