//! Every route that takes a slot, whole and streamed.
use futures_util::future::join_all;
use serde_json::{Value, json};
use session_slot_tests::client;

use crate::talk::{Talk, prose};
use crate::{PRIMER, Stage};

/// The routes on which every llama-server takes the slot that is named, and what their bodies hold.
fn routes() -> [(&'static str, Value); 4] {
    let text = |name: &str| prose(name, 60);
    [
        ("/completion", json!({"prompt": text("completion"), "n_predict": 6})),
        ("/v1/completions", json!({"prompt": text("completions"), "max_tokens": 6})),
        ("/v1/chat/completions", json!({"messages": [user(&text("chat"))], "max_tokens": 6})),
        ("/v1/responses", json!({"input": text("responses"), "max_output_tokens": 6})),
    ]
}

/// llama-server reads no `id_slot` here (builds up to b11549 at least) and chooses the slot itself.
const MESSAGES: &str = "/v1/messages";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) async fn every_route_goes_to_the_slot_of_its_session_and_is_accounted_for(stage: &mut Stage) {
    let start = stage.server.counters().await;
    for (home, (path, body)) in routes().into_iter().enumerate() {
        for turn in two_turns(stage, path, body).await {
            assert_eq!((turn.told, turn.slot), (Some(home), home), "{path}");
        }
    }
    let counted = stage.server.counters().await.since(start);
    let totals = stage.router.status().await["server"]["totals"].clone();
    let (computed, primed) = (number(&totals["prompt_computed"]), number(&totals["primed"]));
    assert_eq!((&totals["new"], &totals["home"]), (&json!(4), &json!(4)), "{totals:#}");
    assert_eq!(counted.computed, computed + primed * PRIMER, "{counted:?}, {totals:#}");
    assert_eq!(counted.cached, number(&totals["prompt_cached"]), "{counted:?}, {totals:#}");
}

pub(crate) async fn messages_are_never_said_to_be_in_a_slot_they_are_not_in(stage: &mut Stage) {
    // Its slot is one llama-server would choose by itself for what comes next.
    Talk::new(&stage.router.url(), "a").say().await;
    let messages = [user(&prose("messages", 60))];
    for turn in two_turns(stage, MESSAGES, json!({"messages": messages, "max_tokens": 6})).await {
        assert!(turn.told.is_none_or(|told| told == turn.slot), "{turn:?}");
    }
}

pub(crate) async fn messages_and_chats_at_once_get_along(stage: &mut Stage) {
    let url = stage.router.url();
    let mut talks = Talk::all(&url, &["a", "b", "c"]);
    let chats = join_all(talks.iter_mut().map(async |talk| {
        for _ in 0..3 {
            talk.say().await;
        }
    }));
    let messages = join_all(["x", "y", "z"].map(async |id| {
        for turn in 0..3 {
            let text = prose(&format!("{id}{turn}"), 60);
            let body =
                json!({"messages": [user(&text)], "max_tokens": 8, "temperature": 0, "agent_session_id": id});
            let answer = client::post_json(format!("{url}{MESSAGES}"), body.to_string()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
    }));
    tokio::join!(chats, messages);
}

/// What the router said of a request, and what the server did.
#[derive(Debug)]
struct Turn {
    /// The slot in the answer's headers.
    told: Option<usize>,
    /// The slot it ran in.
    slot: usize,
    computed: u64,
    cached: u64,
}

/// The same request twice, the second time streamed. The second one reuses the first.
async fn two_turns(stage: &Stage, path: &str, mut body: Value) -> [Turn; 2] {
    body["temperature"] = json!(0);
    body["agent_session_id"] = json!(format!("session of {path}"));
    // A slot that is not there: the router's own choice counts.
    body["id_slot"] = json!(77);
    let first = turn(stage, path, &body).await;
    body["stream"] = json!(true);
    let second = turn(stage, path, &body).await;
    assert!(second.cached * 10 >= (first.computed + first.cached) * 9, "{path}: {second:?} after {first:?}");
    [first, second]
}

/// One request. The router's account of it is the server's.
async fn turn(stage: &Stage, path: &str, body: &Value) -> Turn {
    let before = stage.server.counters().await;
    // A line is written a little after its answer; all earlier ones shall be there to be counted.
    let earlier = number(&stage.router.status().await["server"]["totals"]["requests"]) as usize;
    stage.router.wait_requests(earlier).await;
    let answer = client::post_json(format!("{}{path}", stage.router.url()), body.to_string()).await;
    let text = answer.text();
    assert_eq!(answer.status, 200, "{path}: {text}");
    assert_eq!(text.contains("data: "), body["stream"] == true, "{path}: {text}");
    let line = stage.router.wait_requests(earlier + 1).await.remove(earlier);
    assert_eq!(line["route"], path);
    let (computed, cached) = (number(&line["prompt_computed"]), number(&line["prompt_cached"]));
    let counted = stage.server.counters().await.since(before);
    assert!([0, PRIMER].contains(&(counted.computed - computed)), "{path}: {counted:?}, but {line:#}");
    assert_eq!(counted.cached, cached, "{path}: {counted:?}, but {line:#}");
    let slots = stage.server.slots().await;
    let newest = (0..slots.len()).max_by_key(|slot| slots[*slot]["id_task"].as_i64());
    let slot = newest.expect("there should be slots");
    // A primer counts as a generated token too; the last token said is not held.
    let generated = counted.generated - u64::from(counted.computed > computed);
    assert_eq!(
        number(&slots[slot]["n_prompt_tokens"]),
        computed + cached + generated - 1,
        "{path}: {counted:?}"
    );
    let told = answer.header("x-slot-router-slot").map(|told| told.parse().expect("it should be a number"));
    Turn { told, slot, computed, cached }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}
