//! SIGTERM and SIGINT: no new connections, running answers go on for a while, the store is written out.
use std::process::Command;

use session_slot_tests::client::{self, RawConnection, Streaming};
use session_slot_tests::{FakeLlama, Options, Outgoing, Router};

/// A streamed turn that has said its first token and stops there until `gate` is released.
async fn stream(router: &Router, session: &str, gate: &str) -> Streaming {
    let body =
        format!(r#"{{"prompt":"{session} HOLDEND:{gate}","stream":true,"agent_session_id":"{session}"}}"#);
    let mut answer = client::stream_json(format!("{}/completion", router.url()), body).await;
    answer.read_until("data: ").await;
    answer
}

async fn stopping(router: &Router) {
    router.wait_log(|line| line["message"].to_string().contains("no new connections")).await;
}

fn signal(router: &Router, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &router.pid().to_string()]).status();
    assert!(sent.expect("`kill` should be there").success());
}

#[tokio::test]
async fn a_running_stream_ends_new_connections_are_refused_and_the_event_is_stored() {
    for name in ["TERM", "INT"] {
        let fake = FakeLlama::start(Options::default());
        let router = Router::start(&fake).await;
        let answer = stream(&router, "a", "end").await;
        signal(&router, name);
        stopping(&router).await;
        let refused = client::try_send(Outgoing::get(format!("{}/router/health", router.url()))).await;
        assert!(refused.is_err(), "{name}: {refused:?}");
        fake.release("end");
        assert!(answer.finish().await.expect("it should end well").text().contains("timings"), "{name}");
        assert_eq!(router.wait_exit().await.code(), Some(0), "{name}");
        let events = router.database().events();
        assert_eq!(events.len(), 1, "{name}");
        assert_eq!((&events[0]["session"], &events[0]["status"]), (&"a".into(), &200.into()));
        assert_eq!(router.database().session("a")["requests"], 1);
        assert_eq!(router.log().last().map(|line| &line["message"]), Some(&"stopped".into()));
    }
}

#[tokio::test]
async fn an_idle_router_ends_at_once() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).flag("--drain", "3600").start().await;
    assert_eq!(router.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_the_router_up() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).flag("--drain", "3600").start().await;
    let mut used = RawConnection::open(&router.url()).await;
    used.send("GET /echo?x=used HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await;
    used.read_until("x=used").await;
    let _unused = RawConnection::open(&router.url()).await;
    assert_eq!(router.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn a_request_that_is_being_sent_is_still_answered() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut connection = RawConnection::open(&router.url()).await;
    let head =
        "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n";
    connection.send(head).await;
    connection.read_until("100 Continue\r\n\r\n").await;
    router.send_term();
    stopping(&router).await;
    connection.send(r#"{"prompt":"hi"}"#).await;
    let answer = connection.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    assert_eq!(router.wait_exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_request_that_waits_for_its_slot_is_still_served() {
    let fake = FakeLlama::start(Options::default().slots(1));
    let router = Router::start(&fake).await;
    let running = stream(&router, "a", "end").await;
    let waiting = client::send_later(client::chat_request(&router.url(), "b", "hello"));
    router.wait_waiting(1).await;
    router.send_term();
    stopping(&router).await;
    fake.release("end");
    running.finish().await.expect("it should end well");
    assert_eq!(waiting.await.expect("it should not panic").status, 200);
    assert_eq!(router.wait_exit().await.code(), Some(0));
    assert_eq!(router.database().events().len(), 2);
}

#[tokio::test]
async fn a_stream_that_does_not_end_is_cut_at_the_drain_limit_and_who_waits_is_told() {
    let fake = FakeLlama::start(Options::default().slots(1));
    let router = Router::builder(&fake).flag("--drain", "1").start().await;
    let running = stream(&router, "a", "never").await;
    let openai = client::send_later(client::chat_request(&router.url(), "b", "hello"));
    let body = client::chat_body(Some("c"), "hello").to_string();
    let anthropic = client::send_later(Outgoing::post(format!("{}/v1/messages", router.url()), body));
    router.wait_waiting(2).await;
    assert_eq!(router.terminate().await.code(), Some(0));
    let openai = openai.await.expect("it should not panic");
    assert_eq!((openai.status.as_u16(), &openai.json()["error"]["type"]), (503, &"unavailable_error".into()));
    assert_eq!(openai.header("retry-after"), Some("2"));
    let anthropic = anthropic.await.expect("it should not panic");
    assert_eq!((anthropic.status.as_u16(), &anthropic.json()["type"]), (529, &"error".into()));
    let rest = running.finish().await.expect("ended by the router").text();
    assert!(rest.contains("service unavailable: the router is stopping"), "{rest}");
    assert!(!rest.contains("[DONE]"), "a cut stream must not look complete: {rest}");
    let mut lines = router.request_log();
    lines.sort_by_key(|line| line["agent_session_id"].to_string());
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64()).collect();
    assert_eq!(statuses, [Some(200), Some(503), Some(529)], "{lines:#?}");
    assert!(lines.iter().all(|line| line["error"].is_string()), "{lines:#?}");
    assert_eq!(router.database().events().len(), 3);
    fake.wait_processing(0).await;
}

#[tokio::test]
async fn a_tunnel_does_not_hold_the_router_up() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).flag("--drain", "1").start().await;
    let mut tunnel = RawConnection::open(&router.url()).await;
    tunnel
        .send("GET /upgrade HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nx")
        .await;
    tunnel.read_until("\r\n\r\nx").await;
    assert_eq!(router.terminate().await.code(), Some(0));
    assert_eq!(tunnel.read_to_end().await, "");
}

#[tokio::test]
async fn a_router_whose_server_is_down_ends_as_well() {
    let fake = FakeLlama::start(Options::default());
    fake.stop().await;
    let router = Router::start(&fake).await;
    assert_eq!(client::chat(&router.url(), "a", "hello").await.status, 502);
    assert_eq!(router.terminate().await.code(), Some(0));
}

#[tokio::test]
async fn many_events_are_all_written_before_the_end() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for number in 0..100 {
        assert_eq!(client::chat(&router.url(), &format!("s{number}"), "hello").await.status, 200);
    }
    assert_eq!(router.terminate().await.code(), Some(0));
    assert_eq!(router.database().events().len(), 100);
    assert_eq!(router.database().rows("SELECT * FROM sessions").len(), 100);
}
