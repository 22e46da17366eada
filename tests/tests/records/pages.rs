//! The router's own headers and pages.
use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing, chat, chat_request};
use session_slot_tests::{FakeLlama, Options, Router};

use crate::{completion, started};

#[tokio::test]
async fn a_sessions_answer_tells_slot_action_and_wait() {
    let (_fake, router) = started(Options::default().slots(1)).await;
    for (id, action) in [("a", "new"), ("a", "home"), ("b", "evict")] {
        let answer = chat(&router.url(), id, "words").await;
        assert_eq!(answer.header("x-slot-router-slot"), Some("0"));
        assert_eq!(answer.header("x-slot-router-action"), Some(action));
        assert_eq!(answer.header("x-slot-router-waited-ms"), Some("0"));
    }
}

#[tokio::test]
async fn an_anonymous_answer_tells_no_slot() {
    let (_fake, router) = started(Options::default()).await;
    let answer = client::send(completion(&router, r#"{"prompt":"a"}"#)).await;
    assert_eq!(answer.header("x-slot-router-slot"), None);
    assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"));
    assert_eq!(answer.header("x-slot-router-waited-ms"), Some("0"));
}

#[tokio::test]
async fn an_error_of_the_server_is_passed_on_with_the_routers_headers() {
    let (fake, router) = started(Options { n_ctx: 8, ..Options::default() }).await;
    let text = client::words("long", 20);
    let answer = chat(&router.url(), "s", &text).await;
    assert_eq!(answer.text(), chat(&fake.url(), "s", &text).await.text());
    assert_eq!(answer.json()["error"]["type"], "exceed_context_size_error");
    assert_eq!(answer.header("x-slot-router-slot"), Some("0"));
}

#[tokio::test]
async fn health_is_the_routers_own_and_does_not_ask_the_server() {
    let (fake, router) = started(Options::default()).await;
    fake.stop().await;
    let answer = client::get(format!("{}/router/health", router.url())).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["status"]), (200, &json!("ok")));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let head = client::send(Outgoing::new("HEAD", format!("{}/router/health", router.url()))).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test]
async fn the_status_tells_of_server_slots_leases_waiters_sessions_and_totals() {
    let fake = FakeLlama::start(Options::default().slots(2));
    let foreign = fake.foreign("HOLD:foreign", Some(1));
    fake.wait_processing(1).await;
    let router = Router::start(&fake).await;
    router.wait_foreign(1).await;
    let running = client::send_later(chat_request(&router.url(), "a", "HOLD:hold words"));
    fake.wait_processing(2).await;
    let waiting = client::send_later(chat_request(&router.url(), "b", "words"));
    router.wait_waiting(1).await;
    let status = router.status().await;
    assert!(status["version"].is_string() && status["uptime_s"].is_u64());
    assert_eq!(status["store"], json!({"on_disk": true, "dropped": 0}));
    let server = &status["server"];
    assert_eq!((&server["url"], &server["reach"]), (&json!(fake.url()), &json!("up")));
    assert_eq!((&server["build"], &server["context_per_slot"]), (&json!("b0-fake"), &json!(8192)));
    assert_eq!(
        (&server["leases"], &server["waiting"], &server["sessions"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert!(server["oldest_wait_ms"].is_u64());
    assert_eq!(server["generation"], json!(1));
    let advice = server["advice"].as_array().expect("a list");
    assert!(advice.len() == 1 && advice[0].as_str().is_some_and(|text| text.contains("--slot-save-path")));
    assert_eq!(server["warm"]["standing"], json!("unsupported"));
    let slot = &server["slots"][0];
    assert_eq!((&slot["id"], &slot["session"], &slot["leased"]), (&json!(0), &json!("a"), &json!(true)));
    let slot = &server["slots"][1];
    assert_eq!(
        (&slot["session"], &slot["leased"], &slot["processing"]),
        (&json!(null), &json!(false), &json!(true))
    );
    let totals = &server["totals"];
    assert_eq!((&totals["requests"], &totals["new"], &totals["home"]), (&json!(2), &json!(1), &json!(0)));
    fake.release("foreign");
    fake.release("hold");
    foreign.await.expect("it should end");
    running.await.expect("it should end");
    waiting.await.expect("it should end");
}

#[tokio::test]
async fn the_totals_add_up() {
    let (fake, router) = started(Options::default().slots(2)).await;
    for id in ["a", "a", "b", "c", "a"] {
        chat(&router.url(), id, "some words").await;
    }
    client::send(completion(&router, r#"{"prompt":"a"}"#)).await;
    router.wait_quiet().await;
    let totals = router.status().await["server"]["totals"].clone();
    for (name, count) in
        [("requests", 6), ("home", 1), ("new", 2), ("evict", 2), ("anonymous", 1), ("free", 0)]
    {
        assert_eq!(totals[name], count, "{name} of {totals}");
    }
    let computed = fake.look(|state| state.prompt_tokens_total());
    let cached: usize = fake.launches().iter().map(|launch| launch.cache_n).sum();
    assert_eq!((&totals["prompt_computed"], &totals["prompt_cached"]), (&json!(computed), &json!(cached)));
    assert_eq!(totals["probes"].as_u64(), Some(fake.poll_count() as u64));
}

#[tokio::test]
async fn a_warm_slot_is_shown_as_warm_until_somebody_else_was_in_it() {
    let (fake, router) = started(Options::default()).await;
    chat(&router.url(), "a", "some words").await;
    let warm = |status: &Value| status["server"]["slots"][0]["warm"] == true;
    let status = router.wait_status("warm slot", warm).await;
    assert_eq!(status["server"]["slots"][0]["tokens"], 2 + 3);
    fake.foreign("something else", Some(0)).await.expect("it should end");
    chat(&router.url(), "b", "words").await;
    router.wait_status("cold slot", |status| status["server"]["slots"][0]["warm"] == false).await;
}

#[tokio::test]
async fn other_paths_below_router_are_the_servers() {
    let (fake, router) = started(Options::default()).await;
    for path in ["/router", "/router/", "/router/other", "/router/status/x", "/routers"] {
        let answer = client::get(format!("{}{path}", router.url())).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["error"]["message"]),
            (404, &json!("File Not Found"))
        );
    }
    assert_eq!(
        fake.look(|state| state.received().iter().filter(|one| one.target.starts_with("/router")).count()),
        5
    );
}

#[tokio::test]
async fn the_routers_own_pages_are_not_cached() {
    let (_fake, router) = started(Options::default()).await;
    for page in ["health", "status"] {
        let answer = client::get(format!("{}/router/{page}", router.url())).await;
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
}
