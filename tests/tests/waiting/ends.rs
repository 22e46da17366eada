//! How streams end: never without a word, and as the client that hung up on the last one had them.
use std::sync::Arc;

use session_slot_tests::{FakeLlama, Options, RawUpstream, Router};
use tokio::io::AsyncReadExt;

use crate::{CHAT, opened, streamed, turn};

#[tokio::test]
async fn a_server_that_goes_away_in_mid_stream_leaves_an_error_in_the_clients_dialect() {
    for (path, members, wanted) in [
        (
            CHAT,
            streamed("HOLDEND:never a b"),
            "data: {\"error\":{\"code\":503,\"message\":\"service unavailable: ",
        ),
        ("/v1/messages", streamed("HOLDEND:never a b"), "event: error\ndata: "),
        (
            "/v1/responses",
            r#""stream":true,"input":"HOLDEND:never a b""#.to_owned(),
            "event: response.failed\ndata: ",
        ),
    ] {
        let fake = FakeLlama::start(Options::default());
        let router = Router::start(&fake).await;
        let mut stream = opened(turn(&router, path, "s", &members)).await;
        stream.read_until("out0").await;
        fake.stop().await;
        let rest = stream.finish().await.expect("the router ends it, not the server").text();
        assert!(rest.contains(&format!("\n\n{wanted}")) || rest.starts_with(wanted), "{path}: {rest}");
        assert!(!rest.contains("[DONE]") && !rest.contains("message_stop"), "{path}: {rest}");
        let line = router.wait_requests(1).await.remove(0);
        assert!(line["error"].as_str().is_some_and(|error| error.contains("broke off")), "{line}");
    }
}

#[tokio::test]
async fn after_a_server_has_gone_away_no_lease_remains_and_the_session_keeps_its_home_cold() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut stream = opened(turn(&router, CHAT, "s", &streamed("HOLDEND:never a b"))).await;
    stream.read_until("out0").await;
    fake.stop().await;
    stream.finish().await.expect("ended by the router");
    fake.start_again().await;
    let answer = session_slot_tests::client::chat(&router.url(), "s", "a b c").await;
    assert_eq!((answer.status.as_u16(), answer.header("x-slot-router-action")), (200, Some("home")));
    let status = router.status().await;
    assert_eq!(status["server"]["leases"], 0, "{status}");
}

#[tokio::test]
async fn a_stream_that_just_ends_is_not_taken_for_a_success() {
    let chunk = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
    for events in ["", chunk] {
        let body =
            if events.is_empty() { String::new() } else { format!("{:x}\r\n{events}\r\n", events.len()) };
        let upstream = RawUpstream::start(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{body}0\r\n\r\n"
        ))
        .await;
        let router = Router::in_front_of(&upstream.url()).start().await;
        let stream = opened(turn(&router, CHAT, "s", &streamed("a"))).await;
        let said = stream.finish().await.expect("ended by the router").text();
        assert!(
            said.starts_with(events) && said.contains("service unavailable: llama-server's answer broke off"),
            "{said}"
        );
        let line = router.wait_requests(1).await.remove(0);
        assert_eq!(line["error"], "the answer ended before its last event");
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_on_the_last_event_has_had_the_whole_answer() {
    let events = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"timings\":{\"cache_n\":5,\"prompt_n\":2,\"predicted_n\":1}}\n\ndata: [DONE]\n\n";
    let chunk = format!("{:x}\r\n{events}\r\n", events.len());
    // The end of the body never comes.
    let upstream = Lingering::start(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"
    ))
    .await;
    let router = Router::in_front_of(&upstream).start().await;
    let mut stream = opened(turn(&router, CHAT, "s", &streamed("a"))).await;
    stream.read_until("[DONE]\n\n").await;
    drop(stream);
    let line = router.wait_requests(1).await.remove(0);
    assert_eq!((&line["status"], &line["error"]), (&200.into(), &serde_json::Value::Null), "{line}");
    assert_eq!((&line["prompt_computed"], &line["prompt_cached"]), (&2.into(), &5.into()));
}

#[tokio::test]
async fn a_server_that_goes_away_after_its_last_word_has_broken_nothing_off() {
    let events = "data: {}\n\ndata: [DONE]\n\n";
    let upstream = RawUpstream::start(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{events}\r\n",
        events.len()
    ))
    .await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let answer = opened(turn(&router, CHAT, "s", &streamed("a"))).await.finish().await.expect("a clean end");
    assert_eq!(answer.text(), events);
    let line = router.wait_requests(1).await.remove(0);
    assert_eq!((&line["status"], &line["error"]), (&200.into(), &serde_json::Value::Null), "{line}");
}

#[tokio::test]
async fn a_stream_that_told_its_length_and_breaks_off_ends_with_a_whole_error() {
    let upstream = RawUpstream::start(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 30\r\n\r\ndata: {\"a\":",
    )
    .await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let answer = opened(turn(&router, CHAT, "s", &streamed("a"))).await.finish().await.expect("a clean end");
    let text = answer.text();
    let error = text.strip_prefix("data: {\"a\":\n\ndata: ").unwrap_or_else(|| panic!("{text}"));
    let error: serde_json::Value = serde_json::from_str(error.trim_end()).expect("a whole event");
    assert_eq!(error["error"]["code"], 503, "{error}");
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_for_http_1_0_too() {
    let upstream = RawUpstream::start(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 30\r\n\r\ndata: 1\n\n",
    )
    .await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let body = format!("{{{}}}", streamed("a"));
    let mut client = session_slot_tests::client::RawConnection::open(&router.url()).await;
    client.send(format!("POST {CHAT} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
    let head = client.read_until("\r\n\r\n").await.to_ascii_lowercase();
    assert!(!head.contains("content-length") && !head.contains("chunked"), "{head}");
    client.read_until("data: 1\n\ndata: {\"error\":").await;
}

#[tokio::test]
async fn an_answer_that_something_may_be_added_to_is_not_asked_for_compressed() {
    let upstream = RawUpstream::start("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    for members in [streamed("a"), r#""messages":[]"#.to_owned()] {
        let request = turn(&router, CHAT, "s", &members).header("accept-encoding", "gzip");
        session_slot_tests::client::send(request).await;
    }
    let seen = upstream.seen().into_iter().map(|request| String::from_utf8_lossy(&request).contains("gzip"));
    assert_eq!(seen.collect::<Vec<_>>(), [false, true]);
}

/// A server that says what it is given and then neither goes on nor hangs up.
struct Lingering;

impl Lingering {
    async fn start(answer: String) -> String {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = Arc::clone(&answer);
                tokio::spawn(async move {
                    let mut request = vec![0; 64 << 10];
                    while let Ok(1..) = stream.read(&mut request).await {
                        let is_turn = request.starts_with(b"POST");
                        let missing = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
                        let said = if is_turn { answer.as_str() } else { missing };
                        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, said.as_bytes()).await;
                    }
                });
            }
        });
        format!("http://{address}")
    }
}

#[tokio::test]
async fn a_conversation_id_is_the_sessions_own() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut seen = Vec::new();
    for session in ["a", "b", "a"] {
        let request = turn(&router, CHAT, session, r#""messages":[]"#).header("x-conversation-id", "c1");
        session_slot_tests::client::send(request).await;
        let received = fake.received().into_iter().rfind(|one| one.takes_slot).expect("a turn");
        seen.push(received.header("x-conversation-id").expect("the header").to_owned());
    }
    assert!(seen[0] == seen[2] && seen[0] != seen[1] && seen[0].ends_with("-c1"), "{seen:?}");
    let plain = session_slot_tests::client::chat_body(None, "a").to_string();
    let request = session_slot_tests::Outgoing::post(format!("{}{CHAT}", router.url()), plain);
    session_slot_tests::client::send(request.header("x-conversation-id", "c1")).await;
    let received = fake.received().into_iter().rfind(|one| one.takes_slot).expect("a turn");
    assert_eq!(received.header("x-conversation-id"), Some("c1"));
}

#[tokio::test]
async fn a_stream_is_ended_by_its_conversation_id() {
    let upstream = RawUpstream::start("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request =
        session_slot_tests::Outgoing::new("DELETE", format!("{}/v1/stream?conv_id=c1", router.url()));
    session_slot_tests::client::send(request.header("x-agent-session-id", "s")).await;
    let first = String::from_utf8_lossy(&upstream.first().await).into_owned();
    assert!(first.starts_with("DELETE /v1/stream?conv_id=") && first.contains("-c1 HTTP/1.1"), "{first}");
}
