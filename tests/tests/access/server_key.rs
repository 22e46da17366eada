//! The key of a llama-server that has one.
use session_slot_tests::client;
use session_slot_tests::router::RouterBuilder;
use session_slot_tests::{FakeLlama, Options, Outgoing, Router};
use tempfile::TempDir;

const KEY: &str = "server-key";

fn guarded() -> FakeLlama {
    FakeLlama::start(Options { api_key: Some(KEY.to_owned()), ..Options::default() })
}

fn with_its_key(fake: &FakeLlama) -> (TempDir, RouterBuilder) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("key");
    std::fs::write(&path, KEY).expect("the folder is ours");
    (folder, Router::builder(fake).flag("--upstream-api-key-file", &path.to_string_lossy()))
}

#[tokio::test]
async fn it_is_added_to_the_routers_own_questions_and_to_requests() {
    let fake = guarded();
    let (_folder, router) = with_its_key(&fake);
    let router = router.start().await;
    let answer = client::chat(&router.url(), "a", "hello").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(client::get(format!("{}/props", router.url())).await.status, 200);
    let status = router.wait_status("server that is up", |status| status["server"]["reach"] == "up").await;
    assert_eq!(status["server"]["slots"].as_array().map(Vec::len), Some(4));
    let keyless = fake.look(|state| {
        state.received().iter().filter(|one| one.header("authorization") != Some("Bearer server-key")).count()
    });
    assert_eq!(keyless, 0);
}

#[tokio::test]
async fn it_does_not_replace_what_the_client_brings() {
    let fake = guarded();
    let (_folder, router) = with_its_key(&fake);
    let router = router.start().await;
    for (name, value) in [("authorization", "Bearer other"), ("x-api-key", "other")] {
        let request = client::chat_request(&router.url(), "a", "hello").header(name, value);
        assert_eq!(client::send(request).await.status, 401);
        let received = fake.received().pop().expect("it should have arrived");
        assert_eq!(received.header(name), Some(value));
        assert_eq!(received.headers.contains_key("authorization"), name == "authorization");
    }
}

#[tokio::test]
async fn it_takes_the_place_of_the_routers_own_key() {
    let fake = guarded();
    let (folder, router) = with_its_key(&fake);
    let own = folder.path().join("own");
    std::fs::write(&own, "own-key").expect("the folder is ours");
    let router = router.flag("--api-key-file", &own.to_string_lossy()).start().await;
    let request = client::chat_request(&router.url(), "a", "hello").header("x-api-key", "own-key");
    assert_eq!(client::send(request).await.status, 200);
    assert_eq!(fake.received()[0].header("authorization"), Some("Bearer server-key"));
    assert_eq!(fake.received()[0].header("x-api-key"), None);
}

#[tokio::test]
async fn without_it_the_servers_own_refusal_comes_back() {
    let fake = guarded();
    let router = Router::start(&fake).await;
    let answer = client::chat(&router.url(), "a", "hello").await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.json()["error"]["message"], "Invalid API Key");
}

#[tokio::test]
async fn without_it_a_client_with_the_key_is_served() {
    let fake = guarded();
    let router = Router::start(&fake).await;
    let request = Outgoing::post(
        format!("{}/v1/chat/completions", router.url()),
        client::chat_body(Some("a"), "hello").to_string(),
    );
    let answer = client::send(request.header("authorization", "Bearer server-key")).await;
    assert_eq!(answer.status, 200);
    let reach = router.status().await["server"]["reach"].clone();
    assert_eq!(reach, "no_slots");
}
