//! `/completion` (llama.cpp's own dialect, no `[DONE]`) and `/v1/completions` (OpenAI's).
use serde_json::{Value, json};

use super::{DONE, MODEL, Report, data};

pub(super) fn whole(report: &Report<'_>) -> Value {
    json!({
        "index": 0, "content": report.text(), "tokens": [], "id_slot": report.run.launch.slot.0,
        "stop": true, "model": MODEL, "tokens_predicted": report.predicted(),
        "tokens_evaluated": report.prompt(), "has_new_line": false, "truncated": false,
        "stop_type": report.reason("limit", "eos"), "stopping_word": "",
        // Not the reused tokens, whatever the name says: all the slot holds now.
        "tokens_cached": (report.prompt() + report.predicted()).saturating_sub(1),
        "timings": report.timings(),
    })
}

pub(super) fn piece(report: &Report<'_>, text: &str) -> String {
    data(&json!({
        "index": 0, "content": text, "tokens": [], "stop": false, "id_slot": -1,
        "tokens_predicted": report.predicted(), "tokens_evaluated": report.prompt(),
    }))
}

pub(super) fn closing(report: &Report<'_>) -> String {
    let mut last = whole(report);
    last["content"] = json!("");
    data(&last)
}

fn oai(report: &Report<'_>, text: &str, reason: Option<&str>) -> Value {
    json!({
        "choices": [{"text": text, "index": 0, "logprobs": null, "finish_reason": reason}],
        "created": 0, "model": MODEL, "object": "text_completion", "id": report.id("cmpl-"),
    })
}

pub(super) fn oai_whole(report: &Report<'_>) -> Value {
    let mut answer = oai(report, report.text(), Some(report.reason("length", "stop")));
    answer["usage"] = report.usage();
    answer["timings"] = report.timings();
    answer
}

pub(super) fn oai_piece(report: &Report<'_>, text: &str) -> String {
    data(&oai(report, text, None))
}

/// Timings are always there, the usage only if asked for.
pub(super) fn oai_closing(report: &Report<'_>) -> String {
    let mut last = oai(report, "", Some(report.reason("length", "stop")));
    last["timings"] = report.timings();
    if report.run.request.include_usage {
        last["usage"] = report.usage();
    }
    data(&last) + DONE
}
