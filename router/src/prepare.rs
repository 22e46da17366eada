//! What is put into a slot before the request that names it: a one-word prompt, or a saved state.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::aside::aside;
use crate::dispatch::Lease;
use crate::shelf::Shelf;
use crate::slots::{Fill, Launch, SlotId};
use crate::upstream::{Upstream, UpstreamError};
use crate::warm::{RestoreError, SaveError, StateId};

/// A one-word prompt is saved in milliseconds.
const MEASURE: Duration = Duration::from_secs(60);

/// Fills a slot, with all that takes.
#[derive(Debug)]
pub(crate) struct Filler<'a> {
    pub(crate) upstream: &'a Upstream,
    pub(crate) shelf: &'a Arc<Shelf>,
    /// The client's, for what it could send itself; states are the router's business.
    pub(crate) credentials: &'a [(HeaderName, HeaderValue)],
}

impl Filler<'_> {
    /// Fills the slot that `lease` names. Whatever goes wrong with a saved state, the request goes on cold.
    ///
    /// # Errors
    /// When the server can't be reached, or it is not certain what it is doing with the slot.
    pub(crate) async fn fill(&self, lease: &mut Lease) -> Result<(), UpstreamError> {
        let Launch::Pin { slot, fill, .. } = lease.launch else { return Ok(()) };
        match fill {
            Fill::Nothing => return Ok(()),
            Fill::Prime => {
                self.upstream.prime(slot, self.credentials).await?;
                lease.filled();
                return Ok(());
            }
            Fill::Measure => self.measure(lease).await?,
            Fill::Restore(state) => self.restore(lease, slot, state).await?,
        }
        if lease.may_start().await { Ok(()) } else { Err(self.upstream.restarted()) }
    }

    /// Finds out how large the state of a one-word prompt is on this server.
    async fn measure(&self, lease: &Lease) -> Result<(), UpstreamError> {
        let Some(slot) = lease.slot_to_measure() else { return Ok(()) };
        let measured = self.measure_in(slot, lease).await;
        lease.tried_to_measure();
        // Without an answer the server may be at it all the same: then nothing more is sent to that slot.
        if lease.launch.slot() == Some(slot) { measured } else { Ok(()) }
    }

    async fn measure_in(&self, slot: SlotId, lease: &Lease) -> Result<(), UpstreamError> {
        if !self.upstream.prime(slot, self.credentials).await? {
            return Ok(());
        }
        let saved = self.upstream.save(slot, &self.shelf.probe_name(slot), MEASURE).await;
        match &saved {
            Ok(Ok(written)) => {
                let (shelf, bytes) = (Arc::clone(self.shelf), written.bytes);
                aside(move || shelf.probed(slot, bytes)).await;
                lease.measured(bytes);
            }
            // The next turn tries, but not for ever.
            Ok(Err(why)) => lease.unmeasured(*why),
            Err(UpstreamError::Unreachable { .. }) => {}
            Err(_) => lease.unmeasured(SaveError::Failed),
        }
        saved.map(drop)
    }

    async fn restore(&self, lease: &mut Lease, slot: SlotId, state: StateId) -> Result<(), UpstreamError> {
        if lease.needs_measure() && lease.may_measure().await {
            self.measure(lease).await?;
        }
        if !lease.is_measured() {
            // That is no fault of the state: another time.
            return Ok(());
        }
        let shelf = Arc::clone(self.shelf);
        let answer = match aside(move || shelf.find(state)).await {
            Ok(found) => {
                let limit = lease.restore_limit(found.bytes);
                self.upstream.restore(slot, &found.name, limit).await
            }
            Err(why) => Ok(Err(why)),
        };
        let outcome = match &answer {
            Ok(Ok(written)) if !lease.may_hold(state, written.tokens) => Err(RestoreError::Refused),
            Ok(outcome) => *outcome,
            // Nothing was sent.
            Err(UpstreamError::Unreachable { .. }) => return answer.map(drop),
            // The server may have died of it, or hang: the client's next attempt must not do that to it again.
            Err(_) => Err(RestoreError::Refused),
        };
        lease.restored(outcome);
        answer.map(drop)?;
        if outcome == Err(RestoreError::Refused) {
            // What the slot holds now is anybody's guess.
            self.upstream.erase(slot).await?;
        }
        Ok(())
    }
}
