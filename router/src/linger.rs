//! A request body that is read to its end even when nobody wants the rest. Were the connection closed while a client
//! still sends, many clients would report a broken pipe and never read why they were refused.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::EXPECT;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::timeout;

/// So long, whoever sends may go on sending for nothing.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Lingering {
    /// `None` once it has ended.
    body: Option<Body>,
}

/// `body`, whose rest is read and forgotten when it is dropped early.
pub(crate) fn lingering(headers: &HeaderMap, body: Body) -> Body {
    // Reading on would tell a client to continue that has asked first; it waits for the answer.
    if http_body::Body::is_end_stream(&body) || headers.contains_key(EXPECT) {
        return body;
    }
    Body::new(Lingering { body: Some(body) })
}

impl http_body::Body for Lingering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            this.body = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        let rest = self.body.take().filter(|body| !http_body::Body::is_end_stream(body));
        if let Some(mut rest) = rest {
            tokio::spawn(timeout(PATIENCE, async move { while let Some(Ok(_)) = rest.frame().await {} }));
        }
    }
}
