//! Signs of life, before the server's answer begins.
use session_slot_tests::client;
use session_slot_tests::{FakeLlama, Options, Router};

use crate::{CHAT, one_slot, opened, quick, streamed, taken, turn};

#[tokio::test]
async fn a_stream_that_waits_for_its_slot_shows_that_it_is_alive_and_then_goes_on_as_usual() {
    let fake = one_slot();
    let router = quick(&fake).start().await;
    for path in [CHAT, "/v1/messages", "/v1/completions"] {
        let first = taken(&fake, &router, path).await;
        let members = format!("{},\"prompt\":\"d e f\"", streamed("d e f"));
        let mut second = opened(turn(&router, path, "second", &members)).await;
        assert_eq!(second.status, 200);
        assert_eq!(second.headers["content-type"], "text/event-stream");
        assert_eq!(second.headers["x-slot-router-action"], "wait");
        second.read_until(": waiting\n\n").await;
        second.read_until(": waiting\n\n").await;
        fake.release(path);
        let rest = second.finish().await.expect("a whole answer").text();
        let begun = rest.trim_start_matches(": waiting\n\n");
        assert!(begun.starts_with("data: ") || begun.starts_with("event: "), "{rest}");
        assert!(!begun.contains("waiting"), "no sign in the middle of the stream: {rest}");
        assert!(begun.contains("[DONE]") || begun.contains("message_stop"), "{rest}");
        first.await.expect("answered");
        fake.assert_clean();
    }
    assert!(router.status().await["server"]["totals"]["keepalives"].as_u64() >= Some(6));
}

#[tokio::test]
async fn a_response_that_waits_sends_events_since_comments_do_not_count_for_codex() {
    let fake = one_slot();
    let router = quick(&fake).start().await;
    taken(&fake, &router, "first").await;
    let mut second =
        opened(turn(&router, "/v1/responses", "second", r#""stream":true,"input":"d e f""#)).await;
    let event = second.read_until("\n\n").await;
    let data = event.strip_prefix("event: response.in_progress\ndata: ").unwrap_or_else(|| panic!("{event}"));
    let data: serde_json::Value =
        serde_json::from_str(data.lines().next().unwrap_or_default()).expect("JSON");
    assert_eq!(
        (&data["type"], &data["response"]["status"]),
        (&"response.in_progress".into(), &"in_progress".into())
    );
    fake.release("first");
    let rest = second.finish().await.expect("a whole answer").text();
    assert!(rest.contains("event: response.completed"), "{rest}");
}

#[tokio::test]
async fn a_server_that_is_silent_over_a_long_prompt_is_bridged_too() {
    let fake = one_slot();
    let router = quick(&fake).start().await;
    let mut stream = opened(turn(&router, CHAT, "s", &streamed("HOLD:long a b c"))).await;
    stream.read_until(": waiting\n\n").await;
    fake.release("long");
    let rest = stream.finish().await.expect("a whole answer").text();
    assert!(rest.contains("[DONE]"), "{rest}");
    let line = router.wait_requests(1).await.remove(0);
    assert_eq!(
        (&line["status"], &line["action"], &line["prompt_computed"]),
        (&200.into(), &"new".into(), &4.into())
    );
}

#[tokio::test]
async fn what_is_no_stream_waits_silently() {
    let fake = one_slot();
    let router = quick(&fake).start().await;
    taken(&fake, &router, "first").await;
    let second = client::send_later(client::chat_request(&router.url(), "second", "d e f"));
    let mut stream = opened(turn(&router, CHAT, "third", &streamed("g h i"))).await;
    // Signs were due for both by now.
    stream.read_until(": waiting\n\n").await;
    fake.release("first");
    let answer = second.await.expect("answered");
    assert!(answer.text().starts_with('{') && answer.header("content-length").is_some(), "{}", answer.text());
    stream.finish().await.expect("a whole answer");
}

#[tokio::test]
async fn with_keepalive_json_white_space_comes_before_the_json() {
    let fake = one_slot();
    let router =
        Router::builder(&fake).config("[keepalive]\nafter = 0.05\nevery = 0.05\njson = true\n").start().await;
    taken(&fake, &router, "first").await;
    let request = client::chat_request(&router.url(), "second", "d e f");
    let mut second = client::open(request).await;
    assert_eq!(second.headers["content-type"], "application/json");
    second.read_until("  ").await;
    fake.release("first");
    let answer = second.finish().await.expect("a whole answer");
    assert!(answer.json()["choices"][0]["message"].is_object(), "{}", answer.text());
}

#[tokio::test]
async fn a_web_page_may_read_an_answer_that_began_early_as_it_may_the_servers_own() {
    let fake = one_slot();
    let router = quick(&fake).start().await;
    taken(&fake, &router, "first").await;
    let request = turn(&router, CHAT, "second", &streamed("d e f")).header("origin", "http://page.example");
    let second = opened(request).await;
    assert_eq!(second.headers["access-control-allow-origin"], "http://page.example");
    fake.release("first");
    second.finish().await.expect("a whole answer");
}

#[tokio::test]
async fn signs_of_life_can_be_turned_off() {
    let fake = one_slot();
    let router = Router::builder(&fake).config("[keepalive]\nafter = 0\n").start().await;
    taken(&fake, &router, "first").await;
    let second = client::send_later(turn(&router, CHAT, "second", &streamed("d e f")));
    router.wait_waiting(1).await;
    fake.release("first");
    let answer = second.await.expect("answered");
    assert_eq!(answer.header("x-slot-router-action"), Some("evict"));
    assert!(!answer.text().contains("waiting"), "{}", answer.text());
}

#[tokio::test]
async fn a_client_that_leaves_while_it_is_shown_life_leaves_the_queue_at_once() {
    let fake = one_slot();
    let router = quick(&fake).start().await;
    taken(&fake, &router, "first").await;
    let mut second = opened(turn(&router, CHAT, "second", &streamed("d e f"))).await;
    second.read_until(": waiting\n\n").await;
    drop(second);
    router.wait_status("nobody waits", |status| status["server"]["waiting"] == 0).await;
    let line = router.wait_requests(1).await.remove(0);
    assert_eq!((&line["status"], &line["action"]), (&499.into(), &"wait".into()));
    fake.release("first");
    router.wait_requests(2).await;
    assert_eq!(fake.launches().len(), 1, "the request of the client that left went nowhere");
}

#[tokio::test]
async fn what_the_server_answers_instead_of_a_stream_is_told_within_it() {
    let fake = FakeLlama::start(Options { n_ctx: 8, ..Options::default().slots(1) });
    let router = quick(&fake).start().await;
    let long = client::words("long", 20);
    for (path, members, wanted) in [
        (CHAT, streamed(&long), "data: {\"error\":{\"code\":400"),
        ("/v1/messages", streamed(&long), "event: error\ndata: {\"error\":{\"message\""),
        ("/v1/responses", format!("\"stream\":true,\"input\":\"{long}\""), "context_length_exceeded"),
    ] {
        taken(&fake, &router, path).await;
        let mut second = opened(turn(&router, path, "second", &members)).await;
        second.read_until("\n\n").await;
        fake.release(path);
        let rest = second.finish().await.expect("a clean end").text();
        assert!(rest.contains(wanted) && rest.contains("exceeds the available context"), "{path}: {rest}");
    }
}

#[tokio::test]
async fn a_router_that_stops_tells_those_it_has_kept_waiting() {
    let fake = one_slot();
    let router = quick(&fake).flag("--drain", "0").start().await;
    taken(&fake, &router, "first").await;
    let mut second = opened(turn(&router, CHAT, "second", &streamed("d e f"))).await;
    second.read_until(": waiting\n\n").await;
    router.send_term();
    let rest = second.finish().await.expect("a clean end").text();
    assert!(rest.contains("service unavailable: the router is stopping"), "{rest}");
}
