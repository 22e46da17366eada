//! Connections, the routes llama-server doesn't have, the fast mode.
use std::time::Duration;

use serde_json::json;
use session_slot_tests::client::{self, Outgoing, RawConnection};
use session_slot_tests::fake::KeepAlive;
use session_slot_tests::{FakeLlama, Options};

use crate::{streamed, words};

#[tokio::test]
async fn the_last_request_of_a_connection_closes_it() {
    let fake = FakeLlama::start(Options::default());
    let mut connection = RawConnection::open(&fake.url()).await;
    for number in 1..=100 {
        connection.send("HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let head = connection.read_until("\r\n\r\n").await;
        assert_eq!(head.contains("connection: close"), number == 100, "{number}: {head}");
    }
    assert_eq!(connection.read_to_end().await, "");
}

#[tokio::test]
async fn half_a_body_is_counted_but_is_no_request() {
    let fake = FakeLlama::start(Options::default());
    let mut connection = RawConnection::open(&fake.url()).await;
    connection.send("POST /completion HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{").await;
    drop(connection);
    fake.wait_until("one broken-off request", |state| state.incomplete() == 1).await;
    assert!(fake.received().is_empty());
}

#[tokio::test]
async fn the_echo_routes_show_what_was_sent() {
    let fake = FakeLlama::start(Options::default());
    let request = Outgoing::new("PURGE", format!("{}/echo?a=b", fake.url()));
    let seen = client::send(request.header("x-a", "1").header("x-a", "2").body("body")).await.json();
    assert_eq!((&seen["method"], &seen["query"]), (&json!("PURGE"), &json!("a=b")));
    assert_eq!((&seen["body"], &seen["body_length"]), (&json!("body"), &json!(4)));
    let headers = seen["headers"].as_array().expect("headers should be a list");
    assert!(headers.contains(&json!(["x-a", "1"])) && headers.contains(&json!(["x-a", "2"])));
    let raw = client::post_json(format!("{}/echo-raw", fake.url()), "a\u{0}b").await;
    assert_eq!(&raw.body[..], b"a\0b");
}

#[tokio::test]
async fn trailers_come_to_those_who_ask() {
    let fake = FakeLlama::start(Options::default());
    let request = Outgoing::get(format!("{}/trailers", fake.url())).header("te", "trailers");
    let answer = client::send(request).await;
    let trailers = answer.trailers.expect("there should be trailers");
    assert_eq!(trailers["x-tail"], "end");
}

#[tokio::test]
async fn an_upgraded_connection_echoes_bytes() {
    let fake = FakeLlama::start(Options::default());
    let mut connection = RawConnection::open(&fake.url()).await;
    let head = "GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    connection.send(head).await;
    assert!(connection.read_until("\r\n\r\n").await.starts_with("HTTP/1.1 101"));
    connection.send("ping").await;
    assert_eq!(connection.read_until("ping").await, "ping");
}

#[tokio::test]
async fn gated_events_come_one_by_one() {
    let fake = FakeLlama::start(Options::default());
    let mut stream = client::open(Outgoing::get(format!("{}/sse-gate", fake.url()))).await;
    fake.sse("data: 1\n\n");
    assert_eq!(stream.read_until("\n\n").await, "data: 1\n\n");
    fake.sse("data: 2\n\n");
    assert_eq!(stream.read_until("\n\n").await, "data: 2\n\n");
    fake.sse_end();
    assert!(stream.next_chunk().await.is_none());
}

#[tokio::test]
async fn a_fast_fake_serves_and_keeps_no_records() {
    let options = Options { sse_events: Some(50), ..Options::fast(64) };
    let fake = FakeLlama::start(options);
    let answer = client::chat(&fake.url(), "s", &words("a", 1000)).await;
    assert_eq!(answer.prompt_n(), Some(1));
    let text = streamed(&fake, "/v1/chat/completions", json!({"messages": []})).await;
    assert_eq!(text.matches("\"content\":\"").count() + text.matches("\"content\":\" ").count(), 50 + 49);
    assert!(fake.received().is_empty() && fake.launches().is_empty());
    assert_eq!(fake.look(|state| state.slot_taker_count()), 2);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let keep_alive = Some(KeepAlive { timeout: Duration::from_millis(50), max: 100 });
    let fake = FakeLlama::start(Options { keep_alive, ..Options::default() });
    let mut connection = RawConnection::open(&fake.url()).await;
    connection.send("HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n").await;
    connection.read_until("\r\n\r\n").await;
    assert_eq!(connection.read_to_end().await, "");
}
