//! The router's own pages: health and status as JSON, all from one snapshot, and the wish to have all saved.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use serde::Serialize;
use serde_json::json;

use crate::dispatch::{ServerSnapshot, SessionSnapshot};
use crate::front::Counts;
use crate::proxy::App;
use crate::servers::{ServerStatus, SharedStatus, Slots};
use crate::store::Store;

/// Whoever asks for a save does not wait longer for its end.
const SAVE_ALL: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Status {
    version: &'static str,
    uptime_s: u64,
    #[serde(flatten)]
    behind: Behind,
    store: StoreStatus,
}

/// What is behind the router.
#[derive(Serialize)]
#[serde(untagged)]
enum Behind {
    One {
        server: Box<ServerSnapshot>,
        /// The sessions seen last, the last first.
        sessions: Vec<SessionSnapshot>,
    },
    Several {
        servers: Vec<ServerStatus>,
        front: Counts,
        /// What is shared with other routers.
        #[serde(skip_serializing_if = "Option::is_none")]
        shared: Option<SharedStatus>,
    },
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
        behind: behind(app),
        store: stored(app),
    };
    as_json(&status)
}

fn behind(app: &App) -> Behind {
    let front = app.servers.front().counts();
    match app.servers.only().and_then(|member| member.slots.as_ref()) {
        Some(Slots { dispatch, .. }) => Behind::One {
            server: Box::new(dispatch.snapshot().with_front(front)),
            sessions: dispatch.sessions(),
        },
        None => Behind::Several { servers: app.servers.snapshot(), front, shared: app.servers.shared() },
    }
}

/// All databases as one.
fn stored(app: &App) -> StoreStatus {
    let stores: Vec<&Store> = match app.servers.only() {
        Some(_) => vec![&app.store],
        None => app.servers.members().iter().map(|member| &member.store).chain([&app.store]).collect(),
    };
    StoreStatus {
        on_disk: stores.iter().all(|store| store.healthy()),
        dropped: stores.iter().map(|store| store.dropped()).sum(),
    }
}

/// Saves every idle session worth it, for somebody who is about to restart the server; answers when that is done, or
/// has taken too long.
pub(crate) async fn save(app: &App) -> Response {
    as_json(&app.servers.save_all(SAVE_ALL).await)
}

fn as_json(answer: &impl Serialize) -> Response {
    let text = serde_json::to_string(answer);
    json_answer(text.unwrap_or_else(|error| json!({"error": error.to_string()}).to_string()))
}

pub(crate) fn json_answer(text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
