//! Sidecars: other routers beside their servers, which own the slots; the one in front picks the server.
use session_slot_tests::client::{Outgoing, send};
use session_slot_tests::{FakeLlama, Options, Router};

use crate::server_of;
use crate::stage::{Stage, builder_for, name};

/// Two servers with a router beside each, and one in front, whose clients need the keys in `keys` if there are any.
async fn open(keys: Option<&str>) -> (Vec<FakeLlama>, Vec<Router>, Router) {
    let fakes: Vec<_> = (0..2).map(|_| FakeLlama::start(Options::default())).collect();
    let mut sidecars = Vec::new();
    for fake in &fakes {
        sidecars.push(Router::start(fake).await);
    }
    let urls: Vec<_> = sidecars.iter().map(Router::url).collect();
    let mut front = builder_for(&urls, "", "sidecar = true\n");
    let folder = tempfile::tempdir().expect("a temporary folder should be possible");
    if let Some(keys) = keys {
        let file = folder.path().join("keys");
        std::fs::write(&file, keys).expect("the folder should be writable");
        front = front.flag("--api-key-file", &file.to_string_lossy());
    }
    let front = front.start().await;
    (fakes, sidecars, front)
}

#[tokio::test]
async fn a_session_goes_to_one_sidecar_and_there_to_its_slot() {
    let (fakes, _sidecars, front) = open(None).await;
    let mut talk = session_slot_tests::Session::new(&front.url(), "s");
    let first = talk.say("hello").await;
    let (server, slot) =
        (server_of(&first).to_owned(), first.header("x-slot-router-slot").map(str::to_owned));
    assert!(slot.is_some(), "the sidecar's word on the slot should be passed on");
    let second = talk.say("go on").await;
    assert_eq!((server_of(&second), second.header("x-slot-router-slot")), (&*server, slot.as_deref()));
    assert_eq!(second.header("x-slot-router-action"), Some("home"));
    let at = fakes.iter().position(|fake| fake.received().len() == 2).expect("both turns at one server");
    assert_eq!(name(at).to_string(), server);
}

#[tokio::test]
async fn two_users_of_the_front_with_one_session_id_are_two_sessions_behind_it_and_no_server_sees_their_keys()
{
    let (fakes, sidecars, front) = open(Some("ann key-of-ann\nbob key-of-bob\n")).await;
    for key in ["key-of-ann", "key-of-bob"] {
        let request = session_slot_tests::client::chat_request(&front.url(), "s", "hello");
        let answer = send(request.header("authorization", &format!("Bearer {key}"))).await;
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
    }
    // As two sessions they live on two servers.
    let mut sessions = Vec::new();
    for sidecar in &sidecars {
        let line = sidecar.wait_log(|line| line["agent_session_id"].is_string()).await;
        sessions.extend(line["agent_session_id"].as_str().map(str::to_owned));
    }
    sessions.sort_unstable();
    assert_eq!(sessions, ["ann/s", "bob/s"]);
    for received in fakes.iter().flat_map(FakeLlama::received) {
        let seen = format!("{received:?}");
        assert!(!seen.contains("key-of-") && !seen.contains("x-slot-router-user"), "{seen}");
    }
}

#[tokio::test]
async fn credentials_meant_for_one_server_reach_none_of_several() {
    let stage = Stage::open(2, &Options::default()).await;
    let url = format!("{}/v1/chat/completions", stage.router.url());
    let body = session_slot_tests::client::chat_body(Some("s"), "hello").to_string();
    let secret =
        Outgoing::post(url, body).header("authorization", "Bearer secret").header("cookie", "a=secret");
    assert_eq!(send(secret.header("x-api-key", "secret")).await.status.as_u16(), 200);
    let received: Vec<_> = stage.fakes.iter().flat_map(FakeLlama::received).collect();
    assert_eq!(received.len(), 1);
    assert!(!format!("{received:?}").contains("secret"), "{received:?}");
}
