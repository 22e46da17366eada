//! The dialects of llama-server's routes: how each tells an error, before an answer and within a stream, and what may
//! be put into a stream as a sign of life.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::fullness::MEMORY_FULL;

/// The id of a response that the server has not begun; clients take the server's own for it later.
const WAITING_ID: &str = "resp_waiting";

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
    /// The server's own word for it, if it is the server's.
    kind: Option<String>,
}

impl Trouble {
    pub(crate) fn new(status: StatusCode, message: String) -> Self {
        Self { status, message, kind: None }
    }

    /// The same, called `kind` in OpenAI's dialect.
    pub(crate) fn of_kind(self, kind: &str) -> Self {
        Self { kind: Some(kind.to_owned()), ..self }
    }

    /// What the server said instead of a stream, in whichever dialect.
    pub(crate) fn told(status: StatusCode, body: &[u8]) -> Self {
        let said = serde_json::from_slice::<Value>(body).unwrap_or_default();
        let message = said["error"]["message"].as_str().map(str::to_owned);
        // Agents that go by the text would take the server's full memory for a conversation that is too long.
        let full =
            status.is_server_error() && message.as_deref().is_some_and(|text| text.contains("Context size"));
        let message = message.filter(|_| !full);
        let own = if full { MEMORY_FULL } else { "llama-server answered without a stream" };
        Self {
            message: message.unwrap_or_else(|| format!("{own} ({status})")),
            kind: said["error"]["type"].as_str().map(str::to_owned),
            // A good answer that is no stream is of no use to a client that has been promised one.
            status: if status.is_success() { StatusCode::BAD_GATEWAY } else { status },
        }
    }

    /// It may go well the next time.
    fn is_passing(&self) -> bool {
        self.status.is_server_error() && !self.is_too_long()
    }

    /// The prompt is longer than the context: sending it again is of no use.
    fn is_too_long(&self) -> bool {
        self.kind.as_deref() == Some("exceed_context_size_error")
    }
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
                let kind = trouble.kind.as_deref().unwrap_or_else(|| openai_type(trouble.status));
                json!({"error": {"code": trouble.status.as_u16(), "message": message, "type": kind}})
            }
        }
    }

    /// The events that end a stream with `trouble`, such that every client takes it for an error and, where the next try
    /// may go well, tries again. As observed: Pi 0.73 and 1.6 go by words in the message, Hermes 0.19, opencode 1.18
    /// and Claude Code 2.1 by the kind of error, Codex 0.171 by `response.failed` and its code, and OpenAI's library
    /// by the event `error` alone.
    pub(crate) fn events(self, trouble: &Trouble) -> Bytes {
        let passing = trouble.is_passing();
        let told = Trouble {
            status: if passing { StatusCode::SERVICE_UNAVAILABLE } else { trouble.status },
            message: if passing {
                format!("service unavailable: {}", trouble.message)
            } else {
                trouble.message.clone()
            },
            kind: trouble.kind.clone(),
        };
        match self {
            Self::OpenAi => {
                let told = if passing { told.of_kind("server_error") } else { told };
                format!("data: {}\n\n", self.body(&told))
            }
            Self::Anthropic => format!("event: error\ndata: {}\n\n", self.body(&told)),
            Self::Responses => failed_response(&told),
        }
        .into()
    }

    /// A sign of life: nothing to a client but that the connection is not dead. Codex' timer heeds events only.
    pub(crate) fn sign(self) -> Bytes {
        match self {
            Self::OpenAi | Self::Anthropic => Bytes::from_static(b": waiting\n\n"),
            Self::Responses => {
                let response = json!({"id": WAITING_ID, "object": "response", "status": "in_progress"});
                let event = json!({"type": "response.in_progress", "response": response});
                format!("event: response.in_progress\ndata: {event}\n\n").into()
            }
        }
    }
}

/// The two events of a response that failed: one for Codex and Pi, and one for OpenAI's library.
fn failed_response(told: &Trouble) -> String {
    let code = match () {
        () if told.is_too_long() => "context_length_exceeded",
        () if told.is_passing() => "server_error",
        () => "invalid_prompt",
    };
    let error = json!({"code": code, "message": told.message});
    let response = json!({"id": WAITING_ID, "object": "response", "status": "failed", "error": error});
    let failed = json!({"type": "response.failed", "response": response});
    let error = json!({"type": "error", "code": code, "message": told.message, "param": null});
    format!("event: response.failed\ndata: {failed}\n\nevent: error\ndata: {error}\n\n")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &Bytes) -> &str {
        std::str::from_utf8(bytes).expect("text")
    }

    #[test]
    fn what_may_go_well_next_time_is_told_in_words_that_make_agents_try_again() {
        let trouble = Trouble::new(StatusCode::BAD_GATEWAY, "start it".to_owned());
        let wanted =
            r#"data: {"error":{"code":503,"message":"service unavailable: start it","type":"server_error"}}"#;
        assert_eq!(text(&Dialect::OpenAi.events(&trouble)).trim_end(), wanted);
        let wanted = "event: error\ndata: {\"error\":{\"message\":\"service unavailable: start it\",\"type\":\"overloaded_error\"},\"type\":\"error\"}\n\n";
        assert_eq!(text(&Dialect::Anthropic.events(&trouble)), wanted);
        let events = Dialect::Responses.events(&trouble);
        let events = text(&events);
        assert!(
            events.starts_with("event: response.failed\ndata: ")
                && events.contains("\n\nevent: error\ndata: ")
        );
        assert_eq!(events.matches("\"code\":\"server_error\"").count(), 2);
    }

    #[test]
    fn a_prompt_that_is_too_long_is_no_reason_to_try_again() {
        let body =
            br#"{"error":{"code":400,"message":"too many","type":"exceed_context_size_error","n_ctx":9}}"#;
        let trouble = Trouble::told(StatusCode::BAD_REQUEST, body);
        for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Responses] {
            assert!(!text(&dialect.events(&trouble)).contains("unavailable"), "{dialect:?}");
        }
        assert!(text(&Dialect::Responses.events(&trouble)).contains("\"code\":\"context_length_exceeded\""));
    }

    #[test]
    fn a_server_whose_memory_is_full_is_not_told_in_words_of_a_conversation_too_long() {
        let body =
            br#"{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}"#;
        let trouble = Trouble::told(StatusCode::INTERNAL_SERVER_ERROR, body);
        let events = Dialect::OpenAi.events(&trouble);
        assert!(text(&events).contains("memory is full") && !text(&events).contains("ontext"), "{events:?}");
    }

    #[test]
    fn an_answer_that_is_no_stream_is_never_told_as_a_success() {
        let trouble = Trouble::told(StatusCode::OK, b"{\"choices\":[]}");
        assert!(text(&Dialect::OpenAi.events(&trouble)).contains("without a stream"));
        assert!(trouble.status.is_server_error());
    }

    #[test]
    fn each_route_has_its_dialect() {
        for (path, dialect) in [
            ("/v1/messages", Dialect::Anthropic),
            ("/v1/messages/count_tokens", Dialect::Anthropic),
            ("/v1/responses", Dialect::Responses),
            ("/v1/chat/completions", Dialect::OpenAi),
            ("/completion", Dialect::OpenAi),
        ] {
            assert_eq!(Dialect::of(path), dialect, "{path}");
        }
    }
}
