//! Three servers at once, one full again and again, one broken, one slow: whoever uses them notices nothing.
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use session_slot_tests::client::{self, chat_body, words};
use session_slot_tests::fake::Breakage;
use session_slot_tests::{FakeLlama, Options, Router};

use crate::server_of;
use crate::stage::Stage;

const SESSIONS: [&str; 6] = ["s", "t", "u", "v", "w", "x"];
/// No more than two of [`turn`]'s fit at a time; none of them moves, as there are more slots than sessions of a server.
const SMALL: &str = "models = [\"m\"]\nkv = \"shared\"\nbudget_tokens = 1000\n";
const ROUNDS: usize = 3;

fn sum(status: &Value, names: &[&str]) -> u64 {
    let servers = status["servers"].as_array().into_iter().flatten();
    servers.flat_map(|server| names.iter().filter_map(|name| server[*name].as_u64())).sum()
}

/// A streamed turn that says nothing before `round` is released; which server has answered it, to its end.
async fn turn(base: String, session: &str, round: usize) -> String {
    let text = format!("{} HOLD:{round}", words(session, 320 + 20 * round));
    let mut body = chat_body(Some(session), &text);
    body["stream"] = true.into();
    let stream = client::stream_json(format!("{base}/v1/chat/completions"), body.to_string()).await;
    let answer = stream.finish().await.expect("a stream should come to its end");
    let whole = answer.text().contains("data: [DONE]") && !answer.text().contains("\"error\"");
    assert!(answer.status == 200 && whole, "{session} in round {round}: {} {}", answer.status, answer.text());
    server_of(&answer).to_owned()
}

/// Looks at the budgets again and again.
async fn heed_budgets(router: &Router) {
    loop {
        let status = router.status().await;
        for server in status["servers"].as_array().into_iter().flatten() {
            let (used, total) = (server["budget_used"].as_u64(), server["budget_total"].as_u64());
            assert!(used.is_some() && used <= total, "{server:#}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// All sessions at once, while the first server runs full with some of them in it.
async fn round(stage: &Stage, round: usize) -> Vec<String> {
    let base = stage.router.url();
    let turns = SESSIONS.map(|session| tokio::spawn(turn(base.clone(), session, round)));
    let all_are_there = |status: &Value| sum(status, &["in_flight", "waiting"]) == SESSIONS.len() as u64;
    stage.router.wait_status("all in flight or waiting", all_are_there).await;
    let full = stage.fake("a");
    full.wait_until("a turn to fail", |state| state.processing() > 0).await;
    let before = full.launches().len();
    full.overflows();
    full.wait_until("another try", |state| state.launches().len() > before).await;
    stage.fakes.iter().for_each(|fake| fake.release(&round.to_string()));
    join_all(turns).await.into_iter().map(|turn| turn.expect("no turn should fail")).collect()
}

#[tokio::test]
async fn with_one_server_full_one_broken_and_one_slow_no_turn_fails_and_who_can_stays_at_home() {
    let slow = Options { sse_interval: Duration::from_millis(20), ..Options::default() };
    let fakes = [Options::default(), Options::default(), slow].map(FakeLlama::start);
    let stage = Stage::before(fakes.into(), "", Some(SMALL)).await;
    stage.fakes.iter().for_each(|fake| fake.release("0"));
    let mut homes = Vec::new();
    for session in SESSIONS {
        homes.push(turn(stage.router.url(), session, 0).await);
    }
    assert_eq!(["a", "b", "c"].map(|name| homes.iter().filter(|home| **home == name).count()), [2; 3]);
    stage.fake("b").breaks(Breakage::ResetBeforeHead);
    let rounds = async {
        for number in 1..=ROUNDS {
            for (home, server) in homes.iter_mut().zip(round(&stage, number).await) {
                assert!(server == *home || home == "b", "round {number}: {home} to {server}");
                *home = server;
            }
        }
    };
    tokio::select! {
        () = heed_budgets(&stage.router) => unreachable!("it goes on for ever"),
        () = rounds => {}
    }
    let quiet = |status: &Value| sum(status, &["in_flight", "waiting", "budget_used"]) == 0;
    let status = stage.router.wait_status("nothing left", quiet).await;
    assert_eq!(sum(&status, &["moves"]), 2, "{status:#}");
    assert!(sum(&status, &["overflows"]) >= ROUNDS as u64 && sum(&status, &["waits"]) > 0, "{status:#}");
}
