//! opencode: OpenAI's chat completions; its session is in two headers, on the title call beside the first turn as well.
use std::path::Path;

use serde_json::Value;
use session_slot_tests::Router;
use session_slot_tests::agents::{OPENCODE_SWITCHES, opencode_settings};
use session_slot_tests::fake::Received;

use crate::talk::{Agent, Talk, header, write};

struct OpenCode;

impl Agent for OpenCode {
    fn name(&self) -> &'static str {
        "opencode"
    }

    fn program(&self) -> &'static str {
        "opencode"
    }

    fn set_up(&self, home: &Path, url: &str) -> Vec<(&'static str, String)> {
        write(home, ".config/opencode/opencode.json", &opencode_settings(url).to_string());
        OPENCODE_SWITCHES.map(|(name, value)| (name, value.to_owned())).to_vec()
    }

    fn arguments(&self, is_first: bool) -> &'static [&'static str] {
        const FIRST: &[&str] = &["run", "--format", "json"];
        const LATER: &[&str] = &["run", "--continue", "--format", "json"];
        if is_first { FIRST } else { LATER }
    }

    fn id_member(&self) -> &'static str {
        "sessionID"
    }

    fn sessions_told(&self, request: &Received) -> Vec<Value> {
        ["x-session-affinity", "x-session-id"].map(|name| header(request, name)).to_vec()
    }

    /// The title of the session.
    fn side_calls(&self) -> usize {
        1
    }
}

#[tokio::test]
#[ignore = "needs the real agent: scripts/test.sh installs it"]
async fn two_turns_are_one_session_in_one_slot() {
    crate::two_turns_are_one_session_in_one_slot(&OpenCode).await;
}

#[tokio::test]
#[ignore = "needs the real agent: scripts/test.sh installs it"]
async fn all_it_sends_arrives() {
    crate::all_it_sends_arrives(&OpenCode).await;
}

/// It does not wait for the title before it goes on with the turn.
#[tokio::test]
#[ignore = "needs the real agent: scripts/test.sh installs it"]
async fn a_turn_is_held_while_the_title_call_of_its_session_runs() {
    let fake = crate::server();
    let router = Router::start(&fake).await;
    let mut talk = Talk::start(&OpenCode, &router.url());
    let title_runs_and_turn_waits = async {
        fake.wait_processing(1).await;
        router.wait_waiting(1).await;
        assert_eq!(fake.launches().len(), 1);
        fake.release("title");
    };
    // Both hold this text.
    tokio::join!(talk.say("Say hello, HOLD:title please."), title_runs_and_turn_waits);
    router.terminate().await;
    let launches = fake.launches();
    assert_eq!(launches.len(), 2);
    assert_eq!(launches[0].slot, launches[1].slot);
    assert!(crate::generations(&router).iter().all(|line| line["status"] == 200));
}

crate::waiting_scenarios!(waiting: super::OpenCode);
