//! Requests that are none of the router's business, and the other way to install.
use serde_json::json;
use session_slot_tests::{FakeLlama, Router};

use crate::pi::{APIS, Pi, Version, brief, project, succeed};

pub(crate) async fn a_provider_on_another_port_is_left_alone(version: &'static Version) {
    let (fake, other) = (FakeLlama::start(brief()), FakeLlama::start(brief()));
    let router = Router::start(&fake).await;
    let pi = Pi::installed(version, &router).await;
    pi.edit_models(|models| {
        for (api, _) in APIS {
            // The same entry, but for where it leads.
            let own = models["providers"][api].clone();
            let url = own["baseUrl"].as_str().map(|url| url.replace(&router.url(), &other.url()));
            models["providers"][format!("other {api}")] = own;
            models["providers"][format!("other {api}")]["baseUrl"] = json!(url);
        }
    });
    for (number, (api, _)) in APIS.into_iter().enumerate() {
        succeed(&mut pi.talk(&format!("other {api}"), &["--print", "hello"])).await;
        let received = other.received().remove(number);
        for member in ["agent_name", "agent_session_id", "client_type"] {
            assert_eq!(received.json().get(member), None, "{api}");
        }
    }
    assert!(fake.received().is_empty(), "nothing should come to the router");
}

/// A virtual model has no URL; it hands each request to a model that has one.
pub(crate) async fn a_virtual_model_is_the_routers_if_the_model_it_chose_is(version: &'static Version) {
    let (fake, other) = (FakeLlama::start(brief()), FakeLlama::start(brief()));
    let router = Router::start(&fake).await;
    let pi = Pi::installed(version, &router).await;
    pi.edit_models(|models| {
        let url = format!("{}/v1", other.url());
        models["providers"]["other"] = json!({
            "baseUrl": url, "api": "openai-completions", "apiKey": "none", "models": [{"id": "other-model"}]
        });
    });
    pi.write("extensions/a-virtual.ts", VIRTUAL);
    let run = async |chosen: &str| {
        let mut command = pi.run(&["--provider", "virtual", "--model", "auto", "--print", "hello"]);
        succeed(command.env("CHOSEN", chosen)).await;
    };
    run("other/other-model").await;
    assert_eq!(other.received()[0].json().get("agent_name"), None);
    run("openai-completions/fake-model").await;
    let line = router.wait_log(|line| line["route"] == "/v1/chat/completions").await;
    assert_eq!((&line["agent_name"], &line["action"]), (&json!("pi"), &json!("new")), "{line:#}");
}

const VIRTUAL: &str = r#"
    export default function (pi) {
        pi.registerVirtualModel({
            provider: "virtual",
            id: "auto",
            name: "Auto",
            route: (_request, ctx) => {
                const [provider, id] = process.env.CHOSEN.split("/");
                return { model: ctx.modelRegistry.find(provider, id), thinkingLevel: "off" };
            },
        });
    }
"#;

pub(crate) async fn the_folder_itself_can_be_installed_as_a_package(version: &'static Version) {
    let fake = FakeLlama::start(brief());
    let router = Router::start(&fake).await;
    let pi = Pi::new(version, &router);
    let folder = project().join("plugin-pi").display().to_string();
    succeed(&mut pi.run(&["install", &folder])).await;
    pi.edit_models(|models| {
        let url = format!("{}/v1", router.url());
        models["providers"]["own"] = json!({
            "baseUrl": url, "api": "openai-completions", "apiKey": "none", "models": [{"id": "m"}]
        });
    });
    succeed(&mut pi.talk("own", &["--print", "hello"])).await;
    let line = router.wait_requests(1).await.remove(0);
    assert_eq!((&line["agent_name"], &line["action"]), (&json!("pi"), &json!("new")), "{line:#}");
    assert_eq!(line["client_type"], version.client_type("print"));
    succeed(&mut pi.run(&["remove", &folder])).await;
    succeed(&mut pi.talk("own", &["--print", "hello"])).await;
    let line = router.wait_requests(2).await.remove(1);
    assert_eq!(line["agent_name"], json!(null), "{line:#}");
}
