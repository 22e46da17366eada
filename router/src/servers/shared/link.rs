//! Whether the shared homes can be reached, said once each time that changes, and how often they could not.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use super::fault::Fault;
use super::wire::Connection;

/// What the status page shows of the shared homes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Snapshot {
    /// Whether they are shared now.
    pub(crate) state: State,
    /// For how long that has been so.
    pub(crate) since_s: u64,
    /// How many requests had to do with the router's own copy.
    pub(crate) fell_back: u64,
    /// Routers that were seen to share them, with this one.
    pub(crate) routers: usize,
}

/// Whether the shared homes can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// They can.
    Connected,
    /// They can't.
    Away,
}

/// The connection, while there is one.
#[derive(Debug)]
pub(super) struct Link {
    now: watch::Sender<Now>,
    fell_back: AtomicU64,
    others: AtomicUsize,
}

#[derive(Debug)]
struct Now {
    connection: Option<Connection>,
    /// Which of all connections it is or was: an answer that comes late from an earlier one says nothing of this one.
    number: u64,
    since: Instant,
    /// The log says that there is none.
    told: bool,
    /// How many requests had to do with the router's own copy before this.
    fell_back: u64,
}

impl Link {
    /// Not connected yet, and nothing to say about that.
    pub(super) fn new() -> Self {
        let now = Now { connection: None, number: 0, since: Instant::now(), told: false, fell_back: 0 };
        let now = watch::Sender::new(now);
        Self { now, fell_back: AtomicU64::new(0), others: AtomicUsize::new(0) }
    }

    /// An answer, if there is one in time. Without a connection there is none, at once.
    pub(super) async fn ask<T, F>(
        &self,
        patience: Duration,
        question: impl FnOnce(Connection) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let (number, connection) = self.connection()?;
        let answer = timeout(patience, question(connection)).await.unwrap_or(Err(Fault::Late));
        answer.map_err(|fault| self.broke(number, &fault)).ok()
    }

    /// Ends when there is no connection.
    pub(super) async fn lost(&self) {
        // It can't fail: the sender is here.
        let _ = self.now.subscribe().wait_for(|now| now.connection.is_none()).await;
    }

    /// Ends when there is a connection.
    #[cfg(test)]
    pub(super) async fn found(&self) {
        let found = async { self.now.subscribe().wait_for(|now| now.connection.is_some()).await.is_ok() };
        assert!(timeout(Duration::from_secs(30), found).await.unwrap_or(false), "there is no connection");
    }

    /// There is a connection.
    pub(super) fn came(&self, connection: Connection) {
        let fell_back = self.fell_back.load(Ordering::Relaxed);
        self.now.send_modify(|now| {
            let away_s = now.since.elapsed().as_secs();
            info!(away_s, fell_back = fell_back - now.fell_back, "homes are shared with other routers");
            let number = now.number + 1;
            *now =
                Now { connection: Some(connection), number, since: Instant::now(), told: false, fell_back };
        });
    }

    /// There is still no connection.
    pub(super) fn stayed_away(&self, fault: &Fault) {
        self.now.send_if_modified(|now| {
            now.tell(fault);
            false
        });
    }

    /// A request had to do with the router's own copy.
    pub(super) fn fell_back(&self) {
        self.fell_back.fetch_add(1, Ordering::Relaxed);
    }

    /// So many other routers have said how much they have at the servers.
    pub(super) fn saw_routers(&self, others: usize) {
        self.others.store(others, Ordering::Relaxed);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let now = self.now.borrow();
        let state = if now.connection.is_some() { State::Connected } else { State::Away };
        Snapshot {
            state,
            since_s: now.since.elapsed().as_secs(),
            fell_back: self.fell_back.load(Ordering::Relaxed),
            routers: self.others.load(Ordering::Relaxed) + 1,
        }
    }

    fn connection(&self) -> Option<(u64, Connection)> {
        let now = self.now.borrow();
        now.connection.clone().map(|connection| (now.number, connection))
    }

    fn broke(&self, number: u64, fault: &Fault) {
        let fell_back = self.fell_back.load(Ordering::Relaxed);
        self.now.send_if_modified(|now| {
            let current = now.number == number && now.connection.is_some();
            if current {
                *now = Now { connection: None, since: Instant::now(), told: false, fell_back, number };
                now.tell(fault);
                self.others.store(0, Ordering::Relaxed);
            }
            current
        });
    }
}

impl Now {
    fn tell(&mut self, fault: &Fault) {
        if !std::mem::replace(&mut self.told, true) {
            warn!(why = %fault, "homes are not shared now: every router goes by its own");
        }
    }
}
