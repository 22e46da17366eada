//! `session-slot-router why SESSION`: which turns read too much again, told beside a running router and without one.
use std::path::Path;
use std::process::{Command, Output};

use rusqlite::{Connection, params};
use session_slot_tests::router::binary;
use session_slot_tests::{FakeLlama, Options, Router, client};

/// Has everything in it that a terminal or a shell might take for something else.
const ODD: &str = "a\u{1b}[31m'; --\n\"é\"";

fn why(arguments: &[&str], variables: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(binary());
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SLOT_ROUTER_"))
    {
        command.env_remove(name);
    }
    command.args(arguments).envs(variables.iter().copied()).output().expect("the router's binary should run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("what is printed should be text")
}

/// What `why` prints of a session in this folder.
fn told(folder: &Path, session: &str) -> Vec<String> {
    let folder = folder.to_str().expect("the folder's name should be text");
    let output = why(&["why", "--state-dir", folder, "--", session], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn insert(folder: &Path, session: &str, count: u32, cause: &str) {
    insert_into(&folder.join("router.sqlite"), session, count, cause, 1_795_953_667_000);
}

fn insert_into(database: &Path, session: &str, count: u32, cause: &str, at: i64) {
    let database = Connection::open(database).expect("a router's database");
    let sql = "INSERT INTO rereads (at, session, computed, cached, before_tokens, cause)
               VALUES (?4, ?1, ?2, 159, 30279, ?3)";
    database.execute(sql, params![session, count, cause, at]).expect("a row");
}

/// A folder in which a session has had a turn, and its router.
async fn used(session: &str) -> (FakeLlama, tempfile::TempDir, Router) {
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let router = Router::builder(&fake).state_dir(folder.path()).start().await;
    client::chat(&router.url(), session, "hello").await;
    router.database().wait_session(session, |row| row["requests"] == 1).await;
    (fake, folder, router)
}

#[tokio::test]
async fn turns_are_told_the_newest_first_while_the_router_runs_and_when_it_does_not() {
    let (_fake, folder, router) = used(ODD).await;
    insert(folder.path(), ODD, 30_512, "message 7");
    insert(folder.path(), "another", 1, "lost");
    insert(folder.path(), ODD, 30_513, "tools");
    let lines = told(folder.path(), ODD);
    let again = |computed| format!("  read {computed} of {} tokens, 30120 of them again: ", computed + 159);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].ends_with(&format!("{}the tools are not what they were in the turn before", again(30_513))),
        "{lines:?}"
    );
    assert!(
        lines[1].ends_with(&format!("{}message 7 is not what it was in the turn before", again(30_512))),
        "{lines:?}"
    );
    assert!(lines[0].starts_with("2026-11-"), "{lines:?}");
    // Whatever it left behind.
    router.kill().await;
    assert_eq!(told(folder.path(), ODD), lines);
}

#[tokio::test]
async fn only_the_last_twenty_turns_are_told() {
    let (_fake, folder, _router) = used("s").await;
    (0..25).for_each(|count| insert(folder.path(), "s", count, "lost"));
    let lines = told(folder.path(), "s");
    assert_eq!(lines.len(), 20);
    assert!(lines[0].contains("read 24 of") && lines[19].contains("read 5 of"), "{lines:?}");
}

#[tokio::test]
async fn a_session_with_nothing_to_tell_and_one_that_is_not_known_are_told_apart() {
    let (_fake, folder, router) = used(ODD).await;
    let lines = told(folder.path(), ODD);
    assert!(
        lines.len() == 1 && lines[0].contains("no turn") && lines[0].contains(r"\u{1b}[31m"),
        "{lines:?}"
    );
    router.terminate().await;
    for other in ["a", "A\u{1b}[31m'; --\n\"é\"", "%", ""] {
        let folder = folder.path().to_str().expect("text");
        let output = why(&["--state-dir", folder, "why", other], &[]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{other}");
        let complaint = text(&output.stderr);
        assert!(complaint.contains("no session") && !complaint.contains('\u{1b}'), "{complaint}");
    }
}

#[tokio::test]
async fn the_folder_may_come_from_a_flag_the_environment_or_the_file() {
    let (_fake, folder, _router) = used("-s").await;
    let file = folder.path().join("router.toml");
    // Also where the router itself could not start with these settings.
    let toml = format!("api_key_file = \"not there\"\nstate_dir = {:?}\n", folder.path());
    std::fs::write(&file, toml).expect("the folder is ours");
    let path = file.to_str().expect("text");
    for (arguments, variables) in [
        (&["why", "--config", path, "--", "-s"][..], &[][..]),
        (&["--config", path, "why", "--", "-s"], &[]),
        (&["why", "--", "-s"], &[("SLOT_ROUTER_CONFIG", &*file)]),
        (&["why", "--", "-s"], &[("SLOT_ROUTER_STATE_DIR", folder.path())]),
    ] {
        let output = why(arguments, variables);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn where_there_is_no_database_none_is_made() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = why(&["why", "s"], &[("SLOT_ROUTER_STATE_DIR", folder.path())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--state-dir"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder is ours").count(), 0);
}

#[tokio::test]
async fn with_several_servers_what_all_of_them_know_of_a_session_is_told_together() {
    let fakes: Vec<_> = (0..2).map(|_| FakeLlama::start(Options::default())).collect();
    let server = |name, fake: &FakeLlama| {
        format!("[[server]]\nname = \"{name}\"\nurl = \"{}\"\nmodels = [\"m\"]\n", fake.url())
    };
    let config = server("a", &fakes[0]) + &server("b", &fakes[1]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let builder = Router::in_front_of("").no_upstream_flag().config(&config).state_dir(folder.path());
    let router = builder.start().await;
    assert_eq!(client::chat(&router.url(), "s", "hello").await.status.as_u16(), 200);
    assert!(router.terminate().await.success());
    assert_eq!(told(folder.path(), "s"), ["no turn of session \"s\" read more again than it should have"]);
    for (name, count, at) in [("a", 30_511, 1_000), ("b", 30_512, 2_000), ("a", 30_513, 3_000)] {
        insert_into(&folder.path().join(format!("servers/{name}.sqlite")), "s", count, "tools", at);
    }
    let lines = told(folder.path(), "s");
    let told: Vec<_> = ["30513", "30512", "30511"].map(|count| format!("  read {count} of ")).into();
    assert!(lines.len() == 3 && lines.iter().zip(&told).all(|(line, told)| line.contains(told)), "{lines:?}");
}
