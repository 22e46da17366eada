//! A fake llama-server that saves states, a router that looks after them, and what has been done to the slots so far.
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use session_slot_tests::fake::{Deed, Received, SlotId, State, What};
use session_slot_tests::router::RouterBuilder;
use session_slot_tests::{FakeLlama, Options, Router, Session};
use tempfile::TempDir;

use crate::text;

/// Short states are saved too, or the tests would be long.
pub(crate) const MIN_TOKENS: &str = "min_tokens = 100";

/// The server, the router, and their folders.
pub(crate) struct Stage {
    pub(crate) fake: FakeLlama,
    pub(crate) router: Router,
    /// What the router's sections `[warm]` and `[queue]` say.
    config: String,
    /// What the server was started with.
    pub(crate) options: Options,
    folder: TempDir,
    /// What goes wrong may leave a restored state to whoever comes next to its slot.
    pub(crate) leaves_states: bool,
}

impl Stage {
    /// A server with a folder for states, and a router that knows of it.
    pub(crate) async fn open(options: Options) -> Self {
        Self::with(options, "").await
    }

    /// The same with more in the router's configuration: members of `[warm]`, then other sections.
    pub(crate) async fn with(options: Options, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder should be possible");
        let options = options.saving_to(&states(&folder));
        let fake = FakeLlama::start(options.clone());
        let config = format!("[warm]\n{MIN_TOKENS}\n{more}\n");
        let router = builder(&fake, &config, &folder).start().await;
        Self { fake, router, config, options, folder, leaves_states: false }
    }

    /// Where the server writes states.
    pub(crate) fn states(&self) -> PathBuf {
        states(&self.folder)
    }

    /// Ends the server and starts the same one again.
    pub(crate) async fn restart_server(&self) {
        self.fake.restart(self.options.clone()).await;
    }

    /// Where the router keeps its database.
    pub(crate) fn state_dir(&self) -> PathBuf {
        self.folder.path().join("router")
    }

    /// A router with the settings of this one, to be changed.
    pub(crate) fn builder(&self) -> RouterBuilder {
        builder(&self.fake, &self.config, &self.folder)
    }

    /// Starts another router in the place of one that has ended.
    pub(crate) async fn start_router(&mut self) {
        self.router = self.builder().start().await;
    }

    /// A session at this router.
    pub(crate) fn talk(&self, id: &str) -> Session {
        Session::new(&self.router.url(), id)
    }

    /// A first turn of each, one after the other: on fewer slots each takes the last one's place.
    pub(crate) async fn first_turns(&self, ids: &[&str]) -> Vec<Session> {
        first_turns(ids.iter().map(|id| (self.talk(id), *id))).await
    }

    /// The same by the user with this key.
    pub(crate) async fn first_turns_as(&self, key: &str, ids: &[&str]) -> Vec<Session> {
        first_turns(ids.iter().map(|id| (self.talk(id).key(key), *id))).await
    }

    /// The names of the files that hold states.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.states()).expect("the folder should be there");
        let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The one file there is.
    pub(crate) fn file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        self.states().join(&files[0])
    }

    /// What the status says of saved states.
    pub(crate) async fn warm(&self) -> Value {
        self.router.status().await["server"]["warm"].clone()
    }

    /// Waits until warm starts stand so.
    pub(crate) async fn wait_standing(&self, standing: &str) {
        let stands = |status: &Value| status["server"]["warm"]["standing"] == standing;
        self.router.wait_status(standing, stands).await;
    }

    /// What has been done so far, without primers: `a` (a turn of `a`), `save a`, `restore a`, `erase`, `failed`.
    pub(crate) fn story(&self) -> Vec<String> {
        self.steps().into_iter().map(|(_, what)| what).collect()
    }

    /// The story with its slots.
    pub(crate) fn steps(&self) -> Vec<(SlotId, String)> {
        self.fake.look(|state| steps(state.deeds(), state.received()))
    }

    /// How often the story says this.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.story().iter().filter(|step| *step == what).count()
    }

    /// How often the server was asked for a slot action of this kind with a name that could be a file's.
    pub(crate) fn asked(&self, kind: &str) -> usize {
        asked(&self.fake, kind)
    }

    /// Waits until it was asked so often.
    pub(crate) async fn wait_asked(&self, kind: &str, count: usize) {
        let what = format!("{count} times {kind}");
        self.fake.wait_until(&what, |state| asked_in(state, kind) >= count).await;
    }

    /// Waits until so many states have been saved.
    pub(crate) async fn wait_saved(&self, count: u64) {
        let as_many = |status: &Value| status["server"]["warm"]["saved"] == count;
        self.router.wait_status(&format!("{count} saved states"), as_many).await;
    }

    /// Warnings about saved states.
    pub(crate) fn warnings(&self) -> Vec<Value> {
        let about = |line: &Value| line["message"].as_str().is_some_and(|message| message.contains("state"));
        self.router.log().into_iter().filter(|line| line["level"] == "WARN" && about(line)).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.leaves_states {
            let misplaced = self.fake.look(|state| state.misplaced().to_vec());
            assert!(misplaced.is_empty(), "somebody else's state was restored: {:?}", self.story());
        }
    }
}

/// What [`Stage::asked`] counts, at any server.
pub(crate) fn asked(fake: &FakeLlama, kind: &str) -> usize {
    fake.look(|state| asked_in(state, kind))
}

fn asked_in(state: &State, kind: &str) -> usize {
    let action = format!("?action={kind}");
    let real = |one: &&Received| one.target.ends_with(&action) && one.json()["filename"] != "/";
    state.received().iter().filter(real).count()
}

async fn first_turns(sessions: impl Iterator<Item = (Session, &str)>) -> Vec<Session> {
    let mut talks = Vec::new();
    for (mut talk, id) in sessions {
        talk.say(&text(id, 0)).await;
        talks.push(talk);
    }
    talks
}

/// Not made yet: the router makes it.
fn states(folder: &TempDir) -> PathBuf {
    folder.path().join("states")
}

fn builder(fake: &FakeLlama, config: &str, folder: &TempDir) -> RouterBuilder {
    let router = folder.path().join("router");
    std::fs::create_dir_all(&router).expect("the folder is ours");
    let router = Router::builder(fake).config(config).state_dir(&router);
    // Who loses its slot is for a test to know, whatever the router has learned of the sessions.
    router.flag("--evict", "lru").flag("--warm-dir", &shown(&states(folder)))
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Whose state is where is followed by what was launched, saved and restored.
fn steps(deeds: &[Deed], received: &[Received]) -> Vec<(SlotId, String)> {
    let mut holders: HashMap<SlotId, String> = HashMap::new();
    let mut files: HashMap<String, String> = HashMap::new();
    let mut steps = Vec::new();
    for deed in deeds {
        let whose = holders.get(&deed.slot).cloned().unwrap_or_default();
        let told = match &deed.what {
            What::Launched(_) => {
                let session = speaker(received, deed.request);
                holders.insert(deed.slot, session.clone());
                session
            }
            What::Saved(file, _) => {
                files.insert(stem(file), whose.clone());
                format!("save {whose}")
            }
            What::Restored(file, _) => {
                let whose = files.get(&stem(file)).cloned().unwrap_or_default();
                holders.insert(deed.slot, whose.clone());
                format!("restore {whose}")
            }
            What::Erased => "erase".to_owned(),
            What::Failed(_) => "failed".to_owned(),
        };
        // A primer is nobody's.
        if !["", "save "].contains(&told.as_str()) {
            steps.push((deed.slot, told));
        }
    }
    steps
}

/// A file may be renamed once it is whole, but for its ending.
fn stem(file: &str) -> String {
    file.split('.').next().unwrap_or_default().to_owned()
}

/// Whose turn a request is, by the first word that a session of these tests says; nobody's for a primer.
fn speaker(received: &[Received], request: usize) -> String {
    let found = received.iter().find(|one| one.number == request).map(Received::json);
    let messages = found.map(|body| body["messages"].clone()).unwrap_or_default();
    let user = messages.as_array().into_iter().flatten().find(|message| message["role"] == "user");
    let words = user.and_then(|message| message["content"].as_str()).unwrap_or_default();
    let own = words.split_whitespace().find_map(|word| word.split_once('-'));
    own.map(|(session, _)| session.to_owned()).unwrap_or_default()
}
