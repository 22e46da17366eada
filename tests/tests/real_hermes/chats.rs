//! Chats through the router.
use serde_json::Value;
use session_slot_tests::{FakeLlama, Options, Router};

use crate::hermes::{Hermes, Provider};

/// A server for Hermes: its prompts are long, and answers that are cut would make it ask again.
pub(crate) fn roomy() -> Options {
    Options { n_ctx: 100_000, sse_events: Some(4), ..Options::default() }
}

async fn started() -> (FakeLlama, Router) {
    let fake = FakeLlama::start(roomy());
    let router = Router::start(&fake).await;
    (fake, router)
}

/// The log's lines about requests that named a session.
pub(crate) fn of_sessions(router: &Router) -> Vec<Value> {
    router.request_log().into_iter().filter(|line| !line["agent_session_id"].is_null()).collect()
}

pub(crate) async fn a_chat_returns_to_its_slot() {
    let (_fake, router) = started().await;
    let url = router.url();
    let hermes = Hermes::with_plugin(&url, &Provider::at(&url)).await;
    let session = hermes.chat("Hello.", None).await;
    let other = hermes.chat("Something else.", None).await;
    assert_eq!(hermes.chat("Go on.", Some(&session)).await, session);
    router.wait_quiet().await;
    let seen = of_sessions(&router);
    let told: Vec<_> = seen.iter().map(|line| (&line["agent_session_id"], &line["action"])).collect();
    assert_eq!(
        told,
        [(&session.into(), &"new".into()), (&other.into(), &"new".into()), (told[0].0, &"home".into())]
    );
    assert!(
        seen.iter().all(|line| line["agent_name"] == "hermes" && line["client_type"] == "cli"),
        "{seen:#?}"
    );
    assert_eq!(seen[0]["slot"], seen[2]["slot"]);
    assert_ne!(seen[0]["slot"], seen[1]["slot"]);
    let (cached, computed) = (&seen[2]["prompt_cached"], &seen[2]["prompt_computed"]);
    assert!(cached.as_u64() > computed.as_u64(), "{seen:#?}");
    let slot = usize::try_from(seen[0]["slot"].as_u64().expect("a slot's number")).expect("a small one");
    assert_eq!(router.status().await["server"]["slots"][slot]["session"], *told[0].0);
}

pub(crate) async fn every_api_mode_names_its_session() {
    let (fake, router) = started().await;
    let modes = [
        ("chat_completions", "/v1/chat/completions"),
        ("anthropic_messages", "/v1/messages"),
        ("codex_responses", "/v1/responses"),
    ];
    for (number, (api_mode, route)) in modes.into_iter().enumerate() {
        let url = router.url();
        let hermes = Hermes::with_plugin(&url, &Provider { api_mode, ..Provider::at(&url) }).await;
        let session = hermes.chat("Hello.", None).await;
        router.wait_quiet().await;
        let seen = of_sessions(&router);
        assert_eq!(seen.len(), number + 1, "{seen:#?}");
        assert_eq!(
            (&seen[number]["route"], &seen[number]["agent_session_id"]),
            (&route.into(), &session.into())
        );
        assert_eq!(
            (&seen[number]["agent_name"], &seen[number]["client_type"]),
            (&"hermes".into(), &"cli".into())
        );
        assert_eq!(seen[number]["status"], 200);
    }
    // They are for the router alone.
    let kept = fake.received().iter().any(|request| request.json().get("agent_session_id").is_some());
    assert!(!kept);
}
