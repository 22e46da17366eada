//! One server: its client, and its slots where they are this router's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::dispatch::Dispatch;
use crate::fleet::naming;
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
    catalog: Mutex<Catalog>,
    /// Requests of ours that are there now.
    pub(super) seats: AtomicUsize,
}

/// What is known of a server's models.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    /// Every name of every one; `None`: not known yet.
    pub(super) names: Option<Vec<String>>,
    /// What it last answered to `/v1/models`.
    pub(super) page: Option<Bytes>,
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
            catalog: Mutex::default(),
            seats: AtomicUsize::new(0),
        }
    }

    /// The same, whose home it was in an earlier run.
    pub(crate) fn remembering(self, sessions: Vec<SavedSession>) -> Self {
        Self { remembered: Mutex::new(sessions), ..self }
    }

    /// The same, which has just these models; it is asked if there are none.
    pub(crate) fn listing(self, models: Option<Vec<String>>) -> Self {
        let catalog = Catalog { names: models.clone(), page: None };
        Self { catalog: Mutex::new(catalog), listed: models, ..self }
    }

    /// Its adapters have been changed: to saved states that is another server.
    pub(crate) fn adapters_changed(&self) {
        if let Some(slots) = &self.slots {
            slots.dispatch.adapters_changed();
        }
    }

    /// Its models, as far as they are known.
    pub(super) fn models(&self) -> Option<Vec<String>> {
        self.catalog().names.clone()
    }

    /// It has this model, as far as is known.
    pub(super) fn may_have(&self, model: &str) -> bool {
        self.catalog().names.as_ref().is_none_or(|names| names.iter().any(|name| name == model))
    }

    /// What it answers to `/v1/models`. The names of its models, if that is such an answer, or they are listed.
    pub(super) fn told(&self, page: Bytes) -> Option<Vec<String>> {
        let listed = naming::listed(&page);
        let mut catalog = self.catalog();
        if listed.is_some() {
            catalog.page = Some(page);
        }
        catalog.names = self.listed.clone().or(listed).or(catalog.names.take());
        catalog.names.clone()
    }

    pub(super) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something of ours is on its way there.
    pub(super) fn is_busy(&self) -> bool {
        self.seats.load(Ordering::Relaxed) > 0
    }
}
