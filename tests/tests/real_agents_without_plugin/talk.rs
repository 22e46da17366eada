//! A session with a real agent: one run of its program a turn, in a home of its own.
use std::path::Path;

use serde_json::Value;
use session_slot_tests::agents::{Run, command, folder};
use session_slot_tests::fake::Received;
use tempfile::TempDir;

/// How an agent is run, and what it tells of its session.
pub(crate) trait Agent: Sync {
    /// Its folder in `tests/agents`, and its name in the router's log.
    fn name(&self) -> &'static str;

    /// Its program.
    fn program(&self) -> &'static str;

    /// Makes this home one in which it talks to the server at `url` and to nobody else. Returns the environment for it.
    fn set_up(&self, home: &Path, url: &str) -> Vec<(&'static str, String)>;

    /// The arguments of the first turn and of a later one, without what is said.
    fn arguments(&self, is_first: bool) -> &'static [&'static str];

    /// The member with the session's id in the JSON lines it prints.
    fn id_member(&self) -> &'static str;

    /// The session's id from every place in a request where it tells it.
    fn sessions_told(&self, request: &Received) -> Vec<Value>;

    /// How many requests beside the turns it makes for a session of two turns.
    fn side_calls(&self) -> usize {
        0
    }
}

/// One session of an agent.
pub(crate) struct Talk<'a> {
    agent: &'a dyn Agent,
    environment: Vec<(&'static str, String)>,
    home: TempDir,
    said: usize,
}

impl<'a> Talk<'a> {
    /// A session in which nothing is said yet, with the server at `url`.
    pub(crate) fn start(agent: &'a dyn Agent, url: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder should be possible");
        for folder in ["project", "tmp"] {
            std::fs::create_dir(home.path().join(folder)).expect("the home should be writable");
        }
        let environment = agent.set_up(home.path(), url);
        Self { agent, environment, home, said: 0 }
    }

    /// Says something and waits for the program's end. Returns the session's id, as the agent tells it.
    pub(crate) async fn say(&mut self, text: &str) -> Value {
        let program = folder(self.agent.name()).join("node_modules/.bin").join(self.agent.program());
        let mut command = command(&program, self.home.path());
        // Not at home itself: agents treat that folder with care.
        command.current_dir(self.home.path().join("project")).env("TMPDIR", self.home.path().join("tmp"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.args(self.agent.arguments(self.said == 0)).arg(text);
        let run = Run::of(&mut command).await.succeeded();
        self.said += 1;
        let lines = run.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let id = lines.map(|line| line[self.agent.id_member()].clone()).find(Value::is_string);
        id.unwrap_or_else(|| panic!("no session in what it printed:\n{}", run.stdout))
    }
}

/// Writes a file in a home.
pub(crate) fn write(home: &Path, file: &str, text: &str) {
    let file = home.join(file);
    let folder = file.parent().unwrap_or(home);
    std::fs::create_dir_all(folder).expect("the home should be writable");
    std::fs::write(&file, text).expect("the home should be writable");
}

/// A header's value as JSON; null where it is not there.
pub(crate) fn header(request: &Received, name: &str) -> Value {
    request.header(name).into()
}
