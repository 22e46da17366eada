//! `POST /slots/{id}?action=save|restore|erase`. A busy slot makes the action wait in the queue.
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::failure::Failure;
use super::generation::Arrival;
use super::routes::query_value;
use super::state::Shared;
use super::task::{Act, Action, Task, Work};

/// What a saved slot's file weighs without any token.
const EMPTY_FILE_BYTES: usize = 68;
/// What a token adds to it.
const BYTES_PER_TOKEN: usize = 5_000;

/// Does the action of the query to the slot of the path.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    slot: &str,
    query: &str,
    body: &[u8],
    arrival: Arrival,
) -> Result<Value, Failure> {
    if !shared.read(|state| state.engine.options.slot_save) {
        return Err(Failure::switched_off("slots action", "--slot-save-path"));
    }
    let slot: i64 = slot.parse().map_err(|_| Failure::invalid("Invalid slot ID"))?;
    let action = action_of(query, body)?;
    let count = queued(shared, slot, action.clone(), arrival).await?;
    Ok(told(slot, &action, count))
}

fn action_of(query: &str, body: &[u8]) -> Result<Action, Failure> {
    let filename = || {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = body["filename"].as_str().filter(|name| !name.is_empty() && !name.contains('/'));
        name.map(str::to_owned).ok_or_else(|| Failure::invalid("Invalid filename"))
    };
    match query_value(query, "action") {
        Some("save") => Ok(Action::Save(filename()?)),
        Some("restore") => Ok(Action::Restore(filename()?)),
        Some("erase") => Ok(Action::Erase),
        _ => Err(Failure::invalid("Invalid action")),
    }
}

async fn queued(shared: &Shared, slot: i64, action: Action, arrival: Arrival) -> Result<usize, Failure> {
    let (answer, done) = oneshot::channel();
    shared.update(|state| {
        let work = Work::Act(Act { action, answer });
        let id = state.engine.next_task();
        let (request, foreign) = (arrival.number, arrival.foreign);
        let task = Task { id, request, foreign, named: Some(slot), work };
        state.engine.submit(task, &mut state.log);
    });
    done.await.unwrap_or_else(|_| Err(Failure::gone()))
}

fn told(slot: i64, action: &Action, count: usize) -> Value {
    let bytes = EMPTY_FILE_BYTES + count * BYTES_PER_TOKEN;
    match action {
        Action::Save(name) => json!({
            "id_slot": slot, "filename": name, "n_saved": count, "n_written": bytes,
            "timings": {"save_ms": 1.0},
        }),
        Action::Restore(name) => json!({
            "id_slot": slot, "filename": name, "n_restored": count, "n_read": bytes,
            "timings": {"restore_ms": 1.0},
        }),
        Action::Erase => json!({"id_slot": slot, "n_erased": count}),
    }
}
