//! Requests that belong to no session, beside some that do.
use futures_util::future::join_all;
use serde_json::json;
use session_slot_tests::client;

use crate::talk::{Prompt, Talk, prose};
use crate::{Stage, action_of};

/// Of each kind.
const REQUESTS: usize = 4;

pub(crate) async fn requests_without_a_session_get_along_with_sessions(stage: &mut Stage) {
    let (router, server) = (stage.router.url(), stage.server.url());
    let mut talks = Talk::all(&router, &["a", "b", "c"]);
    let sessions = join_all(talks.iter_mut().map(async |talk| {
        for _ in 0..2 {
            let (_, prompt) = talk.say().await;
            assert_eq!(prompt.tokens, talk.tokens_of_last_turn(&server).await);
        }
    }));
    let chats = join_all((0..REQUESTS).map(|n| chat(&router, &server, n)));
    let completions = join_all((0..REQUESTS).map(|n| completion(&router, n)));
    tokio::join!(sessions, chats, completions);
    let totals = &stage.router.status().await["server"]["totals"];
    assert_eq!(totals["anonymous"], 2 * REQUESTS, "{totals:#}");
}

async fn chat(router: &str, server: &str, number: usize) {
    let mut talk = Talk::new(router, &format!("nobody{number}"));
    talk.ask();
    let answer = client::post_json(format!("{router}/v1/chat/completions"), talk.body().to_string()).await;
    assert_eq!((answer.status.as_u16(), action_of(&answer)), (200, "anonymous"), "{}", answer.text());
    let prompt = Prompt::of(&answer.json()["usage"]);
    assert_eq!(prompt.tokens, talk.tokens_at(server).await);
}

async fn completion(router: &str, number: usize) {
    let prompt = prose(&format!("completion{number}"), 60);
    let body = json!({"prompt": prompt, "n_predict": 8, "temperature": 0});
    let answer = client::post_json(format!("{router}/completion"), body.to_string()).await;
    assert_eq!((answer.status.as_u16(), action_of(&answer)), (200, "anonymous"), "{}", answer.text());
    // The server repeats the prompt it answered, begun with its own mark.
    let answered = answer.json()["prompt"].as_str().unwrap_or_default().to_owned();
    assert!(answered.ends_with(&prompt), "{answered:?} is not {prompt:?}");
}
