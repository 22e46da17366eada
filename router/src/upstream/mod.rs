//! The HTTP client to llama-server.
//!
//! * here: forward a request;
//! * `info`: what the server says of its slots and of itself;
//! * `states`: what a slot holds is primed, saved, restored and erased.

mod info;
mod listening;
mod states;

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use thiserror::Error;

pub use info::{Health, Props};

use crate::config::{Secret, Upstream as Address};

/// llama-server closes a connection after five idle seconds; one that is given up earlier is never found closed.
const IDLE: Duration = Duration::from_secs(3);
/// After so long without traffic the other host is asked for a sign of life, so often, and given up after so many in vain:
/// a host that vanished is noticed within two minutes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const KEEP_ALIVE_AGAIN: Duration = Duration::from_secs(15);
const KEEP_ALIVE_TRIES: u32 = 4;
const CONNECT: Duration = Duration::from_secs(5);
/// `/slots` and `/props` are refused beyond this; a slot takes about 1.5 KB.
const MAX_ANSWER: usize = 16 << 20;

/// One llama-server.
#[derive(Debug, Clone)]
pub struct Upstream {
    client: Client<HttpConnector, Body>,
    address: Address,
    authority: Authority,
    host: HeaderValue,
    key: Option<HeaderValue>,
    /// What says where it listens.
    setting: &'static str,
}

/// Why the server gave no answer. None of these quotes a request.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// No connection came about: nothing has been sent.
    #[error(
        "llama-server at {address} can't be reached ({reason}): start it, or set {setting} to where it listens"
    )]
    Unreachable {
        /// The base URL.
        address: String,
        /// The system's word for it.
        reason: String,
        /// What says where it listens.
        setting: &'static str,
        /// The connection was refused: nobody listens there.
        refused: bool,
    },
    /// The connection broke before an answer came.
    #[error("llama-server at {address} closed the connection without an answer ({reason})")]
    Broken {
        /// The base URL.
        address: String,
        /// The client library's word for it.
        reason: String,
    },
    /// The client broke off, or spoilt its chunks, while its body was on the way.
    #[error("the request body could not be read to its end: send it again")]
    RequestBody,
    /// The path can't be put behind the base URL.
    #[error("the request's path can't be forwarded: {0}")]
    Path(#[from] http::Error),
}

impl Upstream {
    /// A client for the server at `address`, which wants `key` if there is one. Connects to nothing yet.
    ///
    /// # Errors
    /// When the address or the key can't be written into a request.
    pub fn new(address: &Address, key: Option<&Secret>) -> Result<Self, http::Error> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        // A host that has vanished is noticed although nothing is sent while it reads a long prompt.
        connector.set_keepalive(Some(KEEP_ALIVE));
        connector.set_keepalive_interval(Some(KEEP_ALIVE_AGAIN));
        connector.set_keepalive_retries(Some(KEEP_ALIVE_TRIES));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .set_host(false)
            .build(connector);
        let bearer = |key: &Secret| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))?;
            value.set_sensitive(true);
            Ok::<_, http::Error>(value)
        };
        Ok(Self {
            client,
            authority: address.authority.parse::<Authority>()?,
            host: HeaderValue::from_str(&address.authority)?,
            key: key.map(bearer).transpose()?,
            address: address.clone(),
            setting: "--upstream",
        })
    }

    /// One of several, which are told by the configuration file alone.
    #[must_use]
    pub(crate) fn among_several(self) -> Self {
        Self { setting: "its url", ..self }
    }

    /// Why a request was not sent to a server that is another one by now.
    #[must_use]
    pub(crate) fn restarted(&self) -> UpstreamError {
        UpstreamError::Broken { address: self.address(), reason: "it has restarted".to_owned() }
    }

    /// The base URL.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What says where it listens, for those who have to set it.
    #[must_use]
    pub(crate) fn setting(&self) -> &'static str {
        self.setting
    }

    /// Host and port.
    #[must_use]
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// Sends `request`, whose URI is the path and query the client asked for. Host is set here; the router's own key
    /// for the server is added when the request has no credentials.
    ///
    /// # Errors
    /// See [`UpstreamError`].
    pub async fn forward(&self, mut request: Request<Body>) -> Result<Response<Incoming>, UpstreamError> {
        *request.uri_mut() = self.uri(request.uri())?;
        // A version is a connection's. Sent on as HTTP/1.0, a request could have no chunked body and no keep-alive.
        *request.version_mut() = Version::HTTP_11;
        request.headers_mut().insert(HOST, self.host.clone());
        if let Some(key) = &self.key
            && !request.headers().contains_key(AUTHORIZATION)
            && !request.headers().contains_key("x-api-key")
        {
            request.headers_mut().insert(AUTHORIZATION, key.clone());
        }
        let connection = capture_connection(&mut request);
        let mut answer = self.client.request(request).await.map_err(|error| self.explain(&error))?;
        // llama-server closes the connection after a streamed answer, whatever its Keep-Alive header promises (seen in
        // b11549): the next request on it would be lost.
        if answer.headers().get(CONTENT_LENGTH).is_none()
            && let Some(connection) = connection.connection_metadata().as_ref()
        {
            connection.poison();
        }
        *answer.version_mut() = Version::HTTP_11;
        Ok(answer)
    }

    fn uri(&self, asked: &Uri) -> Result<Uri, http::Error> {
        let path = asked.path_and_query().map_or("/", PathAndQuery::as_str);
        let path = if self.address.prefix.is_empty() {
            PathAndQuery::try_from(path)?
        } else {
            PathAndQuery::try_from(format!("{}{path}", self.address.prefix))?
        };
        Uri::builder().scheme(Scheme::HTTP).authority(self.authority.clone()).path_and_query(path).build()
    }

    fn explain(&self, error: &hyper_util::client::legacy::Error) -> UpstreamError {
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
            // To hyper's client we are the user: what failed is the body we were passing on.
            if cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_user) {
                return UpstreamError::RequestBody;
            }
        }
        let (address, reason) = (self.address(), cause.to_string());
        if error.is_connect() {
            let io = cause.downcast_ref::<std::io::Error>();
            let refused = io.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
            UpstreamError::Unreachable { address, reason, setting: self.setting, refused }
        } else {
            UpstreamError::Broken { address, reason }
        }
    }

    async fn get(&self, path: &'static str) -> Result<(StatusCode, Bytes), UpstreamError> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = Uri::from_static(path);
        self.read(request).await
    }

    async fn read(&self, request: Request<Body>) -> Result<(StatusCode, Bytes), UpstreamError> {
        let answer = self.forward(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        let body = body
            .map_err(|error| UpstreamError::Broken { address: self.address(), reason: error.to_string() })?;
        Ok((status, body.to_bytes()))
    }
}
