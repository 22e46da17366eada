//! A session that loses its slot is saved first, and finds its state again wherever it comes back.
use session_slot_tests::client;

use crate::stage::Stage;
use crate::{LEFT, reused, slot_of, small, text};

#[tokio::test]
async fn an_eviction_saves_before_the_new_request_is_sent_and_the_return_restores_and_reuses() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    assert_eq!(stage.story(), ["a", "save a", "b"]);
    let answer = talks[0].say(&text("a", 1)).await;
    assert_eq!(reused(&answer), LEFT);
    assert_eq!(stage.story()[3..], ["save b", "restore a", "a"]);
    let warm = stage.warm().await;
    assert_eq!((&warm["standing"], &warm["saved"]), (&"on".into(), &2.into()), "{warm:#}");
    assert_eq!((&warm["restored"], &warm["reused"]), (&1.into(), &1.into()), "{warm:#}");
    assert_eq!((&warm["unreused"], &warm["save_failures"]), (&0.into(), &0.into()), "{warm:#}");
}

#[tokio::test]
async fn in_a_cycle_of_more_sessions_than_slots_every_return_reuses_all_that_was_left() {
    let stage = Stage::open(small(2)).await;
    let ids = ["a", "b", "c", "d", "e"];
    let mut talks = stage.first_turns(&ids).await;
    for turn in 1..4 {
        for (talk, id) in talks.iter_mut().zip(ids) {
            let answer = talk.say(&text(id, turn)).await;
            // Each turn adds its words and the four that were said.
            let left = LEFT + (turn as u64 - 1) * (LEFT + 1);
            assert_eq!(reused(&answer), left, "turn {turn} of {id}: {:?}", stage.story());
        }
    }
}

#[tokio::test]
async fn a_state_is_restored_into_another_slot_than_it_came_from() {
    let stage = Stage::open(small(2)).await;
    let mut a = stage.talk("a");
    let first = slot_of(&a.say(&text("a", 0)).await);
    let mut others = stage.first_turns(&["b", "c"]).await;
    // `c` has taken the place of `a`; now `b` is the one not seen for longest.
    others[1].say(&text("c", 1)).await;
    let answer = a.say(&text("a", 1)).await;
    assert_ne!(slot_of(&answer), first);
    assert_eq!(reused(&answer), LEFT);
}

#[tokio::test]
async fn a_session_whose_old_slot_is_at_work_is_restored_into_a_free_one() {
    let stage = Stage::open(small(2)).await;
    let mut a = stage.talk("a");
    let first = slot_of(&a.say(&text("a", 0)).await);
    let others = stage.first_turns(&["b", "c"]).await;
    let running = client::send_later(others[1].turn(&format!("HOLD:c {}", text("c", 1))));
    stage.fake.wait_processing(1).await;
    let answer = a.say(&text("a", 1)).await;
    assert_eq!((slot_of(&answer) == first, reused(&answer)), (false, LEFT));
    stage.fake.release("c");
    assert_eq!(running.await.expect("it should end").status, 200);
}

#[tokio::test]
async fn a_restore_is_followed_by_its_turn_in_the_same_slot() {
    let stage = Stage::open(small(2)).await;
    let ids = ["a", "b", "c", "d"];
    let talks = stage.first_turns(&ids).await;
    let talks = talks.into_iter().zip(ids).map(|(mut talk, id)| {
        tokio::spawn(async move {
            for turn in 1..5 {
                talk.say(&text(id, turn)).await;
            }
        })
    });
    for talk in talks.collect::<Vec<_>>() {
        talk.await.expect("it should end");
    }
    let steps = stage.steps();
    let restores = steps.iter().enumerate().filter(|(_, (_, what))| what.starts_with("restore "));
    let restores: Vec<_> = restores.collect();
    assert!(!restores.is_empty(), "{steps:?}");
    for (index, (slot, what)) in restores {
        let next = steps[index + 1..].iter().find(|(other, _)| other == slot);
        let session = what.trim_start_matches("restore ");
        assert_eq!(next.map(|(_, what)| what.as_str()), Some(session), "{index}: {steps:?}");
    }
}

#[tokio::test]
async fn a_session_that_still_has_its_slot_is_neither_saved_nor_restored() {
    let stage = Stage::open(small(2)).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    for (talk, id) in talks.iter_mut().zip(["a", "b"]) {
        assert_eq!(reused(&talk.say(&text(id, 1)).await), LEFT);
    }
    assert_eq!(stage.story(), ["a", "b", "a", "b"]);
}

#[tokio::test]
async fn what_is_shorter_than_min_tokens_is_not_saved() {
    let stage = Stage::open(small(1)).await;
    for turn in 0..3 {
        for id in ["a", "b"] {
            client::chat(&stage.router.url(), id, &client::words(&format!("{id}-{turn}-"), 50)).await;
        }
    }
    assert_eq!(
        (stage.asked("restore"), stage.story()),
        (0, ["a", "b", "a", "b", "a", "b"].map(String::from).to_vec())
    );
}

#[tokio::test]
async fn with_warm_starts_disabled_the_server_is_not_even_asked() {
    let stage = Stage::with(small(1), "enabled = false").await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    let actions = |target: &str| target.starts_with("/slots/");
    let asked = stage.fake.look(|state| state.received().iter().any(|one| actions(&one.target)));
    assert!(!asked);
    stage.wait_standing("disabled").await;
}

#[tokio::test]
async fn while_a_save_takes_long_its_eviction_waits_and_nothing_is_lost() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a"]).await;
    stage.fake.faults(|faults| faults.hold_saves = true);
    let evicting = client::send_later(stage.talk("b").turn(&text("b", 0)));
    stage.fake.wait_until("a held save", |state| state.action_held()).await;
    assert_eq!(stage.story(), ["a"]);
    stage.fake.faults(|faults| faults.hold_saves = false);
    assert_eq!(evicting.await.expect("it should end").status, 200);
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), LEFT);
}
