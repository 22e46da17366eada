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

fn turn(stage: &Stage, session: &str) -> client::Outgoing {
    chat_request(&stage.router.url(), session, &format!("HOLD:{session} {}", words(session, 300)))
}

/// Two servers with a turn at each, and a turn that waits for room.
struct Crowded {
    stage: Stage,
    running: [JoinHandle<Answer>; 2],
    waiter: JoinHandle<Answer>,
}

impl Crowded {
    /// With more in the router's configuration.
    async fn with(more: &str) -> Self {
        let fakes: Vec<_> = (0..2).map(|_| FakeLlama::start(Options::default())).collect();
        let stage = Stage::before(fakes, more, Some(SMALL)).await;
        let running = ["s", "t"].map(|session| client::send_later(turn(&stage, session)));
        for fake in &stage.fakes {
            fake.wait_processing(1).await;
        }
        let waiter = client::send_later(turn(&stage, "u"));
        stage.router.wait_status("a waiter", |status| waiting(status) == 1).await;
        assert_eq!(received(&stage), 2);
        Self { stage, running, waiter }
    }

    fn release(&self, sessions: &[&str]) {
        for session in sessions {
            self.stage.fakes.iter().for_each(|fake| fake.release(session));
        }
    }

    /// Whatever runs or waits ends with this status.
    async fn end(self, status: u16) -> (Stage, Answer) {
        for turn in self.running {
            assert_eq!(turn.await.expect("it should end").status.as_u16(), status);
        }
        let waiter = self.waiter.await.expect("it should end");
        assert_eq!(waiter.status.as_u16(), status, "{}", waiter.text());
        (self.stage, waiter)
    }
}

fn received(stage: &Stage) -> usize {
    stage.fakes.iter().map(|fake| fake.received().len()).sum()
}

#[tokio::test]
async fn a_turn_that_does_not_fit_waits_for_room_and_then_goes_on() {
    let crowded = Crowded::with("").await;
    crowded.release(&["u", "s", "t"]);
    let (stage, _) = crowded.end(200).await;
    assert_eq!(waiting(&stage.router.status().await), 0);
}

#[tokio::test]
async fn a_client_that_leaves_while_its_turn_waits_for_room_leaves_no_trace() {
    let crowded = Crowded::with("").await;
    crowded.waiter.abort();
    crowded.stage.router.wait_status("no waiter", |status| waiting(status) == 0).await;
    crowded.release(&["s", "t"]);
    for turn in crowded.running {
        assert_eq!(turn.await.expect("it should end").status.as_u16(), 200);
    }
    assert_eq!(received(&crowded.stage), 2);
}

#[tokio::test]
async fn at_the_end_of_the_drain_who_waits_for_room_is_told() {
    let crowded = Crowded::with("drain = 1").await;
    assert_eq!(crowded.stage.router.terminate().await.code(), Some(0));
    let (stage, told) = crowded.end(503).await;
    let text = told.text();
    assert!(text.contains("the router is stopping") && told.header("retry-after").is_some(), "{text}");
    assert_eq!(received(&stage), 2);
}

#[tokio::test]
async fn within_the_drain_a_turn_still_gets_the_room_it_waits_for() {
    let crowded = Crowded::with("drain = 3600").await;
    crowded.stage.router.send_term();
    crowded.stage.router.wait_log(|line| line["message"].to_string().contains("no new connections")).await;
    crowded.release(&["u", "s", "t"]);
    let (stage, _) = crowded.end(200).await;
    assert_eq!(stage.router.wait_exit().await.code(), Some(0));
}
