//! Several servers: which one a turn goes to, and what becomes of it when that one fails.
mod away;
mod each;
mod full;
mod homes;
mod names;
mod outages;
mod room;
mod sidecars;
mod stage;
mod three;

use session_slot_tests::Answer;

/// The server that the router says it used.
fn server_of(answer: &Answer) -> &str {
    answer.header("x-slot-router-server").expect("the answer should name its server")
}
