//! From a request to its route: recording, the key, loading, and the table of paths.
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::breakage::{Cut, until_it_answers};
use super::failure::Failure;
use super::generation::Arrival;
use super::records::Received;
use super::reply::{Reply, bare, failed, json, json_or};
use super::request::{Request, Route};
use super::state::Shared;
use super::{actions, completions, echo, info};

/// Marks requests that come past the router.
pub(super) const FOREIGN: &str = "x-fake-foreign";

/// Serves one HTTP request.
pub(super) async fn handle(shared: Arc<Shared>, mut request: http::Request<Incoming>) -> Reply {
    let upgrade = hyper::upgrade::on(&mut request);
    let (parts, body) = request.into_parts();
    if parts.uri.path() == "/echo-stream" {
        record(&shared, &parts, Bytes::new());
        return echo::streamed(body);
    }
    let Ok(body) = body.collect().await else {
        shared.update(|state| state.log.incomplete += 1);
        return bare(StatusCode::BAD_REQUEST);
    };
    let body = body.to_bytes();
    let arrival = record(&shared, &parts, body.clone());
    until_it_answers(&shared).await;
    if let Err(failure) = admitted(&shared, &parts) {
        return failed(&failure);
    }
    if is_compressed(&parts) {
        return unsupported();
    }
    answer(&shared, &parts, body, upgrade, arrival).await
}

fn record(shared: &Shared, parts: &Parts, body: Bytes) -> Arrival {
    let takes_slot = parts.method == Method::POST && Route::of(parts.uri.path()).is_some();
    let foreign = parts.headers.contains_key(FOREIGN);
    shared.update(|state| {
        state.last_traffic = Instant::now();
        let number = state.log.arrival(takes_slot);
        if state.engine.options.record {
            state.log.received.push(Received {
                number,
                method: parts.method.clone(),
                target: parts.uri.to_string(),
                headers: parts.headers.clone(),
                body,
                takes_slot,
                foreign,
                at: state.last_traffic,
            });
        }
        Arrival { number, foreign }
    })
}

/// The key is asked for before the server says that it is still loading.
fn admitted(shared: &Shared, parts: &Parts) -> Result<(), Failure> {
    let public = ["/health", "/v1/health", "/models", "/v1/models"].contains(&parts.uri.path());
    let (key, loading) = shared.read(|state| (state.engine.options.api_key.clone(), state.loading));
    if let Some(key) = key.filter(|_| !public)
        && !shows_key(parts, &key)
    {
        return Err(Failure::bad_key());
    }
    if loading { Err(Failure::loading()) } else { Ok(()) }
}

fn shows_key(parts: &Parts, key: &str) -> bool {
    let bearer = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    let x_api_key = parts.headers.get("x-api-key").and_then(|value| value.to_str().ok());
    bearer.or(x_api_key) == Some(key)
}

/// llama-server is built without decompression; a coding it has never heard of goes unnoticed.
fn is_compressed(parts: &Parts) -> bool {
    let coding = parts.headers.get(header::CONTENT_ENCODING).and_then(|value| value.to_str().ok());
    coding.is_some_and(|coding| ["gzip", "deflate", "br", "zstd"].contains(&coding))
}

/// The status is all it says, and it closes the connection.
fn unsupported() -> Reply {
    let mut reply = bare(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    reply
}

async fn answer(
    shared: &Arc<Shared>,
    parts: &Parts,
    body: Bytes,
    upgrade: OnUpgrade,
    arrival: Arrival,
) -> Reply {
    match parts.uri.path() {
        "/echo" => echo::described(parts, &body),
        "/echo-raw" => echo::raw(body),
        "/trailers" => echo::with_trailers(),
        "/upgrade" => echo::upgraded(shared, upgrade),
        "/sse-gate" => echo::gated_events(shared),
        path => match parts.method {
            Method::GET | Method::HEAD => get(shared, path, query_of(parts)).await,
            Method::POST => post(shared, parts, body, arrival).await,
            Method::OPTIONS => preflight(),
            _ => failed(&Failure::not_found()),
        },
    }
}

async fn get(shared: &Arc<Shared>, path: &str, query: &str) -> Reply {
    match path {
        "/health" | "/v1/health" => info::health(),
        "/props" => json(&info::props(shared)),
        "/slots" => json_or(info::slots(shared, query).await),
        "/metrics" => info::metrics(shared).unwrap_or_else(|failure| failed(&failure)),
        "/models" | "/v1/models" => json_or(info::models(shared)),
        "/lora-adapters" => json(&info::adapters(shared)),
        _ => failed(&Failure::not_found()),
    }
}

async fn post(shared: &Arc<Shared>, parts: &Parts, body: Bytes, arrival: Arrival) -> Reply {
    let path = parts.uri.path();
    if let Some(route) = Route::of(path) {
        if let Some(reply) = broken(shared, parts).await {
            return reply;
        }
        let options = shared.read(|state| state.engine.options.clone());
        return match Request::parse(route, &body, &options) {
            Ok(request) => completions::serve(shared, request, arrival).await,
            Err(failure) => failed(&failure),
        };
    }
    match path {
        "/v1/messages/count_tokens" => json_or(info::count_tokens(&body)),
        "/tokenize" => json_or(info::tokenize(&body)),
        "/lora-adapters" => json(&info::set_adapters()),
        _ => match path.strip_prefix("/slots/") {
            Some(slot) => json_or(actions::serve(shared, slot, query_of(parts), &body, arrival).await),
            None => failed(&Failure::not_found()),
        },
    }
}

async fn broken(shared: &Shared, parts: &Parts) -> Option<Reply> {
    let breakage = shared.read(|state| state.breakage)?;
    breakage.reply(parts.extensions.get::<Cut>()?).await
}

/// What browsers ask first.
fn preflight() -> Reply {
    let mut reply = bare(StatusCode::OK);
    let headers = reply.headers_mut();
    headers.insert("access-control-allow-credentials", HeaderValue::from_static("true"));
    headers.insert("access-control-allow-methods", HeaderValue::from_static("GET, POST"));
    headers.insert("access-control-allow-headers", HeaderValue::from_static("*"));
    reply
}

fn query_of(parts: &Parts) -> &str {
    parts.uri.query().unwrap_or_default()
}

/// The value of a query parameter.
pub(super) fn query_value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}
