//! What another router has at the servers counts, as long as it lives.
use session_slot_tests::client;

use crate::server_of;
use crate::stage::{Stage, sessions, wait_shared};

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn what_a_router_had_at_the_servers_counts_for_the_other_one_until_it_was_killed() {
    let stage = Stage::open().await;
    let [one, two] = &stage.fronts;
    let home = server_of(&stage.talk("s", 0).say("hello").await);
    two.wait_status("a session of the other router", |status| sessions(status, &home) == 1).await;
    // Alone, it would begin in turn, and might choose the same server.
    for id in ["t", "u"] {
        assert_eq!(stage.talk(id, 1).say("hello").await.status, 200);
    }
    let status = two.status().await;
    let spread = (sessions(&status, "a"), sessions(&status, "b"));
    assert!(spread == (1, 2) || spread == (2, 1), "{spread:?}");
    one.kill().await;
    wait_shared(two, "connected", 1).await;
    let left = |status: &serde_json::Value| sessions(status, "a") + sessions(status, "b") == 2;
    two.wait_status("only its own sessions", left).await;
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn the_conversations_of_a_router_that_was_killed_go_on_at_home_through_the_other_one() {
    let stage = Stage::open().await;
    let mut talks = Vec::new();
    for id in ["s", "t", "u"] {
        talks.push(stage.begun(id, 0).await);
    }
    stage.fronts[0].kill().await;
    talks.rotate_left(1);
    for (talk, home) in &mut talks {
        assert_eq!(&crate::say(talk, &stage.fronts[1].url()).await, home);
    }
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn a_turn_whose_router_is_killed_meanwhile_is_sent_again_through_the_other_one_and_runs_at_home() {
    let stage = Stage::open().await;
    let (mut talk, home) = stage.begun("s", 0).await;
    let turn = tokio::spawn(client::try_send(talk.turn("HOLD:x go on")));
    stage.fake(&home).wait_processing(1).await;
    stage.fronts[0].kill().await;
    assert!(turn.await.expect("it should end").is_err(), "its client has lost the connection");
    // Its server ends what nobody waits for any more; the other front never heard of the turn.
    stage.fake(&home).wait_processing(0).await;
    stage.fake(&home).release("x");
    talk.move_to(&stage.fronts[1].url());
    let again = talk.say("HOLD:x go on").await;
    assert_eq!(server_of(&again), home);
    assert!(again.cache_n() > Some(0), "what it had said before was still there");
    stage.fakes.iter().for_each(session_slot_tests::FakeLlama::assert_clean);
}
