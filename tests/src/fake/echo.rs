//! Routes llama-server doesn't have: they show a test what came through a proxy, and how.
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::json;

use super::reply::{Body, Reply, full, json as json_reply, typed};
use super::state::Shared;

/// `/echo`: the request as JSON. Headers are a list of pairs, so that repeated ones are seen.
pub(super) fn described(parts: &Parts, body: &Bytes) -> Reply {
    let headers: Vec<_> = parts
        .headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    json_reply(&json!({
        "method": parts.method.as_str(), "path": parts.uri.path(), "query": parts.uri.query(),
        "headers": headers, "body_length": body.len(), "body": String::from_utf8_lossy(body),
    }))
}

/// `/echo-raw`: the body's bytes, all at once.
pub(super) fn raw(body: Bytes) -> Reply {
    typed("application/octet-stream", full(body))
}

/// `/echo-stream`: the body's bytes as they come, answered while the request is still being sent.
pub(super) fn streamed(body: Incoming) -> Reply {
    typed("application/octet-stream", body.boxed_unsync())
}

/// `/trailers`: chunked, with the trailer `x-tail: end`. hyper only sends trailers to those who
/// say `TE: trailers`.
pub(super) fn with_trailers() -> Reply {
    let mut tail = HeaderMap::new();
    tail.insert("x-tail", HeaderValue::from_static("end"));
    let frames = [Ok(Frame::data(Bytes::from_static(b"body"))), Ok(Frame::trailers(tail))];
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    let mut reply = typed("text/plain", body);
    reply.headers_mut().insert(header::TRAILER, HeaderValue::from_static("x-tail"));
    reply
}

/// `/upgrade`: 101, then every byte comes back.
pub(super) fn upgraded(shared: &Arc<Shared>, upgrade: OnUpgrade) -> Reply {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let run = shared.read(|state| state.run);
        tokio::select! {
            () = echo_bytes(upgrade) => {}
            () = shared.run_over(run) => {}
        }
    });
    let mut reply: Response<Body> = Response::new(full(Bytes::new()));
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("echo"));
    reply
}

async fn echo_bytes(upgrade: OnUpgrade) {
    if let Ok(connection) = upgrade.await {
        let (mut read, mut write) = tokio::io::split(TokioIo::new(connection));
        // It ends when the other side does, well or badly: both are fine.
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = tokio::io::AsyncWriteExt::shutdown(&mut write).await;
    }
}

/// `/sse-gate`: says what the test has released so far, and goes on as it releases more.
pub(super) fn gated_events(shared: &Arc<Shared>) -> Reply {
    let script = shared.script.subscribe();
    let frames = stream::unfold((script, 0), |(mut script, told)| async move {
        let event = {
            let news = script.wait_for(|script| script.ended || script.events.len() > told);
            news.await.ok()?.events.get(told).cloned()?
        };
        Some((Ok(Frame::data(Bytes::from(event))), (script, told + 1)))
    });
    typed("text/event-stream", StreamBody::new(frames).boxed_unsync())
}
