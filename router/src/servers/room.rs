//! The one lock over the fleet, and the waiting for room at a server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use thiserror::Error;
use tokio::sync::{Notify, oneshot};
use tokio::time::{self, sleep_until, timeout_at};
use tracing::{info, warn};

use super::{Seat, Servers, Several};
use crate::dispatch::Pace;
use crate::fleet::{Again, Ask, Eligible, Ended, Fleet, Output, Refusal, ServerId, Ticket};

/// Nobody is told to come back sooner.
const SOONEST: Duration = Duration::from_secs(1);

/// Who is in which server, and who waits.
#[derive(Debug)]
pub(super) struct Room {
    state: Mutex<State>,
    /// Something has changed that may be due earlier.
    wake: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) fleet: Fleet,
    /// Who waits for room.
    waiting: HashMap<Ticket, Waiting>,
    pub(super) pace: Pace,
}

#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Result<Seat, Refusal>>,
    /// When the request first asked for a server.
    since: Instant,
    /// When it did so now.
    asked: Instant,
}

/// A request that gets no server.
#[derive(Debug)]
pub(crate) struct NotSeated {
    pub(crate) why: NoSeat,
    /// When it is worth coming back.
    pub(crate) retry_after: Duration,
}

/// Why a request gets no server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum NoSeat {
    #[error("no server has this model; there are: {known}")]
    UnknownModel { known: String },
    #[error("the server {0} is down: send the request again when it is up")]
    HostDown(Arc<str>),
    #[error("no server can take the request now, those that could are down: send it again in a moment")]
    Down,
    #[error(
        "the server is overloaded, {waiting} requests wait for room: send this one again later, or raise \
         queue.max_waiting"
    )]
    Crowded { waiting: usize },
    #[error(
        "the server is overloaded, there was no room within queue.max_wait: send the request again, or raise it"
    )]
    TimedOut,
    #[error("the router is stopping: send the request again in a moment")]
    Stopping,
}

impl Room {
    pub(super) fn new(fleet: Fleet) -> Self {
        let state = State { fleet, waiting: HashMap::new(), pace: Pace::default() };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // The fleet is consistent between its methods, so a panic elsewhere under the lock is no reason to stop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Servers {
    /// Waits until the request may go to a server, but not beyond `until`. Dropping the future withdraws it.
    ///
    /// # Errors
    /// When it may go to none.
    pub(crate) async fn seat(self: &Arc<Self>, ask: Ask, until: time::Instant) -> Result<Seat, NotSeated> {
        match &self.several {
            Some(several) => self.seat_shared(several, ask, until).await,
            None => Ok(Seat::only(self)),
        }
    }

    /// The same where there are several, as far as this router knows.
    pub(super) async fn seat_here(
        self: &Arc<Self>,
        several: &Several,
        ask: Ask,
        until: time::Instant,
    ) -> Result<Seat, NotSeated> {
        let of = ask.of.clone();
        let (mut place, seated) = self.line_up(several, ask);
        let answer = timeout_at(until, seated).await;
        place.kept = answer.is_err();
        drop(place);
        let why = match answer {
            Ok(Ok(Ok(seat))) => return Ok(seat),
            Ok(Ok(Err(why))) => Some(why),
            Ok(Err(_)) => Some(Refusal::Stopping),
            Err(_) => None,
        };
        Err(self.not_seated(several, why, &of))
    }

    fn line_up(
        self: &Arc<Self>,
        several: &Several,
        ask: Ask,
    ) -> (Place<'_>, oneshot::Receiver<Result<Seat, Refusal>>) {
        let (answer, seated) = oneshot::channel();
        let asked = Instant::now();
        let since = if let Some(Again::Full { since, .. }) = ask.again { since } else { asked };
        let ticket = self.change_of(several, |state| {
            let ticket = state.fleet.ask(ask, asked);
            state.waiting.insert(ticket, Waiting { answer, since, asked });
            ticket
        });
        (Place { servers: self, ticket, kept: true }, seated)
    }

    /// The server is down that alone may serve a request.
    pub(crate) fn host_down(&self, server: ServerId) -> NotSeated {
        NotSeated { why: NoSeat::HostDown(Arc::clone(&self.member(server).name)), retry_after: SOONEST }
    }

    fn not_seated(&self, several: &Several, why: Option<Refusal>, of: &Eligible) -> NotSeated {
        let (waiting, pace) = {
            let state = several.room.lock();
            (state.waiting.len(), state.pace.until(state.waiting.len(), self.members.len()))
        };
        let (why, retry_after) = match (why, of) {
            (None, _) => (NoSeat::TimedOut, pace),
            (Some(Refusal::UnknownModel), _) => return self.unknown_model(),
            (Some(Refusal::Down { retry_after }), Eligible::Only(server)) => {
                (self.host_down(*server).why, retry_after)
            }
            (Some(Refusal::Down { retry_after }), _) => (NoSeat::Down, retry_after),
            (Some(Refusal::Crowded { .. }), _) => (NoSeat::Crowded { waiting }, pace),
            (Some(Refusal::Stopping), _) => (NoSeat::Stopping, SOONEST),
        };
        NotSeated { why, retry_after: retry_after.max(SOONEST) }
    }

    /// Changes the fleet, then carries out what that brought about. Does nothing with one server.
    pub(super) fn change<R: Default>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> R) -> R {
        self.several.as_ref().map_or_else(R::default, |several| self.change_of(several, change))
    }

    fn change_of<R>(self: &Arc<Self>, several: &Several, change: impl FnOnce(&mut State) -> R) -> R {
        let mut deliveries = Vec::new();
        let result = {
            let mut state = several.room.lock();
            let result = change(&mut state);
            // What a withdrawal brings about comes in the next round.
            loop {
                let outputs = state.fleet.take_outputs();
                if outputs.is_empty() {
                    break;
                }
                outputs.into_iter().for_each(|output| self.carry_out(&mut state, output, &mut deliveries));
            }
            result
        };
        // Outside the lock: when the receiver is gone the seat comes back and is given up at once.
        for (receiver, answer) in deliveries {
            drop(receiver.send(answer));
        }
        several.room.wake.notify_one();
        result
    }

    fn carry_out(self: &Arc<Self>, state: &mut State, output: Output, deliveries: &mut Vec<Delivery>) {
        match output {
            Output::Placed(placed) => match state.waiting.remove(&placed.ticket) {
                Some(waiting) => {
                    deliveries
                        .push((waiting.answer, Ok(Seat::new(self, placed, waiting.since, waiting.asked))));
                }
                None => drop(state.fleet.ended(placed.ticket, Ended::Left, Instant::now())),
            },
            Output::Refused { ticket, why } => {
                let waiting = state.waiting.remove(&ticket);
                deliveries.extend(waiting.map(|waiting| (waiting.answer, Err(why))));
            }
            Output::Opened { server, pause } => warn!(
                server = &*self.member(server).name,
                url = self.member(server).upstream.address(),
                pause_s = pause.as_secs(),
                "a server is broken: its conversations go elsewhere until it works again"
            ),
            Output::Closed { server } => {
                info!(server = &*self.member(server).name, "a server that was broken works again");
            }
            Output::FoundShared { server, pool } => info!(
                server = &*self.member(server).name,
                pool,
                "the slots of this server share their memory, as an overflow has shown; from now on it is heeded"
            ),
        }
    }

    /// Lets the fleet know that time has passed, whenever it wants to.
    pub(super) async fn keep_time(self: Arc<Self>) {
        let Some(several) = &self.several else { return };
        loop {
            let due = several.room.lock().fleet.next_due();
            match due {
                Some(at) => tokio::select! {
                    () = sleep_until(at.into()) => self.change(|state| state.fleet.tick(Instant::now())),
                    () = several.room.wake.notified() => {}
                },
                None => several.room.wake.notified().await,
            }
        }
    }
}

type Delivery = (oneshot::Sender<Result<Seat, Refusal>>, Result<Seat, Refusal>);

/// A place in the line, given up when the client leaves or its time is over.
struct Place<'a> {
    servers: &'a Arc<Servers>,
    ticket: Ticket,
    kept: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.kept {
            return;
        }
        self.servers.change(|state| {
            // If it is not there any more it has just been placed, and the seat is given up unused.
            if state.waiting.remove(&self.ticket).is_some() {
                state.fleet.ended(self.ticket, Ended::Left, Instant::now());
            }
        });
    }
}
