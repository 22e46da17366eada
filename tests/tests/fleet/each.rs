//! What belongs to each server by itself: its folder of saved states, its adapters, its clients' credentials.
use serde_json::Value;
use session_slot_tests::client::{Outgoing, chat_body, send, words};
use session_slot_tests::fake::Received;
use session_slot_tests::{FakeLlama, Options, Router};
use tempfile::TempDir;

use crate::server_of;
use crate::stage::{Stage, name};

/// Words of a turn, more than the least that is saved; an answer's last word was never put through the model.
const TURN: usize = 200;
const LEFT: u64 = TURN as u64 + 3;

/// Two servers that forget what is in no slot, each with a folder of its own in `folder` for states.
async fn saving(folder: &TempDir) -> (Stage, Vec<Options>) {
    let states = |index| folder.path().join(name(index).to_string());
    let options: Vec<_> =
        (0..2).map(|index| Options::without_ram_cache().saving_to(&states(index))).collect();
    let fakes = options.iter().cloned().map(FakeLlama::start).collect();
    let each = |index| format!("models = [\"m\"]\nwarm_dir = \"{}\"\n", states(index).display());
    (Stage::before_each(fakes, "[warm]\nmin_tokens = 100", each).await, options)
}

fn files(folder: &TempDir, server: &str) -> usize {
    std::fs::read_dir(folder.path().join(server)).expect("the folder should be there").count()
}

fn asked_for(fake: &FakeLlama, target: &str) -> Vec<Received> {
    fake.look(|state| state.received().iter().filter(|one| one.target == target).cloned().collect())
}

#[tokio::test]
async fn a_request_to_save_everything_saves_what_each_server_holds_in_its_own_folder() {
    let folder = tempfile::tempdir().expect("a temporary folder should be possible");
    let (stage, options) = saving(&folder).await;
    let mut talks = Vec::new();
    for id in ["s", "t", "u"] {
        let mut talk = stage.talk(id);
        let home = server_of(&talk.say(&words(id, TURN)).await).to_owned();
        talks.push((talk, home));
    }
    let saved = send(Outgoing::post(format!("{}/router/save", stage.router.url()), "")).await.json();
    assert_eq!((&saved["saved"], &saved["complete"]), (&3.into(), &true.into()));
    for server in ["a", "b"] {
        assert_eq!(
            files(&folder, server),
            talks.iter().filter(|(_, home)| home == server).count(),
            "{server}"
        );
    }
    for (fake, options) in stage.fakes.iter().zip(options) {
        fake.restart(options).await;
    }
    for (talk, home) in &mut talks {
        let answer = talk.say("and now?").await;
        assert_eq!((server_of(&answer), answer.cache_n()), (&**home, Some(LEFT)));
    }
}

#[tokio::test]
async fn adapters_are_set_at_the_server_where_the_session_lives() {
    let stage = Stage::open(2, &Options::default()).await;
    for id in ["s", "t"] {
        let home = server_of(&stage.talk(id).say("hello").await).to_owned();
        let url = format!("{}/lora-adapters", stage.router.url());
        let answer = send(Outgoing::post(url, "[]").header("x-agent-session-id", id)).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        // One after the other, each at another server.
        assert_eq!(
            asked_for(stage.fake(&home), "/lora-adapters").iter().filter(|one| one.method == "POST").count(),
            1
        );
    }
}

#[tokio::test]
async fn credentials_reach_the_servers_if_that_is_wanted() {
    let stage = Stage::with(2, &Options::default(), "forward_credentials = true").await;
    let url = format!("{}/v1/chat/completions", stage.router.url());
    let request = Outgoing::post(url, chat_body(Some("s"), "hello").to_string());
    let answer = send(request.header("authorization", "Bearer secret").header("cookie", "a=b")).await;
    let received = stage.fake(server_of(&answer)).received();
    assert_eq!(
        (received[0].header("authorization"), received[0].header("cookie")),
        (Some("Bearer secret"), Some("a=b"))
    );
}

#[tokio::test]
async fn one_server_in_a_section_is_as_one_that_is_upstream() {
    let fake = FakeLlama::start(Options::default());
    let config = format!("[[server]]\nname = \"a\"\nurl = \"{}\"\n", fake.url());
    let router = Router::in_front_of("").no_upstream_flag().config(&config).start().await;
    let mut talk = session_slot_tests::Session::new(&router.url(), "s");
    let first = talk.say("hello").await;
    assert_eq!(
        (first.header("x-slot-router-server"), first.header("x-slot-router-action")),
        (None, Some("new"))
    );
    assert_eq!(talk.say("go on").await.header("x-slot-router-action"), Some("home"));
    let status = router.status().await;
    assert!(status["server"].is_object() && status["servers"].is_null(), "{status:#}");
    let plain = Router::in_front_of(&fake.url()).start().await.status().await;
    assert_eq!(names(&status), names(&plain));
    assert!(!router.state_dir().join("servers").exists());
}

fn names(status: &Value) -> Vec<&String> {
    status.as_object().into_iter().flatten().map(|(name, _)| name).collect()
}
