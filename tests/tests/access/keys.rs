//! The router's own key.
use std::path::PathBuf;

use session_slot_tests::client;
use session_slot_tests::router::RouterBuilder;
use session_slot_tests::{FakeLlama, Options, Outgoing, Router};
use tempfile::TempDir;

const KEY: &str = "sesame-open-4711";

fn key_file(key: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("key");
    std::fs::write(&path, format!("{key}\n")).expect("the folder is ours");
    (folder, path)
}

fn keyed(fake: &FakeLlama) -> (TempDir, RouterBuilder) {
    let (folder, path) = key_file(KEY);
    (folder, Router::builder(fake).flag("--api-key-file", &path.to_string_lossy()))
}

fn turn(router: &Router, path: &str) -> Outgoing {
    Outgoing::post(format!("{}{path}", router.url()), r#"{"messages":[],"agent_session_id":"a"}"#)
}

#[tokio::test]
async fn the_key_lets_in_as_bearer_in_any_case_and_as_x_api_key() {
    let fake = FakeLlama::start(Options::default());
    let (_folder, router) = keyed(&fake);
    let router = router.start().await;
    let bearers = [format!("Bearer {KEY}"), format!("bearer {KEY}"), format!("BEARER  {KEY}")];
    for bearer in &bearers {
        let answer =
            client::send(turn(&router, "/v1/chat/completions").header("authorization", bearer)).await;
        assert_eq!(answer.status, 200, "{bearer}");
    }
    let answer = client::send(turn(&router, "/v1/messages").header("x-api-key", KEY)).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_wrong_or_missing_key_is_refused_in_the_openai_shape() {
    let fake = FakeLlama::start(Options::default());
    let (_folder, router) = keyed(&fake);
    let router = router.start().await;
    let long = format!("Bearer {KEY}x");
    let wrong = [
        ("x-none", ""),
        ("authorization", "Bearer wrong"),
        ("authorization", "Bearer "),
        ("authorization", "Bearer"),
        ("authorization", KEY),
        ("authorization", "Basic c2VzYW1l"),
        ("authorization", &long),
        ("authorization", "Bearer sesame-open-471"),
        ("x-api-key", "wrong"),
        ("x-api-key", ""),
    ];
    for (name, value) in wrong {
        let answer = client::send(turn(&router, "/v1/chat/completions").header(name, value)).await;
        assert_eq!(answer.status, 401, "{name}: {value}");
        assert_eq!(answer.json()["error"]["type"], "authentication_error");
        assert_eq!(answer.json()["error"]["code"], 401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    assert!(fake.received().is_empty());
    assert_eq!(router.wait_requests(wrong.len()).await.len(), wrong.len());
}

#[tokio::test]
async fn a_missing_key_is_told_in_the_anthropic_shape_on_its_route() {
    let fake = FakeLlama::start(Options::default());
    let (_folder, router) = keyed(&fake);
    let router = router.start().await;
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let answer = client::send(turn(&router, path)).await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.json()["type"], "error");
        assert_eq!(answer.json()["error"]["type"], "authentication_error");
        assert_eq!(answer.json()["error"].get("code"), None);
    }
}

#[tokio::test]
async fn every_route_needs_the_key_but_the_routers_health() {
    let fake = FakeLlama::start(Options::default());
    let (_folder, router) = keyed(&fake);
    let router = router.start().await;
    for path in
        ["/", "/health", "/v1/models", "/slots", "/router/status", "/router/health/", "/router/Health"]
    {
        assert_eq!(client::get(format!("{}{path}", router.url())).await.status, 401, "{path}");
    }
    let health = client::get(format!("{}/router/health", router.url())).await;
    assert_eq!((health.status.as_u16(), &health.json()["status"]), (200, &"ok".into()));
}

#[tokio::test]
async fn the_routers_key_is_not_forwarded() {
    let fake = FakeLlama::start(Options::default());
    let (_folder, router) = keyed(&fake);
    let router = router.start().await;
    let bearer = format!("Bearer {KEY}");
    client::send(turn(&router, "/v1/chat/completions").header("authorization", &bearer)).await;
    client::send(turn(&router, "/v1/messages").header("x-api-key", KEY)).await;
    let both = turn(&router, "/v1/messages").header("x-api-key", KEY).header("authorization", &bearer);
    client::send(both).await;
    client::send(Outgoing::get(format!("{}/v1/models", router.url())).header("x-api-key", KEY)).await;
    let carries = |value: &http::HeaderValue| value.to_str().is_ok_and(|value| value.contains(KEY));
    let leaked = fake.look(|state| state.received().iter().any(|one| one.headers.values().any(carries)));
    assert!(!leaked && fake.received().len() == 3);
}

#[tokio::test]
async fn a_clients_own_credentials_for_the_server_are_forwarded_beside_the_key() {
    let fake = FakeLlama::start(Options::default());
    let (_folder, router) = keyed(&fake);
    let router = router.start().await;
    let request = turn(&router, "/v1/chat/completions");
    client::send(request.header("x-api-key", KEY).header("authorization", "Bearer mine")).await;
    assert_eq!(fake.received()[0].header("authorization"), Some("Bearer mine"));
    assert_eq!(fake.received()[0].header("x-api-key"), None);
}

#[tokio::test]
async fn the_key_is_in_no_log_line_no_status_and_no_answer() {
    let fake = FakeLlama::start(Options::default());
    let (_folder, router) = keyed(&fake);
    let router = router.env("SLOT_ROUTER_LOG", "trace").start().await;
    let bearer = format!("Bearer {KEY}");
    client::send(turn(&router, "/v1/chat/completions").header("authorization", &bearer)).await;
    client::send(turn(&router, "/v1/chat/completions").header("authorization", "Bearer wrong-one")).await;
    let status = Outgoing::get(format!("{}/router/status", router.url())).header("x-api-key", KEY);
    let status = client::send(status).await;
    assert_eq!(status.status, 200);
    assert!(!status.text().contains(KEY));
    router.wait_requests(2).await;
    assert_eq!(router.terminate().await.code(), Some(0));
    let log = [router.log_lines(), router.stderr_lines()].concat().join("\n");
    assert!(!log.contains(KEY) && !log.contains("wrong-one"));
}

#[tokio::test]
async fn a_key_file_that_is_missing_or_empty_stops_the_start_with_its_name() {
    let fake = FakeLlama::start(Options::default());
    let (folder, empty) = key_file("");
    for path in [empty, folder.path().join("missing")] {
        let exited =
            Router::builder(&fake).flag("--api-key-file", &path.to_string_lossy()).run_to_exit().await;
        assert_eq!(exited.status.code(), Some(2));
        let complaint = exited.stderr.join("\n");
        assert!(complaint.contains(&*path.to_string_lossy()), "{complaint}");
        assert!(complaint.contains("--api-key-file"), "{complaint}");
    }
}
