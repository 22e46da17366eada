//! Errors to tell apart, and `/props`.
use serde_json::json;
use session_slot_tests::client::{self, Answer, Outgoing};
use session_slot_tests::{FakeLlama, Options};

use crate::{complete, words};

fn error_of(answer: &Answer) -> (u16, String) {
    let kind = answer.json()["error"]["type"].as_str().unwrap_or_default().to_owned();
    assert_eq!(answer.json()["error"]["code"], answer.status.as_u16());
    (answer.status.as_u16(), kind)
}

#[tokio::test]
async fn a_prompt_longer_than_the_context_is_the_clients_error() {
    let fake = FakeLlama::start(Options { n_ctx: 10, ..Options::default() });
    let answer = complete(&fake, &words("a", 11), json!(null)).await;
    assert_eq!(error_of(&answer), (400, "exceed_context_size_error".to_owned()));
    assert_eq!(answer.json()["error"]["n_prompt_tokens"], 11);
    assert_eq!(answer.json()["error"]["n_ctx"], 10);
}

#[tokio::test]
async fn bad_paths_bodies_and_actions_have_their_own_errors() {
    let fake = FakeLlama::start(Options { slots_endpoint: false, ..Options::default() });
    let missing = client::get(format!("{}/nothing", fake.url())).await;
    let shape = json!({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}});
    assert_eq!(missing.json(), shape);
    let broken = client::post_json(format!("{}/completion", fake.url()), "{").await;
    assert_eq!(error_of(&broken), (400, "invalid_request_error".to_owned()));
    let action = client::post_json(format!("{}/slots/0?action=erase", fake.url()), "{}").await;
    assert_eq!(error_of(&action), (501, "not_supported_error".to_owned()));
    let slots = client::get(format!("{}/slots", fake.url())).await;
    assert_eq!(error_of(&slots), (501, "not_supported_error".to_owned()));
}

#[tokio::test]
async fn a_compressed_body_is_refused_without_a_word() {
    let fake = FakeLlama::start(Options::default());
    let plain = Outgoing::post(format!("{}/completion", fake.url()), r#"{"prompt":"a","n_predict":1}"#);
    for coding in ["gzip", "deflate", "br", "zstd"] {
        let answer = client::send(plain.clone().header("content-encoding", coding)).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (415, ""), "{coding}");
        assert_eq!(answer.header("connection"), Some("close"), "{coding}");
    }
    assert_eq!(client::send(plain.header("content-encoding", "unheard-of")).await.status, 200);
    assert_eq!(fake.launches().len(), 1);
}

#[tokio::test]
async fn a_key_is_asked_for_except_by_health() {
    let fake = FakeLlama::start(Options { api_key: Some("k".to_owned()), ..Options::default() });
    for path in ["/slots", "/props", "/metrics"] {
        let url = format!("{}{path}", fake.url());
        assert_eq!(error_of(&client::get(&url).await), (401, "authentication_error".to_owned()));
        let bearer = Outgoing::get(&url).header("authorization", "Bearer k");
        assert_eq!(client::send(bearer).await.status, 200);
        assert_eq!(client::send(Outgoing::get(&url).header("x-api-key", "k")).await.status, 200);
    }
    assert_eq!(client::get(format!("{}/health", fake.url())).await.status, 200);
}

#[tokio::test]
async fn a_loading_server_answers_503_everywhere() {
    let fake = FakeLlama::start(Options::default());
    fake.loading(true);
    let health = client::get(format!("{}/health", fake.url())).await;
    assert_eq!(error_of(&health), (503, "unavailable_error".to_owned()));
    assert_eq!(error_of(&complete(&fake, "a", json!(0)).await).0, 503);
    fake.loading(false);
    assert_eq!(complete(&fake, "a", json!(0)).await.status, 200);
}

#[tokio::test]
async fn props_tell_the_slots_but_not_whether_the_kv_is_unified() {
    let fake = FakeLlama::start(Options::default_settings());
    let props = client::get(format!("{}/props", fake.url())).await;
    assert_eq!(props.json()["total_slots"], 4);
    assert_eq!(props.json()["default_generation_settings"]["n_ctx"], 8192);
    assert!(!props.text().contains("unified"));
}

#[tokio::test]
async fn what_is_served_is_told_in_props_models_and_adapters() {
    let mut options = Options::default();
    options.served.build = "b1-fake".to_owned();
    options.served.params = 7;
    options.served.adapters = vec!["/models/lora.gguf".to_owned()];
    let fake = FakeLlama::start(options);
    let get = async |path: &str| client::get(format!("{}{path}", fake.url())).await.json();
    let props = get("/props").await;
    assert_eq!((&props["build_info"], &props["model_alias"]), (&json!("b1-fake"), &json!("fake-model")));
    let meta = get("/v1/models").await["data"][0]["meta"].clone();
    assert_eq!((&meta["n_params"], &meta["size"]), (&json!(7), &json!(240_000_000)));
    let adapters = get("/lora-adapters").await;
    assert_eq!(adapters, json!([{"id": 0, "path": "/models/lora.gguf", "scale": 1.0}]));
}
