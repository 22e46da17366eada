//! The turns that wait for room at one server, in the order in which their requests first asked.

use std::time::Instant;

use super::budget::Need;
use super::estimate::more_than;
use super::types::{Again, Ask, ServerId, Ticket, Why};

/// A request that asks for a server.
#[derive(Debug)]
pub(super) struct Seeker {
    pub(super) ticket: Ticket,
    pub(super) ask: Ask,
    /// When it first asked.
    pub(super) since: Instant,
    /// It takes at least so many tokens.
    pub(super) least: u64,
    /// It has waited for room.
    pub(super) waited: bool,
}

/// A request that has a server.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) seeker: Seeker,
    pub(super) server: ServerId,
    pub(super) why: Why,
    /// Where its conversation lived before it got that server.
    pub(super) home_before: Option<ServerId>,
    pub(super) need: Need,
}

impl Seeker {
    pub(super) fn new(ticket: Ticket, ask: Ask, now: Instant) -> Self {
        let (since, least) = match ask.again {
            Some(Again::Full { reserved, since, .. }) => (since, more_than(reserved)),
            _ => (now, 0),
        };
        Self { ticket, ask, since, least, waited: false }
    }

    /// It has a right to wait: it did already, or was sent.
    pub(super) fn was_let_in(&self) -> bool {
        self.waited || matches!(self.ask.again, Some(Again::Full { .. }))
    }
}

impl Turn {
    /// When its request first asked, whose it is, and its server.
    pub(super) fn when_and_where(&self) -> (Instant, Ticket, ServerId) {
        (self.seeker.since, self.seeker.ticket, self.server)
    }
}

/// One server's line. There is none where nobody waits.
#[derive(Debug, Default)]
pub(super) struct Line(Vec<Turn>);

impl Line {
    /// Behind all those that came before.
    pub(super) fn join(&mut self, turn: Turn) {
        let order = |turn: &Turn| (turn.seeker.since, turn.seeker.ticket);
        let place = self.0.partition_point(|other| order(other) <= order(&turn));
        self.0.insert(place, turn);
    }

    pub(super) fn leave(&mut self, ticket: Ticket) -> Option<Turn> {
        let place = self.0.iter().position(|turn| turn.seeker.ticket == ticket)?;
        Some(self.0.remove(place))
    }

    pub(super) fn mark_waited(&mut self, ticket: Ticket) {
        if let Some(turn) = self.0.iter_mut().find(|turn| turn.seeker.ticket == ticket) {
            turn.seeker.waited = true;
        }
    }

    /// Takes out the next one that fits: the head, or one behind it as long as the head has patience.
    pub(super) fn next(
        &mut self,
        patient: impl Fn(Instant) -> bool,
        fits: impl Fn(&Turn) -> bool,
    ) -> Option<Turn> {
        let head = self.0.first()?;
        let considered = if patient(head.seeker.since) { self.0.len() } else { 1 };
        let place = self.0[..considered].iter().position(fits)?;
        Some(self.0.remove(place))
    }

    pub(super) fn all(&self) -> &[Turn] {
        &self.0
    }

    pub(super) fn into_all(self) -> Vec<Turn> {
        self.0
    }
}
