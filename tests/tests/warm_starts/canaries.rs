//! Eight sessions on three slots, all at once, while saves are held and fail and the server restarts: each answer holds
//! the word its own request gave, and no other's.
use session_slot_tests::client::{self, words};
use session_slot_tests::fake::{DAMAGED, Faults};
use session_slot_tests::{Options, Session};

use crate::small;
use crate::stage::Stage;

const SESSIONS: usize = 8;
const TURNS: usize = 5;
const SEEDS: std::ops::Range<u64> = 0..6;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn canary(session: usize, turn: usize) -> String {
    format!("canary{session}x{turn}y")
}

/// All turns of one session. What fails because the server is away is sent again.
async fn talk(mut talk: Session, session: usize) {
    for turn in 0..TURNS {
        let text = format!("ECHO:{} {}", canary(session, turn), words(&format!("{session}-{turn}-"), 150));
        let answer = loop {
            let answer = client::send(talk.turn(&text)).await;
            if talk.keep(&text, &answer) {
                break answer;
            }
            assert!(answer.status.is_server_error(), "{}: {}", answer.status, answer.text());
        };
        let said = answer.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned();
        assert!(said.starts_with(&canary(session, turn)), "session {session}, turn {turn}: {said}");
        assert_eq!(answer.text().matches("canary").count(), 1, "session {session}, turn {turn}: {said}");
        assert!(!answer.text().contains(DAMAGED), "session {session}, turn {turn}: {said}");
    }
}

/// Something else goes wrong each time a few requests have come, or an action that was held is let go.
async fn trouble(stage: &Stage, mut dice: Dice) {
    let fake = &stage.fake;
    loop {
        let next = fake.look(|state| state.slot_taker_count()) + 1 + dice.throw(6) as usize;
        fake.wait_until("more requests", |state| state.slot_taker_count() >= next || state.action_held())
            .await;
        if fake.look(|state| state.action_held()) {
            // Longer than `/slots` may be silent without being taken for busy.
            tokio::time::sleep(std::time::Duration::from_millis(100 * dice.throw(4))).await;
            fake.faults(|faults| *faults = Faults::default());
            continue;
        }
        match dice.throw(6) {
            0 => stage.restart_server().await,
            1 => fake.faults(|faults| faults.hold_saves = true),
            2 => fake.faults(|faults| faults.hold_restores = true),
            3 => fake.faults(|faults| faults.fail_saves = !faults.fail_saves),
            4 => fake.faults(|faults| faults.room = Some(5000)),
            _ => fake.faults(|faults| *faults = Faults::default()),
        }
    }
}

/// One run; how many states were restored, and how many of these were reused by who came next.
async fn play(options: Options, seed: u64) -> (usize, usize) {
    let mut stage = Stage::open(options.slots(3)).await;
    stage.leaves_states = true;
    let talks: Vec<_> = (0..SESSIONS).map(|n| tokio::spawn(talk(stage.talk(&format!("s{n}")), n))).collect();
    let all = async {
        for one in talks {
            one.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    };
    tokio::select! {
        () = all => {}
        () = trouble(&stage, Dice(seed)) => {}
    }
    stage.fake.faults(|faults| *faults = Faults::default());
    stage.router.wait_quiet().await;
    stage.fake.assert_clean();
    let launches = stage.fake.launches();
    let restored: Vec<_> = launches.iter().filter_map(|launch| Some((launch, launch.restored?))).collect();
    let reused = restored.iter().filter(|(launch, tokens)| launch.cache_n + 64 >= *tokens).count();
    (restored.len(), reused)
}

/// The server may go between a restore and its request, which is not sent then: whoever comes next to that slot finds a
/// state that was not meant for it, and reads everything. But that is the exception.
async fn play_all(options: Options) {
    let (mut restored, mut reused) = (0, 0);
    for seed in SEEDS {
        let counts = play(options.clone(), seed).await;
        (restored, reused) = (restored + counts.0, reused + counts.1);
    }
    assert!(restored > 0, "nothing was ever restored: this test has shown nothing");
    assert!(reused * 3 > restored * 2, "{reused} of {restored} restored states were reused");
}

#[tokio::test]
async fn no_answer_ever_holds_another_sessions_canary() {
    play_all(small(3)).await;
}

#[tokio::test]
async fn no_answer_ever_holds_another_sessions_canary_where_idle_slots_are_cleared() {
    play_all(Options { ram_cache_tokens: 300, ..Options::default_settings() }).await;
}
