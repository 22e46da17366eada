//! What other routers in front of the same servers have to say about where a conversation lives, and how full a server is.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::{self, sleep};

use super::shared::Homes;
use super::{NotSeated, Seat, Servers, Several, SharedStatus};
use crate::chain::ChainKey;
use crate::fleet::{Ask, Key, Why};

/// So often the routers tell each other what they have at the servers.
const EVERY: Duration = Duration::from_secs(2);

impl Servers {
    /// A seat where the conversation lives for all routers. One that has had no home is claimed for its server; if another
    /// router was first, it goes there.
    pub(super) async fn seat_shared(
        self: &Arc<Self>,
        several: &Several,
        ask: Ask,
        until: time::Instant,
    ) -> Result<Seat, NotSeated> {
        let Some((homes, key)) = several.shared.as_ref().zip(ask.key) else {
            return self.seat_here(several, ask, until).await;
        };
        let seat = self.seat_at_home(several, homes, key, ask, until).await?;
        Ok(seat.of_shared(key))
    }

    async fn seat_at_home(
        self: &Arc<Self>,
        several: &Several,
        homes: &Homes,
        key: Key,
        mut ask: Ask,
        until: time::Instant,
    ) -> Result<Seat, NotSeated> {
        if ask.again.is_none() {
            ask.home = homes.home(key).await;
        }
        let seat = self.seat_here(several, ask.clone(), until).await?;
        match seat.why() {
            // Also of an old home that only this router knew, or the Valkey has forgotten.
            Some(Why::New | Why::Home) if ask.home.is_none() && ask.again.is_none() => {
                let home = homes.claim(key, seat.server()).await;
                if home == seat.server() {
                    return Ok(seat);
                }
                drop(seat);
                self.seat_here(several, Ask { home: Some(home), ..ask }, until).await
            }
            Some(Why::Moved { .. }) => {
                homes.moved(key, seat.server());
                Ok(seat)
            }
            _ => Ok(seat),
        }
    }

    /// The key of the hashes by which all routers know conversations that have no session; `own` is this router's.
    pub(crate) async fn opening_key(&self, own: ChainKey) -> ChainKey {
        match self.homes() {
            Some(homes) => homes.hash_key(own).await.unwrap_or(own),
            None => own,
        }
    }

    /// Tells the other routers what this one has at the servers, and hears the same of them.
    pub(super) async fn share(self: Arc<Self>) {
        let Some(homes) = self.homes() else { return pending().await };
        loop {
            let loads = self.change(|state| state.fleet.loads());
            homes.publish(&loads).await;
            // Without a word of them they have nothing there.
            let others = homes.others().await.unwrap_or_default();
            self.change(|state| state.fleet.others(&others, Instant::now()));
            sleep(EVERY).await;
        }
    }

    /// A turn of a conversation whose home is shared has ended.
    pub(super) fn rested(&self, key: Key) {
        if let Some(homes) = self.homes() {
            homes.rested(key);
        }
    }

    /// How the sharing goes, if there is any.
    pub(crate) fn shared(&self) -> Option<SharedStatus> {
        self.homes().map(Homes::state)
    }

    fn homes(&self) -> Option<&Homes> {
        self.several.as_ref()?.shared.as_ref()
    }
}
