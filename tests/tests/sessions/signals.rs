//! Sessions of agents with no plugin of ours.
use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing, chat, chat_body};
use session_slot_tests::{FakeLlama, Options, Router};

use crate::{CLAUDE, last_received, session_of, turn_with};

#[tokio::test]
async fn every_header_an_agent_may_send_brings_its_next_turn_home() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for name in [
        "x-agent-session-id",
        "x-claude-code-session-id",
        "session-id",
        "session_id",
        "x-session-affinity",
        "x-session-id",
        "x-litellm-session-id",
        "x-opencode-session",
        "x-openwebui-chat-id",
        "x-task-id",
    ] {
        for action in [None, Some("home")] {
            let answer = turn_with(&router, &[(name, name)]).await;
            assert_eq!(answer.status, 200);
            assert!(action.is_none() || answer.header("x-slot-router-action") == action, "{name}");
        }
        assert_eq!(last_received(&fake).header(name), Some(name), "the agent's own header stays");
    }
    for line in router.wait_requests(20).await {
        assert_eq!(
            line["source"],
            format!("header:{}", line["agent_session_id"].as_str().unwrap_or_default())
        );
    }
}

#[tokio::test]
async fn a_session_in_the_agents_own_members_leaves_them_byte_for_byte() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let codex = r#"{"model":"m", "input":"a b c","prompt_cache_key":"k\u0031","n":1.0}"#;
    for (path, body, session, source, agent) in [
        ("/v1/chat/completions", CLAUDE, "s", "body:metadata.user_id", json!("claude-code")),
        ("/v1/responses", codex, "k1", "body:prompt_cache_key", Value::Null),
    ] {
        let answer = client::post_json(format!("{}{path}", router.url()), body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let line = router.wait_log(|line| line["route"] == path).await;
        assert_eq!(
            (&line["agent_session_id"], &line["source"], &line["agent_name"]),
            (&json!(session), &json!(source), &agent)
        );
        let slot = answer.header("x-slot-router-slot").expect("a slot");
        let wanted = format!("{},\"id_slot\":{slot}}}", body.strip_suffix('}').expect("an object"));
        assert_eq!(last_received(&fake).body, wanted);
    }
}

#[tokio::test]
async fn the_first_source_that_names_a_session_wins_and_the_log_names_the_other() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut body = chat_body(Some("ours"), "a b c");
    body["prompt_cache_key"] = json!("theirs");
    let url = format!("{}/v1/chat/completions", router.url());
    client::send(Outgoing::post(url, body.to_string()).header("x-session-id", "ours")).await;
    let line = router.wait_requests(1).await.remove(0);
    assert_eq!(
        (&line["agent_session_id"], &line["source"]),
        (&json!("ours"), &json!("body:agent_session_id"))
    );
    assert_eq!(line["conflict"], "body:prompt_cache_key");
    turn_with(&router, &[("x-session-id", "a"), ("x-session-affinity", "a")]).await;
    assert_eq!(router.wait_requests(2).await[1]["conflict"], Value::Null);
}

#[tokio::test]
async fn one_session_seen_through_two_signals_stays_one() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    chat(&router.url(), "s", "a b c").await;
    let compaction = turn_with(&router, &[("session_id", "s"), ("x-session-affinity", "s")]).await;
    assert_eq!(compaction.header("x-slot-router-action"), Some("home"));
    assert_eq!(router.status().await["server"]["sessions"], 1);
}

#[tokio::test]
async fn an_unusable_id_makes_the_request_anonymous_and_is_told_without_being_quoted() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let long = format!("secret{}", "x".repeat(507));
    for value in [long.as_str(), "secret\tx"] {
        let answer = turn_with(&router, &[("x-agent-session-id", value)]).await;
        assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"), "{value}");
    }
    let warnings: Vec<_> = router.log().into_iter().filter(|line| line["level"] == "WARN").collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().all(|line| line["source"] == "header:x-agent-session-id"));
    assert!(!router.log_lines().concat().contains("secret"));
}

#[tokio::test]
async fn a_user_id_that_is_not_json_is_ignored() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let body = r#"{"messages":[],"metadata":{"user_id":"user_0_account__session_s"}}"#;
    let answer = client::post_json(format!("{}/v1/chat/completions", router.url()), body).await;
    assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"));
    assert_eq!(last_received(&fake).body, body);
}

#[tokio::test]
async fn a_body_that_can_not_be_edited_stays_anonymous_whatever_its_headers_say() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for body in ["", "not json", "[1]"] {
        let request = Outgoing::post(format!("{}/v1/chat/completions", router.url()), body);
        let answer = client::send(request.header("x-session-id", "s")).await;
        assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"), "{body:?}");
        assert_eq!(last_received(&fake).body, body);
    }
}

#[tokio::test]
async fn a_child_session_and_a_window_are_written_down() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    turn_with(&router, &[("x-session-id", "ses_2"), ("x-parent-session-id", "ses_1")]).await;
    turn_with(
        &router,
        &[("session-id", "t"), ("x-codex-window-id", "t:0"), ("user-agent", "codex_exec/0.171.0")],
    )
    .await;
    let lines = router.wait_requests(2).await;
    assert_eq!((&lines[0]["parent"], &lines[1]["window"]), (&json!("ses_1"), &json!("t:0")));
    assert_eq!(lines[1]["agent_name"], "codex");
    router.terminate().await;
    let rows = router.database().events();
    assert_eq!((&rows[0]["parent"], &rows[1]["window"]), (&json!("ses_1"), &json!("t:0")));
    assert_eq!(
        (&rows[0]["source"], &rows[1]["source"]),
        (&json!("header:x-session-id"), &json!("header:session-id"))
    );
}

#[tokio::test]
async fn a_subagent_does_not_take_its_parents_slot() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let parent = [("x-claude-code-session-id", "s")];
    let child = [("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", "a1")];
    for (count, (headers, action, session)) in (1..).zip([
        (&parent[..], "new", "s"),
        (&child[..], "new", "s/a1"),
        (&parent[..], "home", "s"),
        (&child[..], "home", "s/a1"),
    ]) {
        let answer = turn_with(&router, headers).await;
        assert_eq!(answer.header("x-slot-router-action"), Some(action));
        assert_eq!(session_of(&router, count).await, session);
    }
}

#[tokio::test]
async fn the_status_lists_the_sessions_with_their_agents() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    turn_with(&router, &[("x-session-affinity", "ses_1"), ("user-agent", "opencode/1.18.33 ai-sdk")]).await;
    let mut body = chat_body(Some("p"), "d e f");
    (body["agent_name"], body["client_type"]) = (json!("pi"), json!("rpc"));
    client::post_json(format!("{}/v1/chat/completions", router.url()), body.to_string()).await;
    turn_with(&router, &[("session_id", "p")]).await;
    let mut sessions = router.status().await["sessions"].clone();
    for session in sessions.as_array_mut().expect("a list") {
        assert!(session["idle_ms"].take().is_u64());
    }
    assert_eq!(
        sessions,
        json!([
            {"id": "p", "agent_name": "pi", "client_type": "rpc", "source": "header:session_id", "parent": null,
             "window": null, "slot": 1, "requests": 2, "idle_ms": null},
            {"id": "ses_1", "agent_name": "opencode", "client_type": null, "source": "header:x-session-affinity",
             "parent": null, "window": null, "slot": 0, "requests": 1, "idle_ms": null},
        ])
    );
}
