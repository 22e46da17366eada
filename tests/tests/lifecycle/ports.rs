//! The listening port.
use session_slot_tests::client;
use session_slot_tests::{FakeLlama, Options, Router};

#[tokio::test]
async fn a_second_router_on_the_same_port_ends_and_leaves_the_first_alone() {
    let fake = FakeLlama::start(Options::default());
    let first = Router::start(&fake).await;
    let second = Router::builder(&fake).listen(first.address()).run_to_exit().await;
    assert_eq!(second.status.code(), Some(1));
    let complaint = second.stderr.join("\n");
    assert!(complaint.contains(first.address()) && complaint.contains("--listen"), "{complaint}");
    assert!(second.stdout.join("\n").contains("is taken"), "{:?}", second.stdout);
    assert_eq!(client::chat(&first.url(), "a", "hello").await.status, 200);
}

#[tokio::test]
async fn a_second_router_on_the_same_port_does_not_touch_the_database() {
    let fake = FakeLlama::start(Options::default());
    let first = Router::start(&fake).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let second = Router::builder(&fake).listen(first.address()).state_dir(folder.path()).run_to_exit().await;
    assert!(!second.status.success());
    assert!(!folder.path().join("router.sqlite").exists());
}

#[tokio::test]
async fn an_address_of_another_machine_can_not_be_listened_on() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).listen("192.0.2.1:0").argument("--allow-unauthenticated");
    let exited = router.run_to_exit().await;
    assert_eq!(exited.status.code(), Some(1));
    assert!(exited.stderr.join("\n").contains("192.0.2.1"), "{:?}", exited.stderr);
}

#[tokio::test]
async fn a_port_can_be_listened_on_again_right_after_a_router_has_ended() {
    let fake = FakeLlama::start(Options::default());
    let first = Router::start(&fake).await;
    let address = first.address().to_owned();
    assert_eq!(client::chat(&first.url(), "a", "hello").await.status, 200);
    assert_eq!(first.terminate().await.code(), Some(0));
    let second = Router::builder(&fake).listen(&address).start().await;
    assert_eq!(second.address(), address);
    assert_eq!(client::chat(&second.url(), "a", "hello").await.status, 200);
}
