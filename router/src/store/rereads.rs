//! The turns that read more again than they should have: written by the router, read by `why` beside it.

use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use rusqlite::{Connection, OpenFlags, Row, params};

use super::database::{self, BUSY};
use super::schema::{self, tokens};
use crate::chain::Part;
use crate::warm::{Cause, Reread};

/// The schema in which these turns are.
const SINCE: i64 = 3;

const INSERT: &str = "
    INSERT INTO rereads (at, session, computed, cached, before_tokens, cause) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const LAST: &str = "
    SELECT at, computed, cached, before_tokens, cause FROM rereads WHERE session = ?1 ORDER BY id DESC LIMIT ?2";
const IS_KNOWN: &str = "SELECT EXISTS (SELECT 1 FROM sessions WHERE session = ?1)";

/// A turn as the database keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedReread {
    /// When it ended.
    pub at: DateTime<Utc>,
    /// Prompt tokens computed.
    pub computed: u64,
    /// Prompt tokens taken from a cache.
    pub cached: u64,
    /// Prompt tokens of the session's turn before.
    pub before: u64,
    /// Why; `None` for a cause that this version does not know.
    pub cause: Option<Cause>,
}

impl SavedReread {
    /// Tokens computed that the turn before had in its prompt already.
    #[must_use]
    pub fn again(&self) -> u64 {
        self.before.saturating_sub(self.cached).min(self.computed)
    }
}

/// What is remembered of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rereads {
    /// There is such a session.
    pub is_known: bool,
    /// Its last turns that read too much again, the last first.
    pub turns: Vec<SavedReread>,
}

/// Why a database can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is none.
    #[error("there is no database {}; give the folder of the router's database with --state-dir", .0.display())]
    Missing(PathBuf),
    /// It has no such table yet.
    #[error(
        "the database {} was written by an older version of session-slot-router; start this one once", .0.display()
    )]
    Older(PathBuf),
    /// Something else.
    #[error("the database {} can't be read: {reason}", path.display())]
    Unusable {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
    },
}

/// The last `limit` turns of `session` that read too much again, from a database that a router may be using.
///
/// # Errors
/// If there is no database, or none that can be read; nothing is created or changed.
pub fn rereads_of(path: &Path, session: &str, limit: u32) -> Result<Rereads, ReadError> {
    if !path.exists() {
        return Err(ReadError::Missing(path.to_owned()));
    }
    let unusable = |error| ReadError::Unusable { path: path.to_owned(), reason: database::explain(&error) };
    let connection = connect(path).map_err(unusable)?;
    let version: i64 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(unusable)?;
    if version < SINCE {
        return Err(ReadError::Older(path.to_owned()));
    }
    last(&connection, session, limit).map_err(unusable)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

fn last(connection: &Connection, session: &str, limit: u32) -> rusqlite::Result<Rereads> {
    let turns: Vec<_> =
        connection.prepare(LAST)?.query_map(params![session, limit], saved)?.collect::<Result<_, _>>()?;
    let is_known = !turns.is_empty() || connection.query_row(IS_KNOWN, [session], |row| row.get(0))?;
    Ok(Rereads { is_known, turns })
}

fn saved(row: &Row<'_>) -> rusqlite::Result<SavedReread> {
    let count = |index| row.get(index).map(|count: i64| u64::try_from(count).unwrap_or(0));
    Ok(SavedReread {
        at: schema::time(row.get(0)?),
        computed: count(1)?,
        cached: count(2)?,
        before: count(3)?,
        cause: cause_of(&row.get::<_, String>(4)?),
    })
}

pub(super) fn insert(connection: &Connection, reread: &Reread, at: DateTime<Utc>) -> rusqlite::Result<()> {
    let Reread { session, computed, cached, before, cause } = reread;
    let (computed, cached, before) = (tokens(*computed), tokens(*cached), tokens(*before));
    let values = params![at.timestamp_millis(), session, computed, cached, before, spelling(*cause)];
    connection.prepare_cached(INSERT)?.execute(values).map(drop)
}

/// Deletes what is older than `oldest`, in milliseconds since 1970.
pub(super) fn forget(connection: &Connection, oldest: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM rereads WHERE at < ?1", [oldest]).map(drop)
}

/// Deletes all but the last `count`.
pub(super) fn keep_last(connection: &Connection, count: i64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM rereads WHERE id <= (SELECT MAX(id) FROM rereads) - ?1";
    connection.prepare_cached(sql)?.execute([count]).map(drop)
}

fn spelling(cause: Cause) -> String {
    match cause {
        Cause::Lost => "lost".to_owned(),
        Cause::Changed(Part::System) => "system".to_owned(),
        Cause::Changed(Part::Tools) => "tools".to_owned(),
        Cause::Changed(Part::Message(index)) => format!("message {index}"),
    }
}

fn cause_of(spelling: &str) -> Option<Cause> {
    let part = match spelling {
        "lost" => return Some(Cause::Lost),
        "system" => Part::System,
        "tools" => Part::Tools,
        other => Part::Message(other.strip_prefix("message ")?.parse().ok()?),
    };
    Some(Cause::Changed(part))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::super::tests::{assigned, at, count};
    use super::super::{Store, Write};
    use super::*;

    fn reread(session: &str, cause: Cause) -> Reread {
        Reread { session: session.to_owned(), computed: 30_512, cached: 159, before: 30_279, cause }
    }

    fn recorded(path: &Path, event_days: u32, rereads: Vec<(Reread, DateTime<Utc>)>) {
        let store = Store::open(path, event_days).unwrap().store;
        rereads.into_iter().for_each(|(reread, at)| store.record(Write::Reread { reread, at }));
        assert!(store.close(Duration::from_secs(60)));
    }

    #[test]
    fn every_cause_comes_back_the_last_turn_first_and_only_those_of_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        let parts = [Part::System, Part::Tools, Part::Message(0), Part::Message(u32::MAX)];
        let causes: Vec<_> = parts.map(Cause::Changed).into_iter().chain([Cause::Lost]).collect();
        let now = Utc::now().timestamp_millis();
        let turns = causes.iter().map(|cause| (reread("s", *cause), at(now)));
        recorded(&path, 30, turns.chain([(reread("S", Cause::Lost), at(now))]).collect());
        let found = rereads_of(&path, "s", 4).unwrap();
        let back: Vec<_> = found.turns.iter().filter_map(|turn| turn.cause).collect();
        assert_eq!(back, causes.into_iter().rev().take(4).collect::<Vec<_>>());
        let turn = &found.turns[0];
        assert_eq!((turn.at, turn.computed, turn.cached, turn.before), (at(now), 30_512, 159, 30_279));
        assert_eq!(turn.again(), 30_120);
    }

    #[test]
    fn a_session_without_such_turns_is_known_and_another_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        let store = Store::open(&path, 30).unwrap().store;
        store.record(assigned("s\n", None, 1));
        // While the router runs: it has the file open.
        assert_eq!(rereads_of(&path, "t", 20).unwrap(), Rereads { is_known: false, turns: vec![] });
        assert!(store.close(Duration::from_secs(60)));
        assert_eq!(rereads_of(&path, "s\n", 20).unwrap(), Rereads { is_known: true, turns: vec![] });
        assert!(!rereads_of(&path, "s", 20).unwrap().is_known);
    }

    #[test]
    fn they_are_kept_as_long_as_events() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        let days = |days: i64| (reread("s", Cause::Lost), Utc::now() - chrono::TimeDelta::days(days));
        recorded(&path, u32::MAX, [0, 29, 31].map(days).into());
        assert_eq!(count(&path, "rereads"), 3);
        recorded(&path, 30, vec![]);
        assert_eq!(count(&path, "rereads"), 2);
        recorded(&path, 0, vec![days(0)]);
        assert_eq!(count(&path, "rereads"), 0);
    }

    #[test]
    fn what_can_not_be_read_is_told_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("router.sqlite");
        assert!(matches!(rereads_of(&path, "s", 20), Err(ReadError::Missing(_))));
        std::fs::write(&path, "no database").unwrap();
        assert!(matches!(rereads_of(&path, "s", 20), Err(ReadError::Unusable { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"no database");
        std::fs::remove_file(&path).unwrap();
        recorded(&path, 30, vec![]);
        Connection::open(&path).unwrap().pragma_update(None, "user_version", SINCE - 1).unwrap();
        assert!(matches!(rereads_of(&path, "s", 20), Err(ReadError::Older(_))));
    }

    #[test]
    fn no_more_is_read_again_than_was_read_and_was_there_before() {
        let turn = |computed, cached, before| {
            SavedReread { at: at(0), computed, cached, before, cause: None }.again()
        };
        assert_eq!((turn(10, 5, 100), turn(50, 5, 20), turn(5, 30, 20)), (10, 15, 0));
    }
}
