//! The router harness against a stand-in, so that its own faults are not taken for the router's.
#![cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use session_slot_tests::{FakeLlama, Options, Router};
use tempfile::TempDir;

/// A file that is being written can't be run, and a fork at the wrong moment keeps it open for
/// writing: one test at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A shell script in the router's place.
fn stand_in(folder: &TempDir, script: &str) -> PathBuf {
    let path = folder.path().join("stand-in");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the folder is ours");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, executable).expect("the file is ours");
    path
}

const LISTENING: &str = r#"echo '{"message":"listening","address":"127.0.0.1:4711"}'"#;

#[tokio::test]
async fn it_learns_the_address_reads_lines_and_ends_with_sigterm() {
    let _alone = ALONE.lock().await;
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = format!(
        r#"trap 'echo "{{\"message\":\"bye\"}}"; exit 7' TERM
{LISTENING}
echo '{{"message":"request","slot":2}}'
while true; do sleep 0.01; done"#
    );
    let router = Router::builder(&fake).program(&stand_in(&folder, &script)).start().await;
    assert_eq!(router.url(), "http://127.0.0.1:4711");
    assert_eq!(router.wait_requests(1).await[0]["slot"], 2);
    assert_eq!(router.wait_log(|line| line["slot"] == 2).await["message"], "request");
    assert_eq!(router.terminate().await.code(), Some(7));
    assert_eq!(router.log().last().map(|line| &line["message"]), Some(&"bye".into()));
}

#[tokio::test]
async fn it_passes_flags_environment_and_config() {
    let _alone = ALONE.lock().await;
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = r#"echo "$@"; echo "$SLOT_ROUTER_PIN"; cat "$STATE/test-config.toml" >&2; exit 3"#;
    let state = tempfile::tempdir().expect("a temporary folder");
    let exited = Router::builder(&fake)
        .program(&stand_in(&folder, script))
        .state_dir(state.path())
        .flag("--drain", "1")
        .env("SLOT_ROUTER_PIN", "never")
        .env("STATE", &state.path().to_string_lossy())
        .config("pin = \"always\"")
        .run_to_exit()
        .await;
    assert_eq!(exited.status.code(), Some(3));
    assert!(exited.stdout[0].starts_with("--listen 127.0.0.1:0 --upstream http://127.0.0.1:"));
    assert!(exited.stdout[0].ends_with("--drain 1"), "{:?}", exited.stdout);
    assert_eq!(exited.stdout[1], "never");
    assert_eq!(exited.stderr, ["pin = \"always\""]);
}

#[tokio::test]
#[should_panic(expected = "no good")]
async fn a_router_that_does_not_start_fails_the_test_with_what_it_said() {
    let _alone = ALONE.lock().await;
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = stand_in(&folder, "echo 'no good' >&2; exit 1");
    let _router = Router::builder(&fake).program(&program).start().await;
}
