//! A memory that is full: the real server says so in the bytes that the fake does.
use serde_json::{Value, json};
use session_slot_tests::RealLlama;
use session_slot_tests::client::{self, Outgoing};

const ERROR: &str = r#"{"code":500,"message":"Context size has been exceeded.","type":"server_error"}"#;

/// Words that no other name has: about three tokens each.
fn words(name: &str, count: usize) -> String {
    (0..count).map(|index| format!("{name}{index}")).collect::<Vec<_>>().join(" ")
}

fn post(server: &RealLlama, path: &str, body: &Value) -> Outgoing {
    Outgoing::post(format!("{}{path}", server.url()), body.to_string())
}

/// A chat that is at work until the memory is full; what it says from then on.
async fn ended_by(server: &RealLlama, last: Outgoing) -> (client::Answer, String) {
    let messages = json!([{"role": "user", "content": words("a", 30)}]);
    let body = json!({"messages": messages, "max_tokens": 500, "ignore_eos": true, "stream": true});
    let mut running = client::open(post(server, "/v1/chat/completions", &body)).await;
    running.read_until("\"content\":\"").await;
    let last = client::send(last).await;
    (last, running.finish().await.expect("its stream should end in order").text())
}

#[tokio::test]
#[ignore = "needs a real llama-server: scripts/test.sh sets it up"]
async fn a_full_memory_is_told_in_the_same_bytes_as_by_the_fake() {
    // What runs and what comes fit one by one, and not together.
    let server = RealLlama::start(&["--ctx-size", "256"]).await;
    let messages = json!([{"role": "user", "content": words("b", 65)}]);
    let streamed = json!({"messages": messages, "max_tokens": 5, "stream": true});
    let (last, running) = ended_by(&server, post(&server, "/v1/messages", &streamed)).await;
    assert_eq!((last.status.as_u16(), last.text()), (200, format!("event: error\ndata: {ERROR}\n\n")));
    assert!(running.ends_with(&format!("\n\ndata: {{\"error\":{ERROR}}}\n\n")), "{running}");
    let whole = json!({"input": words("b", 65), "max_output_tokens": 5});
    let (last, running) = ended_by(&server, post(&server, "/v1/responses", &whole)).await;
    assert_eq!((last.status.as_u16(), last.text()), (500, format!("{{\"error\":{ERROR}}}")));
    assert!(running.ends_with(&format!("\n\ndata: {{\"error\":{ERROR}}}\n\n")), "{running}");
    for slot in server.slots().await {
        assert_eq!(
            (&slot["is_processing"], slot["n_prompt_tokens"].as_u64().unwrap_or(0)),
            (&json!(false), 0)
        );
    }
}
