//! The one lock over the slot table: turns its outputs into effects and hands out leases.
//!
//! Under the lock there is no I/O; writes to the store are only queued, so that they stand in the order of the
//! decisions. One task, [`Dispatch::watch`], asks `/slots` whenever the table wants to know.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::Utc;
use serde::Serialize;
use session_slot_identity::SessionId;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep_until, timeout};
use tracing::{info, warn};

use crate::slots::{
    Action, Due, End, Grant, Home, Launch, LeaseId, Mark, Output, PinPolicy, Reading, Refusal, Shape, SlotId,
    SlotTable, TableSnapshot, Ticket, Want,
};
use crate::store::{SavedSession, Store, Write};
use crate::upstream::{Props, Upstream};
use crate::usage::Usage;

/// After this the leases alone decide: the server is in a long prefill.
const SILENCE: Duration = Duration::from_millis(250);
/// How long the start waits for `/props` before it takes stored hints over without knowing whose they are.
const INTRODUCTION: Duration = Duration::from_secs(2);
/// After this a probe is given up and another one may be sent.
const GIVE_UP: Duration = Duration::from_secs(30);

/// The session as it introduced itself. Recorded, never used to choose a slot.
#[derive(Debug, Clone, Default)]
pub struct Who {
    /// `agent_name`.
    pub agent_name: Option<String>,
    /// `client_type`; `None` for old clients.
    pub client_type: Option<String>,
}

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
    totals: Totals,
}

#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Result<Lease, Refusal>>,
    want: Want,
    who: Who,
    since: Instant,
}

/// What is known of the server besides its slots.
#[derive(Debug, Default, Clone)]
struct Server {
    props: Option<Props>,
    /// `/props` has to be asked again: the server is new to us.
    stale: bool,
    reach: Reach,
    advice: Vec<&'static str>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Reach {
    #[default]
    Unknown,
    Up,
    NoSlots,
    Silent,
    Loading,
    Unreachable,
}

/// Counts since the router's start.
#[derive(Debug, Default, Clone, Serialize)]
pub struct Totals {
    /// Requests to slot-taking routes.
    pub requests: u64,
    /// ... that returned to their session's slot.
    pub home: u64,
    /// ... of a session that got a slot nobody owned.
    pub new: u64,
    /// ... of a session that took another one's slot.
    pub evict: u64,
    /// ... of a session, whose slot llama-server chose.
    pub free: u64,
    /// ... without a session.
    pub anonymous: u64,
    /// ... that were held back.
    pub waited: u64,
    /// Slots that were primed first.
    pub primed: u64,
    /// Probes of `/slots`.
    pub probes: u64,
    /// Prompt tokens the server computed, as its answers say.
    pub prompt_computed: u64,
    /// Prompt tokens it took from a cache.
    pub prompt_cached: u64,
}

/// What the status page shows of one server.
#[derive(Debug, Clone, Serialize)]
pub struct ServerSnapshot {
    url: String,
    reach: Reach,
    build: Option<String>,
    context_per_slot: Option<u64>,
    /// What to change in the server's settings.
    advice: Vec<&'static str>,
    #[serde(flatten)]
    table: TableSnapshot,
    totals: Totals,
}

const ADVICE_CLEARS: &str = "llama-server empties idle slots whenever a request starts (its default settings), so \
    each turn comes back through its RAM cache: start it with `--parallel 4 --no-kv-unified` (the context is then \
    divided among the slots) or with `--no-cache-idle-slots`, and turns find their slot as they left it";
const ADVICE_NO_SLOTS: &str = "llama-server's /slots can't be read, so the router sees neither foreign work nor which \
    caches are warm: start it with `--slots`, and give the router its key with --upstream-api-key-file if it has one";

impl Dispatch {
    /// A dispatcher that has not asked its server anything yet. `saved` are hints of an earlier run.
    #[must_use]
    pub fn new(policy: PinPolicy, upstream: Upstream, store: Store, saved: Vec<SavedSession>) -> Arc<Self> {
        let state = State {
            table: SlotTable::new(policy),
            saved,
            waiting: HashMap::new(),
            server: Server { stale: true, ..Server::default() },
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
        self.store.record(Write::Assigned {
            session: session.to_string(),
            agent_name: waiting.who.agent_name.clone(),
            client_type: waiting.who.client_type.clone(),
            slot: grant.launch.slot().map(|slot| slot.0),
            fingerprint: state.server.props.as_ref().map(Props::fingerprint),
            at: Utc::now(),
        });
    }

    /// Asks `/slots` whenever the table wants to know, for as long as the router runs.
    pub async fn watch(self: Arc<Self>) {
        self.take_over_hints().await;
        self.probe().await;
        loop {
            let due = self.lock().table.next_probe();
            match due {
                Some(Due::Now) => self.probe().await,
                Some(Due::At(at)) => tokio::select! {
                    () = sleep_until(at.into()) => self.probe().await,
                    () = self.wake.notified() => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Before the first probe, so that nothing has been decided without them. What a session left in a slot is only
    /// believed of the very server it was left on.
    async fn take_over_hints(self: &Arc<Self>) {
        let introduced = timeout(INTRODUCTION, self.refresh_props()).await;
        self.change(|state| {
            let fingerprint = state.server.props.as_ref().map(Props::fingerprint);
            // If the server is not there yet it is asked again once it is.
            state.server.stale = introduced.is_err() || fingerprint.is_none();
            let saved = std::mem::take(&mut state.saved);
            state.table.restore(saved.into_iter().filter_map(|saved| hint(saved, fingerprint.as_deref())));
        });
    }

    /// One probe: single-flight, so one answer serves every decision that was waiting when it was asked.
    async fn probe(self: &Arc<Self>) {
        let probe = self.change(|state| {
            state.totals.probes += 1;
            state.table.probe_asked()
        });
        let mut answer = pin!(self.upstream.slots());
        let answered = match timeout(SILENCE, &mut answer).await {
            Ok(reading) => Some(reading),
            Err(_) => {
                self.observe(probe, Reading::Silent);
                self.outwait(answer).await
            }
        };
        let Some(reading) = answered else {
            self.change(|state| state.table.renew_probes(probe));
            return;
        };
        let up = matches!(reading, Reading::Slots(_) | Reading::Blind(_));
        self.observe(probe, reading);
        self.change(|state| state.table.renew_probes(probe));
        if up && self.lock().server.stale {
            // Nothing is granted meanwhile, so it must not take long; if it does, it is tried after the next probe.
            drop(timeout(INTRODUCTION, self.refresh_props()).await);
        }
    }

    /// Waits for a silent server without asking it again; whoever comes meanwhile is decided by the leases alone.
    async fn outwait(
        self: &Arc<Self>,
        mut answer: Pin<&mut impl Future<Output = Reading>>,
    ) -> Option<Reading> {
        let give_up = tokio::time::Instant::now() + GIVE_UP;
        loop {
            tokio::select! {
                reading = &mut answer => return Some(reading),
                () = sleep_until(give_up) => return None,
                () = self.wake.notified() => {}
            }
            if self.lock().table.next_probe() != Some(Due::Now) {
                continue;
            }
            let probe = self.change(|state| state.table.probe_asked());
            match timeout(SILENCE, &mut answer).await {
                Ok(reading) => return Some(reading),
                Err(_) => self.observe(probe, Reading::Silent),
            }
        }
    }

    fn observe(self: &Arc<Self>, probe: crate::slots::ProbeId, reading: Reading) {
        self.change(|state| {
            state.server.note(&reading, &self.upstream);
            state.table.observe(probe, reading, Instant::now());
        });
    }

    async fn refresh_props(self: &Arc<Self>) {
        let props = self.upstream.props().await;
        let mut state = self.lock();
        state.server.stale = false;
        if let Some(props) = &props {
            let slots = props.total_slots;
            info!(
                url = self.upstream.address(),
                build = props.build_info,
                slots,
                context_per_slot = props.context(),
                "llama-server is up"
            );
        }
        state.server.props = props;
    }

    fn release(self: &Arc<Self>, lease: LeaseId, end: End) {
        self.change(|state| state.table.release(lease, end, Instant::now()));
    }
}

type Delivery = (oneshot::Sender<Result<Lease, Refusal>>, Result<Lease, Refusal>);

fn hint(saved: SavedSession, fingerprint: Option<&str>) -> Option<(SessionId, Option<Home>)> {
    let session = SessionId::new(&saved.session).ok()?;
    let same_server = saved.fingerprint.is_some() && saved.fingerprint.as_deref() == fingerprint;
    let left = saved.id_task.zip(saved.n_tokens).map(|(id_task, tokens)| Mark { id_task, tokens });
    let left = left.filter(|_| same_server);
    // A slot number beyond this is no hint but damage: no llama-server has that many.
    let slot = saved.slot.filter(|slot| *slot < 4096);
    Some((session, slot.map(|slot| Home { slot: SlotId(slot), left })))
}

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
    sent: bool,
    over: bool,
}

impl Lease {
    fn new(dispatch: &Arc<Dispatch>, grant: Grant, waiting: &Waiting) -> Self {
        let session = match &waiting.want {
            Want::Session(session) => Some(session.clone()),
            Want::Anonymous | Want::Named(_) => None,
        };
        Self {
            dispatch: Arc::clone(dispatch),
            id: grant.lease,
            session,
            launch: grant.launch,
            action: grant.action,
            waited: grant.waited.then(|| waiting.since.elapsed()),
            slots_seen: grant.slots_seen,
            sent: false,
            over: false,
        }
    }

    /// Something is about to be sent: from here on llama-server may be at work.
    pub fn sent(&mut self) {
        self.sent = true;
    }

    /// The slot has been primed; the request itself follows.
    pub fn primed(&self) {
        self.dispatch.change(|state| state.table.primed(self.id));
    }

    /// The server has begun to answer. The slot it runs in, if it is known.
    pub fn landed(&mut self) -> Option<SlotId> {
        self.dispatch.change(|state| {
            state.table.landed(self.id);
            state.table.location(self.id)
        })
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
        // The last token sampled is never evaluated, so the slot does not hold it.
        let tokens = usage.map(|usage| {
            usage.computed.saturating_add(usage.cached).saturating_add(usage.generated).saturating_sub(1)
        });
        let end = End::Complete { tokens, slot: slot.map(SlotId) };
        let usage = usage.unwrap_or_default();
        if let Some(session) = &self.session {
            let (computed, cached) = (usage.computed, usage.cached);
            self.dispatch.store.record(Write::Usage { session: session.to_string(), computed, cached });
        }
        self.dispatch.change(|state| {
            let totals = &mut state.totals;
            totals.prompt_computed = totals.prompt_computed.saturating_add(usage.computed);
            totals.prompt_cached = totals.prompt_cached.saturating_add(usage.cached);
            state.table.release(self.id, end, Instant::now());
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

impl Server {
    fn note(&mut self, reading: &Reading, upstream: &Upstream) {
        let reach = match reading {
            Reading::Slots(_) => Reach::Up,
            Reading::Silent => Reach::Silent,
            Reading::Blind(_) => Reach::NoSlots,
            Reading::Loading => Reach::Loading,
            Reading::Refused => Reach::Unreachable,
        };
        let before = std::mem::replace(&mut self.reach, reach);
        if before == reach {
            return;
        }
        match reach {
            Reach::Unreachable => warn!(
                url = upstream.address(),
                "llama-server can't be reached; requests are answered with 502 until it is"
            ),
            Reach::Loading => info!(url = upstream.address(), "llama-server is loading its model"),
            Reach::NoSlots => self.advise(ADVICE_NO_SLOTS),
            Reach::Up => self.advice.retain(|advice| *advice != ADVICE_NO_SLOTS),
            Reach::Unknown | Reach::Silent => {}
        }
    }

    /// It may have come back with other settings.
    fn start_anew(&mut self) {
        self.stale = true;
        self.advice.retain(|advice| *advice != ADVICE_CLEARS);
    }

    fn learn(&mut self, clears_idle: bool) {
        if clears_idle {
            self.advise(ADVICE_CLEARS);
        } else {
            self.advice.retain(|advice| *advice != ADVICE_CLEARS);
        }
    }

    fn advise(&mut self, advice: &'static str) {
        if !self.advice.contains(&advice) {
            warn!("{advice}");
            self.advice.push(advice);
        }
    }
}

impl Totals {
    fn count(&mut self, grant: &Grant) {
        let by_action = match grant.action {
            Action::Home => &mut self.home,
            Action::New => &mut self.new,
            Action::Evict(_) => &mut self.evict,
            Action::Free => &mut self.free,
            Action::Anonymous => &mut self.anonymous,
        };
        *by_action += 1;
        self.waited += u64::from(grant.waited);
        self.primed += u64::from(matches!(grant.launch, Launch::Pin { prime: true, .. }));
    }
}
