//! The right to run one request, from its grant to the end of its answer.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use session_slot_identity::SessionId;
use tokio::time::timeout;

use super::{Dispatch, Waiting};
use crate::slots::{Action, End, Grant, Launch, LeaseId, SlotId, SlotSnapshot, SlotTable, Start};
use crate::store::Write;
use crate::usage::Usage;
use crate::warm::{RestoreError, SaveError, StateId, Written};

/// A request that waits for others' states to be saved asks at least so often whether it may start.
const RECHECK: Duration = Duration::from_secs(1);

/// The exclusive right to run one request. Ends exactly once: by [`Lease::complete`], or when it is dropped.
#[derive(Debug)]
pub struct Lease {
    dispatch: Arc<Dispatch>,
    id: LeaseId,
    session: Option<SessionId>,
    /// How to send the request.
    pub launch: Launch,
    /// How the slot was chosen.
    pub action: Action,
    /// The request was held back.
    pub waited: Option<Duration>,
    /// The slots as seen when it was granted.
    pub slots_seen: Arc<str>,
    /// Tokens of the saved state its slot was filled with.
    pub restored: Option<u64>,
    granted: Instant,
    /// When the head of its answer came.
    landed: Option<Instant>,
    /// From then until the first event of a stream.
    reading: Option<Duration>,
    sent: bool,
    over: bool,
}

impl Lease {
    pub(super) fn new(dispatch: &Arc<Dispatch>, grant: Grant, waiting: &Waiting) -> Self {
        let session = waiting.want.session().cloned();
        Self {
            dispatch: Arc::clone(dispatch),
            id: grant.lease,
            session,
            launch: grant.launch,
            action: grant.action,
            waited: grant.waited.then(|| waiting.since.elapsed()),
            slots_seen: grant.slots_seen,
            restored: None,
            granted: Instant::now(),
            landed: None,
            reading: None,
            sent: false,
            over: false,
        }
    }

    /// Something is about to be sent: from here on llama-server may be at work.
    pub fn sent(&mut self) {
        self.sent = true;
    }

    /// Where to find out how large this server's states are.
    pub(crate) fn slot_to_measure(&self) -> Option<SlotId> {
        self.dispatch.lock().table.slot_to_measure(self.id)
    }

    /// That has been tried; [`Lease::may_start`] follows.
    pub(crate) fn tried_to_measure(&self) {
        self.dispatch.change(|state| state.table.measured(self.id, Instant::now()));
    }

    /// How large this server's states are is not known yet.
    pub(crate) fn needs_measure(&self) -> bool {
        self.dispatch.lock().table.warm().needs_measure()
    }

    /// It is known, so that states of another layout are told apart.
    pub(crate) fn is_measured(&self) -> bool {
        self.dispatch.lock().table.warm().is_measured()
    }

    /// The state of a one-word prompt could not be saved.
    pub(crate) fn unmeasured(&self, why: SaveError) {
        self.dispatch.change(|state| state.table.warm().unmeasured(why));
    }

    /// The state of a one-word prompt is so large.
    pub(crate) fn measured(&self, bytes: u64) {
        self.dispatch.change(|state| state.table.warm().measured(bytes));
    }

    /// As far as is known `state` has so many tokens.
    pub(crate) fn may_hold(&self, state: StateId, tokens: u64) -> bool {
        self.dispatch.lock().table.warm().may_hold(state, tokens)
    }

    /// How long a restore of so many bytes may take.
    pub(crate) fn restore_limit(&self, bytes: u64) -> Duration {
        self.dispatch.lock().restore_limit(bytes)
    }

    /// How the restore into the slot went; [`Lease::may_start`] follows.
    pub(crate) fn restored(&mut self, outcome: Result<Written, RestoreError>) {
        self.restored = outcome.ok().map(|written| written.tokens);
        self.dispatch
            .change(|state| state.table.restored(self.id, self.launch.fill(), outcome, Instant::now()));
    }

    /// The slot has been filled: the request is sent when this ends. On a server that clears idle slots the states of
    /// others that have ended meanwhile are saved first.
    ///
    /// False: the server has restarted, and the slot is not this lease's any more.
    pub(crate) async fn may_start(&self) -> bool {
        self.may(SlotTable::may_start).await
    }

    /// The same of the one-word prompt that shows how large states are, before one is restored.
    pub(crate) async fn may_measure(&self) -> bool {
        self.may(SlotTable::may_measure).await
    }

    async fn may(&self, ask: impl Fn(&mut SlotTable, LeaseId, Instant) -> Start) -> bool {
        loop {
            let mut changed = pin!(self.dispatch.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            // Not a change of its own that would wake it, and others like it, again.
            match ask(&mut self.dispatch.lock().table, self.id, Instant::now()) {
                Start::Now => return true,
                Start::Never => return false,
                Start::Later => {}
            }
            // What it waits for is given up after a time, which nobody tells.
            drop(timeout(RECHECK, changed).await);
        }
    }

    /// The slot has been filled; the request itself follows.
    pub fn filled(&self) {
        self.dispatch.change(|state| state.table.filled(self.id));
    }

    /// The server has begun to answer. The slot it runs in, if it is known.
    pub fn landed(&mut self) -> Option<SlotId> {
        self.landed.get_or_insert_with(Instant::now);
        self.dispatch.change(|state| {
            state.table.landed(self.id);
            state.table.location(self.id)
        })
    }

    /// The first event of a stream has come. llama-server sends the head once the request has its slot, and the first event
    /// when it has read the prompt: some routes do not tell otherwise how long that took.
    pub(crate) fn answers(&mut self) {
        if self.reading.is_none() {
            self.reading = self.landed.map(|landed| landed.elapsed());
        }
    }

    /// The slot it runs in, as the status page shows it; for the log.
    pub(crate) fn slot_shown(&self) -> Option<SlotSnapshot> {
        let state = self.dispatch.lock();
        let slot = state.table.location(self.id)?;
        state.table.slot(slot)
    }

    /// The server has answered with an error instead of running the request.
    pub fn declined(mut self) {
        self.over = true;
        self.dispatch.release(self.id, End::Declined);
    }

    /// No connection came about.
    pub fn unsent(mut self) {
        self.sent = false;
    }

    /// The answer has ended; `usage` and `slot` as far as it told.
    pub fn complete(mut self, usage: Option<Usage>, slot: Option<u32>) {
        self.over = true;
        let usage = usage.map(|usage| usage.read_in(self.reading));
        let end = End::Complete { usage, slot: slot.map(SlotId) };
        let usage = usage.unwrap_or_default();
        if let Some(session) = &self.session {
            let (computed, cached) = (usage.computed, usage.cached);
            self.dispatch.store.record(Write::Usage { session: session.to_string(), computed, cached });
        }
        self.dispatch.change(|state| {
            let totals = &mut state.totals;
            totals.prompt_computed = totals.prompt_computed.saturating_add(usage.computed);
            totals.prompt_cached = totals.prompt_cached.saturating_add(usage.cached);
            let now = Instant::now();
            state.pace.ran(now.saturating_duration_since(self.granted));
            state.table.release(self.id, end, now);
            let warm = state.table.warm();
            let (found, needed) = (warm.ram_share(), warm.ram_needed());
            state.server.finds_in_ram(found, needed);
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.over {
            self.dispatch.release(self.id, if self.sent { End::Broken } else { End::Unsent });
        }
    }
}
