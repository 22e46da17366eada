//! A server that is down, loading, or talks nonsense.
use session_slot_tests::client;
use session_slot_tests::{FakeLlama, Options, RawUpstream, Router};

use super::{anthropic_error, openai_error, refused_in_log};

#[tokio::test]
async fn a_server_that_is_down_is_a_502_that_says_what_to_do() {
    let fake = FakeLlama::start(Options::default());
    fake.stop().await;
    let router = Router::start(&fake).await;
    let message = openai_error(&client::chat(&router.url(), "a", "hello").await, 502, "server_error");
    assert!(message.contains(&fake.url()) && message.contains("--upstream"), "{message}");
    let url = |path: &str| format!("{}{path}", router.url());
    openai_error(&client::get(url("/v1/models")).await, 502, "server_error");
    openai_error(&client::post_json(url("/completion"), "{}").await, 502, "server_error");
    let answer = client::post_json(url("/v1/messages"), r#"{"agent_session_id":"a"}"#).await;
    anthropic_error(&answer, 502, "api_error");
    assert_eq!(client::get(url("/router/health")).await.status, 200);
    assert_eq!(router.status().await["server"]["reach"], "unreachable");
    refused_in_log(&router, 4, 502).await;
}

#[tokio::test]
async fn a_router_that_started_without_its_server_serves_when_it_appears() {
    let fake = FakeLlama::start(Options::default());
    fake.stop().await;
    let router = Router::start(&fake).await;
    assert_eq!(client::chat(&router.url(), "a", "hello").await.status, 502);
    fake.start_again().await;
    let answer = client::chat(&router.url(), "a", "hello").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-slot-router-slot"), Some("0"));
}

#[tokio::test]
async fn a_server_that_goes_away_and_comes_back_is_found_again() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for _ in 0..3 {
        assert_eq!(client::chat(&router.url(), "a", "hello").await.status, 200);
        fake.stop().await;
        assert_eq!(client::chat(&router.url(), "a", "hello").await.status, 502);
        fake.start_again().await;
    }
    assert_eq!(client::chat(&router.url(), "a", "hello").await.status, 200);
}

#[tokio::test]
async fn a_server_that_loads_answers_for_itself() {
    let fake = FakeLlama::start(Options::default());
    fake.loading(true);
    let router = Router::start(&fake).await;
    let body = client::chat_body(None, "hello").to_string();
    for answer in [
        client::chat(&router.url(), "a", "hello").await,
        client::post_json(format!("{}/v1/chat/completions", router.url()), body).await,
        client::get(format!("{}/v1/models", router.url())).await,
    ] {
        assert_eq!(answer.status, 503);
        assert_eq!(answer.json()["error"]["message"], "Loading model");
        assert_eq!(answer.json()["error"]["type"], "unavailable_error");
    }
    fake.loading(false);
    assert_eq!(client::chat(&router.url(), "a", "hello").await.status, 200);
}

#[tokio::test]
async fn a_server_that_hangs_up_is_a_502_and_is_asked_only_once() {
    let upstream = RawUpstream::start("").await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    let message = openai_error(&client::chat(&router.url(), "a", "hello").await, 502, "server_error");
    assert!(message.contains("without an answer"), "{message}");
    assert_eq!(upstream.seen().len(), 1);
    refused_in_log(&router, 1, 502).await;
}

#[tokio::test]
async fn a_server_that_does_not_speak_http_is_a_502() {
    let upstream = RawUpstream::start("SSH-2.0-OpenSSH_9.6\r\n\r\n").await;
    let router = Router::in_front_of(&upstream.url()).start().await;
    openai_error(&client::chat(&router.url(), "a", "hello").await, 502, "server_error");
    openai_error(&client::get(format!("{}/x", router.url())).await, 502, "server_error");
    refused_in_log(&router, 2, 502).await;
}

#[tokio::test]
async fn an_upstream_whose_name_is_unknown_is_a_502() {
    let router = Router::in_front_of("http://no-such-host.invalid:8080").start().await;
    let message = openai_error(&client::chat(&router.url(), "a", "hello").await, 502, "server_error");
    assert!(message.contains("no-such-host.invalid"), "{message}");
}
