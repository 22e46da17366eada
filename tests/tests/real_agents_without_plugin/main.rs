//! Real agents as their users run them, with nothing of ours installed: each says two turns of one session through the
//! router to a fake server. Nobody tells the router of sessions; it finds them in what the agents send anyway.
mod claude_code;
mod codex;
mod opencode;
mod pi;
mod talk;
mod waiting;

use std::collections::BTreeSet;

use serde_json::Value;
use session_slot_tests::fake::Received;
use session_slot_tests::{FakeLlama, Options, Router};

use talk::{Agent, Talk};
use waiting::waiting_scenarios;

/// A server with room for the long prompts of agents. It says a few words whatever limit is set, and they set high ones.
fn server() -> FakeLlama {
    FakeLlama::start(options())
}

fn options() -> Options {
    Options { n_ctx: 100_000, sse_events: Some(4), ..Options::default() }
}

/// Two turns, and the agent's own side calls among them, are one session: under the agent's name and the session's id,
/// all in one slot, where the second turn finds the first.
async fn two_turns_are_one_session_in_one_slot(agent: &dyn Agent) {
    let fake = server();
    let router = Router::start(&fake).await;
    let mut talk = Talk::start(agent, &router.url());
    let session = talk.say("Say hello, please.").await;
    assert_eq!(talk.say("And once more.").await, session, "the agent should go on with its session");
    router.terminate().await;
    let lines = generations(&router);
    assert_eq!(lines.len(), 2 + agent.side_calls(), "{lines:?}");
    for (index, line) in lines.iter().enumerate() {
        assert_eq!((&line["agent_name"], &line["agent_session_id"]), (&agent.name().into(), &session));
        assert_eq!(line["action"], if index == 0 { "new" } else { "home" }, "{line}");
        assert_eq!((&line["slot"], &line["status"]), (&lines[0]["slot"], &200.into()), "{line}");
    }
    let launches = fake.launches();
    assert!(launches.iter().all(|launch| launch.slot == launches[0].slot), "{launches:?}");
    let last = launches.last().expect("the turns should have run");
    assert!(last.cache_n > 10 * last.prompt_n, "its slot did not hold the turn before: {launches:?}");
}

/// The log's lines of requests that take a slot.
fn generations(router: &Router) -> Vec<Value> {
    router.request_log().into_iter().filter(|line| line["action"] != "pass").collect()
}

/// What an agent sends comes to the server as if no router were there, but for `id_slot` and for the codings it would
/// take an answer in, which nothing could be put into: no other header and no member is gone or new, and the session's id is still wherever the agent has put it.
async fn all_it_sends_arrives(agent: &dyn Agent) {
    let alone = server();
    Talk::start(agent, &alone.url()).say("Say hello, please.").await;
    let fake = server();
    let router = Router::start(&fake).await;
    let session = Talk::start(agent, &router.url()).say("Say hello, please.").await;
    let (sent, arrived) = (turn(&alone), turn(&fake));
    assert_eq!(arrived.target, sent.target);
    assert_eq!(headers(&arrived), headers(&sent));
    let mut members = members(&sent);
    members.insert("id_slot".to_owned());
    assert_eq!(self::members(&arrived), members);
    for told in agent.sessions_told(&arrived) {
        assert_eq!(told, session);
    }
}

/// The turn itself; side calls are shorter.
fn turn(fake: &FakeLlama) -> Received {
    let turn = fake.received().into_iter().max_by_key(|request| request.body.len());
    turn.expect("a turn should have come")
}

/// All header names but that of the connection itself, which ends at the router, and that of the codings.
fn headers(request: &Received) -> BTreeSet<String> {
    let names = request.headers.keys().map(ToString::to_string);
    names.filter(|name| !["connection", "accept-encoding"].contains(&name.as_str())).collect()
}

fn members(request: &Received) -> BTreeSet<String> {
    request.json().as_object().map(|body| body.keys().cloned().collect()).unwrap_or_default()
}
