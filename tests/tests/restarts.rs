//! Restarts of either side: assignments stay, what can't be known any more is cold.
use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing, chat, chat_body, chat_request, words};
use session_slot_tests::{Answer, FakeLlama, Options, Router, Session};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder should be possible")
}

async fn started(options: Options) -> (FakeLlama, Router) {
    let fake = FakeLlama::start(options);
    let router = Router::start(&fake).await;
    (fake, router)
}

async fn started_in(fake: &FakeLlama, folder: &TempDir) -> Router {
    Router::builder(fake).state_dir(folder.path()).start().await
}

fn slot_of(answer: &Answer) -> i64 {
    let slot = answer.header("x-slot-router-slot").expect("the answer should name its slot");
    slot.parse().expect("a slot should be a number")
}

fn action_of(answer: &Answer) -> &str {
    answer.header("x-slot-router-action").expect("the answer should name its action")
}

fn sessions(router: &Router, ids: &[&str]) -> Vec<Session> {
    ids.iter().map(|id| Session::new(&router.url(), id)).collect()
}

/// One turn of each, in order.
async fn round(talks: &mut [Session], text: &str) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (n, talk) in talks.iter_mut().enumerate() {
        answers.push(talk.say(&words(&format!("{text}{n}x"), 30)).await);
    }
    answers
}

fn homes(answers: &[Answer]) -> Vec<i64> {
    answers.iter().map(slot_of).collect()
}

#[tokio::test]
async fn a_restart_of_the_router_keeps_assignments_and_warmth() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    let router = started_in(&fake, &folder).await;
    let mut talks = sessions(&router, &["a", "b", "c", "d"]);
    let before = homes(&round(&mut talks, "first").await);
    assert!(router.terminate().await.success());
    let router = started_in(&fake, &folder).await;
    talks.iter_mut().for_each(|talk| talk.move_to(&router.url()));
    let after = round(&mut talks, "second").await;
    assert_eq!(homes(&after), before);
    for answer in after {
        assert_eq!((action_of(&answer), answer.cache_n()), ("home", Some(33)));
    }
}

#[tokio::test]
async fn after_a_restart_of_the_router_on_default_settings_turns_find_what_they_left() {
    let (fake, folder) = (FakeLlama::start(Options::default_settings()), folder());
    let router = started_in(&fake, &folder).await;
    let mut talks = sessions(&router, &["a", "b", "c", "d"]);
    round(&mut talks, "first").await;
    round(&mut talks, "second").await;
    router.terminate().await;
    let router = started_in(&fake, &folder).await;
    talks.iter_mut().for_each(|talk| talk.move_to(&router.url()));
    for (n, answer) in round(&mut talks, "third").await.iter().enumerate() {
        assert_eq!((action_of(answer), answer.cache_n()), ("home", Some(67)), "session {n}");
    }
}

#[tokio::test]
async fn a_killed_router_has_its_assignments_back_at_the_next_start() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    let router = started_in(&fake, &folder).await;
    let mut talks = sessions(&router, &["a", "b"]);
    let before = homes(&round(&mut talks, "first").await);
    for id in ["a", "b"] {
        router.database().wait_session(id, |row| row["n_tokens"] == 33).await;
    }
    router.kill().await;
    let router = started_in(&fake, &folder).await;
    talks.reverse();
    talks.iter_mut().for_each(|talk| talk.move_to(&router.url()));
    let after = round(&mut talks, "second").await;
    assert_eq!(homes(&after), [before[1], before[0]]);
    assert!(after.iter().all(|answer| answer.cache_n() == Some(33)));
}

#[tokio::test]
async fn who_was_used_last_is_known_after_a_restart_of_the_router() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    let router = started_in(&fake, &folder).await;
    for id in ["a", "b", "c", "d", "a"] {
        chat(&router.url(), id, id).await;
    }
    router.terminate().await;
    let home_of_b = router.database().session("b")["slot"].clone();
    let router = started_in(&fake, &folder).await;
    let answer = chat(&router.url(), "e", "e").await;
    assert_eq!((json!(slot_of(&answer)), action_of(&answer)), (home_of_b, "evict"));
    let line = router.wait_requests(1).await.remove(0);
    assert_eq!(line["action"], "evict b");
}

#[tokio::test]
async fn a_state_folder_of_a_server_with_more_slots_is_mapped_anew() {
    let folder = folder();
    let fake = FakeLlama::start(Options::default());
    let router = started_in(&fake, &folder).await;
    for id in ["a", "b", "c", "d"] {
        chat(&router.url(), id, id).await;
    }
    router.terminate().await;
    fake.restart(Options::default().slots(2)).await;
    let router = started_in(&fake, &folder).await;
    for id in ["d", "c", "b", "a", "d"] {
        let answer = chat(&router.url(), id, id).await;
        assert!(answer.status == 200 && slot_of(&answer) < 2, "{id}");
    }
    router.terminate().await;
    let rows = router.database().rows("SELECT * FROM sessions WHERE slot IS NOT NULL");
    assert!(rows.len() <= 2 && rows.iter().all(|row| row["slot"].as_i64() < Some(2)), "{rows:?}");
}

#[tokio::test]
async fn after_a_restart_of_the_server_assignments_stay_and_everything_is_cold() {
    let (fake, router) = started(Options::default()).await;
    let mut talks = sessions(&router, &["a", "b", "c", "d"]);
    let before = homes(&round(&mut talks, "first").await);
    fake.restart(Options::default()).await;
    let after = round(&mut talks, "second").await;
    assert_eq!(homes(&after), before);
    assert!(after.iter().all(|answer| action_of(answer) == "home" && answer.cache_n() == Some(0)));
    let status = router.status().await;
    assert!(status["server"]["generation"].as_u64() >= Some(2), "{status:#}");
    assert!(round(&mut talks, "third").await.iter().all(|answer| answer.cache_n() >= Some(60)));
}

#[tokio::test]
async fn a_turn_that_runs_while_the_server_restarts_fails_and_the_next_one_is_served() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let running = client::send_later(chat_request(&router.url(), "a", "HOLD:never words"));
    fake.wait_processing(1).await;
    fake.restart(Options::default().slots(1)).await;
    let failed = running.await.expect("it should end");
    assert_eq!(failed.status, 502, "{}", failed.text());
    assert_eq!(failed.json()["error"]["type"], "server_error");
    for id in ["a", "b", "a"] {
        assert_eq!(chat(&router.url(), id, "text").await.status, 200);
    }
    router.wait_quiet().await;
}

#[tokio::test]
async fn a_stream_that_runs_while_the_server_restarts_ends_with_an_error_and_the_log_says_so() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let mut body = chat_body(Some("a"), "HOLDEND:never words");
    body["stream"] = json!(true);
    let url = format!("{}/v1/chat/completions", router.url());
    let mut stream = client::stream_json(&url, body.to_string()).await;
    stream.read_until("out0").await;
    fake.restart(Options::default().slots(1)).await;
    let rest = stream.finish().await.expect("ended by the router").text();
    assert!(rest.contains("broke off") && !rest.contains("[DONE]"), "{rest}");
    assert_eq!(chat(&router.url(), "b", "text").await.status, 200);
    let line = router.wait_log(|line| line["agent_session_id"] == "a").await;
    assert!(line["error"].as_str().is_some_and(|error| error.contains("broke off")), "{line}");
}

#[tokio::test]
async fn a_server_that_comes_back_with_fewer_slots_is_mapped_anew() {
    let (fake, router) = started(Options::default()).await;
    let ids = ["a", "b", "c", "d"];
    let mut talks = sessions(&router, &ids);
    let before = homes(&round(&mut talks, "first").await);
    fake.restart(Options::default().slots(2)).await;
    let stays = ids.iter().zip(&before).find(|(_, home)| **home < 2).map(|(id, _)| *id);
    let stays = stays.expect("somebody should be in slot 0 or 1");
    let back = chat(&router.url(), stays, "text").await;
    assert_eq!(action_of(&back), "home");
    for (id, home) in ids.iter().zip(&before).filter(|(_, home)| **home >= 2) {
        router.database().wait_session(id, |row| row["slot"].is_null()).await;
        let answer = chat(&router.url(), id, "text").await;
        assert!(slot_of(&answer) < 2, "{id} was in {home}");
    }
    assert_eq!(router.status().await["server"]["slots"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_server_that_comes_back_with_more_slots_offers_them_to_new_sessions() {
    let (fake, router) = started(Options::default().slots(2)).await;
    let mut talks = sessions(&router, &["a", "b"]);
    let before = homes(&round(&mut talks, "first").await);
    fake.restart(Options::default().slots(4)).await;
    assert_eq!(homes(&round(&mut talks, "second").await), before);
    for id in ["c", "d"] {
        let answer = chat(&router.url(), id, "text").await;
        assert_eq!(action_of(&answer), "new");
        assert!(slot_of(&answer) >= 2);
    }
}

#[tokio::test]
async fn while_the_server_is_down_requests_get_a_502_in_the_dialect_of_their_route() {
    let (fake, router) = started(Options::default()).await;
    chat(&router.url(), "a", "text").await;
    fake.stop().await;
    let answer = chat(&router.url(), "a", "text").await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let error = answer.json()["error"].clone();
    assert_eq!((&error["code"], &error["type"]), (&json!(502), &json!("server_error")));
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.contains(&fake.url()) && message.contains("can't be reached"), "{message}");
    assert!(message.ends_with("start it, or set --upstream to where it listens"), "{message}");
    let body = chat_body(Some("a"), "text").to_string();
    let anthropic = client::post_json(format!("{}/v1/messages", router.url()), body).await;
    assert_eq!(anthropic.status, 502);
    assert_eq!(
        (&anthropic.json()["type"], &anthropic.json()["error"]["type"]),
        (&json!("error"), &json!("api_error"))
    );
    let passed = client::get(format!("{}/v1/models", router.url())).await;
    assert_eq!(passed.status, 502);
    let lines = router.wait_requests(4).await;
    assert!(lines[1..].iter().all(|line| line["status"] == 502 && line["error"].is_string()), "{lines:?}");
}

#[tokio::test]
async fn when_the_server_is_back_sessions_return_to_their_slot() {
    let (fake, router) = started(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "a", "text").await);
    chat(&router.url(), "b", "text").await;
    fake.stop().await;
    for _ in 0..3 {
        assert_eq!(chat(&router.url(), "a", "text").await.status, 502);
    }
    fake.start_again().await;
    let answer = chat(&router.url(), "a", "text").await;
    assert_eq!((answer.status.as_u16(), slot_of(&answer), action_of(&answer)), (200, home, "home"));
}

#[tokio::test]
async fn requests_that_wait_when_the_server_goes_down_are_told_so() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let running = client::send_later(chat_request(&router.url(), "a", "HOLD:never words"));
    fake.wait_processing(1).await;
    let waiting: Vec<_> = ["b", "c"]
        .map(|id| client::send_later(chat_request(&router.url(), id, "text")))
        .into_iter()
        .collect();
    router.wait_waiting(2).await;
    fake.stop().await;
    assert_eq!(running.await.expect("it should end").status, 502);
    for one in waiting {
        assert_eq!(one.await.expect("it should end").status, 502);
    }
    router.wait_quiet().await;
    fake.start_again().await;
    assert_eq!(chat(&router.url(), "b", "text").await.status, 200);
}

#[tokio::test]
async fn the_router_starts_while_the_server_is_down_and_says_so_once() {
    let fake = FakeLlama::start(Options::default());
    fake.stop().await;
    let router = Router::start(&fake).await;
    for _ in 0..3 {
        assert_eq!(chat(&router.url(), "a", "text").await.status, 502);
    }
    assert_eq!(client::get(format!("{}/router/health", router.url())).await.status, 200);
    assert_eq!(router.status().await["server"]["reach"], "unreachable");
    fake.start_again().await;
    assert_eq!(chat(&router.url(), "a", "text").await.status, 200);
    router.wait_status("server", |status| status["server"]["reach"] == "up").await;
    router.terminate().await;
    let warnings = router.log().into_iter().filter(|line| line["level"] == "WARN");
    assert_eq!(warnings.count(), 1);
}

#[tokio::test]
async fn while_the_server_loads_its_model_its_own_503_is_passed_on() {
    let (fake, router) = started(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "a", "text").await);
    chat(&router.url(), "b", "text").await;
    fake.loading(true);
    let direct = chat(&fake.url(), "a", "text").await;
    for id in ["a", "c"] {
        let answer = chat(&router.url(), id, "text").await;
        assert_eq!((answer.status.as_u16(), answer.text()), (503, direct.text()));
    }
    let anonymous = Outgoing::post(format!("{}/completion", router.url()), r#"{"prompt":"a"}"#);
    assert_eq!(client::send(anonymous).await.text(), direct.text());
    assert_eq!(client::get(format!("{}/health", router.url())).await.status, 503);
    assert_eq!(router.status().await["server"]["reach"], "loading");
    fake.loading(false);
    let answer = chat(&router.url(), "a", "text").await;
    assert_eq!((answer.status.as_u16(), slot_of(&answer), action_of(&answer)), (200, home, "home"));
}

#[tokio::test]
async fn a_turn_that_comes_while_the_server_loads_costs_its_session_no_assignment() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    let router = started_in(&fake, &folder).await;
    chat(&router.url(), "a", "text").await;
    let home = slot_of(&chat(&router.url(), "b", "text").await);
    fake.loading(true);
    assert_eq!(chat(&router.url(), "b", "text").await.status, 503);
    router.terminate().await;
    assert_eq!(router.database().session("b")["slot"], home);
    fake.loading(false);
    let router = started_in(&fake, &folder).await;
    let answer = chat(&router.url(), "b", "text").await;
    assert_eq!((slot_of(&answer), action_of(&answer)), (home, "home"));
}

#[tokio::test]
async fn a_router_started_while_the_server_loads_works_once_it_has_loaded() {
    let fake = FakeLlama::start(Options::default());
    fake.loading(true);
    let router = Router::start(&fake).await;
    assert_eq!(chat(&router.url(), "a", "text").await.status, 503);
    fake.loading(false);
    assert_eq!(action_of(&chat(&router.url(), "a", "text").await), "new");
    assert_eq!(action_of(&chat(&router.url(), "a", "text").await), "home");
    let known = |status: &Value| status["server"]["build"] == "b0-fake";
    router.wait_status("build of the server", known).await;
}

#[tokio::test]
async fn restarts_again_and_again_under_load_do_no_harm() {
    let (fake, router) = started(Options::default()).await;
    for round in 0..6 {
        let turns: Vec<_> = (0..12)
            .map(|n| chat_request(&router.url(), &format!("s{}", n % 6), &format!("{round} words")))
            .map(|request| tokio::spawn(client::try_send(request)))
            .collect();
        fake.restart(Options::default().slots(2 + round % 3)).await;
        for turn in turns {
            let answer = turn.await.expect("it should end").expect("there should be an answer");
            assert!([200, 502].contains(&answer.status.as_u16()), "{}", answer.text());
        }
    }
    router.wait_quiet().await;
    for n in 0..6 {
        assert_eq!(chat(&router.url(), &format!("s{n}"), "text").await.status, 200);
    }
    fake.assert_clean();
}
