//! The handlers: what becomes of a request.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::TRANSFER_ENCODING;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use hyper::body::Incoming;

use crate::alive::{self, Manners, Stall};
use crate::chain::ChainKey;
use crate::config::Config;
use crate::dialect::Dialect;
use crate::headers;
use crate::linger::lingering;
use crate::passing::{self, Passing};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::routes::slot_route;
use crate::servers::{Member, Servers};
use crate::slots::SlotId;
use crate::status;
use crate::store::Store;
use crate::stream::Forwarded;
use crate::tunnel;
use crate::turn::Turn;
use crate::upstream::UpstreamError;

/// The router's own pages; all other paths are the server's.
const HEALTH: &str = "/router/health";
const STATUS: &str = "/router/status";
const SAVE: &str = "/router/save";

/// Where servers tell their models; several tell them together.
const MODELS: [&str; 3] = ["/v1/models", "/models", "/api/tags"];
/// Where the server's LoRA adapters are set.
const ADAPTERS: &str = "/lora-adapters";

const SLOT: HeaderName = HeaderName::from_static("x-slot-router-slot");
pub(crate) const ACTION: HeaderName = HeaderName::from_static("x-slot-router-action");
const WAITED: HeaderName = HeaderName::from_static("x-slot-router-waited-ms");
const SERVER: HeaderName = HeaderName::from_static("x-slot-router-server");
const EVICTED: HeaderName = HeaderName::from_static("x-slot-router-evicted");

/// Everything a handler needs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) servers: Arc<Servers>,
    pub(crate) store: Store,
    /// Of this installation's hashes.
    pub(crate) chain_key: ChainKey,
    pub(crate) started: std::time::Instant,
}

/// Whose a request is.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    /// The user of the key it came with, if users have names: part of its session.
    pub(crate) user: Option<&'a str>,
    /// The same, and behind it the user that a router in front has named.
    pub(crate) whole: Option<Arc<str>>,
    /// That, or where nobody has a name what stands for the key: whose saved states these are.
    pub(crate) mark: Option<Arc<str>>,
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
    let whole = headers::take_user(&mut parts.headers, user);
    let mark = whole.clone().or_else(|| headers::mark_of_key(&parts.headers, &app.chain_key));
    let caller = Caller { user, whole, mark };
    if app.config.fleet.as_ref().is_some_and(|fleet| !fleet.forward_credentials) {
        headers::drop_credentials(&mut parts.headers);
    }
    match path.as_str() {
        HEALTH => status::health(),
        STATUS => status::status(&app),
        SAVE if parts.method == Method::POST => status::save(&app).await,
        _ => forward(&app, Request::from_parts(parts, body), &path, caller).await,
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

async fn forward(app: &Arc<App>, request: Request, path: &str, caller: Caller<'_>) -> Response {
    let mut record = Record::new(&app.store, request.method(), path);
    let route = headers::unescaped(path);
    let taking = slot_route(&route).filter(|_| request.method() == Method::POST);
    if let Some(taking) = taking {
        return match Turn::read(app, request, taking, caller, &mut record).await {
            Ok(turn) => turn_answer(app, turn, Dialect::of(&route), record).await,
            Err(refusal) => refuse(record, &refusal, path),
        };
    }
    if request.method() == Method::GET
        && MODELS.contains(&&*route)
        && let Some(models) = app.servers.models()
    {
        record.status(StatusCode::OK);
        return status::json_answer(models);
    }
    match pass_on(app, request, &route, caller, &mut record).await {
        Ok(answer) => passed(answer, record),
        Err(refusal) => refuse(record, &refusal, path),
    }
}

/// A request that takes no slot goes to its server.
async fn pass_on(
    app: &App,
    request: Request,
    route: &str,
    caller: Caller<'_>,
    record: &mut Record,
) -> Result<http::Response<Incoming>, Refusal> {
    let adapts = request.method() == Method::POST && route == ADAPTERS;
    let passing = Passing::of(app, request, caller.user).await?;
    let (member, answer) = passing::sent(app, passing, pass).await;
    if app.servers.only().is_none() {
        record.passes_to(&member.name);
    }
    // Without an answer the server may have changed them all the same.
    if adapts && answer.as_ref().map_or(true, |answer| answer.status().is_success()) {
        member.adapters_changed();
    }
    answer
}

async fn turn_answer(app: &Arc<App>, mut turn: Turn, dialect: Dialect, record: Record) -> Response {
    let mut keep_alive = app.config.keep_alive;
    // White space in front would spoil what turns out to be a stream.
    keep_alive.json &= !turn.is_opaque();
    let manners = Manners {
        dialect,
        origin: turn.origin(),
        form: turn.form(),
        keep_alive,
        stall: Stall { after: app.config.upstream_watch.stall, ends: app.config.upstream_watch.end_stalled },
        tells_full: app.config.fleet.is_some(),
    };
    // With several servers it is looked at, too.
    if manners.may_add() || app.config.fleet.is_some() {
        turn.wants_plain_answer();
    }
    alive::respond(Box::pin(turn.run(Arc::clone(app), dialect, record)), manners, app.servers.front()).await
}

fn refuse(mut record: Record, refusal: &Refusal, path: &str) -> Response {
    let dialect = Dialect::of(&headers::unescaped(path));
    record.refused(refusal.status_in(dialect), &refusal.to_string());
    refusal.response(dialect)
}

/// The server's answer to a request that takes no slot.
fn passed(answer: http::Response<Incoming>, mut record: Record) -> Response {
    let (mut parts, body) = answer.into_parts();
    record.status(parts.status);
    if parts.status != StatusCode::SWITCHING_PROTOCOLS {
        headers::clean_response(&mut parts.headers);
    }
    Response::from_parts(parts, Body::new(Forwarded::passing(body.into(), record)))
}

/// Tells the client where its request went. What a router behind this one says of slots stays.
pub(crate) fn tell(headers: &mut HeaderMap, record: &Record) {
    if let Some(server) = record.server().and_then(|server| HeaderValue::from_str(server).ok()) {
        headers.insert(SERVER, server);
    }
    if let Some(tokens) = record.tokens_lost() {
        headers.insert(EVICTED, tokens.into());
    }
    if record.is_passed_on() {
        return;
    }
    if let Some(slot) = record.slot() {
        headers.insert(SLOT, slot.into());
    }
    headers.insert(ACTION, HeaderValue::from_static(record.action()));
    headers.insert(WAITED, record.waited_ms().into());
}

/// The slot that a router behind this one says it has used.
pub(crate) fn slot_told(headers: &HeaderMap) -> Option<SlotId> {
    headers.get(SLOT)?.to_str().ok()?.parse().ok().map(SlotId)
}

/// A request that takes no slot: through it goes, body and all, as it comes.
async fn pass(member: &Member, request: Request) -> Result<http::Response<Incoming>, UpstreamError> {
    let upstream = &member.upstream;
    if headers::wants_upgrade(request.headers()) {
        return tunnel::open(upstream, request).await;
    }
    let (mut parts, body) = request.into_parts();
    let chunked = parts.headers.contains_key(TRANSFER_ENCODING);
    headers::clean_request(&mut parts.headers);
    if chunked {
        // Without it hyper would send a GET or HEAD on without its body.
        parts.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    upstream.forward(Request::from_parts(parts, body)).await
}
