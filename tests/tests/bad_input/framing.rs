//! Messages that two readers could read differently (request smuggling), and messages that are none.
use session_slot_tests::client::{self, RawConnection};
use session_slot_tests::{FakeLlama, Options, RawUpstream, Router};

use super::{refused_in_log, untouched};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

/// Sends it to a route that takes a slot and to one that takes none; returns the answers.
async fn both_routes(router: &Router, rest: &str) -> [String; 2] {
    let request = |path: &str| format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{rest}");
    [
        RawConnection::exchange(&router.url(), request("/completion")).await,
        RawConnection::exchange(&router.url(), request("/echo")).await,
    ]
}

#[tokio::test]
async fn heads_that_can_be_read_in_two_ways_are_refused_and_reach_nothing() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let heads = [
        "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "Content-Length: 2, 3\r\n\r\nabc",
        "Content-Length: 2\r\ncontent-length : 3\r\n\r\nabc",
        "Content-Length: +2\r\n\r\nab",
        "Content-Length: 0x2\r\n\r\nab",
        "Content-Length: -1\r\n\r\nab",
        "Content-Length: 99999999999999999999999\r\n\r\nab",
        "Transfer-Encoding: gzip\r\n\r\nab",
        "Transfer-Encoding: chunked, gzip\r\n\r\nab",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "X-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "X-Nul: a\0b\r\nContent-Length: 0\r\n\r\n",
        "X\0Nul: a\r\nContent-Length: 0\r\n\r\n",
        "X-Return: a\rb\r\nContent-Length: 0\r\n\r\n",
        "No colon\r\nContent-Length: 0\r\n\r\n",
        ": no name\r\nContent-Length: 0\r\n\r\n",
    ];
    for head in heads {
        for answer in both_routes(&router, head).await {
            assert!(answer.starts_with("HTTP/1.1 400"), "{head:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{head:?}: {answer}");
        }
    }
    assert!(untouched(&fake));
    assert_eq!(client::chat(&router.url(), "a", "hello").await.status, 200);
}

#[tokio::test]
async fn a_request_that_is_no_http_leaves_one_line_without_its_bytes() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let answer = RawConnection::exchange(&router.url(), "\u{16}\u{3}\u{1} secret secret\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let line = router.wait_log(|line| line["message"].to_string().contains("no valid HTTP")).await;
    assert!(!line.to_string().contains("secret"), "{line}");
    assert!(router.request_log().is_empty());
}

#[tokio::test]
async fn of_a_length_and_chunks_only_the_chunks_are_read_and_only_one_framing_goes_on() {
    // RFC 9112, 6.3: a server may refuse it or read the chunks, and closes the connection afterwards.
    let lines = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
    ];
    for framing in lines {
        for path in ["/completion", "/other"] {
            let upstream = RawUpstream::start(OK).await;
            let router = Router::in_front_of(&upstream.url()).start().await;
            let request = format!(
                "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{framing}\r\n\r\n5\r\nabcde\r\n0\r\n\r\n{SMUGGLED}"
            );
            let answer = RawConnection::exchange(&router.url(), request).await;
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
            let seen = upstream.seen();
            assert_eq!(seen.len(), 1, "{framing} {path}");
            let text = String::from_utf8_lossy(&seen[0]).to_ascii_lowercase();
            let chunked = text.contains("transfer-encoding: chunked") && text.ends_with("0\r\n\r\n");
            let whole = text.contains("content-length: 5") && text.ends_with("\r\n\r\nabcde");
            assert!(text.contains("abcde") && chunked != whole, "{framing} {path}: {text}");
            assert!(!text.contains("content-length: 4") && !text.contains("smuggled"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_bad_chunk_is_refused_and_reaches_no_slot() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let bodies =
        ["zz\r\nab\r\n0\r\n\r\n", "2\r\nabXX0\r\n\r\n", "-2\r\nab\r\n0\r\n\r\n", "FFFFFFFFFFFFFFFFFF\r\nab"];
    for body in bodies {
        let request = format!(
            "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        );
        let answer = RawConnection::exchange(&router.url(), request).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{body:?}: {answer}");
        assert!(answer.contains("invalid_request_error"), "{body:?}: {answer}");
    }
    assert!(untouched(&fake));
    refused_in_log(&router, bodies.len(), 400).await;
}

#[tokio::test]
async fn a_bad_chunk_on_another_route_is_the_clients_fault_as_well() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let request =
        "POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n";
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    refused_in_log(&router, 1, 400).await;
    assert!(fake.look(|state| state.received().iter().all(|one| one.target != "/echo")));
}

#[tokio::test]
async fn naming_the_length_in_connection_does_not_take_it_away() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request = format!(
        "POST /other HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close, Content-Length, Host\r\nContent-Length: {}\r\n\r\n{SMUGGLED}",
        SMUGGLED.len()
    );
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = upstream.seen();
    assert_eq!(seen.len(), 1);
    let text = String::from_utf8_lossy(&seen[0]).to_ascii_lowercase();
    assert!(text.contains(&format!("content-length: {}", SMUGGLED.len())), "{text}");
    assert!(text.contains("\r\nhost: "), "{text}");
}

#[tokio::test]
async fn an_answer_to_a_refused_body_ends_the_connection() {
    // What follows on it could be the rest of that body.
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).flag("--max-body", "10").start().await;
    let request = format!(
        "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{SMUGGLED}",
        SMUGGLED.len()
    );
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert!(untouched(&fake));
    refused_in_log(&router, 1, 413).await;
}
