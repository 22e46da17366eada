//! `/v1/messages`: Anthropic's dialect, where `input_tokens` leaves the cached ones out.
use serde_json::{Value, json};

use super::{MODEL, Report, event};

fn message(report: &Report<'_>, content: Value, reason: Option<&str>, output: usize) -> Value {
    json!({
        "id": report.id("chatcmpl-"), "type": "message", "role": "assistant", "content": content,
        "model": MODEL, "stop_reason": reason, "stop_sequence": null,
        "usage": {
            "cache_read_input_tokens": report.cached(), "input_tokens": report.computed(),
            "output_tokens": output,
        },
    })
}

fn stop_reason(report: &Report<'_>) -> &'static str {
    report.reason("max_tokens", "end_turn")
}

pub(super) fn whole(report: &Report<'_>) -> Value {
    let content = json!([{"type": "text", "text": report.text()}]);
    message(report, content, Some(stop_reason(report)), report.predicted())
}

/// The input counts are told here, and nowhere later.
pub(super) fn opening(report: &Report<'_>) -> String {
    let start = json!({"type": "message_start", "message": message(report, json!([]), None, 0)});
    let block = json!({
        "type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""},
    });
    event(&start) + &event(&block)
}

pub(super) fn piece(text: &str) -> String {
    event(&json!({
        "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text},
    }))
}

pub(super) fn closing(report: &Report<'_>) -> String {
    let delta = json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(report), "stop_sequence": null},
        "usage": {"output_tokens": report.predicted()},
    });
    event(&json!({"type": "content_block_stop", "index": 0}))
        + &event(&delta)
        + &event(&json!({"type": "message_stop"}))
}
