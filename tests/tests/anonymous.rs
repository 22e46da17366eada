//! Requests without a session: forwarded as they are, but counted, so that nobody's slot is taken.
use serde_json::json;
use session_slot_tests::client::{self, Outgoing, chat, chat_request, post_json};
use session_slot_tests::{Answer, FakeLlama, Options, Router, Session};

async fn started(options: Options) -> (FakeLlama, Router) {
    let fake = FakeLlama::start(options);
    let router = Router::start(&fake).await;
    (fake, router)
}

fn completion(router: &Router, body: &str) -> Outgoing {
    Outgoing::post(format!("{}/completion", router.url()), body.to_owned())
}

fn prompt(router: &Router, prompt: &str) -> Outgoing {
    completion(router, &json!({"prompt": prompt}).to_string())
}

fn slot_of(answer: &Answer) -> i64 {
    let slot = answer.header("x-slot-router-slot").expect("the answer should name its slot");
    slot.parse().expect("a slot should be a number")
}

/// The bodies that came through the router.
fn bodies(fake: &FakeLlama) -> Vec<String> {
    let mine = fake.received().into_iter().filter(|one| !one.foreign);
    mine.map(|one| String::from_utf8_lossy(&one.body).into_owned()).collect()
}

#[tokio::test]
async fn an_anonymous_body_arrives_byte_for_byte() {
    let (fake, router) = started(Options::default()).await;
    let sent = [
        r#"{"prompt":"a"}"#,
        "\n{ \"prompt\" : \"\\u0061\\/\" ,\t\"x\":[1.0e0,-0,1E5],\"x\":{}, \"prompt\":\"b\" }\r\n ",
        r#"{"prompt":"a","id_slot":2}"#,
        r#"{"prompt":"a","id_slot":"2"}"#,
        r#"{"prompt":"a","Agent_Session_Id":"s","agent-session-id":"s"}"#,
    ];
    for body in sent {
        let answer = client::send(completion(&router, body)).await;
        assert_eq!((answer.status.as_u16(), answer.header("x-slot-router-action")), (200, Some("anonymous")));
    }
    assert_eq!(bodies(&fake), sent);
}

#[tokio::test]
async fn an_answer_to_an_anonymous_request_comes_back_as_it_is() {
    let (fake, router) = started(Options::default()).await;
    let direct = post_json(format!("{}/completion", fake.url()), r#"{"prompt":"a b","id_slot":0}"#).await;
    let routed = client::send(completion(&router, r#"{"prompt":"a b","id_slot":1}"#)).await;
    assert_eq!(routed.text(), direct.text().replace("\"id_slot\":0", "\"id_slot\":1"));
    assert_eq!(routed.header("content-type"), direct.header("content-type"));
}

#[tokio::test]
async fn bodies_that_are_no_json_object_arrive_as_they_are_and_the_server_answers() {
    let (fake, router) = started(Options::default()).await;
    let sent = ["", "{", "[]", "nonsense \u{1}", r#"{"prompt":"a","agent_session_id":"s""#, "null"];
    for body in sent {
        let answer = client::send(completion(&router, body)).await;
        assert_eq!(answer.status, 400, "{body}");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
    assert_eq!(bodies(&fake), sent);
}

#[tokio::test]
async fn a_compressed_body_is_anonymous_and_untouched() {
    let (fake, router) = started(Options::default()).await;
    // Plain text under a false flag: whoever looked inside would find a session.
    let body = r#"{"prompt":"a","agent_session_id":"s","id_slot":9}"#;
    let request = completion(&router, body).header("content-encoding", "gzip");
    let answer = client::send(request).await;
    assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"));
    assert_eq!(bodies(&fake), [body]);
    assert_eq!(fake.received()[0].header("content-encoding"), Some("gzip"));
}

#[tokio::test]
async fn while_an_anonymous_request_has_not_landed_no_slot_is_named() {
    let (fake, router) = started(Options::default()).await;
    let anonymous = client::send_later(prompt(&router, "LATE:late HOLD:hold words"));
    fake.wait_received(1).await;
    let turn = client::send_later(chat_request(&router.url(), "s", "turn"));
    router.wait_waiting(1).await;
    // It looks again and again, and each time it is too early.
    let looks = fake.poll_count() + 4;
    fake.wait_until("four more looks", |state| state.poll_count() >= looks).await;
    assert_eq!(fake.received().len(), 1);
    fake.release("late");
    let turn = turn.await.expect("it should end");
    let launches = fake.launches();
    assert_eq!(slot_of(&turn), launches[1].slot.0 as i64);
    assert_ne!(launches[0].slot, launches[1].slot);
    fake.release("hold");
    assert_eq!(anonymous.await.expect("it should end").status, 200);
}

#[tokio::test]
async fn while_a_named_request_has_not_landed_no_anonymous_one_is_sent() {
    let (fake, router) = started(Options::default()).await;
    let turn = client::send_later(chat_request(&router.url(), "s", "LATE:late HOLD:hold words"));
    fake.wait_received(1).await;
    let anonymous = client::send_later(prompt(&router, "anonymous"));
    router.wait_waiting(1).await;
    let looks = fake.poll_count() + 4;
    fake.wait_until("four more looks", |state| state.poll_count() >= looks).await;
    assert_eq!(fake.received().len(), 1);
    fake.release("late");
    assert_eq!(anonymous.await.expect("it should end").status, 200);
    fake.release("hold");
    let home = slot_of(&turn.await.expect("it should end"));
    assert_eq!(fake.launches()[0].slot.0 as i64, home);
    fake.assert_clean();
}

#[tokio::test]
async fn anonymous_requests_on_their_way_do_not_hold_each_other_up() {
    let (fake, router) = started(Options::default()).await;
    let late: Vec<_> =
        (0..4).map(|n| client::send_later(prompt(&router, &format!("LATE:late words {n}")))).collect();
    fake.wait_received(4).await;
    fake.release("late");
    for one in late {
        assert_eq!(one.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn named_requests_on_their_way_do_not_hold_each_other_up() {
    let (fake, router) = started(Options::default()).await;
    let late: Vec<_> = (0..4)
        .map(|n| client::send_later(chat_request(&router.url(), &format!("s{n}"), "LATE:late words")))
        .collect();
    fake.wait_received(4).await;
    fake.release("late");
    for one in late {
        assert_eq!(one.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn an_anonymous_request_that_fails_before_it_lands_holds_nobody_up() {
    let (_fake, router) = started(Options { n_ctx: 8, ..Options::default() }).await;
    for round in 0..5 {
        let too_long = client::send_later(prompt(&router, &client::words("long", 20)));
        let turn = chat(&router.url(), "s", &format!("turn {round}")).await;
        assert_eq!(turn.status, 200);
        assert_eq!(too_long.await.expect("it should end").status, 400);
    }
}

#[tokio::test]
async fn an_anonymous_request_that_names_a_slot_waits_for_that_slot() {
    let (fake, router) = started(Options::default()).await;
    let turn = client::send_later(chat_request(&router.url(), "s", "HOLD:hold words"));
    fake.wait_processing(1).await;
    let busy = fake.look(|state| state.slots().iter().position(|slot| slot.is_processing()));
    let busy = busy.expect("one slot should be busy") as i64;
    let bodies_before = fake.received().len();
    // The same slot in three spellings, as the server wraps them.
    let named: Vec<_> = [busy, busy + 4, busy - 4]
        .map(|slot| {
            let body = json!({"prompt": "named", "id_slot": slot});
            client::send_later(completion(&router, &body.to_string()))
        })
        .into_iter()
        .collect();
    router.wait_waiting(3).await;
    let other = json!({"prompt": "other", "id_slot": busy + 1}).to_string();
    assert_eq!(client::send(completion(&router, &other)).await.status, 200);
    assert_eq!(fake.received().len(), bodies_before + 1);
    fake.release("hold");
    turn.await.expect("it should end");
    for one in named {
        assert_eq!(one.await.expect("it should end").json()["id_slot"], busy);
    }
    fake.assert_clean();
}

#[tokio::test]
async fn an_anonymous_request_that_names_a_slot_waits_for_foreign_work_in_it() {
    let fake = FakeLlama::start(Options::default());
    let foreign = fake.foreign("HOLD:foreign", Some(2));
    fake.wait_processing(1).await;
    let router = Router::start(&fake).await;
    router.wait_foreign(2).await;
    let named = client::send_later(completion(&router, r#"{"prompt":"named","id_slot":2}"#));
    router.wait_waiting(1).await;
    assert_eq!(chat(&router.url(), "s", "turn").await.status, 200);
    assert_eq!(bodies(&fake).len(), 1);
    fake.release("foreign");
    foreign.await.expect("it should end");
    assert_eq!(named.await.expect("it should end").json()["id_slot"], 2);
}

#[tokio::test]
async fn a_slot_named_in_a_way_the_server_does_not_read_is_not_waited_for() {
    let (fake, router) = started(Options::default()).await;
    let turn = client::send_later(chat_request(&router.url(), "s", "HOLD:hold words"));
    fake.wait_processing(1).await;
    let home = fake.look(|state| state.slots().iter().position(|slot| slot.is_processing()));
    let home = home.expect("one slot should be busy");
    for asked in [json!(home.to_string()), json!(null), json!([home]), json!(-1), json!(true)] {
        let body = json!({"prompt": "unnamed", "id_slot": asked}).to_string();
        assert_eq!(client::send(completion(&router, &body)).await.status, 200, "{asked}");
    }
    fake.release("hold");
    turn.await.expect("it should end");
}

#[tokio::test]
async fn an_anonymous_request_waits_while_all_slots_are_busy() {
    let (fake, router) = started(Options::default().slots(2)).await;
    let running: Vec<_> = ["a", "b"]
        .map(|id| client::send_later(chat_request(&router.url(), id, &format!("HOLD:{id} words"))))
        .into_iter()
        .collect();
    fake.wait_processing(2).await;
    let waiting = client::send_later(prompt(&router, "anonymous"));
    router.wait_waiting(1).await;
    assert_eq!((fake.received().len(), fake.look(|state| state.deferred())), (2, 0));
    fake.release("b");
    assert_eq!(waiting.await.expect("it should end").status, 200);
    fake.release("a");
    for turn in running {
        assert_eq!(turn.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn anonymous_requests_never_queue_inside_the_server() {
    let (fake, router) = started(Options::default()).await;
    let first: Vec<_> =
        (0..4).map(|n| client::send_later(prompt(&router, &format!("HOLD:hold words {n}")))).collect();
    fake.wait_processing(4).await;
    let more: Vec<_> = (0..6).map(|n| client::send_later(prompt(&router, &format!("more {n}")))).collect();
    router.wait_waiting(6).await;
    assert_eq!((fake.received().len(), fake.look(|state| state.deferred())), (4, 0));
    fake.release("hold");
    for one in first.into_iter().chain(more) {
        assert_eq!(one.await.expect("it should end").status, 200);
    }
}

#[tokio::test]
async fn anonymous_requests_own_nothing_and_evict_nobody() {
    let (_fake, router) = started(Options::default().slots(2)).await;
    let mut sessions = ["a", "b"].map(|id| Session::new(&router.url(), id));
    let mut homes = Vec::new();
    for session in &mut sessions {
        homes.push(slot_of(&session.say("first words").await));
    }
    for n in 0..4 {
        client::send(prompt(&router, &format!("anonymous {n}"))).await;
    }
    for (session, home) in sessions.iter_mut().zip(homes) {
        let answer = session.say("more words").await;
        assert_eq!((slot_of(&answer), answer.header("x-slot-router-action")), (home, Some("home")));
    }
}

#[tokio::test]
async fn anonymous_requests_are_counted() {
    let (_fake, router) = started(Options::default()).await;
    for _ in 0..3 {
        client::send(prompt(&router, "three more words")).await;
    }
    chat(&router.url(), "s", "one").await;
    let status = router.status().await;
    let totals = &status["server"]["totals"];
    assert_eq!(
        (&totals["anonymous"], &totals["new"], &totals["requests"]),
        (&json!(3), &json!(1), &json!(4))
    );
    assert_eq!(status["server"]["sessions"], 1);
    let lines = router.wait_requests(4).await;
    assert!(lines[..3].iter().all(|line| line["action"] == "anonymous" && line["status"] == 200));
}

#[tokio::test]
async fn a_streamed_anonymous_answer_whose_client_leaves_frees_its_slot() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let body = json!({"prompt": "HOLDEND:never words", "stream": true}).to_string();
    let mut stream = client::open(completion(&router, &body)).await;
    stream.read_until("out0").await;
    drop(stream);
    assert_eq!(chat(&router.url(), "s", "turn").await.status, 200);
    fake.assert_clean();
}

#[tokio::test]
async fn requests_that_take_no_slot_pass_while_all_slots_are_busy() {
    let (fake, router) = started(Options::default().slots(1)).await;
    let running = client::send_later(chat_request(&router.url(), "s", "HOLD:hold words"));
    fake.wait_processing(1).await;
    for path in ["/health", "/props", "/v1/models", "/slots"] {
        let answer = client::get(format!("{}{path}", router.url())).await;
        assert_eq!((answer.status.as_u16(), answer.header("x-slot-router-action")), (200, None), "{path}");
    }
    let counted = r#"{"messages":[{"role":"user","content":"a b c"}],"agent_session_id":"s"}"#;
    let answer = post_json(format!("{}/v1/messages/count_tokens", router.url()), counted).await;
    assert_eq!(answer.json()["input_tokens"], 3);
    let tokens = post_json(format!("{}/tokenize", router.url()), r#"{"content":"a b"}"#).await;
    assert_eq!(tokens.json()["tokens"].as_array().map(Vec::len), Some(2));
    fake.release("hold");
    assert_eq!(running.await.expect("it should end").status, 200);
}
