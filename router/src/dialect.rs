//! The dialects of llama-server's routes: how each tells an error, before an answer and within a stream, and what may
//! be put into a stream as a sign of life.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

/// What clients of a route understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's completions, and llama-server's own routes.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// OpenAI's responses.
    Responses,
}

/// An error, as clients are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The status it has, or would have had before the answer began.
    pub(crate) status: StatusCode,
    /// What to do. Quotes nothing of a request's body.
    pub(crate) message: String,
}

impl Dialect {
    /// The dialect of `path`, given as llama-server compares it.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/responses" | "/v1/responses" => Self::Responses,
            _ if path.starts_with("/v1/messages") => Self::Anthropic,
            _ => Self::OpenAi,
        }
    }

    /// The status under which `status` is told: Anthropic has one of its own for what is too busy.
    pub(crate) fn status(self, status: StatusCode) -> StatusCode {
        match (self, status) {
            (Self::Anthropic, StatusCode::SERVICE_UNAVAILABLE) => {
                StatusCode::from_u16(529).unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
            }
            _ => status,
        }
    }

    /// The JSON body of an answer that tells `trouble`.
    pub(crate) fn body(self, trouble: &Trouble) -> Value {
        let message = &trouble.message;
        match self {
            Self::Anthropic => {
                json!({"type": "error", "error": {"type": anthropic_type(trouble.status), "message": message}})
            }
            Self::OpenAi | Self::Responses => {
                let code = trouble.status.as_u16();
                json!({"error": {"code": code, "message": message, "type": openai_type(trouble.status)}})
            }
        }
    }

    /// The events that end a stream with `trouble`.
    pub(crate) fn events(self, trouble: &Trouble) -> Bytes {
        let body = self.body(trouble);
        match self {
            Self::OpenAi => format!("data: {body}\n\n"),
            Self::Anthropic => format!("event: error\ndata: {body}\n\n"),
            Self::Responses => {
                let error = json!({"code": "server_error", "message": trouble.message});
                let response = response("failed", error);
                format!(
                    "event: response.failed\ndata: {}\n\n",
                    json!({"type": "response.failed", "response": response})
                )
            }
        }
        .into()
    }

    /// A sign of life: nothing to a client but that the connection is not dead. Codex' timer heeds events only.
    pub(crate) fn sign(self) -> Bytes {
        match self {
            Self::OpenAi | Self::Anthropic => Bytes::from_static(b": waiting\n\n"),
            Self::Responses => {
                let event =
                    json!({"type": "response.in_progress", "response": response("in_progress", Value::Null)});
                format!("event: response.in_progress\ndata: {event}\n\n").into()
            }
        }
    }
}

/// A response object with what clients look for.
fn response(status: &str, error: Value) -> Value {
    json!({"id": "resp_waiting", "object": "response", "status": status, "output": [], "error": error})
}

/// OpenAI's and llama-server's word for the kind of error.
fn openai_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    }
}

/// Anthropic's.
fn anthropic_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        status if status.is_server_error() => "api_error",
        _ => "invalid_request_error",
    }
}
