//! What becomes of old, new, broken and unwritable databases.
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};
use session_slot_tests::client::{self, chat};
use session_slot_tests::{FakeLlama, Options, Router};
use tempfile::TempDir;

use crate::text;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder should be possible")
}

fn file(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("router.sqlite")
}

fn edit(folder: &TempDir, statements: &str) {
    let connection = Connection::open(file(folder)).expect("the database should open");
    connection.execute_batch(statements).expect("the statements should be right");
}

fn warnings(router: &Router) -> Vec<Value> {
    router.log().into_iter().filter(|line| line["level"] == "WARN").collect()
}

/// Leaves a database with one session and its event behind.
async fn used(fake: &FakeLlama, folder: &TempDir) {
    let router = Router::builder(fake).state_dir(folder.path()).start().await;
    chat(&router.url(), "old", "words").await;
    router.terminate().await;
}

async fn assert_serves(router: &Router) {
    for (id, action) in [("new", "new"), ("new", "home"), ("other", "new")] {
        let answer = chat(&router.url(), id, "words").await;
        assert_eq!((answer.status.as_u16(), answer.header("x-slot-router-action")), (200, Some(action)));
    }
}

#[tokio::test]
async fn events_older_than_event_days_are_deleted_at_the_start() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    used(&fake, &folder).await;
    let days = |count: i64| {
        format!(
            "INSERT INTO events (at, method, route, action, waited_ms, status)
             VALUES ((unixepoch() - {count} * 86400) * 1000, 'GET', '/{count}', 'pass', 0, 200);"
        )
    };
    edit(&folder, &[days(5), days(8), days(40)].concat());
    let router = Router::builder(&fake).state_dir(folder.path()).flag("--event-days", "7").start().await;
    router.terminate().await;
    let routes: Vec<_> = router.database().events().into_iter().map(|row| row["route"].clone()).collect();
    assert_eq!(routes, [json!("/v1/chat/completions"), json!("/5")]);
    assert_eq!(router.database().session("old")["requests"], 1);
}

#[tokio::test]
async fn events_are_kept_for_thirty_days_unless_told_otherwise() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    used(&fake, &folder).await;
    edit(&folder, "UPDATE events SET at = at - 29 * 86400000");
    used(&fake, &folder).await;
    edit(&folder, "UPDATE events SET at = at - 2 * 86400000");
    used(&fake, &folder).await;
    let router = Router::builder(&fake).state_dir(folder.path()).start().await;
    router.terminate().await;
    assert_eq!(router.database().events().len(), 2);
}

#[tokio::test]
async fn with_zero_event_days_no_event_is_kept_but_sessions_are() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    let router = Router::builder(&fake).state_dir(folder.path()).flag("--event-days", "0").start().await;
    assert_serves(&router).await;
    router.terminate().await;
    assert_eq!(router.database().events(), [json!(null); 0]);
    assert_eq!(router.database().session("new")["requests"], 2);
    assert_eq!(router.request_log().len(), 3);
}

#[tokio::test]
async fn a_database_from_before_the_first_schema_is_migrated_in_place() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    edit(&folder, "CREATE TABLE note (text); INSERT INTO note VALUES ('mine'); PRAGMA user_version = 0;");
    let router = Router::builder(&fake).state_dir(folder.path()).start().await;
    assert_serves(&router).await;
    router.terminate().await;
    let database = router.database();
    assert_eq!(database.session("new")["requests"], 2);
    assert_eq!(database.rows("SELECT text FROM note"), [json!({"text": "mine"})]);
    assert!(database.rows("PRAGMA user_version")[0]["user_version"].as_i64() >= Some(1));
    assert_eq!(warnings(&router), [json!(null); 0]);
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused_and_left_as_it_is() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    used(&fake, &folder).await;
    edit(&folder, "PRAGMA user_version = 999");
    let before = std::fs::read(file(&folder)).expect("the file should be there");
    let exited = Router::builder(&fake).state_dir(folder.path()).run_to_exit().await;
    assert_eq!(exited.status.code(), Some(1));
    let said = exited.stderr.join("\n");
    assert!(said.contains("newer version") && said.contains("router.sqlite"), "{said}");
    assert!(said.contains("--state-dir"), "{said}");
    assert_eq!(std::fs::read(file(&folder)).expect("the file should be there"), before);
}

#[tokio::test]
async fn a_corrupt_database_is_set_aside_and_a_new_one_begun() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    let rubbish = b"this is no database ".repeat(1000);
    std::fs::write(file(&folder), &rubbish).expect("the folder is ours");
    let router = Router::builder(&fake).state_dir(folder.path()).start().await;
    assert_serves(&router).await;
    assert_eq!(router.status().await["store"]["on_disk"], true);
    router.terminate().await;
    assert_eq!(warnings(&router).len(), 1, "{:?}", warnings(&router));
    let files = std::fs::read_dir(folder.path()).expect("the folder is ours").filter_map(Result::ok);
    let aside: Vec<_> = files.filter(|one| one.file_name().to_string_lossy().contains("corrupt")).collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(std::fs::read(aside[0].path()).expect("the file should be there"), rubbish);
    assert_eq!(router.database().session("new")["requests"], 2);
}

/// Served, remembered for as long as it runs, and complained of once.
async fn assert_degraded(router: &Router) {
    assert_serves(router).await;
    for n in 0..20 {
        assert_eq!(chat(&router.url(), &format!("s{n}"), "words").await.status, 200);
    }
    let off_disk = |status: &Value| status["store"]["on_disk"] == false;
    router.wait_status("store off the disk", off_disk).await;
    assert!(router.terminate().await.success());
    let warnings = warnings(router);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let message = text(&warnings[0]["message"]);
    assert!(message.contains("in memory") && message.contains("served as usual"), "{message}");
    assert_eq!(router.request_log().len(), 23);
    assert_eq!(router.stderr_lines(), [""; 0]);
}

#[tokio::test]
async fn a_state_folder_that_can_not_be_made_means_memory_and_one_warning() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    std::fs::write(folder.path().join("file"), "a file").expect("the folder is ours");
    let router = Router::builder(&fake).state_dir(&folder.path().join("file/state")).start().await;
    assert_degraded(&router).await;
}

#[tokio::test]
async fn a_state_folder_that_is_read_only_means_memory_and_one_warning() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o555)).expect("it is ours");
    if std::fs::write(folder.path().join("probe"), "").is_ok() {
        // Root may write anywhere; then the test above has to do.
        return;
    }
    let router = Router::builder(&fake).state_dir(folder.path()).start().await;
    assert_degraded(&router).await;
}

/// The router under a limit that makes files stop growing, as a full disk does.
fn limited(folder: &Path) -> std::path::PathBuf {
    let script = folder.join("limited");
    let router = session_slot_tests::router::binary();
    // Ignored, so that the write fails instead of ending the program. Blocks have 512 or 1024 bytes.
    let text = format!("#!/bin/sh\ntrap '' XFSZ\nulimit -f 64\nexec '{}' \"$@\"\n", router.display());
    std::fs::write(&script, text).expect("the folder is ours");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("the file is ours");
    script
}

#[tokio::test]
async fn a_disk_that_fills_up_means_memory_and_one_warning() {
    let (fake, folder, tools) = (FakeLlama::start(Options::default()), folder(), folder());
    let script = limited(tools.path());
    let router = Router::builder(&fake).state_dir(folder.path()).program(&script).start().await;
    let off_disk = async || router.status().await["store"]["on_disk"] == false;
    for n in 0..2000 {
        let answer = client::get(format!("{}/v1/models", router.url())).await;
        assert_eq!(answer.status, 200);
        if n % 20 == 0 && off_disk().await {
            break;
        }
    }
    assert_serves(&router).await;
    assert!(off_disk().await);
    assert!(router.terminate().await.success());
    let warnings = warnings(&router);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(text(&warnings[0]["message"]).contains("in memory"), "{warnings:?}");
}

#[tokio::test]
async fn a_database_locked_by_somebody_else_does_not_hold_requests_up() {
    let (fake, folder) = (FakeLlama::start(Options::default()), folder());
    used(&fake, &folder).await;
    let router = Router::builder(&fake).state_dir(folder.path()).start().await;
    let other = Connection::open(file(&folder)).expect("the database should open");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else holds the lock");
    assert_serves(&router).await;
    other.execute_batch("ROLLBACK").expect("the lock is ours");
    router.terminate().await;
    assert_eq!(router.database().session("new")["requests"], 2);
    assert_eq!(warnings(&router), [json!(null); 0]);
}
