//! Several real llama-servers with a real model: conversations stay where they are known, and neither a server that is
//! killed nor one that is full costs a turn.
mod full;
mod homes;

use serde_json::Value;
use session_slot_tests::Answer;

/// The server that the router says it used.
fn server_of(answer: &Answer) -> &str {
    answer.header("x-slot-router-server").expect("the answer should name its server")
}

/// What the status says of the server of this name.
fn server<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut servers = status["servers"].as_array().into_iter().flatten();
    servers.find(|server| server["name"] == name).expect("the server should be shown")
}

/// It is up, and has said what it is.
fn is_up(status: &Value, name: &str) -> bool {
    let server = server(status, name);
    server["state"] == "up" && !server["slots"].is_null()
}
