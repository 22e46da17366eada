//! A conversation is at home where the other router put it.
use serde_json::Value;

use crate::say;
use crate::stage::{Stage, server};

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn a_conversation_goes_on_through_the_other_router_where_it_began() {
    let stage = Stage::open().await;
    let mut talks = Vec::new();
    for id in ["s", "t", "u", "v"] {
        talks.push(stage.begun(id, 0).await);
    }
    // In another order: one who put them anew, in turn, would put them elsewhere.
    talks.rotate_left(1);
    for (talk, home) in &mut talks {
        assert_eq!(&say(talk, &stage.fronts[1].url()).await, home);
        assert_eq!(&say(talk, &stage.fronts[0].url()).await, home);
    }
    // Both turns after the first have found their cache, in a slot that the router beside the server has named.
    for fake in &stage.fakes {
        fake.assert_clean();
    }
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn a_conversation_that_had_to_move_has_moved_for_both_routers() {
    let stage = Stage::open().await;
    let (mut talk, home) = stage.begun("s", 0).await;
    stage.fake(&home).stop().await;
    let other = say(&mut talk, &stage.fronts[0].url()).await;
    assert_ne!(other, home);
    stage.fake(&home).start_again().await;
    // The other router never saw a turn fail there.
    let back = |status: &Value| server(status, &home)["state"] != "down";
    stage.fronts[1].wait_status("the first server again", back).await;
    assert_eq!(say(&mut talk, &stage.fronts[1].url()).await, other);
}
