//! Claude Code: Anthropic's dialect; its session is in a header, and in a string of JSON in the body.
use std::path::Path;

use serde_json::Value;
use session_slot_tests::fake::Received;

use crate::talk::{Agent, header};

struct ClaudeCode;

impl Agent for ClaudeCode {
    fn name(&self) -> &'static str {
        "claude-code"
    }

    fn program(&self) -> &'static str {
        "claude"
    }

    fn set_up(&self, _home: &Path, url: &str) -> Vec<(&'static str, String)> {
        let set = |name, value: &str| (name, value.to_owned());
        vec![
            set("ANTHROPIC_BASE_URL", url),
            set("ANTHROPIC_AUTH_TOKEN", "none"),
            set("ANTHROPIC_MODEL", "local"),
            set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
            set("DISABLE_AUTOUPDATER", "1"),
        ]
    }

    fn arguments(&self, is_first: bool) -> &'static [&'static str] {
        const FIRST: &[&str] = &["--output-format", "json", "--print"];
        const LATER: &[&str] = &["--continue", "--output-format", "json", "--print"];
        if is_first { FIRST } else { LATER }
    }

    fn id_member(&self) -> &'static str {
        "session_id"
    }

    fn sessions_told(&self, request: &Received) -> Vec<Value> {
        let user = request.json()["metadata"]["user_id"].as_str().map(serde_json::from_str::<Value>);
        let user = user.and_then(Result::ok).unwrap_or_default();
        vec![header(request, "x-claude-code-session-id"), user["session_id"].clone()]
    }
}

#[tokio::test]
#[ignore = "needs the real agent: scripts/test.sh installs it"]
async fn two_turns_are_one_session_in_one_slot() {
    crate::two_turns_are_one_session_in_one_slot(&ClaudeCode).await;
}

#[tokio::test]
#[ignore = "needs the real agent: scripts/test.sh installs it"]
async fn all_it_sends_arrives() {
    crate::all_it_sends_arrives(&ClaudeCode).await;
}

crate::waiting_scenarios!(waiting: super::ClaudeCode);
