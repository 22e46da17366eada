//! The tables, and the statements that touch them (those about re-readings are in `rereads`). Times are milliseconds since
//! 1970, UTC.

use chrono::{DateTime, Utc};
use rusqlite::{Connection, Row, params};
use rusqlite_migration::M;

use super::{Event, SavedSession, Write, rereads, states};
use crate::chain::ChainKey;

/// Sessions that are loaded at start, and that are kept in a database in memory.
const MOST_SESSIONS: i64 = 65_536;
/// Above any real count; keeps sums of what a server reports far from SQLite's overflow into floating point.
const MOST_TOKENS: u64 = 1 << 40;

/// The way from an empty database to the current schema. Only ever add to the end.
pub(super) const MIGRATIONS: &[M<'static>] = &[
    M::up(
        "CREATE TABLE sessions (
        session         TEXT PRIMARY KEY NOT NULL,
        agent_name      TEXT,
        client_type     TEXT,
        slot            INTEGER,
        fingerprint     TEXT,
        id_task         INTEGER,
        n_tokens        INTEGER,
        first_used      INTEGER NOT NULL,
        last_used       INTEGER NOT NULL,
        requests        INTEGER NOT NULL DEFAULT 0,
        prompt_computed INTEGER NOT NULL DEFAULT 0,
        prompt_cached   INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE events (
        id          INTEGER PRIMARY KEY,
        at          INTEGER NOT NULL,
        method      TEXT NOT NULL,
        route       TEXT NOT NULL,
        agent_name  TEXT,
        session     TEXT,
        client_type TEXT,
        asked_slot  TEXT,
        slots_seen  TEXT,
        slot        INTEGER,
        action      TEXT NOT NULL,
        evicted     TEXT,
        waited_ms   INTEGER NOT NULL,
        status      INTEGER NOT NULL,
        computed    INTEGER,
        cached      INTEGER,
        error       TEXT
    );
    CREATE INDEX events_at ON events (at);",
    ),
    M::up(
        "ALTER TABLE events ADD COLUMN source TEXT;
    ALTER TABLE events ADD COLUMN conflict TEXT;
    ALTER TABLE events ADD COLUMN parent TEXT;
    ALTER TABLE events ADD COLUMN \"window\" TEXT;",
    ),
    M::up(
        "CREATE TABLE installation (
        id        INTEGER PRIMARY KEY CHECK (id = 1),
        chain_key BLOB NOT NULL
    );
    CREATE TABLE rereads (
        id            INTEGER PRIMARY KEY,
        at            INTEGER NOT NULL,
        session       TEXT NOT NULL,
        computed      INTEGER NOT NULL,
        cached        INTEGER NOT NULL,
        before_tokens INTEGER NOT NULL,
        cause         TEXT NOT NULL
    );
    CREATE INDEX rereads_at ON rereads (at);
    CREATE INDEX rereads_session ON rereads (session, id);",
    ),
    M::up(
        "CREATE TABLE states (
        id          INTEGER PRIMARY KEY NOT NULL,
        name        TEXT NOT NULL,
        session     TEXT NOT NULL,
        user        TEXT,
        fingerprint TEXT NOT NULL,
        layout      INTEGER,
        tokens      INTEGER NOT NULL,
        prompt      INTEGER NOT NULL,
        bytes       INTEGER NOT NULL,
        chain       BLOB NOT NULL,
        last_used   INTEGER NOT NULL
    );
    ALTER TABLE events ADD COLUMN restored INTEGER;",
    ),
    M::up(
        "ALTER TABLE events ADD COLUMN server TEXT;
    ALTER TABLE events ADD COLUMN lost INTEGER;",
    ),
];

// `IS` instead of `=`, so that two NULLs are the same server. A request sent without a slot leaves the session the one
// it has: while the server loads, that is the case for all of them.
const ASSIGN: &str = "
    INSERT INTO sessions (session, agent_name, client_type, slot, fingerprint, first_used, last_used, requests)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, 1)
    ON CONFLICT (session) DO UPDATE SET
        agent_name  = COALESCE(excluded.agent_name, agent_name),
        client_type = COALESCE(excluded.client_type, client_type),
        id_task     = CASE WHEN slot IS COALESCE(excluded.slot, slot) AND fingerprint IS excluded.fingerprint
                      THEN id_task END,
        n_tokens    = CASE WHEN slot IS COALESCE(excluded.slot, slot) AND fingerprint IS excluded.fingerprint
                      THEN n_tokens END,
        slot        = COALESCE(excluded.slot, slot),
        fingerprint = excluded.fingerprint,
        last_used   = excluded.last_used,
        requests    = requests + 1";

const UNASSIGN: &str = "UPDATE sessions SET slot = NULL, id_task = NULL, n_tokens = NULL WHERE session = ?1";

const LEAVE: &str = "UPDATE sessions SET slot = ?2, id_task = ?3, n_tokens = ?4 WHERE session = ?1";

const USE: &str = "
    UPDATE sessions SET prompt_computed = prompt_computed + ?2, prompt_cached = prompt_cached + ?3
    WHERE session = ?1";

const LOG: &str = "
    INSERT INTO events (at, method, route, agent_name, session, client_type, asked_slot, slots_seen, slot, action,
                        evicted, waited_ms, status, computed, cached, error, source, conflict, parent, \"window\",
                        restored, server, lost)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
            ?23)";

const LOAD: &str = "
    SELECT session, slot, fingerprint, id_task, n_tokens, last_used
    FROM (SELECT rowid AS id, * FROM sessions ORDER BY last_used DESC, rowid DESC LIMIT ?1)
    ORDER BY last_used, id";

// SQLite's random bytes come from the system's.
const DRAW_KEY: &str = "
    INSERT INTO installation (id, chain_key) VALUES (1, randomblob(16))
    ON CONFLICT (id) DO UPDATE SET chain_key = excluded.chain_key
    WHERE typeof(chain_key) <> 'blob' OR length(chain_key) <> 16";

/// The key of this installation's hashes; drawn now if there is none.
pub(super) fn chain_key(connection: &Connection) -> rusqlite::Result<ChainKey> {
    connection.execute(DRAW_KEY, [])?;
    connection.query_row("SELECT chain_key FROM installation", [], |row| row.get(0)).map(ChainKey)
}

/// Carries out one write; events and re-readings only if they are kept.
pub(super) fn apply(connection: &Connection, write: &Write, events: bool) -> rusqlite::Result<()> {
    let execute =
        |sql, values: &[&dyn rusqlite::ToSql]| connection.prepare_cached(sql)?.execute(values).map(drop);
    match write {
        Write::Assigned { session, agent_name, client_type, slot, fingerprint, at } => {
            let at = at.timestamp_millis();
            execute(ASSIGN, params![session, agent_name, client_type, slot, fingerprint, at])
        }
        Write::Unassigned { session } => execute(UNASSIGN, params![session]),
        Write::Left { session, slot, id_task, n_tokens } => {
            execute(LEAVE, params![session, slot, id_task, n_tokens.map(tokens)])
        }
        Write::Usage { session, computed, cached } => {
            execute(USE, params![session, tokens(*computed), tokens(*cached)])
        }
        Write::State { row, at } => states::save(connection, row, *at),
        Write::StateGone(state) => states::forget(connection, *state),
        Write::Event(event) if events => log(connection, event),
        Write::Reread { reread, at } if events => rereads::insert(connection, reread, *at),
        Write::Event(_) | Write::Reread { .. } => Ok(()),
    }
}

fn log(connection: &Connection, event: &Event) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(LOG)?;
    let values = params![
        event.at.timestamp_millis(),
        event.method,
        event.route,
        event.agent_name,
        event.session,
        event.client_type,
        event.asked_slot,
        event.slots_seen,
        event.slot,
        event.action,
        event.evicted,
        i64::try_from(event.waited_ms).unwrap_or(i64::MAX),
        event.status,
        event.computed.map(tokens),
        event.cached.map(tokens),
        event.error,
        event.source,
        event.conflict,
        event.parent,
        event.window,
        event.restored.map(tokens),
        event.server,
        event.lost.map(tokens),
    ];
    statement.execute(values).map(drop)
}

pub(super) fn tokens(count: u64) -> i64 {
    i64::try_from(count.min(MOST_TOKENS)).unwrap_or(i64::MAX)
}

/// The sessions used last, least recently used first.
pub(super) fn load_sessions(connection: &Connection) -> rusqlite::Result<Vec<SavedSession>> {
    connection.prepare(LOAD)?.query_map([MOST_SESSIONS], saved_session)?.collect()
}

fn saved_session(row: &Row<'_>) -> rusqlite::Result<SavedSession> {
    // A number out of range was not written by the router; without it the session is merely cold.
    let slot: Option<i64> = row.get(1)?;
    let n_tokens: Option<i64> = row.get(4)?;
    Ok(SavedSession {
        session: row.get(0)?,
        slot: slot.and_then(|slot| slot.try_into().ok()),
        fingerprint: row.get(2)?,
        id_task: row.get(3)?,
        n_tokens: n_tokens.and_then(|count| count.try_into().ok()),
        last_used: time(row.get(5)?),
    })
}

/// A moment as it is kept; one out of range was not written by the router.
pub(super) fn time(millis: i64) -> DateTime<Utc> {
    DateTime::<Utc>::from_timestamp_millis(millis).unwrap_or_default()
}

/// Deletes the events before `oldest`.
pub(super) fn forget_events(connection: &Connection, oldest: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM events WHERE at < ?1", [oldest]).map(drop)
}

/// Deletes all but the last `count` events.
pub(super) fn keep_last_events(connection: &Connection, count: i64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM events WHERE id <= (SELECT MAX(id) FROM events) - ?1";
    connection.prepare_cached(sql)?.execute([count]).map(drop)
}

/// Deletes all but the sessions used last.
pub(super) fn forget_sessions(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "DELETE FROM sessions WHERE rowid NOT IN
               (SELECT rowid FROM sessions ORDER BY last_used DESC, rowid DESC LIMIT ?1)";
    connection.execute(sql, [MOST_SESSIONS]).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::database::Database;
    use super::super::tests::{assigned, at};
    use super::*;

    fn memory() -> Connection {
        Database::in_memory(MIGRATIONS).unwrap().connection
    }

    fn write(connection: &Connection, write: Write) {
        apply(connection, &write, true).unwrap();
    }

    fn named(agent_name: Option<&str>, client_type: Option<&str>, ms: i64) -> Write {
        Write::Assigned {
            session: "s".to_owned(),
            agent_name: agent_name.map(str::to_owned),
            client_type: client_type.map(str::to_owned),
            slot: Some(1),
            fingerprint: None,
            at: at(ms),
        }
    }

    fn left(id_task: i64) -> Write {
        Write::Left { session: "s".to_owned(), slot: Some(1), id_task: Some(id_task), n_tokens: Some(7) }
    }

    #[test]
    fn the_migrations_are_valid() {
        rusqlite_migration::Migrations::from_slice(MIGRATIONS).validate().unwrap();
    }

    #[test]
    fn names_change_only_when_given_and_requests_are_counted() {
        let db = memory();
        write(&db, named(Some("pi"), None, 1));
        write(&db, named(None, Some("tui"), 2));
        write(&db, named(Some("hermes"), None, 3));
        let sql = "SELECT agent_name, client_type, first_used, last_used, requests FROM sessions";
        let row: (String, String, i64, i64, i64) = db
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
            .unwrap();
        assert_eq!(row, ("hermes".to_owned(), "tui".to_owned(), 1, 3, 3));
    }

    #[test]
    fn what_was_left_is_kept_in_the_same_slot_and_forgotten_in_another() {
        let db = memory();
        let id_task = || load_sessions(&db).unwrap()[0].id_task;
        write(&db, named(None, None, 1));
        write(&db, left(41));
        write(&db, named(None, None, 2));
        assert_eq!(id_task(), Some(41));
        write(&db, assigned("s", Some(1), 3));
        assert_eq!(id_task(), None, "another server");
        write(&db, left(42));
        write(&db, assigned("s", Some(2), 4));
        assert_eq!(id_task(), None, "another slot");
    }

    #[test]
    fn a_request_sent_without_a_slot_leaves_the_session_the_one_it_has() {
        let db = memory();
        write(&db, named(None, None, 1));
        write(&db, left(41));
        let unnamed = |fingerprint: Option<&str>| match named(None, None, 2) {
            Write::Assigned { session, agent_name, client_type, at, .. } => {
                let fingerprint = fingerprint.map(str::to_owned);
                Write::Assigned { session, agent_name, client_type, slot: None, fingerprint, at }
            }
            other => other,
        };
        write(&db, unnamed(None));
        let saved = load_sessions(&db).unwrap().remove(0);
        assert_eq!((saved.slot, saved.id_task, saved.n_tokens), (Some(1), Some(41), Some(7)));
        write(&db, unnamed(Some("another server")));
        let saved = load_sessions(&db).unwrap().remove(0);
        assert_eq!((saved.slot, saved.id_task, saved.n_tokens), (Some(1), None, None));
    }

    #[test]
    fn usage_adds_up_and_a_servers_nonsense_does_not_overflow() {
        let db = memory();
        write(&db, assigned("s", None, 1));
        for (computed, cached) in [(5, 7), (1, 0), (u64::MAX, u64::MAX), (u64::MAX, 0)] {
            write(&db, Write::Usage { session: "s".to_owned(), computed, cached });
        }
        let sql = "SELECT prompt_computed, prompt_cached FROM sessions";
        let sums: (i64, i64) = db.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!(sums, (6 + (2 << 40), 7 + (1 << 40)));
    }

    #[test]
    fn writes_about_an_unknown_session_change_nothing() {
        let db = memory();
        write(&db, left(1));
        write(&db, Write::Unassigned { session: "s".to_owned() });
        assert_eq!(load_sessions(&db).unwrap(), []);
    }

    #[test]
    fn every_fact_of_an_event_is_in_its_row() {
        let db = memory();
        let text = |text: &str| Some(text.to_owned());
        let event = Event {
            at: at(1),
            method: "POST".to_owned(),
            route: "/v1/messages".to_owned(),
            agent_name: text("pi"),
            session: text("s"),
            client_type: text("tui"),
            asked_slot: text("-1"),
            slots_seen: text("0:idle 1:busy"),
            slot: Some(3),
            action: "evict".to_owned(),
            evicted: text("t"),
            waited_ms: u64::MAX,
            status: 200,
            computed: Some(10),
            cached: Some(20),
            error: text("gone"),
            source: text("header:session-id"),
            conflict: text("body:prompt_cache_key"),
            parent: text("p"),
            window: text("w:0"),
            restored: Some(30),
            server: Some("a".to_owned()),
            lost: Some(5),
        };
        write(&db, Write::Event(Box::new(event)));
        let sql = "SELECT concat_ws('|', at, method, route, agent_name, session, client_type, asked_slot,
                   slots_seen, slot, action, evicted, waited_ms, status, computed, cached, error, source, conflict, parent, \"window\", restored, server, lost) FROM events";
        let row: String = db.query_row(sql, [], |row| row.get(0)).unwrap();
        let expected = "1|POST|/v1/messages|pi|s|tui|-1|0:idle 1:busy|3|evict|t|9223372036854775807|200|10|20|gone|\
             header:session-id|body:prompt_cache_key|p|w:0|30|a|5";
        assert_eq!(row, expected);
    }

    #[test]
    fn numbers_the_router_would_not_write_load_as_nothing() {
        let db = memory();
        write(&db, named(None, None, 1));
        db.execute("UPDATE sessions SET slot = -1, n_tokens = -1, last_used = 1 << 62", []).unwrap();
        let saved = load_sessions(&db).unwrap().remove(0);
        assert_eq!((saved.slot, saved.n_tokens, saved.last_used), (None, None, at(0)));
    }
}
