//! The rows of saved states.

use chrono::{DateTime, Utc};
use rusqlite::{Connection, Row, params};

use super::StateRow;
use crate::chain::Chain;
use crate::warm::{SavedState, StateId};

const SAVE: &str = "
    INSERT INTO states (id, name, session, user, fingerprint, layout, tokens, prompt, bytes, chain, last_used)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
    ON CONFLICT (id) DO UPDATE SET
        name = excluded.name, session = excluded.session, user = excluded.user, fingerprint = excluded.fingerprint,
        layout = excluded.layout, tokens = excluded.tokens, prompt = excluded.prompt, bytes = excluded.bytes,
        chain = excluded.chain, last_used = excluded.last_used";

const LOAD: &str = "
    SELECT id, name, session, user, fingerprint, layout, tokens, prompt, bytes, chain FROM states
    ORDER BY last_used, id";

pub(super) fn save(connection: &Connection, row: &StateRow, at: DateTime<Utc>) -> rusqlite::Result<()> {
    let StateRow { name, state } = row;
    let values = params![
        number(state.id.0),
        name,
        state.session,
        state.user,
        state.fingerprint,
        state.layout.map(number),
        number(state.tokens),
        number(state.prompt),
        number(state.bytes),
        state.chain.to_bytes(),
        at.timestamp_millis(),
    ];
    connection.prepare_cached(SAVE)?.execute(values).map(drop)
}

pub(super) fn forget(connection: &Connection, state: StateId) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM states WHERE id = ?1")?.execute([number(state.0)]).map(drop)
}

/// The least recently used first. A row with a number that the router would not write is passed over: its file is
/// removed as one without a row.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<Vec<StateRow>> {
    let rows: Vec<Option<StateRow>> =
        connection.prepare(LOAD)?.query_map([], state_row)?.collect::<Result<_, _>>()?;
    Ok(rows.into_iter().flatten().collect())
}

fn state_row(row: &Row<'_>) -> rusqlite::Result<Option<StateRow>> {
    let count = |index| row.get::<_, i64>(index).map(|number| u64::try_from(number).ok());
    let layout: Option<i64> = row.get(5)?;
    let chain = Chain::from_bytes(&row.get::<_, Vec<u8>>(9)?);
    let (Some(id), Some(tokens), Some(prompt), Some(bytes), Some(chain)) =
        (count(0)?, count(6)?, count(7)?, count(8)?, chain)
    else {
        return Ok(None);
    };
    let state = SavedState {
        id: StateId(id),
        session: row.get(2)?,
        user: row.get(3)?,
        fingerprint: row.get(4)?,
        layout: layout.and_then(|layout| layout.try_into().ok()),
        tokens,
        prompt,
        bytes,
        chain,
    };
    Ok(Some(StateRow { name: row.get(1)?, state }))
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::database::Database;
    use super::super::tests::at;
    use super::super::{Write, schema};
    use super::*;

    fn memory() -> Connection {
        Database::in_memory(schema::MIGRATIONS).unwrap().connection
    }

    fn row(id: u64, name: &str) -> StateRow {
        let state = SavedState {
            id: StateId(id),
            session: "s".to_owned(),
            user: Some("ann".to_owned()),
            fingerprint: "server".to_owned(),
            layout: None,
            tokens: 1_394,
            prompt: 1_300,
            bytes: 27_917_448,
            chain: Chain::default(),
        };
        StateRow { name: name.to_owned(), state }
    }

    fn write(connection: &Connection, write: Write) {
        schema::apply(connection, &write, true).unwrap();
    }

    fn save(connection: &Connection, row: &StateRow, ms: i64) {
        write(connection, Write::State { row: Box::new(row.clone()), at: at(ms) });
    }

    #[test]
    fn states_come_back_as_they_were_with_the_least_recently_used_first() {
        let db = memory();
        let (one, two) = (row(1, "a.kv"), row(2, "b.kv"));
        save(&db, &one, 1);
        save(&db, &two, 2);
        assert_eq!(load(&db).unwrap(), [one.clone(), two.clone()]);
        save(&db, &one, 3);
        assert_eq!(load(&db).unwrap(), [two, one]);
    }

    #[test]
    fn what_is_learned_later_of_a_state_is_kept() {
        let db = memory();
        let mut state = row(1, "a.kv");
        save(&db, &state, 1);
        state.state.layout = Some(37_452);
        save(&db, &state, 2);
        assert_eq!(load(&db).unwrap(), [state]);
    }

    #[test]
    fn a_state_that_is_gone_does_not_come_back() {
        let db = memory();
        save(&db, &row(1, "a.kv"), 1);
        save(&db, &row(2, "b.kv"), 2);
        write(&db, Write::StateGone(StateId(1)));
        assert_eq!(load(&db).unwrap(), [row(2, "b.kv")]);
    }

    #[test]
    fn a_row_with_numbers_the_router_would_not_write_is_passed_over() {
        let db = memory();
        save(&db, &row(1, "a.kv"), 1);
        save(&db, &row(2, "b.kv"), 2);
        db.execute("UPDATE states SET bytes = -1 WHERE id = 1", []).unwrap();
        assert_eq!(load(&db).unwrap(), [row(2, "b.kv")]);
    }
}
