//! `FakeLlama`: a scripted llama-server, with the behaviour of the real one that hurts its users.
//!
//! A prompt is one token per word. Words in it control the request (`ECHO:x` has it answer `x`), without any sleeping:
//! `LATE:x` it has arrived but is in no slot yet, `HOLD:x` it is in its slot but says nothing,
//! `HOLDEND:x` it has said its first token; each until [`FakeLlama::release`]`("x")`.
mod actions;
mod answers;
mod breakage;
mod choice;
mod completions;
mod echo;
mod engine;
mod failure;
mod gates;
mod generation;
mod info;
mod listener;
mod memory;
mod moving;
mod options;
mod prompt;
mod ram;
mod records;
mod reply;
mod request;
mod routes;
mod slot;
mod state;
mod states;
mod task;
mod tokens;

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

pub use breakage::Breakage;
pub use options::{KeepAlive, Options, Pace, Served};
pub use records::{Crash, Deed, Launch, Received, Violation, What};
pub use slot::{Slot, SlotId, TaskId};
pub use state::State;
pub use states::Faults;
pub use tokens::Token;

use crate::client::{self, Answer, Outgoing};
use listener::Port;
use state::Shared;

/// What a request says once another one has named its busy slot.
pub const DAMAGED: &str = engine::DAMAGED;

/// A running fake. Dropping it ends it, and panics if a request named a busy slot.
#[derive(Debug)]
pub struct FakeLlama {
    shared: Arc<Shared>,
    port: Arc<Mutex<Port>>,
    /// Ends the run when a bad file has killed the server.
    undertaker: JoinHandle<()>,
    address: SocketAddr,
}

impl FakeLlama {
    /// Starts a fake on the current tokio runtime: a test that blocks its thread blocks the fake.
    ///
    /// # Panics
    /// If the address can't be bound.
    #[must_use]
    pub fn start(options: Options) -> Self {
        let shared = Shared::new(options.clone());
        let (mut port, address) = Port::bind(options.listen).expect("the address should be free");
        port.open(&shared).expect("a bound port should listen");
        let port = Arc::new(Mutex::new(port));
        let undertaker = tokio::spawn(bury(Arc::clone(&shared), Arc::clone(&port), address));
        Self { shared, port, undertaker, address }
    }

    /// `http://ADDRESS`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Looks at the state. It is locked meanwhile: don't use the fake itself in there.
    pub fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        self.shared.read(look)
    }

    /// Waits until the state is as wanted.
    ///
    /// # Panics
    /// After 30 s, with a summary of the state.
    pub async fn wait_until(&self, what: &str, check: impl Fn(&State) -> bool) {
        self.shared.until_soon(what, check).await;
    }

    /// Waits until exactly this many slots are processing.
    pub async fn wait_processing(&self, count: usize) {
        let what = format!("{count} processing slots");
        self.wait_until(&what, |state| state.processing() == count).await;
    }

    /// Waits until at least this many slot-taking requests have arrived since the first start.
    pub async fn wait_received(&self, count: usize) {
        let what = format!("{count} received completions");
        self.wait_until(&what, |state| state.slot_taker_count() >= count).await;
    }

    /// The slot-taking requests so far, in order of arrival.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.look(|state| state.slot_takers().cloned().collect())
    }

    /// Which request went into which slot, in order.
    #[must_use]
    pub fn launches(&self) -> Vec<Launch> {
        self.look(|state| state.launches().to_vec())
    }

    /// How often `/slots` was asked.
    #[must_use]
    pub fn poll_count(&self) -> usize {
        self.look(State::poll_count)
    }

    /// Lets the requests with `HOLD:name`, `HOLDEND:name` or `LATE:name` go on, now and later.
    pub fn release(&self, name: &str) {
        self.shared.gates.open(name);
    }

    /// `/slots` hangs from now on, as during a long prefill.
    pub fn pause_slots(&self) {
        self.shared.slots_paused.send_replace(true);
    }

    /// `/slots` answers again, those who wait first.
    pub fn resume_slots(&self) {
        self.shared.slots_paused.send_replace(false);
    }

    /// Whether every route answers 503 "Loading model".
    pub fn loading(&self, loading: bool) {
        self.shared.update(|state| state.loading = loading);
    }

    /// The server is broken from now on.
    pub fn breaks(&self, breakage: Breakage) {
        self.shared.update(|state| state.breakage = Some(breakage));
    }

    /// It is well again.
    pub fn mends(&self) {
        self.shared.update(|state| state.breakage = None);
    }

    /// The memory that its slots share is full: whatever runs now fails, be it before its first word or in the middle.
    pub fn overflows(&self) {
        self.shared.update(|state| state.engine.fail_all());
    }

    /// Releases the next event of `/sse-gate`; the text is sent as it is.
    pub fn sse(&self, event: impl Into<String>) {
        self.shared.script.send_modify(|script| script.events.push(event.into()));
    }

    /// Ends the streams of `/sse-gate`.
    pub fn sse_end(&self) {
        self.shared.script.send_modify(|script| script.ended = true);
    }

    /// Ends the server: connections are cut, then refused; slots and queue are forgotten.
    pub async fn stop(&self) {
        end_run(&self.shared, &mut *self.port.lock().await, self.address).await;
    }

    /// Starts the stopped server on the same port.
    pub async fn start_again(&self) {
        self.port.lock().await.open(&self.shared).expect("a bound port should listen");
    }

    /// Ends the server and starts it with these options on the same port.
    pub async fn restart(&self, options: Options) {
        self.stop().await;
        self.shared.update(|state| state.new_run(options));
        self.shared.run.send_replace(self.look(|state| state.run));
        self.start_again().await;
    }

    /// Somebody else's `/completion`, past the router. It is under way at once; what it does to
    /// busy slots is not held against the router.
    #[must_use]
    pub fn foreign(&self, prompt: &str, id_slot: Option<i64>) -> JoinHandle<Answer> {
        let body = json!({"prompt": prompt, "id_slot": id_slot, "n_predict": 4}).to_string();
        let request = Outgoing::post(format!("{}/completion", self.url()), body);
        let request = request.header(routes::FOREIGN, "1");
        tokio::spawn(async move { client::send(request).await })
    }

    /// Launches and slot actions, in order.
    #[must_use]
    pub fn deeds(&self) -> Vec<Deed> {
        self.look(|state| state.deeds().to_vec())
    }

    /// Changes what goes wrong with slot actions from now on.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        self.shared.update(|state| {
            change(&mut state.engine.disk.faults);
            state.engine.go_on(&mut state.log);
        });
    }

    /// Somebody else's slot action, past the router.
    ///
    /// # Errors
    /// If it kills the server.
    pub async fn foreign_action(&self, slot: usize, action: &str, file: &str) -> Result<Answer, String> {
        let body = json!({"filename": file}).to_string();
        let request = Outgoing::post(format!("{}/slots/{slot}?action={action}", self.url()), body);
        client::try_send(request.header(routes::FOREIGN, "1")).await
    }

    /// Panics if a request that came through the router named a busy slot, or killed the server.
    ///
    /// # Panics
    /// Then.
    pub fn assert_clean(&self) {
        let mine = |violation: &&Violation| !violation.foreign;
        let violations: Vec<Violation> =
            self.look(|state| state.violations().iter().filter(mine).cloned().collect());
        assert!(violations.is_empty(), "busy slots were named: {violations:?}");
        let crashes: Vec<Crash> =
            self.look(|state| state.crashes().iter().filter(|crash| !crash.foreign).copied().collect());
        assert!(crashes.is_empty(), "the server was killed by bad files: {crashes:?}");
    }
}

impl Drop for FakeLlama {
    fn drop(&mut self) {
        self.undertaker.abort();
        if !std::thread::panicking() {
            self.assert_clean();
        }
    }
}

/// Cuts all connections, refuses new ones, and forgets what a process forgets when it ends.
async fn end_run(shared: &Shared, port: &mut Port, address: SocketAddr) {
    port.close(address).await.expect("the port should bind again");
    let run = shared.update(|state| {
        // Told only now, so that whoever has seen it may start the server again.
        state.log.crashes.extend(state.engine.killed.take().map(|(crash, _)| crash));
        state.new_run(state.engine.options.clone());
        state.run
    });
    shared.run.send_replace(run);
}

/// Whoever is killed is dead at once; this only has to see that all others notice.
async fn bury(shared: Arc<Shared>, port: Arc<Mutex<Port>>, address: SocketAddr) {
    loop {
        shared.killed.notified().await;
        let mut port = port.lock().await;
        if shared.read(|state| state.engine.killed.is_some()) {
            end_run(&shared, &mut port, address).await;
        }
    }
}
