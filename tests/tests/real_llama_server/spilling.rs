//! A side call beside a turn that runs, of the same session.
use serde_json::json;
use session_slot_tests::client;

use crate::leaving::wait_processing;
use crate::talk::{Prompt, Talk, prose};
use crate::{Stage, action_of, slot_of};

/// Longer than a title takes.
const LONG: u64 = 150;

pub(crate) async fn after_a_side_call_elsewhere_the_next_turn_reuses_what_was_sent(stage: &mut Stage) {
    let mut talk = Talk::new(&stage.router.url(), "a");
    let (first, before) = talk.say().await;
    let home = slot_of(&first);
    let mut main = talk.clone();
    main.ask();
    let main = client::send_later(main.request(&json!({"max_tokens": LONG, "ignore_eos": true})));
    wait_processing(stage, home).await;
    let text = prose("a title for this", 60);
    let title =
        json!({"messages": [{"role": "user", "content": text}], "max_tokens": 4, "agent_session_id": "a"});
    let url = format!("{}/v1/chat/completions", stage.router.url());
    let title = client::post_json(url, title.to_string()).await;
    assert!(!main.is_finished(), "the title should not have waited for the turn");
    assert_eq!(action_of(&title), "spill");
    assert_ne!(slot_of(&title), home);
    let main = main.await.expect("it should end");
    assert_eq!((slot_of(&main), Prompt::of(&main.json()["usage"]).reuses(before)), (home, true));
    let (next, prompt) = talk.say().await;
    assert_eq!((action_of(&next), slot_of(&next)), ("home", home));
    assert!(prompt.reuses(before), "{prompt:?} after {before:?}");
}
