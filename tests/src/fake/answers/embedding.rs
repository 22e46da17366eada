//! `/v1/embeddings`.
use serde_json::{Value, json};

use super::{MODEL, Report};

pub(super) fn whole(report: &Report<'_>) -> Value {
    json!({
        "object": "list", "model": MODEL,
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}],
        "usage": {"prompt_tokens": report.prompt(), "total_tokens": report.prompt()},
    })
}
