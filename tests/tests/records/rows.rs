//! The database: the event log and the sessions.
use serde_json::{Value, json};
use session_slot_tests::client::{self, chat, chat_body, chat_request, words};
use session_slot_tests::{Options, Router, Session};

use crate::{completion, introduced, refused, started, text};

/// An event's row, as the log line that tells the same.
fn as_line(row: &Value) -> Value {
    let action = match row["evicted"].as_str() {
        Some(session) => json!(format!("evict {session}")),
        None => row["action"].clone(),
    };
    json!({
        "method": row["method"], "route": row["route"], "agent_name": row["agent_name"],
        "agent_session_id": row["session"], "client_type": row["client_type"], "id_slot": row["asked_slot"],
        "slots": row["slots_seen"], "slot": row["slot"], "action": action, "waited_ms": row["waited_ms"],
        "status": row["status"], "prompt_computed": row["computed"], "prompt_cached": row["cached"],
        "error": row["error"],
    })
}

#[tokio::test]
async fn the_event_log_holds_the_same_facts_as_the_log() {
    let (fake, router) = started(Options { n_ctx: 30, ..Options::default().slots(1) }).await;
    client::send(introduced(&router, "a", "words of a")).await;
    let running = client::send_later(introduced(&router, "b", "HOLD:hold words of b"));
    fake.wait_processing(1).await;
    let waiting = client::send_later(chat_request(&router.url(), "a", "more"));
    router.wait_waiting(1).await;
    fake.release("hold");
    running.await.expect("it should end");
    waiting.await.expect("it should end");
    client::send(completion(&router, r#"{"prompt":"anonymous","id_slot":0}"#)).await;
    chat(&router.url(), "long", &words("long", 40)).await;
    for (body, _, _) in refused() {
        client::send(completion(&router, &body)).await;
    }
    client::get(format!("{}/v1/models?a=b", router.url())).await;
    router.terminate().await;
    let (lines, rows) = (router.request_log(), router.database().events());
    assert_eq!((lines.len(), rows.len()), (6 + refused().len(), lines.len()));
    for (line, row) in lines.iter().zip(&rows) {
        let wanted = as_line(row);
        for (member, value) in wanted.as_object().expect("it is one") {
            assert_eq!(line.get(member).unwrap_or(&Value::Null), value, "{member} of {line}");
        }
    }
}

#[tokio::test]
async fn an_event_is_dated() {
    let (_fake, router) = started(Options::default()).await;
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let before = now().expect("it is after 1970").as_millis();
    chat(&router.url(), "s", "words").await;
    router.terminate().await;
    let at = router.database().events()[0]["at"].as_i64().expect("a time");
    assert!((before..=now().expect("it is after 1970").as_millis()).contains(&(at as u128)), "{at}");
}

#[tokio::test]
async fn a_sessions_row_adds_up_its_turns() {
    let (fake, router) = started(Options::default()).await;
    let mut session = Session::new(&router.url(), "s");
    for text in ["first words of it", "second", "third one"] {
        session.say(text).await;
    }
    chat(&router.url(), "other", "words").await;
    router.terminate().await;
    let row = router.database().session("s");
    let launches = &fake.launches()[..3];
    let sum =
        |count: fn(&session_slot_tests::fake::Launch) -> usize| launches.iter().map(count).sum::<usize>();
    assert_eq!(row["requests"], 3);
    assert_eq!(row["prompt_computed"], sum(|launch| launch.prompt_n));
    assert_eq!(row["prompt_cached"], sum(|launch| launch.cache_n));
    assert_eq!((&row["slot"], &row["agent_name"]), (&json!(0), &json!(null)));
    assert!(text(&row["fingerprint"]).contains("b0-fake"), "{row}");
    assert!(row["first_used"].as_i64() <= row["last_used"].as_i64());
    let held = fake.look(|state| (state.slots()[0].id_task(), state.slots()[0].held_tokens()));
    assert_eq!((row["id_task"].as_i64(), &row["n_tokens"]), (held.0.map(|task| task.0), &json!(held.1)));
}

#[tokio::test]
async fn an_old_client_has_no_client_type() {
    let (_fake, router) = started(Options::default()).await;
    chat(&router.url(), "old", "words").await;
    client::send(introduced(&router, "new", "words")).await;
    router.terminate().await;
    let database = router.database();
    assert_eq!(
        (&database.session("old")["client_type"], &database.session("old")["agent_name"]),
        (&json!(null), &json!(null))
    );
    assert_eq!(
        (&database.session("new")["client_type"], &database.session("new")["agent_name"]),
        (&json!("tui"), &json!("pi"))
    );
    assert_eq!(database.events()[0]["client_type"], json!(null));
}

#[tokio::test]
async fn what_a_session_says_of_itself_is_kept_when_it_says_it_no_more() {
    let (_fake, router) = started(Options::default()).await;
    client::send(introduced(&router, "s", "words")).await;
    chat(&router.url(), "s", "words").await;
    let mut body = chat_body(Some("s"), "words");
    body["client_type"] = json!("rpc");
    client::post_json(format!("{}/v1/chat/completions", router.url()), body.to_string()).await;
    router.terminate().await;
    let row = router.database().session("s");
    assert_eq!(
        (&row["agent_name"], &row["client_type"], &row["requests"]),
        (&json!("pi"), &json!("rpc"), &json!(3))
    );
}

#[tokio::test]
async fn anonymous_requests_and_rejections_begin_no_session() {
    let (_fake, router) = started(Options::default()).await;
    client::send(completion(&router, r#"{"prompt":"a","agent_session_id":""}"#)).await;
    for (body, _, _) in refused() {
        client::send(completion(&router, &body)).await;
    }
    router.terminate().await;
    assert_eq!(router.database().rows("SELECT * FROM sessions"), [json!(null); 0]);
}

#[tokio::test]
async fn ids_with_control_characters_are_stored_as_they_are() {
    let (_fake, router) = started(Options::default()).await;
    let id = "a\r\nb\u{1b}'; DROP TABLE sessions; --";
    chat(&router.url(), id, "words").await;
    router.terminate().await;
    assert_eq!(router.database().session(id)["slot"], 0);
    assert_eq!(router.database().events()[0]["session"], id);
}

#[tokio::test]
async fn the_runs_of_a_cron_job_are_one_row() {
    let (_fake, router) = started(Options::default()).await;
    for time in ["080000", "120000", "200000"] {
        chat(&router.url(), &format!("cron_0123456789ab_20260131_{time}"), "words").await;
    }
    router.terminate().await;
    assert_eq!(router.database().session("cron:0123456789ab")["requests"], 3);
    assert_eq!(router.database().rows("SELECT * FROM sessions").len(), 1);
}

fn mode_of(path: &std::path::Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).expect("the file should be there").permissions().mode() & 0o777
}

#[tokio::test]
async fn the_database_is_readable_by_its_owner_alone() {
    let (_fake, router) = started(Options::default()).await;
    chat(&router.url(), "s", "words").await;
    router.database().wait_session("s", |_| true).await;
    for name in ["router.sqlite", "router.sqlite-wal", "router.sqlite-shm"] {
        assert_eq!(mode_of(&Router::state_dir(&router).join(name)), 0o600, "{name}");
    }
}
