//! The command `why SESSION`: the turns of a session that read more again than they should have, and what made them.

use std::path::Path;

use chrono::{Local, TimeZone};
use thiserror::Error;

use crate::chain::Part;
use crate::config;
use crate::store::{self, ReadError, SavedReread};
use crate::warm::Cause;

/// So many turns are told of.
const TURNS: u32 = 20;

/// Why there is nothing to tell.
#[derive(Debug, Error)]
pub enum WhyError {
    /// The database can't be read.
    #[error(transparent)]
    Database(#[from] ReadError),
    /// There is no such session.
    #[error("no session \"{}\" is known here; ids are those in the router's log and at /router/status", .0.escape_debug())]
    Unknown(String),
}

/// What is told of a session, as lines for a terminal. `database` is the router's own; with several servers each has one
/// more beside it.
///
/// # Errors
/// If a database can't be read, or none knows the session.
pub fn report(database: &Path, session: &str) -> Result<String, WhyError> {
    let mut found = store::rereads_of(database, session, TURNS)?;
    for of_server in config::databases_of_servers(database) {
        let more = store::rereads_of(&of_server, session, TURNS)?;
        found.is_known |= more.is_known;
        found.turns.extend(more.turns);
        // The session may have moved from one server to another.
        found.turns.sort_by_key(|turn| std::cmp::Reverse(turn.at));
        found.turns.truncate(TURNS as usize);
    }
    if !found.is_known {
        return Err(WhyError::Unknown(session.to_owned()));
    }
    if found.turns.is_empty() {
        let session = session.escape_debug();
        return Ok(format!("no turn of session \"{session}\" read more again than it should have\n"));
    }
    Ok(found.turns.iter().map(|turn| line(turn, &Local)).collect())
}

fn line(turn: &SavedReread, zone: &impl TimeZone<Offset: std::fmt::Display>) -> String {
    let at = turn.at.with_timezone(zone).format("%Y-%m-%d %H:%M:%S");
    let (read, all) = (turn.computed, turn.computed.saturating_add(turn.cached));
    let (again, cause) = (turn.again(), because(turn.cause));
    format!("{at}  read {read} of {all} tokens, {again} of them again: {cause}\n")
}

fn because(cause: Option<Cause>) -> String {
    let part = match cause {
        Some(Cause::Changed(Part::System)) => "the system text is".to_owned(),
        Some(Cause::Changed(Part::Tools)) => "the tools are".to_owned(),
        Some(Cause::Changed(Part::Message(index))) => format!("message {index} is"),
        Some(Cause::Lost) => {
            return "its cache was gone: another session had taken the slot, or the server had restarted"
                .to_owned();
        }
        None => return "for a reason that only a newer version of this program knows".to_owned(),
    };
    let were = if part.ends_with("are") { "they were" } else { "it was" };
    format!("{part} not what {were} in the turn before")
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;

    #[test]
    fn a_line_tells_when_how_much_and_what_made_it() {
        let at = DateTime::from_timestamp_millis(1_795_953_667_000).expect("a time");
        let with =
            |cause| line(&SavedReread { at, computed: 30_512, cached: 159, before: 30_279, cause }, &Utc);
        let begin = "2026-11-29 12:01:07  read 30512 of 30671 tokens, 30120 of them again: ";
        for (cause, expected) in [
            (Some(Cause::Changed(Part::Message(7))), "message 7 is not what it was in the turn before"),
            (Some(Cause::Changed(Part::Tools)), "the tools are not what they were in the turn before"),
            (Some(Cause::Changed(Part::System)), "the system text is not what it was in the turn before"),
            (
                Some(Cause::Lost),
                "its cache was gone: another session had taken the slot, or the server had restarted",
            ),
            (None, "for a reason that only a newer version of this program knows"),
        ] {
            assert_eq!(with(cause), format!("{begin}{expected}\n"));
        }
    }
}
