//! What the router has written to its database, read beside it.
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use serde_json::{Map, Value, json};

/// No test waits longer than this for a row.
const PATIENCE: Duration = Duration::from_secs(30);

/// The router's database. Each look opens it anew.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
}

impl Database {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The rows of a query, each as an object of its columns.
    ///
    /// # Panics
    /// If there is no such database or the query is wrong.
    #[must_use]
    pub fn rows(&self, query: &str) -> Vec<Value> {
        self.try_rows(query).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    /// The row of a session.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn session(&self, id: &str) -> Value {
        let found = self.rows("SELECT * FROM sessions").into_iter().find(|row| row["session"] == id);
        found.unwrap_or_else(|| panic!("no session {id:?}"))
    }

    /// The event log, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        self.rows("SELECT * FROM events ORDER BY id")
    }

    /// Waits for the row of a session to be as wanted, while the router runs.
    ///
    /// # Panics
    /// After 30 s.
    pub async fn wait_session(&self, id: &str, check: impl Fn(&Value) -> bool) -> Value {
        let wanted = |row: &Value| row["session"] == id && check(row);
        let rows = self.wait_rows("SELECT * FROM sessions", |rows| rows.iter().any(&wanted)).await;
        rows.into_iter().find(wanted).expect("it has just been there")
    }

    /// Waits for the rows of a query to be as wanted, while the router runs.
    ///
    /// # Panics
    /// After 30 s.
    pub async fn wait_rows(&self, query: &str, check: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let started = Instant::now();
        loop {
            let rows = self.try_rows(query).unwrap_or_default();
            if check(&rows) {
                return rows;
            }
            assert!(started.elapsed() < PATIENCE, "{query}: {rows:?}");
            // SQLite tells nobody that it was written.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn try_rows(&self, query: &str) -> rusqlite::Result<Vec<Value>> {
        let connection = Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        connection.busy_timeout(PATIENCE)?;
        let mut statement = connection.prepare(query)?;
        let names: Vec<String> = statement.column_names().into_iter().map(str::to_owned).collect();
        statement.query_map([], |row| object(row, &names))?.collect()
    }
}

fn object(row: &Row<'_>, names: &[String]) -> rusqlite::Result<Value> {
    let member = |(index, name): (usize, &String)| Ok((name.clone(), value(row.get_ref(index)?)));
    let members = names.iter().enumerate().map(member).collect::<rusqlite::Result<Map<_, _>>>()?;
    Ok(Value::Object(members))
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => json!(number),
        ValueRef::Real(number) => json!(number),
        ValueRef::Text(text) | ValueRef::Blob(text) => json!(String::from_utf8_lossy(text)),
    }
}
