//! The routes that tell about the server: health, props, slots, metrics, models, token counts.
use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use serde_json::{Value, json};

use super::breakage::Breakage;
use super::failure::Failure;
use super::prompt;
use super::reply::{Reply, full, json as json_reply, typed};
use super::request::Route;
use super::slot::Slot;
use super::state::{Shared, State};

/// `GET /health`
pub(super) fn health() -> Reply {
    json_reply(&json!({"status": "ok"}))
}

/// `GET /props`: everything but whether the KV is unified.
pub(super) fn props(shared: &Shared) -> Value {
    let options = shared.read(|state| state.engine.options.clone());
    let served = &options.served;
    json!({
        "default_generation_settings": {"n_ctx": options.n_ctx, "params": {"temperature": 0.8}},
        "total_slots": options.slots, "model_alias": served.alias, "model_path": served.path,
        "modalities": {"vision": false, "audio": false}, "endpoint_slots": options.slots_endpoint,
        "endpoint_props": false, "endpoint_metrics": options.metrics_endpoint, "chat_template": "",
        "bos_token": "<bos>", "eos_token": "<eos>", "build_info": served.build, "is_sleeping": false,
    })
}

/// `GET /slots`: asked of the same queue as completions, so it uses a task number up, and it is
/// silent while a long prefill keeps the server from its queue.
pub(super) async fn slots(shared: &Arc<Shared>, query: &str) -> Result<Value, Failure> {
    shared.update(|state| {
        state.log.poll_count += 1;
        if state.engine.options.record {
            state.log.polls.push(Instant::now());
        }
    });
    if !shared.read(|state| state.engine.options.slots_endpoint) {
        return Err(Failure::switched_off("slots endpoint", "--slots"));
    }
    let mut paused = shared.slots_paused.subscribe();
    let _ = paused.wait_for(|paused| !paused).await;
    shared.until(|state| !state.engine.is_blocked()).await;
    shared.update(|state| {
        state.engine.next_task();
        if super::routes::query_value(query, "fail_on_no_slot").is_some() && is_full(state) {
            return Err(Failure::no_slot_available());
        }
        let n_ctx = state.engine.options.n_ctx;
        Ok(state.slots().iter().map(|slot| slot.to_json(n_ctx)).collect())
    })
}

fn is_full(state: &State) -> bool {
    state.slots().iter().all(Slot::is_processing)
}

/// `GET /metrics`
pub(super) fn metrics(shared: &Shared) -> Result<Reply, Failure> {
    if !shared.read(|state| state.engine.options.metrics_endpoint) {
        return Err(Failure::switched_off("metrics endpoint", "--metrics"));
    }
    let text = shared.update(|state| {
        state.engine.next_task();
        let counters = [
            ("prompt_tokens_total", "counter", state.engine.prompt_tokens_total),
            ("tokens_predicted_total", "counter", state.engine.predicted_tokens_total),
            ("requests_processing", "gauge", state.processing()),
            ("requests_deferred", "gauge", state.deferred()),
        ];
        counters.map(metric).concat()
    });
    Ok(typed("text/plain; version=0.0.4", full(text)))
}

fn metric((name, kind, value): (&str, &str, usize)) -> String {
    format!(
        "# HELP llamacpp:{name} Number of {name}.\n# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}\n"
    )
}

/// `GET /v1/models`
pub(super) fn models(shared: &Shared) -> Result<Value, Failure> {
    if shared.read(|state| state.breakage) == Some(Breakage::TellsNoModels) {
        return Err(Failure::broken(StatusCode::INTERNAL_SERVER_ERROR));
    }
    let served = shared.read(|state| state.engine.options.served.clone());
    Ok(json!({"object": "list", "data": [{
        "id": served.alias, "object": "model", "created": 0, "owned_by": "llamacpp",
        "meta": {
            "vocab_type": 1, "n_vocab": 262_144, "n_ctx_train": 32768, "n_embd": 640,
            "n_params": served.params, "size": served.size,
        },
    }]}))
}

/// `GET /lora-adapters`
pub(super) fn adapters(shared: &Shared) -> Value {
    let adapters = shared.read(|state| state.engine.options.served.adapters.clone());
    let told = adapters.iter().enumerate().map(|(id, path)| json!({"id": id, "path": path, "scale": 1.0}));
    told.collect()
}

/// `POST /lora-adapters`. Scales are not told apart here.
pub(super) fn set_adapters() -> Value {
    json!({"success": true})
}

/// `POST /tokenize`
pub(super) fn tokenize(body: &[u8]) -> Result<Value, Failure> {
    let body: Value = parse(body)?;
    let content = body["content"].as_str().unwrap_or_default();
    let tokens: Vec<u32> = super::tokens::tokenize("", content).map(|token| token.0 as u32).collect();
    Ok(json!({"tokens": tokens}))
}

/// `POST /v1/messages/count_tokens`: reads the prompt, takes no slot.
pub(super) fn count_tokens(body: &[u8]) -> Result<Value, Failure> {
    let (tokens, _) = prompt::render(Route::Messages, &parse(body)?).map_err(Failure::invalid)?;
    Ok(json!({"input_tokens": tokens.len()}))
}

fn parse(body: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::invalid(format!("parse error: {error}")))
}
