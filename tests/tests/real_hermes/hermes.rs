//! Hermes in a throw-away home, driven through its own command line.
use std::path::{Path, PathBuf};

use session_slot_tests::agents::{self, Run};
use tempfile::TempDir;
use tokio::process::Command;

/// The profile that everything happens in.
const PROFILE: &str = "work";

/// Where a provider is, and how it is talked to.
pub(crate) struct Provider<'a> {
    /// `http://ADDRESS`
    pub(crate) url: &'a str,
    /// Hermes's `api_mode`.
    pub(crate) api_mode: &'a str,
    /// The longest answer. Hermes asks for more of an answer that is cut, three times.
    pub(crate) max_tokens: u32,
}

impl<'a> Provider<'a> {
    /// One that speaks OpenAI's chat dialect.
    pub(crate) fn at(url: &'a str) -> Self {
        Self { url, api_mode: "chat_completions", max_tokens: 1000 }
    }
}

/// A Hermes with one profile.
pub(crate) struct Hermes {
    home: TempDir,
    program: PathBuf,
    /// What it is told of the router's port.
    port: String,
}

impl Hermes {
    /// A new home with a profile, in which the plugin is installed; the router is at this URL.
    pub(crate) async fn with_plugin(router: &str, provider: &Provider<'_>) -> Self {
        let hermes = Self::without_plugin(router, provider).await;
        hermes.install(&[PROFILE]).await;
        hermes
    }

    /// The same without the plugin.
    pub(crate) async fn without_plugin(router: &str, provider: &Provider<'_>) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder should be possible");
        let program = agents::folder("hermes").join("bin/hermes");
        let mut hermes = Self { home, program, port: String::new() };
        hermes.router_is_at(router);
        let create = ["profile", "create", PROFILE, "--no-skills", "--no-alias"];
        let _ = Run::of(hermes.command().args(create)).await.succeeded();
        hermes.configure(provider);
        hermes
    }

    /// Where the router is from now on.
    pub(crate) fn router_is_at(&mut self, url: &str) {
        url.rsplit(':').next().unwrap_or_default().clone_into(&mut self.port);
    }

    /// Runs `scripts/install-hermes.sh`.
    pub(crate) async fn install(&self, arguments: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/install-hermes.sh");
        let mut command = agents::command(&script, self.home.path());
        let _ = Run::of(command.env("HERMES_HOME", self.root()).args(arguments)).await.succeeded();
    }

    /// Runs `scripts/install-hermes.sh --uninstall`.
    pub(crate) async fn uninstall(&self) {
        self.install(&["--uninstall", PROFILE]).await;
    }

    /// Says something, in a new conversation or in this one; returns the conversation's id.
    pub(crate) async fn chat(&self, text: &str, session: Option<&str>) -> String {
        let resume = session.iter().flat_map(|id| ["--resume", id]);
        let run = self.run(["chat", "-Q"].into_iter().chain(resume).chain(["-q", text])).await;
        let said = format!("{}\n{}", run.stdout, run.stderr);
        let id = said.lines().find_map(|line| line.strip_prefix("session_id: "));
        id.unwrap_or_else(|| panic!("no session id in {said}")).to_owned()
    }

    /// Makes a cron job and returns its id.
    pub(crate) async fn create_job(&self, prompt: &str) -> String {
        let run = self.run(["cron", "create", "every 1h", prompt]).await;
        let id = run.stdout.lines().find_map(|line| line.split("Created job: ").nth(1));
        id.unwrap_or_else(|| panic!("no job in {run:?}")).trim().to_owned()
    }

    /// Runs a job now.
    pub(crate) async fn run_job(&self, id: &str) {
        let _ = self.run(["cron", "run", id]).await;
    }

    /// `hermes -p PROFILE ARGUMENTS`
    async fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Run {
        let mut command = self.command();
        Run::of(command.args(["-p", PROFILE]).args(arguments)).await.succeeded()
    }

    fn command(&self) -> Command {
        let mut command = agents::command(&self.program, self.home.path());
        command.env("HERMES_HOME", self.root()).env("SESSION_SLOT_ROUTER_PORT", &self.port);
        command
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("hermes home")
    }

    fn profile(&self) -> PathBuf {
        self.root().join("profiles").join(PROFILE)
    }

    /// The profile's config.yaml.
    pub(crate) fn config(&self) -> String {
        std::fs::read_to_string(self.profile().join("config.yaml")).expect("the profile should have a config")
    }

    fn configure(&self, provider: &Provider<'_>) {
        let Provider { url, api_mode, max_tokens } = provider;
        // Hermes takes no model with a smaller context; and it would install what it misses.
        let config = format!(
            "# The tests' own.\nmodel: {{provider: local, default: m, context_length: 64000, max_tokens: {max_tokens}}}\n\
             providers:\n  local: {{base_url: \"{url}/v1\", transport: {api_mode}, api_key: none}}\n\
             security:\n  allow_lazy_installs: false\n  tirith_enabled: false\n\
             plugins:\n  enabled: [early, zlate] # More are to come.\n"
        );
        std::fs::write(self.profile().join("config.yaml"), config).expect("the profile should be writable");
    }

    /// Adds a plugin to the profile that returns a changed copy of every request, as most do.
    pub(crate) fn add_plugin(&self, name: &str, edit: &str) {
        let folder = self.profile().join("plugins").join(name);
        let code = format!(
            "def change(request, **_):\n    return {{'request': {edit}}}\n\n\
             def register(ctx):\n    ctx.register_middleware('llm_request', change)\n"
        );
        std::fs::create_dir_all(&folder).expect("the profile should be writable");
        let manifest = format!("name: {name}\nversion: '1'\ndescription: A test's.\n");
        std::fs::write(folder.join("plugin.yaml"), manifest).expect("the folder should be writable");
        std::fs::write(folder.join("__init__.py"), code).expect("the folder should be writable");
    }

    /// Takes such a plugin away.
    pub(crate) fn remove_plugin(&self, name: &str) {
        let folder = self.profile().join("plugins").join(name);
        std::fs::remove_dir_all(folder).expect("the plugin should be there");
    }
}
