//! What was read once is not read again: the router has llama-server save and restore states where that pays, and never
//! lets a state get where it doesn't belong.
mod canaries;
mod clearing;
mod evictions;
mod files;
mod leaving;
mod order;
mod restarts;
mod room;
mod secrets;
mod served;
mod sharing;
mod stage;
mod switched_off;

use session_slot_tests::client::words;
use session_slot_tests::{Answer, Options};

/// Words of a turn: more than the least that is saved, and than what may be missing of a state.
const TURN: usize = 200;
/// Tokens a first turn leaves: the last of the four words said was never put through the model.
const LEFT: u64 = TURN as u64 + 3;

/// A turn no other session says, and no other turn.
fn text(session: &str, turn: usize) -> String {
    words(&format!("{session}-{turn}-"), TURN)
}

fn slot_of(answer: &Answer) -> usize {
    let slot = answer.header("x-slot-router-slot").expect("the answer should name its slot");
    slot.parse().expect("a slot should be a number")
}

fn reused(answer: &Answer) -> u64 {
    answer.cache_n().expect("timings should be there")
}

/// A server with so many slots that forgets whatever is in none of them.
fn small(slots: usize) -> Options {
    Options::without_ram_cache().slots(slots)
}
