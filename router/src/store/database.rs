//! Opens the database file: checks it, migrates it, sets a damaged one aside, and falls back to memory.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::Utc;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use rusqlite_migration::{M, Migrations};
use tracing::warn;

use super::{SavedSession, StoreError, Write, rereads, schema};
use crate::chain::ChainKey;

/// How long SQLite waits for somebody else's lock.
pub(super) const BUSY: Duration = Duration::from_secs(2);
/// Up to this size the whole file is checked at start; beyond, only the sessions, to start without delay.
const CHECK_ALL_BYTES: u64 = 64 << 20;
/// Events kept in memory, where nothing but a restart would ever free them for `event_days`.
const EVENTS_IN_MEMORY: i64 = 10_000;

/// An open database with the current schema.
pub(super) struct Database {
    pub(super) connection: Connection,
    pub(super) on_disk: bool,
    /// Of this installation's hashes; in memory, one that ends with it.
    pub(super) chain_key: ChainKey,
}

/// A database and what it remembers.
type Found = (Database, Vec<SavedSession>);

/// Why the file cannot be used.
enum Failure {
    Newer(i64),
    Corrupt(String),
    Unusable(String),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Corrupt(error.to_string()),
            _ => Self::Unusable(explain(&error)),
        }
    }
}

impl From<rusqlite_migration::Error> for Failure {
    fn from(error: rusqlite_migration::Error) -> Self {
        match error {
            rusqlite_migration::Error::RusqliteError { err, .. } => err.into(),
            other => Self::Unusable(other.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Unusable(error.to_string())
    }
}

/// Opens the file, or a new one in place of a damaged one, or one in memory; with what is remembered.
pub(super) fn open(path: &Path, migrations: &[M<'_>]) -> Result<Found, StoreError> {
    let opened = match open_file(path, migrations) {
        Err(Failure::Corrupt(reason)) => begin_anew(path, migrations, &reason),
        other => other,
    };
    match opened {
        Ok(found) => Ok(found),
        Err(Failure::Newer(found)) => {
            Err(StoreError::Newer { found, known: version_after(migrations), path: path.to_owned() })
        }
        Err(Failure::Corrupt(reason) | Failure::Unusable(reason)) => {
            warn!(
                database = %path.display(), %reason,
                "the database cannot be used: sessions and events are kept in memory until the router is started \
                 again; requests are served as usual"
            );
            let memory =
                Database::in_memory(migrations).map_err(|error| StoreError::Memory(error.to_string()))?;
            Ok((memory, Vec::new()))
        }
    }
}

fn begin_anew(path: &Path, migrations: &[M<'_>], reason: &str) -> Result<Found, Failure> {
    let aside = set_aside(path)?;
    let opened = open_file(path, migrations).map_err(|failure| match failure {
        Failure::Newer(found) => Failure::Newer(found),
        Failure::Corrupt(reason) | Failure::Unusable(reason) => {
            Failure::Unusable(format!("{reason} (a damaged file was set aside as {})", aside.display()))
        }
    })?;
    warn!(
        database = %path.display(), aside = %aside.display(), %reason,
        "the database is damaged: it was set aside and a new one begun"
    );
    Ok(opened)
}

fn open_file(path: &Path, migrations: &[M<'_>]) -> Result<Found, Failure> {
    create(path)?;
    let mut connection = connect(path)?;
    refuse_newer(&connection, migrations)?;
    check(&connection, fs::metadata(path)?.len())?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    probe(&mut connection)?;
    Migrations::from_slice(migrations).to_latest(&mut connection)?;
    let sessions = schema::load_sessions(&connection)?;
    let chain_key = schema::chain_key(&connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok((Database { connection, on_disk: true, chain_key }, sessions))
}

/// Creates the folder and an empty file, readable by its owner alone; SQLite gives its other files the same mode.
fn create(path: &Path) -> Result<(), Failure> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
    if length(path) == 0 && length(&with_suffix(path, "-wal")) > 0 {
        // SQLite would delete this log, and with it the only copy of what was written last.
        return Err(Failure::Corrupt("the file is empty, but has a write-ahead log".to_owned()));
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // No SQLITE_OPEN_URI: a folder named `file:...` is a folder.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // Until the file is known to be sound, closing it must not fold the write-ahead log into it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

fn refuse_newer(connection: &Connection, migrations: &[M<'_>]) -> Result<(), Failure> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > version_after(migrations) { Err(Failure::Newer(found)) } else { Ok(()) }
}

fn version_after(migrations: &[M<'_>]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

fn check(connection: &Connection, bytes: u64) -> Result<(), Failure> {
    let scope = if bytes > CHECK_ALL_BYTES { "sessions" } else { "1" };
    let verdict: String =
        connection.query_row(&format!("PRAGMA quick_check({scope})"), [], |row| row.get(0))?;
    if verdict == "ok" { Ok(()) } else { Err(Failure::Corrupt(verdict)) }
}

/// Finds out now, not at the first write, that the file is read-only or locked.
fn probe(connection: &mut Connection) -> Result<(), Failure> {
    if connection.is_readonly("main")? {
        return Err(Failure::Unusable("it is read-only".to_owned()));
    }
    Ok(connection.transaction_with_behavior(TransactionBehavior::Immediate)?.commit()?)
}

/// Renames the database with its write-ahead log, never onto anything that exists, and returns the new name.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let exists = |path: &Path| fs::symlink_metadata(path).is_ok();
    // The log goes first: were the file gone and its log not, SQLite would delete the log.
    let suffixes = ["-wal", "-shm", ""];
    let base = with_suffix(path, &format!(".corrupt-{}", Utc::now().format("%Y%m%dT%H%M%SZ")));
    let mut aside = base.clone();
    let mut number = 0;
    while suffixes.iter().any(|suffix| exists(&with_suffix(&aside, suffix))) {
        number += 1;
        aside = with_suffix(&base, &format!("-{number}"));
    }
    for suffix in suffixes {
        let from = with_suffix(path, suffix);
        if exists(&from) {
            fs::rename(from, with_suffix(&aside, suffix))?;
        }
    }
    Ok(aside)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Whether somebody else holds a lock.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// The error with its likely cause.
pub(super) fn explain(error: &rusqlite::Error) -> String {
    if is_busy(error) {
        return format!("{error}; does another router or an sqlite3 shell use the same file?");
    }
    match error {
        // Its own form repeats the whole statement, which is no news to the reader of a log.
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    }
}

impl Database {
    pub(super) fn in_memory(migrations: &[M<'_>]) -> Result<Self, rusqlite_migration::Error> {
        let mut connection = Connection::open_in_memory()?;
        Migrations::from_slice(migrations).to_latest(&mut connection)?;
        let chain_key = schema::chain_key(&connection)?;
        Ok(Self { connection, on_disk: false, chain_key })
    }

    /// Applies `batch` in order, all of it or nothing; events only if they are kept.
    pub(super) fn save(&mut self, batch: &[Write], events: bool) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for write in batch {
            schema::apply(&transaction, write, events)?;
        }
        if !self.on_disk {
            schema::keep_last_events(&transaction, EVENTS_IN_MEMORY)?;
            rereads::keep_last(&transaction, EVENTS_IN_MEMORY)?;
        }
        transaction.commit()
    }

    /// Deletes the events and re-readings before `oldest`, in milliseconds since 1970, and the sessions beyond those
    /// that would be loaded.
    pub(super) fn forget(&mut self, oldest: i64) -> rusqlite::Result<()> {
        schema::forget_events(&self.connection, oldest)?;
        rereads::forget(&self.connection, oldest)?;
        schema::forget_sessions(&self.connection)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::Store;
    use super::super::tests::{assigned, count, warnings};
    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        path: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { path: dir.path().join("router.sqlite"), dir }
        }

        /// A database with one session, closed.
        fn used() -> Self {
            let place = Self::new();
            place.record("old");
            place
        }

        fn record(&self, session: &str) {
            let store = Store::open(&self.path, 30).unwrap().store;
            store.record(assigned(session, Some(0), 1));
            assert!(store.close(Duration::from_secs(60)));
        }

        fn open(&self) -> (Result<Found, StoreError>, Vec<String>) {
            warnings(|| open(&self.path, schema::MIGRATIONS))
        }

        /// Opens a file that cannot be used.
        fn degraded(&self) -> String {
            let (opened, mut lines) = self.open();
            let (mut database, sessions) = opened.unwrap();
            assert!(!database.on_disk && sessions.is_empty());
            database.save(&[assigned("s", None, 1)], true).unwrap();
            assert_eq!(lines.len(), 1, "{lines:?}");
            lines.remove(0)
        }

        /// What stands beside the database, by content.
        fn set_aside(&self) -> Vec<(String, Vec<u8>)> {
            let files = fs::read_dir(self.dir.path()).unwrap().map(Result::unwrap);
            let mut files: Vec<_> = files
                .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
                .filter(|(name, _)| name.contains(".corrupt-"))
                .collect();
            files.sort();
            files
        }
    }

    #[test]
    fn an_older_database_is_migrated_in_place() {
        let place = Place::used();
        let newer = [
            schema::MIGRATIONS,
            &[M::up("ALTER TABLE sessions ADD COLUMN note TEXT NOT NULL DEFAULT 'none'")],
        ]
        .concat();
        let (database, sessions) = open(&place.path, &newer).unwrap();
        assert_eq!(sessions[0].session, "old");
        let sql = "SELECT note || user_version FROM sessions, pragma_user_version";
        let found: String = database.connection.query_row(sql, [], |row| row.get(0)).unwrap();
        assert_eq!(found, format!("none{}", newer.len()));
        assert!(database.on_disk && place.set_aside().is_empty());
    }

    #[test]
    fn a_newer_database_is_refused_and_left_as_it_is() {
        let place = Place::used();
        let known = version_after(schema::MIGRATIONS);
        Connection::open(&place.path).unwrap().pragma_update(None, "user_version", known + 1).unwrap();
        let before = fs::read(&place.path).unwrap();
        let error = Store::open(&place.path, 30).unwrap_err();
        assert!(matches!(&error, StoreError::Newer { found, .. } if *found == known + 1));
        let message = error.to_string();
        assert!(message.contains("router.sqlite") && message.contains("newer version"), "{message}");
        assert_eq!(fs::read(&place.path).unwrap(), before);
    }

    #[test]
    fn a_file_that_is_no_database_is_set_aside_and_a_new_one_begun() {
        let place = Place::new();
        let rubbish = b"rubbish ".repeat(1_000);
        fs::write(&place.path, &rubbish).unwrap();
        fs::write(with_suffix(&place.path, "-wal"), b"log").unwrap();
        let (opened, lines) = place.open();
        assert!(opened.unwrap().0.on_disk);
        assert!(lines.len() == 1 && lines[0].contains("set aside"), "{lines:?}");
        let aside = place.set_aside();
        let base = &aside[0].0;
        let log = aside.iter().find(|(name, _)| *name == format!("{base}-wal"));
        assert!(aside[0].1 == rubbish && log.is_some_and(|(_, bytes)| bytes == b"log"));
    }

    #[test]
    fn damage_inside_a_database_is_found_at_start() {
        let place = Place::used();
        let mut bytes = fs::read(&place.path).unwrap();
        bytes[4_096..].fill(0xAA);
        fs::write(&place.path, &bytes).unwrap();
        let (opened, _) = place.open();
        let (database, sessions) = opened.unwrap();
        assert!(database.on_disk && sessions.is_empty());
        assert_eq!(place.set_aside()[0].1, bytes);
    }

    #[test]
    fn the_log_of_an_emptied_database_is_not_lost() {
        let place = Place::new();
        fs::write(&place.path, b"").unwrap();
        fs::write(with_suffix(&place.path, "-wal"), b"log").unwrap();
        assert!(place.open().0.unwrap().0.on_disk);
        let contents: Vec<_> = place.set_aside().into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(contents, [b"".to_vec(), b"log".to_vec()]);
    }

    #[test]
    fn setting_aside_never_overwrites() {
        let place = Place::new();
        let contents: Vec<_> = (0..4_u8).map(|n| vec![n]).collect();
        for bytes in &contents {
            fs::write(&place.path, bytes).unwrap();
            set_aside(&place.path).unwrap();
        }
        let mut found: Vec<_> = place.set_aside().into_iter().map(|(_, bytes)| bytes).collect();
        found.sort();
        assert_eq!(found, contents);
    }

    #[test]
    fn a_folder_that_cannot_be_made_means_memory_and_one_warning() {
        let mut place = Place::new();
        fs::write(&place.path, b"a file").unwrap();
        place.path = place.path.join("router.sqlite");
        assert!(place.degraded().contains("memory"));
    }

    #[test]
    fn a_folder_in_the_databases_place_means_memory() {
        let place = Place::new();
        fs::create_dir(&place.path).unwrap();
        place.degraded();
    }

    #[test]
    fn a_database_of_another_program_is_left_alone() {
        let place = Place::new();
        Connection::open(&place.path).unwrap().execute_batch("CREATE TABLE sessions (mine)").unwrap();
        assert!(place.degraded().contains("already exists"));
        assert!(place.set_aside().is_empty());
        assert_eq!(count(&place.path, "sessions"), 0);
    }

    #[test]
    fn a_locked_database_means_memory_and_the_warning_says_why() {
        let place = Place::used();
        let other = Connection::open(&place.path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(place.degraded().contains("another router"));
    }

    #[cfg(unix)]
    #[test]
    fn the_files_are_readable_by_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let place = Place::new();
        let mut database = place.open().0.unwrap().0;
        database.save(&[assigned("s", None, 1)], true).unwrap();
        for suffix in ["", "-wal", "-shm"] {
            let mode = fs::metadata(with_suffix(&place.path, suffix)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{suffix:?}");
        }
    }

    #[test]
    fn a_killed_routers_writes_are_found_in_the_write_ahead_log() {
        let place = Place::new();
        let mut database = place.open().0.unwrap().0;
        database.save(&[assigned("s", None, 1)], true).unwrap();
        // Copied while open, as a kill would leave it: the row is in the log only.
        let copy = Place::new();
        for suffix in ["", "-wal"] {
            fs::copy(with_suffix(&place.path, suffix), with_suffix(&copy.path, suffix)).unwrap();
        }
        assert_eq!(copy.open().0.unwrap().1.len(), 1);
    }
}
