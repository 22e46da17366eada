//! How an attempt ends, and what that tells of its server and its conversation.

use std::time::{Duration, Instant};

use super::homes::Left;
use super::line::Turn;
use super::types::{Counts, Ended, Output, ServerId, Ticket, Why};
use super::{Attempt, Fleet, Sent};

/// So many tokens less than expected are no loss: the last ones of an answer are spelled differently in the next prompt.
const TOLERANCE: u64 = 64;

impl Fleet {
    pub(super) fn end(&mut self, ticket: Ticket, how: Ended, now: Instant) -> Option<u64> {
        let (key, server, lost) = match self.attempts.remove(&ticket)? {
            Attempt::Waits(server) => {
                let turn = self.leave_line(ticket, server)?;
                (turn.seeker.ask.key, server, None)
            }
            Attempt::Sent(sent) => {
                self.free(ticket, &sent);
                (sent.key, sent.server, self.learn_from(&sent, how, now))
            }
        };
        if let Some(key) = key {
            self.homes.rest(key, now);
        }
        self.serve_line(server, now);
        lost
    }

    fn free(&mut self, ticket: Ticket, sent: &Sent) {
        let last = sent.key.is_none_or(|key| self.homes.leave(key, sent.server));
        self.tallies[sent.server.index()].leave(last);
        self.servers[sent.server.index()].give_back(sent.counts);
        self.health[sent.server.index()].breaker.over(ticket);
    }

    fn learn_from(&mut self, sent: &Sent, how: Ended, now: Instant) -> Option<u64> {
        let server = sent.server;
        match how {
            Ended::Complete { counts } => {
                self.works(server);
                return self.complete(sent, counts);
            }
            Ended::Declined => self.works(server),
            Ended::Full => self.overflowed(sent, now),
            Ended::Broken => self.failed(server, now),
            Ended::NotReady => self.health[server.index()].heard(true),
            Ended::Doubtful | Ended::Left => {}
        }
        None
    }

    fn overflowed(&mut self, sent: &Sent, now: Instant) {
        let server = &mut self.servers[sent.server.index()];
        if let Some(pool) = server.overflowed(now) {
            self.outputs.push(Output::FoundShared { server: sent.server, pool });
        }
        // Its client may send it again as another request, after output had begun.
        if server.limit(&self.policy.budget).is_some()
            && let Some(known) = sent.key.and_then(|key| self.homes.known_mut(key))
        {
            known.habits.overflowed(sent.counts);
        }
    }

    /// A server runs turns.
    pub(super) fn works(&mut self, server: ServerId) {
        let health = &mut self.health[server.index()];
        health.heard(false);
        if health.breaker.worked() {
            self.outputs.push(Output::Closed { server });
        }
    }

    /// A server has failed.
    pub(super) fn failed(&mut self, server: ServerId, now: Instant) {
        let pause = self.health[server.index()].breaker.failed(now);
        self.opened(server, pause);
    }

    /// A server has failed; for how long its breaker is open, if that is new.
    pub(super) fn opened(&mut self, server: ServerId, pause: Option<Duration>) {
        self.servers[server.index()].seen.failures += 1;
        self.outputs.extend(pause.map(|pause| Output::Opened { server, pause }));
    }

    fn complete(&mut self, sent: &Sent, counts: Option<Counts>) -> Option<u64> {
        let counts = counts.map(Counts::bounded);
        let server = &mut self.servers[sent.server.index()];
        if let Some(counts) = counts {
            server.answered(sent.characters, counts);
        }
        let known = self.homes.known_mut(sent.key?)?;
        known.left = counts.map(|counts| Left::of(sent.server, counts));
        let counts = counts?;
        known.habits.learn(sent.characters, counts);
        let lost = sent.expects?.lost(counts)?;
        server.seen.evictions += 1;
        server.seen.tokens_lost += lost;
        Some(lost)
    }

    /// What a turn that goes home should find there. Nothing is expected beside another turn of the same conversation: which
    /// of them finds what isn't known.
    pub(super) fn expects(&self, turn: &Turn) -> Option<Left> {
        let awake = self.homes.awake(turn.seeker.ask.key?)?;
        let left = awake.known.left.filter(|left| left.server == turn.server);
        left.filter(|_| turn.why == Why::Home && awake.at.is_empty())
    }
}

impl Left {
    fn of(server: ServerId, counts: Counts) -> Self {
        Self { server, prompt: counts.prompt, tokens: counts.prompt + counts.generated }
    }

    /// The tokens that are gone, if a turn has found less than was left for it.
    ///
    /// What the last prompt had must be there again, or all of the new prompt if that is shorter. The answer's own tokens
    /// needn't: agents leave out what a model has only thought. A client that has changed how its conversation begins can't
    /// be told apart from a server that has lost it.
    pub(super) fn lost(self, counts: Counts) -> Option<u64> {
        let needed = self.prompt.min(counts.prompt);
        let is_lost = counts.cached.saturating_add(TOLERANCE) < needed;
        is_lost.then(|| self.tokens.min(counts.prompt) - counts.cached)
    }
}
