//! Three servers: who lives where, while one of them is killed and comes back.
use std::fmt::Write;

use futures_util::future::join_all;
use serde_json::{Value, json};
use session_slot_tests::client::words;
use session_slot_tests::{Answer, RealLlama, Router, Session};

use crate::{is_up, server, server_of};

const NAMES: [&str; 3] = ["a", "b", "c"];
const SESSIONS: [&str; 6] = ["s", "t", "u", "v", "w", "x"];

struct Talk {
    session: Session,
    home: String,
    /// Tokens of the last prompt.
    before: u64,
}

impl Talk {
    fn new(router: &Router, id: &str) -> Self {
        let session = Session::new(&router.url(), id).members(json!({"max_tokens": 8, "temperature": 0}));
        Self { session, home: String::new(), before: 0 }
    }

    /// The next turn, which asks for a server of its own if it is the first: whether it found what the last one had.
    async fn say(&mut self, text: &str) -> bool {
        let answer = self.session.say(text).await;
        let found = answer.cache_n().is_some_and(|cached| cached * 10 >= self.before * 9);
        self.before = prompt(&answer);
        server_of(&answer).clone_into(&mut self.home);
        found
    }
}

fn prompt(answer: &Answer) -> u64 {
    answer.json()["usage"]["prompt_tokens"].as_u64().expect("usage should be there")
}

async fn router_before(servers: &[RealLlama]) -> Router {
    let mut config = String::new();
    for (name, server) in NAMES.iter().zip(servers) {
        writeln!(config, "[[server]]\nname = \"{name}\"\nurl = \"{}\"\nmodels = [\"m\"]", server.url())
            .expect("a string can be written to");
    }
    let router = Router::in_front_of("").no_upstream_flag().config(&config).start().await;
    router.wait_status("all servers", |status| NAMES.iter().all(|name| is_up(status, name))).await;
    router
}

/// The next turn of all at once; each stays at home and finds what it had there.
async fn all_at_home(talks: &mut [Talk], text: &str) {
    join_all(talks.iter_mut().map(async |talk| {
        let home = talk.home.clone();
        let found = talk.say(text).await;
        assert!(found && talk.home == home, "found {found}, from {home} to {}", talk.home);
    }))
    .await;
}

fn hits(status: &Value) -> u64 {
    NAMES.iter().filter_map(|name| server(status, name)["hits"].as_u64()).sum()
}

#[tokio::test]
#[ignore = "needs a real llama-server: scripts/test.sh sets it up"]
async fn conversations_live_on_three_servers_and_only_those_of_a_killed_one_move() {
    let mut servers = RealLlama::start_several(3, &[]).await;
    let router = router_before(&servers).await;
    let status = router.status().await;
    for name in NAMES {
        // Left to itself llama-server has four slots, which share all of its memory.
        let shown = server(&status, name);
        let pool = (&shown["slots"], &shown["kv"], &shown["budget_total"]);
        assert_eq!(pool, (&json!(4), &json!("shared"), &json!(8192 * 9 / 10)), "{shown:#}");
    }
    let mut talks = Vec::new();
    for id in SESSIONS {
        let mut talk = Talk::new(&router, id);
        talk.say(&words(id, 40)).await;
        talks.push(talk);
    }
    let live = NAMES.map(|name| talks.iter().filter(|talk| talk.home == name).count());
    assert_eq!(live, [2; 3]);
    all_at_home(&mut talks, "and then?").await;
    servers[0].kill();
    let (mut moving, mut staying): (Vec<_>, Vec<_>) = talks.into_iter().partition(|talk| talk.home == "a");
    join_all(moving.iter_mut().map(async |talk| {
        talk.say("still there?").await;
        assert_ne!(talk.home, "a");
    }))
    .await;
    all_at_home(&mut staying, "still there?").await;
    all_at_home(&mut moving, "and now?").await;
    servers[0].restart().await;
    let mut new = Talk::new(&router, "y");
    // It gets no turn before its pause is over and it was seen to be well; each of the others has three conversations.
    router.wait_status("a again", |status| server(status, "a")["state"] == "half_open").await;
    new.say("hello").await;
    assert_eq!(new.home, "a");
    all_at_home(&mut staying, "go on").await;
    let status = router.status().await;
    assert!(is_up(&status, "a") && hits(&status) >= 16, "{status:#}");
    for server in &servers {
        server.assert_no_busy_slot_was_named().await;
    }
}
