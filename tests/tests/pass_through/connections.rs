//! Connections of all ages, on both sides.
use std::time::Duration;

use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use session_slot_tests::client::{self, RawConnection};
use session_slot_tests::fake::KeepAlive;
use session_slot_tests::{FakeLlama, Options, RawUpstream, Router};
use tokio::net::TcpStream;

use super::head;

#[tokio::test]
async fn a_client_of_http_1_0_is_served_and_its_connection_closed() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let answer = RawConnection::exchange(&router.url(), "GET /v1/models HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert!(answer.contains("\"object\":\"list\""), "{answer}");
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_a_stream_that_ends_with_its_connection() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let body = r#"{"prompt":"hi","stream":true,"agent_session_id":"a"}"#;
    let request = format!("POST /completion HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    assert!(!answer.contains("transfer-encoding"), "{answer}");
    assert!(answer.contains("timings") && answer.ends_with("\n\n"), "{answer}");
}

#[tokio::test]
async fn the_server_is_spoken_to_in_http_1_1_whatever_the_client_speaks() {
    let upstream = RawUpstream::start("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    RawConnection::exchange(&router.url(), "GET /x HTTP/1.0\r\n\r\n").await;
    assert_eq!(head(&upstream.first().await)[0], "GET /x HTTP/1.1");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let body = r#"{"prompt":"hi","agent_session_id":"a","n_predict":1}"#;
    let get = |number: u8| format!("GET /echo?n={number} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let post = format!(
        "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = RawConnection::open(&router.url()).await;
    connection.send([get(1), post, get(2), get(3)].concat()).await;
    let read = connection.read_until("n=3").await;
    let place = |wanted: &str| read.find(wanted).unwrap_or_else(|| panic!("no {wanted} in {read}"));
    let places = [place("n=1"), place("timings"), place("n=2"), place("n=3")];
    assert!(places.is_sorted(), "{read}");
}

#[tokio::test]
async fn a_client_connection_is_used_again_and_again_beyond_what_the_server_allows() {
    // The server closes each connection with its hundredth answer.
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let stream = TcpStream::connect(router.address()).await.expect("the router should listen");
    let connection = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connection.expect("the router should speak HTTP");
    tokio::spawn(connection);
    for number in 0..250 {
        let request = Request::get(format!("/echo?n={number}")).header(header::HOST, "127.0.0.1");
        let request = request.body(Empty::<&[u8]>::new()).expect("the request is well-formed");
        sender.ready().await.expect("the connection should stay open");
        let answer = sender.send_request(request).await.expect("an answer should come");
        assert_eq!(answer.status(), 200, "request {number}");
        let body = answer.into_body().collect().await.expect("the body should be whole").to_bytes();
        assert!(String::from_utf8_lossy(&body).contains(&format!("n={number}\"")));
    }
}

#[tokio::test]
async fn turns_of_a_session_go_on_beyond_what_one_server_connection_allows() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for number in 0..250 {
        let answer = client::chat(&router.url(), "a", "hello").await;
        assert_eq!(answer.status, 200, "request {number}: {}", answer.text());
    }
    assert_eq!(fake.received().len(), 250);
}

#[tokio::test]
async fn connect_is_refused_and_reaches_nothing() {
    let upstream = RawUpstream::start("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let request = "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\nConnection: close\r\n\r\n";
    let answer = RawConnection::exchange(&router.url(), request).await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    assert!(answer.contains("invalid_request_error"), "{answer}");
    assert_eq!(router.wait_requests(1).await[0]["status"], 405);
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_connection_that_the_server_has_closed_meanwhile_is_not_used_again() {
    let keep_alive = Some(KeepAlive { timeout: Duration::from_millis(50), max: 100 });
    let fake = FakeLlama::start(Options { keep_alive, ..Options::default() });
    let router = Router::start(&fake).await;
    for _ in 0..5 {
        assert_eq!(client::chat(&router.url(), "a", "hello").await.status, 200);
        assert_eq!(client::get(format!("{}/v1/models", router.url())).await.status, 200);
        // Nothing is waited for here: it is the idle time itself that is tested.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn no_request_is_lost_though_the_server_closes_after_every_streamed_answer() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let url = format!("{}/v1/chat/completions", router.url());
    for number in 0..40 {
        let body = format!(r#"{{"stream":true,"agent_session_id":"s{}","messages":[]}}"#, number % 3);
        let streamed = client::stream_json(&url, body).await;
        assert_eq!(streamed.status, 200, "request {number}");
        streamed.finish().await.expect("the stream should be whole");
        let models = format!("{}/v1/models", router.url());
        let next = tokio::join!(client::get(&models), client::get(&models), client::get(&models));
        assert_eq!([next.0.status, next.1.status, next.2.status], [200; 3], "after stream {number}");
    }
}
