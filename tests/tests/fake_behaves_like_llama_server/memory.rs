//! The RAM cache, idle slots, the unified pool.
use serde_json::json;
use session_slot_tests::client::{self};
use session_slot_tests::{FakeLlama, Options};

use crate::{complete, words};

/// How many prompt tokens a session computes on its return to slot 0, another session having
/// been in slot 1 meanwhile.
async fn computed_on_return(options: Options, primer: bool) -> u64 {
    let fake = FakeLlama::start(options);
    complete(&fake, &words("a", 100), json!(0)).await;
    complete(&fake, &words("b", 100), json!(1)).await;
    if primer {
        let primer = json!({"prompt": "x", "n_predict": 0, "id_slot": 0}).to_string();
        client::post_json(format!("{}/completion", fake.url()), primer).await;
    }
    let answer = complete(&fake, &words("a", 101), json!(0)).await;
    answer.prompt_n().expect("timings should be there")
}

#[tokio::test]
async fn on_default_settings_a_plain_pin_reads_everything_again() {
    assert_eq!(computed_on_return(Options::default_settings(), false).await, 101);
}

#[tokio::test]
async fn on_default_settings_a_pin_after_a_primer_reads_only_what_is_new() {
    assert_eq!(computed_on_return(Options::default_settings(), true).await, 1);
}

#[tokio::test]
async fn where_slots_keep_their_tokens_a_plain_pin_reads_only_what_is_new() {
    for options in [Options::default(), Options::unified_keeping_slots(), Options::without_ram_cache()] {
        assert_eq!(computed_on_return(options, false).await, 1);
    }
}

#[tokio::test]
async fn on_default_settings_not_naming_a_slot_finds_the_state_in_the_ram_cache() {
    let fake = FakeLlama::start(Options::default_settings());
    complete(&fake, &words("a", 100), json!(null)).await;
    complete(&fake, &words("b", 100), json!(null)).await;
    let answer = complete(&fake, &words("a", 101), json!(null)).await;
    assert_eq!(answer.prompt_n(), Some(1));
}

#[tokio::test]
async fn another_task_after_the_primer_clears_the_slot_again() {
    let fake = FakeLlama::start(Options::default_settings());
    complete(&fake, &words("a", 100), json!(0)).await;
    complete(&fake, "x", json!(0)).await;
    complete(&fake, &words("b", 100), json!(1)).await;
    assert_eq!(complete(&fake, &words("a", 101), json!(0)).await.prompt_n(), Some(101));
}

#[tokio::test]
async fn a_ram_cache_that_is_too_small_forgets_the_oldest_state() {
    let options = Options { ram_cache_tokens: 150, ..Options::default_settings() };
    let fake = FakeLlama::start(options);
    for name in ["a", "b", "c"] {
        complete(&fake, &words(name, 100), json!(null)).await;
    }
    assert_eq!(complete(&fake, &words("a", 101), json!(null)).await.prompt_n(), Some(101));
}

#[tokio::test]
async fn a_new_session_that_shares_a_quarter_takes_the_state_out_of_the_ram_cache() {
    let fake = FakeLlama::start(Options::default_settings());
    complete(&fake, &words("a", 100), json!(null)).await;
    complete(&fake, &words("b", 100), json!(null)).await;
    let thief = format!("{} {}", words("a", 30), words("c", 70));
    assert_eq!(complete(&fake, &thief, json!(null)).await.cache_n(), Some(30));
    complete(&fake, &words("b", 100), json!(null)).await;
    assert_eq!(complete(&fake, &words("a", 101), json!(null)).await.cache_n(), Some(30));
}

#[tokio::test]
async fn when_the_unified_pool_is_short_the_lowest_idle_slot_is_purged() {
    let pool = Some(250);
    let fake = FakeLlama::start(Options { unified_pool_tokens: pool, ..Options::unified_keeping_slots() });
    for (name, slot) in [("a", 1), ("b", 0), ("c", 2)] {
        complete(&fake, &words(name, 100), json!(slot)).await;
    }
    let held = fake.look(|state| state.slots().iter().map(|slot| slot.held_tokens()).collect::<Vec<_>>());
    assert_eq!(held, [0, 103, 103, 0]);
}

#[tokio::test]
async fn when_running_requests_fill_the_pool_all_of_them_fail() {
    let pool = Some(150);
    let fake = FakeLlama::start(Options { unified_pool_tokens: pool, ..Options::unified_keeping_slots() });
    let body = json!({"prompt": format!("HOLDEND:a {}", words("a", 99)), "stream": true});
    let mut stream = client::stream_json(format!("{}/completion", fake.url()), body.to_string()).await;
    stream.read_until("out0").await;
    let whole = complete(&fake, &words("b", 100), json!(null)).await;
    assert_eq!(whole.status, 500);
    assert_eq!(whole.json()["error"]["type"], "server_error");
    assert_eq!(stream.status, 200);
    let rest = stream.finish().await.expect("an error in a stream ends it in order").text();
    assert!(rest.starts_with(r#"data: {"error":{"code":500,"message":"Context size"#), "{rest}");
}
