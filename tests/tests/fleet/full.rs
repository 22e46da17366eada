//! A memory that is full: the turn waits and is sent again, and its client sees nothing of it, or an error to try again on.
use session_slot_tests::Options;
use session_slot_tests::client::{self, chat_request};
use session_slot_tests::fake::Breakage;

use crate::server_of;
use crate::stage::Stage;

#[tokio::test]
async fn a_turn_whose_server_was_full_is_sent_there_again_unseen() {
    let stage = Stage::open(2, &Options::default()).await;
    let home = server_of(&client::chat(&stage.router.url(), "s", "hello").await).to_owned();
    let turn = client::send_later(chat_request(&stage.router.url(), "s", "HOLD:x go on"));
    stage.fake(&home).wait_processing(1).await;
    stage.fake(&home).release("x");
    stage.fake(&home).overflows();
    let answer = turn.await.expect("the turn should end");
    assert_eq!((answer.status.as_u16(), server_of(&answer)), (200, &*home), "{}", answer.text());
    stage.wait_states(&["up"; 2]).await;
}

#[tokio::test]
async fn a_server_that_stays_full_is_told_so_that_the_client_tries_again() {
    let stage = Stage::with(2, &Options::default(), "[budget]\nretries = 1").await;
    for fake in &stage.fakes {
        fake.breaks(Breakage::Full);
    }
    let answer = client::chat(&stage.router.url(), "s", "hello").await;
    assert_eq!(answer.status.as_u16(), 503, "{}", answer.text());
    assert!(answer.text().contains("memory is full") && answer.header("retry-after").is_some());
    assert!(!answer.text().contains("ontext") && answer.text().contains("server_error"), "{}", answer.text());
    // Full is not broken.
    stage.wait_states(&["up"; 2]).await;
}
