//! Restarts of either side between two turns.
use crate::talk::Talk;
use crate::{Stage, action_of, slot_of};

pub(crate) async fn a_restart_of_the_router_costs_no_reuse(stage: &mut Stage) {
    let mut talks = Talk::all(&stage.router.url(), &["a", "b", "c"]);
    let homes = round(&mut talks).await;
    round(&mut talks).await;
    stage.restart_router().await;
    for (talk, home) in talks.iter_mut().zip(homes) {
        talk.move_to(&stage.router.url());
        let before = talk.before.expect("it has had turns");
        let (answer, prompt) = talk.say().await;
        assert_eq!((action_of(&answer), slot_of(&answer)), ("home", home));
        assert!(prompt.reuses(before), "{}: {prompt:?} after {before:?}", talk.id);
    }
}

pub(crate) async fn after_a_restart_of_the_server_all_is_cold_and_works(stage: &mut Stage) {
    let mut talks = Talk::all(&stage.router.url(), &["a", "b"]);
    let homes = round(&mut talks).await;
    stage.server.assert_no_busy_slot_was_named().await;
    stage.server.restart().await;
    for (talk, home) in talks.iter_mut().zip(&homes) {
        let (answer, prompt) = talk.say().await;
        assert_eq!((action_of(&answer), slot_of(&answer)), ("home", *home));
        // Of what the session itself said nothing is left; the system text it shares with the others may be.
        assert!(prompt.cached * 2 < prompt.tokens, "{}: {prompt:?}", talk.id);
    }
    for talk in &mut talks {
        let before = talk.before.expect("it has had turns");
        let (answer, prompt) = talk.say().await;
        assert_eq!(action_of(&answer), "home");
        assert!(prompt.reuses(before), "{}: {prompt:?} after {before:?}", talk.id);
    }
}

/// One turn of each, in order; the slots they ran in.
async fn round(talks: &mut [Talk]) -> Vec<usize> {
    let mut slots = Vec::new();
    for talk in talks {
        slots.push(slot_of(&talk.say().await.0));
    }
    slots
}
