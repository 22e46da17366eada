//! Where conversations live, as all routers in front of the same servers know it: kept in a Valkey or Redis.
//!
//! No request ever fails for it, and none waits for more than [`PATIENCE`]: whoever gets no answer goes by what its own
//! router knows, and from then on nobody asks until the Valkey is back.
//!
//! * `keys`: what is kept under which name (pure);
//! * `load`: a router's load as text (pure);
//! * `link`: whether it can be reached, and how often it could not;
//! * `keeper`: the task that connects, and connects again;
//! * `wire`: the commands, with the crate `redis`.

mod fault;
mod keeper;
mod keys;
mod link;
mod load;
#[cfg(all(test, feature = "shared"))]
mod tests;
#[cfg(feature = "shared")]
mod wire;
#[cfg(not(feature = "shared"))]
#[path = "no_wire.rs"]
mod wire;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use crate::chain::ChainKey;
use crate::config;
use crate::fleet::{Key, Load, ServerId};
use keeper::Note;
use keys::Keys;
use link::Link;
pub(crate) use link::Snapshot;

/// How long a request waits for an answer.
const PATIENCE: Duration = Duration::from_millis(50);
/// What no request waits for may take so long.
const UNHURRIED: Duration = Duration::from_secs(1);
/// A router that has not said for so long how much it has at the servers has nothing there.
const LOAD_EXPIRY: Duration = Duration::from_secs(10);
/// Notes that may wait to be written; beyond, they are not shared.
const QUEUE: usize = 1_024;

/// The homes that routers share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Homes {
    inner: Arc<Inner>,
    /// Once the last one is gone, the keeper ends.
    notes: mpsc::Sender<Note>,
}

#[derive(Debug)]
struct Inner {
    keys: Keys,
    names: Vec<Arc<str>>,
    ttl: Duration,
    /// A request waits so long for an answer, and no longer.
    patience: Duration,
    link: Arc<Link>,
    /// The key of the hashes that all routers know conversations by, once it is agreed.
    agreed: Mutex<Option<ChainKey>>,
}

impl Homes {
    /// Begins to connect, in the background. Servers are known to other routers by their `names`, which stand by
    /// [`ServerId`]; a home is kept for `ttl` since its last turn came or ended.
    pub(crate) fn open(config: &config::Shared, names: Vec<Arc<str>>, ttl: Duration) -> Self {
        Self::open_with(PATIENCE, config, names, ttl)
    }

    fn open_with(patience: Duration, config: &config::Shared, names: Vec<Arc<str>>, ttl: Duration) -> Self {
        let keys = Keys::new(&config.prefix);
        let link = Arc::new(Link::new());
        let (notes, queue) = mpsc::channel(QUEUE);
        tokio::spawn(keeper::keep(link.clone(), config.url.clone(), keys.load(keys.me()), queue));
        let inner = Inner { keys, names, ttl, patience, link, agreed: Mutex::new(None) };
        Self { inner: Arc::new(inner), notes }
    }

    /// Where a conversation lives, if it lives anywhere that this router knows. It goes on living there for another
    /// time to live.
    pub(crate) async fn home(&self, key: Key) -> Option<ServerId> {
        let (name, ttl) = (self.inner.keys.home(key), self.inner.ttl);
        let get = |mut wire: wire::Connection| async move { wire.get(&name, ttl).await };
        let answer = self.inner.link.ask(self.inner.patience, get).await;
        if answer.is_none() {
            self.inner.link.fell_back();
        }
        self.server(&answer??)
    }

    /// Where a conversation lives from now on that has had no home: at this `server`, unless another router was first.
    pub(crate) async fn claim(&self, key: Key, server: ServerId) -> ServerId {
        let Some(home) = self.name(server) else { return server };
        let (name, ttl) = (self.inner.keys.home(key), self.inner.ttl);
        let claim =
            move |mut wire: wire::Connection| async move { wire.claim(&name, &home, Some(ttl)).await };
        match self.inner.link.ask(self.inner.patience, claim).await {
            None | Some(None) => server,
            Some(Some(taken)) => match self.server(&taken) {
                Some(home) => home,
                // The other router's server is none of this one's, so this is where it lives.
                None => {
                    self.moved(key, server);
                    server
                }
            },
        }
    }

    /// A conversation has moved to this server. Written in the background.
    pub(crate) fn moved(&self, key: Key, server: ServerId) {
        let Some(home) = self.name(server) else { return };
        let (name, ttl) = (self.inner.keys.home(key), self.inner.ttl);
        // With the queue full the other routers learn of it when they find the old home as this one did.
        let _ = self.notes.try_send(Note { name, home: Some(home), ttl });
    }

    /// A turn of a conversation has ended: its time to live begins anew. Written in the background.
    pub(crate) fn rested(&self, key: Key) {
        // Moves matter more. Without this it lives as long as since its turn came.
        if self.notes.capacity() < QUEUE / 2 {
            return;
        }
        let (name, ttl) = (self.inner.keys.home(key), self.inner.ttl);
        let _ = self.notes.try_send(Note { name, home: None, ttl });
    }

    /// What this router has at the servers, by [`ServerId`]: forgotten unless it is said again within [`LOAD_EXPIRY`].
    pub(crate) async fn publish(&self, loads: &[Load]) {
        let keys = &self.inner.keys;
        let (routers, me, name) = (keys.routers(), keys.me().to_owned(), keys.load(keys.me()));
        let text = load::text(&self.inner.names, loads);
        let publish = |mut wire: wire::Connection| async move {
            wire.publish(&routers, &me, &name, &text, LOAD_EXPIRY).await
        };
        self.inner.link.ask(UNHURRIED, publish).await;
        // A Valkey that was emptied has forgotten it, and the next router to come would draw another one.
        if let Some(agreed) = self.agreed() {
            self.agree(UNHURRIED, agreed).await;
        }
    }

    /// What all the other routers together have at the servers, by [`ServerId`]. `None` if that can't be known now.
    pub(crate) async fn others(&self) -> Option<Vec<Load>> {
        let keys = &self.inner.keys;
        let (routers, me, keys) = (keys.routers(), keys.me().to_owned(), keys.clone());
        let others = |mut wire: wire::Connection| async move {
            wire.others(&routers, &me, |router| keys.load(router)).await
        };
        let texts = self.inner.link.ask(UNHURRIED, others).await?;
        self.inner.link.saw_routers(texts.len());
        Some(load::sum(&self.inner.names, &texts))
    }

    /// The key of the hashes that all routers know conversations by: this router's `own` one if it is the first.
    /// Once agreed it is known here, and asking again costs nothing. `None` if it can't be known now.
    pub(crate) async fn hash_key(&self, own: ChainKey) -> Option<ChainKey> {
        match self.agreed() {
            Some(agreed) => Some(agreed),
            None => self.agree(self.inner.patience, own).await,
        }
    }

    /// Whether they are shared now.
    pub(crate) fn state(&self) -> Snapshot {
        self.inner.link.snapshot()
    }

    async fn agree(&self, patience: Duration, proposal: ChainKey) -> Option<ChainKey> {
        let (name, text) = (self.inner.keys.hash_key(), keys::key_text(proposal));
        let claim = |mut wire: wire::Connection| async move { wire.claim(&name, &text, None).await };
        let agreed = match self.inner.link.ask(patience, claim).await? {
            Some(theirs) => keys::key_of(&theirs)?,
            None => proposal,
        };
        *self.inner.agreed.lock().unwrap_or_else(PoisonError::into_inner) = Some(agreed);
        Some(agreed)
    }

    fn agreed(&self) -> Option<ChainKey> {
        *self.inner.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, server: ServerId) -> Option<Arc<str>> {
        self.inner.names.get(usize::try_from(server.0).ok()?).cloned()
    }

    fn server(&self, name: &str) -> Option<ServerId> {
        let place = self.inner.names.iter().position(|known| &**known == name)?;
        u32::try_from(place).ok().map(ServerId)
    }
}
