//! How an answer begins: looked at before its client gets any of it, so that it can still be asked of another server.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::alive::is_stream;
use crate::dialect::Dialect;
use crate::fullness::{Fault, first_event};
use crate::headers;
use crate::usage::{Usage, UsageScanner};

/// How far an error, or what is before a stream's first event, is read; in bytes.
const TOLD_MAX: usize = 64 << 10;
/// An answer of at most so many bytes is read whole, so that what it says of its usage is known before its head goes out.
const WHOLE_MAX: usize = 1 << 20;

/// What an answer's beginning says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is what the client has asked for.
    Good {
        /// As far as what has been read tells it. Of a stream that is little: it generates yet.
        usage: Option<Usage>,
    },
    /// The server's memory is full.
    Full,
    /// The server is broken, and how.
    Broken(String),
    /// The server is broken, and how, or the request is at fault.
    Doubtful(String),
    /// The server loads its model, or is about to stop.
    NotReady,
    /// An error of the client's, or the server has too much to do.
    Declined,
}

/// A body of which something may have been read: that comes first, then the rest.
#[derive(Debug)]
pub(crate) struct Begun {
    read: VecDeque<Result<Frame<Bytes>, hyper::Error>>,
    rest: Incoming,
}

impl From<Incoming> for Begun {
    fn from(rest: Incoming) -> Self {
        Self { read: VecDeque::new(), rest }
    }
}

/// Reads as much of an answer as is needed to tell whether it is one.
pub(crate) async fn look(answer: Response<Incoming>) -> (Verdict, Response<Begun>) {
    let (parts, rest) = answer.into_parts();
    let mut begun = Begun::from(rest);
    let verdict = begun.judge(&parts).await;
    (verdict, Response::from_parts(parts, begun))
}

impl Begun {
    async fn judge(&mut self, parts: &Parts) -> Verdict {
        if parts.status.is_client_error() {
            return Verdict::Declined;
        }
        let compressed = headers::is_compressed(&parts.headers);
        if parts.status.is_server_error() {
            return if compressed { failed(parts.status, b"") } else { self.judge_error(parts.status).await };
        }
        if is_stream(parts.status, &parts.headers) {
            return self.judge_stream().await;
        }
        match length(&parts.headers) {
            Some(length) if length <= WHOLE_MAX && !compressed => self.judge_whole().await,
            _ => Verdict::Good { usage: None },
        }
    }

    async fn judge_error(&mut self, status: StatusCode) -> Verdict {
        let mut body = Vec::new();
        while body.len() < TOLD_MAX && self.read_on(&mut body).await {}
        self.broken().unwrap_or_else(|| failed(status, &body))
    }

    async fn judge_whole(&mut self) -> Verdict {
        let mut body = Vec::new();
        while self.read_on(&mut body).await {}
        self.broken().unwrap_or_else(|| Verdict::Good { usage: usage(&body) })
    }

    async fn judge_stream(&mut self) -> Verdict {
        let mut text = Vec::new();
        let idle = Dialect::Responses.sign();
        while text.len() < TOLD_MAX {
            let goes_on = self.read_on(&mut text).await;
            if let Some(event) = first_event(&text, &idle) {
                let fault = Fault::of_event(event);
                return fault.map_or_else(
                    || Verdict::Good { usage: usage(&text) },
                    |fault| told(fault, "an error in its stream"),
                );
            }
            if !goes_on {
                let ended = || Verdict::Broken("the answer ended before its first event".to_owned());
                return self.broken().unwrap_or_else(ended);
            }
        }
        Verdict::Good { usage: None }
    }

    /// Reads the next frame and adds its data to `text`. False: there is none, or the connection broke.
    async fn read_on(&mut self, text: &mut Vec<u8>) -> bool {
        let Some(frame) = self.rest.frame().await else { return false };
        if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
            text.extend_from_slice(data);
        }
        let whole = frame.is_ok();
        self.read.push_back(frame);
        whole
    }

    /// The connection broke while it was read.
    fn broken(&self) -> Option<Verdict> {
        let error = self.read.back()?.as_ref().err()?;
        Some(Verdict::Broken(format!("the answer broke off: {error}")))
    }
}

fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn usage(text: &[u8]) -> Option<Usage> {
    let mut scanner = UsageScanner::default();
    scanner.feed(text);
    scanner.finish()
}

fn failed(status: StatusCode, body: &[u8]) -> Verdict {
    told(Fault::of_answer(status.as_u16(), body), &status.to_string())
}

fn told(fault: Fault, how: &str) -> Verdict {
    match fault {
        Fault::Full => Verdict::Full,
        Fault::Broken => Verdict::Broken(format!("it answered with {how}")),
        Fault::Doubtful => Verdict::Doubtful(format!("it answered with {how}")),
        Fault::NotReady => Verdict::NotReady,
        Fault::Declined => Verdict::Declined,
    }
}

impl Body for Begun {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        match this.read.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut this.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let data = self.read.iter().filter_map(|frame| frame.as_ref().ok()?.data_ref());
        let read: u64 = data.map(|data| data.len() as u64).sum();
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + read);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + read);
        }
        hint
    }
}

#[cfg(test)]
pub(crate) mod tests;
