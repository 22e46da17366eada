//! Pinning never costs reuse, whatever the server does to idle slots.
use serde_json::{Value, json};
use session_slot_tests::client::{self, chat, chat_request, words};
use session_slot_tests::{Answer, FakeLlama, Options, Router, Session};

async fn started(options: Options) -> (FakeLlama, Router) {
    let fake = FakeLlama::start(options);
    let router = Router::start(&fake).await;
    (fake, router)
}

/// A primer, as the router sends it.
fn is_primer(body: &Value) -> bool {
    body["prompt"] == "x" && body["n_predict"] == 0
}

fn primers(fake: &FakeLlama) -> usize {
    fake.received().iter().filter(|one| is_primer(&one.json())).count()
}

/// Every primer is followed by a turn in the same slot, with no other launch in between.
fn assert_primers_are_followed_by_their_turn(fake: &FakeLlama) {
    let received = fake.look(|state| state.received().to_vec());
    let body = |request: usize| {
        let found = received.iter().find(|one| one.number == request);
        found.expect("a launch should belong to a request").json()
    };
    let launches = fake.launches();
    for (index, launch) in launches.iter().enumerate() {
        if is_primer(&body(launch.request)) {
            let next = launches.get(index + 1).expect("a primer should be followed by a turn");
            assert_eq!(next.slot, launch.slot, "{index}: {launches:?}");
            assert!(!is_primer(&body(next.request)), "{index}: {launches:?}");
        }
    }
}

/// How many tokens of a conversation the slot of its last turn holds: all but the last one said.
fn held_by(answer: &Answer) -> u64 {
    let known = "timings should be there";
    answer.cache_n().expect(known) + answer.prompt_n().expect(known) + 4 - 1
}

/// Requests that show the router what the server does to idle slots.
async fn teach(router: &Router) {
    for id in ["x", "y", "z"] {
        chat(&router.url(), id, &words(id, 5)).await;
    }
    let learned = |status: &Value| status["server"]["clears_idle"].is_boolean();
    router.wait_status("knowledge of the server", learned).await;
}

/// Sessions in turn; each return must find everything that was left.
async fn assert_all_is_reused(router: &Router, sessions: usize, turns: usize) {
    let mut talks: Vec<_> =
        (0..sessions).map(|n| (Session::new(&router.url(), &format!("s{n}")), None)).collect();
    for turn in 0..turns {
        for (n, (session, held)) in talks.iter_mut().enumerate() {
            let answer = session.say(&words(&format!("s{n}turn{turn}word"), 50)).await;
            assert!(answer.cache_n() >= *held, "turn {turn} of s{n}: {:?} of {held:?}", answer.cache_n());
            *held = Some(held_by(&answer));
        }
    }
}

#[tokio::test]
async fn on_default_settings_sessions_in_turn_find_all_they_left() {
    let (fake, router) = started(Options::default_settings()).await;
    assert_all_is_reused(&router, 4, 4).await;
    assert!(primers(&fake) > 0);
    assert_primers_are_followed_by_their_turn(&fake);
}

#[tokio::test]
async fn where_idle_slots_keep_their_tokens_sessions_are_pinned_and_nothing_is_primed() {
    for options in [Options::default(), Options::unified_keeping_slots(), Options::without_ram_cache()] {
        let (fake, router) = started(options.clone()).await;
        assert_all_is_reused(&router, 4, 4).await;
        assert_eq!(primers(&fake), 0, "{options:?}");
        assert!(fake.received().iter().all(|one| one.json()["id_slot"].is_u64()), "{options:?}");
    }
}

#[tokio::test]
async fn on_default_settings_a_single_session_needs_no_primer() {
    let (fake, router) = started(Options::default_settings()).await;
    assert_all_is_reused(&router, 1, 6).await;
    assert_eq!(primers(&fake), 0);
}

#[tokio::test]
async fn a_new_session_is_not_primed_in_an_empty_slot() {
    let (fake, router) = started(Options::default_settings()).await;
    for id in ["a", "b", "a", "b"] {
        chat(&router.url(), id, &words(id, 20)).await;
    }
    let before = primers(&fake);
    for id in ["c", "d"] {
        chat(&router.url(), id, &words(id, 20)).await;
    }
    assert_eq!(primers(&fake), before);
}

#[tokio::test]
async fn a_new_session_with_the_same_system_prompt_takes_nothing_from_the_others() {
    let (_fake, router) = started(Options::default_settings()).await;
    let shared = words("system", 60);
    let mut talks = ["a", "b", "c", "d"].map(|id| (Session::new(&router.url(), id), id, None));
    for turn in 0..3 {
        for (session, id, held) in &mut talks {
            let text = format!("{shared} {}", words(&format!("{id}{turn}word"), 40));
            let answer = session.say(if turn == 0 { &text } else { "and now" }).await;
            assert!(answer.cache_n() >= *held, "turn {turn} of {id}: {:?} of {held:?}", answer.cache_n());
            *held = Some(held_by(&answer));
        }
    }
}

#[tokio::test]
async fn an_evicted_session_finds_its_state_in_the_ram_cache() {
    let (fake, router) = started(Options::default_settings().slots(2)).await;
    assert_all_is_reused(&router, 4, 4).await;
    assert_primers_are_followed_by_their_turn(&fake);
}

#[tokio::test]
async fn under_concurrency_nothing_starts_between_a_primer_and_its_turn() {
    for sessions in [4, 6] {
        let (fake, router) = started(Options::default_settings()).await;
        teach(&router).await;
        let talks = (0..sessions).map(|n| {
            let mut session = Session::new(&router.url(), &format!("s{n}"));
            tokio::spawn(async move {
                let (mut held, mut lost) = (0, 0);
                for turn in 0..6 {
                    let answer = session.say(&words(&format!("s{n}turn{turn}word"), 50)).await;
                    lost += held - answer.cache_n().unwrap_or(0).min(held);
                    held = held_by(&answer);
                }
                lost
            })
        });
        for talk in talks.collect::<Vec<_>>() {
            assert_eq!(talk.await.expect("it should end"), 0, "{sessions} sessions");
        }
        assert!(primers(&fake) > 0);
        assert_primers_are_followed_by_their_turn(&fake);
        fake.assert_clean();
    }
}

#[tokio::test]
async fn under_concurrency_anonymous_and_sessions_requests_do_not_cost_each_other_their_state() {
    let (fake, router) = started(Options::default_settings()).await;
    let url = router.url();
    let noise = tokio::spawn(async move {
        for n in 0..20 {
            let body = json!({"prompt": words(&format!("noise{n}x"), 30)}).to_string();
            assert_eq!(client::post_json(format!("{url}/completion"), body).await.status, 200);
        }
    });
    assert_all_is_reused(&router, 3, 5).await;
    noise.await.expect("it should end");
    assert_primers_are_followed_by_their_turn(&fake);
}

#[tokio::test]
async fn a_primed_turn_whose_client_leaves_holds_nobody_up() {
    let (fake, router) = started(Options::default_settings()).await;
    for id in ["a", "b", "a", "b"] {
        chat(&router.url(), id, &words(id, 20)).await;
    }
    for round in 0..5 {
        let request = chat_request(&router.url(), "a", &format!("HOLD:never{round} words"));
        let leaving = client::send_later(request);
        fake.wait_processing(1).await;
        leaving.abort();
        assert_eq!(chat(&router.url(), "b", &words("b", 20)).await.status, 200);
    }
    fake.assert_clean();
}

#[tokio::test]
async fn with_pin_never_no_slot_is_named_and_none_is_overcommitted() {
    let fake = FakeLlama::start(Options::default().slots(2));
    let router = Router::builder(&fake).flag("--pin", "never").start().await;
    let mut body = client::chat_body(Some("a"), "HOLD:hold words");
    body["id_slot"] = json!(1);
    let url = format!("{}/v1/chat/completions", router.url());
    let turns: Vec<_> = ["a", "b", "c"]
        .map(|id| {
            body["agent_session_id"] = json!(id);
            client::send_later(client::Outgoing::post(&url, body.to_string()))
        })
        .into_iter()
        .collect();
    fake.wait_processing(2).await;
    router.wait_waiting(1).await;
    assert_eq!((fake.received().len(), fake.look(|state| state.deferred())), (2, 0));
    fake.release("hold");
    for turn in turns {
        let answer = turn.await.expect("it should end");
        assert_eq!(answer.header("x-slot-router-action"), Some("free"));
    }
    assert!(fake.received().iter().all(|one| one.json().get("id_slot").is_none()));
}

#[tokio::test]
async fn with_pin_never_the_slot_of_a_session_is_found_out_afterwards() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).flag("--pin", "never").start().await;
    chat(&router.url(), "a", &words("a", 20)).await;
    let slot = fake.launches()[0].slot.0;
    let found = |status: &Value| status["server"]["slots"][slot]["session"] == "a";
    let status = router.wait_status("owner of the slot", found).await;
    assert_eq!(status["server"]["slots"][slot]["warm"], true);
    router.terminate().await;
    assert_eq!(router.database().session("a")["slot"], slot);
}

#[tokio::test]
async fn with_pin_always_every_turn_names_its_slot_and_nothing_is_primed() {
    let fake = FakeLlama::start(Options::default_settings());
    let router = Router::builder(&fake).flag("--pin", "always").start().await;
    for id in ["a", "b", "a", "b", "a", "b"] {
        chat(&router.url(), id, &words(id, 20)).await;
    }
    assert_eq!(primers(&fake), 0);
    assert!(fake.received().iter().all(|one| one.json()["id_slot"].is_u64()));
}

#[tokio::test]
async fn what_the_server_does_to_idle_slots_is_told_with_the_flags_that_help() {
    let (_fake, router) = started(Options::default_settings()).await;
    for id in ["a", "b", "c"] {
        chat(&router.url(), id, &words(id, 20)).await;
    }
    let learned = |status: &Value| status["server"]["clears_idle"] == true;
    let status = router.wait_status("knowledge of the server", learned).await;
    let advice = status["server"]["advice"][0].as_str().unwrap_or_default().to_owned();
    assert!(advice.contains("--no-kv-unified") && advice.contains("--no-cache-idle-slots"), "{advice}");
    router.wait_log(|line| line["message"] == json!(advice)).await;
    let warnings = || {
        let warned = |line: &&Value| line["level"] == "WARN" && line["message"] == json!(advice);
        router.log().iter().filter(warned).count()
    };
    assert_eq!(warnings(), 1);
    for id in ["a", "b", "c"] {
        chat(&router.url(), id, &words(id, 20)).await;
    }
    assert_eq!(warnings(), 1);
}

#[tokio::test]
async fn a_server_that_keeps_its_slots_is_not_advised_to_keep_them() {
    let (_fake, router) = started(Options::default()).await;
    for id in ["a", "b", "c"] {
        chat(&router.url(), id, &words(id, 20)).await;
    }
    let learned = |status: &Value| status["server"]["clears_idle"] == false;
    let status = router.wait_status("knowledge of the server", learned).await;
    assert!(!status["server"]["advice"].to_string().contains("--no-kv-unified"));
}

/// The share of all prompt tokens that was not computed, in percent, by the server's own count.
async fn reuse(options: &Options, pin: &str, sessions: usize) -> f64 {
    let fake = FakeLlama::start(options.clone());
    let router = Router::builder(&fake).flag("--pin", pin).start().await;
    let mut talks: Vec<_> = (0..sessions).map(|n| Session::new(&router.url(), &format!("s{n}"))).collect();
    let mut sent = 0;
    for turn in 0..5 {
        for (n, session) in talks.iter_mut().enumerate() {
            let answer = session.say(&words(&format!("s{n}turn{turn}word"), 60)).await;
            sent += answer.cache_n().unwrap_or(0) + answer.prompt_n().unwrap_or(0);
        }
    }
    let computed = fake.look(|state| state.prompt_tokens_total());
    100.0 - 100.0 * computed as f64 / sent as f64
}

#[tokio::test]
async fn auto_reaches_the_better_of_not_pinning_and_plain_pinning_on_every_setting() {
    let settings = [
        ("default settings", Options::default_settings()),
        ("--no-kv-unified", Options::default()),
        ("-kvu --no-cache-idle-slots", Options::unified_keeping_slots()),
        ("--cache-ram 0", Options::without_ram_cache()),
    ];
    let mut worse = Vec::new();
    for (name, options) in settings {
        for sessions in [4, 6] {
            let auto = reuse(&options, "auto", sessions).await;
            let (never, always) =
                (reuse(&options, "never", sessions).await, reuse(&options, "always", sessions).await);
            let line =
                format!("{name}, {sessions} sessions: auto {auto:.1}, never {never:.1}, always {always:.1}");
            if auto < never.max(always) - 1.0 {
                worse.push(line);
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}
