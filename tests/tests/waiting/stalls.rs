//! Streams that have begun and fall silent.
use session_slot_tests::{FakeLlama, Options, Router};

use crate::{CHAT, opened, streamed, turn};

#[tokio::test]
async fn a_stream_that_falls_silent_is_told_once_and_goes_on() {
    let fake = FakeLlama::start(Options::default());
    let toml = format!("upstream = {{ url = \"{}\", stall = 0.05 }}\n", fake.url());
    let router = Router::builder(&fake).no_upstream_flag().config(&toml).start().await;
    let mut stream = opened(turn(&router, CHAT, "s", &streamed("HOLDEND:later a b"))).await;
    stream.read_until("out0").await;
    let line = router.wait_log(|line| line["message"] == "llama-server has fallen silent").await;
    assert_eq!((&line["session"], &line["ends"]), (&"s".into(), &false.into()), "{line}");
    assert!(line["slot"].as_str().is_some_and(|slot| slot.contains("leased: true")), "{line}");
    fake.release("later");
    let rest = stream.finish().await.expect("a whole answer").text();
    assert!(rest.contains("[DONE]"), "{rest}");
    let told = router.log().iter().filter(|line| line["message"] == "llama-server has fallen silent").count();
    assert_eq!((told, &router.status().await["server"]["totals"]["stalled"]), (1, &1.into()));
}

#[tokio::test]
async fn a_stream_that_falls_silent_is_ended_with_an_error_if_so_configured() {
    let fake = FakeLlama::start(Options::default());
    let toml = format!("upstream = {{ url = \"{}\", stall = 0.05, end_stalled = true }}\n", fake.url());
    let router = Router::builder(&fake).no_upstream_flag().config(&toml).start().await;
    let mut stream = opened(turn(&router, CHAT, "s", &streamed("HOLDEND:never a b"))).await;
    stream.read_until("out0").await;
    let rest = stream.finish().await.expect("ended by the router").text();
    assert!(rest.contains("service unavailable: llama-server has sent nothing"), "{rest}");
    let line = router.wait_requests(1).await.remove(0);
    assert_eq!(line["error"], "llama-server has fallen silent");
    router.wait_quiet().await;
}

#[tokio::test]
async fn the_time_before_the_first_byte_is_no_stall() {
    let fake = FakeLlama::start(Options::default());
    let toml = format!(
        "upstream = {{ url = \"{}\", stall = 0.05, end_stalled = true }}\n[keepalive]\nafter = 0.1\nevery = 0.1\n",
        fake.url()
    );
    let router = Router::builder(&fake).no_upstream_flag().config(&toml).start().await;
    let mut stream = opened(turn(&router, CHAT, "s", &streamed("HOLD:long a b"))).await;
    stream.read_until(": waiting\n\n").await;
    stream.read_until(": waiting\n\n").await;
    fake.release("long");
    let rest = stream.finish().await.expect("a whole answer").text();
    assert!(rest.contains("[DONE]"), "{rest}");
}
