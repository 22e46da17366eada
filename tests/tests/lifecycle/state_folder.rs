//! A state folder that is not as it should be: requests are served all the same, and nothing is lost.
use std::path::Path;

use rusqlite::Connection;
use session_slot_tests::client;
use session_slot_tests::{FakeLlama, Options, Router};

async fn serves(router: &Router) {
    let answer = client::chat(&router.url(), "a", "hello").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-slot-router-slot"), Some("0"));
}

/// The warnings of a router that has ended.
fn warnings(router: &Router) -> Vec<String> {
    router.log().iter().filter(|line| line["level"] == "WARN").map(ToString::to_string).collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is ours");
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

#[tokio::test]
async fn a_state_folder_that_can_not_be_made_costs_one_warning() {
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").expect("the folder is ours");
    let router = Router::builder(&fake).state_dir(&file.join("below")).start().await;
    serves(&router).await;
    assert_eq!(router.status().await["store"]["on_disk"], false);
    assert_eq!(router.terminate().await.code(), Some(0));
    let warnings = warnings(&router);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("in memory") && warnings[0].contains("router.sqlite"), "{warnings:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_state_folder_that_is_read_only_costs_one_warning() {
    use std::os::unix::fs::PermissionsExt;
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mode = |mode| std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(mode));
    mode(0o555).expect("the folder is ours");
    if std::fs::write(folder.path().join("probe"), "").is_ok() {
        // To the superuser no folder is read-only.
        return;
    }
    let router = Router::builder(&fake).state_dir(folder.path()).start().await;
    serves(&router).await;
    assert_eq!(router.terminate().await.code(), Some(0));
    assert_eq!(warnings(&router).len(), 1);
    mode(0o755).expect("the folder is ours");
}

#[tokio::test]
async fn a_damaged_database_is_set_aside_and_a_new_one_begun() {
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let damaged = "not a database, but somebody's ".repeat(1000);
    std::fs::write(folder.path().join("router.sqlite"), &damaged).expect("the folder is ours");
    let router = Router::builder(&fake).state_dir(folder.path()).start().await;
    serves(&router).await;
    assert_eq!(router.status().await["store"]["on_disk"], true);
    assert_eq!(router.terminate().await.code(), Some(0));
    assert_eq!(router.database().events().len(), 1);
    let names = names_in(folder.path());
    let aside: Vec<_> = names.iter().filter(|name| name.contains("corrupt")).collect();
    assert_eq!(aside.len(), 1, "{names:?}");
    let kept = std::fs::read_to_string(folder.path().join(aside[0])).expect("it is still there");
    assert_eq!(kept, damaged);
    let warnings = warnings(&router);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(aside[0].as_str()), "{warnings:?}");
}

#[tokio::test]
async fn a_database_of_a_newer_version_stops_the_start_and_is_left_as_it_is() {
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("router.sqlite");
    let newer = Connection::open(&path).expect("the folder is ours");
    newer.execute_batch("CREATE TABLE future (x); PRAGMA user_version = 99;").expect("it is ours");
    drop(newer);
    let before = std::fs::read(&path).expect("it is there");
    let exited = Router::builder(&fake).state_dir(folder.path()).run_to_exit().await;
    assert_eq!(exited.status.code(), Some(1));
    let complaint = exited.stderr.join("\n");
    for word in ["newer version", "99", "--state-dir", "router.sqlite"] {
        assert!(complaint.contains(word), "no {word} in {complaint}");
    }
    assert_eq!(std::fs::read(&path).expect("it is there"), before);
    assert_eq!(names_in(folder.path()), ["router.sqlite"]);
}

#[tokio::test]
async fn two_routers_can_share_a_folder_without_harm() {
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let first = Router::builder(&fake).state_dir(folder.path()).start().await;
    let second = Router::builder(&fake).state_dir(folder.path()).start().await;
    assert_eq!(client::chat(&first.url(), "a", "hello").await.status, 200);
    assert_eq!(client::chat(&second.url(), "b", "hello").await.status, 200);
    assert_eq!(first.terminate().await.code(), Some(0));
    assert_eq!(second.terminate().await.code(), Some(0));
    assert_eq!(second.database().events().len(), 2);
}

#[tokio::test]
async fn a_database_that_is_deleted_under_a_running_router_stops_nothing() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    serves(&router).await;
    for name in names_in(router.state_dir()) {
        std::fs::remove_file(router.state_dir().join(name)).expect("the folder is ours");
    }
    serves(&router).await;
    assert_eq!(router.terminate().await.code(), Some(0));
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_can_read_the_database() {
    use std::os::unix::fs::PermissionsExt;
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    serves(&router).await;
    let mode = |name: &str| {
        let metadata = std::fs::metadata(router.state_dir().join(name)).expect("it is there");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!((mode("router.sqlite"), mode("router.sqlite-wal")), (0o600, 0o600));
}
