//! `/v1/responses`: OpenAI's newer dialect, its usage in `response.completed`.
use serde_json::{Value, json};

use super::{MODEL, Report, event};

fn item(report: &Report<'_>, status: &str, content: Value) -> Value {
    json!({
        "id": report.id("msg_"), "type": "message", "role": "assistant", "status": status,
        "content": content,
    })
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn response(report: &Report<'_>, status: &str, output: Value) -> Value {
    json!({
        "id": report.id("resp_"), "object": "response", "created_at": 0, "model": MODEL,
        "status": status, "output": output,
    })
}

pub(super) fn whole(report: &Report<'_>) -> Value {
    let output = json!([item(report, "completed", json!([part(report.text())]))]);
    let mut answer = response(report, "completed", output);
    answer["completed_at"] = json!(0);
    answer["usage"] = json!({
        "input_tokens": report.prompt(), "output_tokens": report.predicted(),
        "total_tokens": report.prompt() + report.predicted(),
        "input_tokens_details": {"cached_tokens": report.cached()},
    });
    answer
}

pub(super) fn opening(report: &Report<'_>) -> String {
    let begun = response(report, "in_progress", json!([]));
    let named = |kind: &str| event(&json!({"type": kind, "response": begun}));
    let added = json!({
        "type": "response.output_item.added", "output_index": 0,
        "item": item(report, "in_progress", json!([])),
    });
    named("response.created")
        + &named("response.in_progress")
        + &event(&added)
        + &of_part(report, "response.content_part.added", "part", part(""))
}

pub(super) fn piece(report: &Report<'_>, text: &str) -> String {
    of_part(report, "response.output_text.delta", "delta", json!(text))
}

pub(super) fn closing(report: &Report<'_>) -> String {
    let done = json!({
        "type": "response.output_item.done", "output_index": 0,
        "item": item(report, "completed", json!([part(report.text())])),
    });
    of_part(report, "response.output_text.done", "text", json!(report.text()))
        + &of_part(report, "response.content_part.done", "part", part(report.text()))
        + &event(&done)
        + &event(&json!({"type": "response.completed", "response": whole(report)}))
}

/// An event about the one part of the one item.
fn of_part(report: &Report<'_>, kind: &str, key: &str, value: Value) -> String {
    let mut told = json!({
        "type": kind, "item_id": report.id("msg_"), "output_index": 0, "content_index": 0,
    });
    told[key] = value;
    event(&told)
}
