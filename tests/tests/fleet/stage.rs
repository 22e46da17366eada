//! Several fake llama-servers, called a, b, c and so on, and a router in front of them.
use std::fmt::Write;

use serde_json::Value;
use session_slot_tests::router::RouterBuilder;
use session_slot_tests::{FakeLlama, Options, Router, Session};

/// The servers and the router.
pub(crate) struct Stage {
    pub(crate) fakes: Vec<FakeLlama>,
    pub(crate) router: Router,
}

impl Stage {
    /// So many servers with these options, and a router that knows what they are.
    pub(crate) async fn open(count: usize, options: &Options) -> Self {
        Self::with(count, options, "").await
    }

    /// The same with more in the router's configuration, before its servers.
    pub(crate) async fn with(count: usize, options: &Options, more: &str) -> Self {
        let fakes: Vec<_> = (0..count).map(|_| FakeLlama::start(options.clone())).collect();
        Self::before(fakes, more, Some(MODELS)).await
    }

    /// A router in front of these, which have the models that `models` says, or are asked.
    pub(crate) async fn before(fakes: Vec<FakeLlama>, more: &str, models: Option<&str>) -> Self {
        Self::before_each(fakes, more, |_| models.unwrap_or_default().to_owned()).await
    }

    /// A router in front of these, with what `each` says in the section of the server of this index.
    pub(crate) async fn before_each(
        fakes: Vec<FakeLlama>,
        more: &str,
        each: impl Fn(usize) -> String,
    ) -> Self {
        let urls: Vec<_> = fakes.iter().map(FakeLlama::url).collect();
        let router = builder_for_each(&urls, more, each).start().await;
        let stage = Self { fakes, router };
        stage.wait_states(&vec!["up"; stage.fakes.len()]).await;
        stage
    }

    /// The server of this name.
    pub(crate) fn fake(&self, name: &str) -> &FakeLlama {
        &self.fakes[index(name)]
    }

    /// A session at the router.
    pub(crate) fn talk(&self, id: &str) -> Session {
        Session::new(&self.router.url(), id)
    }

    /// Waits until the servers are in these states, and those that are up have said what they are.
    pub(crate) async fn wait_states(&self, states: &[&str]) {
        let is = |server: &Value, state: &str| {
            server["state"] == state && (state != "up" || !server["slots"].is_null())
        };
        let as_wanted = |status: &Value| {
            let servers = status["servers"].as_array().cloned().unwrap_or_default();
            servers.len() == states.len()
                && servers.iter().zip(states).all(|(server, state)| is(server, state))
        };
        self.router.wait_status(&format!("servers {states:?}"), as_wanted).await;
    }
}

/// What tests call the model is no matter in most of them.
const MODELS: &str = "models = [\"m\", \"fake-model\"]\n";

/// A router in front of `fakes`.
pub(crate) fn builder(fakes: &[FakeLlama], more: &str) -> RouterBuilder {
    let urls: Vec<_> = fakes.iter().map(FakeLlama::url).collect();
    builder_for(&urls, more, MODELS)
}

/// A router in front of servers there, with `each` in the section of every one.
pub(crate) fn builder_for(urls: &[String], more: &str, each: &str) -> RouterBuilder {
    builder_for_each(urls, more, |_| each.to_owned())
}

fn builder_for_each(urls: &[String], more: &str, each: impl Fn(usize) -> String) -> RouterBuilder {
    let mut config = format!("{more}\n");
    for (index, url) in urls.iter().enumerate() {
        let (name, each) = (name(index), each(index));
        writeln!(config, "[[server]]\nname = \"{name}\"\nurl = \"{url}\"\n{each}")
            .expect("a string can be written to");
    }
    Router::in_front_of("").no_upstream_flag().config(&config)
}

pub(crate) fn name(index: usize) -> char {
    char::from(b'a' + u8::try_from(index).expect("few servers"))
}

fn index(name: &str) -> usize {
    usize::from(name.as_bytes()[0] - b'a')
}
