//! `[hygiene]`: Claude Code's billing line is replaced by a constant where the user wants it, and nothing else is.
use serde_json::{Value, json};
use session_slot_tests::client::{self, words};
use session_slot_tests::{FakeLlama, Options, Router};

const ON: &str = "[hygiene]\nclaude_code = true\n";
const CONSTANT: &str = "x-anthropic-billing-header: unchanged";

async fn started(config: &str) -> (FakeLlama, Router) {
    let fake = FakeLlama::start(Options::default().slots(1));
    let router = Router::builder(&fake).config(config).start().await;
    (fake, router)
}

/// A turn as Claude Code sends it; its billing line changes with `turn`.
fn claude(turn: usize) -> String {
    let line = format!("x-anthropic-billing-header: cc_version=2.1.332; cch={turn};");
    let system = words("system", 900);
    let metadata = r#"{"user_id":"{\"session_id\":\"s\"}"}"#;
    format!(
        r#"{{ "model":"m","max_tokens" : 8.0, "metadata":{metadata},"system":[{{"type":"text","text":"{line}"}}, {{"text":"{system}","type":"text"}}],"messages":[{{"role":"user","content":"n\u00e9"}}]}}"#
    )
}

async fn send(router: &Router, route: &str, body: String) {
    let answer = client::post_json(format!("{}{route}", router.url()), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// The body that came last, without what pins it to its slot.
fn arrived(fake: &FakeLlama) -> String {
    let received = fake.received().pop().expect("something should have arrived");
    let body = String::from_utf8(received.body.to_vec()).expect("the body should still be text");
    body.replace(r#","id_slot":0}"#, "}")
}

async fn replaced(router: &Router) -> Value {
    router.status().await["server"]["totals"]["billing_lines_replaced"].clone()
}

#[tokio::test]
async fn the_line_is_replaced_every_other_byte_stays_and_it_is_counted() {
    let (fake, router) = started(ON).await;
    for turn in 1..=2 {
        send(&router, "/v1/messages", claude(turn)).await;
        let line = format!("x-anthropic-billing-header: cc_version=2.1.332; cch={turn};");
        assert_eq!(arrived(&fake), claude(turn).replace(&line, CONSTANT));
        assert_eq!(replaced(&router).await, turn);
    }
}

#[tokio::test]
async fn a_turn_whose_billing_line_has_changed_finds_its_prompt_in_the_cache() {
    let reused = async |config: &str| {
        let (fake, router) = started(config).await;
        send(&router, "/v1/messages", claude(1)).await;
        send(&router, "/v1/messages", claude(2)).await;
        fake.launches().last().map_or(0, |launch| launch.cache_n)
    };
    let (with, without) = (reused(ON).await, reused("").await);
    assert!(with > 900 && without < 20, "{with} with, {without} without");
}

#[tokio::test]
async fn a_proxy_that_makes_a_chat_of_it_and_a_request_without_a_session_are_served_as_well() {
    let (fake, router) = started(ON).await;
    let body = |line: &str| {
        let system = json!({"role": "system", "content": format!("{line}\nYou are Claude Code.")});
        json!({"model": "m", "messages": [system, {"role": "user", "content": line}]}).to_string()
    };
    let line = "x-anthropic-billing-header: cch=1;";
    send(&router, "/v1/chat/completions", body(line)).await;
    let expected = body(line).replacen(&format!("{line}\\nYou"), &format!("{CONSTANT}\\nYou"), 1);
    assert_eq!(arrived(&fake), expected);
    assert_eq!(replaced(&router).await, 1);
}

#[tokio::test]
async fn unless_the_user_wants_it_nothing_is_changed() {
    let (fake, router) = started("").await;
    send(&router, "/v1/messages", claude(1)).await;
    assert_eq!(arrived(&fake), claude(1));
    assert_eq!(replaced(&router).await, 0);
}
