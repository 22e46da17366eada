//! Users with keys of their own.
use serde_json::json;
use session_slot_tests::client::{self, chat_request};
use session_slot_tests::{FakeLlama, Options, Router};

#[tokio::test]
async fn two_users_never_share_a_session() {
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys");
    std::fs::write(&path, "ann key-of-ann\nbob key-of-bob\n").expect("the folder is ours");
    let router = Router::builder(&fake).flag("--api-key-file", &path.to_string_lossy()).start().await;
    for (key, action) in
        [("key-of-ann", "new"), ("key-of-bob", "new"), ("key-of-ann", "home"), ("key-of-bob", "home")]
    {
        let request =
            chat_request(&router.url(), "same", "a b c").header("authorization", &format!("Bearer {key}"));
        let answer = client::send(request).await;
        assert_eq!(answer.header("x-slot-router-action"), Some(action), "{key}");
    }
    let sessions: Vec<_> =
        router.wait_requests(4).await.iter().map(|line| line["agent_session_id"].clone()).collect();
    assert_eq!(sessions, [json!("ann/same"), json!("bob/same"), json!("ann/same"), json!("bob/same")]);
    let refused =
        client::send(chat_request(&router.url(), "same", "a b c").header("x-api-key", "key-of-eve")).await;
    assert_eq!(refused.status, 401);
    assert!(fake.received().iter().all(|one| one.header("authorization").is_none()));
    assert!(!router.log_lines().concat().contains("key-of"));
    let start = router.wait_log(|line| line["message"] == "listening").await;
    assert_eq!(start["users"], "ann bob", "who may come in is told, so that a mistyped file shows");
}

#[tokio::test]
async fn a_key_file_that_would_mix_users_up_stops_the_start() {
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("keys");
    std::fs::write(&path, "ann key-of-ann\nkey-of-bob\n").expect("the folder is ours");
    let exited = Router::builder(&fake).flag("--api-key-file", &path.to_string_lossy()).run_to_exit().await;
    let complaint = exited.stderr.join("\n");
    assert!(!exited.status.success());
    assert!(complaint.contains("line 2") && complaint.contains("NAME KEY"), "{complaint}");
    assert!(!complaint.contains("key-of"), "{complaint}");
}
