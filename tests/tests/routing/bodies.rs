//! What is sent of a body: the routing members go, `id_slot` is set, every other byte stays.
use session_slot_tests::client::{post_json, words};
use session_slot_tests::{FakeLlama, Options};

use crate::started;

/// What the server received last, as text.
fn arrived(fake: &FakeLlama) -> String {
    let received = fake.received().pop().expect("something should have arrived");
    String::from_utf8(received.body.to_vec()).expect("the body should still be text")
}

/// Sends each body as a session's turn to a router of one slot, so that the slot is 0.
async fn check(cases: &[(&str, &str)]) {
    let (fake, router) = started(Options::default().slots(1)).await;
    for (sent, wanted) in cases {
        let answer = post_json(format!("{}/completion", router.url()), *sent).await;
        assert_eq!(answer.status, 200, "{sent}: {}", answer.text());
        assert_eq!(arrived(&fake), *wanted, "for {sent}");
        let length = fake.received().pop().and_then(|one| one.header("content-length").map(str::to_owned));
        assert_eq!(length, Some(wanted.len().to_string()));
    }
}

#[tokio::test]
async fn the_routing_members_are_taken_out_wherever_they_are() {
    check(&[
        (r#"{"agent_session_id":"s","prompt":"a"}"#, r#"{"prompt":"a","id_slot":0}"#),
        (r#"{"prompt":"a","agent_session_id":"s"}"#, r#"{"prompt":"a","id_slot":0}"#),
        (
            r#"{"agent_name":"pi","prompt":"a","client_type":"tui","n_predict":1,"agent_session_id":"s"}"#,
            r#"{"prompt":"a","n_predict":1,"id_slot":0}"#,
        ),
        (
            r#"{"prompt":"a","agent_name":null,"client_type":[1,{}],"agent_session_id":"s"}"#,
            r#"{"prompt":"a","id_slot":0}"#,
        ),
    ])
    .await;
}

#[tokio::test]
async fn the_slot_is_set_where_the_client_had_named_one() {
    check(&[
        (r#"{"id_slot":3,"agent_session_id":"s","prompt":"a"}"#, r#"{"id_slot":0,"prompt":"a"}"#),
        (r#"{"prompt":"a", "id_slot" : "x" , "agent_session_id":"s"}"#, r#"{"prompt":"a", "id_slot" : 0}"#),
        (
            r#"{"id_slot":1,"prompt":"a","id_slot":{"a":[2]},"agent_session_id":"s"}"#,
            r#"{"id_slot":0,"prompt":"a","id_slot":0}"#,
        ),
    ])
    .await;
}

#[tokio::test]
async fn every_other_byte_stays_as_it_was() {
    check(&[
        (
            "{ \"prompt\" :\t\"a\\u0041\\/ é 🦙\" ,\r\n \"temperature\": 1.0e-5,\"seed\":12345678901234567890123,\"agent_session_id\":\"s\",\"x\":[ 1 , 2.50, -0 ]\n}\n",
            "{ \"prompt\" :\t\"a\\u0041\\/ é 🦙\" ,\r\n \"temperature\": 1.0e-5,\"seed\":12345678901234567890123,\"x\":[ 1 , 2.50, -0 ],\"id_slot\":0\n}\n",
        ),
        (
            r#"{"z":1,"a":{"k":1,"k":2,"":null},"a":3,"prompt":"b","agent_session_id":"s","prompt":"c"}"#,
            r#"{"z":1,"a":{"k":1,"k":2,"":null},"a":3,"prompt":"b","prompt":"c","id_slot":0}"#,
        ),
        (
            r#"{"prompt":"\ud83e\udd99 \\\" agent_session_id\":\"x","agent_session_id":"s"}"#,
            r#"{"prompt":"\ud83e\udd99 \\\" agent_session_id\":\"x","id_slot":0}"#,
        ),
    ])
    .await;
}

#[tokio::test]
async fn nested_members_of_the_same_names_stay() {
    check(&[(
        r#"{"prompt":"a","extra":{"agent_session_id":"t","agent_name":1,"id_slot":9},"agent_session_id":"s"}"#,
        r#"{"prompt":"a","extra":{"agent_session_id":"t","agent_name":1,"id_slot":9},"id_slot":0}"#,
    )])
    .await;
}

#[tokio::test]
async fn a_member_whose_name_is_escaped_is_the_same_member() {
    check(&[(
        r#"{"prompt":"a","agent_session\u005fid":"s","id\u005fslot":7}"#,
        r#"{"prompt":"a","id\u005fslot":0}"#,
    )])
    .await;
}

#[tokio::test]
async fn a_body_that_only_has_a_nested_session_id_is_anonymous_and_untouched() {
    let (fake, router) = started(Options::default()).await;
    let body =
        r#"{"prompt": "a", "metadata": {"agent_session_id": "s"} , "messages":[{"agent_session_id":"t"}]}"#;
    let answer = post_json(format!("{}/completion", router.url()), body).await;
    assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"));
    assert_eq!(arrived(&fake), body);
}

#[tokio::test]
async fn without_a_usable_session_id_the_members_go_and_the_rest_stays() {
    let (fake, router) = started(Options::default()).await;
    for (sent, wanted) in [
        (r#"{"agent_session_id":null,"prompt":"a"}"#, r#"{"prompt":"a"}"#),
        (r#"{"prompt":"a","agent_session_id":""}"#, r#"{"prompt":"a"}"#),
        (r#"{"agent_name":"pi","prompt":"a","client_type":"tui"}"#, r#"{"prompt":"a"}"#),
        (r#"{"agent_session_id":"","id_slot":2, "prompt":"a"}"#, r#"{"id_slot":2, "prompt":"a"}"#),
    ] {
        let answer = post_json(format!("{}/completion", router.url()), sent).await;
        assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"), "{sent}");
        assert_eq!(arrived(&fake), wanted, "for {sent}");
    }
}

#[tokio::test]
async fn a_body_of_eight_megabytes_arrives_whole() {
    let (fake, router) = started(Options { n_ctx: usize::MAX, ..Options::default().slots(1) }).await;
    let text = words("long", 1_000_000);
    let rest = format!(r#""prompt":"{text}","x":[{}1.50]"#, "1.50, ".repeat(1000));
    assert!(rest.len() > 8 << 20);
    let answer =
        post_json(format!("{}/completion", router.url()), format!(r#"{{"agent_session_id":"s",{rest}}}"#))
            .await;
    assert_eq!(answer.status, 200);
    // No assert_eq: it would print it all.
    assert!(arrived(&fake) == format!(r#"{{{rest},"id_slot":0}}"#), "the body has changed");
}
