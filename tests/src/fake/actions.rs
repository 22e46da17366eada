//! `POST /slots/{id}?action=save|restore|erase`. A busy slot makes the action wait in the queue.
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::failure::Failure;
use super::generation::Arrival;
use super::options::Pace;
use super::routes::query_value;
use super::state::Shared;
use super::states;
use super::task::{Act, Action, Moved, Task, Work};

/// Does the action of the query to the slot of the path.
pub(super) async fn serve(
    shared: &Arc<Shared>,
    slot: &str,
    query: &str,
    body: &[u8],
    arrival: Arrival,
) -> Result<Value, Failure> {
    let (on, pace) = shared.read(|state| (state.engine.options.slot_save, state.engine.options.pace));
    if !on {
        return Err(Failure::switched_off("slots action", "--slot-save-path"));
    }
    let slot: i64 = slot.parse().map_err(|_| Failure::invalid("Invalid slot ID"))?;
    let action = action_of(query, body)?;
    let (answer, done) = oneshot::channel();
    // A task of its own: it is done whether or not its client is still there.
    tokio::spawn(queue(Arc::clone(shared), slot, Act { action: action.clone(), answer }, arrival));
    let moved = done.await.unwrap_or_else(|_| Err(Failure::gone()))?;
    Ok(told(slot, &action, moved, pace))
}

fn action_of(query: &str, body: &[u8]) -> Result<Action, Failure> {
    let filename = || {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let name = body["filename"].as_str().filter(|name| states::is_file_name(name));
        name.map(str::to_owned).ok_or_else(|| Failure::invalid("Invalid filename"))
    };
    match query_value(query, "action") {
        Some("save") => Ok(Action::Save(filename()?)),
        Some("restore") => Ok(Action::Restore(filename()?)),
        Some("erase") => Ok(Action::Erase),
        _ => Err(Failure::invalid("Invalid action")),
    }
}

async fn queue(shared: Arc<Shared>, slot: i64, act: Act, arrival: Arrival) {
    let run = shared.read(|state| state.run);
    if act.action.file().is_some() {
        shared.until(|state| !state.engine.disk.faults.late || state.run != run).await;
    }
    shared.update(|state| {
        if state.run == run {
            let id = state.engine.next_task();
            let (request, foreign) = (arrival.number, arrival.foreign);
            let task = Task { id, request, foreign, named: Some(slot), work: Work::Act(act) };
            state.engine.submit(task, &mut state.log);
        }
    });
}

fn told(slot: i64, action: &Action, moved: Moved, pace: Pace) -> Value {
    let Moved { tokens, bytes } = moved;
    let ms = |per_token: f64| per_token * tokens as f64;
    match action {
        Action::Save(name) => json!({
            "id_slot": slot, "filename": name, "n_saved": tokens, "n_written": bytes,
            "timings": {"save_ms": ms(pace.save_ms)},
        }),
        Action::Restore(name) => json!({
            "id_slot": slot, "filename": name, "n_restored": tokens, "n_read": bytes,
            "timings": {"restore_ms": ms(pace.restore_ms)},
        }),
        Action::Erase => json!({"id_slot": slot, "n_erased": tokens}),
    }
}
