//! Saved states, carried out: what the slot table has decided is done to the server, the files and the database.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::Utc;
use serde::Serialize;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Dispatch, State};
use crate::aside::aside;
use crate::shelf::{Place, Torn};
use crate::slots::{End, LeaseId, SlotId};
use crate::store::Write;
use crate::upstream::UpstreamError;
use crate::warm::{Effect, SaveError, Snapshot, Standing, StateId};

/// A save or a restore gets so long, ...
const PATIENCE: Duration = Duration::from_secs(60);
/// ... and so many times what it should take. Beyond, something else has taken the slot and is not done with it.
const SLOWER: f64 = 4.0;
/// Nothing takes longer.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Saved states, as the status page shows them.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WarmSnapshot {
    #[serde(flatten)]
    states: Snapshot,
    #[serde(flatten)]
    place: Place,
    /// Why none are used; `None`: they are.
    off: Option<&'static str>,
}

/// What has come of [`Dispatch::save_all`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AllSaved {
    /// So many slots were saved meanwhile.
    pub saved: u64,
    /// That is all that was worth it.
    pub complete: bool,
}

impl WarmSnapshot {
    pub(super) fn new(states: Snapshot, place: Place) -> Self {
        let off = why_off(states.standing);
        Self { states, place, off }
    }
}

fn why_off(standing: Standing) -> Option<&'static str> {
    match standing {
        Standing::On => None,
        Standing::Unknown => Some("the server has not said yet whether it saves slots"),
        Standing::Disabled => Some("switched off by warm.enabled"),
        Standing::Unsupported => Some("llama-server was started without --slot-save-path"),
        Standing::Unreused => Some("restored states were not reused"),
        Standing::Refused => {
            Some("llama-server refused three restores in a row; tried again after its restart")
        }
    }
}

impl State {
    /// How long something may take that should take so many seconds.
    fn patience(expected: f64) -> Duration {
        let expected = Duration::try_from_secs_f64(expected * SLOWER).unwrap_or(LONGEST);
        (PATIENCE + expected).min(LONGEST)
    }

    fn save_limit(&mut self, slot: SlotId) -> Duration {
        let tokens = self.table.slot(slot).and_then(|shown| shown.tokens).unwrap_or(0);
        Self::patience(self.table.warm().save_time(tokens))
    }

    pub(super) fn restore_limit(&mut self, bytes: u64) -> Duration {
        Self::patience(self.table.warm().restore_time(bytes))
    }
}

impl Dispatch {
    /// Has every idle slot saved that is worth it, and waits until that is done, but not longer than `limit`.
    pub async fn save_all(self: &Arc<Self>, limit: Duration) -> AllSaved {
        let count = |state: &mut State| state.table.warm().snapshot().saved;
        let before = self.change(|state| {
            state.table.save_all();
            count(state)
        });
        let complete = timeout(limit, self.nothing_to_save()).await.is_ok();
        AllSaved { saved: count(&mut self.lock()).saturating_sub(before), complete }
    }

    async fn nothing_to_save(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if !self.lock().table.saving() {
                return;
            }
            changed.await;
        }
    }

    /// Which server this is, and whether it saves slots; `None`: it did not say.
    pub(super) fn introduced(&self, state: &mut State, identity: Option<String>, can_save: Option<bool>) {
        if let Some(identity) = identity {
            state.table.warm().served_by(&identity);
            let before = state.server.identity.replace(identity);
            if before.is_some() && before != state.server.identity {
                // A restart that nobody has seen.
                self.shelf_outlives_server();
            }
        }
        if let Some(can_save) = can_save {
            state.table.warm().supported(can_save);
        }
        let standing = state.table.warm().snapshot().standing;
        state.server.stands(standing);
        state.server.saves_unseen(can_save == Some(true) && !self.shelf.has_folder());
    }

    /// The server has restarted.
    pub(super) fn shelf_outlives_server(&self) {
        self.sweep(self.shelf.restarted());
    }

    fn sweep(&self, torn: Torn) {
        let shelf = Arc::clone(&self.shelf);
        tokio::spawn(aside(move || shelf.sweep(&torn)));
    }

    pub(super) fn start_save(
        self: &Arc<Self>,
        state: &mut State,
        lease: LeaseId,
        slot: SlotId,
        saved: StateId,
    ) {
        let limit = state.save_limit(slot);
        let name = self.shelf.begin(saved);
        let dispatch = Arc::clone(self);
        let work = tokio::spawn(Arc::clone(self).save(lease, slot, saved, name, limit));
        tokio::spawn(async move {
            if work.await.is_err_and(|error| error.is_panic()) {
                // The slot must not stay taken for ever.
                dispatch.sweep(dispatch.shelf.abandon(saved));
                dispatch.release(lease, End::Broken);
            }
        });
    }

    async fn save(
        self: Arc<Self>,
        lease: LeaseId,
        slot: SlotId,
        state: StateId,
        name: String,
        limit: Duration,
    ) {
        let shelf = Arc::clone(&self.shelf);
        let answer = match self.upstream.save(slot, &name, limit).await {
            Err(UpstreamError::Unreachable { .. }) => Ok(Err(SaveError::Failed)),
            answer => answer,
        };
        let outcome = match answer {
            Ok(Ok(written)) => aside(move || shelf.keep(state, written)).await.map(|()| written),
            Ok(Err(why)) => {
                aside(move || shelf.discard(state)).await;
                Err(why)
            }
            Err(error) => {
                let url = self.upstream.address();
                warn!(url, slot = slot.0, %error, "a slot was not saved, or not in time; it is used again once it is seen idle");
                self.sweep(self.shelf.abandon(state));
                return self.release(lease, End::Broken);
            }
        };
        self.change(|state| state.table.save_ended(lease, outcome, Instant::now()));
        let shelf = Arc::clone(&self.shelf);
        aside(move || shelf.settle(state)).await;
    }

    pub(super) fn carry_out_warm(self: &Arc<Self>, state: &mut State, effect: Effect) {
        match effect {
            Effect::Register(saved) => {
                if let Some(row) = self.shelf.register(&saved) {
                    self.store.record(Write::State { row: Box::new(row), at: Utc::now() });
                }
            }
            Effect::Forget(saved) => self.forget(saved),
            Effect::Turned(standing) => {
                info!(url = state.server.url, ?standing, off = why_off(standing), "saved states");
                state.server.stands(standing);
            }
            Effect::NoRoom => warn!(
                url = state.server.url,
                room = self.shelf.room(),
                "there is no room for saved states, so sessions are read again instead: free the disk, or raise \
                 warm.max_bytes"
            ),
            Effect::Reread(reread) => self.store.record(Write::Reread { reread, at: Utc::now() }),
        }
    }

    /// Row and file go; the name is only used again once the row is gone from the disk.
    fn forget(&self, state: StateId) {
        self.store.record(Write::StateGone(state));
        let Some(forgotten) = self.shelf.forget(state) else { return };
        let (store, shelf) = (self.store.clone(), Arc::clone(&self.shelf));
        tokio::spawn(async move {
            let forgotten = aside({
                let shelf = Arc::clone(&shelf);
                move || shelf.remove(forgotten)
            });
            let forgotten = forgotten.await;
            if store.written().await {
                shelf.parted(&forgotten);
            }
        });
    }
}
