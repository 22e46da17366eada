//! Servers that clear idle slots (default settings): a turn's state is saved when it ends, before the next task clears it.
use session_slot_tests::client::{self, chat, words};
use session_slot_tests::fake::{Deed, What};
use session_slot_tests::{Options, Session};

use crate::stage::Stage;
use crate::{LEFT, reused, text};

/// Default settings, with a RAM cache that holds one session.
fn short_of_memory() -> Options {
    Options { ram_cache_tokens: 300, ..Options::default_settings() }
}

/// The router has seen what the server does to idle slots.
async fn taught(options: Options) -> Stage {
    let stage = Stage::open(options).await;
    for id in ["x", "y", "z"] {
        chat(&stage.router.url(), id, &words(id, 5)).await;
    }
    let learned = |status: &serde_json::Value| status["server"]["clears_idle"] == true;
    stage.router.wait_status("knowledge of the server", learned).await;
    stage
}

async fn rounds(talks: &mut [(Session, &str)], turns: std::ops::Range<usize>) -> Vec<u64> {
    let mut found = Vec::new();
    for turn in turns {
        for (talk, id) in talks.iter_mut() {
            found.push(reused(&talk.say(&text(id, turn)).await));
        }
    }
    found
}

fn talks<'a>(stage: &Stage, ids: &[&'a str]) -> Vec<(Session, &'a str)> {
    ids.iter().map(|id| (stage.talk(id), *id)).collect()
}

#[tokio::test]
async fn sessions_whose_states_the_ram_cache_can_not_hold_find_them_again() {
    for sessions in [3, 4, 6] {
        let stage = taught(short_of_memory()).await;
        let ids = &["a", "b", "c", "d", "e", "f"][..sessions];
        let mut talks = talks(&stage, ids);
        // What the RAM cache is good for is seen in the first rounds.
        rounds(&mut talks, 0..3).await;
        for (talk, id) in &mut talks {
            let found = reused(&talk.say(&text(id, 3)).await);
            assert_eq!(found, LEFT + 2 * (LEFT + 1), "{id} of {sessions}: {:?}", stage.story());
        }
    }
}

#[tokio::test]
async fn a_beginning_too_short_for_a_file_comes_from_the_ram_cache_and_whose_it_was_finds_its_state_again() {
    let stage = taught(Options::default_settings()).await;
    let ids = ["a", "b", "c", "d", "e", "f"];
    let mut talks = ids.map(|id| (stage.talk(id).system(&words("system", 90)), id));
    for turn in 0..3 {
        for (talk, id) in &mut talks {
            let found = reused(&talk.say(&words(&format!("{id}-{turn}-"), 50)).await);
            let expected = if turn == 0 { 90 } else { 90 + 53 + (turn as u64 - 1) * 54 };
            let is_first = turn == 0 && *id == "a";
            assert_eq!(
                found,
                if is_first { 0 } else { expected },
                "turn {turn} of {id}: {:?}",
                stage.story()
            );
        }
    }
}

#[tokio::test]
async fn what_is_too_short_for_a_file_is_lent_once_and_says_nothing_of_the_ram_cache() {
    let stage = taught(Options::default_settings()).await;
    let ids = ["a", "b", "c"];
    let mut talks = ids.map(|id| (stage.talk(id).system(&words("system", 70)), id));
    let first = rounds_of(&mut talks, 0, 8).await;
    assert_eq!(first, [0, 70, 70], "{:?}", stage.story());
    // Who was there before goes on from what it or another one left.
    let second = rounds_of(&mut talks, 1, 8).await;
    assert!(second.iter().all(|found| *found >= 70), "{second:?}: {:?}", stage.story());
    let status = stage.router.status().await;
    assert!(
        !status["server"]["advice"].to_string().contains("--cache-ram"),
        "{}",
        status["server"]["advice"]
    );
}

/// One turn of each, of so many words; how much each of them found.
async fn rounds_of(talks: &mut [(Session, &str)], turn: usize, own: usize) -> Vec<u64> {
    let mut found = Vec::new();
    for (talk, id) in talks {
        found.push(reused(&talk.say(&words(&format!("{id}-{turn}-"), own)).await));
    }
    found
}

#[tokio::test]
async fn a_turn_is_saved_before_the_next_task_is_launched() {
    let stage = taught(short_of_memory()).await;
    let mut talks = talks(&stage, &["a", "b", "c", "d"]);
    rounds(&mut talks, 0..4).await;
    let story = stage.story();
    // Whoever is restored was saved, whole, when nothing had been launched since its turn.
    for (index, step) in story.iter().enumerate().filter(|(_, step)| step.starts_with("save ")) {
        let session = step.trim_start_matches("save ");
        let launched = story[..index].iter().rev().find(|step| !step.contains(' '));
        assert_eq!(launched.map(String::as_str), Some(session), "{index}: {story:?}");
    }
    assert!(story.iter().any(|step| step.starts_with("save ")), "{story:?}");
}

#[tokio::test]
async fn the_very_first_turn_is_saved_when_it_ends() {
    let stage = Stage::open(short_of_memory()).await;
    stage.first_turns(&["a"]).await;
    stage.wait_saved(1).await;
    assert_eq!(stage.story(), ["a", "save a"]);
}

#[tokio::test]
async fn turns_of_a_route_that_may_not_heed_the_slot_are_measured_saved_and_restored_as_well() {
    let stage = Stage::open(short_of_memory()).await;
    let say = async |id: &str, more: &[&str]| {
        let mut body = client::chat_body(Some(id), &text(id, 0));
        body["max_tokens"] = 4.into();
        let further = more.iter().zip(["assistant", "user"]);
        let further = further.map(|(said, role)| serde_json::json!({"role": role, "content": said}));
        body["messages"].as_array_mut().expect("a list").extend(further);
        let answer = client::post_json(format!("{}/v1/messages", stage.router.url()), body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    for (id, count) in [("a", 1), ("b", 2), ("c", 3)] {
        say(id, &[]).await;
        stage.wait_saved(count).await;
    }
    say("a", &["out0 out1 out2 out3", "and then?"]).await;
    assert_eq!(stage.count("restore a"), 1, "{:?}", stage.story());
}

#[tokio::test]
async fn nothing_comes_between_a_restore_and_its_turn() {
    let stage = taught(short_of_memory()).await;
    let talks = talks(&stage, &["a", "b", "c", "d", "e", "f"]).into_iter().map(|(mut talk, id)| {
        let id = id.to_owned();
        tokio::spawn(async move {
            for turn in 0..6 {
                talk.say(&text(&id, turn)).await;
            }
        })
    });
    for talk in talks.collect::<Vec<_>>() {
        talk.await.expect("it should end");
    }
    let deeds = stage.fake.deeds();
    let mut restores = 0;
    for pair in deeds.windows(2) {
        if let What::Restored(_, tokens) = &pair[0].what {
            restores += 1;
            let What::Launched(launch) = &pair[1].what else { panic!("{pair:?}") };
            assert_eq!((launch.slot, launch.restored), (pair[0].slot, Some(*tokens)), "{pair:?}");
        }
    }
    assert!(restores > 0, "{deeds:?}");
}

#[tokio::test]
async fn while_a_turn_is_saved_the_next_one_waits() {
    let stage = taught(short_of_memory()).await;
    let mut talks = talks(&stage, &["a", "b", "c"]);
    rounds(&mut talks, 0..3).await;
    let is_saved = |deed: &Deed| matches!(deed.what, What::Saved(..));
    stage.fake.wait_until("c saved", |state| state.deeds().last().is_some_and(is_saved)).await;
    stage.fake.faults(|faults| faults.hold_saves = true);
    let (a, b) = (talks[0].0.turn(&text("a", 3)), talks[1].0.turn(&text("b", 3)));
    assert_eq!(client::send(a).await.status, 200);
    stage.fake.wait_until("a held save", |state| state.action_held()).await;
    let launched = stage.fake.launches().len();
    let waiting = client::send_later(b);
    stage.router.wait_waiting(1).await;
    assert_eq!(stage.fake.launches().len(), launched);
    stage.fake.faults(|faults| faults.hold_saves = false);
    assert!(reused(&waiting.await.expect("it should end")) >= LEFT);
}

#[tokio::test]
async fn with_ample_memory_warm_starts_cost_no_reuse() {
    let stage = taught(Options::default_settings()).await;
    let mut talks = talks(&stage, &["a", "b", "c", "d", "e", "f"]);
    let found = rounds(&mut talks, 0..4).await;
    for (index, found) in found.iter().enumerate().skip(6) {
        let turn = index as u64 / 6;
        assert_eq!(*found, LEFT + (turn - 1) * (LEFT + 1), "{index}");
    }
}
