//! A state is only ever sent to the server it was made on: same build, model, context, layout and adapters.
use std::time::Duration;

use session_slot_tests::Options;
use session_slot_tests::client::{self, Outgoing};
use session_slot_tests::fake::{Breakage, State};

use crate::stage::Stage;
use crate::{LEFT, reused, small, text};

/// `a` is saved, then the server is another one. Whether the state was tried.
async fn is_tried_on(change: impl FnOnce(&mut Options)) -> bool {
    is_tried(small(1), change).await
}

async fn is_tried(options: Options, change: impl FnOnce(&mut Options)) -> bool {
    let stage = Stage::open(options).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    let mut other = stage.options.clone();
    change(&mut other);
    stage.fake.restart(other).await;
    let answer = talks[0].say(&text("a", 1)).await;
    assert!(!answer.text().contains(session_slot_tests::fake::DAMAGED), "{}", answer.text());
    let tried = stage.asked("restore") > 0;
    assert_eq!(reused(&answer), if tried { LEFT } else { 0 });
    tried
}

#[tokio::test]
async fn on_the_same_server_a_state_is_used() {
    assert!(is_tried_on(|_| {}).await);
}

#[tokio::test]
async fn on_another_build_no_state_is_used() {
    assert!(!is_tried_on(|options| options.served.build = "b1-fake".to_owned()).await);
}

#[tokio::test]
async fn on_another_model_no_state_is_used() {
    assert!(!is_tried_on(|options| options.served.path = "/models/other.gguf".to_owned()).await);
}

#[tokio::test]
async fn where_the_models_file_is_not_told_its_name_has_to_be_the_same() {
    let mut options = small(1);
    options.served.path.clear();
    assert!(is_tried(options.clone(), |_| {}).await);
    assert!(!is_tried(options, |options| options.served.alias = "other".to_owned()).await);
}

#[tokio::test]
async fn on_another_model_of_the_same_name_no_state_is_used() {
    assert!(!is_tried_on(|options| options.served.params += 1).await);
    assert!(!is_tried_on(|options| options.served.size += 1).await);
}

#[tokio::test]
async fn with_another_context_no_state_is_used() {
    assert!(!is_tried_on(|options| options.n_ctx *= 2).await);
}

#[tokio::test]
async fn with_another_adapter_no_state_is_used() {
    assert!(!is_tried_on(|options| options.served.adapters.push("/models/lora.gguf".to_owned())).await);
}

#[tokio::test]
async fn with_another_layout_which_no_page_tells_no_state_is_used() {
    assert!(!is_tried_on(|options| options.bytes_per_token -= 20).await);
    assert!(!is_tried_on(|options| options.layout += 16).await);
}

#[tokio::test]
async fn as_long_as_a_server_does_not_say_which_model_it_has_no_state_is_used() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a", "b", "c"]).await;
    stage.fake.breaks(Breakage::TellsNoModels);
    stage.restart_server().await;
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), 0);
    stage.wait_standing("unknown").await;
    stage.fake.mends();
    // It is asked again when somebody comes, after a pause.
    let until_on = async {
        while stage.warm().await["standing"] != "on" {
            client::chat(&stage.router.url(), "x", "anything").await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), until_on).await.expect("it should be asked again");
    assert_eq!(reused(&talks[1].say(&text("b", 1)).await), LEFT);
}

#[tokio::test]
async fn back_on_the_server_it_was_made_on_a_state_is_used_again() {
    let stage = Stage::open(small(1)).await;
    let mut talks = stage.first_turns(&["a", "b"]).await;
    let mut other = stage.options.clone();
    other.served.build = "b1-fake".to_owned();
    stage.fake.restart(other).await;
    // Somebody else in between, so that the router has seen this server, and what runs on it.
    stage.first_turns(&["c"]).await;
    let seen = |status: &serde_json::Value| status["server"]["slots"][0]["warm"] == true;
    stage.router.wait_status("the turn of c", seen).await;
    stage.restart_server().await;
    assert_eq!(reused(&talks[0].say(&text("a", 1)).await), LEFT);
}

#[tokio::test]
async fn a_server_whose_adapters_are_changed_is_asked_again_what_it_is() {
    let stage = Stage::open(small(1)).await;
    stage.first_turns(&["a"]).await;
    let asked = |state: &State| state.received().iter().filter(|one| one.target == "/v1/models").count();
    let before = stage.fake.look(asked);
    let url = format!("{}/lora-adapters", stage.router.url());
    let answer = client::send(Outgoing::post(url, r#"[{"id":0,"scale":0.5}]"#)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    stage.fake.wait_until("another introduction", |state| asked(state) > before).await;
    stage.wait_standing("on").await;
}
