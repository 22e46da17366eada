//! Request bodies, whatever their framing and content.
use session_slot_tests::client::{self, RawConnection};
use session_slot_tests::{FakeLlama, Options, Outgoing, RawUpstream, Router};

use super::{arrived, body, head};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

/// `size` bytes that don't compress and don't repeat soon.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..size).map(|_| next()).collect()
}

/// Sends a body in chunks of the given pieces.
fn chunked(line: &str, pieces: &[&[u8]]) -> Vec<u8> {
    let head = format!(
        "{line}\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    let mut request = head.into_bytes();
    for piece in pieces {
        request.extend(format!("{:x}\r\n", piece.len()).bytes().chain(piece.iter().copied()));
        request.extend(b"\r\n");
    }
    request.extend(b"0\r\n\r\n");
    request
}

#[tokio::test]
async fn a_body_with_a_length_arrives_with_that_length() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    client::send(Outgoing::new("PUT", format!("{}/files", router.url())).body(noise(1000))).await;
    let request = upstream.first().await;
    assert!(head(&request).contains(&"content-length: 1000".to_owned()), "{:?}", head(&request));
    assert_eq!(body(&request), noise(1000));
}

#[tokio::test]
async fn a_chunked_body_arrives_whatever_the_method() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for method in ["POST", "PUT", "DELETE", "GET", "BREW"] {
        let request = chunked(&format!("{method} /echo HTTP/1.1"), &[b"one ", b"two"]);
        let answer = RawConnection::exchange(&router.url(), request).await;
        assert!(answer.contains(r#""body":"one two""#), "{method}: {answer}");
    }
}

#[tokio::test]
async fn a_chunked_body_of_a_session_arrives_with_a_length_and_without_the_members() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let pieces: [&[u8]; 3] = [br#"{"prompt":"hi","agent_ses"#, br#"sion_id":"a","n_pre"#, br#"dict":1}"#];
    let request = chunked("POST /completion HTTP/1.1", &pieces);
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let received = &fake.received()[0];
    assert_eq!(received.body.as_ref(), br#"{"prompt":"hi","n_predict":1,"id_slot":0}"#);
    assert_eq!(received.header("content-length"), Some("41"));
    assert_eq!(received.header("transfer-encoding"), None);
}

#[tokio::test]
async fn a_request_without_body_arrives_without_one() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    client::get(format!("{}/v1/models", router.url())).await;
    let request = upstream.first().await;
    let framing = |line: &String| line.starts_with("content-length") || line.starts_with("transfer-encoding");
    assert!(!head(&request).iter().any(framing), "{:?}", head(&request));
    assert!(body(&request).is_empty());
}

#[tokio::test]
async fn an_empty_post_arrives_with_the_length_0_on_every_kind_of_route() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for path in ["/echo", "/completion", "/v1/messages"] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        RawConnection::exchange(&router.url(), request).await;
        let received = arrived(&fake).pop().expect("it should have arrived");
        assert!(received.body.is_empty(), "{path}");
        assert_eq!(received.header("content-length"), Some("0"), "{path}");
    }
}

#[tokio::test]
async fn a_client_that_waits_for_100_continue_is_told_to_go_on() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for path in ["/echo-raw", "/completion"] {
        let mut connection = RawConnection::open(&router.url()).await;
        connection
            .send(format!(
                "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n"
            ))
            .await;
        assert_eq!(connection.read_until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n", "{path}");
        connection.send(r#"{"prompt":"hi"}"#).await;
        assert!(connection.read_until("\r\n").await.starts_with("HTTP/1.1 200"), "{path}");
        let last = arrived(&fake).pop().expect("it should have arrived");
        assert_eq!(last.body.as_ref(), br#"{"prompt":"hi"}"#);
        assert_eq!(last.header("expect"), None);
    }
}

#[tokio::test]
async fn an_anonymous_body_arrives_byte_for_byte_whatever_is_in_it() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let bodies: [&[u8]; 14] = [
        &every_byte,
        b"{\"prompt\":\"\xff\xfe\"}",
        b"{\"prompt\":",
        b"",
        b" \r\n\t",
        b"null",
        b"[{\"agent_session_id\":\"a\"}]",
        b"\xef\xbb\xbf{\"prompt\":\"hi\"}",
        b"{ \"prompt\" : \"h\\u0069\" , \"x\":1.0e+2,\"x\":10000000000000000000000,\"y\":{\"agent_session_id\":\"a\"} }\n",
        b"{\"prompt\":\"hi\",\"id_slot\":2}",
        b"{\"prompt\":\"hi\",\"id_slot\":\"2\"}",
        b"{\"prompt\":\"hi\"} trailing {\"agent_session_id\":\"a\"}",
        b"{'agent_session_id':'a'}",
        b"--x\r\nContent-Disposition: form-data; name=\"agent_session_id\"\r\n\r\na\r\n--x--\r\n",
    ];
    for body in bodies {
        client::send(Outgoing::post(format!("{}/completion", router.url()), body.to_vec())).await;
        let received = fake.received().pop().expect("it should have arrived");
        assert_eq!(received.body, body, "{}", String::from_utf8_lossy(body));
        assert_eq!(received.header("content-type"), Some("application/json"));
    }
}

#[tokio::test]
async fn large_bodies_cross_both_ways_unchanged() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for size in [1 << 20, 8 << 20] {
        let request = Outgoing::new("POST", format!("{}/echo-raw", router.url())).body(noise(size));
        let answer = client::send(request).await;
        assert_eq!(answer.status, 200);
        assert!(answer.body == noise(size), "{size} bytes came back changed");
    }
}

#[tokio::test]
async fn a_large_body_of_a_session_loses_its_members_and_nothing_else() {
    let fake = FakeLlama::start(Options::default().slots(1));
    let router = Router::start(&fake).await;
    for size in [1 << 20, 8 << 20] {
        let (start, end) = (r#"{"prompt":"hi","agent_session_id":"a","x":""#, r#"","id_slot":7}"#);
        let filling = "x".repeat(size);
        let request =
            Outgoing::post(format!("{}/completion", router.url()), format!("{start}{filling}{end}"));
        assert_eq!(client::send(request).await.status, 200);
        let received = fake.received().pop().expect("it should have arrived");
        let expected = format!(r#"{{"prompt":"hi","x":"{filling}","id_slot":0}}"#);
        assert!(received.body == expected.as_bytes(), "{size} bytes arrived changed");
    }
}

#[tokio::test]
async fn a_large_chunked_body_arrives_unchanged() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let bytes = noise(8 << 20);
    let pieces: Vec<&[u8]> = bytes.chunks(100_000).collect();
    let request = chunked("POST /completion HTTP/1.1", &pieces);
    RawConnection::exchange(&router.url(), request).await;
    let received = fake.received().pop().expect("it should have arrived");
    assert!(received.body == bytes, "it arrived changed");
}

#[tokio::test]
async fn request_trailers_arrive() {
    let upstream = RawUpstream::start(OK).await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request = "PUT /files HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\
        Connection: close\r\n\r\n4\r\nbody\r\n0\r\nx-sum: 42\r\n\r\n";
    RawConnection::exchange(&router.url(), request).await;
    let request = upstream.first().await;
    let text = String::from_utf8_lossy(body(&request)).into_owned();
    assert_eq!(text.to_ascii_lowercase(), "4\r\nbody\r\n0\r\nx-sum: 42\r\n\r\n");
}

#[tokio::test]
async fn a_request_body_flows_while_the_answer_already_comes_back() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let mut connection = RawConnection::open(&router.url()).await;
    let head = "POST /echo-stream HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.send(head).await;
    for piece in ["first", "second", "third"] {
        connection.send(format!("{:x}\r\n{piece}\r\n", piece.len())).await;
        connection.read_until(piece).await;
    }
    connection.send("0\r\n\r\n").await;
    connection.read_until("0\r\n\r\n").await;
}
