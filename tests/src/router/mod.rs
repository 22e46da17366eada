//! The real router binary as a child process.
mod binary;
mod builder;
mod database;
pub(crate) mod log;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::FakeLlama;
use crate::client;

pub use binary::binary;
pub use builder::{Exited, RouterBuilder};
pub use database::Database;
use log::Lines;

/// No router takes longer than this to end; streams may be draining.
const PATIENCE: Duration = Duration::from_secs(60);

/// No test waits longer than this for a status.
const STATUS_PATIENCE: Duration = Duration::from_secs(30);

/// A running router. Dropping it kills it.
#[derive(Debug)]
pub struct Router {
    child: Mutex<Option<Child>>,
    pid: u32,
    address: String,
    state_dir: PathBuf,
    stdout: Lines,
    stderr: Lines,
    /// Removed with the router, unless the test named a folder of its own.
    _own_dir: Option<TempDir>,
}

impl Router {
    /// Starts a router in front of the fake, with default settings.
    pub async fn start(fake: &FakeLlama) -> Self {
        Self::builder(fake).start().await
    }

    /// A router in front of the fake, to be configured.
    #[must_use]
    pub fn builder(fake: &FakeLlama) -> RouterBuilder {
        Self::in_front_of(&fake.url())
    }

    /// A router in front of any URL, to be configured.
    #[must_use]
    pub fn in_front_of(upstream: &str) -> RouterBuilder {
        RouterBuilder::new(upstream)
    }

    /// `http://ADDRESS`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `127.0.0.1:PORT`
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The folder of its database.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Everything it wrote to stdout so far, line by line.
    #[must_use]
    pub fn log_lines(&self) -> Vec<String> {
        self.stdout.all()
    }

    /// Everything it wrote to stderr so far, line by line.
    #[must_use]
    pub fn stderr_lines(&self) -> Vec<String> {
        self.stderr.all()
    }

    /// The JSON lines of its log so far.
    #[must_use]
    pub fn log(&self) -> Vec<Value> {
        self.stdout.json()
    }

    /// The log's `request` lines so far, in the order in which the requests ended.
    #[must_use]
    pub fn request_log(&self) -> Vec<Value> {
        self.log().into_iter().filter(|line| line["message"] == "request").collect()
    }

    /// Waits for a log line (an old one counts) and returns it.
    ///
    /// # Panics
    /// After 30 s, with the whole log.
    pub async fn wait_log(&self, check: impl Fn(&Value) -> bool) -> Value {
        self.stdout.wait_json(check).await
    }

    /// Waits until this many `request` lines are in the log and returns them all.
    ///
    /// # Panics
    /// After 30 s, with the whole log.
    pub async fn wait_requests(&self, count: usize) -> Vec<Value> {
        let enough = |lines: &[String]| log::requests(lines).len() >= count;
        self.stdout.wait(&format!("{count} request lines"), enough).await;
        self.request_log()
    }

    /// `GET /router/status`
    pub async fn status(&self) -> Value {
        client::get(format!("{}/router/status", self.url())).await.json()
    }

    /// Waits until the status is as wanted and returns it.
    ///
    /// # Panics
    /// After 30 s, with the status.
    pub async fn wait_status(&self, what: &str, check: impl Fn(&Value) -> bool) -> Value {
        let started = std::time::Instant::now();
        loop {
            let status = self.status().await;
            if check(&status) {
                return status;
            }
            assert!(started.elapsed() < STATUS_PATIENCE, "no {what}: {status:#}");
            // The status can only be asked for; asking costs the server behind the router nothing.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until this many requests are held back.
    pub async fn wait_waiting(&self, count: u64) {
        let what = format!("{count} waiting requests");
        self.wait_status(&what, |status| status["server"]["waiting"] == count).await;
    }

    /// Waits until it has seen the work in this slot that did not come through it. From then on it
    /// knows of it even if a busy machine makes the next look too slow to count.
    pub async fn wait_foreign(&self, slot: usize) {
        let seen = |status: &Value| status["server"]["slots"][slot]["foreign"] == true;
        self.wait_status("foreign work", seen).await;
    }

    /// Waits until no request runs or waits.
    pub async fn wait_quiet(&self) {
        let quiet = |status: &Value| status["server"]["leases"] == 0 && status["server"]["waiting"] == 0;
        self.wait_status("quiet", quiet).await;
    }

    /// Its database, where the router keeps it on disk.
    #[must_use]
    pub fn database(&self) -> Database {
        Database::at(self.state_dir.join("router.sqlite"))
    }

    /// Sends SIGTERM and does not wait.
    ///
    /// # Panics
    /// If there is no `kill`.
    pub fn send_term(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.pid.to_string()]).status();
        assert!(sent.expect("`kill` should be there").success(), "the router should still run");
    }

    /// Sends SIGTERM and waits for the end. Afterwards the log is complete.
    pub async fn terminate(&self) -> ExitStatus {
        self.send_term();
        self.wait_exit().await
    }

    /// Kills it without warning, as a power cut would.
    pub async fn kill(&self) -> ExitStatus {
        if let Some(child) = self.child().as_mut() {
            // It may have ended by itself, which is as good.
            let _ = child.kill();
        }
        self.wait_exit().await
    }

    /// Waits for the end. Afterwards the log is complete.
    ///
    /// # Panics
    /// After 60 s, with the whole log; or if it had already been waited for.
    pub async fn wait_exit(&self) -> ExitStatus {
        let child = self.child().take().expect("the router should not have been waited for");
        let status = builder::exit_of(child, PATIENCE).await;
        let status = status.unwrap_or_else(|| panic!("still running:\n{}", self.stdout.dump()));
        self.stdout.ended().await;
        self.stderr.ended().await;
        status
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        if let Some(child) = self.child().as_mut() {
            let _ = child.kill();
            // Reap it, so that no zombie stays for the rest of the test run.
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("router log:\n{}\n{}\n", self.stdout.dump(), self.stderr.dump()).as_bytes(),
            );
        }
    }
}
