//! Bodies that are no JSON object, or a strange one: the server's to answer.
use session_slot_tests::client;
use session_slot_tests::fake::Received;
use session_slot_tests::{FakeLlama, Options, Outgoing, Router};

use super::PROMPT;

#[tokio::test]
async fn malformed_json_gets_the_servers_own_answer() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let bodies = [
        r#"{"agent_session_id":"a","#,
        r#"{"agent_session_id":"a"}}"#,
        "{agent_session_id:1}",
        "\u{0}",
        "[]",
    ];
    for body in bodies {
        let routed = client::post_json(format!("{}/v1/chat/completions", router.url()), body).await;
        let direct = client::post_json(format!("{}/v1/chat/completions", fake.url()), body).await;
        assert_eq!((routed.status, routed.body), (direct.status, direct.body), "{body}");
        assert_eq!(fake.received().iter().filter(|one| one.body == body).count(), 2, "{body}");
    }
    let lines = router.wait_requests(bodies.len()).await;
    assert!(lines.iter().all(|line| line["action"] == "anonymous" && line["status"] == 400), "{lines:?}");
}

#[tokio::test]
async fn a_compressed_body_is_anonymous_and_untouched() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    // What would be a session, were it not declared to be something else.
    let body = format!(r#"{{"prompt":"{PROMPT}","agent_session_id":"a","id_slot":3}}"#);
    for encoding in ["gzip", "GZIP", "zstd", "utf-8, br"] {
        let request = Outgoing::post(format!("{}/completion", router.url()), body.clone());
        let answer = client::send(request.header("content-encoding", encoding)).await;
        assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"), "{encoding}");
        let received = fake.received().pop().expect("it should have arrived");
        assert_eq!(received.body, body);
        assert_eq!(received.header("content-encoding"), Some(encoding));
    }
}

#[tokio::test]
async fn an_encoding_that_is_no_compression_hides_no_session() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for encoding in ["identity", "Identity", "utf-8", "foo"] {
        let request = client::chat_request(&router.url(), "a", "hello").header("content-encoding", encoding);
        assert_eq!(client::send(request).await.header("x-slot-router-slot"), Some("0"), "{encoding}");
    }
}

#[tokio::test]
async fn a_byte_order_mark_hides_no_session() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let body = "\u{feff}{\"agent_session_id\":\"a\",\"prompt\":\"hi\"}";
    let answer = client::post_json(format!("{}/completion", router.url()), body).await;
    assert_eq!(answer.header("x-slot-router-action"), Some("new"));
    assert_eq!(fake.received()[0].body, "\u{feff}{\"prompt\":\"hi\",\"id_slot\":0}");
}

#[tokio::test]
async fn a_hundred_thousand_nested_arrays_are_passed_on() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in [format!(r#"{{"agent_session_id":"a","x":{nested}}}"#), nested.clone(), "[".repeat(100_000)] {
        client::post_json(format!("{}/completion", router.url()), body).await;
        let received = fake.received().pop().expect("it should have arrived");
        assert!(received.body.windows(50_000).any(|window| window.iter().all(|byte| *byte == b'[')));
    }
    let session = fake.received()[0].body.clone();
    assert!(session.ends_with(b",\"id_slot\":0}") && session.starts_with(b"{\"x\":[["));
    assert_eq!(client::chat(&router.url(), "b", "hello").await.status, 200);
}

#[tokio::test]
async fn an_escaped_path_does_not_lead_past_the_slots() {
    // llama-server decodes the path before it looks for the route.
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let body = client::chat_body(Some("a"), "hello").to_string();
    let path = "/v1/chat/completion%73";
    client::send(Outgoing::post(format!("{}{path}", router.url()), body)).await;
    let arrived = |received: &&Received| received.target == path;
    let received = fake.look(|state| state.received().iter().find(arrived).cloned());
    let received = received.expect("it should have arrived");
    assert_eq!(received.json().get("agent_session_id"), None);
    assert_eq!(received.json()["id_slot"], 0);
}
