//! Compaction, whose requests no extension sees: headers tell whose they are.
use serde_json::json;
use session_slot_tests::{FakeLlama, Router};

use crate::pi::{APIS, Pi, Version, brief};
use crate::rpc::Rpc;

pub(crate) async fn a_compaction_names_the_session_in_its_headers_with_every_api(version: &'static Version) {
    let fake = FakeLlama::start(brief());
    let router = Router::start(&fake).await;
    let pi = Pi::installed(version, &router).await;
    // Little is kept, so that there is something to be summarised after a few turns.
    pi.write("settings.json", r#"{"compaction": {"keepRecentTokens": 20}}"#);
    for (api, route) in APIS {
        let earlier = fake.received().len();
        let mut rpc = Rpc::start(&pi, api, &[]);
        for turn in ["one", "two", "three"] {
            rpc.prompt(&[turn; 60].join(" ")).await;
        }
        rpc.command("compact").await;
        let session = rpc.command("get_state").await["sessionId"].clone();
        let received = fake.received().split_off(earlier);
        assert!(received.len() > 3, "{api}: three turns and at least one request for a summary");
        for request in &received {
            assert!(request.target.starts_with(route), "{}", request.target);
            let named = request.header("x-session-affinity").map(|id| json!(id));
            assert_eq!(named.as_ref(), Some(&session), "{api}, request {}", request.number);
        }
        if api.starts_with("openai") {
            // What Pi sends of its own accord, the provider's entry being as it is.
            let own = ["session_id", "session-id"].iter().find_map(|name| received[0].header(name));
            assert_eq!(own.map(|id| json!(id)).as_ref(), Some(&session), "{api}");
        }
    }
}
