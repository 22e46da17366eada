//! How much may be saved, and what goes when there is no more room.
use session_slot_tests::Session;

use crate::stage::Stage;
use crate::{LEFT, reused, small, text};

/// What a first turn's state takes.
const STATE: u64 = 68 + 100 * LEFT;

fn taken(stage: &Stage) -> u64 {
    let sizes = stage.files().into_iter().map(|name| std::fs::metadata(stage.states().join(name)));
    sizes.filter_map(Result::ok).map(|file| file.len()).sum()
}

#[tokio::test]
async fn states_never_take_more_than_max_bytes() {
    const ROOM: u64 = 6 * STATE;
    let stage = Stage::with(small(1), &format!("max_bytes = {ROOM}")).await;
    let ids = ["a", "b", "c", "d"];
    let mut talks: Vec<Session> = ids.iter().map(|id| stage.talk(id)).collect();
    let mut found = 0;
    // Three turns of all four take nine times what one takes.
    for turn in 0..4 {
        for (talk, id) in talks.iter_mut().zip(ids) {
            found += reused(&talk.say(&text(id, turn)).await);
            assert!(taken(&stage) <= ROOM, "{} bytes in turn {turn} of {id}", taken(&stage));
        }
    }
    assert!(found > 0 && !stage.files().is_empty(), "{:?}", stage.story());
    let warm = stage.warm().await;
    assert_eq!(
        (warm["room"].as_u64(), warm["bytes"].as_u64()),
        (Some(ROOM), Some(taken(&stage))),
        "{warm:#}"
    );
}

#[tokio::test]
async fn where_there_is_no_room_for_one_state_nothing_is_saved_and_it_is_said_once() {
    let stage = Stage::with(small(1), &format!("max_bytes = {}", STATE / 2)).await;
    let mut talks = stage.first_turns(&["a", "b", "c"]).await;
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    assert_eq!((stage.story(), stage.files().len()), (["a", "b", "c", "a"].map(String::from).to_vec(), 0));
    assert_eq!(stage.warnings().len(), 1, "{:#?}", stage.warnings());
}

#[tokio::test]
async fn on_a_full_disk_requests_go_on_and_it_is_said_once() {
    let stage = Stage::open(small(1)).await;
    stage.fake.faults(|faults| faults.room = Some(5000));
    let mut talks = stage.first_turns(&["a", "b", "c"]).await;
    for (talk, id) in talks.iter_mut().zip(["a", "b", "c"]) {
        assert_eq!(reused(&talk.say(&text(id, 1)).await), 0);
    }
    // What a full disk has torn is not left there, and never sent: it would kill the server.
    assert_eq!((stage.files(), stage.asked("restore")), (Vec::new(), 0));
    assert_eq!(stage.warnings().len(), 1, "{:#?}", stage.warnings());
    let failures = stage.warm().await["save_failures"].as_u64();
    assert!(failures > Some(0));
}

#[tokio::test]
async fn a_save_that_fails_costs_nobody_his_answer() {
    let stage = Stage::open(small(1)).await;
    stage.fake.faults(|faults| faults.fail_saves = true);
    let mut talks = stage.first_turns(&["a", "b"]).await;
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    assert_eq!((stage.count("failed"), stage.count("restore a")), (2, 0));
}

#[tokio::test]
async fn a_full_disk_costs_the_first_turns_something_and_then_nothing_more() {
    let stage = Stage::open(small(1)).await;
    stage.fake.faults(|faults| faults.room = Some(10));
    stage.first_turns(&["a", "b", "c"]).await;
    let asked = stage.asked("save");
    assert!(asked >= 2, "the layout is not given up at once");
    stage.first_turns(&["d", "e", "f"]).await;
    assert_eq!(stage.asked("save"), asked);
}
