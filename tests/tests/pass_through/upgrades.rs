//! `Upgrade`: a tunnel if the server agrees, an ordinary answer if not.
use session_slot_tests::client::{self, RawConnection};
use session_slot_tests::{FakeLlama, Options, Outgoing, RawUpstream, Router};

use super::{arrived, head};

fn upgrade(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\nX-Key: 1\r\n\r\n"
    )
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_until_one_side_closes() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut connection = RawConnection::open(&router.url()).await;
    connection.send(upgrade("/upgrade")).await;
    let switched = head(connection.read_until("\r\n\r\n").await.as_bytes());
    assert!(switched[0].starts_with("HTTP/1.1 101"), "{switched:?}");
    assert!(switched.contains(&"upgrade: echo".to_owned()), "{switched:?}");
    for message in ["ping\r\n", "GET / HTTP/1.1\r\n\r\n", "\u{0}\u{1}end"] {
        connection.send(message).await;
        assert_eq!(connection.read_until(message).await, message);
    }
    connection.finish_sending().await;
    assert_eq!(connection.read_to_end().await, "");
    let received = &arrived(&fake)[0];
    assert_eq!(received.header("upgrade"), Some("echo"));
    assert_eq!(received.header("x-key"), Some("1"));
}

#[tokio::test]
async fn bytes_sent_before_the_server_has_agreed_are_not_lost() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut connection = RawConnection::open(&router.url()).await;
    connection.send(format!("{}early", upgrade("/upgrade"))).await;
    connection.read_until("\r\n\r\n").await;
    assert_eq!(connection.read_until("early").await, "early");
}

#[tokio::test]
async fn a_refused_upgrade_is_an_ordinary_answer_on_a_connection_that_goes_on() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut connection = RawConnection::open(&router.url()).await;
    connection.send(upgrade("/v1/models")).await;
    assert!(connection.read_until("\r\n").await.starts_with("HTTP/1.1 200"));
    connection.read_until("\"list\"}").await;
    connection.send("GET /echo?again HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await;
    connection.read_until("again").await;
}

#[tokio::test]
async fn a_wish_for_http_2_does_not_let_a_completion_past_the_slots() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let request = client::chat_request(&router.url(), "a", "hello")
        .header("connection", "Upgrade, HTTP2-Settings")
        .header("upgrade", "h2c")
        .header("http2-settings", "AAMAAABkAAQAAP__");
    let answer = client::send(request).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("x-slot-router-slot"), Some("0"));
    let received = &fake.received()[0];
    assert_eq!(received.json()["id_slot"], 0);
    assert!(["upgrade", "connection", "http2-settings"].iter().all(|name| received.header(name).is_none()));
}

#[tokio::test]
async fn an_upgrade_header_that_the_connection_does_not_name_means_nothing() {
    let upstream = RawUpstream::start("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request = Outgoing::get(format!("{}/x", router.url())).header("upgrade", "echo");
    assert_eq!(client::send(request).await.status, 200);
    let lines = head(&upstream.first().await);
    assert!(!lines.iter().any(|line| line.starts_with("upgrade")), "{lines:?}");
}
