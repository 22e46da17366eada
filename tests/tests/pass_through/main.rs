//! What takes no part in routing crosses the router as it is: requests, answers, bodies, connections.
mod answers;
mod bodies;
mod connections;
mod requests;
mod upgrades;

use session_slot_tests::FakeLlama;
use session_slot_tests::fake::Received;

/// The clients' requests as the server got them, without the router's own questions.
fn arrived(fake: &FakeLlama) -> Vec<Received> {
    fake.look(|state| state.received().iter().filter(|one| !one.is_own_question()).cloned().collect())
}

/// The head of a raw message: its lines, the first one as it is, headers with names in lower case.
fn head(message: &[u8]) -> Vec<String> {
    let end = message.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head should end");
    let text: String = message[..end].iter().map(|byte| char::from(*byte)).collect();
    let mut lines = text.split("\r\n");
    let first = lines.next().map(str::to_owned);
    let lower = |line: &str| match line.split_once(':') {
        Some((name, value)) => format!("{}:{value}", name.to_ascii_lowercase()),
        None => line.to_owned(),
    };
    first.into_iter().chain(lines.map(lower)).collect()
}

/// What follows the head of a raw message.
fn body(message: &[u8]) -> &[u8] {
    let end = message.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head should end");
    &message[end + 4..]
}
