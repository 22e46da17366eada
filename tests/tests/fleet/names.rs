//! Models: which servers have one, and what they are called.
use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing};
use session_slot_tests::fake::{Served, State};
use session_slot_tests::{Answer, FakeLlama, Options, Router};

use crate::server_of;
use crate::stage::Stage;

fn serving(alias: &str) -> Options {
    Options { served: Served { alias: alias.to_owned(), ..Served::default() }, ..Options::default() }
}

async fn asked(stage: &Stage, model: &str) -> Answer {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
    client::send(Outgoing::post(format!("{}/v1/chat/completions", stage.router.url()), body.to_string()))
        .await
}

fn ids(answer: &Answer) -> Vec<String> {
    let listed = answer.json()["data"].as_array().cloned().unwrap_or_default();
    listed.iter().filter_map(|model| model["id"].as_str().map(str::to_owned)).collect()
}

async fn small_and_large(more: &str) -> Stage {
    let fakes: Vec<_> = ["small", "large"].map(|alias| FakeLlama::start(serving(alias))).into();
    Stage::before(fakes, more, None).await
}

#[tokio::test]
async fn a_request_goes_to_a_server_that_has_its_model_and_an_unknown_one_is_told_which_there_are() {
    let stage = small_and_large("").await;
    for _ in 0..2 {
        assert_eq!(server_of(&asked(&stage, "large").await), "b");
        assert_eq!(server_of(&asked(&stage, "small").await), "a");
    }
    let unknown = asked(&stage, "huge").await;
    assert_eq!(unknown.status.as_u16(), 404);
    assert!(
        unknown.text().contains("large, small") && !unknown.text().contains("huge"),
        "{}",
        unknown.text()
    );
    let counted = json!({"model": "huge", "content": "hello"}).to_string();
    let unknown = client::post_json(format!("{}/tokenize", stage.router.url()), counted).await;
    assert_eq!(unknown.status.as_u16(), 404, "{}", unknown.text());
    let models = client::get(format!("{}/v1/models", stage.router.url())).await;
    assert_eq!(ids(&models), ["small", "large"]);
}

#[tokio::test]
async fn a_servers_name_in_front_of_a_model_chooses_the_server_and_is_not_sent_on() {
    let stage = small_and_large("names = \"host\"").await;
    let answer = asked(&stage, "b-large").await;
    assert_eq!((answer.status.as_u16(), server_of(&answer)), (200, "b"), "{}", answer.text());
    let received = stage.fake("b").received();
    assert_eq!(received.last().map(|one| one.json()["model"].clone()), Some(Value::from("large")));
    assert_eq!(asked(&stage, "a-large").await.status.as_u16(), 404, "a copy elsewhere is another model");
    let models = client::get(format!("{}/v1/models", stage.router.url())).await;
    assert_eq!(ids(&models), ["a-small", "b-large"]);
}

#[tokio::test]
async fn a_host_that_is_down_is_told_by_name_and_no_other_one_is_taken() {
    let stage = small_and_large("names = \"host\"").await;
    stage.fake("b").stop().await;
    // The first one finds it out.
    for _ in 0..2 {
        let answer = asked(&stage, "b-large").await;
        assert_eq!(answer.status.as_u16(), 503, "{}", answer.text());
        assert!(answer.text().contains("the server b is down"), "{}", answer.text());
    }
    assert_eq!(stage.fake("a").received().len(), 0);
}

#[tokio::test]
async fn a_host_that_is_down_is_told_by_name_where_no_slot_is_taken_too() {
    let stage = small_and_large("names = \"host\"").await;
    stage.fake("b").stop().await;
    let counted = json!({"model": "b-large", "content": "hello"}).to_string();
    let answer = client::post_json(format!("{}/tokenize", stage.router.url()), counted).await;
    assert_eq!(answer.status.as_u16(), 503, "{}", answer.text());
    assert!(answer.text().contains("the server b is down"), "{}", answer.text());
}

#[tokio::test]
async fn a_turn_may_name_its_model_in_the_url() {
    let stage = small_and_large("names = \"host\"").await;
    let body = json!({"messages": [{"role": "user", "content": "hello"}]}).to_string();
    let url = format!("{}/v1/chat/completions?model=b-large", stage.router.url());
    let answer = client::post_json(url, body).await;
    assert_eq!((answer.status.as_u16(), server_of(&answer)), (200, "b"), "{}", answer.text());
    let received = stage.fake("b").received();
    let target = received.last().map(|one| one.target.clone());
    assert_eq!(target.as_deref(), Some("/v1/chat/completions?model=large"));
}

#[tokio::test]
async fn a_turn_whose_body_can_not_be_read_has_to_name_its_host_in_the_url() {
    let stage = small_and_large("names = \"host\"").await;
    let sound = |query: &str| {
        let url = format!("{}/v1/audio/transcriptions{query}", stage.router.url());
        Outgoing::post(url, "--x\r\n").header("content-type", "multipart/form-data; boundary=x")
    };
    let answer = client::send(sound("")).await;
    assert_eq!(answer.status.as_u16(), 400, "{}", answer.text());
    assert!(answer.text().contains("?model=NAME"), "{}", answer.text());
    client::send(sound("?model=b-large")).await;
    let there = |state: &State| state.received().iter().any(|one| one.target.ends_with("?model=large"));
    assert!(stage.fake("b").look(there) && !stage.fake("a").look(there));
}

#[tokio::test]
async fn what_takes_no_slot_also_goes_to_the_server_of_its_model_under_that_servers_name_for_it() {
    let stage = small_and_large("names = \"host\"").await;
    let echo = format!("{}/echo", stage.router.url());
    let told = client::post_json(echo.clone(), r#"{"model":"b-large", "n": 1.50}"#).await.json();
    assert_eq!(told["body"], r#"{"model":"large", "n": 1.50}"#, "{told}");
    let told = client::get(format!("{echo}?n=1.50&model=b-large")).await.json();
    assert_eq!(told["query"], "n=1.50&model=large", "{told}");
    let unknown = client::post_json(echo, r#"{"model":"a-large"}"#).await;
    assert_eq!(unknown.status.as_u16(), 404, "{}", unknown.text());
    let echoes = |fake: &FakeLlama| {
        fake.look(|state| state.received().iter().filter(|one| one.target.starts_with("/echo")).count())
    };
    assert_eq!((echoes(stage.fake("a")), echoes(stage.fake("b"))), (0, 2));
}

#[tokio::test]
async fn a_model_whose_name_looks_like_another_servers_can_be_asked_for() {
    let fakes: Vec<_> = ["b-m", "other"].map(|alias| FakeLlama::start(serving(alias))).into();
    let config = format!(
        "names = \"host\"\n[[server]]\nname = \"a\"\nurl = \"{}\"\n[[server]]\nname = \"a-b\"\nurl = \"{}\"\n",
        fakes[0].url(),
        fakes[1].url()
    );
    let router = Router::in_front_of("").no_upstream_flag().config(&config).start().await;
    let stage = Stage { fakes, router };
    stage.wait_states(&["up"; 2]).await;
    let models = client::get(format!("{}/v1/models", stage.router.url())).await;
    for (model, server) in ids(&models).iter().zip(["a", "a-b"]) {
        let answer = asked(&stage, model).await;
        assert_eq!((answer.status.as_u16(), server_of(&answer)), (200, server), "{model}: {}", answer.text());
    }
}
