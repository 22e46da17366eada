//! The one lock over the slot table: turns its outputs into effects and hands out leases.
//!
//! Under the lock there is no I/O; writes to the store are only queued, so that they stand in the order of the
//! decisions. One task, [`Dispatch::watch`], asks `/slots` whenever the table wants to know.

mod lease;
mod recent;
mod server;

mod watch;
mod who;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use chrono::Utc;
use tokio::sync::{Notify, oneshot};

pub use lease::Lease;
use recent::Recent;
pub use recent::SessionSnapshot;
use server::Server;
pub use server::{ServerSnapshot, Totals};
pub use who::Who;

use crate::slots::{
    Action, Concurrent, End, Grant, LeaseId, Output, PinPolicy, Refusal, Shape, SlotTable, Ticket, Want,
};
use crate::store::{SavedSession, Store, Write};
use crate::upstream::{Props, Upstream};

/// The slots of one server, shared by all requests.
#[derive(Debug)]
pub struct Dispatch {
    state: Mutex<State>,
    /// Something has changed that may call for a probe.
    wake: Notify,
    upstream: Upstream,
    store: Store,
}

#[derive(Debug)]
struct State {
    table: SlotTable,
    /// Hints of an earlier run, until the table takes them over.
    saved: Vec<SavedSession>,
    /// Who waits for a grant.
    waiting: HashMap<Ticket, Waiting>,
    server: Server,
    recent: Recent,
    totals: Totals,
}

#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Result<Lease, Refusal>>,
    want: Want,
    who: Who,
    since: Instant,
}

impl Dispatch {
    /// A dispatcher that has not asked its server anything yet. `saved` are hints of an earlier run.
    #[must_use]
    pub fn new(
        policy: PinPolicy,
        concurrent: Concurrent,
        upstream: Upstream,
        store: Store,
        saved: Vec<SavedSession>,
    ) -> Arc<Self> {
        let state = State {
            table: SlotTable::new(policy, concurrent),
            saved,
            waiting: HashMap::new(),
            server: Server { stale: true, ..Server::default() },
            recent: Recent::default(),
            totals: Totals::default(),
        };
        Arc::new(Self { state: Mutex::new(state), wake: Notify::new(), upstream, store })
    }

    /// Waits until the request may be sent. Dropping the future withdraws it.
    ///
    /// # Errors
    /// When the server can't be reached, or the router is stopping.
    pub async fn acquire(self: &Arc<Self>, want: Want, shape: Shape, who: Who) -> Result<Lease, Refusal> {
        let (answer, granted) = oneshot::channel();
        let since = Instant::now();
        let ticket = {
            let mut state = self.lock();
            state.totals.requests += 1;
            if let Want::Session(session) = &want {
                state.recent.saw(session, &who, since);
            }
            let ticket = state.table.enqueue(want.clone(), shape, since);
            state.waiting.insert(ticket, Waiting { answer, want, who, since });
            ticket
        };
        self.wake.notify_one();
        let mut place = Place { dispatch: self, ticket, kept: true };
        let answer = granted.await.unwrap_or(Err(Refusal::Stopping));
        place.kept = false;
        answer
    }

    /// Refuses everyone who still waits.
    pub fn stop(self: &Arc<Self>) {
        self.change(|state| state.table.refuse_all(Refusal::Stopping));
    }

    /// Everything there is to see now.
    #[must_use]
    pub fn snapshot(&self) -> ServerSnapshot {
        let state = self.lock();
        let props = state.server.props.as_ref();
        ServerSnapshot {
            url: self.upstream.address(),
            reach: state.server.reach,
            build: props.map(|props| props.build_info.clone()),
            context_per_slot: props.and_then(Props::context),
            advice: state.server.advice.clone(),
            table: state.table.snapshot(Instant::now()),
            totals: state.totals.clone(),
        }
    }

    /// Counts something that the slot table knows nothing of.
    pub(crate) fn note(&self, count: impl FnOnce(&mut Totals)) {
        count(&mut self.lock().totals);
    }

    /// The sessions seen last, the last first.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionSnapshot> {
        let now = Instant::now();
        let (mut sessions, slots) = {
            let state = self.lock();
            (state.recent.snapshot(now), state.table.snapshot(now).slots)
        };
        let homes: HashMap<_, _> =
            slots.iter().filter_map(|slot| Some((slot.session.as_deref()?, slot.slot.0))).collect();
        for session in &mut sessions {
            session.slot = homes.get(session.id()).copied();
        }
        sessions
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The table is consistent between its methods, so a panic elsewhere under the lock is no reason to stop.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the table, then carries out what that brought about.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> R) -> R {
        let mut deliveries = Vec::new();
        let result = {
            let mut state = self.lock();
            let result = change(&mut state);
            for output in state.table.take_outputs() {
                self.carry_out(&mut state, output, &mut deliveries);
            }
            result
        };
        // Outside the lock: when the receiver is gone the lease comes back and is released at once.
        for (receiver, answer) in deliveries {
            drop(receiver.send(answer));
        }
        self.wake.notify_one();
        result
    }

    fn carry_out(self: &Arc<Self>, state: &mut State, output: Output, deliveries: &mut Vec<Delivery>) {
        match output {
            Output::Granted(grant) => {
                let Some(waiting) = state.waiting.remove(&grant.ticket) else {
                    state.table.release(grant.lease, End::Unsent, Instant::now());
                    return;
                };
                state.totals.count(&grant);
                self.record_assignment(state, &waiting, &grant);
                let lease = Lease::new(self, grant, &waiting);
                deliveries.push((waiting.answer, Ok(lease)));
            }
            Output::Refused { ticket, why } => {
                let waiting = state.waiting.remove(&ticket);
                deliveries.extend(waiting.map(|waiting| (waiting.answer, Err(why))));
            }
            Output::Evicted { session } => {
                self.store.record(Write::Unassigned { session: session.to_string() });
            }
            Output::Left { session, home } => self.store.record(Write::Left {
                session: session.to_string(),
                slot: Some(home.slot.0),
                id_task: home.left.map(|left| left.id_task),
                n_tokens: home.left.map(|left| left.tokens),
            }),
            Output::Restarted => state.server.start_anew(),
            Output::Learned { clears_idle } => state.server.learn(clears_idle),
        }
    }

    fn record_assignment(&self, state: &State, waiting: &Waiting, grant: &Grant) {
        let Want::Session(session) = &waiting.want else { return };
        // Where a request was spilled is not where its session lives.
        let home = grant.launch.slot().filter(|_| !matches!(grant.action, Action::Spill(_)));
        self.store.record(Write::Assigned {
            session: session.to_string(),
            agent_name: waiting.who.agent_name.clone(),
            client_type: waiting.who.client_type.clone(),
            slot: home.map(|slot| slot.0),
            fingerprint: state.server.props.as_ref().map(Props::fingerprint),
            at: Utc::now(),
        });
    }

    fn release(self: &Arc<Self>, lease: LeaseId, end: End) {
        self.change(|state| state.table.release(lease, end, Instant::now()));
    }
}

type Delivery = (oneshot::Sender<Result<Lease, Refusal>>, Result<Lease, Refusal>);

/// A place in the queue, given up when the client leaves.
struct Place<'a> {
    dispatch: &'a Arc<Dispatch>,
    ticket: Ticket,
    kept: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.kept {
            self.dispatch.change(|state| {
                state.table.leave(self.ticket);
                state.waiting.remove(&self.ticket);
            });
        }
    }
}
