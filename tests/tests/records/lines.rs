//! The log: one line a request.
use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing, chat, chat_request};
use session_slot_tests::{FakeLlama, Options, Router};

use crate::{completion, introduced, refused, started, text};

#[tokio::test]
async fn a_line_tells_everything_there_is_to_know_of_a_request_and_no_more() {
    let (_fake, router) = started(Options::default()).await;
    client::send(introduced(&router, "s", "three short words")).await;
    let mut line = router.wait_requests(1).await.remove(0);
    let members = line.as_object_mut().expect("a line should be an object");
    let time = members.remove("timestamp").unwrap_or_default();
    let time = text(&time);
    assert!(time.len() == "2026-01-31T12:00:00.000+00:00".len() && &time[10..11] == "T", "{time}");
    assert!(matches!(&time[23..24], "+" | "-") && &time[26..27] == ":", "{time}");
    assert!(members.remove("took_ms").is_some_and(|took| took.is_u64()));
    assert_eq!(
        line,
        json!({
            "level": "INFO", "message": "request", "method": "POST", "route": "/v1/chat/completions",
            "agent_name": "pi", "agent_session_id": "s", "client_type": "tui",
            "source": "body:agent_session_id", "id_slot": "3",
            "slots": "0:idle 1:idle 2:idle 3:idle", "slot": 0, "action": "new", "waited_ms": 0, "status": 200,
            "prompt_computed": 3, "prompt_cached": 0,
        })
    );
}

#[tokio::test]
async fn a_line_of_text_tells_the_same() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).log_format("text").start().await;
    client::send(introduced(&router, "s", "three short words")).await;
    router.terminate().await;
    let lines: Vec<_> = router.log_lines().into_iter().filter(|line| line.contains(" request ")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        r#"method="POST""#,
        r#"route="/v1/chat/completions""#,
        r#"agent_name="pi""#,
        r#"agent_session_id="s""#,
        r#"client_type="tui""#,
        r#"id_slot="3""#,
        r#"slots="0:idle 1:idle 2:idle 3:idle""#,
        "slot=0",
        r#"action="new""#,
        "waited_ms=0",
        "status=200",
        "prompt_computed=3",
        "prompt_cached=0",
    ] {
        assert!(lines[0].contains(part), "no {part} in {}", lines[0]);
    }
    assert!(lines[0].starts_with("20") && lines[0].contains("INFO"), "{}", lines[0]);
}

#[tokio::test]
async fn every_action_has_its_word() {
    let (fake, router) = started(Options::default().slots(1)).await;
    chat(&router.url(), "a", "one").await;
    chat(&router.url(), "a", "two").await;
    chat(&router.url(), "b", "three").await;
    client::send(completion(&router, r#"{"prompt":"four"}"#)).await;
    client::get(format!("{}/v1/models", router.url())).await;
    let running = client::send_later(chat_request(&router.url(), "b", "HOLD:hold five"));
    fake.wait_received(5).await;
    let leaving = client::send_later(chat_request(&router.url(), "c", "six"));
    router.wait_waiting(1).await;
    leaving.abort();
    router.wait_waiting(0).await;
    fake.release("hold");
    running.await.expect("it should end");
    router.terminate().await;
    let told: Vec<_> = router
        .request_log()
        .iter()
        .map(|line| (text(&line["action"]).to_owned(), line["status"].clone()))
        .collect();
    let wanted = [
        ("new", 200),
        ("home", 200),
        ("evict a", 200),
        ("anonymous", 200),
        ("pass", 200),
        ("wait", 499),
        ("home", 200),
    ];
    assert_eq!(told, wanted.map(|(action, status)| (action.to_owned(), json!(status))));
}

#[tokio::test]
async fn the_slots_seen_and_the_time_waited_are_told() {
    let (fake, router) = started(Options::default().slots(2)).await;
    let running = client::send_later(chat_request(&router.url(), "a", "HOLD:hold words"));
    fake.wait_processing(1).await;
    chat(&router.url(), "b", "words").await;
    let waiting = client::send_later(chat_request(&router.url(), "a", "words"));
    let waited = |status: &Value| status["server"]["oldest_wait_ms"].as_u64() >= Some(30);
    router.wait_status("wait", waited).await;
    fake.release("hold");
    running.await.expect("it should end");
    waiting.await.expect("it should end");
    let lines = router.wait_requests(3).await;
    assert_eq!(lines[0]["slots"], "0:busy 1:idle");
    assert_eq!(lines[2]["slots"], "0:idle 1:idle");
    assert!(lines[2]["waited_ms"].as_u64() >= Some(30), "{}", lines[2]);
    assert!(lines[2]["took_ms"].as_u64() >= lines[2]["waited_ms"].as_u64(), "{}", lines[2]);
}

#[tokio::test]
async fn a_request_that_fails_has_its_line() {
    let (_fake, router) = started(Options { n_ctx: 8, ..Options::default() }).await;
    assert_eq!(chat(&router.url(), "s", &client::words("long", 20)).await.status, 400);
    client::send(completion(&router, "{")).await;
    client::get(format!("{}/nowhere", router.url())).await;
    let lines = router.wait_requests(3).await;
    let told = |line: &Value| (text(&line["action"]).to_owned(), line["status"].as_u64());
    assert_eq!(told(&lines[0]), ("new".to_owned(), Some(400)));
    assert_eq!(told(&lines[1]), ("anonymous".to_owned(), Some(400)));
    assert_eq!(told(&lines[2]), ("pass".to_owned(), Some(404)));
    assert!(lines.iter().all(|line| line.get("prompt_computed").is_none()), "{lines:?}");
}

#[tokio::test]
async fn a_rejection_has_its_line_with_the_reason_the_client_got() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).flag("--max-body", "1000").start().await;
    let too_large = json!({"prompt": "x".repeat(2000), "agent_session_id": "s"}).to_string();
    let mut cases = refused();
    cases.push((too_large, 413, "more than 1000 bytes"));
    for (count, (body, status, reason)) in (1..).zip(&cases) {
        let answer = client::send(completion(&router, body)).await;
        assert_eq!(answer.status, *status, "{body}");
        let error = &answer.json()["error"];
        assert_eq!((&error["code"], &error["type"]), (&json!(status), &json!("invalid_request_error")));
        assert!(text(&error["message"]).contains(reason), "{error}");
        let line = router.wait_requests(count).await.remove(count - 1);
        assert_eq!((&line["status"], &line["error"]), (&json!(status), &error["message"]), "{body}");
    }
    router.terminate().await;
    assert_eq!(router.request_log().len(), cases.len());
    assert!(fake.received().is_empty());
}

#[tokio::test]
async fn a_rejection_on_an_anthropic_route_has_anthropics_shape() {
    let (_fake, router) = started(Options::default()).await;
    for (body, status, reason) in refused() {
        let answer = client::post_json(format!("{}/v1/messages", router.url()), body.clone()).await;
        assert_eq!(answer.status, status, "{body}");
        let answer = answer.json();
        assert_eq!(
            (&answer["type"], &answer["error"]["type"]),
            (&json!("error"), &json!("invalid_request_error"))
        );
        assert!(text(&answer["error"]["message"]).contains(reason), "{answer}");
    }
}

/// What a terminal or a reader of lines would take for something else.
const NASTY: &str = "a\r\nb\u{1b}[31m\u{0}\u{7f}\u{85}\u{2028}\u{202e}\t\"c\\";

async fn nasty_requests(router: &Router) {
    let mut body = client::chat_body(Some(NASTY), "words");
    body["agent_name"] = json!(NASTY);
    body["client_type"] = json!(NASTY);
    body["id_slot"] = json!("\u{202e}\r\n");
    client::post_json(format!("{}/v1/chat/completions", router.url()), body.to_string()).await;
    // The second one's line names the first as the one evicted.
    chat(&router.url(), "next", "words").await;
    client::send(Outgoing::get(format!("{}/%0d%0a%1b[31m", router.url()))).await;
}

#[tokio::test]
async fn control_characters_are_escaped_in_json_lines() {
    let (_fake, router) = started(Options::default().slots(1)).await;
    nasty_requests(&router).await;
    router.terminate().await;
    let lines = router.request_log();
    assert_eq!(lines.len(), 3);
    for member in ["agent_session_id", "agent_name", "client_type", "id_slot"] {
        let told = text(&lines[0][member]);
        assert!(
            !told.is_empty() && told.chars().all(|letter| letter.is_ascii_graphic()),
            "{member}: {told:?}"
        );
    }
    assert!(text(&lines[1]["action"]).starts_with("evict a\\r\\nb"), "{}", lines[1]);
    assert_clean_text(&router);
}

#[tokio::test]
async fn control_characters_are_escaped_in_lines_of_text() {
    let fake = FakeLlama::start(Options::default().slots(1));
    let router = Router::builder(&fake).log_format("text").start().await;
    nasty_requests(&router).await;
    router.terminate().await;
    let requests = router.log_lines().into_iter().filter(|line| line.contains(" request "));
    assert_eq!(requests.count(), 3);
    assert!(router.log_lines().iter().all(|line| line.starts_with("20")), "{:?}", router.log_lines());
    assert_clean_text(&router);
}

fn assert_clean_text(router: &Router) {
    for line in router.log_lines() {
        let odd = line.chars().find(|letter| letter.is_control() || "\u{2028}\u{202e}".contains(*letter));
        assert_eq!(odd, None, "{line:?}");
    }
}

#[tokio::test]
async fn a_session_id_in_another_script_stays_readable() {
    let (_fake, router) = started(Options::default()).await;
    chat(&router.url(), "Sitzung Ünïcødé 日本語 🦙", "words").await;
    assert_eq!(router.wait_requests(1).await[0]["agent_session_id"], "Sitzung Ünïcødé 日本語 🦙");
}

#[tokio::test]
async fn there_is_exactly_one_line_for_each_request() {
    let (_fake, router) = started(Options::default()).await;
    let turns: Vec<_> = (0..40)
        .map(|n| client::send_later(chat_request(&router.url(), &format!("s{}", n % 7), &format!("t{n}"))))
        .collect();
    for turn in turns {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
    client::get(format!("{}/health", router.url())).await;
    router.terminate().await;
    assert_eq!(router.request_log().len(), 41);
    assert_eq!(router.database().events().len(), 41);
    assert_eq!(router.stderr_lines(), [""; 0]);
}

#[tokio::test]
async fn a_method_of_any_length_leaves_a_short_line() {
    let (_fake, router) = started(Options::default()).await;
    client::send(Outgoing::new(&"M".repeat(5000), format!("{}/v1/models", router.url()))).await;
    let line = router.wait_requests(1).await.remove(0);
    assert_eq!(text(&line["method"]), "M".repeat(32));
}
