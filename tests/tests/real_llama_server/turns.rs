//! One turn at a time.
use crate::talk::Talk;
use crate::{PRIMER, Stage, action_of, slot_of};

/// What the chat template adds to a turn, and one token at either end that may be read again.
const AROUND_A_TURN: u64 = 40;

/// Six sessions on four slots, in an order in which some return while they have their slot and some do not.
const ORDER: &str = "abcd abcd ef ef cd abcdef";
/// New, home or evicting, turn by turn: the least recently used slot is taken.
const ACTIONS: &str = "nnnn hhhh ee hh hh eehhee";

pub(crate) async fn sessions_that_still_have_their_slot_find_what_they_sent(stage: &mut Stage) {
    let mut talks = Talk::all(&stage.router.url(), &["a", "b", "c", "d", "e", "f"]);
    let mut seen = Vec::new();
    for (id, expected) in letters(ORDER).zip(letters(ACTIONS)) {
        let talk = talks.iter_mut().find(|talk| talk.id.starts_with(id)).expect("the order names no other");
        let before = talk.before;
        let counted = stage.server.counters().await;
        let (answer, prompt) = talk.say().await;
        let counted = stage.server.counters().await.since(counted);
        let (action, slot) = (action_of(&answer).to_owned(), slot_of(&answer));
        seen.push(format!("{id}: {action}, slot {slot}, {prompt:?}, server {counted:?}, before {before:?}"));
        assert!(action.starts_with(expected), "{seen:#?}");
        // What the answer tells is what the server counts, but for a primer.
        let primer = (prompt.cached + counted.computed).checked_sub(prompt.tokens);
        assert!(primer.is_some_and(|primer| primer <= PRIMER), "{seen:#?}");
        let (Some(before), "home") = (before, action.as_str()) else { continue };
        assert!(prompt.reuses(before) && counted.cached >= prompt.cached, "{seen:#?}");
    }
}

fn letters(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|letter| *letter != ' ')
}

pub(crate) async fn two_sessions_in_turn_compute_little_more_than_what_is_new(stage: &mut Stage) {
    let mut talks = Talk::all(&stage.router.url(), &["a", "b"]);
    for turn in 0..4 {
        for talk in &mut talks {
            let before = talk.before;
            let counted = stage.server.counters().await;
            let (_, prompt) = talk.say().await;
            let counted = stage.server.counters().await.since(counted);
            let Some(before) = before else { continue };
            let allowed = prompt.tokens - before.tokens + AROUND_A_TURN;
            assert!(counted.computed <= allowed, "turn {turn} of {}: {counted:?} of {prompt:?}", talk.id);
        }
    }
}
