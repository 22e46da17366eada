//! Bodies that are too large, or not all there.
use session_slot_tests::client::{self, RawConnection};
use session_slot_tests::{FakeLlama, Options, Outgoing, Router};

use super::{PROMPT, anthropic_error, openai_error, refused_in_log, untouched};

async fn limited(fake: &FakeLlama) -> Router {
    Router::builder(fake).flag("--max-body", "1KiB").start().await
}

/// A JSON body of exactly `size` bytes.
fn of_size(size: usize) -> String {
    let (start, end) = (format!(r#"{{"prompt":"{PROMPT}","x":""#), "\"}");
    format!("{start}{}{end}", "x".repeat(size - start.len() - end.len()))
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_one_at_the_limit_is_not() {
    let fake = FakeLlama::start(Options::default());
    let router = limited(&fake).await;
    let url = |path: &str| format!("{}{path}", router.url());
    assert_eq!(client::post_json(url("/completion"), of_size(1024)).await.status, 200);
    let answer = client::post_json(url("/completion"), of_size(1025)).await;
    let message = openai_error(&answer, 413, "invalid_request_error");
    assert!(message.contains("1024") && message.contains("max_body"), "{message}");
    let answer = client::post_json(url("/v1/messages"), of_size(1025)).await;
    anthropic_error(&answer, 413, "request_too_large");
    assert_eq!(fake.received().len(), 1);
}

#[tokio::test]
async fn a_chunked_body_over_the_limit_is_refused() {
    let fake = FakeLlama::start(Options::default());
    let router = limited(&fake).await;
    let head = "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = of_size(512);
    let request = format!("{head}200\r\n{chunk}\r\n200\r\n{chunk}\r\n1\r\nx\r\n0\r\n\r\n");
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("max_body"), "{answer}");
    assert!(untouched(&fake));
    refused_in_log(&router, 1, 413).await;
}

/// Sends a whole request, as clients do that read no answer before, then reads the answer.
async fn stubborn(router: &Router, request: &str) -> String {
    let mut connection = RawConnection::open(&router.url()).await;
    connection.send(request).await;
    connection.read_until("}}").await
}

#[tokio::test]
async fn a_client_that_sends_far_too_much_can_send_it_all_and_read_why() {
    let fake = FakeLlama::start(Options::default());
    let router = limited(&fake).await;
    let body = of_size(16 << 20);
    let head = "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\n";
    let declared = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for request in [&declared, &chunked, &declared, &chunked] {
        let answer = stubborn(&router, request).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer:?}");
    }
    assert!(untouched(&fake));
}

#[tokio::test]
async fn a_client_that_may_not_come_in_can_send_it_all_and_read_why() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let body = of_size(16 << 20);
    let request = format!(
        "POST /completion HTTP/1.1\r\nHost: evil.example\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = stubborn(&router, &request).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer:?}");
    assert!(untouched(&fake));
}

#[tokio::test]
async fn a_client_whose_body_no_server_takes_can_send_it_all_and_read_why() {
    let fake = FakeLlama::start(Options::default());
    fake.stop().await;
    let router = Router::start(&fake).await;
    let body = of_size(16 << 20);
    let request =
        format!("POST /tokenize HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = stubborn(&router, &request).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer:?}");
}

#[tokio::test]
async fn a_declared_length_over_the_limit_is_refused_before_the_body_is_sent() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut connection = RawConnection::open(&router.url()).await;
    let head = "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length:";
    connection.send(format!("{head} {}\r\n\r\n", (256_u64 << 20) + 1)).await;
    assert!(connection.read_until("\r\n").await.starts_with("HTTP/1.1 413"));
    connection.read_until("max_body").await;
    drop(connection);
    assert!(untouched(&fake));
    refused_in_log(&router, 1, 413).await;
}

#[tokio::test]
async fn a_route_that_takes_no_slot_has_no_limit() {
    let fake = FakeLlama::start(Options::default());
    let router = limited(&fake).await;
    let request = Outgoing::new("POST", format!("{}/echo-raw", router.url())).body(of_size(100_000));
    assert_eq!(client::send(request).await.body.len(), 100_000);
}

#[tokio::test]
async fn a_client_that_leaves_within_its_body_sends_nothing_to_the_server() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let half = format!(r#"{{"prompt":"{PROMPT}","agent_session_id":"a","x":"#);
    for framing in ["Content-Length: 1000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n100\r\n"] {
        let mut connection = RawConnection::open(&router.url()).await;
        connection.send(format!("POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\n{framing}{half}")).await;
        drop(connection);
    }
    router.wait_requests(2).await;
    assert!(untouched(&fake));
    let status = router.status().await;
    assert_eq!(status["server"]["totals"]["requests"], 0);
    assert_eq!(router.terminate().await.code(), Some(0));
    let lines = router.request_log();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines.iter().all(|line| line["error"].is_string() && line["agent_session_id"].is_null()));
    assert!(!router.log_lines().join("\n").contains(PROMPT));
}

#[tokio::test]
async fn a_client_that_says_no_more_within_its_body_is_told_so() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut connection = RawConnection::open(&router.url()).await;
    connection.send("POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{").await;
    connection.finish_sending().await;
    let answer = connection.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("invalid_request_error"), "{answer}");
    assert!(untouched(&fake));
    refused_in_log(&router, 1, 400).await;
}
