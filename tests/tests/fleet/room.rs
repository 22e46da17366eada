//! Room: a server whose slots share their memory is given no more than it can hold.
use serde_json::Value;
use session_slot_tests::client::{self, chat_request, words};
use session_slot_tests::{Answer, FakeLlama, Options};
use tokio::task::JoinHandle;

use crate::stage::Stage;

/// Two of [`turn`]'s do not fit.
const SMALL: &str = "models = [\"m\"]\nkv = \"shared\"\nbudget_tokens = 1000\n";

fn waiting(status: &Value) -> u64 {
    status["servers"].as_array().into_iter().flatten().filter_map(|server| server["waiting"].as_u64()).sum()
}

async fn small() -> Stage {
    let fakes: Vec<_> = (0..2).map(|_| FakeLlama::start(Options::default())).collect();
    Stage::before(fakes, "", Some(SMALL)).await
}

fn turn(stage: &Stage, session: &str) -> client::Outgoing {
    chat_request(&stage.router.url(), session, &format!("HOLD:{session} {}", words(session, 300)))
}

/// Two turns that run, s and t, one at each server, and one that waits for room, u.
async fn full() -> (Stage, [JoinHandle<Answer>; 2], JoinHandle<Answer>) {
    let stage = small().await;
    let running = ["s", "t"].map(|session| client::send_later(turn(&stage, session)));
    for fake in &stage.fakes {
        fake.wait_processing(1).await;
    }
    let waiter = client::send_later(turn(&stage, "u"));
    stage.router.wait_status("a waiter", |status| waiting(status) == 1).await;
    (stage, running, waiter)
}

#[tokio::test]
async fn a_turn_that_does_not_fit_waits_for_room_and_then_goes_on() {
    let (stage, running, waiter) = full().await;
    assert_eq!(stage.fakes.iter().map(|fake| fake.received().len()).sum::<usize>(), 2);
    for session in ["u", "s", "t"] {
        stage.fakes.iter().for_each(|fake| fake.release(session));
    }
    assert_eq!(waiter.await.expect("it should end").status.as_u16(), 200);
    for turn in running {
        assert_eq!(turn.await.expect("it should end").status.as_u16(), 200);
    }
    assert_eq!(waiting(&stage.router.status().await), 0);
}

#[tokio::test]
async fn a_client_that_leaves_while_its_turn_waits_for_room_leaves_no_trace() {
    let (stage, running, waiter) = full().await;
    waiter.abort();
    stage.router.wait_status("no waiter", |status| waiting(status) == 0).await;
    for session in ["s", "t"] {
        stage.fakes.iter().for_each(|fake| fake.release(session));
    }
    for turn in running {
        assert_eq!(turn.await.expect("it should end").status.as_u16(), 200);
    }
    assert_eq!(stage.fakes.iter().map(|fake| fake.received().len()).sum::<usize>(), 2);
}
