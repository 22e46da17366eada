//! A server whose memory runs full though its budget said that there was room.
use serde_json::json;
use session_slot_tests::client::{self, Outgoing, words};
use session_slot_tests::{FakeLlama, Options, RealLlama, Router};

use crate::{is_up, server, server_of};

fn chat(router: &Router, session: &str, text: &str, output: usize, stream: bool) -> Outgoing {
    let body = json!({
        "model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": output, "ignore_eos": true,
        "stream": stream, "agent_session_id": session,
    });
    Outgoing::post(format!("{}/v1/chat/completions", router.url()), body.to_string())
}

#[tokio::test]
#[ignore = "needs a real llama-server: scripts/test.sh sets it up"]
async fn a_turn_that_finds_the_memory_full_is_sent_again_unseen_and_one_that_has_begun_is_told() {
    // What runs and what comes fit one by one, and not together; the budget is wrong about it.
    let real = RealLlama::start(&["--ctx-size", "256"]).await;
    let other = FakeLlama::start(Options::default());
    let config = format!(
        "[[server]]\nname = \"real\"\nurl = \"{}\"\nmodels = [\"m\"]\nbudget_tokens = 8192\n\
         [[server]]\nname = \"other\"\nurl = \"{}\"\nmodels = [\"another\"]\n",
        real.url(),
        other.url()
    );
    let router = Router::in_front_of("").no_upstream_flag().config(&config).start().await;
    router.wait_status("both servers", |status| is_up(status, "real") && is_up(status, "other")).await;
    let mut running = client::open(chat(&router, "s", &words("a", 30), 500, true)).await;
    running.read_until("\"content\":\"").await;
    let answer = client::send(chat(&router, "t", &words("b", 65), 5, false)).await;
    assert_eq!((answer.status.as_u16(), server_of(&answer)), (200, "real"), "{}", answer.text());
    let told = running.finish().await.expect("its stream should end in order").text();
    assert!(told.contains("memory is full") && !told.contains("ontext size"), "{told}");
    assert!(!told.contains("[DONE]"), "{told}");
    let status =
        router.wait_status("nothing in flight", |status| server(status, "real")["in_flight"] == 0).await;
    let shown = server(&status, "real");
    assert!(shown["overflows"].as_u64() >= Some(1) && shown["failures"] == 0, "{shown:#}");
}
