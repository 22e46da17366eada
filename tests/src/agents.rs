//! Real agents as child processes: where `scripts/setup-agents.sh` put them, and one run of one of them.
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

/// A loaded machine takes its time, and agents retry.
const PATIENCE: Duration = Duration::from_secs(240);

/// Where the agent of `tests/agents/NAME` is installed.
///
/// # Panics
/// If the environment does not say so: run the tests with `scripts/test.sh`.
#[must_use]
pub fn folder(name: &str) -> PathBuf {
    let list = std::env::var("ROUTER_TEST_AGENTS").expect("ROUTER_TEST_AGENTS is set by scripts/test.sh");
    let folder = list.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    PathBuf::from(folder.unwrap_or_else(|| panic!("{name} is not in ROUTER_TEST_AGENTS")))
}

/// A command that sees nothing of this user's: a home of its own, no proxies, no keys.
#[must_use]
pub fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("PATH", path_with(program)).env("NO_PROXY", "127.0.0.1");
    command.env("LANG", "C.UTF-8").current_dir(home);
    command
}

/// The program's own folder first: a script that says `env node` gets the node next to it.
fn path_with(program: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = program.parent().map(Path::to_owned).into_iter();
    std::env::join_paths(own.chain(std::env::split_paths(&path))).unwrap_or(path)
}

/// What opencode needs to know of a server at `url`, and to leave alone all others.
#[must_use]
pub fn opencode_settings(url: &str) -> Value {
    let options = json!({"baseURL": format!("{url}/v1"), "apiKey": "none"});
    let local = json!({"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}});
    json!({
        "model": "local/m", "small_model": "local/m", "enabled_providers": ["local"],
        "provider": {"local": local}, "autoupdate": false, "share": "disabled",
    })
}

/// The variables that keep opencode from the network. Each would fetch something: lists of models, plugins of its own,
/// their packages, language servers.
pub const OPENCODE_SWITCHES: [(&str, &str); 4] = [
    ("OPENCODE_DISABLE_MODELS_FETCH", "true"),
    ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "true"),
    ("npm_config_offline", "true"),
    ("OPENCODE_DISABLE_LSP_DOWNLOAD", "true"),
];

/// What one run of a program left.
#[derive(Debug)]
pub struct Run {
    /// It ended with code 0.
    pub success: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Run {
    /// Runs `command` to its end, without standard input. It is killed when the future is dropped.
    ///
    /// # Panics
    /// If it can't be started, or takes more than four minutes.
    pub async fn of(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(PATIENCE, command.output()).await;
        let output = output.unwrap_or_else(|_| panic!("still running after {PATIENCE:?}: {command:?}"));
        let output = output.unwrap_or_else(|error| panic!("can't start {command:?}: {error}"));
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self { success: output.status.success(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// # Panics
    /// If the run failed; with all that it printed.
    #[must_use]
    pub fn succeeded(self) -> Self {
        assert!(self.success, "the program failed\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}
