//! Pi, an old and a new version: OpenAI's chat completions, in which it tells nothing of its session.
use std::path::Path;

use serde_json::{Value, json};
use session_slot_tests::fake::Received;

use crate::talk::{Agent, write};

/// One version, by its folder.
pub(crate) struct Pi(&'static str);

pub(crate) const V0_73: Pi = Pi("pi-0.73");
pub(crate) const V1_6: Pi = Pi("pi-1.6");

impl Agent for Pi {
    fn name(&self) -> &'static str {
        self.0
    }

    fn program(&self) -> &'static str {
        "pi"
    }

    fn set_up(&self, home: &Path, url: &str) -> Vec<(&'static str, String)> {
        let model = json!({"id": "m", "contextWindow": 100_000, "maxTokens": 1000});
        let local = json!({
            "baseUrl": format!("{url}/v1"), "api": "openai-completions", "apiKey": "none", "models": [model],
        });
        write(home, ".pi/agent/models.json", &json!({"providers": {"local": local}}).to_string());
        vec![("PI_OFFLINE", "1".to_owned())]
    }

    fn arguments(&self, is_first: bool) -> &'static [&'static str] {
        const FIRST: &[&str] = &["--provider", "local", "--model", "m", "--mode", "json"];
        const LATER: &[&str] = &["--provider", "local", "--model", "m", "--mode", "json", "--continue"];
        if is_first { FIRST } else { LATER }
    }

    fn id_member(&self) -> &'static str {
        "id"
    }

    fn sessions_told(&self, _: &Received) -> Vec<Value> {
        Vec::new()
    }
}

crate::waiting_scenarios!(of_0_73: crate::pi::V0_73);
crate::waiting_scenarios!(of_1_6: crate::pi::V1_6);

#[tokio::test]
#[ignore = "needs the real agent, and over a minute: scripts/test.sh installs it"]
async fn both_wait_a_minute_behind_a_long_turn_without_asking_again() {
    tokio::join!(crate::waiting::waits_a_minute(&V0_73), crate::waiting::waits_a_minute(&V1_6));
}
