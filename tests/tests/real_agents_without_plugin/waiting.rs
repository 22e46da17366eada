//! Turns that wait, and turns whose server is lost, as the agents see them.
use std::time::Duration;

use session_slot_tests::client::{self, chat_request};
use session_slot_tests::{Answer, FakeLlama, Options, Router};
use tokio::task::JoinHandle;

use crate::talk::{Agent, Talk};
use crate::{generations, options};

/// Signs of life come soon, so that a few of them take a few seconds.
const SOON: &str = "[keepalive]\nafter = 1\nevery = 1\n";

/// How often an agent is shown that its turn is alive, at each stage.
const SIGNS: u64 = 3;

/// A server with one slot, which somebody else holds until `other` is released.
async fn busy_server(config: &str) -> (FakeLlama, Router, JoinHandle<Answer>) {
    let fake = FakeLlama::start(Options { slots: 1, ..options() });
    let router = Router::builder(&fake).config(config).start().await;
    let other = client::send_later(chat_request(&router.url(), "other", "HOLD:other"));
    fake.wait_processing(1).await;
    (fake, router, other)
}

/// First the turn waits for its slot, then for the server's first word. Both are one request to the agent.
pub(crate) async fn waits_without_asking_again(agent: &dyn Agent) {
    let (fake, router, other) = busy_server(SOON).await;
    let mut talk = Talk::start(agent, &router.url());
    let goes_on = async {
        router.wait_waiting(1).await;
        wait_signs(&router, SIGNS).await;
        fake.release("other");
        fake.wait_until("the turn in the slot", |state| state.launches().len() == 2).await;
        let seen = signs(&router).await;
        wait_signs(&router, seen + SIGNS).await;
        fake.release("own");
    };
    tokio::join!(talk.say("Say hello, HOLD:own please."), goes_on);
    assert_asked_once(agent, &router, other).await;
}

/// As long as many a client waits for a header, with the settings as they come.
pub(crate) async fn waits_a_minute(agent: &dyn Agent) {
    let (fake, router, other) = busy_server("").await;
    let mut talk = Talk::start(agent, &router.url());
    let goes_on = async {
        router.wait_waiting(1).await;
        // The minute is what this is about.
        tokio::time::sleep(Duration::from_secs(60)).await;
        wait_signs(&router, SIGNS).await;
        fake.release("other");
    };
    tokio::join!(talk.say("Say hello, please."), goes_on);
    assert_asked_once(agent, &router, other).await;
}

async fn assert_asked_once(agent: &dyn Agent, router: &Router, other: JoinHandle<Answer>) {
    assert_eq!(other.await.expect("the other one's turn should end").status, 200);
    router.terminate().await;
    let lines = generations(router);
    assert_eq!(lines.len(), 2 + agent.side_calls(), "{lines:#?}");
    assert!(lines.iter().all(|line| line["status"] == 200 && line["error"].is_null()), "{lines:#?}");
}

/// Where a turn is when its server is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It has got signs of life, but no word.
    BeforeItsFirstWord,
    /// It has got a part of the answer.
    InTheMiddle,
}

/// An agent that takes what it has got for an answer asks no more; one that sees an error does. The turn is the second
/// one of its session, where agents make no side calls.
pub(crate) async fn asks_again_when_the_server_is_lost(agent: &dyn Agent, lost: Lost) {
    let fake = FakeLlama::start(options());
    let router = Router::builder(&fake).config(SOON).start().await;
    let mut talk = Talk::start(agent, &router.url());
    talk.say("Say hello, please.").await;
    router.wait_quiet().await;
    let (earlier, launches) = (generations(&router).len(), fake.launches().len());
    let is_lost = async {
        fake.wait_until("the turn", |state| state.launches().len() > launches).await;
        match lost {
            Lost::BeforeItsFirstWord => wait_signs(&router, signs(&router).await + SIGNS).await,
            Lost::InTheMiddle => {
                fake.wait_until("its first word", |state| state.slots().iter().any(|slot| slot.said() > 0))
                    .await;
            }
        }
        fake.stop().await;
        fake.release("own");
        fake.start_again().await;
    };
    let text = match lost {
        Lost::BeforeItsFirstWord => "And once more, HOLD:own please.",
        Lost::InTheMiddle => "And once more, HOLDEND:own please.",
    };
    tokio::join!(talk.say(text), is_lost);
    router.terminate().await;
    let lines = generations(&router).split_off(earlier);
    let [first, .., last] = lines.as_slice() else { panic!("it should have asked again: {lines:#?}") };
    assert!(first["error"].is_string(), "{lines:#?}");
    assert!(last["status"] == 200 && last["error"].is_null(), "{lines:#?}");
}

async fn signs(router: &Router) -> u64 {
    router.status().await["server"]["totals"]["keepalives"].as_u64().unwrap_or_default()
}

async fn wait_signs(router: &Router, count: u64) {
    let enough =
        |status: &serde_json::Value| status["server"]["totals"]["keepalives"].as_u64() >= Some(count);
    router.wait_status("signs of life", enough).await;
}

/// The scenarios of this file for one agent.
macro_rules! waiting_scenarios {
    ($module:ident: $agent:expr) => {
        mod $module {
            #[tokio::test]
            #[ignore = "needs the real agent: scripts/test.sh installs it"]
            async fn it_waits_without_asking_again() {
                $crate::waiting::waits_without_asking_again(&$agent).await;
            }

            #[tokio::test]
            #[ignore = "needs the real agent: scripts/test.sh installs it"]
            async fn it_asks_again_when_the_server_is_lost_before_its_first_word() {
                $crate::waiting::asks_again_when_the_server_is_lost(
                    &$agent,
                    $crate::waiting::Lost::BeforeItsFirstWord,
                )
                .await;
            }

            #[tokio::test]
            #[ignore = "needs the real agent: scripts/test.sh installs it"]
            async fn it_asks_again_when_the_server_is_lost_in_the_middle_of_its_answer() {
                $crate::waiting::asks_again_when_the_server_is_lost(
                    &$agent,
                    $crate::waiting::Lost::InTheMiddle,
                )
                .await;
            }
        }
    };
}
pub(crate) use waiting_scenarios;
