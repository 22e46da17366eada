//! Homes: who gets which slot, and who loses it.
use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing, chat, chat_body, chat_request, post_json, words};
use session_slot_tests::{Options, Router, Session};

use crate::{action_of, held_turn, slot_of, started};

#[tokio::test]
async fn sessions_in_turn_return_to_their_slot_and_read_only_what_is_new() {
    let (fake, router) = started(Options::default()).await;
    let mut sessions = ["a", "b", "c", "d"].map(|id| (Session::new(&router.url(), id), id, None));
    for turn in 0..3 {
        for (session, id, home) in &mut sessions {
            let answer = session.say(&words(&format!("{id}{turn}x"), 30)).await;
            let slot = *home.get_or_insert(slot_of(&answer));
            assert_eq!(slot_of(&answer), slot, "turn {turn} of {id}");
            assert_eq!(action_of(&answer), if turn == 0 { "new" } else { "home" });
            // All but the answer's last token, which the slot does not hold.
            assert_eq!(answer.cache_n(), Some(turn * 34).map(|held: u64| held.saturating_sub(1)));
        }
    }
    let mut homes: Vec<_> = sessions.iter().filter_map(|(_, _, home)| *home).collect();
    homes.sort_unstable();
    assert_eq!(homes, [0, 1, 2, 3]);
    assert_eq!(fake.launches().len(), 12);
}

#[tokio::test]
async fn the_slot_told_is_the_slot_used() {
    let (fake, router) = started(Options::default()).await;
    for id in ["a", "b", "a", "c", "b"] {
        let answer = chat(&router.url(), id, id).await;
        let launch = fake.launches().pop().expect("it should have run");
        assert_eq!(slot_of(&answer), launch.slot.0 as i64);
        assert_eq!(
            fake.received().last().map(|one| one.json()["id_slot"].clone()),
            Some(json!(slot_of(&answer)))
        );
    }
}

#[tokio::test]
async fn a_new_session_evicts_the_least_recently_used_one_when_all_slots_are_owned() {
    let (_fake, router) = started(Options::default()).await;
    let mut homes = std::collections::HashMap::new();
    for id in ["a", "b", "c", "d", "a"] {
        homes.insert(id, slot_of(&chat(&router.url(), id, id).await));
    }
    let answer = chat(&router.url(), "e", "e").await;
    assert_eq!((slot_of(&answer), action_of(&answer)), (homes["b"], "evict"));
    let back = chat(&router.url(), "b", "b").await;
    assert_eq!((slot_of(&back), action_of(&back)), (homes["c"], "evict"));
}

#[tokio::test]
async fn an_evicted_sessions_row_stays_without_a_slot() {
    let (_fake, router) = started(Options::default().slots(1)).await;
    chat(&router.url(), "a", "a").await;
    chat(&router.url(), "b", "b").await;
    router.terminate().await;
    let row = router.database().session("a");
    assert_eq!((&row["slot"], &row["requests"]), (&Value::Null, &json!(1)));
    assert_eq!(router.database().session("b")["slot"], 0);
}

#[tokio::test]
async fn a_session_whose_request_runs_is_not_evicted() {
    let (fake, router) = started(Options::default().slots(2)).await;
    let running = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_processing(1).await;
    let home_of_b = slot_of(&chat(&router.url(), "b", "b").await);
    let answer = chat(&router.url(), "c", "c").await;
    assert_eq!((slot_of(&answer), action_of(&answer)), (home_of_b, "evict"));
    fake.release("gate");
    let home_of_a = slot_of(&running.await.expect("it should end"));
    assert_ne!(home_of_a, home_of_b);
    assert_eq!(action_of(&chat(&router.url(), "a", "a").await), "home");
}

#[tokio::test]
async fn the_slot_a_client_names_is_overridden_for_a_session() {
    let (fake, router) = started(Options::default()).await;
    let url = format!("{}/v1/chat/completions", router.url());
    let mut homes = Vec::new();
    for asked in [json!(3), json!(2), json!(-1), json!("x"), json!(null), json!(1.5), json!(99)] {
        let mut body = chat_body(Some("s"), "text");
        body["id_slot"] = asked;
        homes.push(slot_of(&post_json(&url, body.to_string()).await));
    }
    assert!(homes.iter().all(|slot| *slot == homes[0]), "{homes:?}");
    assert!(fake.received().iter().all(|one| one.json()["id_slot"] == homes[0]));
    assert!(fake.launches().iter().all(|launch| launch.slot.0 as i64 == homes[0]));
}

/// Every route that takes a slot and honours `id_slot`, with the member its prompt is in.
const ROUTES: [(&str, &str); 8] = [
    ("/completion", "prompt"),
    ("/completions", "prompt"),
    ("/v1/completions", "prompt"),
    ("/chat/completions", "messages"),
    ("/v1/chat/completions", "messages"),
    ("/v1/messages", "messages"),
    ("/v1/responses", "input"),
    ("/responses", "input"),
];

async fn turn_on(router: &Router, route: &str, member: &str, session: &str) -> session_slot_tests::Answer {
    let text = words(session, 20);
    let prompt = if member == "messages" { json!([{"role": "user", "content": text}]) } else { json!(text) };
    let body = json!({"agent_session_id": session, member: prompt, "max_tokens": 4});
    post_json(format!("{}{route}", router.url()), body.to_string()).await
}

#[tokio::test]
async fn every_route_that_takes_a_slot_brings_sessions_home() {
    for (route, member) in ROUTES {
        let (fake, router) = started(Options::default()).await;
        turn_on(&router, route, member, "a").await;
        turn_on(&router, route, member, "b").await;
        let again = turn_on(&router, route, member, "a").await;
        assert_eq!(action_of(&again), "home", "{route}");
        let launches = fake.launches();
        assert_ne!(launches[0].slot, launches[1].slot, "{route}");
        assert_eq!(launches[0].slot, launches[2].slot, "{route}");
        assert_eq!(launches[2].prompt_n, 1, "{route}");
    }
}

#[tokio::test]
async fn a_session_keeps_its_slot_across_routes() {
    let (fake, router) = started(Options::default()).await;
    for (route, member) in ROUTES {
        turn_on(&router, route, member, "s").await;
    }
    let homes: Vec<_> = fake.launches().iter().map(|launch| launch.slot).collect();
    assert!(homes.iter().all(|slot| *slot == homes[0]), "{homes:?}");
}

#[tokio::test]
async fn agent_name_and_client_type_do_not_influence_the_choice() {
    let (_fake, router) = started(Options::default()).await;
    let url = format!("{}/v1/chat/completions", router.url());
    let turn = async |session: &str, name: Value, kind: Value| {
        let mut body = chat_body(Some(session), session);
        body["agent_name"] = name;
        body["client_type"] = kind;
        slot_of(&post_json(&url, body.to_string()).await)
    };
    let home = turn("s", json!("pi"), json!("tui")).await;
    assert_eq!(turn("s", json!("hermes"), json!("cronjob")).await, home);
    assert_eq!(turn("s", json!(null), json!({"odd": 1})).await, home);
    assert_ne!(turn("t", json!("pi"), json!("tui")).await, home);
}

#[tokio::test]
async fn all_runs_of_a_cron_job_share_one_session() {
    let (_fake, router) = started(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "cron_0123456789ab_20260131_080000", "a").await);
    let evening = chat(&router.url(), "cron_0123456789ab_20260131_200000", "a").await;
    assert_eq!((slot_of(&evening), action_of(&evening)), (home, "home"));
    let other_job = chat(&router.url(), "cron_0123456789ac_20260131_080000", "a").await;
    assert_eq!(action_of(&other_job), "new");
    let no_cron_id = chat(&router.url(), "cron_0123456789AB_20260131_080000", "a").await;
    assert_eq!(action_of(&no_cron_id), "new");
}

async fn action_for_id(router: &Router, id: &str) -> String {
    let body = format!(r#"{{"prompt":"text","agent_session_id":{id}}}"#);
    action_of(&post_json(format!("{}/completion", router.url()), body).await).to_owned()
}

#[tokio::test]
async fn a_number_as_session_id_is_the_text_it_is_spelled_as() {
    let (_fake, router) = started(Options::default().slots(8)).await;
    assert_eq!(action_for_id(&router, "42").await, "new");
    assert_eq!(action_for_id(&router, r#""42""#).await, "home");
    assert_eq!(action_for_id(&router, "42.0").await, "new");
    assert_eq!(action_for_id(&router, r#""42.0""#).await, "home");
    assert_eq!(action_for_id(&router, "123456789012345678901234567890").await, "new");
    assert_eq!(action_for_id(&router, r#""123456789012345678901234567890""#).await, "home");
}

#[tokio::test]
async fn an_id_is_what_it_means_not_how_it_is_escaped() {
    let (_fake, router) = started(Options::default()).await;
    assert_eq!(action_for_id(&router, r#""a\/b \u00e9""#).await, "new");
    assert_eq!(action_for_id(&router, r#""a/b é""#).await, "home");
    assert_eq!(action_for_id(&router, r#""A/b é""#).await, "new");
}

#[tokio::test]
async fn an_embedding_of_a_session_counts_as_on_its_way_until_it_has_landed_wherever_that_is() {
    // The server does not look at the slot an embedding names: this one lands in slot 1.
    let (fake, router) = started(Options::default().slots(2)).await;
    let body = json!({"input": "LATE:embedding HOLD:hold words", "agent_session_id": "embedder"});
    let url = format!("{}/v1/embeddings", router.url());
    let embedding = client::send_later(Outgoing::post(url, body.to_string()));
    fake.wait_received(1).await;
    let turn = client::send_later(chat_request(&router.url(), "a", "LATE:turn words"));
    let both_known = |status: &Value| {
        let server = &status["server"];
        server["leases"].as_u64().unwrap_or(0) + server["waiting"].as_u64().unwrap_or(0) == 2
    };
    router.wait_status("second request", both_known).await;
    fake.release("embedding");
    fake.wait_processing(1).await;
    fake.release("turn");
    fake.wait_received(2).await;
    fake.release("hold");
    assert_eq!(embedding.await.expect("it should end").status, 200);
    assert_eq!(turn.await.expect("it should end").status, 200);
    fake.assert_clean();
}
