//! One server: its client, and its slots where they are this router's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::dispatch::Dispatch;
use crate::shelf::Shelf;
use crate::store::{SavedSession, Store};
use crate::upstream::Upstream;

/// One server.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its name; empty if it is the only one.
    pub(crate) name: Arc<str>,
    pub(crate) upstream: Upstream,
    /// `None`: another router beside it owns them.
    pub(crate) slots: Option<Slots>,
    pub(crate) store: Store,
    /// Sessions of an earlier run whose home it was; taken at the start.
    pub(super) remembered: Mutex<Vec<SavedSession>>,
    /// The models that the configuration says it has; otherwise it is asked.
    pub(super) listed: Option<Vec<String>>,
    /// Its models, as far as they are known.
    models: Mutex<Option<Vec<String>>>,
    /// Requests of ours that are there now.
    pub(super) seats: AtomicUsize,
}

/// One server's slots, where they are this router's.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) shelf: Arc<Shelf>,
}

impl Member {
    pub(crate) fn new(name: &str, upstream: Upstream, store: Store, slots: Option<Slots>) -> Self {
        Self {
            name: Arc::from(name),
            upstream,
            slots,
            store,
            remembered: Mutex::default(),
            listed: None,
            models: Mutex::default(),
            seats: AtomicUsize::new(0),
        }
    }

    /// The same, whose home it was in an earlier run.
    pub(crate) fn remembering(self, sessions: Vec<SavedSession>) -> Self {
        Self { remembered: Mutex::new(sessions), ..self }
    }

    /// The same, which has just these models; it is asked if there are none.
    pub(crate) fn listing(self, models: Option<Vec<String>>) -> Self {
        Self { models: Mutex::new(models.clone()), listed: models, ..self }
    }

    /// Its adapters have been changed: to saved states that is another server.
    pub(crate) fn adapters_changed(&self) {
        if let Some(slots) = &self.slots {
            slots.dispatch.adapters_changed();
        }
    }

    /// Its models, as far as they are known.
    pub(super) fn models(&self) -> Option<Vec<String>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn has(&self, models: Vec<String>) {
        *self.models.lock().unwrap_or_else(PoisonError::into_inner) = Some(models);
    }

    /// Its models, under the names that have the server in front.
    pub(super) fn host_models(&self) -> Vec<String> {
        let models = self.models().unwrap_or_default();
        models.iter().map(|model| format!("{}-{model}", self.name)).collect()
    }

    /// Something of ours is on its way there.
    pub(super) fn is_busy(&self) -> bool {
        self.seats.load(Ordering::Relaxed) > 0
    }
}
