//! Flags, environment and file, as the program takes them.
use std::path::Path;

use session_slot_tests::client;
use session_slot_tests::router::Exited;
use session_slot_tests::{FakeLlama, Options, Outgoing, Router};

const NOWHERE: &str = "http://127.0.0.1:1";

fn all(lines: &[String]) -> String {
    lines.join("\n")
}

async fn printed(router: session_slot_tests::router::RouterBuilder) -> toml_like::Lines {
    let exited = router.argument("--print-config").run_to_exit().await;
    assert_eq!(exited.status.code(), Some(0), "{}", all(&exited.stderr));
    toml_like::Lines(exited.stdout)
}

/// Just enough TOML to read what `--print-config` prints.
mod toml_like {
    pub(super) struct Lines(pub(super) Vec<String>);

    impl Lines {
        pub(super) fn get(&self, key: &str) -> &str {
            let value = self.0.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            value.unwrap_or_else(|| panic!("no {key} in {:?}", self.0))
        }
    }
}

#[tokio::test]
async fn an_address_others_can_reach_is_refused_without_a_key_or_an_explicit_yes() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let exited = Router::in_front_of(NOWHERE).listen(listen).run_to_exit().await;
        assert_eq!(exited.status.code(), Some(2));
        let complaint = all(&exited.stderr);
        assert!(complaint.contains("--api-key-file"), "{complaint}");
        assert!(complaint.contains("--allow-unauthenticated"), "{complaint}");
    }
}

#[tokio::test]
async fn an_address_others_can_reach_is_taken_with_a_key() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("key");
    std::fs::write(&path, "k").expect("the folder is ours");
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).listen("0.0.0.0:0").flag("--api-key-file", &path.to_string_lossy());
    let router = router.start().await;
    assert_eq!(client::get(format!("{}/v1/models", router.url())).await.status, 401);
    let request = Outgoing::get(format!("{}/v1/models", router.url())).header("x-api-key", "k");
    assert_eq!(client::send(request).await.status, 200);
}

#[tokio::test]
async fn an_address_others_can_reach_is_taken_with_an_explicit_yes() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::builder(&fake).listen("0.0.0.0:0").argument("--allow-unauthenticated").start().await;
    assert_eq!(client::get(format!("{}/v1/models", router.url())).await.status, 200);
}

#[tokio::test]
async fn an_unknown_key_in_the_file_is_an_error_naming_key_and_line() {
    let exited = Router::in_front_of(NOWHERE).config("drain = 1\n\nslot_count = 4\n").run_to_exit().await;
    assert_eq!(exited.status.code(), Some(2));
    let complaint = all(&exited.stderr);
    assert!(complaint.contains("test-config.toml:3:"), "{complaint}");
    assert!(complaint.contains("slot_count"), "{complaint}");
}

#[tokio::test]
async fn a_bad_flag_is_an_error_naming_it() {
    for (flag, value) in
        [("--pin", "sometimes"), ("--drain", "soon"), ("--max-body", "big"), ("--nonsense", "1")]
    {
        let exited = Router::in_front_of(NOWHERE).flag(flag, value).run_to_exit().await;
        assert_eq!(exited.status.code(), Some(2), "{flag}");
        assert!(all(&exited.stderr).contains(flag), "{:?}", exited.stderr);
    }
}

#[tokio::test]
async fn a_bad_variable_is_an_error_naming_it() {
    let exited = Router::in_front_of(NOWHERE).env("SLOT_ROUTER_DRAIN", "soon").run_to_exit().await;
    assert_eq!(exited.status.code(), Some(2));
    assert!(all(&exited.stderr).contains("SLOT_ROUTER_DRAIN"), "{:?}", exited.stderr);
}

#[tokio::test]
async fn a_flag_beats_the_environment_which_beats_the_file() {
    let router = || {
        Router::in_front_of(NOWHERE)
            .config("drain = 1\nevent_days = 1\npin = \"never\"\n")
            .env("SLOT_ROUTER_DRAIN", "2")
            .env("SLOT_ROUTER_EVENT_DAYS", "2")
    };
    let lines = printed(router().flag("--drain", "3")).await;
    assert_eq!((lines.get("drain"), lines.get("event_days"), lines.get("pin")), ("3", "2", "\"never\""));
}

#[tokio::test]
async fn upstream_and_listen_can_come_from_the_environment_or_the_file() {
    let fake = FakeLlama::start(Options::default());
    let from_environment = Router::builder(&fake).no_listen_flag().no_upstream_flag();
    let from_environment = from_environment
        .env("SLOT_ROUTER_LISTEN", "127.0.0.1:0")
        .env("SLOT_ROUTER_UPSTREAM", &fake.url())
        .start()
        .await;
    assert_eq!(client::get(format!("{}/v1/models", from_environment.url())).await.status, 200);
    let file = format!("listen = \"127.0.0.1:0\"\nupstream = \"{}/v1\"\n", fake.url());
    let from_file = Router::builder(&fake).no_listen_flag().no_upstream_flag().config(&file).start().await;
    assert_eq!(client::get(format!("{}/v1/models", from_file.url())).await.status, 200);
}

#[tokio::test]
async fn the_printed_settings_are_a_file_that_gives_the_same_settings() {
    let flags = |router: session_slot_tests::router::RouterBuilder| {
        router.flag("--max-body", "1MiB").flag("--allowed-host", "a,b").argument("--allow-unauthenticated")
    };
    let state = tempfile::tempdir().expect("a temporary folder");
    let first = flags(Router::in_front_of(NOWHERE).state_dir(state.path()));
    let first = printed(first).await.0;
    let again = Router::in_front_of(NOWHERE).state_dir(state.path()).config(&all(&first));
    assert_eq!(printed(again).await.0, first);
}

#[tokio::test]
async fn printing_settings_starts_nothing() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port should be free");
    let address = taken.local_addr().expect("a bound port has an address").to_string();
    let lines = printed(Router::in_front_of(NOWHERE).listen(&address).state_dir(state.path())).await;
    assert_eq!(lines.get("listen"), format!("\"{address}\""));
    assert!(!state.path().join("router.sqlite").exists());
}

#[tokio::test]
async fn version_and_help_are_printed() {
    let version = Router::in_front_of(NOWHERE).argument("--version").run_to_exit().await;
    assert_eq!(version.status.code(), Some(0));
    assert!(all(&version.stdout).starts_with("session-slot-router 0."), "{:?}", version.stdout);
    let help = Router::in_front_of(NOWHERE).argument("--help").run_to_exit().await;
    assert_eq!(help.status.code(), Some(0));
    let text = all(&help.stdout);
    assert!(text.contains("EXAMPLES:") && text.contains("session-slot-router --listen"), "{text}");
    for flag in ["--upstream", "--state-dir", "--config", "--api-key-file", "--print-config", "SLOT_ROUTER_"]
    {
        assert!(text.contains(flag), "no {flag} in {text}");
    }
}

#[tokio::test]
async fn an_upstream_that_is_the_router_itself_is_refused() {
    let Exited { status, stderr, .. } =
        Router::in_front_of("http://localhost:8081/v1").listen("127.0.0.1:8081").run_to_exit().await;
    assert_eq!(status.code(), Some(2));
    assert!(all(&stderr).contains("--upstream"), "{stderr:?}");
}

#[tokio::test]
async fn a_relative_state_folder_that_does_not_exist_is_made() {
    let fake = FakeLlama::start(Options::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let deep = folder.path().join("a/b");
    let router = Router::builder(&fake).state_dir(Path::new(&deep)).start().await;
    assert_eq!(router.status().await["store"]["on_disk"], true);
    assert!(deep.join("router.sqlite").exists());
}
