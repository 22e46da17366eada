//! A queue with limits: who finds it full, who waits too long, and what they are told.
use std::time::Duration;

use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing, chat_request};
use session_slot_tests::{Answer, FakeLlama, Options, Router};
use tokio::task::JoinHandle;

use crate::{held_turn, last_words};

/// A router with these limits in front of a server of one slot, which is at work until the gate `first` opens.
async fn limited(queue: &str) -> (FakeLlama, Router, JoinHandle<Answer>) {
    let fake = FakeLlama::start(Options::default().slots(1));
    let router = Router::builder(&fake).config(&format!("[queue]\n{queue}\n")).start().await;
    let first = client::send_later(held_turn(&router, "x", "first"));
    fake.wait_processing(1).await;
    (fake, router, first)
}

/// The seconds after which the answer says to come back.
fn retry_after(answer: &Answer) -> u64 {
    let seconds = answer.header("retry-after").expect("it should say when to come back");
    seconds.parse().expect("it should be a number of seconds")
}

async fn totals(router: &Router) -> Value {
    router.status().await["server"]["totals"].clone()
}

#[tokio::test]
async fn one_more_than_may_wait_is_told_to_come_back_in_the_dialect_of_its_route() {
    let (fake, router, first) = limited("max_waiting = 1").await;
    let second = client::send_later(chat_request(&router.url(), "a", "second"));
    router.wait_waiting(1).await;
    let openai = client::send(chat_request(&router.url(), "b", "refused")).await;
    let error = &openai.json()["error"];
    assert_eq!(
        (openai.status.as_u16(), &error["type"], &error["code"]),
        (503, &json!("server_error"), &json!(503))
    );
    let messages =
        json!({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "refused"}]});
    let anthropic = client::post_json(format!("{}/v1/messages", router.url()), messages.to_string()).await;
    let body = anthropic.json();
    let told = (anthropic.status.as_u16(), &body["type"], &body["error"]["type"]);
    assert_eq!(told, (529, &json!("error"), &json!("overloaded_error")));
    for answer in [openai, anthropic] {
        assert!((1..=300).contains(&retry_after(&answer)), "{}", retry_after(&answer));
        assert!(answer.text().contains("queue.max_waiting"), "{}", answer.text());
    }
    fake.release("first");
    for turn in [first, second] {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
    assert_eq!(last_words(&fake), ["x", "second"]);
    assert_eq!(totals(&router).await["refused_full"], 2);
    let statuses: Vec<_> = router.wait_requests(4).await.iter().map(|line| line["status"].clone()).collect();
    assert_eq!(statuses[..2], [503, 529]);
}

#[tokio::test]
async fn a_session_with_too_many_requests_is_told_so_and_holds_up_nobody_else() {
    let (fake, router, first) = limited("max_per_session = 2\novertake = 0").await;
    let mut waiting = Vec::new();
    for count in 1..=2 {
        waiting.push(client::send_later(chat_request(&router.url(), "a", "runaway")));
        router.wait_waiting(count).await;
    }
    let refused = client::send(chat_request(&router.url(), "a", "refused")).await;
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("queue.max_per_session"), "{}", refused.text());
    waiting.push(client::send_later(chat_request(&router.url(), "b", "other")));
    router.wait_waiting(3).await;
    fake.release("first");
    for turn in waiting {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
    assert_eq!(first.await.expect("it should end").status, 200);
    assert_eq!(last_words(&fake), ["x", "runaway", "other", "runaway"]);
}

#[tokio::test]
async fn whoever_has_waited_too_long_is_told_to_come_back_and_is_never_sent() {
    let (fake, router, first) = limited("max_wait = 1").await;
    let refused = client::send(chat_request(&router.url(), "a", "late")).await;
    assert_eq!(refused.status, 503);
    assert!(retry_after(&refused) >= 1);
    assert!(refused.text().contains("within 1 s"), "{}", refused.text());
    let status = router.status().await;
    assert_eq!(
        (&status["server"]["waiting"], &status["server"]["totals"]["timed_out"]),
        (&json!(0), &json!(1))
    );
    fake.release("first");
    assert_eq!(first.await.expect("it should end").status, 200);
    router.wait_quiet().await;
    assert_eq!(last_words(&fake), ["x"]);
    let line = router.request_log().into_iter().find(|line| line["agent_session_id"] == "a");
    let line = line.expect("it should be in the log");
    assert_eq!((&line["status"], &line["action"]), (&json!(503), &json!("wait")));
    assert!(line["waited_ms"].as_u64() >= Some(1000), "{line}");
}

#[tokio::test]
async fn the_time_to_come_back_follows_from_how_long_requests_take_and_how_many_wait() {
    let (fake, router, first) = limited("max_waiting = 3").await;
    // The length of the request, not a wait for anything.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    fake.release("first");
    first.await.expect("it should end");
    let held = client::send_later(held_turn(&router, "x", "second"));
    fake.wait_processing(1).await;
    let mut waiting = Vec::new();
    for (count, id) in (1..).zip(["a", "b", "c"]) {
        waiting.push(client::send_later(chat_request(&router.url(), id, id)));
        router.wait_waiting(count).await;
    }
    // Three and itself, 1.5 s each, or a little more on a busy machine.
    let seconds = retry_after(&client::send(chat_request(&router.url(), "d", "d")).await);
    assert!((6..=30).contains(&seconds), "{seconds}");
    fake.release("second");
    held.await.expect("it should end");
    for turn in waiting {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn how_the_waits_ended_is_counted() {
    let (fake, router, first) = limited("").await;
    let abandoned = client::send_later(Outgoing::post(format!("{}/completion", router.url()), "{}"));
    router.wait_waiting(1).await;
    abandoned.abort();
    router.wait_waiting(0).await;
    let second = client::send_later(chat_request(&router.url(), "a", "second"));
    let waits = |status: &Value| status["server"]["oldest_wait_ms"].as_u64() > Some(10);
    router.wait_status("wait of more than 10 ms", waits).await;
    fake.release("first");
    for turn in [first, second] {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
    let totals = totals(&router).await;
    assert_eq!(totals["abandoned"], 1);
    let after = totals["granted_after_ms"].as_object().expect("a histogram").clone();
    let sum: u64 = after.values().filter_map(Value::as_u64).sum();
    let at_once = after["0"].as_u64().expect("a count");
    let later: u64 = ["100", "1000", "10000", "60000"].iter().filter_map(|key| after[*key].as_u64()).sum();
    assert_eq!((sum, at_once, later), (2, 1, 1), "{after:?}");
}
