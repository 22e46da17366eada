//! The Valkey goes away and comes back: nobody's turn fails, and each router says so once.
use serde_json::Value;
use session_slot_tests::Router;
use session_slot_tests::valkey::PASSWORD;

use crate::say;
use crate::stage::{Stage, wait_shared};

/// How often it said so, but for the moments in which a busy machine was too slow to answer in time.
fn said(front: &Router, words: &str) -> usize {
    let says = |line: &&Value| line["message"].as_str().is_some_and(|said| said.contains(words));
    let log = front.log();
    log.iter().filter(says).filter(|line| line["why"] != "it does not answer in time").count()
}

#[tokio::test]
#[ignore = "needs a real Valkey or Redis: scripts/test.sh"]
async fn without_it_both_routers_go_on_and_with_it_they_share_again() {
    let stage = Stage::open().await;
    let mut talks = Vec::new();
    for (id, front) in [("s", 0), ("t", 0), ("u", 1)] {
        let (talk, home) = stage.begun(id, front).await;
        talks.push((talk, home, front));
    }
    stage.valkey.stop();
    for (talk, home, front) in &mut talks {
        // At the router that they know, whose own copy says where they live.
        assert_eq!(&say(talk, &stage.fronts[*front].url()).await, home);
    }
    for front in &stage.fronts {
        wait_shared(front, "away", 1).await;
        assert!(front.status().await["shared"]["fell_back"].as_u64() > Some(0));
    }
    stage.valkey.restart().await;
    stage.wait_sharing().await;
    for (talk, home, front) in &mut talks {
        // It has come back empty, and is told by the router that knows.
        assert_eq!(&say(talk, &stage.fronts[*front].url()).await, home);
        assert_eq!(&say(talk, &stage.fronts[1 - *front].url()).await, home);
    }
    for front in &stage.fronts {
        assert_eq!(said(front, "homes are not shared"), 1, "{:?}", front.log_lines());
        assert!(said(front, "homes are shared") >= 2, "{:?}", front.log_lines());
        assert!(!front.log_lines().concat().contains(PASSWORD));
    }
}
