//! Outages: a turn that no byte of has been answered goes elsewhere, and its client sees nothing of it.
use session_slot_tests::client::{self, Outgoing, chat_request};
use session_slot_tests::fake::Breakage;
use session_slot_tests::{FakeLlama, Options, RawUpstream, Streaming};

use crate::server_of;
use crate::stage::{Stage, builder, builder_for, name};

fn other(server: &str) -> &'static str {
    if server == "a" { "b" } else { "a" }
}

#[tokio::test]
async fn the_next_turn_of_a_session_goes_elsewhere_when_its_server_has_died() {
    let stage = Stage::open(2, &Options::default()).await;
    let mut talk = stage.talk("s");
    let home = server_of(&talk.say("hello").await).to_owned();
    stage.fake(&home).stop().await;
    assert_eq!(server_of(&talk.say("still there?").await), other(&home));
    assert_eq!(server_of(&talk.say("and now?").await), other(&home));
}

#[tokio::test]
async fn a_turn_whose_connection_breaks_before_its_answer_is_asked_of_another_server_unseen() {
    let stage = Stage::open(2, &Options::default()).await;
    let home = server_of(&client::chat(&stage.router.url(), "s", "hello").await).to_owned();
    let turn = client::send_later(chat_request(&stage.router.url(), "s", "HOLD:x go on"));
    stage.fake(&home).wait_processing(1).await;
    stage.fake(other(&home)).release("x");
    stage.fake(&home).stop().await;
    let answer = turn.await.expect("the turn should end");
    assert_eq!((answer.status, server_of(&answer)), (200.try_into().expect("a status"), other(&home)));
    let log = stage.router.wait_requests(2).await;
    assert_eq!(log[1]["server"], other(&home), "{:?}", log[1]);
}

#[tokio::test]
async fn a_stream_that_breaks_before_its_first_event_is_asked_of_another_server_unseen() {
    let stage = Stage::open(2, &Options::default()).await;
    let home = server_of(&client::chat(&stage.router.url(), "s", "hello").await).to_owned();
    let mut body = client::chat_body(Some("s"), "HOLD:x go on");
    body["stream"] = true.into();
    let url = format!("{}/v1/chat/completions", stage.router.url());
    let turn = tokio::spawn(client::stream_json(url, body.to_string()));
    stage.fake(&home).wait_processing(1).await;
    stage.fake(other(&home)).release("x");
    stage.fake(&home).stop().await;
    let stream: Streaming = turn.await.expect("the turn should begin");
    let answer = stream.finish().await.expect("the stream should be whole");
    assert_eq!(server_of(&answer), other(&home));
    assert!(answer.text().contains("[DONE]"), "{}", answer.text());
}

#[tokio::test]
async fn what_takes_no_slot_goes_to_another_server_when_its_own_has_just_died() {
    let stage = Stage::open(2, &Options::default()).await;
    stage.fake("a").stop().await;
    for _ in 0..3 {
        let counted = serde_json::json!({"content": "hello"}).to_string();
        let answer = client::post_json(format!("{}/tokenize", stage.router.url()), counted).await;
        assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
        let health = client::get(format!("{}/health", stage.router.url())).await;
        assert_eq!(health.status.as_u16(), 200, "{}", health.text());
    }
}

#[tokio::test]
async fn with_all_servers_down_the_client_is_told_when_to_come_back() {
    let stage = Stage::open(2, &Options::default()).await;
    for index in 0..2 {
        stage.fake(&name(index).to_string()).stop().await;
    }
    let (mut last, mut tries) = (client::chat(&stage.router.url(), "s", "hello").await, 0);
    while last.header("retry-after").is_none() && tries < 5 {
        assert!(last.status.is_server_error(), "{}", last.status);
        assert!(last.text().contains("or set its url"), "there is no flag for several: {}", last.text());
        (last, tries) = (client::chat(&stage.router.url(), "s", "hello").await, tries + 1);
    }
    assert_eq!(last.status.as_u16(), 503, "{}", last.text());
    assert!(last.header("retry-after").is_some(), "{}", last.text());
}

#[tokio::test]
async fn a_request_that_no_server_can_run_breaks_none_of_them_for_others() {
    let stage = Stage::open(2, &Options::default()).await;
    // As llama-server answers a picture that its model can't see.
    stage.fakes.iter().for_each(|fake| fake.breaks(Breakage::Answers(500.try_into().expect("a status"))));
    for _ in 0..3 {
        assert_eq!(client::chat(&stage.router.url(), "s", "look").await.status.as_u16(), 500);
    }
    stage.fakes.iter().for_each(FakeLlama::mends);
    stage.wait_states(&["up"; 2]).await;
    for session in ["t", "u"] {
        assert_eq!(client::chat(&stage.router.url(), session, "hello").await.status.as_u16(), 200);
    }
}

#[tokio::test]
async fn a_server_that_fails_what_another_one_serves_is_broken() {
    let stage = Stage::open(2, &Options::default()).await;
    stage.fake("a").breaks(Breakage::Answers(500.try_into().expect("a status")));
    for session in ["s", "t"] {
        let answer = client::chat(&stage.router.url(), session, "hello").await;
        assert_eq!((answer.status.as_u16(), server_of(&answer)), (200, "b"), "{}", answer.text());
    }
    stage
        .router
        .wait_status("a failure", |status| status["servers"][0]["failures"].as_u64() >= Some(1))
        .await;
}

#[tokio::test]
async fn a_server_that_refuses_the_routers_key_is_broken_and_no_client_is_asked_for_it() {
    let guarded = Options { api_key: Some("a-key".to_owned()), ..Options::default() };
    let fakes = vec![FakeLlama::start(guarded), FakeLlama::start(Options::default())];
    let router = builder(&fakes, "").start().await;
    for session in ["s", "t", "u"] {
        let answer = client::chat(&router.url(), session, "hello").await;
        assert_eq!((answer.status.as_u16(), server_of(&answer)), (200, "b"), "{}", answer.text());
    }
    router.wait_log(|line| line["message"] == "a server refuses this router or its key").await;
}

#[tokio::test]
async fn what_takes_no_slot_goes_to_another_server_too_when_its_own_is_down() {
    let stage = Stage::open(2, &Options::default()).await;
    let mut talk = stage.talk("s");
    let home = server_of(&talk.say("hello").await).to_owned();
    stage.fake(&home).stop().await;
    let is_away = |status: &serde_json::Value| {
        status["servers"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["name"] == *home && one["state"] != "up")
    };
    stage.router.wait_status("its server away", is_away).await;
    let asked = Outgoing::post(format!("{}/tokenize", stage.router.url()), r#"{"content":"a b"}"#);
    let answer = client::send(asked.header("x-agent-session-id", "s")).await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text());
}

#[tokio::test]
async fn no_server_is_asked_for_a_compressed_answer_in_which_its_errors_could_not_be_read() {
    let stage = Stage::open(2, &Options::default()).await;
    let body = client::chat_body(Some("s"), "hello").to_string();
    let turn = Outgoing::post(format!("{}/v1/chat/completions", stage.router.url()), body);
    assert_eq!(client::send(turn.header("accept-encoding", "gzip, br")).await.status.as_u16(), 200);
    let received: Vec<_> = stage.fakes.iter().flat_map(FakeLlama::received).collect();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].header("accept-encoding"), None);
}

#[tokio::test]
async fn an_error_that_a_server_tells_within_a_stream_breaks_it_for_nobody_else() {
    let told = r#"data: {"error":{"code":500,"message":"Failed to parse input","type":"server_error"}}"#;
    let events = format!("data: {{\"choices\":[]}}\n\n{told}\n\n");
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{events}");
    let servers = [RawUpstream::start(&*answer).await, RawUpstream::start(&*answer).await];
    let router = builder_for(&servers.each_ref().map(RawUpstream::url), "", "").start().await;
    let mut body = client::chat_body(Some("s"), "hello");
    body["stream"] = true.into();
    let url = format!("{}/v1/chat/completions", router.url());
    let answer = client::stream_json(url, body.to_string()).await.finish().await.expect("a whole stream");
    assert!(answer.text().contains(told), "{}", answer.text());
    let log = router.wait_requests(1).await;
    assert_eq!(log[0]["error"], "the server has ended the answer with an error");
    let status = router.status().await;
    let failures = status["servers"].as_array().into_iter().flatten().map(|one| one["failures"].as_u64());
    assert_eq!(failures.collect::<Vec<_>>(), [Some(0); 2]);
}
