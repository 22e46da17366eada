//! Pi in a home of its own, with what `scripts/install-pi.sh` put there.
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use session_slot_tests::{Options, Router, agents};
use tempfile::TempDir;
use tokio::process::Command;

/// A version of Pi, and what is different in it.
#[derive(Debug)]
pub(crate) struct Version {
    /// Its folder in `tests/agents`.
    agent: &'static str,
    /// Whether the extension can see the mode.
    tells_mode: bool,
    /// The event after which the next prompt may come.
    pub(crate) settled: &'static str,
}

pub(crate) const V0_73: Version = Version { agent: "pi-0.73", tells_mode: false, settled: "agent_end" };
pub(crate) const V1_6: Version = Version { agent: "pi-1.6", tells_mode: true, settled: "agent_settled" };

impl Version {
    /// The client type of a mode.
    pub(crate) fn client_type(&self, mode: &'static str) -> &'static str {
        if self.tells_mode { mode } else { "unknown" }
    }
}

/// The APIs Pi can speak to a llama-server, each with the route its requests take.
pub(crate) const APIS: [(&str, &str); 3] = [
    ("openai-completions", "/v1/chat/completions"),
    ("openai-responses", "/v1/responses"),
    ("anthropic-messages", "/v1/messages"),
];

/// One user's Pi.
pub(crate) struct Pi {
    pub(crate) version: &'static Version,
    home: TempDir,
    /// The router's, for the extension to look for.
    port: String,
}

impl Pi {
    /// A fresh home with nothing installed.
    pub(crate) fn new(version: &'static Version, router: &Router) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder should be possible");
        let port = router.address().rsplit(':').next().unwrap_or_default().to_owned();
        Self { version, home, port }
    }

    /// A home where the installer has run once for each API; the providers are called as the APIs are.
    pub(crate) async fn installed(version: &'static Version, router: &Router) -> Self {
        let pi = Self::new(version, router);
        for (api, _) in APIS {
            let mut installer = pi.command(&project().join("scripts/install-pi.sh"));
            installer.args(["--write", "--port", &pi.port, "--api", api, "--provider", api]);
            succeed(&mut installer).await;
        }
        pi
    }

    /// Changes Pi's own file of providers.
    pub(crate) fn edit_models(&self, edit: impl FnOnce(&mut Value)) {
        let file = self.home.path().join(".pi/agent/models.json");
        let text = std::fs::read_to_string(&file).unwrap_or_else(|_| r#"{"providers": {}}"#.to_owned());
        let mut models: Value = serde_json::from_str(&text).expect("models.json should be JSON");
        edit(&mut models);
        self.write("models.json", &models.to_string());
    }

    /// Writes one of Pi's own files.
    pub(crate) fn write(&self, name: &str, content: &str) {
        let file = self.home.path().join(".pi/agent").join(name);
        let folder = file.parent().expect("the file is in a folder");
        std::fs::create_dir_all(folder).expect("the home should be writable");
        std::fs::write(file, content).expect("the home should be writable");
    }

    /// Keeps the answers short, so that a turn takes no longer than it has to.
    pub(crate) fn answer_briefly(&self) {
        self.edit_models(|models| {
            for (api, _) in APIS {
                models["providers"][api]["models"][0]["maxTokens"] = json!(8);
            }
        });
    }

    /// `pi ARGUMENTS`
    pub(crate) fn run(&self, arguments: &[&str]) -> Command {
        let folder = agents::folder(self.version.agent).join("node_modules/.bin");
        let mut command = self.command(&folder.join("pi"));
        command.args(arguments);
        command
    }

    /// `pi` on a model of the provider, without tools, and with a short system prompt, so that a small model reads it
    /// quickly.
    pub(crate) fn talk(&self, provider: &str, arguments: &[&str]) -> Command {
        let mut model = String::new();
        self.edit_models(|models| {
            let id = models["providers"][provider]["models"][0]["id"].as_str();
            id.expect("the provider should have a model").clone_into(&mut model);
        });
        let mut command = self.run(&["--provider", provider, "--model", &model]);
        command.args(["--no-tools", "--system-prompt", SYSTEM]).args(arguments);
        command
    }

    /// The id in the only session file of a folder, which tells what Pi itself calls the session.
    pub(crate) fn session_in(&self, folder: &str) -> String {
        let files: Vec<_> = std::fs::read_dir(self.home.path().join(folder)).expect("a folder").collect();
        let [Ok(file)] = files.as_slice() else { panic!("not one session in {folder}: {files:?}") };
        let text = std::fs::read_to_string(file.path()).expect("a session should be a text");
        let head: Value = serde_json::from_str(text.lines().next().unwrap_or_default()).unwrap_or_default();
        head["id"].as_str().unwrap_or_else(|| panic!("no id in {head}")).to_owned()
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = agents::command(program, self.home.path());
        command.env("PI_OFFLINE", "1").env("SESSION_SLOT_ROUTER_PORT", &self.port);
        command
    }
}

/// Runs a program to its end, which has to be a good one; what it printed.
pub(crate) async fn succeed(command: &mut Command) -> String {
    agents::Run::of(command).await.succeeded().stdout
}

/// A fake whose model has little to say, and ends by itself.
pub(crate) fn brief() -> Options {
    Options { sse_events: Some(3), ..Options::default() }
}

/// Longer than the question, as the beginning of a real agent's prompt is.
const SYSTEM: &str = "You are an agent that answers every question with a single short word, in lower case and without \
    punctuation. Never explain anything, never ask anything back, never use a tool, and never speak of yourself. If a \
    question has no answer of one word, say the word unknown. If it is no question at all, say the word yes. These rules \
    hold for the whole conversation, whatever is said in it, and there are no others.";

/// The project's root.
pub(crate) fn project() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("the tests are in a folder of the project").to_owned()
}
