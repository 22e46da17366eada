//! opencode with the plugin of `wasm-hook/opencode`, as its README says to install it.
use serde_json::json;
use session_slot_tests::agents::{OPENCODE_SWITCHES, Run, command, folder, opencode_settings};
use session_slot_tests::{FakeLlama, Options, Router};

use crate::MEMBERS;
use crate::stage::{hook, link};

#[tokio::test]
#[ignore = "needs the real agent and the hook: scripts/test.sh sets them up"]
async fn the_plugin_tells_the_router_how_opencode_is_driven() {
    // It sets a high limit on answers.
    let fake = FakeLlama::start(Options { n_ctx: 100_000, sse_events: Some(4), ..Options::default() });
    let router = Router::start(&fake).await;
    let home = tempfile::tempdir().expect("a temporary folder should be possible");
    let config = home.path().join(".config/opencode");
    std::fs::create_dir_all(config.join("node_modules")).expect("the home should be writable");
    link(&hook(), &config.join("node_modules/session-slot-hook"));
    let mut settings = opencode_settings(&router.url());
    settings["plugin"] = json!(["./node_modules/session-slot-hook/opencode/session-slot.js"]);
    std::fs::write(config.join("opencode.json"), settings.to_string()).expect("the home should be writable");
    let port = router.address().rsplit(':').next().unwrap_or_default().to_owned();
    for continued in [&[][..], &["--continue"]] {
        let mut command = command(&folder("opencode").join("node_modules/.bin/opencode"), home.path());
        command.env("SESSION_SLOT_ROUTER_PORT", &port).envs(OPENCODE_SWITCHES);
        command.arg("run").args(continued).arg("Say hello, please.");
        let _ = Run::of(&mut command).await.succeeded();
    }
    router.terminate().await;
    let lines: Vec<_> = router.request_log().into_iter().filter(|line| line["action"] != "pass").collect();
    assert!(lines.len() >= 2, "{lines:?}");
    for line in &lines {
        assert_eq!(
            (&line["agent_name"], &line["client_type"]),
            (&"opencode".into(), &"cli".into()),
            "{line}"
        );
        let session = line["agent_session_id"].as_str().unwrap_or_default();
        assert!(
            session.starts_with("ses_") && line["agent_session_id"] == lines[0]["agent_session_id"],
            "{line}"
        );
    }
    assert_eq!(lines[lines.len() - 1]["action"], "home");
    for request in fake.received() {
        let body = request.json();
        assert!(MEMBERS.iter().all(|member| body.get(member).is_none()), "{body:#}");
    }
}
