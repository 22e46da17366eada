//! More sessions than slots, all at once.
use futures_util::future::join_all;

use crate::Stage;
use crate::talk::Talk;

pub(crate) async fn more_sessions_than_slots_at_once_all_get_their_own_answer(stage: &mut Stage) {
    let mut talks = Talk::all(&stage.router.url(), &["a", "b", "c", "d", "e", "f"]);
    let server = stage.server.url();
    for _ in 0..2 {
        let answers = join_all(talks.iter_mut().map(Talk::say_streamed)).await;
        let mut ids = Vec::new();
        for ((streamed, prompt), talk) in answers.iter().zip(&talks) {
            let [id] = streamed.ids.as_slice() else { panic!("answers are mixed up: {streamed:?}") };
            ids.push(id);
            assert_eq!(prompt.tokens, talk.tokens_of_last_turn(&server).await, "{streamed:?}");
        }
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), talks.len(), "each answer should have an id of its own");
    }
    stage.server.assert_no_busy_slot_was_named().await;
    for slot in stage.server.slots().await {
        assert_eq!(slot["is_processing"], false, "{slot:#}");
    }
}
