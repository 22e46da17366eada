//! A breaker: after a failure a server gets nothing for a while, each time longer, and then one turn to show that it works.

use std::time::{Duration, Instant};

use super::types::Ticket;

/// The first pause.
const FIRST: Duration = Duration::from_secs(1);

/// No pause is longer.
const LONGEST: Duration = Duration::from_secs(60);

/// Closed as long as the server works.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    pause: Duration,
    /// From then on it is half-open.
    until: Instant,
    /// The one turn that is to show that the server works.
    trial: Option<Ticket>,
    /// It could not even be asked how it is: once it can, it is another matter.
    unasked: bool,
}

impl Breaker {
    /// The server failed. For how long the breaker is open, if that is new: what fails during the pause was sent before it,
    /// and tells nothing that isn't known.
    pub(super) fn failed(&mut self, now: Instant) -> Option<Duration> {
        let pause = match &self.open {
            None => FIRST,
            Some(open) if now < open.until => return None,
            Some(open) => (open.pause * 2).min(LONGEST),
        };
        self.open = Some(Open { pause, until: now + pause, trial: None, unasked: false });
        Some(pause)
    }

    /// The server could not be asked how it is; otherwise as [`Breaker::failed`].
    pub(super) fn unreachable(&mut self, now: Instant) -> Option<Duration> {
        let pause = self.failed(now);
        if let Some(open) = &mut self.open {
            open.unasked = true;
        }
        pause
    }

    /// The server was asked how it is, and is well. That ends the pause of one that could not be asked before; one whose turns
    /// failed may always have said so.
    pub(super) fn reached(&mut self, now: Instant) {
        if let Some(open) = &mut self.open
            && std::mem::take(&mut open.unasked)
        {
            open.until = open.until.min(now);
        }
    }

    /// A turn began well. Whether that closes it.
    pub(super) fn worked(&mut self) -> bool {
        self.open.take().is_some()
    }

    /// A turn is sent.
    pub(super) fn sent(&mut self, ticket: Ticket) {
        if let Some(open) = &mut self.open {
            open.trial = Some(ticket);
        }
    }

    /// A turn is over. If it was the trial and told nothing, another may be.
    pub(super) fn over(&mut self, ticket: Ticket) {
        if let Some(open) = &mut self.open
            && open.trial == Some(ticket)
        {
            open.trial = None;
        }
    }

    /// A turn may be sent.
    pub(super) fn lets_through(&self, now: Instant) -> bool {
        self.open.as_ref().is_none_or(|open| now >= open.until && open.trial.is_none())
    }

    /// Nothing may be sent before its pause is over.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| now < until)
    }

    /// The end of its pause, unless it is closed.
    pub(super) fn until(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.until)
    }

    /// The turn that is to show that the server works.
    pub(super) fn trial(&self) -> Option<Ticket> {
        self.open.as_ref()?.trial
    }
}
