//! Which of llama-server's routes take a slot, and what it makes of a request there.

use crate::body::Lists;
use crate::slots::Heeds;

/// A route that takes a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotRoute {
    /// Whether `id_slot` counts there.
    pub(crate) heeds_slot: Heeds,
    /// Which member may hold several prompts.
    pub(crate) lists: Lists,
    /// A stream there ends with an event that says so: without it, it has been cut.
    pub(crate) last_word: bool,
}

/// What a POST to `path` takes, `None` for no slot: counting tokens, templates and the like. From llama.cpp's
/// `tools/server`, build b11434. Of `/v1/messages`, builds b11434 and b11549 were seen to differ.
pub(crate) fn slot_route(path: &str) -> Option<SlotRoute> {
    let (heeds_slot, lists) = match path {
        "/completion" | "/completions" | "/v1/completions" => (Heeds::Yes, Lists::Prompt),
        "/chat/completions" | "/v1/chat/completions" | "/infill" => (Heeds::Yes, Lists::None),
        "/responses" | "/v1/responses" => (Heeds::Yes, Lists::None),
        // Ollama's dialect, Anthropic's, and speech: translated into a chat on the way, with or without the slot.
        "/api/chat" | "/v1/messages" | "/audio/transcriptions" | "/v1/audio/transcriptions" => {
            (Heeds::Perhaps, Lists::None)
        }
        "/embedding" | "/embeddings" | "/v1/embeddings" => (Heeds::No, Lists::Input),
        "/rerank" | "/reranking" | "/v1/rerank" | "/v1/reranking" => (Heeds::No, Lists::Documents),
        _ => return None,
    };
    let last_word = matches!(
        path,
        "/v1/completions"
            | "/chat/completions"
            | "/v1/chat/completions"
            | "/responses"
            | "/v1/responses"
            | "/v1/messages"
    );
    Some(SlotRoute { heeds_slot, lists, last_word })
}
