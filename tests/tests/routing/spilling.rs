//! `concurrent`: what becomes of a title call, or any second request of a session, beside a turn that runs.
use serde_json::json;
use session_slot_tests::client::{self, chat, chat_request, words};
use session_slot_tests::{Answer, FakeLlama, Options, Router, Session};
use tokio::task::JoinHandle;

use crate::{action_of, held_turn, last_words, slot_of};

async fn spilling(options: Options) -> (FakeLlama, Router) {
    let fake = FakeLlama::start(options);
    let router = Router::builder(&fake).flag("--concurrent", "spill").start().await;
    (fake, router)
}

/// A session with one turn behind it and the next one at work until `gate` is opened.
async fn at_work(fake: &FakeLlama, router: &Router, id: &str) -> (i64, JoinHandle<(Session, Answer)>) {
    let mut session = Session::new(&router.url(), id);
    let home = slot_of(&session.say(&words(id, 30)).await);
    let running = tokio::spawn(async move {
        let answer = session.say("HOLD:gate second").await;
        (session, answer)
    });
    fake.wait_processing(1).await;
    (home, running)
}

/// The next turn is at home, and reads only what is new: its words and the last token of the answer before.
async fn goes_on_at(home: i64, session: &mut Session) {
    let next = session.say(&words("new", 5)).await;
    assert_eq!((slot_of(&next), action_of(&next), next.prompt_n()), (home, "home", Some(6)));
}

#[tokio::test]
async fn a_title_call_waits_until_the_turn_is_over_unless_told_otherwise() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    let (home, running) = at_work(&fake, &router, "a").await;
    let title = client::send_later(chat_request(&router.url(), "a", "title"));
    router.wait_waiting(1).await;
    assert_eq!(last_words(&fake).last().map(String::as_str), Some("second"));
    fake.release("gate");
    running.await.expect("it should end");
    let title = title.await.expect("it should end");
    assert_eq!((slot_of(&title), action_of(&title)), (home, "home"));
}

#[tokio::test]
async fn a_title_call_that_spills_runs_at_once_elsewhere_and_the_session_goes_on_at_home() {
    for options in [Options::default(), Options::default_settings(), Options::unified_keeping_slots()] {
        let (fake, router) = spilling(options).await;
        let (home, running) = at_work(&fake, &router, "a").await;
        let title = chat(&router.url(), "a", "title").await;
        assert_eq!((title.status.as_u16(), action_of(&title)), (200, "spill"));
        assert_ne!(slot_of(&title), home);
        assert_eq!(slot_of(&title), fake.launches().last().map_or(-1, |launch| launch.slot.0 as i64));
        fake.release("gate");
        let (mut session, _) = running.await.expect("it should end");
        goes_on_at(home, &mut session).await;
        assert_eq!(router.status().await["server"]["totals"]["spill"], 1);
        fake.assert_clean();
    }
}

#[tokio::test]
async fn several_spill_at_once() {
    let (fake, router) = spilling(Options::default()).await;
    let (home, running) = at_work(&fake, &router, "a").await;
    let sides: Vec<_> = (0..3)
        .map(|number| client::send_later(chat_request(&router.url(), "a", &format!("HOLD:sides {number}"))))
        .collect();
    fake.wait_processing(4).await;
    fake.release("sides");
    for side in sides {
        assert_eq!(action_of(&side.await.expect("it should end")), "spill");
    }
    fake.release("gate");
    let (mut session, _) = running.await.expect("it should end");
    goes_on_at(home, &mut session).await;
    fake.assert_clean();
}

#[tokio::test]
async fn a_slot_that_is_warm_for_a_session_seen_just_now_is_never_taken() {
    let (fake, router) = spilling(Options::default().slots(3)).await;
    let mut other = Session::new(&router.url(), "b");
    let others = slot_of(&other.say(&words("b", 30)).await);
    let (home, running) = at_work(&fake, &router, "a").await;
    for number in 0..4 {
        let side = chat(&router.url(), "a", &format!("side {number}")).await;
        assert_eq!(action_of(&side), "spill");
        assert!(![home, others].contains(&slot_of(&side)), "{side:?}");
    }
    goes_on_at(others, &mut other).await;
    fake.release("gate");
    goes_on_at(home, &mut running.await.expect("it should end").0).await;
}

#[tokio::test]
async fn where_no_slot_is_free_and_cold_it_waits_as_without_spilling() {
    let (fake, router) = spilling(Options::default().slots(2)).await;
    let mut other = Session::new(&router.url(), "b");
    let others = slot_of(&other.say(&words("b", 30)).await);
    let (home, running) = at_work(&fake, &router, "a").await;
    let title = client::send_later(chat_request(&router.url(), "a", "title"));
    router.wait_waiting(1).await;
    goes_on_at(others, &mut other).await;
    assert_ne!(last_words(&fake).last().map(String::as_str), Some("title"));
    fake.release("gate");
    running.await.expect("it should end");
    let title = title.await.expect("it should end");
    assert_eq!((slot_of(&title), action_of(&title)), (home, "home"));
}

#[tokio::test]
async fn who_loses_its_home_to_a_spilled_request_is_named_and_finds_its_state_elsewhere() {
    // Idle slots are emptied into the RAM cache, so the slot taken is empty.
    let (fake, router) = spilling(Options::default_settings().slots(2)).await;
    let mut other = Session::new(&router.url(), "b");
    let others = slot_of(&other.say(&words("b", 30)).await);
    let (home, running) = at_work(&fake, &router, "a").await;
    let title = chat(&router.url(), "a", "title").await;
    assert_eq!((slot_of(&title), action_of(&title)), (others, "spill"));
    let back = other.say(&words("new", 5)).await;
    assert_eq!((action_of(&back), back.prompt_n()), ("new", Some(6)), "its state was in the RAM cache");
    fake.release("gate");
    goes_on_at(home, &mut running.await.expect("it should end").0).await;
    router.terminate().await;
    let logged = router.request_log().into_iter().find(|line| line["action"] == "spill b");
    assert_eq!(logged.expect("it should be in the log")["agent_session_id"], "a");
    let event = router.database().events().into_iter().find(|event| event["action"] == "spill");
    assert_eq!(event.expect("it should be recorded")["evicted"], "b");
}

#[tokio::test]
async fn a_restart_of_the_router_finds_the_home_and_not_the_slot_of_the_spilled_request() {
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder should be possible");
    let start = || Router::builder(&fake).flag("--concurrent", "spill").state_dir(folder.path()).start();
    let router = start().await;
    let (home, running) = at_work(&fake, &router, "a").await;
    fake.release("gate");
    let (mut session, _) = running.await.expect("it should end");
    let held = client::send_later(held_turn(&router, "b", "of-b"));
    fake.wait_processing(1).await;
    assert_eq!(action_of(&chat(&router.url(), "b", "side").await), "spill");
    fake.release("of-b");
    let home_of_b = slot_of(&held.await.expect("it should end"));
    router.terminate().await;
    let row = router.database().session("b");
    assert_eq!((&row["slot"], &row["requests"]), (&json!(home_of_b), &json!(2)));
    let router = start().await;
    session.move_to(&router.url());
    goes_on_at(home, &mut session).await;
    let back = client::send(held_turn(&router, "b", "of-b")).await;
    assert_eq!((slot_of(&back), action_of(&back), back.prompt_n()), (home_of_b, "home", Some(1)));
}

#[tokio::test]
async fn what_follows_a_turn_whose_client_has_left_waits_for_its_home() {
    let (fake, router) = spilling(Options::default()).await;
    let home = slot_of(&chat(&router.url(), "a", "first").await);
    let leaving = client::send_later(held_turn(&router, "a", "gate"));
    fake.wait_processing(1).await;
    leaving.abort();
    router.wait_log(|line| line["status"] == 499).await;
    let next = chat(&router.url(), "a", "next").await;
    assert_eq!((slot_of(&next), action_of(&next)), (home, "home"));
    fake.assert_clean();
}
