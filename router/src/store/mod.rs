//! Remembers sessions and an event log in SQLite, on a thread of its own, so that no request ever waits for a disk.
//!
//! Everything here is a hint for the next start of the router. Whatever goes wrong - no folder, no space, a damaged
//! file - the store goes on in memory, says so once, and requests are served as before.

mod database;
mod rereads;
mod schema;
mod states;
mod worker;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use rusqlite_migration::M;
use tokio::sync::oneshot;
use tracing::warn;

pub use rereads::{ReadError, Rereads, SavedReread, rereads_of};
use worker::{Message, Worker};

use crate::chain::ChainKey;
use crate::warm::{Reread, SavedState, StateId};

/// Writes that may wait for the disk. A message is a pointer, so a full queue costs about as much as its rows.
const QUEUE: usize = 65_536;

/// A cheap handle to the store; all clones share one thread and one database.
#[derive(Debug, Clone)]
pub struct Store {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What the handles and the thread tell each other besides the writes.
#[derive(Debug, Default)]
struct Shared {
    on_disk: AtomicBool,
    dropped: AtomicU64,
    ended: Mutex<bool>,
    end: Condvar,
}

/// A store that is ready, and what it remembers.
#[derive(Debug)]
pub struct Opened {
    /// The handle to write with.
    pub store: Store,
    /// The 65,536 sessions used last, least recently used first.
    pub sessions: Vec<SavedSession>,
    /// The key of this installation's hashes: drawn once, the same ever after.
    pub chain_key: ChainKey,
    /// The registered states of slots, least recently used first.
    pub states: Vec<StateRow>,
}

/// A state of a slot that has been saved, and the name of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateRow {
    /// The file's name in the server's folder.
    pub name: String,
    /// What is in it.
    pub state: SavedState,
}

/// A session as the last run of the router left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedSession {
    /// The session's id.
    pub session: String,
    /// The slot it had; `None` if it was evicted or never had one.
    pub slot: Option<u32>,
    /// The server that slot belongs to.
    pub fingerprint: Option<String>,
    /// The server's number for the last task the session ran in its slot.
    pub id_task: Option<i64>,
    /// How many tokens the session left in its slot.
    pub n_tokens: Option<u64>,
    /// When its last request was assigned.
    pub last_used: DateTime<Utc>,
}

/// One thing to remember.
#[derive(Debug, Clone)]
pub enum Write {
    /// A request of a session was given a slot, or sent without one. Begins the session's row if there is none.
    /// What was left in another slot or on another server is forgotten.
    Assigned {
        /// The session's id.
        session: String,
        /// Kept as it was if `None`.
        agent_name: Option<String>,
        /// Kept as it was if `None`.
        client_type: Option<String>,
        /// The slot; `None` if the server chooses: the one known before stays.
        slot: Option<u32>,
        /// The server the slot belongs to.
        fingerprint: Option<String>,
        /// When.
        at: DateTime<Utc>,
    },
    /// A session lost its slot; its row stays.
    Unassigned {
        /// The session's id.
        session: String,
    },
    /// Where a session's request ran, and what it left there.
    Left {
        /// The session's id.
        session: String,
        /// The slot it ran in, if known.
        slot: Option<u32>,
        /// The server's number for the task.
        id_task: Option<i64>,
        /// Tokens left in the slot.
        n_tokens: Option<u64>,
    },
    /// Prompt tokens to add to a session's totals.
    Usage {
        /// The session's id.
        session: String,
        /// Tokens the server computed.
        computed: u64,
        /// Tokens the server took from its cache.
        cached: u64,
    },
    /// A slot's state has been saved, or used, or more is known of it.
    State {
        /// The state.
        row: Box<StateRow>,
        /// When.
        at: DateTime<Utc>,
    },
    /// A saved state is not there any more.
    StateGone(StateId),
    /// A line of the event log.
    Event(Box<Event>),
    /// A turn that read more again than it should have; kept as long as events.
    Reread {
        /// What of it.
        reread: Reread,
        /// When it ended.
        at: DateTime<Utc>,
    },
}

/// The facts of one request's log line. Never prompts, tools, bodies, queries or keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Event {
    /// When the request ended.
    pub at: DateTime<Utc>,
    /// The HTTP method.
    pub method: String,
    /// The path, without query.
    pub route: String,
    /// The agent's name, if given.
    pub agent_name: Option<String>,
    /// The session's id; `None` for an anonymous request.
    pub session: Option<String>,
    /// How the agent is driven, if given.
    pub client_type: Option<String>,
    /// Where the session's id was found.
    pub source: Option<String>,
    /// Another source that named another session.
    pub conflict: Option<String>,
    /// The session that started this one.
    pub parent: Option<String>,
    /// Codex's window.
    pub window: Option<String>,
    /// The `id_slot` the client asked for, as it wrote it.
    pub asked_slot: Option<String>,
    /// The slots as they were seen, such as `0:idle 1:busy`.
    pub slots_seen: Option<String>,
    /// The slot used, if known.
    pub slot: Option<u32>,
    /// What was done: `home`, `new`, `evict`, `wait`, `anonymous`, `pass`, ...
    pub action: String,
    /// The session that lost its slot.
    pub evicted: Option<String>,
    /// How long the request waited for a slot, in milliseconds.
    pub waited_ms: u64,
    /// The HTTP status answered.
    pub status: u16,
    /// Prompt tokens the server computed, if known.
    pub computed: Option<u64>,
    /// Prompt tokens the server took from its cache, if known.
    pub cached: Option<u64>,
    /// Tokens of the saved state its slot was filled with first.
    pub restored: Option<u64>,
    /// The server, where there are several.
    pub server: Option<String>,
    /// Tokens of its conversation that the server had lost.
    pub lost: Option<u64>,
    /// Why the request failed or was refused.
    pub error: Option<String>,
}

/// Why the router should not start. Everything else is survived in memory.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database was written by a newer version, which may rely on what this one would not keep.
    #[error(
        "{} was written by a newer version of session-slot-router (schema {found}, this version knows {known}); \
         use that version, or give another folder with --state-dir",
        path.display()
    )]
    Newer {
        /// The schema version of the file.
        found: i64,
        /// The newest schema version this program knows.
        known: i64,
        /// The database.
        path: PathBuf,
    },
    /// Not even a database in memory can be made.
    #[error("cannot make a database in memory: {0}; is memory exhausted?")]
    Memory(String),
    /// The store's thread cannot be started.
    #[error("cannot start the store's thread: {0}; is the limit of processes reached?")]
    Thread(io::Error),
}

impl Store {
    /// Opens `database`, creating its folder and itself (mode 0600) where missing, and starts the store's thread.
    /// Events and re-readings older than `event_days` days are deleted now and every hour; 0 keeps none.
    ///
    /// A damaged file is renamed to `<database>.corrupt-<time>` and a new one begun. A database that cannot be used
    /// for another reason (no folder, read-only, full disk, locked for 2 s) is replaced by one in memory. Both are
    /// logged as one warning.
    ///
    /// # Errors
    /// [`StoreError::Newer`] for a database of a newer version, which is left as it is; the others if the system
    /// has no memory or thread left.
    pub fn open(database: &Path, event_days: u32) -> Result<Opened, StoreError> {
        Self::open_with(database, event_days, schema::MIGRATIONS)
    }

    fn open_with(path: &Path, event_days: u32, migrations: &[M<'_>]) -> Result<Opened, StoreError> {
        let (database, sessions) = database::open(path, migrations)?;
        let states = states::load(&database.connection).unwrap_or_else(|error| {
            warn!(reason = %database::explain(&error), "the saved states can't be read: they are not used");
            Vec::new()
        });
        let (sender, receiver) = sync_channel(QUEUE);
        let (shared, chain_key) = (Arc::new(Shared::default()), database.chain_key);
        let worker = Worker::new(database, event_days, Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || worker.run(&receiver))
            .map_err(StoreError::Thread)?;
        let thread = Arc::new(Mutex::new(Some(thread)));
        Ok(Opened { store: Self { sender, shared, thread }, sessions, chain_key, states })
    }

    /// Queues a write and returns at once. If 65,536 writes are waiting, or the store is closed, it is dropped and
    /// counted; the first time the queue is full is logged.
    pub fn record(&self, write: Write) {
        let Err(error) = self.sender.try_send(Message::Write(Box::new(write))) else {
            return;
        };
        let before = self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        if before == 0 && matches!(error, TrySendError::Full(_)) {
            warn!(
                "the database is too slow: some sessions and events are not recorded; requests are served as usual"
            );
        }
    }

    /// Waits until everything queued so far has been written. Whether the file on disk holds it: if not, what it held
    /// before may come back at the next start.
    pub async fn written(&self) -> bool {
        let (told, written) = oneshot::channel();
        self.sender.try_send(Message::Tell(told)).is_ok() && written.await.unwrap_or(false)
    }

    /// Writes everything queued, closes the database and ends the thread. Blocks for up to `timeout`; call it from a
    /// thread that may block. Calling it again is harmless.
    ///
    /// Returns whether the store is closed; `false` means that the timeout came first.
    pub fn close(&self, timeout: Duration) -> bool {
        let start = Instant::now();
        // A full queue empties as the thread writes; a closed one needs no message.
        while let Err(TrySendError::Full(_)) = self.sender.try_send(Message::Close) {
            if start.elapsed() >= timeout {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.shared.wait_for_end(timeout.saturating_sub(start.elapsed())) && self.join()
    }

    fn join(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.is_none_or(|thread| thread.join().is_ok())
    }

    /// Whether writes go to the disk. Once `false`, it stays so until the router is started again.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.shared.on_disk.load(Ordering::Relaxed)
    }

    /// How many writes were lost since the start: the queue was full, the store closed, or memory exhausted.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn wait_for_end(&self, timeout: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.end.wait_timeout_while(ended, timeout, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn set_ended(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rusqlite::Connection;
    use tracing::Level;

    use super::*;
    use crate::logged::Logged;

    const LONG: Duration = Duration::from_secs(60);

    /// The warnings logged on this thread while `job` runs.
    pub(super) fn warnings<T>(job: impl FnOnce() -> T) -> (T, Vec<String>) {
        let (logged, listening) = Logged::listen(Level::WARN);
        let result = job();
        drop(listening);
        (result, logged.text().lines().map(str::to_owned).collect())
    }

    pub(super) fn at(ms: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(ms).unwrap()
    }

    pub(super) fn assigned(session: &str, slot: Option<u32>, ms: i64) -> Write {
        Write::Assigned {
            session: session.to_owned(),
            agent_name: None,
            client_type: None,
            slot,
            fingerprint: Some("server".to_owned()),
            at: at(ms),
        }
    }

    pub(super) fn event(at: DateTime<Utc>) -> Write {
        Write::Event(Box::new(Event { at, ..Event::default() }))
    }

    /// Opens, records and closes; what the next start would find.
    fn after(path: &Path, writes: Vec<Write>) -> Vec<SavedSession> {
        let opened = Store::open(path, 30).unwrap();
        writes.into_iter().for_each(|write| opened.store.record(write));
        assert!(opened.store.close(LONG));
        let reopened = Store::open(path, 30).unwrap();
        assert!(reopened.store.healthy());
        assert!(reopened.store.close(LONG));
        reopened.sessions
    }

    pub(super) fn count(path: &Path, table: &str) -> i64 {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        Connection::open(path).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_session_survives_a_restart_with_what_it_left_in_its_slot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/router.sqlite");
        let left =
            Write::Left { session: "s".to_owned(), slot: Some(2), id_task: Some(41), n_tokens: Some(30_000) };
        let sessions = after(&path, vec![assigned("s", Some(2), 5), left]);
        let expected = SavedSession {
            session: "s".to_owned(),
            slot: Some(2),
            fingerprint: Some("server".to_owned()),
            id_task: Some(41),
            n_tokens: Some(30_000),
            last_used: at(5),
        };
        assert_eq!(sessions, [expected]);
    }

    #[test]
    fn the_key_of_the_hashes_is_drawn_once_for_each_database() {
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str| {
            let opened = Store::open(&dir.path().join(name), 30).unwrap();
            assert!(opened.store.close(LONG));
            opened.chain_key
        };
        let first = key("a");
        assert_eq!(key("a"), first);
        assert_ne!(key("b"), first);
        let in_memory = || Store::open(dir.path(), 30).unwrap();
        let (one, two) = (in_memory(), in_memory());
        assert!(!one.store.healthy() && one.chain_key != two.chain_key);
    }

    #[test]
    fn a_damaged_key_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        for damage in ["DELETE FROM installation", "UPDATE installation SET chain_key = x'00'"] {
            assert!(Store::open(&path, 30).unwrap().store.close(LONG));
            Connection::open(&path).unwrap().execute(damage, []).unwrap();
            let opened = Store::open(&path, 30).unwrap();
            assert!(opened.store.healthy() && opened.store.close(LONG), "{damage}");
        }
    }

    #[test]
    fn sessions_come_back_least_recently_used_first() {
        let dir = tempfile::tempdir().unwrap();
        let writes = [("a", 1), ("b", 2), ("c", 3), ("a", 4)];
        let writes = writes.map(|(session, ms)| assigned(session, Some(0), ms));
        let sessions = after(&dir.path().join("router.sqlite"), writes.into());
        let order: Vec<_> = sessions.iter().map(|saved| saved.session.as_str()).collect();
        assert_eq!(order, ["b", "c", "a"]);
    }

    #[test]
    fn an_evicted_session_keeps_its_row_and_loses_its_slot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        let gone = Write::Unassigned { session: "s".to_owned() };
        let sessions = after(&path, vec![assigned("s", Some(1), 1), gone]);
        assert_eq!((sessions.len(), sessions[0].slot, sessions[0].id_task), (1, None, None));
    }

    #[test]
    fn ids_with_control_characters_and_other_scripts_come_back_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let ids = ["\0", "a\0b", "\r\n\t\x1b[31m", "Ünïcødé 日本語 🦙", "'; DROP TABLE sessions; --", " "];
        let writes = ids.iter().zip(1..).map(|(id, ms)| assigned(id, None, ms)).collect();
        let sessions = after(&dir.path().join("router.sqlite"), writes);
        let found: Vec<_> = sessions.iter().map(|saved| saved.session.as_str()).collect();
        assert_eq!(found, ids);
    }

    #[test]
    fn closing_writes_everything_that_was_queued() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        let store = Store::open(&path, 30).unwrap().store;
        (0..5_000).for_each(|_| store.record(event(Utc::now())));
        assert!(store.close(LONG));
        assert_eq!(count(&path, "events"), 5_000);
        assert_eq!(store.dropped(), 0);
        assert!(!dir.path().join("router.sqlite-wal").exists());
    }

    #[test]
    fn closing_twice_is_harmless_and_later_writes_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("router.sqlite"), 30).unwrap().store;
        let clone = store.clone();
        assert!(store.close(LONG) && clone.close(LONG) && store.close(Duration::ZERO));
        clone.record(assigned("s", None, 1));
        assert_eq!(store.dropped(), 1);
    }

    #[test]
    fn a_store_whose_handles_are_gone_still_writes_what_was_queued() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        let store = Store::open(&path, 30).unwrap().store;
        store.record(assigned("s", None, 1));
        let shared = Arc::clone(&store.shared);
        drop(store);
        assert!(shared.wait_for_end(LONG));
        assert_eq!(count(&path, "sessions"), 1);
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_warns_once() {
        let (sender, _receiver) = sync_channel(1);
        let (shared, thread) = Default::default();
        let store = Store { sender, shared, thread };
        let ((), lines) = warnings(|| (0..4).for_each(|_| store.record(assigned("s", None, 1))));
        assert_eq!(store.dropped(), 3);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(!store.close(Duration::ZERO));
    }

    #[test]
    fn retention_deletes_old_events_and_keeps_young_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        let run = |days: u32, ages: &[i64]| {
            let store = Store::open(&path, days).unwrap().store;
            let ages = ages.iter().map(|&days| chrono::TimeDelta::days(days));
            ages.for_each(|age| store.record(event(Utc::now() - age)));
            assert!(store.close(LONG));
            count(&path, "events")
        };
        assert_eq!(run(30, &[]), 0);
        let kept = run(u32::MAX, &[0, 29, 31, 400]);
        assert_eq!(kept, 4);
        assert_eq!(run(30, &[]), 2);
        assert_eq!(run(0, &[0]), 0, "0 days keep no events, not even new ones");
    }

    fn state(id: u64) -> Write {
        let state = SavedState {
            id: StateId(id),
            session: "s".to_owned(),
            user: None,
            fingerprint: "server".to_owned(),
            layout: Some(37_452),
            tokens: 2,
            prompt: 2,
            bytes: 37_452,
            chain: crate::chain::Chain::default(),
        };
        Write::State { row: Box::new(StateRow { name: format!("{id}.kv"), state }), at: at(1) }
    }

    #[tokio::test]
    async fn whoever_waits_is_told_once_the_row_is_gone_from_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        let store = Store::open(&path, 30).unwrap().store;
        store.record(state(1));
        assert!(store.written().await);
        assert_eq!(count(&path, "states"), 1);
        store.record(Write::StateGone(StateId(1)));
        assert!(store.written().await);
        assert_eq!(count(&path, "states"), 0);
        assert!(store.close(LONG));
        assert!(!store.written().await, "a closed store writes nothing");
    }

    #[tokio::test]
    async fn a_store_in_memory_does_not_say_that_the_disk_knows() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), 30).unwrap().store;
        store.record(Write::StateGone(StateId(1)));
        assert!(!store.written().await);
    }

    #[test]
    fn saved_states_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        after(&path, vec![state(1), state(2)]);
        let states = Store::open(&path, 30).unwrap().states;
        assert_eq!(states.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["1.kv", "2.kv"]);
    }
}
