//! llama-server's error answers: one shape, told apart by code and type.
use http::StatusCode;
use serde_json::{Value, json};

/// A request that can't be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    code: StatusCode,
    kind: &'static str,
    message: String,
    /// Prompt tokens and context size, told when the one exceeds the other.
    sizes: Option<(usize, usize)>,
}

impl Failure {
    fn new(code: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { code, kind, message: message.into(), sizes: None }
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found_error", "File Not Found")
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    pub(super) fn bad_key() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", "Invalid API Key")
    }

    pub(super) fn loading() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", "Loading model")
    }

    pub(super) fn no_slot_available() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", "no slot available")
    }

    pub(super) fn switched_off(what: &str, flag: &str) -> Self {
        let message = format!("This server does not support {what}. Start it with `{flag}`");
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message)
    }

    pub(super) fn pool_full() -> Self {
        let message = "Context size has been exceeded.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// An error that says nothing but that the server is broken.
    pub(super) fn broken(status: StatusCode) -> Self {
        Self::new(status, "server_error", "the model fell over")
    }

    /// The disk is full, or the folder is not there.
    pub(super) fn not_saved() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "Unable to save slot")
    }

    pub(super) fn no_state() -> Self {
        Self::invalid("Unable to restore slot: No available space in KV cache or invalid slot save file")
    }

    /// The server went away before the request was done; nobody is left to read this.
    pub(super) fn gone() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "the server was stopped")
    }

    pub(super) fn too_long(prompt: usize, n_ctx: usize) -> Self {
        let message = format!(
            "request ({prompt} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
        );
        let failure = Self::new(StatusCode::BAD_REQUEST, "exceed_context_size_error", message);
        Self { sizes: Some((prompt, n_ctx)), ..failure }
    }

    pub(super) fn code(&self) -> StatusCode {
        self.code
    }

    pub(super) fn to_json(&self) -> Value {
        let mut error = json!({"code": self.code.as_u16(), "message": self.message, "type": self.kind});
        if let Some((prompt, n_ctx)) = self.sizes {
            error["n_prompt_tokens"] = json!(prompt);
            error["n_ctx"] = json!(n_ctx);
        }
        json!({"error": error})
    }
}
