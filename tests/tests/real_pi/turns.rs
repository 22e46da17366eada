//! Two turns of a session, with each API in each mode, through the router to a real llama-server.
use serde_json::{Value, json};
use session_slot_tests::agents::Run;
use session_slot_tests::{RealLlama, Router};

use crate::pi::{APIS, Pi, Version};
use crate::rpc::Rpc;

/// Slots that keep what they hold, with room for what Pi says.
const FLAGS: &[&str] = &["--parallel", "4", "--no-kv-unified"];

/// Its slot is of llama-server's choice in some builds, and then not always known.
const CHOSEN_BY_SERVER: &str = "/v1/messages";

/// What a session begins with: so much of its own that another session's cache is of little use to it.
fn first(api: &str, mode: &str) -> String {
    format!("{} What is the capital of France?", format!("Remember {api} and {mode}. ").repeat(12))
}

const SECOND: &str = "And of Spain?";

pub(crate) async fn every_api_and_mode_returns_to_its_slot_and_reuses_its_prompt(version: &'static Version) {
    let server = RealLlama::start(FLAGS).await;
    let router = Router::in_front_of(&server.url()).start().await;
    let pi = Pi::installed(version, &router).await;
    pi.answer_briefly();
    for (api, route) in APIS {
        for mode in ["print", "json", "rpc"] {
            let earlier = router.request_log().len();
            let session = two_turns(&pi, api, mode).await;
            let lines = router.wait_requests(earlier + 2).await.split_off(earlier);
            assert_eq!(lines.len(), 2, "{api}, {mode}: {lines:#?}");
            for line in &lines {
                assert_told(line, route, &session, version.client_type(mode));
            }
            assert_reused(&lines[0], &lines[1]);
            assert_same_slot(&lines[0], &lines[1]);
            assert_shown(&router, &session).await;
        }
    }
    router.wait_quiet().await;
    server.assert_no_busy_slot_was_named().await;
}

/// Two turns of one session; the id Pi itself knows it by.
async fn two_turns(pi: &Pi, api: &str, mode: &str) -> String {
    let folder = format!("sessions of {api} {mode}");
    let place = ["--session-dir", folder.as_str()];
    let first = first(api, mode);
    let turn = async |arguments: &[&str]| {
        let run = Run::of(pi.talk(api, arguments).args(place)).await;
        // A short answer is one that was cut off, which Pi 1.6 calls a failure in print mode.
        assert!(run.success || run.stderr.contains("output token limit"), "{run:?}");
        assert!(!run.stdout.trim().is_empty(), "Pi should print an answer");
    };
    match mode {
        "print" => {
            turn(&["--print", &first]).await;
            turn(&["--print", "--continue", SECOND]).await;
        }
        "json" => {
            turn(&["--mode", "json", &first]).await;
            turn(&["--mode", "json", "--session", &pi.session_in(&folder), SECOND]).await;
        }
        _ => {
            let mut rpc = Rpc::start(pi, api, &place);
            rpc.prompt(&first).await;
            rpc.prompt(SECOND).await;
        }
    }
    pi.session_in(&folder)
}

/// What the log tells of a turn is what was sent.
fn assert_told(line: &Value, route: &str, session: &str, client_type: &str) {
    let told = ["route", "agent_name", "agent_session_id", "client_type", "status"].map(|name| &line[name]);
    let sent = [json!(route), json!("pi"), json!(session), json!(client_type), json!(200)];
    assert_eq!(told, sent.each_ref(), "{line:#}");
}

/// The second turn found the first one in a cache.
fn assert_reused(first: &Value, second: &Value) {
    let count =
        |line: &Value, name: &str| line[name].as_u64().unwrap_or_else(|| panic!("no {name}: {line:#}"));
    let sent = count(first, "prompt_computed") + count(first, "prompt_cached");
    assert!(count(second, "prompt_cached") * 10 >= sent * 9, "{second:#} after {first:#}");
}

/// The second turn ran where the first one did.
fn assert_same_slot(first: &Value, second: &Value) {
    assert_eq!(second["action"], "home", "{second:#} after {first:#}");
    let (before, after) = (first["slot"].as_u64(), second["slot"].as_u64());
    let unknown = first["route"] == CHOSEN_BY_SERVER && before.and(after).is_none();
    assert!(unknown || (before.is_some() && before == after), "{second:#} after {first:#}");
}

/// `/router/status` shows the session in a slot.
async fn assert_shown(router: &Router, session: &str) {
    let status = router.status().await;
    let slots = status["server"]["slots"].as_array().expect("a list of slots");
    assert!(slots.iter().any(|slot| slot["session"] == session), "no {session} in {status:#}");
}
