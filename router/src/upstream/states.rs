//! What a slot holds is primed, saved, restored and erased.
//!
//! Only idle slots under a lease are acted upon: what llama-server puts off because a slot is busy wakes nobody later.
//! An error of type [`UpstreamError`] means that the server may be at it all the same, except
//! [`UpstreamError::Unreachable`].

use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Upstream, UpstreamError};
use crate::slots::SlotId;
use crate::warm::{RestoreError, SaveError, Written};

/// Emptying a slot moves no data.
const ERASE: Duration = Duration::from_secs(60);

/// The answer to a save or a restore.
#[derive(Deserialize)]
struct Done {
    #[serde(alias = "n_saved", alias = "n_restored")]
    tokens: u64,
    #[serde(alias = "n_written", alias = "n_read")]
    bytes: u64,
    #[serde(default)]
    timings: Timings,
}

#[derive(Default, Deserialize)]
struct Timings {
    #[serde(alias = "save_ms", alias = "restore_ms")]
    ms: Option<f64>,
}

impl Done {
    /// `waited` is how long the answer took: with the prompts of others that the server was reading meanwhile, so it is
    /// only asked where the server does not say itself.
    fn read(body: &Bytes, waited: Duration) -> Option<Written> {
        let Self { tokens, bytes, timings } = serde_json::from_slice(body).ok()?;
        let told = timings.ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        Some(Written { tokens, bytes, took: told.unwrap_or(waited) })
    }
}

impl Upstream {
    /// Fills `slot` with a one-word prompt, so that llama-server saves what is in it and, for the next request that
    /// names it, looks for that request's own state in its RAM cache. Whether the server did.
    ///
    /// # Errors
    /// See [`UpstreamError`]. An answer with an error status is none: the request itself will tell.
    pub async fn prime(
        &self,
        slot: SlotId,
        credentials: &[(HeaderName, HeaderValue)],
    ) -> Result<bool, UpstreamError> {
        let body = format!(r#"{{"prompt":"x","n_predict":0,"id_slot":{slot}}}"#);
        let mut request = post(Uri::from_static("/completion"), body);
        request.headers_mut().extend(credentials.iter().cloned());
        Ok(self.read(request).await?.0 == StatusCode::OK)
    }

    /// Whether the server saves and restores at all. It is asked with a name that it refuses, so that no slot is
    /// touched. `None`: no answer, or one that says nothing about it.
    pub async fn can_save(&self) -> Option<bool> {
        let (status, _) = self.act(SlotId(0), "save", Some("/")).await.ok()?;
        match status {
            StatusCode::BAD_REQUEST => Some(true),
            StatusCode::NOT_IMPLEMENTED => Some(false),
            _ => None,
        }
    }

    /// Has `slot` saved into the file `name` of the server's folder.
    ///
    /// # Errors
    /// See [`UpstreamError`]; also if there is no answer within `limit`.
    pub async fn save(
        &self,
        slot: SlotId,
        name: &str,
        limit: Duration,
    ) -> Result<Result<Written, SaveError>, UpstreamError> {
        let begun = Instant::now();
        let (status, body) = self.within(limit, self.act(slot, "save", Some(name))).await?;
        Ok(match status {
            StatusCode::OK => match Done::read(&body, begun.elapsed()) {
                // An empty slot is saved as well.
                Some(written) if written.tokens > 0 => Ok(written),
                _ => Err(SaveError::Failed),
            },
            StatusCode::NOT_IMPLEMENTED => Err(SaveError::Unsupported),
            // "Unable to save slot": the file could not be written to its end.
            StatusCode::INTERNAL_SERVER_ERROR => Err(SaveError::NoRoom),
            _ => Err(SaveError::Failed),
        })
    }

    /// Has `slot` hold what the file `name` of the server's folder says.
    ///
    /// # Errors
    /// See [`UpstreamError`]; also if there is no answer within `limit`.
    pub async fn restore(
        &self,
        slot: SlotId,
        name: &str,
        limit: Duration,
    ) -> Result<Result<Written, RestoreError>, UpstreamError> {
        let begun = Instant::now();
        let (status, body) = self.within(limit, self.act(slot, "restore", Some(name))).await?;
        Ok(match status {
            StatusCode::OK => Done::read(&body, begun.elapsed()).ok_or(RestoreError::Refused),
            StatusCode::NOT_IMPLEMENTED => Err(RestoreError::Unsupported),
            _ => Err(RestoreError::Refused),
        })
    }

    /// Empties `slot`.
    ///
    /// # Errors
    /// See [`UpstreamError`]. An answer with an error status is none: the request that follows will tell.
    pub async fn erase(&self, slot: SlotId) -> Result<(), UpstreamError> {
        self.within(ERASE, self.act(slot, "erase", None)).await.map(drop)
    }

    async fn act(
        &self,
        slot: SlotId,
        action: &str,
        name: Option<&str>,
    ) -> Result<(StatusCode, Bytes), UpstreamError> {
        let uri = Uri::try_from(format!("/slots/{slot}?action={action}")).map_err(http::Error::from)?;
        let body = name.map_or(Value::Object(serde_json::Map::new()), |name| json!({ "filename": name }));
        self.read(post(uri, body.to_string())).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        timeout(limit, answer).await.unwrap_or_else(|_| {
            let reason = format!("a slot's state was not saved or restored within {} s", limit.as_secs());
            Err(UpstreamError::Broken { address: self.address(), reason })
        })
    }
}

fn post(uri: Uri, body: String) -> Request<Body> {
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    request
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::{Args, Config};

    const LIMIT: Duration = Duration::from_secs(60);
    const SLOT: SlotId = SlotId(2);
    const SAVED: &str =
        r#"{"id_slot":2,"filename":"a","n_saved":10,"n_written":99,"timings":{"save_ms":31.3}}"#;
    const RESTORED: &str =
        r#"{"id_slot":2,"filename":"a","n_restored":10,"n_read":99,"timings":{"restore_ms":9.0}}"#;

    /// A server that answers every request with `status` and `body`; with no body it never answers.
    async fn server(status: u16, body: Option<&'static str>) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                // A small request comes in one piece.
                let _ = socket.read(&mut [0; 4096]).await;
                if let Some(body) = body {
                    let head = format!(
                        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
                }
                open.push(socket);
            }
        });
        upstream(&address.to_string())
    }

    fn upstream(address: &str) -> Upstream {
        let args = Args::try_parse_from(["router", "--upstream", &format!("http://{address}")]);
        let config = Config::load(&args.expect("a flag")).expect("a configuration");
        Upstream::new(&config.upstream, None).expect("an address")
    }

    #[tokio::test]
    async fn what_was_saved_and_restored_is_told_in_tokens_bytes_and_the_servers_own_time() {
        let told = |written: Written| (written.tokens, written.bytes, written.took);
        let saved = server(200, Some(SAVED)).await.save(SLOT, "a", LIMIT).await.expect("an answer");
        assert_eq!(saved.map(told), Ok((10, 99, Duration::from_micros(31_300))));
        let restored = server(200, Some(RESTORED)).await.restore(SLOT, "a", LIMIT).await.expect("an answer");
        assert_eq!(restored.map(told), Ok((10, 99, Duration::from_millis(9))));
    }

    #[tokio::test]
    async fn an_empty_slot_and_words_that_are_none_count_as_not_saved() {
        for body in [r#"{"n_saved":0,"n_written":68}"#, "ok"] {
            let saved = server(200, Some(body)).await.save(SLOT, "a", LIMIT).await.expect("an answer");
            assert_eq!(saved, Err(SaveError::Failed), "{body}");
        }
    }

    #[tokio::test]
    async fn each_refusal_is_told_from_the_others() {
        use RestoreError::Refused;
        use SaveError::{Failed, NoRoom};
        for (status, save, restore, can_save) in [
            (501, SaveError::Unsupported, RestoreError::Unsupported, Some(false)),
            (500, NoRoom, Refused, None),
            (400, Failed, Refused, Some(true)),
            (503, Failed, Refused, None),
            (401, Failed, Refused, None),
        ] {
            let server = server(status, Some("{}")).await;
            assert_eq!(server.save(SLOT, "a", LIMIT).await.expect("an answer"), Err(save), "{status}");
            assert_eq!(server.restore(SLOT, "a", LIMIT).await.expect("an answer"), Err(restore), "{status}");
            assert_eq!(server.can_save().await, can_save, "{status}");
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_in_time_may_be_at_it_all_the_same() {
        let server = server(200, None).await;
        let error = server.save(SLOT, "a", Duration::from_millis(1)).await.expect_err("no answer");
        assert!(matches!(error, UpstreamError::Broken { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_at_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let gone = upstream(&listener.local_addr().expect("an address").to_string());
        drop(listener);
        let error = gone.save(SLOT, "a", LIMIT).await.expect_err("no answer");
        assert!(matches!(error, UpstreamError::Unreachable { .. }), "{error}");
    }
}
