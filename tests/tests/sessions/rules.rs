//! The section `[identity]` of the file.
use serde_json::json;
use session_slot_tests::client::chat;
use session_slot_tests::{FakeLlama, Options, Router};

use crate::{session_of, turn_with};

async fn complaint(toml: &str) -> String {
    let fake = FakeLlama::start(Options::default());
    let exited = Router::builder(&fake).config(toml).run_to_exit().await;
    assert!(!exited.status.success());
    exited.stderr.join("\n")
}

#[tokio::test]
async fn a_source_can_be_turned_off() {
    let fake = FakeLlama::start(Options::default());
    let toml = "[identity]\ndisabled = [\"header:x-session-id\", \"body:prompt_cache_key\"]\n";
    let router = Router::builder(&fake).config(toml).start().await;
    let answer = turn_with(&router, &[("x-session-id", "s")]).await;
    assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"));
    turn_with(&router, &[("x-session-id", "s"), ("x-task-id", "t")]).await;
    assert_eq!(session_of(&router, 2).await, "t");
}

#[tokio::test]
async fn the_list_can_be_replaced_by_another_order_and_other_headers() {
    let fake = FakeLlama::start(Options::default());
    let toml = "[identity]\nsources = [\"header:X-Conversation\", \"header:x-task-id\"]\n";
    let router = Router::builder(&fake).config(toml).start().await;
    turn_with(&router, &[("x-task-id", "t"), ("x-conversation", "c"), ("x-session-id", "s")]).await;
    assert_eq!(session_of(&router, 1).await, "c");
    let answer = chat(&router.url(), "ours", "a b c").await;
    assert_eq!(answer.header("x-slot-router-action"), Some("anonymous"));
}

#[tokio::test]
async fn a_rewrite_rule_makes_one_session_of_several_ids() {
    let fake = FakeLlama::start(Options::default());
    let toml = "[[identity.rewrite]]\npattern = '^job-(\\w+)-\\d+$'\nreplace = 'job:$1'\n";
    let router = Router::builder(&fake).config(toml).start().await;
    for (id, action) in [("job-backup-1", "new"), ("job-backup-2", "home"), ("job-mail-1", "new")] {
        let answer = chat(&router.url(), id, "a b c").await;
        assert_eq!(answer.header("x-slot-router-action"), Some(action), "{id}");
    }
    assert_eq!(session_of(&router, 2).await, "job:backup");
}

#[tokio::test]
async fn runs_of_a_cron_job_named_by_a_header_are_one_session() {
    let fake = FakeLlama::start(Options::default());
    let router = Router::start(&fake).await;
    for (time, action) in [("080000", "new"), ("200000", "home")] {
        let id = format!("cron_0123456789ab_20260131_{time}");
        let answer = turn_with(&router, &[("x-agent-session-id", &id)]).await;
        assert_eq!(answer.header("x-slot-router-action"), Some(action));
    }
    assert_eq!(session_of(&router, 2).await, "cron:0123456789ab");
}

#[tokio::test]
async fn a_bad_rule_or_source_stops_the_start_and_says_where() {
    for (toml, parts) in [
        ("[identity]\nsources = [\"x-session-id\"]\n", [".toml:2", "header:NAME"]),
        ("[identity]\ndisabled = [\"body:model\"]\n", [".toml:2", "body:prompt_cache_key"]),
        ("[identity]\n\n[[identity.rewrite]]\npattern = '('\nreplace = ''\n", [".toml:3", "unclosed group"]),
        ("[[identity.rewrite]]\npattern = '(a)'\nreplace = '$2'\n", [".toml:1", "does not have"]),
        ("[[identity.rewrite]]\npattern = 'a'\n", [".toml:1", "replace"]),
        ("[identity]\nsource = []\n", [".toml:2", "sources"]),
    ] {
        let complaint = complaint(toml).await;
        assert!(parts.iter().all(|part| complaint.contains(part)), "{toml}: {complaint}");
    }
}

#[tokio::test]
async fn the_rules_in_force_are_printed_as_a_file_would_have_them() {
    let fake = FakeLlama::start(Options::default());
    let toml = "[identity]\ndisabled = [\"header:x-task-id\"]\nsplit_subagents = false\n\
                [[identity.rewrite]]\npattern = '^\\d$'\nreplace = '\"$$\"'\n";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let print = |toml: String| {
        let router = Router::builder(&fake).state_dir(folder.path()).config(&toml);
        router.argument("--print-config").run_to_exit()
    };
    let printed = print(toml.to_owned()).await.stdout;
    assert!(printed.contains(&"split_subagents = false".to_owned()), "{printed:?}");
    assert!(
        printed.iter().any(|line| line.contains("header:x-openwebui-chat-id") && !line.contains("x-task-id"))
    );
    assert_eq!(print(printed.join("\n")).await.stdout, printed);
}

#[tokio::test]
async fn turning_off_what_is_not_on_is_told() {
    let fake = FakeLlama::start(Options::default());
    let router =
        Router::builder(&fake).config("[identity]\ndisabled = [\"header:x-sesion-id\"]\n").start().await;
    let warning = router.wait_log(|line| line["level"] == "WARN").await;
    assert!(warning["message"].as_str().is_some_and(|text| text.contains("x-sesion-id")), "{warning}");
    assert_eq!(router.status().await["sessions"], json!([]));
}
