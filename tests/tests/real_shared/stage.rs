//! A Valkey, two fake llama-servers a and b, a router beside each, and two routers in front of these.
use serde_json::Value;
use session_slot_tests::{FakeLlama, Options, Router, Session, Valkey};

use crate::server_of;

/// All of it.
pub(crate) struct Stage {
    pub(crate) valkey: Valkey,
    pub(crate) fakes: [FakeLlama; 2],
    _sidecars: [Router; 2],
    pub(crate) fronts: [Router; 2],
}

impl Stage {
    /// Everything runs, and each front has seen the other one.
    pub(crate) async fn open() -> Self {
        let valkey = Valkey::start().await;
        let fakes = [FakeLlama::start(Options::default()), FakeLlama::start(Options::default())];
        let sidecars = [Router::start(&fakes[0]).await, Router::start(&fakes[1]).await];
        let config = config(&valkey, &sidecars);
        let fronts = [front(&config).await, front(&config).await];
        let stage = Self { valkey, fakes, _sidecars: sidecars, fronts };
        stage.wait_sharing().await;
        stage
    }

    /// A conversation that begins at the front of this index.
    pub(crate) fn talk(&self, id: &str, front: usize) -> Session {
        Session::new(&self.fronts[front].url(), id)
    }

    /// A conversation that has had its first turn, through the front of this index; and the server that it lives at.
    pub(crate) async fn begun(&self, id: &str, front: usize) -> (Session, String) {
        let mut talk = self.talk(id, front);
        let home = server_of(&talk.say("hello").await);
        (talk, home)
    }

    /// Waits until each front shares homes and has seen the other one.
    pub(crate) async fn wait_sharing(&self) {
        for front in &self.fronts {
            wait_shared(front, "connected", 2).await;
        }
    }

    /// The server called `name`.
    pub(crate) fn fake(&self, name: &str) -> &FakeLlama {
        &self.fakes[usize::from(name == "b")]
    }
}

/// Waits until the status says this of the shared homes, and both servers are up.
pub(crate) async fn wait_shared(front: &Router, state: &str, routers: u64) {
    let as_wanted = |status: &Value| {
        let shared = &status["shared"];
        let up = |server: &Value| server["state"] == "up" && !server["slots"].is_null();
        let all_up = status["servers"].as_array().is_some_and(|servers| servers.iter().all(up));
        shared["state"] == state && shared["routers"] == routers && all_up
    };
    front.wait_status(&format!("shared homes {state} with {routers} routers"), as_wanted).await;
}

/// What a front's status says of the server of this name.
pub(crate) fn server(status: &Value, name: &str) -> Value {
    let servers = status["servers"].as_array().cloned().unwrap_or_default();
    servers.into_iter().find(|server| server["name"] == name).expect("the server should be shown")
}

/// How many conversations a front counts at the server of this name.
pub(crate) fn sessions(status: &Value, name: &str) -> u64 {
    server(status, name)["sessions"].as_u64().expect("a number of sessions")
}

async fn front(config: &str) -> Router {
    Router::in_front_of("").no_upstream_flag().config(config).start().await
}

fn config(valkey: &Valkey, sidecars: &[Router; 2]) -> String {
    let server = |(name, router): (&str, &Router)| {
        // What tests call the model is no matter here.
        let models = r#"["m"]"#;
        format!(
            "[[server]]\nname = \"{name}\"\nurl = \"{}\"\nsidecar = true\nmodels = {models}\n",
            router.url()
        )
    };
    let servers: String = ["a", "b"].into_iter().zip(sidecars).map(server).collect();
    format!("{servers}[shared]\nurl = \"{}\"\n", valkey.url())
}
