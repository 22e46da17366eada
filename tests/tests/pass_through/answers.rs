//! Status, headers and body on their way back.
use session_slot_tests::client::{self, RawConnection};
use session_slot_tests::{FakeLlama, Options, Outgoing, RawUpstream, Router};

use super::{body, head};

/// Asks a router in front of a server that gives this answer, and returns every byte that comes back.
async fn passed(answer: impl Into<Vec<u8>>, method: &str) -> String {
    let upstream = RawUpstream::start(answer).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request = format!("{method} /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    RawConnection::exchange(&router.url(), request).await
}

#[tokio::test]
async fn every_status_comes_back_with_its_body() {
    for status in [200, 201, 202, 206, 226, 300, 301, 400, 401, 404, 409, 418, 429, 499, 500, 501, 503, 599] {
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 4\r\nLocation: /y\r\n\r\nbody");
        let back = passed(answer, "GET").await;
        assert!(back.starts_with(&format!("HTTP/1.1 {status} ")), "{back}");
        assert!(head(back.as_bytes()).contains(&"location: /y".to_owned()), "{back}");
        assert_eq!(body(back.as_bytes()), b"body", "{status}");
    }
}

#[tokio::test]
async fn the_servers_own_errors_come_back_as_they_are() {
    let fake = FakeLlama::start(Options { api_key: Some("k".to_owned()), ..Options::default() });
    let router = Router::start(&fake).await;
    for path in ["/v1/completions", "/nowhere", "/props"] {
        let direct = client::post_json(format!("{}{path}", fake.url()), "{}").await;
        let routed = client::post_json(format!("{}{path}", router.url()), "{}").await;
        assert_eq!((direct.status, &direct.body), (routed.status, &routed.body), "{path}");
        assert!(direct.status.is_client_error());
    }
}

#[tokio::test]
async fn a_204_and_a_304_come_back_without_a_body() {
    let back = passed("HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", "DELETE").await;
    assert!(back.starts_with("HTTP/1.1 204 ") && body(back.as_bytes()).is_empty(), "{back}");
    let back = passed("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 7\r\n\r\n", "GET").await;
    assert!(back.starts_with("HTTP/1.1 304 ") && body(back.as_bytes()).is_empty(), "{back}");
    assert!(head(back.as_bytes()).contains(&"etag: \"x\"".to_owned()), "{back}");
}

#[tokio::test]
async fn the_answer_to_head_keeps_the_length_it_tells_of() {
    let back =
        passed("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nContent-Type: text/plain\r\n\r\n", "HEAD").await;
    assert!(head(back.as_bytes()).contains(&"content-length: 1234".to_owned()), "{back}");
    assert!(head(back.as_bytes()).contains(&"content-type: text/plain".to_owned()), "{back}");
    assert!(body(back.as_bytes()).is_empty());
}

#[tokio::test]
async fn answer_headers_come_back_less_those_of_the_connection() {
    let answer = "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nServer: llama.cpp\r\n\
        X-Latin: \u{fc}\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nConnection: close, X-Private\r\nX-Private: 1\r\n\
        Keep-Alive: timeout=5, max=100\r\nProxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nok";
    let back = passed(answer, "GET").await;
    let mut lines = head(back.as_bytes());
    lines.sort();
    let latin = String::from_utf8_lossy("x-latin: \u{fc}".as_bytes()).bytes().map(char::from).collect();
    let mut expected = [
        "HTTP/1.1 200 OK".to_owned(),
        "set-cookie: a=1".to_owned(),
        "set-cookie: b=2".to_owned(),
        "server: llama.cpp".to_owned(),
        latin,
        "date: Thu, 01 Jan 1970 00:00:00 GMT".to_owned(),
        "content-length: 2".to_owned(),
        // Asked for by this client, on this connection.
        "connection: close".to_owned(),
    ];
    expected.sort();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_chunked_answer_comes_back_whole() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let upstream = RawUpstream::start(answer).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let answer = client::get(format!("{}/x", router.url())).await;
    assert_eq!(answer.text(), "abcde");
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_comes_back_whole() {
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        let upstream = RawUpstream::start(format!("{version} 200 OK\r\nX-A: 1\r\n\r\nall of it")).await;
        let router = Router::in_front_of(&upstream.url()).start().await;
        let request = "GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
        let back = RawConnection::exchange(&router.url(), request).await;
        assert!(back.starts_with("HTTP/1.1 200 "), "{back}");
        assert!(head(back.as_bytes()).contains(&"x-a: 1".to_owned()));
        assert!(back.contains("all of it"), "{back}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off_at_the_client_and_is_logged() {
    let upstream = RawUpstream::start("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this").await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let answer = client::try_send(Outgoing::get(format!("{}/x", router.url()))).await;
    assert!(answer.is_err(), "{answer:?}");
    let line = &router.wait_requests(1).await[0];
    assert_eq!(line["status"], 200);
    assert!(line["error"].as_str().is_some_and(|error| error.contains("broke off")), "{line}");
}

#[tokio::test]
async fn trailers_come_back_to_those_who_take_them() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let request = Outgoing::get(format!("{}/trailers", router.url())).header("te", "trailers");
    let answer = client::send(request).await;
    assert_eq!(answer.text(), "body");
    assert_eq!(answer.header("trailer"), Some("x-tail"));
    assert_eq!(answer.trailers.expect("trailers should come")["x-tail"], "end");
}

#[tokio::test]
async fn each_event_is_at_the_client_before_the_next_one_exists() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut answer = client::open(Outgoing::get(format!("{}/sse-gate", router.url()))).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    for number in 0..20 {
        let event = format!("data: {number}\n\n");
        fake.sse(event.clone());
        let chunk = answer.next_chunk().await.expect("an event should come").expect("it should hold");
        assert_eq!(chunk, event);
    }
    fake.sse_end();
    assert!(answer.next_chunk().await.is_none());
}

#[tokio::test]
async fn an_event_of_a_session_is_at_the_client_while_the_slot_still_works() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let body = r#"{"prompt":"HOLDEND:gate","stream":true,"agent_session_id":"a","n_predict":3}"#;
    let mut answer = client::stream_json(format!("{}/completion", router.url()), body).await;
    answer.read_until("data: ").await;
    fake.wait_processing(1).await;
    fake.release("gate");
    assert!(answer.finish().await.expect("it should end well").text().contains("timings"));
}

#[tokio::test]
async fn a_large_answer_comes_back_while_the_server_still_sends() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut answer = client::open(Outgoing::get(format!("{}/sse-gate", router.url()))).await;
    let event = format!("data: {}\n\n", "x".repeat(1 << 20));
    let mut read = 0;
    for _ in 0..8 {
        fake.sse(event.clone());
        read += event.len();
        let mut so_far = 0;
        while so_far < event.len() {
            so_far += answer.next_chunk().await.expect("more should come").expect("it should hold").len();
        }
        assert_eq!(so_far, event.len());
    }
    fake.sse_end();
    assert!(answer.next_chunk().await.is_none());
    assert_eq!(read, 8 * event.len());
}
