//! The `Host` check: a web page whose name resolves to this machine must not reach the router.
use session_slot_tests::client::{self, RawConnection};
use session_slot_tests::fake::Received;
use session_slot_tests::{FakeLlama, Options, Outgoing, Router};

async fn asked_as(router: &Router, path: &str, host: &str) -> client::Answer {
    client::send(Outgoing::get(format!("{}{path}", router.url())).header("host", host)).await
}

fn nothing_arrived(fake: &FakeLlama) -> bool {
    fake.look(|state| state.received().iter().all(Received::is_own_question))
}

#[tokio::test]
async fn addresses_and_localhost_are_let_in_with_any_port() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for host in
        ["127.0.0.1", "127.0.0.1:8081", "localhost", "LocalHost:1", "localhost.", "[::1]:8081", "10.1.2.3"]
    {
        assert_eq!(asked_as(&router, "/v1/models", host).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn a_request_without_host_is_let_in() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let answer = RawConnection::exchange(&router.url(), "GET /v1/models HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}

#[tokio::test]
async fn names_are_refused_on_every_route_with_the_way_out() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let paths = ["/v1/models", "/v1/chat/completions", "/router/status", "/router/health", "/"];
    for path in paths {
        let answer = asked_as(&router, path, "evil.example:8081").await;
        assert_eq!(answer.status, 403, "{path}");
        assert_eq!(answer.json()["error"]["type"], "permission_error");
        assert_eq!(answer.json()["error"]["code"], 403);
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains("--allowed-host"), "{message}");
    }
    assert!(nothing_arrived(&fake));
    let lines = router.wait_requests(paths.len()).await;
    assert_eq!(lines.len(), paths.len());
    assert!(lines.iter().all(|line| line["status"] == 403 && line["error"].is_string()), "{lines:?}");
}

#[tokio::test]
async fn a_refused_name_is_told_in_the_anthropic_shape_on_its_route() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let answer = asked_as(&router, "/v1/messages", "evil.example").await;
    assert_eq!(answer.status, 403);
    assert_eq!(answer.json()["type"], "error");
    assert_eq!(answer.json()["error"]["type"], "permission_error");
}

#[tokio::test]
async fn what_only_looks_like_an_address_is_refused() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let hosts =
        ["127.0.0.1.evil.example", "localhost.evil.example", "evil.example:127", "2130706433", "0x7f.1", ""];
    for host in hosts {
        assert_eq!(asked_as(&router, "/v1/models", host).await.status, 403, "{host}");
    }
    assert!(nothing_arrived(&fake));
}

#[tokio::test]
async fn a_name_in_the_target_is_checked_as_well_as_the_one_in_the_header() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for (target, host) in [
        ("http://evil.example/v1/models", "127.0.0.1"),
        ("http://127.0.0.1/v1/models", "evil.example"),
        ("http://evil.example/v1/models", "evil.example"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = RawConnection::exchange(&router.url(), request).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{target} {host}: {answer}");
    }
    assert!(nothing_arrived(&fake));
}

#[tokio::test]
async fn a_second_host_header_does_not_hide_behind_the_first() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let request =
        "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(nothing_arrived(&fake));
}

#[tokio::test]
async fn allowed_names_are_let_in_whatever_their_case_and_port() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).flag("--allowed-host", "GPU.lan,other").start().await;
    for host in ["gpu.lan", "gpu.LAN:8081", "gpu.lan.", "other:80"] {
        assert_eq!(asked_as(&router, "/v1/models", host).await.status, 200, "{host}");
    }
    for host in ["gpu.lan.evil.example", "xgpu.lan", "another"] {
        assert_eq!(asked_as(&router, "/v1/models", host).await.status, 403, "{host}");
    }
}
