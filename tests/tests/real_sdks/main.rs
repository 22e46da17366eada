//! JavaScript agents with the hook of `wasm-hook`: real SDKs on real runtimes, and a real opencode with the plugin.
mod opencode;
mod stage;

use serde_json::Value;
use session_slot_tests::fake::{Received, SlotId};
use session_slot_tests::{FakeLlama, Options, RealLlama, Router};

use stage::Stage;

const NODE: &[&str] = &["node/bin/node"];
const BUN: &[&str] = &[".bin/bun"];
const DENO: &[&str] = &[
    ".bin/deno",
    "run",
    "--allow-net",
    "--allow-env",
    "--allow-read",
    "--no-prompt",
    "--node-modules-dir=manual",
];

/// Each SDK's name here, and what plays it.
const SDKS: [(&str, &str); 4] = [
    ("openai", "openai.mjs"),
    ("anthropic", "anthropic.mjs"),
    ("ai", "ai-sdk.mjs"),
    ("chain", "langchain.mjs"),
];

/// The members that the router takes out.
const MEMBERS: [&str; 3] = ["agent_name", "agent_session_id", "client_type"];

/// Plays a program against a fake server: two sessions at once from one client, each with a streamed turn and a whole
/// one, stay apart, each in a slot of its own that the second turn returns to. The server sees nothing of the hook.
async fn two_sessions_of_one_client_each_keep_their_slot(runtime: &[&str], program: &str) {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    Stage::new().play(runtime, program, &router, "js").await;
    router.terminate().await;
    let slots = ["js-a", "js-b"].map(|session| {
        let _ = two_turns(&router, session);
        slot_of_both_turns(&fake, session)
    });
    assert_ne!(slots[0], slots[1]);
    for request in fake.received() {
        let body = request.json();
        assert!(MEMBERS.iter().all(|member| body.get(member).is_none()), "{body:#}");
    }
}

/// The router's log lines of a session whose name begins with its agent's: two turns, the second one at home.
fn two_turns(router: &Router, session: &str) -> [Value; 2] {
    let lines = router.request_log().into_iter().filter(|line| line["agent_session_id"] == session);
    let lines: [Value; 2] = lines.collect::<Vec<_>>().try_into().expect("two turns should be in the log");
    for line in &lines {
        assert_eq!(line["agent_name"], session[..session.len() - 2], "{line}");
        assert_eq!((&line["client_type"], &line["status"]), (&"cli".into(), &200.into()), "{line}");
    }
    assert_eq!(lines[1]["action"], "home", "{}", lines[1]);
    lines
}

/// The slot in which the server had both turns of a session, one of them streamed.
fn slot_of_both_turns(fake: &FakeLlama, session: &str) -> SlotId {
    let words = format!("{session}-0-");
    let turns: Vec<_> =
        fake.received().into_iter().filter(|turn| turn.json().to_string().contains(&words)).collect();
    assert_eq!(turns.len(), 2, "two turns of {session} should have come");
    assert_eq!(turns.iter().filter(|turn| turn.json()["stream"] == true).count(), 1);
    let launch_of =
        |turn: &Received| fake.launches().into_iter().find(|launch| launch.request == turn.number);
    let launches: Vec<_> =
        turns.iter().map(|turn| launch_of(turn).expect("the turn should have run")).collect();
    assert_eq!(launches[0].slot, launches[1].slot);
    assert!(launches[1].cache_n >= launches[0].prompt_n, "{launches:?}");
    launches[0].slot
}

macro_rules! sdk {
    ($name:ident, $runtime:ident, $program:literal) => {
        #[tokio::test]
        #[ignore = "needs real SDKs and the hook: scripts/test.sh sets them up"]
        async fn $name() {
            crate::two_sessions_of_one_client_each_keep_their_slot($runtime, $program).await;
        }
    };
}

sdk!(openai_on_node, NODE, "openai.mjs");
sdk!(openai_on_bun, BUN, "openai.mjs");
sdk!(openai_on_deno, DENO, "openai.mjs");
sdk!(openai_with_the_global_fetch, NODE, "global.mjs");
sdk!(anthropic, NODE, "anthropic.mjs");
sdk!(ai_sdk, NODE, "ai-sdk.mjs");
sdk!(langchain, NODE, "langchain.mjs");

#[tokio::test]
#[ignore = "needs real SDKs, the hook and a real llama-server: scripts/test.sh sets them up"]
async fn second_turns_of_all_sdks_find_their_first_on_a_real_server() {
    let server = RealLlama::start(&["--parallel", "4", "--no-kv-unified"]).await;
    let router = Router::in_front_of(&server.url()).start().await;
    let stage = Stage::new();
    for (name, program) in SDKS {
        stage.play(NODE, program, &router, name).await;
    }
    router.terminate().await;
    for (name, _) in SDKS {
        for session in [format!("{name}-a"), format!("{name}-b")] {
            let [first, second] = two_turns(&router, &session);
            let count = |line: &Value, member: &str| line[member].as_u64().unwrap_or_default();
            let tokens = count(&first, "prompt_cached") + count(&first, "prompt_computed");
            // The chat template ends a prompt with a mark of where the answer begins.
            assert!(tokens > 50 && count(&second, "prompt_cached") + 8 >= tokens, "{first} {second}");
        }
    }
    server.assert_no_busy_slot_was_named().await;
}
