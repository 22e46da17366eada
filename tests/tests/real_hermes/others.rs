//! Requests that go elsewhere, and other plugins. The fake stands where the router would be, to see what Hermes sends.
use serde_json::{Value, json};
use session_slot_tests::FakeLlama;

use crate::chats::roomy;
use crate::hermes::{Hermes, Provider};

/// What the fake is sent when Hermes is told something.
async fn sent(fake: &FakeLlama, hermes: &Hermes) -> (String, Value) {
    let before = fake.received().len();
    let session = hermes.chat("Hello.", None).await;
    let received = fake.received().split_off(before);
    assert_eq!(received.len(), 1, "one question, one request");
    (session, received[0].json())
}

/// The three members, in their order here.
fn members(body: &Value) -> [&Value; 3] {
    ["agent_name", "agent_session_id", "client_type"].map(|name| &body[name])
}

async fn chatting_with(fake: &FakeLlama, router: &str) -> Hermes {
    let url = fake.url();
    Hermes::with_plugin(router, &Provider::at(&url)).await
}

pub(crate) async fn only_requests_to_the_router_are_changed_and_other_plugins_edits_stay() {
    let fake = FakeLlama::start(roomy());
    let mut hermes = chatting_with(&fake, "http://127.0.0.1:1").await;
    let (_, body) = sent(&fake, &hermes).await;
    assert_eq!(members(&body), [&Value::Null; 3]);
    hermes.router_is_at(&fake.url());
    // Plugins are loaded in the order of their names: one before ours, then one after it.
    for (name, edit) in [
        ("early", "{**request, 'extra_body': {**(request.get('extra_body') or {}), 'from_early': 1}}"),
        ("zlate", "{**request, 'extra_body': {**(request.get('extra_body') or {}), 'from_zlate': 1}}"),
    ] {
        hermes.add_plugin(name, edit);
        let (session, body) = sent(&fake, &hermes).await;
        assert_eq!(members(&body), [&json!("hermes"), &json!(session), &json!("cli")], "with {name}");
        assert_eq!(body[format!("from_{name}")], 1);
        hermes.remove_plugin(name);
    }
}

pub(crate) async fn after_an_uninstall_nothing_is_added_and_the_config_is_what_it_was() {
    let fake = FakeLlama::start(roomy());
    let url = fake.url();
    let hermes = Hermes::without_plugin(&url, &Provider::at(&url)).await;
    let config = hermes.config();
    hermes.install(&["work"]).await;
    assert_ne!(hermes.config(), config);
    hermes.uninstall().await;
    assert_eq!(hermes.config(), config);
    let (_, body) = sent(&fake, &hermes).await;
    assert_eq!(members(&body), [&Value::Null; 3]);
}
