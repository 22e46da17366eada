//! Everything the fake knows, behind one lock, with a signal at each change.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::breakage::Breakage;
use super::engine::Engine;
use super::gates::Gates;
use super::options::Options;
use super::records::{Crash, Deed, Launch, Log, Received, Violation};
use super::slot::{Slot, TaskId};
use super::states::Disk;

/// No test waits longer than this for anything the fake should do.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a test can look at.
#[derive(Debug)]
pub struct State {
    pub(super) engine: Engine,
    pub(super) log: Log,
    pub(super) loading: bool,
    pub(super) breakage: Option<Breakage>,
    pub(super) last_traffic: Instant,
    /// Which run of the server this is; what belongs to an older one is ignored.
    pub(super) run: u64,
}

impl State {
    fn new(options: Options) -> Self {
        Self {
            engine: Engine::new(options, Disk::default()),
            log: Log::default(),
            loading: false,
            breakage: None,
            last_traffic: Instant::now(),
            run: 0,
        }
    }

    /// The slots.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.engine.slots
    }

    /// How many slots run something.
    #[must_use]
    pub fn processing(&self) -> usize {
        self.slots().iter().filter(|slot| slot.is_processing()).count()
    }

    /// How many tasks wait inside the server.
    #[must_use]
    pub fn deferred(&self) -> usize {
        self.engine.deferred.len()
    }

    /// Every request so far, whatever its route, in order of arrival.
    #[must_use]
    pub fn received(&self) -> &[Received] {
        &self.log.received
    }

    /// The requests that go into slots, in order of arrival.
    pub fn slot_takers(&self) -> impl Iterator<Item = &Received> {
        self.log.received.iter().filter(|received| received.takes_slot)
    }

    /// How many slot-taking requests have arrived; counted in fast mode as well.
    #[must_use]
    pub fn slot_taker_count(&self) -> usize {
        self.log.slot_takers
    }

    /// How many requests broke off before their body was complete.
    #[must_use]
    pub fn incomplete(&self) -> usize {
        self.log.incomplete
    }

    /// Which request went into which slot, in order.
    #[must_use]
    pub fn launches(&self) -> &[Launch] {
        &self.log.launches
    }

    /// Launches and slot actions, in order.
    #[must_use]
    pub fn deeds(&self) -> &[Deed] {
        &self.log.deeds
    }

    /// Whether a slot action is under way that the test holds.
    #[must_use]
    pub fn action_held(&self) -> bool {
        self.engine.held.is_some()
    }

    /// How often a bad file has killed the server. It is to be started again.
    #[must_use]
    pub fn crashes(&self) -> &[Crash] {
        &self.log.crashes
    }

    /// Requests that named a busy slot.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.log.violations
    }

    /// Requests that found somebody else's state restored in their slot.
    #[must_use]
    pub fn misplaced(&self) -> &[usize] {
        &self.log.misplaced
    }

    /// When `/slots` was asked.
    #[must_use]
    pub fn polls(&self) -> &[Instant] {
        &self.log.polls
    }

    /// How often `/slots` was asked; counted in fast mode as well.
    #[must_use]
    pub fn poll_count(&self) -> usize {
        self.log.poll_count
    }

    /// The server's own count of computed prompt tokens, as in `/metrics`.
    #[must_use]
    pub fn prompt_tokens_total(&self) -> usize {
        self.engine.prompt_tokens_total
    }

    /// Ends a task, unless it belongs to a run that is over.
    pub(super) fn end(&mut self, run: u64, task: TaskId) {
        if run == self.run {
            self.engine.end(task, &mut self.log);
        }
    }

    /// Everything forgotten that a process forgets when it ends.
    pub(super) fn new_run(&mut self, options: Options) {
        let disk = std::mem::take(&mut self.engine.disk);
        self.engine = Engine::new(options, disk);
        self.run += 1;
    }

    /// A summary for failure messages: no bodies.
    fn dump(&self) -> String {
        let slots = self.slots().iter().map(|slot| slot.to_json(0).to_string());
        let received = self.received().iter().map(|one| format!("{} {}", one.method, one.target));
        format!(
            "slots:\n  {}\nreceived:\n  {}\ndeferred: {}, action held: {}, crashes: {}, RAM cache: {:?}, polls: {}, loading: {}\nlaunches: {:?}\nviolations: {:?}",
            slots.collect::<Vec<_>>().join("\n  "),
            received.collect::<Vec<_>>().join("\n  "),
            self.deferred(),
            self.action_held(),
            self.crashes().len(),
            self.engine.ram.size(),
            self.poll_count(),
            self.loading,
            self.launches(),
            self.violations(),
        )
    }
}

/// The state and its signals, shared by all connections.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// Changes only when a run ends, so that waiting for it is cheap.
    pub(super) run: watch::Sender<u64>,
    /// The server was killed: its connections are to be cut.
    pub(super) killed: Notify,
    pub(super) gates: Gates,
    pub(super) slots_paused: watch::Sender<bool>,
    pub(super) script: watch::Sender<SseScript>,
}

/// What `/sse-gate` says, as far as the test has released it.
#[derive(Debug, Default)]
pub(super) struct SseScript {
    pub(super) events: Vec<String>,
    pub(super) ended: bool,
}

impl Shared {
    pub(super) fn new(options: Options) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new(options)),
            changed: watch::Sender::new(()),
            run: watch::Sender::new(0),
            killed: Notify::new(),
            gates: Gates::default(),
            slots_paused: watch::Sender::new(false),
            script: watch::Sender::new(SseScript::default()),
        })
    }

    /// Looks at the state.
    pub(super) fn read<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.lock())
    }

    /// Changes the state and tells everybody who waits.
    pub(super) fn update<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        if state.engine.killed.is_some() {
            self.killed.notify_one();
        }
        drop(state);
        self.changed.send_replace(());
        result
    }

    /// Waits for as long as it takes.
    pub(super) async fn until(&self, check: impl Fn(&State) -> bool) {
        let mut changed = self.changed.subscribe();
        while !self.read(&check) {
            // The sender is a field of self, so it is still there.
            let _ = changed.changed().await;
        }
    }

    /// Waits, but not for ever: panics with a summary of the state.
    pub(super) async fn until_soon(&self, what: &str, check: impl Fn(&State) -> bool) {
        if tokio::time::timeout(PATIENCE, self.until(check)).await.is_err() {
            let closed = self.gates.closed();
            let dump = self.read(State::dump);
            panic!("the fake waited {PATIENCE:?} for: {what}\n{dump}\nclosed gates: {closed:?}");
        }
    }

    /// Returns when this run of the server is over.
    pub(super) async fn run_over(&self, run: u64) {
        let mut current = self.run.subscribe();
        let _ = current.wait_for(|current| *current != run).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test's closure may have panicked under the lock; the state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
