//! The handlers: what becomes of a request, and the one place where an error becomes an HTTP answer.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use session_slot_identity::SessionId;

use crate::body::{self, AskedSlot, Parsed, SlotEdit};
use crate::config::Config;
use crate::dispatch::{Dispatch, Lease, Who};
use crate::headers;
use crate::linger::lingering;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::slots::{Launch, Shape, Want};
use crate::status;
use crate::store::Store;
use crate::stream::Forwarded;
use crate::tunnel;
use crate::upstream::{Upstream, UpstreamError};

const SLOT: HeaderName = HeaderName::from_static("x-slot-router-slot");
const ACTION: HeaderName = HeaderName::from_static("x-slot-router-action");
const WAITED: HeaderName = HeaderName::from_static("x-slot-router-waited-ms");

/// Requests that make llama-server take a slot, the one named by `id_slot` if there is one (its `tools/server`, build
/// b11434). Counting tokens, templates and the like take none. `/api/chat` is its Ollama-compatible route.
const HEEDS_SLOT: [&str; 12] = [
    "/completion",
    "/completions",
    "/v1/completions",
    "/chat/completions",
    "/v1/chat/completions",
    "/api/chat",
    "/v1/messages",
    "/responses",
    "/v1/responses",
    "/infill",
    "/audio/transcriptions",
    "/v1/audio/transcriptions",
];

/// Requests that make it take a slot of its own choice, whatever they name.
const SERVERS_CHOICE: [&str; 7] =
    ["/embedding", "/embeddings", "/v1/embeddings", "/rerank", "/reranking", "/v1/rerank", "/v1/reranking"];

/// Everything a handler needs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) upstream: Upstream,
    pub(crate) store: Store,
    pub(crate) started: std::time::Instant,
}

/// The router's own routes, and the server's for everything else.
pub(crate) fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/router/health", get(status::health))
        .route("/router/status", get(status::status))
        .fallback(handle)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), guard))
        .with_state(app)
}

/// Refuses what may not come in, before anything else looks at it.
async fn guard(State(app): State<Arc<App>>, request: Request, next: axum::middleware::Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = lingering(&parts.headers, body);
    let path = parts.uri.path().to_owned();
    let refusal = if parts.method == Method::CONNECT {
        Some(Refusal::Connect)
    } else if !headers::host_is_allowed(&parts, &app.config.allowed_hosts) {
        Some(Refusal::Host)
    } else {
        let key = app.config.api_key.as_ref().filter(|_| path != "/router/health");
        key.filter(|key| !headers::take_key(&mut parts.headers, key)).map(|_| Refusal::Key)
    };
    match refusal {
        Some(refusal) => refuse(Record::new(&app.store, &parts.method, &path), &refusal, &path),
        None => next.run(Request::from_parts(parts, body)).await,
    }
}

async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let mut record = Record::new(&app.store, request.method(), &path);
    let takes_slot = request.method() == Method::POST && takes_slot(&headers::unescaped(&path));
    let outcome = if takes_slot {
        route(&app, request, &mut record).await
    } else {
        pass(&app, request).await.map(|answer| (answer, None))
    };
    match outcome {
        Ok((answer, lease)) => answer_with(answer, record, lease),
        Err(refusal) => refuse(record, &refusal, &path),
    }
}

fn takes_slot(path: &str) -> bool {
    HEEDS_SLOT.contains(&path) || SERVERS_CHOICE.contains(&path)
}

fn refuse(mut record: Record, refusal: &Refusal, path: &str) -> Response {
    record.refused(refusal.status(), &refusal.to_string());
    refusal.response(path)
}

/// The server's answer, as the client gets it.
fn answer_with(answer: http::Response<Incoming>, mut record: Record, mut lease: Option<Lease>) -> Response {
    let (mut parts, body) = answer.into_parts();
    record.status(parts.status);
    if parts.status != StatusCode::SWITCHING_PROTOCOLS {
        headers::clean_response(&mut parts.headers);
    }
    if let Some(lease) = &mut lease {
        lease.landed();
        tell(&mut parts.headers, &record, lease);
    }
    Response::from_parts(parts, Body::new(Forwarded::new(body, record, lease)))
}

fn tell(headers: &mut HeaderMap, record: &Record, lease: &Lease) {
    if let Some(slot) = lease.launch.slot() {
        headers.insert(SLOT, slot.0.into());
    }
    headers.insert(ACTION, HeaderValue::from_static(record.action()));
    headers.insert(WAITED, record.waited_ms().into());
}

/// A request that takes no slot: through it goes, body and all, as it comes.
async fn pass(app: &App, request: Request) -> Result<http::Response<Incoming>, Refusal> {
    if headers::wants_upgrade(request.headers()) {
        return Ok(tunnel::open(&app.upstream, request).await?);
    }
    let (mut parts, body) = request.into_parts();
    let chunked = parts.headers.contains_key(TRANSFER_ENCODING);
    headers::clean_request(&mut parts.headers);
    if chunked {
        // Without it hyper would send a GET or HEAD on without its body.
        parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    Ok(app.upstream.forward(Request::from_parts(parts, body)).await?)
}

/// A request that takes a slot: read whole, held until a slot is free, and sent there.
async fn route(
    app: &App,
    request: Request,
    record: &mut Record,
) -> Result<(http::Response<Incoming>, Option<Lease>), Refusal> {
    record.anonymous();
    let (mut parts, body) = request.into_parts();
    let body = read_body(app.config.max_body, &parts.headers, body).await?;
    // A compressed body can't be edited, so it has no session.
    let parsed = if headers::is_compressed(&parts.headers) { None } else { body::parse(&body)? };
    let (want, who) = wanted(parsed.as_ref(), record);
    let heeds_slot = !SERVERS_CHOICE.contains(&&*headers::unescaped(parts.uri.path()));
    let shape = Shape { tasks: parsed.as_ref().map_or(1, Parsed::tasks), heeds_slot };
    let granted = app.dispatch.acquire(want, shape, who).await;
    let mut lease = granted.map_err(|why| Refusal::of(why, app.upstream.address()))?;
    record.granted(&lease);
    // Also a wish for HTTP/2 (`Upgrade: h2c`): it is no reason to let a request past the slots.
    headers::clean_request(&mut parts.headers);
    lease.sent();
    if let Launch::Pin { slot, prime: true, .. } = lease.launch {
        app.upstream.prime(slot, &headers::credentials(&parts.headers)).await?;
        lease.primed();
    }
    let body = edited(parsed.as_ref(), &body, lease.launch);
    // Whatever framing it came in; also when it is empty, lest the server wait for a body.
    parts.headers.insert(CONTENT_LENGTH, body.len().into());
    match app.upstream.forward(Request::from_parts(parts, Body::from(body))).await {
        Ok(answer) => Ok((answer, Some(lease))),
        Err(error) => {
            if matches!(error, UpstreamError::Unreachable { .. } | UpstreamError::Path(_)) {
                lease.unsent();
            }
            Err(error.into())
        }
    }
}

async fn read_body(limit: u64, headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(Refusal::TooLarge { limit });
    }
    let body = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX)).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() { Refusal::TooLarge { limit } } else { Refusal::Incomplete }
    })
}

fn wanted(parsed: Option<&Parsed>, record: &mut Record) -> (Want, Who) {
    let Some(parsed) = parsed else { return (Want::Anonymous, Who::default()) };
    record.asked_slot(parsed.asked_slot_text());
    // `parse` has checked the length, and an empty id is none.
    if let Some(session) = parsed.session().and_then(|raw| SessionId::new(raw).ok()) {
        let label = |label: Option<&str>| label.map(str::to_owned);
        let who = Who { agent_name: label(parsed.agent_name()), client_type: label(parsed.client_type()) };
        record.session(session.as_str(), &who);
        return (Want::Session(session), who);
    }
    let want = match parsed.asked_slot() {
        AskedSlot::Named(number) => Want::Named(number),
        AskedSlot::Absent => Want::Anonymous,
    };
    (want, Who::default())
}

/// A session's slot is the router's to name. What an anonymous client asks for stays: its request was held until
/// that slot was free.
fn edited(parsed: Option<&Parsed>, body: &Bytes, launch: Launch) -> Bytes {
    let Some(parsed) = parsed else { return body.clone() };
    let edit = match (parsed.session(), launch) {
        (None, _) => SlotEdit::Keep,
        (Some(_), Launch::Pin { slot, .. }) => SlotEdit::Set(slot.0),
        (Some(_), Launch::Free { .. }) => SlotEdit::Remove,
    };
    parsed.rewrite(body, edit)
}
