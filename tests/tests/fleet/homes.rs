//! Homes: a conversation returns to the server that knows it, and a new one goes where the fewest live.
use session_slot_tests::Options;
use session_slot_tests::client::{self, Outgoing, words};

use crate::server_of;
use crate::stage::Stage;

#[tokio::test]
async fn a_session_returns_to_its_server_and_reads_only_what_is_new() {
    let stage = Stage::open(3, &Options::default()).await;
    let mut sessions = ["s", "t", "u", "v"].map(|id| (stage.talk(id), id, None));
    for turn in 0..3 {
        for (session, id, home) in &mut sessions {
            let answer = session.say(&words(&format!("{id}{turn}x"), 30)).await;
            let server = home.get_or_insert_with(|| server_of(&answer).to_owned());
            assert_eq!(server_of(&answer), server, "turn {turn} of {id}");
            assert!(
                turn == 0 || answer.prompt_n() < Some(40),
                "turn {turn} of {id}: {:?}",
                answer.prompt_n()
            );
            assert_eq!(answer.header("x-slot-router-evicted"), None);
        }
    }
}

#[tokio::test]
async fn a_new_session_goes_where_the_fewest_live_though_all_servers_look_idle() {
    let stage = Stage::open(2, &Options::default()).await;
    let (one, two) = (stage.talk("s").say("hello").await, stage.talk("t").say("hello").await);
    let mut servers = [server_of(&one), server_of(&two)];
    servers.sort_unstable();
    assert_eq!(servers, ["a", "b"]);
}

#[tokio::test]
async fn a_conversation_without_a_session_returns_too_and_its_body_stays_as_it_was() {
    let stage = Stage::open(3, &Options::default()).await;
    let mut talk = session_slot_tests::Session::anonymous(&stage.router.url()).system("be brief");
    let server = server_of(&talk.say("hello").await).to_owned();
    for turn in 0..4 {
        assert_eq!(server_of(&talk.say("go on").await), server, "turn {turn}");
    }
    let received = stage.fake(&server).received();
    assert_eq!(received.len(), 5);
    assert!(received.iter().all(|one| one.json()["id_slot"].is_null()));
}

#[tokio::test]
async fn sessions_are_at_home_again_after_a_restart_of_the_router() {
    let folder = tempfile::tempdir().expect("a temporary folder should be possible");
    let mut stage = Stage::open(3, &Options::default()).await;
    stage.router = crate::stage::builder(&stage.fakes, "").state_dir(folder.path()).start().await;
    stage.wait_states(&["up"; 3]).await;
    let mut homes = Vec::new();
    for id in ["s", "t", "u", "v"] {
        homes.push((id, server_of(&stage.talk(id).say("hello").await).to_owned()));
    }
    assert!(stage.router.terminate().await.success());
    stage.router = crate::stage::builder(&stage.fakes, "").state_dir(folder.path()).start().await;
    stage.wait_states(&["up"; 3]).await;
    for (id, home) in homes.into_iter().rev() {
        assert_eq!(server_of(&stage.talk(id).say("hello").await), home, "{id}");
    }
}

#[tokio::test]
async fn a_server_that_has_lost_a_conversation_is_told_by_header_log_and_status() {
    let stage = Stage::open(2, &Options::default()).await;
    let mut talk = stage.talk("s");
    let home = server_of(&talk.say(&words("s", 200)).await).to_owned();
    stage.fake(&home).restart(Options::default()).await;
    let answer = talk.say("go on").await;
    let lost = answer.header("x-slot-router-evicted").and_then(|tokens| tokens.parse::<u64>().ok());
    assert!(lost.is_some_and(|tokens| tokens >= 200), "{lost:?} at {}", server_of(&answer));
    let log = stage.router.wait_requests(2).await;
    assert_eq!(
        (&log[1]["lost"], &log[1]["place"], log[1]["server"].as_str()),
        (&lost.into(), &"home".into(), Some(&*home))
    );
    let status = stage.router.status().await;
    let lost_in_all: u64 = status["servers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["tokens_lost"].as_u64())
        .sum();
    assert_eq!(Some(lost_in_all), lost);
}

#[tokio::test]
async fn a_stream_without_a_session_is_read_on_at_the_server_that_makes_it() {
    let stage = Stage::open(3, &Options::default()).await;
    let url = stage.router.url();
    let mut servers = Vec::new();
    for id in ["c1", "c2", "c/3"] {
        let body = client::chat_body(None, "the same for all").to_string();
        let turn = Outgoing::post(format!("{url}/v1/chat/completions"), body);
        servers.push(server_of(&client::send(turn.header("x-conversation-id", id)).await).to_owned());
        client::get(format!("{url}/v1/stream?conv_id={}", id.replace('/', "%2F"))).await;
    }
    let log = stage.router.wait_requests(6).await;
    let read_on: Vec<_> = log.iter().filter(|line| line["route"] == "/v1/stream").collect();
    assert!(read_on.iter().map(|line| line["server"].as_str()).eq(servers.iter().map(|name| Some(&**name))));
    servers.sort_unstable();
    assert_eq!(servers, ["a", "b", "c"], "each is a conversation of its own");
}
