//! `/v1/chat/completions`.
use serde_json::{Value, json};

use super::{DONE, MODEL, Report, data};

fn envelope(report: &Report<'_>, object: &str, choices: Value) -> Value {
    json!({
        "choices": choices, "created": 0, "model": MODEL, "system_fingerprint": "b0-fake",
        "object": object, "id": report.id("chatcmpl-"),
    })
}

pub(super) fn whole(report: &Report<'_>) -> Value {
    let choice = |index| {
        json!({
            "finish_reason": report.reason("length", "stop"), "index": index,
            "message": {"role": "assistant", "content": report.text()},
        })
    };
    let choices = (0..report.run.request.choices).map(choice).collect();
    let mut answer = envelope(report, "chat.completion", choices);
    answer["usage"] = report.usage();
    answer["timings"] = report.timings();
    answer
}

fn chunk(report: &Report<'_>, delta: Value, reason: Option<&str>) -> Value {
    let choices = json!([{"finish_reason": reason, "index": 0, "delta": delta}]);
    envelope(report, "chat.completion.chunk", choices)
}

pub(super) fn opening(report: &Report<'_>) -> String {
    data(&chunk(report, json!({"role": "assistant", "content": null}), None))
}

pub(super) fn piece(report: &Report<'_>, text: &str) -> String {
    data(&chunk(report, json!({"content": text}), None))
}

/// The usage has a frame of its own if asked for; timings are in the last frame, always.
pub(super) fn closing(report: &Report<'_>) -> String {
    let mut last = chunk(report, json!({}), Some(report.reason("length", "stop")));
    let mut frames = String::new();
    if report.run.request.include_usage {
        frames.push_str(&data(&last));
        last = envelope(report, "chat.completion.chunk", json!([]));
        last["usage"] = report.usage();
    }
    last["timings"] = report.timings();
    frames + &data(&last) + DONE
}
