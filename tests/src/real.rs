//! A real llama-server with a real model, started by `scripts/llama_server.py` and read through its own eyes: its
//! counters, its `/slots` and its log.
use std::ffi::OsString;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use crate::client;
use crate::router::log::Lines;

/// A loaded machine may take minutes to read the model.
const START_PATIENCE: Duration = Duration::from_secs(600);

/// The log is written a little after the answers.
const LOG_PATIENCE: Duration = Duration::from_secs(30);

/// One test at a time: a model takes all the processor it gets.
static RUNNING: Mutex<()> = Mutex::const_new(());

/// Tokens over all slots. Small, so that a server starts at once.
const CONTEXT: &str = "8192";

/// A running llama-server. Dropping it kills it.
#[derive(Debug)]
pub struct RealLlama {
    flags: Vec<String>,
    url: String,
    process: Process,
    _alone: Arc<MutexGuard<'static, ()>>,
}

/// What the server has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Prompt tokens it computed.
    pub computed: u64,
    /// Prompt tokens it took from a cache.
    pub cached: u64,
    /// Tokens it generated.
    pub generated: u64,
}

impl Counters {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            computed: self.computed - earlier.computed,
            cached: self.cached - earlier.cached,
            generated: self.generated - earlier.generated,
        }
    }
}

impl RealLlama {
    /// Starts a server with these flags of llama-server's, once no other runs in this process.
    ///
    /// # Panics
    /// If it does not start, or the environment does not say where it is.
    pub async fn start(flags: &[&str]) -> Self {
        Self::start_alone(flags, &Arc::new(RUNNING.lock().await)).await
    }

    /// The same for several of them, which run together.
    pub async fn start_several(count: usize, flags: &[&str]) -> Vec<Self> {
        let alone = Arc::new(RUNNING.lock().await);
        join_all((0..count).map(|_| Self::start_alone(flags, &alone))).await
    }

    async fn start_alone(flags: &[&str], alone: &Arc<MutexGuard<'static, ()>>) -> Self {
        let flags = owned(flags);
        let (process, url) = Process::start(&flags, "0").await;
        Self { flags, url, process, _alone: Arc::clone(alone) }
    }

    /// Kills it: all it held is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Kills it and starts another one on the same port: all it held is gone.
    pub async fn restart(&mut self) {
        self.process.kill();
        let port = self.url.rsplit(':').next().unwrap_or_default();
        (self.process, self.url) = Process::start(&self.flags, port).await;
    }

    /// The same with other flags.
    pub async fn restart_with(&mut self, flags: &[&str]) {
        self.flags = owned(flags);
        self.restart().await;
    }

    /// `http://ADDRESS`
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// What `/metrics` says.
    ///
    /// # Panics
    /// If a counter is missing.
    pub async fn counters(&self) -> Counters {
        let metrics = client::get(format!("{}/metrics", self.url)).await.text();
        let count = |name: &str| {
            let name = format!("llamacpp:{name} ");
            let found = metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
            found.unwrap_or_else(|| panic!("no {name:?} in {metrics}"))
        };
        Counters {
            computed: count("prompt_tokens_total"),
            cached: count("prompt_tokens_cached_total"),
            generated: count("tokens_predicted_total"),
        }
    }

    /// What `/slots` says.
    pub async fn slots(&self) -> Vec<Value> {
        let slots = client::get(format!("{}/slots", self.url)).await.json();
        slots.as_array().cloned().unwrap_or_default()
    }

    /// Everything it logged so far.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.process.log.all()
    }

    /// How many requests it has stopped because their client had left.
    #[must_use]
    pub fn cancelled(&self) -> usize {
        self.log().iter().filter(|line| line.contains("cancel task, id_task")).count()
    }

    /// Asserts that no request named a slot that was at work, which would have damaged what ran there. The server is
    /// idle.
    ///
    /// # Panics
    /// If one did, with the server's log; or if the log tells nothing of slots.
    pub async fn assert_no_busy_slot_was_named(&self) {
        // Logged last of what concerns a slot, so all before it is there too.
        for slot in self.slots().await {
            let Some(task) = slot["id_task"].as_i64() else { continue };
            let (task, released) = (format!("| task {task} |"), "stop processing");
            self.wait_log(|line| line.contains(&task) && line.contains(released)).await;
        }
        let log = self.log();
        // `slot get_availabl: id  0 | task -1 | selected slot by id (0)`: the task is the one that runs there.
        let choices: Vec<&String> = log.iter().filter(|line| line.contains("selected slot by")).collect();
        assert!(!choices.is_empty(), "no slot was ever chosen:\n{}", log.join("\n"));
        let damaging = choices.iter().find(|line| !line.contains("| task -1 |"));
        assert!(damaging.is_none(), "{damaging:?} in the server's log:\n{}", log.join("\n"));
    }

    async fn wait_log(&self, check: impl Fn(&str) -> bool) {
        let started = Instant::now();
        while !self.log().iter().any(|line| check(line)) {
            assert!(started.elapsed() < LOG_PATIENCE, "no such line in:\n{}", self.log().join("\n"));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// It ends when this is closed.
    _stdin: ChildStdin,
    log: Lines,
}

impl Process {
    async fn start(flags: &[String], port: &str) -> (Self, String) {
        let mut command = Command::new(setting("ROUTER_TEST_PYTHON"));
        command.arg(setting("ROUTER_TEST_LAUNCHER")).arg("--model").arg(setting("ROUTER_TEST_MODEL"));
        // On a machine with other work llama.cpp's threads spend their time waiting for each other; one has none to
        // wait for.
        command.args(["--port", port, "--ctx-size", CONTEXT, "--threads", "1"]).args(flags);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take().expect("stdin should be a pipe");
        let told = Lines::read(child.stdout.take().expect("stdout should be a pipe"));
        let log = Lines::read(child.stderr.take().expect("stderr should be a pipe"));
        let process = Self { child, _stdin: stdin, log };
        let started = Instant::now();
        loop {
            let url = told.first(|line| line.strip_prefix("listening on ").map(str::to_owned)).await;
            if let Some(url) = url {
                return (process, url);
            }
            let log = process.log.dump();
            assert!(!told.has_ended(), "llama-server did not start:\n{log}");
            assert!(started.elapsed() < START_PATIENCE, "llama-server does not get ready:\n{log}");
        }
    }

    fn kill(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = format!("llama-server log:\n{}\n", self.log.dump());
            let _ = std::io::Write::write_all(&mut std::io::stderr(), log.as_bytes());
        }
    }
}

fn owned(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

fn setting(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| {
        panic!(
            "{name} is not set: run scripts/test.sh, which sets up a real llama-server, or set ROUTER_TEST_PYTHON, \
             ROUTER_TEST_MODEL (scripts/setup-llama.sh prints both) and ROUTER_TEST_LAUNCHER=scripts/llama_server.py"
        )
    })
}
