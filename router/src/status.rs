//! The router's own pages: health and status as JSON, all from one snapshot, and the wish to have all saved.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;
use serde_json::json;

use crate::dispatch::{ServerSnapshot, SessionSnapshot};
use crate::proxy::App;

/// Whoever asks for a save does not wait longer for its end.
const SAVE_ALL: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Status {
    version: &'static str,
    uptime_s: u64,
    server: ServerSnapshot,
    /// The sessions seen last, the last first.
    sessions: Vec<SessionSnapshot>,
    store: StoreStatus,
}

#[derive(Serialize)]
struct StoreStatus {
    /// Writes reach the disk.
    on_disk: bool,
    /// Writes lost since the start.
    dropped: u64,
}

/// The router runs; says nothing of the server, whose own `/health` is passed through.
pub(crate) fn health() -> Response {
    json_answer(json!({"status": "ok", "version": env!("CARGO_PKG_VERSION")}).to_string())
}

/// Server, slots, leases, waiters, sessions, totals.
pub(crate) fn status(app: &App) -> Response {
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: app.started.elapsed().as_secs(),
        server: app.dispatch.snapshot(),
        sessions: app.dispatch.sessions(),
        store: StoreStatus { on_disk: app.store.healthy(), dropped: app.store.dropped() },
    };
    as_json(&status)
}

/// Saves every idle session worth it, for somebody who is about to restart the server; answers when that is done, or
/// has taken too long.
pub(crate) async fn save(app: &App) -> Response {
    as_json(&app.dispatch.save_all(SAVE_ALL).await)
}

fn as_json(answer: &impl Serialize) -> Response {
    let text = serde_json::to_string(answer);
    json_answer(text.unwrap_or_else(|error| json!({"error": error.to_string()}).to_string()))
}

fn json_answer(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
