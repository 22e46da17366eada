//! Answers as a server writes them, on a connection within this process.

use axum::body::Body as AxumBody;
use http::Request;
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

const ERROR: &str = r#"{"code":500,"message":"Context size has been exceeded.","type":"server_error"}"#;

/// An answer of which the head has come, and the server's end of its connection.
pub(crate) async fn answer(bytes: &str) -> (Response<Incoming>, DuplexStream) {
    let (ours, mut server) = duplex(4 << 20);
    let (mut sender, connection) = http1::handshake(TokioIo::new(ours)).await.expect("a connection");
    tokio::spawn(connection);
    let asked = tokio::spawn(async move { sender.send_request(Request::new(AxumBody::empty())).await });
    server.read_u8().await.expect("a request");
    server.write_all(bytes.as_bytes()).await.expect("room for the answer");
    (asked.await.expect("no panic").expect("an answer"), server)
}

/// What is said of an answer that is written whole, and then the connection closed.
async fn verdict(bytes: &str) -> Verdict {
    let (answer, server) = answer(bytes).await;
    drop(server);
    look(answer).await.0
}

pub(crate) fn stream(events: &str) -> String {
    let length = events.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{events}\r\n"
    )
}

fn whole(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn a_full_memory_is_seen_as_a_status_and_as_the_first_event_of_a_stream() {
    for bytes in [
        whole("500 Internal Server Error", &format!("{{\"error\":{ERROR}}}")),
        stream(&format!("data: {{\"error\":{ERROR}}}\n\n")),
        stream(&format!("event: error\ndata: {ERROR}\n\n")),
    ] {
        assert_eq!(verdict(&bytes).await, Verdict::Full, "{bytes}");
    }
}

#[tokio::test]
async fn the_same_words_in_an_error_of_the_client_or_out_of_a_model_are_no_full_memory() {
    let words = "Context size has been exceeded.";
    let bad = format!(r#"{{"error":{{"code":400,"message":"{words}","type":"invalid_request_error"}}}}"#);
    assert_eq!(verdict(&whole("400 Bad Request", &bad)).await, Verdict::Declined);
    let good = Verdict::Good { usage: None };
    assert_eq!(verdict(&whole("200 OK", &format!("{{\"content\":\"{words}\"}}"))).await, good);
    assert_eq!(verdict(&stream(&format!("data: {{\"content\":\"{words}\"}}\n\n"))).await, good);
}

#[tokio::test]
async fn an_answer_that_breaks_off_before_it_has_begun_is_broken() {
    for bytes in [
        stream(""),
        stream(": waiting\n\ndata: {\"choi"),
        stream("data: {\"choi") + "0\r\n\r\n",
        whole("200 OK", "{}").replace("Length: 2", "Length: 9"),
        whole("503 Service Unavailable", "{}").replace("Length: 2", "Length: 9"),
        whole("502 Bad Gateway", "<html>"),
    ] {
        assert!(matches!(verdict(&bytes).await, Verdict::Broken(_)), "{bytes}");
    }
}

#[tokio::test]
async fn a_server_that_loads_its_model_is_not_ready_and_one_that_cannot_do_it_is_not_broken() {
    let loading = r#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#;
    assert_eq!(verdict(&whole("503 Service Unavailable", loading)).await, Verdict::NotReady);
    assert_eq!(verdict(&whole("501 Not Implemented", "{}")).await, Verdict::Declined);
}

#[tokio::test]
async fn the_usage_of_a_short_answer_is_known_before_its_head_goes_out() {
    let body = r#"{"content":"a","timings":{"cache_n":7,"prompt_n":2,"predicted_n":3}}"#;
    let wanted = Usage { computed: 2, cached: 7, generated: 3, reading: None };
    let Verdict::Good { usage } = verdict(&whole("200 OK", body)).await else { panic!("a good answer") };
    assert_eq!(usage.map(|usage| Usage { reading: None, ..usage }), Some(wanted));
}

#[tokio::test]
async fn every_byte_that_was_looked_at_comes_out_again_with_the_rest_behind_it() {
    let (answer, mut server) = answer(&stream(": a\n\ndata: 1\n\ndata: 2\n\nda")).await;
    let (verdict, answer) = look(answer).await;
    assert_eq!(verdict, Verdict::Good { usage: None });
    assert!(!answer.body().is_end_stream());
    server.write_all(b"7\r\nta: 3\n\n\r\n0\r\n\r\n").await.expect("room");
    let body = answer.into_body().collect().await.expect("a whole answer").to_bytes();
    assert_eq!(body, ": a\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n");
}

#[tokio::test]
async fn an_answer_with_a_length_keeps_it() {
    let (answer, _server) = answer(&whole("200 OK", "{\"a\":1}")).await;
    let (_, answer) = look(answer).await;
    assert_eq!((answer.body().size_hint().exact(), answer.body().is_end_stream()), (Some(7), false));
    assert_eq!(answer.into_body().collect().await.expect("a whole answer").to_bytes(), "{\"a\":1}");
}

#[tokio::test]
async fn how_an_answer_broke_off_is_not_lost() {
    let (answer, server) = answer(&stream("data: {\"choi")).await;
    drop(server);
    let (_, answer) = look(answer).await;
    let mut body = answer.into_body();
    let first = body.frame().await.expect("a frame").expect("what came").into_data().expect("data");
    assert_eq!(first, "data: {\"choi");
    assert!(body.frame().await.expect("the end").is_err());
}

#[tokio::test]
async fn a_long_answer_and_a_compressed_one_are_not_waited_for() {
    let long = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n\r\n{";
    let packed = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n";
    for bytes in [long, packed] {
        let (answer, _server) = answer(bytes).await;
        assert_eq!(look(answer).await.0, Verdict::Good { usage: None }, "{bytes}");
    }
}

#[tokio::test]
async fn a_stream_that_says_nothing_but_comments_is_waited_for_and_then_passes() {
    let (answer, mut server) = answer(&stream(": waiting\n\n")).await;
    let mut looking = Box::pin(look(answer));
    tokio::select! {
        biased;
        _ = &mut looking => panic!("nothing has been said yet"),
        () = tokio::task::yield_now() => {}
    }
    let sign = Dialect::Responses.sign();
    let events = [&sign[..], b"data: {\"error\":", ERROR.as_bytes(), b"}\n\n"].concat();
    let chunk = [format!("{:x}\r\n", events.len()).as_bytes(), &events, b"\r\n"].concat();
    server.write_all(&chunk).await.expect("room");
    assert_eq!(looking.await.0, Verdict::Full);
}
