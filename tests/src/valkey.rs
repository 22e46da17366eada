//! A real Valkey or Redis for one test: with a password, with nothing on disk, and gone with the test.
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::router::log::Lines;

/// It must show up nowhere.
pub const PASSWORD: &str = "hunter2";

/// A Valkey that may be stopped and started again, each time empty. Dropping it kills it.
#[derive(Debug)]
pub struct Valkey {
    port: u16,
    folder: TempDir,
    child: Mutex<Option<Child>>,
}

impl Valkey {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// If it does not start, or the environment does not say where it is.
    pub async fn start() -> Self {
        let valkey = Self::absent();
        valkey.restart().await;
        valkey
    }

    /// One that has not been started yet: nobody listens on its port.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn absent() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("there should be a free port");
        let port = free.local_addr().expect("a bound address").port();
        let folder = tempfile::tempdir().expect("a temporary folder should be possible");
        Self { port, folder, child: Mutex::new(None) }
    }

    /// With its password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://:{PASSWORD}@127.0.0.1:{}/", self.port)
    }

    /// Starts it, on the same port as before, with nothing in it.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&self) {
        self.stop();
        let mut command = Command::new(program());
        command.current_dir(self.folder.path()).args([
            "--bind",
            "127.0.0.1",
            "--port",
            &self.port.to_string(),
        ]);
        command.args(["--save", "", "--appendonly", "no", "--requirepass", PASSWORD]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = Lines::read(child.stdout.take().expect("stdout should be a pipe"));
        *self.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        let ready = log.first(|line| line.contains("Ready to accept connections").then_some(())).await;
        assert!(ready.is_some(), "it does not start:\n{}", log.dump());
    }

    /// Kills it; what was in it is gone.
    pub fn stop(&self) {
        if let Some(mut child) = self.child.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It may have ended by itself, which is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// It takes connections and requests, and answers none, until [`Valkey::resume`].
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    /// It goes on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = child.as_ref().expect("it should run").id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.expect("`kill` should be there").success(), "it should still run");
    }
}

impl Drop for Valkey {
    fn drop(&mut self) {
        self.stop();
    }
}

fn program() -> PathBuf {
    let program = std::env::var_os("ROUTER_TEST_REDIS").unwrap_or_else(|| {
        panic!(
            "ROUTER_TEST_REDIS is not set: run scripts/test.sh, or set it to the path of a valkey-server or \
             redis-server (scripts/setup-valkey.sh prints one)"
        )
    });
    program.into()
}
