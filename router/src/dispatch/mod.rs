//! The one lock over the slot table: turns its outputs into effects and hands out leases.
//!
//! Under the lock there is no I/O; writes to the store are only queued, so that they stand in the order of the
//! decisions. One task, [`Dispatch::watch`], asks `/slots` whenever the table wants to know.

mod advice;
mod lease;
mod pace;
mod queue;
mod recent;
mod server;
mod waits;
mod warm;
mod watch;
mod who;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::Utc;
use tokio::sync::{Notify, oneshot};
use tracing::{info, warn};

pub use lease::Lease;
pub(crate) use pace::Pace;
pub use queue::Refused;
use recent::Recent;
pub use recent::SessionSnapshot;
use server::Server;
pub use server::{ServerSnapshot, Totals};
pub use warm::AllSaved;
pub use who::Who;

use crate::shelf::Shelf;
use crate::slots::{Action, End, Grant, LeaseId, Output, Policy, Refusal, SlotTable, Ticket, Want};
use crate::store::{SavedSession, Store, Write};
use crate::upstream::{Props, Upstream};
use crate::warm::SavedState;
use warm::WarmSnapshot;

/// The slots of one server, shared by all requests.
#[derive(Debug)]
pub struct Dispatch {
    state: Mutex<State>,
    /// Something has changed that may call for a probe.
    wake: Notify,
    /// Something has changed in the table.
    changed: Notify,
    upstream: Upstream,
    store: Store,
    shelf: Arc<Shelf>,
    policy: Policy,
}

/// What an earlier run has left.
#[derive(Debug, Default)]
pub struct Remembered {
    /// Sessions, the least recently used first.
    pub sessions: Vec<SavedSession>,
    /// Saved states whose files are there, the least recently used first.
    pub states: Vec<SavedState>,
}

#[derive(Debug)]
struct State {
    table: SlotTable,
    /// Hints of an earlier run, until the table takes them over.
    remembered: Remembered,
    /// Who waits for a grant.
    waiting: HashMap<Ticket, Waiting>,
    server: Server,
    recent: Recent,
    totals: Totals,
    pace: Pace,
}

#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Answer>,
    want: Want,
    who: Who,
    since: Instant,
}

impl Dispatch {
    /// A dispatcher that has not asked its server anything yet.
    #[must_use]
    pub fn new(
        policy: Policy,
        upstream: Upstream,
        store: Store,
        shelf: Arc<Shelf>,
        remembered: Remembered,
    ) -> Arc<Self> {
        let state = State {
            table: SlotTable::new(policy),
            remembered,
            waiting: HashMap::new(),
            server: Server::at(upstream.address()),
            recent: Recent::default(),
            totals: Totals::default(),
            pace: Pace::default(),
        };
        let (wake, changed) = (Notify::new(), Notify::new());
        Arc::new(Self { state: Mutex::new(state), wake, changed, upstream, store, shelf, policy })
    }

    /// Refuses everyone who still waits.
    pub fn stop(self: &Arc<Self>) {
        self.change(|state| state.table.refuse_all(Refusal::Stopping));
    }

    /// Everything there is to see now.
    #[must_use]
    pub fn snapshot(&self) -> ServerSnapshot {
        let mut state = self.lock();
        let warm = WarmSnapshot::new(state.table.warm().snapshot(), self.shelf.place());
        let props = state.server.props.as_ref();
        ServerSnapshot {
            warm,
            url: self.upstream.address(),
            reach: state.server.reach,
            build: props.map(|props| props.build_info.clone()),
            context_per_slot: props.and_then(Props::context),
            advice: state.server.advice(),
            table: state.table.snapshot(Instant::now()),
            totals: state.totals.clone(),
        }
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
        self.changed.notify_waiters();
        result
    }

    fn carry_out(self: &Arc<Self>, state: &mut State, output: Output, deliveries: &mut Vec<Delivery>) {
        match output {
            Output::Granted(grant) => {
                let Some(waiting) = state.waiting.remove(&grant.ticket) else {
                    state.table.release(grant.lease, End::Unsent, Instant::now());
                    return;
                };
                self.record_assignment(state, &waiting, &grant);
                let held_back = if grant.waited { waiting.since.elapsed() } else { Duration::ZERO };
                state.totals.count(&grant, held_back);
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
            Output::Overwritten { session, slot } => {
                state.totals.overwritten += 1;
                let session = session.as_str().escape_debug();
                info!(
                    url = state.server.url,
                    agent_session_id = %session,
                    slot = slot.0,
                    "overwritten: work that did not come through the router took the session's slot"
                );
            }
            Output::Stuck { slot, since } => warn!(
                url = state.server.url,
                slot = slot.0,
                for_s = since.as_secs(),
                "stuck: a slot is at work for nobody known and makes no progress; whoever waits for it goes on waiting"
            ),
            Output::Save { lease, slot, state: saved } => self.start_save(state, lease, slot, saved),
            Output::Warm(effect) => self.carry_out_warm(state, effect),
            Output::Restarted => {
                self.shelf_outlives_server();
                state.server.start_anew();
            }
            Output::Learned { clears_idle } => state.server.learn(clears_idle),
        }
    }

    fn record_assignment(&self, state: &State, waiting: &Waiting, grant: &Grant) {
        let Some(session) = waiting.want.session() else { return };
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

type Answer = Result<Lease, Refusal>;
type Delivery = (oneshot::Sender<Answer>, Answer);
