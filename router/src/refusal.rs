//! Errors of the router's own, as HTTP answers in the dialect of the route.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use thiserror::Error;

use crate::body::BodyError;
use crate::dialect::{Dialect, Trouble};
use crate::dispatch::Refused;
use crate::fullness::MEMORY_FULL;
use crate::servers::{NoSeat, NotSeated};
use crate::slots::Refusal as SlotRefusal;
use crate::upstream::{Upstream, UpstreamError};

/// Why the router answers by itself. Each message says what to do and quotes nothing of the request's body.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    #[error("{0}")]
    Body(#[from] BodyError),
    #[error("the request body has more than {limit} bytes: send less, or raise max_body")]
    TooLarge { limit: u64 },
    #[error("the request body could not be read to its end: send it again")]
    Incomplete,
    #[error(
        "models have their server's name in front, and in this body none can be read: name it in the URL, ?model=NAME"
    )]
    ModelUnread,
    #[error(
        "the Host header names neither an IP address, localhost nor a name in allowed_hosts: use the router's IP \
         address, or start it with --allowed-host NAME"
    )]
    Host,
    #[error("a key is needed: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`")]
    Key,
    #[error("CONNECT is for forward proxies: send the request itself")]
    Connect,
    #[error("{0}")]
    Upstream(#[from] UpstreamError),
    #[error("llama-server at {address} can't be reached: start it, or set {setting} to where it listens")]
    Unreachable { address: String, setting: &'static str },
    #[error("llama-server's answer broke off before its end: send the request again")]
    BrokenOff,
    #[error("llama-server has sent nothing for longer than upstream.stall: send the request again")]
    Stalled,
    /// Nothing in it reads as if the conversation were too long.
    #[error("{MEMORY_FULL}: send the request again in a moment")]
    Full,
    #[error("the router is stopping: send the request again in a moment")]
    Stopping,
    #[error("{reason}")]
    Busy { reason: String, retry_after: Duration },
    #[error("{why}")]
    NotSeated { why: NoSeat, retry_after: Duration },
}

impl From<NotSeated> for Refusal {
    fn from(NotSeated { why, retry_after }: NotSeated) -> Self {
        match why {
            NoSeat::Stopping => Self::Stopping,
            NoSeat::Crowded { .. } | NoSeat::TimedOut => Self::Busy { reason: why.to_string(), retry_after },
            NoSeat::UnknownModel { .. } | NoSeat::HostDown(_) | NoSeat::Down => {
                Self::NotSeated { why, retry_after }
            }
        }
    }
}

impl Refusal {
    /// No slot is granted at that server.
    pub(crate) fn of(refused: Refused, upstream: &Upstream) -> Self {
        let reason = match refused.why {
            SlotRefusal::Unreachable => {
                return Self::Unreachable { address: upstream.address(), setting: upstream.setting() };
            }
            SlotRefusal::Stopping => return Self::Stopping,
            SlotRefusal::Full { waiting } => format!(
                "the server is overloaded, {waiting} requests wait for it: send this one again later, or raise \
                 queue.max_waiting"
            ),
            SlotRefusal::SessionFull { waiting } => format!(
                "the server is overloaded, {waiting} requests of this session wait for it: send this one again when \
                 they are over, or raise queue.max_per_session"
            ),
            SlotRefusal::TimedOut { after } => format!(
                "the server is overloaded, no slot became free within {} s: send the request again, or raise \
                 queue.max_wait",
                after.as_secs()
            ),
        };
        Self::Busy { reason, retry_after: refused.retry_after }
    }

    /// The status under which clients of the dialect are told.
    pub(crate) fn status_in(&self, dialect: Dialect) -> StatusCode {
        dialect.status(self.status())
    }

    fn status(&self) -> StatusCode {
        match self {
            Self::Body(_) | Self::Incomplete | Self::ModelUnread => StatusCode::BAD_REQUEST,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Host => StatusCode::FORBIDDEN,
            Self::Key => StatusCode::UNAUTHORIZED,
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::Upstream(UpstreamError::Path(_) | UpstreamError::RequestBody) => StatusCode::BAD_REQUEST,
            Self::Upstream(_) | Self::Unreachable { .. } | Self::BrokenOff | Self::Stalled => {
                StatusCode::BAD_GATEWAY
            }
            Self::NotSeated { why: NoSeat::UnknownModel { .. }, .. } => StatusCode::NOT_FOUND,
            Self::Stopping | Self::Busy { .. } | Self::NotSeated { .. } | Self::Full => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }

    /// As clients are told.
    pub(crate) fn trouble(&self) -> Trouble {
        let trouble = Trouble::new(self.status(), self.to_string());
        match self {
            // Codex tries again only after this one.
            Self::Busy { .. } | Self::Full => trouble.of_kind("server_error"),
            Self::NotSeated { why: NoSeat::UnknownModel { .. }, .. } => trouble.of_kind("not_found_error"),
            Self::NotSeated { .. } => trouble.of_kind("server_error"),
            _ => trouble,
        }
    }

    /// In how many seconds it is worth trying again.
    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Full | Self::Stopping => Some(2),
            Self::NotSeated { why: NoSeat::UnknownModel { .. }, .. } => None,
            Self::Busy { retry_after, .. } | Self::NotSeated { retry_after, .. } => {
                Some(retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0))
            }
            _ => None,
        }
    }

    /// The answer, in the shape that clients of the route understand.
    pub(crate) fn response(&self, dialect: Dialect) -> Response {
        let trouble = self.trouble();
        let mut response = Response::new(Body::from(dialect.body(&trouble).to_string()));
        *response.status_mut() = self.status_in(dialect);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if matches!(self, Self::Key) {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if matches!(self, Self::TooLarge { .. } | Self::Incomplete) {
            // The rest of the body is not read, so the connection can't be used again.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
