//! How a router is started: flags, environment, config file, state folder.
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;

use super::binary::binary;
use super::log::Lines;
use super::{PATIENCE, Router};

/// A router to be started.
#[derive(Debug)]
pub struct RouterBuilder {
    program: Option<PathBuf>,
    listen: Option<String>,
    upstream: Option<String>,
    log_format: Option<String>,
    state_dir: Option<PathBuf>,
    config: Option<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

/// A router that has ended.
#[derive(Debug)]
pub struct Exited {
    /// How.
    pub status: ExitStatus,
    /// Its log.
    pub stdout: Vec<String>,
    /// Its complaints.
    pub stderr: Vec<String>,
}

impl RouterBuilder {
    pub(super) fn new(upstream: &str) -> Self {
        Self {
            program: None,
            listen: Some("127.0.0.1:0".to_owned()),
            upstream: Some(upstream.to_owned()),
            log_format: Some("json".to_owned()),
            state_dir: None,
            config: None,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Runs this program instead of the binary of this build.
    #[must_use]
    pub fn program(self, path: &Path) -> Self {
        Self { program: Some(path.to_owned()), ..self }
    }

    /// Adds a flag with a value: `.flag("--pin", "never")`.
    #[must_use]
    pub fn flag(self, name: &str, value: &str) -> Self {
        self.argument(name).argument(value)
    }

    /// Adds a single argument.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Writes this TOML to a file in the state folder and passes it as `--config`.
    #[must_use]
    pub fn config(self, toml: &str) -> Self {
        Self { config: Some(toml.to_owned()), ..self }
    }

    /// Uses this folder, which the test keeps, instead of one of its own: for restarts.
    #[must_use]
    pub fn state_dir(self, folder: &Path) -> Self {
        Self { state_dir: Some(folder.to_owned()), ..self }
    }

    /// Listens here instead of on a free port.
    #[must_use]
    pub fn listen(self, address: &str) -> Self {
        Self { listen: Some(address.to_owned()), ..self }
    }

    /// Passes no `--listen`: it comes from the environment or the config file.
    #[must_use]
    pub fn no_listen_flag(self) -> Self {
        Self { listen: None, ..self }
    }

    /// Passes no `--upstream`: it comes from the environment or the config file.
    #[must_use]
    pub fn no_upstream_flag(self) -> Self {
        Self { upstream: None, ..self }
    }

    /// Logs as `text` instead of JSON; [`Router::log`] and its waits then find nothing.
    #[must_use]
    pub fn log_format(self, format: &str) -> Self {
        Self { log_format: Some(format.to_owned()), ..self }
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// If it ends instead, with everything it wrote.
    pub async fn start(self) -> Router {
        let mut router = self.spawn();
        let Some(address) = router.stdout.first(listening_address).await else {
            router.stderr.ended().await;
            let (stdout, stderr) = (router.stdout.dump(), router.stderr.dump());
            panic!("the router does not listen:\n{stdout}\n{stderr}");
        };
        router.address = address;
        router
    }

    /// Starts a router that is expected to end by itself: `--help`, bad settings.
    ///
    /// # Panics
    /// If it is still running after 60 s.
    pub async fn run_to_exit(self) -> Exited {
        let router = self.spawn();
        let status = router.wait_exit().await;
        Exited { status, stdout: router.log_lines(), stderr: router.stderr_lines() }
    }

    fn spawn(self) -> Router {
        let own_dir = self.state_dir.is_none().then(temporary_folder);
        let own_path = own_dir.as_ref().map(|folder| folder.path().to_owned());
        let state_dir = self.state_dir.clone().or(own_path).unwrap_or_default();
        let program = self.program.clone().unwrap_or_else(binary);
        let mut child = self
            .command(&program, &state_dir)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let stdout = Lines::read(child.stdout.take().expect("stdout should be a pipe"));
        let stderr = Lines::read(child.stderr.take().expect("stderr should be a pipe"));
        let pid = child.id();
        let child = Mutex::new(Some(child));
        let address = String::new();
        Router { child, pid, address, state_dir, stdout, stderr, _own_dir: own_dir }
    }

    fn command(&self, program: &Path, state_dir: &Path) -> Command {
        let mut command = Command::new(program);
        // Nothing of the developer's own settings may leak into a test.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SLOT_ROUTER_") {
                command.env_remove(name);
            }
        }
        for (flag, value) in
            [("--listen", &self.listen), ("--upstream", &self.upstream), ("--log-format", &self.log_format)]
        {
            command.args(value.iter().flat_map(|value| [flag, value]));
        }
        command.arg("--state-dir").arg(state_dir);
        if let Some(config) = &self.config {
            let file = state_dir.join("test-config.toml");
            std::fs::write(&file, config).expect("the state folder should be writable");
            command.arg("--config").arg(file);
        }
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

fn temporary_folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder should be possible")
}

/// The address in the line that says `listening`, in either log format.
fn listening_address(line: &str) -> Option<String> {
    // The upstream's address is in that line as well.
    let line = line.split_once("listening")?.1.split_once("address")?.1;
    let start = line.find(|letter: char| letter.is_ascii_digit())?;
    let address =
        line[start..].split(|letter: char| letter != '.' && letter != ':' && !letter.is_ascii_digit());
    address.into_iter().next().map(|address| address.replace("0.0.0.0", "127.0.0.1"))
}

/// Waits for a child's end; kills it if it takes too long.
pub(super) async fn exit_of(mut child: Child, patience: Duration) -> Option<ExitStatus> {
    let started = std::time::Instant::now();
    // There is no waiting with a time limit in std, and tokio's needs a feature of its own.
    while started.elapsed() < patience.min(PATIENCE) {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}
