//! What a user would notice of warm starts, told to the facade.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use crate::chain::{Chain, ChainKey};
use crate::usage::Usage;
use crate::warm::Story;

/// The chain of a request with this system text, if any, and these messages.
pub(super) fn chain(system: &str, messages: &[&str]) -> Chain {
    let system =
        Some(system).filter(|text| !text.is_empty()).map(|text| json!({"role": "system", "content": text}));
    let messages = messages.iter().map(|text| json!({"role": "user", "content": text}));
    let body = json!({ "messages": system.into_iter().chain(messages).collect::<Vec<_>>() });
    Chain::of(&Bytes::from(body.to_string()), &ChainKey([7; 16])).unwrap_or_default()
}

/// As [`chain`], of a client without a key.
pub(super) fn story(system: &str, messages: &[&str]) -> Story {
    Story { chain: chain(system, messages), user: None }
}

/// A turn that read 500 tokens a second and generated 10.
pub(super) fn usage(computed: u64, cached: u64) -> Usage {
    Usage { computed, cached, generated: 10, reading: Some(Duration::from_millis(2 * computed)) }
}
