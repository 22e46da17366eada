//! Sends one request and times its answer; reads the server's own token counter.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::answer::{Accounting, Reader};
use crate::conversation::Route;

/// Where routers look for a session that don't read bodies.
pub const SESSION_HEADER: &str = "x-session-id";

/// A client for one base URL.
#[derive(Clone, Debug)]
pub struct Client {
    http: Http<HttpConnector, Full<Bytes>>,
    base: String,
    limit: Duration,
}

/// A turn that succeeded.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The assistant's text.
    pub text: String,
    /// Prompt tokens, as the response counts them.
    pub accounting: Accounting,
    /// Time to the first token.
    pub first_token: Duration,
}

impl Client {
    /// `limit` bounds a request from sending to its last byte: a request that hangs is a failure, not a long wait.
    pub fn new(base: &str, limit: Duration) -> Self {
        let base = base.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        // A new connection for each request: llama-server closes one after a streamed answer although it announced
        // `Keep-Alive`, and a request sent on it before the close is noticed is lost.
        let http = Http::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
        Self { http, base, limit }
    }

    /// Sends a streamed request, with `session` in a header if there is one. The error says in a few words what kind of
    /// failure it was.
    pub async fn turn(&self, route: Route, body: String, session: Option<&str>) -> Result<Turn, String> {
        match tokio::time::timeout(self.limit, self.stream(route, body, session)).await {
            Ok(result) => result,
            Err(_) => Err("no end within the time limit".to_owned()),
        }
    }

    async fn stream(&self, route: Route, body: String, session: Option<&str>) -> Result<Turn, String> {
        let mut request = Request::post(format!("{}{}", self.base, route.path()))
            .header("content-type", "application/json");
        if let Some(session) = session {
            request = request.header(SESSION_HEADER, session);
        }
        let request = request.body(Full::from(body)).map_err(|error| format!("bad URL: {error}"))?;
        let begun = Instant::now();
        let response = self.http.request(request).await.map_err(no_answer)?;
        if response.status() != 200 {
            return Err(format!("status {}", response.status().as_u16()));
        }
        let (reader, first_token) = read(route, response, begun).await?;
        let answer = reader.finish();
        match (answer.error, answer.finished, answer.accounting) {
            (Some(error), ..) => Err(format!("error frame: {error}")),
            (None, false, _) => Err("cut stream".to_owned()),
            (None, true, None) => Err("no token counts in the answer".to_owned()),
            (None, true, Some(accounting)) => Ok(Turn { text: answer.text, accounting, first_token }),
        }
    }

    /// Asks for something without sending anything; an error unless it is answered with 200.
    pub async fn post_nothing(&self, path: &str) -> Result<(), String> {
        let url = format!("{}{path}", self.base);
        let request =
            Request::post(&url).body(Full::default()).map_err(|error| format!("bad URL {url}: {error}"))?;
        let response = self.http.request(request).await.map_err(|error| format!("{url}: {error}"))?;
        match response.status().as_u16() {
            200 => Ok(()),
            status => Err(format!("{url}: status {status}")),
        }
    }

    /// Whether GET `path` is answered with 200 by now.
    pub async fn is_ready(&self, path: &str) -> bool {
        let Ok(uri) = format!("{}{path}", self.base).parse() else { return false };
        self.http.get(uri).await.is_ok_and(|response| response.status() == 200)
    }

    /// Prompt tokens this llama-server has computed since its start, by its own counter.
    pub async fn prompt_tokens_total(&self) -> Result<u64, String> {
        let url = format!("{}/metrics", self.base);
        let uri = url.parse().map_err(|error| format!("bad URL {url}: {error}"))?;
        let response = self.http.get(uri).await.map_err(|error| format!("{url}: {error}"))?;
        let body = response.into_body().collect().await.map_err(|error| format!("{url}: {error}"))?;
        counter(&String::from_utf8_lossy(&body.to_bytes()), "llamacpp:prompt_tokens_total").ok_or_else(|| {
            format!("{url} has no llamacpp:prompt_tokens_total: start llama-server with --metrics")
        })
    }
}

async fn read<B>(route: Route, response: Response<B>, begun: Instant) -> Result<(Reader, Duration), String>
where
    B: http_body_util::BodyExt<Data = Bytes> + Unpin,
{
    let mut body = response.into_body();
    let mut reader = Reader::new(route);
    let mut first_token = None;
    while let Some(frame) = body.frame().await {
        // An aborted connection is a cut stream, whatever came before.
        let frame = frame.map_err(|_| "cut stream".to_owned())?;
        if let Some(data) = frame.data_ref() {
            reader.feed(data);
            if first_token.is_none() && reader.has_begun() {
                first_token = Some(begun.elapsed());
            }
        }
    }
    Ok((reader, first_token.unwrap_or_else(|| begun.elapsed())))
}

/// hyper's own message hides the cause in its sources.
fn no_answer(error: hyper_util::client::legacy::Error) -> String {
    let mut message = "no answer".to_owned();
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    message
}

/// The value of a counter in Prometheus' text format.
fn counter(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    // llama-server prints large counters as floats (1.2e+06).
    value.trim().parse::<f64>().ok().map(|value| value as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "# TYPE a_total counter\na_total_seconds 3\na_total 1.5e+06\n";
        assert_eq!(counter(text, "a_total"), Some(1_500_000));
        assert_eq!(counter(text, "b_total"), None);
    }
}
