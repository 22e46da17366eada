//! The HTTP client to llama-server: forward a request, read `/slots` and `/props`, prime a slot.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use thiserror::Error;

use crate::config::{Config, Upstream as Address};
use crate::slots::{Progress, Reading, SeenSlot, SlotId};

/// llama-server closes a connection after five idle seconds; one that is given up earlier is never found closed.
const IDLE: Duration = Duration::from_secs(3);
const KEEP_ALIVE: Duration = Duration::from_secs(60);
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
}

/// Why the server gave no answer. None of these quotes a request.
#[derive(Debug, Error)]
pub enum UpstreamError {
    /// No connection came about: nothing has been sent.
    #[error(
        "llama-server at {address} can't be reached ({reason}): start it, or set --upstream to where it listens"
    )]
    Unreachable {
        /// The base URL.
        address: String,
        /// The system's word for it.
        reason: String,
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

/// What `/props` tells.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
pub struct Props {
    /// How many slots there are; `None` in llama.cpp's own router mode.
    pub total_slots: Option<u32>,
    /// The build.
    #[serde(default)]
    pub build_info: String,
    /// The model's name.
    #[serde(default)]
    pub model_alias: String,
    #[serde(default)]
    default_generation_settings: GenerationSettings,
}

#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
struct GenerationSettings {
    n_ctx: Option<u64>,
}

impl Props {
    /// Context per slot, in tokens.
    #[must_use]
    pub fn context(&self) -> Option<u64> {
        self.default_generation_settings.n_ctx
    }

    /// What has to be the same for stored marks to mean anything: build, model, slots and context.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let number = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
        let slots = number(self.total_slots.map(u64::from));
        format!("{} {} slots={slots} ctx={}", self.build_info, self.model_alias, number(self.context()))
    }
}

#[derive(Deserialize)]
struct SlotEntry {
    id_task: Option<i64>,
    n_prompt_tokens: Option<u64>,
    #[serde(default)]
    is_processing: bool,
    n_prompt_tokens_processed: Option<u64>,
    next_token: Option<NextToken>,
}

/// How far the answer has come: an array of one, or in older builds the object itself.
#[derive(Deserialize)]
#[serde(untagged)]
enum NextToken {
    Many(Vec<Decoded>),
    One(Decoded),
    /// Whatever else a build may say here is no reason to lose the slots.
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Decoded {
    n_decoded: Option<u64>,
}

impl NextToken {
    fn decoded(&self) -> Option<u64> {
        match self {
            Self::Many(tokens) => tokens.first()?.n_decoded,
            Self::One(token) => token.n_decoded,
            Self::Other(_) => None,
        }
    }
}

impl Upstream {
    /// A client for the server in `config`. Connects to nothing yet.
    ///
    /// # Errors
    /// When the address or the key can't be written into a request.
    pub fn new(config: &Config) -> Result<Self, http::Error> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT));
        // A host that has vanished is noticed although nothing is sent while it reads a long prompt.
        connector.set_keepalive(Some(KEEP_ALIVE));
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .set_host(false)
            .build(connector);
        let bearer = |key: &crate::config::Secret| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))?;
            value.set_sensitive(true);
            Ok::<_, http::Error>(value)
        };
        Ok(Self {
            client,
            authority: config.upstream.authority.parse::<Authority>()?,
            host: HeaderValue::from_str(&config.upstream.authority)?,
            key: config.upstream_api_key.as_ref().map(bearer).transpose()?,
            address: config.upstream.clone(),
        })
    }

    /// The base URL.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
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
            UpstreamError::Unreachable { address, reason, refused }
        } else {
            UpstreamError::Broken { address, reason }
        }
    }

    /// Asks `/slots`. Never [`Reading::Silent`]: how long to wait is the caller's to say.
    pub async fn slots(&self) -> Reading {
        match self.get("/slots").await {
            Ok((StatusCode::OK, body)) => match serde_json::from_slice::<Vec<SlotEntry>>(&body) {
                Ok(entries) if !entries.is_empty() => {
                    Reading::Slots(entries.into_iter().map(SeenSlot::from).collect())
                }
                _ => self.blind().await,
            },
            Ok((StatusCode::SERVICE_UNAVAILABLE, _)) => Reading::Loading,
            Ok(_) => self.blind().await,
            Err(UpstreamError::Unreachable { refused: true, .. }) => Reading::Refused,
            // Not a word about the server: a network in trouble, or this process out of file descriptors.
            Err(_) => Reading::Silent,
        }
    }

    async fn blind(&self) -> Reading {
        Reading::Blind(self.props().await.and_then(|props| props.total_slots).filter(|count| *count > 0))
    }

    /// Asks `/props`; `None` if there is none.
    pub async fn props(&self) -> Option<Props> {
        let (status, body) = self.get("/props").await.ok()?;
        (status == StatusCode::OK).then(|| serde_json::from_slice(&body).ok())?
    }

    async fn get(&self, path: &'static str) -> Result<(StatusCode, Bytes), UpstreamError> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = Uri::from_static(path);
        self.read(request).await
    }

    /// Fills `slot` with a one-word prompt, so that llama-server saves what is in it and, for the next request that
    /// names it, looks for that request's own state in its RAM cache.
    ///
    /// # Errors
    /// See [`UpstreamError`]. An answer with an error status is none: the request itself will tell.
    pub async fn prime(
        &self,
        slot: SlotId,
        credentials: &[(http::HeaderName, HeaderValue)],
    ) -> Result<(), UpstreamError> {
        let body = format!(r#"{{"prompt":"x","n_predict":0,"id_slot":{slot}}}"#);
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static("/completion");
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().extend(credentials.iter().cloned());
        self.read(request).await.map(drop)
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

impl From<SlotEntry> for SeenSlot {
    fn from(entry: SlotEntry) -> Self {
        Self {
            id_task: entry.id_task,
            tokens: entry.n_prompt_tokens,
            processing: entry.is_processing,
            progress: Progress {
                read: entry.n_prompt_tokens_processed,
                generated: entry.next_token.and_then(|token| token.decoded()),
            },
        }
    }
}
