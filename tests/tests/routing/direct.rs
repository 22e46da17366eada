//! Work past the router that takes a session's slot, or gets stuck in one.
use serde_json::{Value, json};
use session_slot_tests::client::{self, chat};
use session_slot_tests::{FakeLlama, Options, Router};

use crate::foreign::foreign_in;
use crate::{action_of, slot_of, started};

fn says(line: &Value, word: &str) -> bool {
    line["message"].as_str().is_some_and(|text| text.starts_with(word))
}

#[tokio::test]
async fn a_sessions_slot_taken_by_direct_traffic_is_logged_and_counted_and_shown_as_cold() {
    let (fake, router) = started(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "a", "first").await);
    let index = usize::try_from(home).expect("a slot");
    router.wait_status("warm slot", |status| status["server"]["slots"][index]["warm"] == true).await;
    let foreign = foreign_in(&fake, &router, home).await;
    let line = router.wait_log(|line| says(line, "overwritten")).await;
    assert_eq!((&line["slot"], &line["agent_session_id"]), (&json!(home), &json!("a")));
    fake.release("foreign");
    foreign.await.expect("it should end");
    let answer = chat(&router.url(), "a", "second").await;
    assert_eq!((slot_of(&answer), action_of(&answer)), (home, "home"));
    assert_eq!(router.status().await["server"]["totals"]["overwritten"], json!(1));
}

#[tokio::test]
async fn foreign_work_that_makes_no_progress_is_shown_as_stuck_until_it_goes_on() {
    let fake = FakeLlama::start(Options::default().slots(2));
    let foreign = fake.foreign("HOLD:foreign", Some(1));
    fake.wait_processing(1).await;
    let router = {
        let toml = format!("upstream = {{ url = \"{}\", stuck = 1 }}\n", fake.url());
        Router::builder(&fake).no_upstream_flag().config(&toml).start().await
    };
    let stuck = |status: &Value| status["server"]["slots"][1]["stuck"] == true;
    let status = router.wait_status("stuck slot", stuck).await;
    assert_eq!(status["server"]["slots"][0]["stuck"], false);
    assert_eq!(router.wait_log(|line| says(line, "stuck")).await["slot"], 1);
    // Nobody has sent anything through the router, so it looks by itself.
    fake.release("foreign");
    foreign.await.expect("it should end");
    router.wait_status("slot that is free again", |status| !stuck(status)).await;
    assert_eq!(router.log().iter().filter(|line| says(line, "stuck")).count(), 1);
    let answer = client::post_json(format!("{}/completion", router.url()), r#"{"prompt":"text"}"#).await;
    assert_eq!(answer.status, 200);
}
