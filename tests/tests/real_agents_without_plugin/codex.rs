//! Codex: OpenAI's responses; its session is in four headers and two members.
use std::path::Path;

use serde_json::Value;
use session_slot_tests::fake::Received;

use crate::talk::{Agent, header, write};

struct Codex;

impl Agent for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn program(&self) -> &'static str {
        "codex"
    }

    fn set_up(&self, home: &Path, url: &str) -> Vec<(&'static str, String)> {
        // What is turned off would look for news on the network.
        let config = format!(
            r#"
            model = "local"
            model_provider = "local"
            check_for_update_on_startup = false
            analytics.enabled = false
            features = {{ apps = false, plugins = false, remote_plugin = false }}
            [model_providers.local]
            name = "local"
            base_url = "{url}/v1"
            wire_api = "responses"
            "#
        );
        write(home, ".codex/config.toml", &config);
        Vec::new()
    }

    fn arguments(&self, is_first: bool) -> &'static [&'static str] {
        const FIRST: &[&str] = &["exec", "--json", "--skip-git-repo-check"];
        const LATER: &[&str] = &["exec", "resume", "--last", "--json", "--skip-git-repo-check"];
        if is_first { FIRST } else { LATER }
    }

    fn id_member(&self) -> &'static str {
        "thread_id"
    }

    fn sessions_told(&self, request: &Received) -> Vec<Value> {
        let body = request.json();
        let window = request.header("x-codex-window-id").and_then(|window| window.strip_suffix(":0"));
        let mut told =
            ["session-id", "thread-id", "x-client-request-id"].map(|name| header(request, name)).to_vec();
        told.extend([
            window.into(),
            body["prompt_cache_key"].clone(),
            body["client_metadata"]["session_id"].clone(),
        ]);
        told
    }
}

#[tokio::test]
#[ignore = "needs the real agent: scripts/test.sh installs it"]
async fn two_turns_are_one_session_in_one_slot() {
    crate::two_turns_are_one_session_in_one_slot(&Codex).await;
}

#[tokio::test]
#[ignore = "needs the real agent: scripts/test.sh installs it"]
async fn all_it_sends_arrives() {
    crate::all_it_sends_arrives(&Codex).await;
}

crate::waiting_scenarios!(waiting: super::Codex);
