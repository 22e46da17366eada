//! The handlers: what becomes of a request.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tracing::warn;

use crate::body::{self, AskedSlot, BodyError, Parsed, SlotEdit};
use crate::config::Config;
use crate::dispatch::{Dispatch, Lease, Who};
use crate::headers;
use crate::identify::Identity;
use crate::linger::lingering;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::routes::{SlotRoute, slot_route};
use crate::slots::{Launch, Shape, Want};
use crate::status;
use crate::store::Store;
use crate::stream::Forwarded;
use crate::tunnel;
use crate::upstream::{Upstream, UpstreamError};

/// The router's own pages; all other paths are the server's.
const HEALTH: &str = "/router/health";
const STATUS: &str = "/router/status";

const SLOT: HeaderName = HeaderName::from_static("x-slot-router-slot");
const ACTION: HeaderName = HeaderName::from_static("x-slot-router-action");
const WAITED: HeaderName = HeaderName::from_static("x-slot-router-waited-ms");

/// A body of this many bytes takes about half a millisecond to edit.
const LARGE: usize = 512 << 10;

/// Everything a handler needs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) upstream: Upstream,
    pub(crate) store: Store,
    pub(crate) started: std::time::Instant,
}

/// Every request comes to one handler: which route it is can only be said once it may come in.
pub(crate) fn routes(app: Arc<App>) -> Router {
    Router::new().fallback(handle).with_state(app)
}

async fn handle(State(app): State<Arc<App>>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let body = lingering(&parts.headers, body);
    let user = match admit(&app.config, &mut parts) {
        Ok(user) => user,
        Err(refusal) => {
            return refuse(Record::new(&app.store, &parts.method, &path), &refusal, &path);
        }
    };
    match path.as_str() {
        HEALTH => status::health(),
        STATUS => status::status(&app),
        _ => forward(&app, Request::from_parts(parts, body), &path, user).await,
    }
}

/// Refuses what may not come in, before anything else looks at it. Whose request it is, if users have names.
fn admit<'a>(config: &'a Config, parts: &mut Parts) -> Result<Option<&'a str>, Refusal> {
    if parts.method == Method::CONNECT {
        return Err(Refusal::Connect);
    }
    if !headers::host_is_allowed(parts, &config.allowed_hosts) {
        return Err(Refusal::Host);
    }
    if config.api_keys.is_empty() || parts.uri.path() == HEALTH {
        return Ok(None);
    }
    let key = headers::take_key(&mut parts.headers, &config.api_keys);
    key.map(|key| key.user.as_deref()).ok_or(Refusal::Key)
}

async fn forward(app: &App, request: Request, path: &str, user: Option<&str>) -> Response {
    let mut record = Record::new(&app.store, request.method(), path);
    let taking = slot_route(&headers::unescaped(path)).filter(|_| request.method() == Method::POST);
    let outcome = match taking {
        Some(taking) => route(app, request, taking, user, &mut record).await,
        None => pass(app, request).await.map(|answer| (answer, None)),
    };
    match outcome {
        Ok((answer, lease)) => answer_with(answer, record, lease),
        Err(refusal) => refuse(record, &refusal, path),
    }
}

fn refuse(mut record: Record, refusal: &Refusal, path: &str) -> Response {
    record.refused(refusal.status_on(path), &refusal.to_string());
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
        let slot = lease.landed();
        record.ran_in(slot);
        tell(&mut parts.headers, &record);
    }
    Response::from_parts(parts, Body::new(Forwarded::new(body, record, lease)))
}

fn tell(headers: &mut HeaderMap, record: &Record) {
    if let Some(slot) = record.slot() {
        headers.insert(SLOT, slot.into());
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
    taking: SlotRoute,
    user: Option<&str>,
    record: &mut Record,
) -> Result<(http::Response<Incoming>, Option<Lease>), Refusal> {
    record.anonymous();
    let (mut parts, body) = request.into_parts();
    let body = read_body(app.config.max_body, &parts.headers, body).await?;
    // A compressed body can't be edited, so it has no session.
    let parsed = if headers::is_compressed(&parts.headers) { None } else { parse(&body).await? };
    let (want, who) = match &parsed {
        Some(parsed) => wanted(parsed, app.config.identity.identify(&parts.headers, parsed, user), record),
        // What can't be edited has no session, whatever its headers say.
        None => (Want::Anonymous, Who::default()),
    };
    let has_session = matches!(want, Want::Session(_));
    let tasks = parsed.as_ref().map_or(1, |parsed| parsed.tasks(taking.lists));
    let shape = Shape { tasks, heeds_slot: taking.heeds_slot, ..Shape::default() };
    record.waits();
    let granted = app.dispatch.acquire(want, shape, who).await;
    let mut lease = granted.map_err(|refused| Refusal::of(refused, app.upstream.address()))?;
    record.granted(&lease);
    // Also a wish for HTTP/2 (`Upgrade: h2c`): it is no reason to let a request past the slots.
    headers::clean_request(&mut parts.headers);
    let body = edit(parsed, has_session, body, lease.launch).await;
    // Whatever framing it came in; also when it is empty, lest the server wait for a body.
    parts.headers.insert(CONTENT_LENGTH, body.len().into());
    match send(&app.upstream, Request::from_parts(parts, Body::from(body)), &mut lease).await {
        Ok(answer) => Ok((answer, Some(lease))),
        Err(error) => {
            if matches!(error, UpstreamError::Unreachable { .. } | UpstreamError::Path(_)) {
                lease.unsent();
            }
            Err(error.into())
        }
    }
}

/// The request, with its primer before it if it needs one.
async fn send(
    upstream: &Upstream,
    request: Request,
    lease: &mut Lease,
) -> Result<http::Response<Incoming>, UpstreamError> {
    lease.sent();
    if let Launch::Pin { slot, prime: true, .. } = lease.launch {
        upstream.prime(slot, &headers::credentials(request.headers())).await?;
        lease.primed();
    }
    upstream.forward(request).await
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

fn wanted(parsed: &Parsed, identity: Identity, record: &mut Record) -> (Want, Who) {
    record.asked_slot(parsed.asked_slot_text());
    for (source, why) in &identity.rejected {
        warn!(%source, "a session id is ignored: {why}");
    }
    let who = Who {
        agent_name: identity.agent_name,
        client_type: identity.client_type,
        source: identity.source,
        parent: identity.parent,
        window: identity.window,
    };
    let want = match (identity.session, parsed.asked_slot()) {
        (Some(session), _) => {
            record.session(session.as_str(), identity.conflict);
            Want::Session(session)
        }
        (None, AskedSlot::Named(number)) => Want::Named(number),
        (None, AskedSlot::Absent) => Want::Anonymous,
    };
    record.who(&who);
    (want, who)
}

async fn parse(body: &Bytes) -> Result<Option<Parsed>, BodyError> {
    let body = body.clone();
    let size = body.len();
    aside(size, move || body::parse(&body)).await
}

/// A session's slot is the router's to name. What an anonymous client asks for stays: its request was held until
/// that slot was free.
async fn edit(parsed: Option<Parsed>, has_session: bool, body: Bytes, launch: Launch) -> Bytes {
    let Some(parsed) = parsed else { return body };
    let edit = match (has_session, launch) {
        (false, _) => SlotEdit::Keep,
        (true, Launch::Pin { slot, .. }) => SlotEdit::Set(slot.0),
        (true, Launch::Free { .. }) => SlotEdit::Remove,
    };
    aside(body.len(), move || parsed.rewrite(&body, edit)).await
}

/// Does `job` on another thread if it goes over so many bytes that other streams would notice.
async fn aside<T: Send + 'static>(bytes: usize, job: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes < LARGE {
        return job();
    }
    match tokio::task::spawn_blocking(job).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Not run because the runtime is shutting down: this task is about to be dropped as well.
            Err(_) => std::future::pending().await,
        },
    }
}
