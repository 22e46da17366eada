//! Two routers that share homes in a real Valkey or Redis, in front of two routers that each have a server of their own.
mod away;
mod homes;
mod loads;
mod stage;

use session_slot_tests::{Answer, Session};

/// The server that a front says it used.
fn server_of(answer: &Answer) -> String {
    answer.header("x-slot-router-server").expect("the answer should name its server").to_owned()
}

/// The next turn of a conversation, through the router at `base`; says at which server.
async fn say(talk: &mut Session, base: &str) -> String {
    talk.move_to(base);
    server_of(&talk.say("and then?").await)
}
