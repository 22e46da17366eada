//! What a server says in its own time, in parts, or never to its end, and what its client makes of it.
use std::time::Duration;

use session_slot_tests::{RawUpstream, Router};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{CHAT, QUICK, opened, streamed, turn};

const EVENTS: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\ndata: [DONE]\n\n";
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
/// Longer than it takes for a sign of life to be due.
const PAUSE: Duration = Duration::from_millis(300);

/// A server without `/slots` that says these parts to a turn, with a pause after each, and then neither goes on nor hangs up.
async fn hesitant(parts: Vec<String>) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(say(stream, parts.clone()));
        }
    });
    format!("http://{address}")
}

async fn say(mut stream: TcpStream, parts: Vec<String>) {
    let mut request = vec![0; 64 << 10];
    while let Ok(1..) = stream.read(&mut request).await {
        if !request.starts_with(b"POST") {
            let missing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(missing).await;
            continue;
        }
        for part in &parts {
            let _ = stream.write_all(part.as_bytes()).await;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

#[tokio::test]
async fn a_stream_of_announced_length_is_whole_also_after_signs_of_life() {
    let head = format!("{STREAM}content-length: {}\r\n\r\n", EVENTS.len());
    let upstream = hesitant(vec![head, EVENTS.to_owned()]).await;
    let router = Router::in_front_of(&upstream).config(QUICK).start().await;
    let answer =
        opened(turn(&router, CHAT, "s", &streamed("a"))).await.finish().await.expect("a whole answer");
    assert!(
        answer.text().starts_with(": waiting\n\n") && answer.text().ends_with(EVENTS),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn a_stream_of_announced_length_that_is_cut_ends_with_a_whole_error() {
    let upstream = RawUpstream::start(format!("{STREAM}content-length: 1000\r\n\r\ndata: {{")).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let answer = opened(turn(&router, CHAT, "s", &streamed("a"))).await.finish().await.expect("a clean end");
    assert!(answer.text().starts_with("data: {\n\ndata: {\"error\"") && answer.text().ends_with("}\n\n"));
}

#[tokio::test]
async fn nothing_follows_the_last_word_of_a_server_that_goes_away_after_it() {
    let upstream =
        RawUpstream::start(format!("{STREAM}transfer-encoding: chunked\r\n\r\n{}", chunk(EVENTS))).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let answer = opened(turn(&router, CHAT, "s", &streamed("a"))).await.finish().await.expect("a clean end");
    assert_eq!(answer.text(), EVENTS);
    assert_eq!(router.wait_requests(1).await[0]["error"], serde_json::Value::Null);
}

#[tokio::test]
async fn an_error_without_end_is_told_all_the_same() {
    let head = "HTTP/1.1 500 Internal Server Error\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    let upstream = hesitant(vec![String::new(), head, chunk(&"y".repeat(70_000))]).await;
    let router = Router::in_front_of(&upstream).config(QUICK).start().await;
    let answer = opened(turn(&router, CHAT, "s", &streamed("a"))).await.finish().await.expect("a clean end");
    assert!(
        answer.text().contains("service unavailable: llama-server answered without a stream (500"),
        "{}",
        answer.text()
    );
    let line = router.wait_requests(1).await.remove(0);
    assert!(line["error"].as_str().is_some_and(|error| error.contains("not read to its end")), "{line}");
}

#[tokio::test]
async fn signs_of_life_go_on_while_an_error_is_awaited() {
    let head = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 100\r\n\r\n{".to_owned();
    let upstream = hesitant(vec![String::new(), head]).await;
    let router = Router::in_front_of(&upstream).config(QUICK).start().await;
    let mut stream = opened(turn(&router, CHAT, "s", &streamed("a"))).await;
    // Far more than there is time for before the error begins.
    for _ in 0..20 {
        stream.read_until(": waiting\n\n").await;
    }
}

#[tokio::test]
async fn a_pause_in_an_answer_that_is_no_stream_is_no_stall() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"a\":".to_owned();
    let upstream = hesitant(vec![String::new(), head, "\"bcde\"}".to_owned()]).await;
    let toml = format!(
        "upstream = {{ url = \"{upstream}\", stall = 60, end_stalled = true }}\n{QUICK}json = true\n"
    );
    let router = Router::in_front_of(&upstream).no_upstream_flag().config(&toml).start().await;
    let answer = session_slot_tests::client::send(turn(&router, CHAT, "s", r#""messages":[]"#)).await;
    assert_eq!(answer.json()["a"], "bcde", "{}", answer.text());
}

#[tokio::test]
async fn answers_are_not_asked_for_in_a_coding_that_nothing_can_be_put_into() {
    let upstream = RawUpstream::start("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request = turn(&router, CHAT, "s", &streamed("a")).header("accept-encoding", "gzip");
    session_slot_tests::client::send(request).await;
    let sent = String::from_utf8_lossy(&upstream.first().await).to_ascii_lowercase();
    assert!(!sent.contains("accept-encoding"), "{sent}");
}
