//! The fake against the measured facts: if it did not hurt like the real one, the router's tests
//! would prove nothing.
mod accounting;
mod answers;
mod choosing;
mod full;
mod leaving;
mod memory;
mod own;
mod saving;
mod shown;

use serde_json::{Value, json};
use session_slot_tests::FakeLlama;
use session_slot_tests::client::{self, Answer};

/// `count` words no other name has.
fn words(name: &str, count: usize) -> String {
    (0..count).map(|index| format!("{name}{index}")).collect::<Vec<_>>().join(" ")
}

async fn complete(fake: &FakeLlama, prompt: &str, id_slot: Value) -> Answer {
    let body = json!({"prompt": prompt, "id_slot": id_slot, "n_predict": 4});
    client::post_json(format!("{}/completion", fake.url()), body.to_string()).await
}

async fn slot_of(fake: &FakeLlama, prompt: &str, id_slot: Value) -> u64 {
    let answer = complete(fake, prompt, id_slot).await.json();
    answer["id_slot"].as_u64().expect("the answer should name its slot")
}

async fn slots(fake: &FakeLlama) -> Value {
    client::get(format!("{}/slots", fake.url())).await.json()
}

async fn streamed(fake: &FakeLlama, path: &str, mut body: Value) -> String {
    body["stream"] = json!(true);
    let url = format!("{}{path}", fake.url());
    let stream = client::stream_json(url, body.to_string()).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    stream.finish().await.expect("the stream should end in order").text()
}
