//! The way into the queue and out of it: granted, refused, timed out, or left by the client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::{self, timeout_at};

use super::{Answer, Dispatch, Lease, State, Waiting, Who};
use crate::slots::{Refusal, Shape, Ticket, Want};
use crate::warm::Story;

/// A request that gets no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The reason.
    pub why: Refusal,
    /// When it is worth coming back: between one second and five minutes.
    pub retry_after: Duration,
}

impl Dispatch {
    /// Waits until the request may be sent, but not beyond `until`, when it has waited for `queue.max_wait`. Dropping the
    /// future withdraws it.
    ///
    /// # Errors
    /// When too many wait already, no slot becomes free in time, the server can't be reached, or the router is stopping.
    pub async fn acquire(
        self: &Arc<Self>,
        want: Want,
        shape: Shape,
        story: Option<Arc<Story>>,
        who: Who,
        until: time::Instant,
    ) -> Result<Lease, Refused> {
        let (mut place, granted) = self.line_up(want, shape, story, who)?;
        let answer = timeout_at(until, granted).await;
        // Whoever has been answered stands in no queue any more.
        place.kept = answer.is_err();
        let why = match answer {
            Ok(Ok(Ok(lease))) => return Ok(lease),
            Ok(Ok(Err(why))) => why,
            Ok(Err(_)) => Refusal::Stopping,
            Err(_) => {
                let why = Refusal::TimedOut { after: self.policy.queue.max_wait };
                place.reason = Some(why);
                drop(place);
                why
            }
        };
        Err(self.lock().refused(why))
    }

    fn line_up(
        self: &Arc<Self>,
        want: Want,
        shape: Shape,
        story: Option<Arc<Story>>,
        who: Who,
    ) -> Result<(Place<'_>, oneshot::Receiver<Answer>), Refused> {
        let (answer, granted) = oneshot::channel();
        let since = Instant::now();
        let mut state = self.lock();
        state.totals.requests += 1;
        if let Some(session) = want.session() {
            state.recent.saw(session, &who, since);
        }
        let ticket = state.table.enqueue(want.clone(), shape, story, since).map_err(|why| {
            state.totals.count_refusal(why);
            state.refused(why)
        })?;
        state.waiting.insert(ticket, Waiting { answer, want, who, since });
        drop(state);
        self.wake.notify_one();
        Ok((Place { dispatch: self, ticket, kept: true, reason: None }, granted))
    }
}

impl State {
    fn retry_after(&self) -> Duration {
        self.pace.until(self.table.waiting(), self.table.slot_count())
    }

    fn refused(&self, why: Refusal) -> Refused {
        let retry_after = match why {
            // A session's requests go one after another, whatever there is for the others.
            Refusal::SessionFull { waiting } => self.pace.until(waiting, 1),
            _ => self.retry_after(),
        };
        Refused { why, retry_after }
    }
}

/// A place in the queue, given up when the client leaves or its time is over.
struct Place<'a> {
    dispatch: &'a Arc<Dispatch>,
    ticket: Ticket,
    kept: bool,
    /// Why it is given up; `None`: the client has left.
    reason: Option<Refusal>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.kept {
            return;
        }
        self.dispatch.change(|state| {
            state.table.leave(self.ticket);
            // If it is not there any more it has just been granted, and the lease goes back unused.
            if state.waiting.remove(&self.ticket).is_some() {
                match self.reason {
                    Some(why) => state.totals.count_refusal(why),
                    None => state.totals.abandoned += 1,
                }
            }
        });
    }
}
