//! The store's thread: takes writes from the queue, one transaction for as many as are waiting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use chrono::Utc;
use tokio::sync::oneshot;
use tracing::warn;

use super::database::{self, Database};
use super::{Shared, Write, schema};

/// Most writes in one transaction; bounds how long the write lock is held.
const BATCH: usize = 4_096;
/// How long the first write of a batch waits for others: a transaction for each request would cost more than the rest
/// of the request. What is lost if the machine dies in between are hints and log lines.
const GATHER: Duration = Duration::from_millis(50);
const CLEAN_UP_EVERY: Duration = Duration::from_secs(3_600);
/// Tries, each of the 2 s of `database::BUSY`, before a lock is taken to stay: somebody may run VACUUM in a shell.
const BUSY_TRIES: u32 = 5;

/// What the queue carries. Boxed, because the queue's memory is touched in full at once: 1 MB this way, 8 MB inline.
#[derive(Debug)]
pub(super) enum Message {
    Write(Box<Write>),
    /// To be told once everything before it has been written, and whether to disk.
    Tell(oneshot::Sender<bool>),
    Close,
}

/// What was in the queue.
#[derive(Default)]
struct Gathered {
    writes: Vec<Write>,
    tell: Vec<oneshot::Sender<bool>>,
    closing: bool,
}

/// Everything the thread owns.
pub(super) struct Worker {
    database: Database,
    event_days: u32,
    shared: Arc<Shared>,
    next_clean_up: Instant,
}

/// Tells `Store::close` that the thread is gone, also when it panicked.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.on_disk.store(false, Ordering::Relaxed);
        }
        self.0.set_ended();
    }
}

impl Worker {
    pub(super) fn new(database: Database, event_days: u32, shared: Arc<Shared>) -> Self {
        shared.on_disk.store(database.on_disk, Ordering::Relaxed);
        Self { database, event_days, shared, next_clean_up: Instant::now() }
    }

    /// Runs until the queue is closed and empty. The database is closed before the end is announced.
    pub(super) fn run(self, receiver: &Receiver<Message>) {
        let _ending = Ending(Arc::clone(&self.shared));
        self.serve(receiver);
    }

    fn serve(mut self, receiver: &Receiver<Message>) {
        let mut closing = false;
        loop {
            if Instant::now() >= self.next_clean_up {
                self.clean_up();
            }
            let until = self.next_clean_up.saturating_duration_since(Instant::now());
            let batch = gather(receiver, if closing { Duration::ZERO } else { until });
            closing |= batch.closing;
            if closing && batch.is_empty() {
                return;
            }
            self.save(&batch.writes);
            let on_disk = self.database.on_disk;
            for told in batch.tell {
                // Whoever asked may have left.
                let _ = told.send(on_disk);
            }
        }
    }

    /// Writes a batch; to memory from the first failure on, because a disk that is full or broken stays so.
    fn save(&mut self, batch: &[Write]) {
        let events = self.event_days > 0;
        let saved = self.attempt(|database| database.save(batch, events));
        if !saved && !self.attempt(|database| database.save(batch, events)) {
            self.shared.dropped.fetch_add(batch.len() as u64, Ordering::Relaxed);
        }
    }

    fn clean_up(&mut self) {
        self.next_clean_up = Instant::now() + CLEAN_UP_EVERY;
        let oldest = match self.event_days {
            0 => i64::MAX,
            days => Utc::now().timestamp_millis() - i64::from(days) * 86_400_000,
        };
        self.attempt(|database| database.forget(oldest));
    }

    /// Whether `job` succeeded. If it did not, the database is one in memory afterwards.
    fn attempt(&mut self, job: impl Fn(&mut Database) -> rusqlite::Result<()>) -> bool {
        let mut tries = 1;
        loop {
            match job(&mut self.database) {
                Ok(()) => return true,
                Err(error) if database::is_busy(&error) && tries < BUSY_TRIES => tries += 1,
                Err(error) => {
                    self.leave_disk(&error);
                    return false;
                }
            }
        }
    }

    fn leave_disk(&mut self, error: &rusqlite::Error) {
        if !self.database.on_disk {
            return;
        }
        warn!(
            reason = %database::explain(error),
            "the database cannot be written any more: sessions and events are kept in memory until the router is \
             started again; requests are served as usual"
        );
        self.shared.on_disk.store(false, Ordering::Relaxed);
        self.database.on_disk = false;
        if let Ok(memory) = Database::in_memory(schema::MIGRATIONS) {
            self.database = memory;
        }
    }
}

/// Waits up to `wait` for a write, then takes what else has come a moment later.
fn gather(receiver: &Receiver<Message>, wait: Duration) -> Gathered {
    let first = receiver.recv_timeout(wait);
    let mut batch =
        Gathered { closing: matches!(first, Err(RecvTimeoutError::Disconnected)), ..Gathered::default() };
    if matches!(first, Ok(Message::Write(_))) {
        // Asleep and not listening: nobody who queues a write has to wake this thread.
        thread::sleep(GATHER);
    }
    let mut next = first.ok();
    while let Some(message) = next {
        match message {
            Message::Write(write) => batch.writes.push(*write),
            Message::Tell(told) => batch.tell.push(told),
            Message::Close => batch.closing = true,
        }
        next = if batch.writes.len() < BATCH { receiver.try_recv().ok() } else { None };
    }
    batch
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.tell.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::super::tests::{assigned, count, event, warnings};
    use super::*;

    fn worker(path: &Path, event_days: u32) -> Worker {
        let (database, _) = database::open(path, schema::MIGRATIONS).unwrap();
        Worker::new(database, event_days, Arc::default())
    }

    fn batch(length: usize) -> Vec<Write> {
        (0..length).map(|_| event(Utc::now())).collect()
    }

    fn events(worker: &Worker) -> i64 {
        let count = "SELECT COUNT(*) FROM events";
        worker.database.connection.query_row(count, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_disk_that_fills_up_means_memory_with_one_warning_and_a_sound_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        let mut worker = worker(&path, 30);
        worker.save(&[assigned("s", Some(1), 1)]);
        worker.database.connection.pragma_update(None, "max_page_count", 1).unwrap();
        let ((), lines) = warnings(|| (0..3).for_each(|_| worker.save(&batch(1_000))));
        assert!(lines.len() == 1 && lines[0].contains("full"), "{lines:?}");
        assert!(!worker.shared.on_disk.load(Ordering::Relaxed));
        assert_eq!(worker.shared.dropped.load(Ordering::Relaxed), 0);
        assert_eq!(events(&worker), 3_000);
        assert_eq!((count(&path, "sessions"), count(&path, "events")), (1, 0));
    }

    #[test]
    fn events_in_memory_do_not_grow_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut worker = worker(dir.path(), 30);
        (0..12).for_each(|_| worker.save(&batch(1_000)));
        assert_eq!(events(&worker), 10_000);
        worker.save(&[assigned("s", Some(1), 1)]);
        worker.clean_up();
        assert_eq!(events(&worker), 10_000);
    }

    #[test]
    fn without_any_database_writes_are_counted_as_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut worker = worker(dir.path(), 30);
        worker.database.connection.execute_batch("DROP TABLE events").unwrap();
        let ((), lines) = warnings(|| worker.save(&batch(2)));
        assert_eq!(worker.shared.dropped.load(Ordering::Relaxed), 2);
        assert!(lines.is_empty(), "{lines:?}");
    }

    #[test]
    fn a_batch_is_bounded_and_what_follows_a_close_is_still_gathered() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(BATCH + 2);
        let write = || Message::Write(Box::new(assigned("s", None, 1)));
        (0..BATCH).for_each(|_| sender.send(write()).unwrap());
        sender.send(Message::Close).unwrap();
        sender.send(write()).unwrap();
        let first = gather(&receiver, Duration::ZERO);
        assert_eq!((first.writes.len(), first.closing), (BATCH, false));
        let second = gather(&receiver, Duration::ZERO);
        assert_eq!((second.writes.len(), second.closing), (1, true));
        drop(sender);
        assert!(gather(&receiver, Duration::from_secs(60)).closing);
    }
}
