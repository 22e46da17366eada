//! An answer, complete or read piece by piece.
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

use super::Connection;

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The trailers, if any came.
    pub trailers: Option<HeaderMap>,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in the answer: {}", self.text()))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A header's value, if there is one and it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The cached prompt tokens told in `timings`.
    #[must_use]
    pub fn cache_n(&self) -> Option<u64> {
        self.json()["timings"]["cache_n"].as_u64()
    }

    /// The computed prompt tokens told in `timings`.
    #[must_use]
    pub fn prompt_n(&self) -> Option<u64> {
        self.json()["timings"]["prompt_n"].as_u64()
    }
}

/// An answer whose body is read piece by piece. Dropping it closes the connection at once.
#[derive(Debug)]
pub struct Streaming {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    pub(super) body: Incoming,
    pub(super) trailers: Option<HeaderMap>,
    pub(super) _connection: Connection,
}

impl Streaming {
    /// The next piece of the body as it came, `None` at its end, or how it broke off.
    pub async fn next_chunk(&mut self) -> Option<Result<Bytes, String>> {
        loop {
            match self.body.frame().await? {
                Err(error) => return Some(Err(error.to_string())),
                Ok(frame) => match frame.into_data() {
                    Ok(data) => return Some(Ok(data)),
                    Err(frame) => self.trailers = frame.into_trailers().ok(),
                },
            }
        }
    }

    /// Reads on until the text has come by; returns all that was read.
    ///
    /// # Panics
    /// If the body ends before.
    pub async fn read_until(&mut self, wanted: &str) -> String {
        let mut read = Vec::new();
        loop {
            let chunk = self.next_chunk().await;
            let so_far = String::from_utf8_lossy(&read).into_owned();
            let chunk = chunk.unwrap_or_else(|| panic!("no {wanted:?} in {so_far:?}"));
            read.extend(chunk.unwrap_or_else(|error| panic!("{error} after {so_far:?}")));
            let read = String::from_utf8_lossy(&read);
            if read.contains(wanted) {
                return read.into_owned();
            }
        }
    }

    /// The rest of the answer.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn finish(mut self) -> Result<Answer, String> {
        let mut body = Vec::new();
        while let Some(chunk) = self.next_chunk().await {
            body.extend(chunk?);
        }
        let Self { status, headers, trailers, .. } = self;
        Ok(Answer { status, headers, body: body.into(), trailers })
    }
}
