//! Named gates a request stops at until the test opens them. An opened gate stays open.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// All gates by name. A gate exists as soon as somebody waits at it or opens it, so it makes no
/// difference which of the two comes first.
#[derive(Debug, Default)]
pub(super) struct Gates {
    gates: Mutex<HashMap<String, watch::Sender<bool>>>,
}

impl Gates {
    /// Returns once the gate is open.
    pub(super) async fn pass(&self, name: &str) {
        let mut gate = self.gate(name, |gate| gate.subscribe());
        // The sender lives in the map for ever, so waiting can't fail.
        let _ = gate.wait_for(|open| *open).await;
    }

    /// Opens the gate, now and for all who come later.
    pub(super) fn open(&self, name: &str) {
        self.gate(name, |gate| {
            gate.send_replace(true);
        });
    }

    /// The names of the gates that are closed, for state dumps.
    pub(super) fn closed(&self) -> Vec<String> {
        let closed = |(name, gate): (&String, &watch::Sender<bool>)| (!*gate.borrow()).then(|| name.clone());
        self.lock().iter().filter_map(closed).collect()
    }

    fn gate<R>(&self, name: &str, act: impl FnOnce(&watch::Sender<bool>) -> R) -> R {
        act(self.lock().entry(name.to_owned()).or_insert_with(|| watch::Sender::new(false)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<bool>>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
