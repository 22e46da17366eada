//! `/v1/responses`: OpenAI's newer dialect, its usage in `response.completed`. The events say less than OpenAI's own: no
//! indices, and next to nothing of the response while it is under way.
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

fn done(report: &Report<'_>) -> Value {
    item(report, "completed", json!([part(report.text())]))
}

/// It is `completed` even where a limit cut it short.
fn response(report: &Report<'_>) -> Value {
    json!({
        "id": report.id("resp_"), "object": "response", "created_at": 0, "model": MODEL,
        "status": "completed", "output": [done(report)],
        "usage": {
            "input_tokens": report.prompt(), "output_tokens": report.predicted(),
            "total_tokens": report.prompt() + report.predicted(),
            "input_tokens_details": {"cached_tokens": report.cached()},
        },
    })
}

pub(super) fn whole(report: &Report<'_>) -> Value {
    let mut answer = response(report);
    answer["completed_at"] = json!(0);
    answer
}

pub(super) fn opening(report: &Report<'_>) -> String {
    let begun = json!({"id": report.id("resp_"), "object": "response", "status": "in_progress"});
    let named = |kind: &str| event(&json!({"type": kind, "response": begun}));
    let added = item(report, "in_progress", json!([]));
    named("response.created")
        + &named("response.in_progress")
        + &event(&json!({"type": "response.output_item.added", "item": added}))
        + &of_item(report, "response.content_part.added", "part", json!({"type": "output_text", "text": ""}))
}

pub(super) fn piece(report: &Report<'_>, text: &str) -> String {
    of_item(report, "response.output_text.delta", "delta", json!(text))
}

pub(super) fn closing(report: &Report<'_>) -> String {
    let completed =
        json!({"type": "response.completed", "response": response(report), "timings": report.timings()});
    of_item(report, "response.output_text.done", "text", json!(report.text()))
        + &of_item(report, "response.content_part.done", "part", part(report.text()))
        + &event(&json!({"type": "response.output_item.done", "item": done(report)}))
        + &event(&completed)
}

/// An event about the one item.
fn of_item(report: &Report<'_>, kind: &str, key: &str, value: Value) -> String {
    let mut told = json!({"type": kind, "item_id": report.id("msg_")});
    told[key] = value;
    event(&told)
}
