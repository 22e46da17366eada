//! Which session wins, for requests as the agents send them.

use http::HeaderValue;

use super::*;
use crate::body::parse;

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&str, &str)| {
        (
            name.parse::<http::HeaderName>().expect("a name"),
            HeaderValue::from_bytes(value.as_bytes()).expect("a value"),
        )
    };
    lines.iter().map(line).collect()
}

fn identified(rules: &Rules, lines: &[(&str, &str)], body: &str) -> Identity {
    let parsed = parse(body.as_bytes()).expect("usable members").expect("an object");
    rules.identify(&headers(lines), &parsed, None)
}

fn by_default(lines: &[(&str, &str)], body: &str) -> Identity {
    identified(&Rules::default(), lines, body)
}

fn session(identity: &Identity) -> Option<&str> {
    identity.session.as_ref().map(SessionId::as_str)
}

fn parent(identity: &Identity) -> Option<&str> {
    identity.parent.as_ref().map(SessionId::as_str)
}

fn source(identity: &Identity) -> String {
    identity.source.as_ref().map_or(String::new(), Source::to_string)
}

const CLAUDE: &str =
    r#"{"metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"c-1\"}"}}"#;

#[test]
fn each_source_names_the_session_when_those_before_it_are_silent() {
    let every: Vec<_> = Source::defaults();
    let names: Vec<_> = every.iter().map(Source::to_string).collect();
    let body = r#"{"agent_session_id":"s0","metadata":{"user_id":"{\"session_id\":\"s3\"}"},"prompt_cache_key":"s6"}"#;
    let lines: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(n, name)| (name.trim_start_matches("header:"), format!("s{n}")))
        .collect();
    let lines: Vec<_> =
        lines.iter().filter(|(name, _)| !name.contains(':')).map(|(n, v)| (*n, v.as_str())).collect();
    for (first, name) in names.iter().enumerate() {
        let rules = Rules { sources: every[first..].to_vec(), ..Rules::default() };
        let identity = identified(&rules, &lines, body);
        assert_eq!(session(&identity), Some(format!("s{first}").as_str()));
        assert_eq!(&source(&identity), name);
        assert_eq!(identity.conflict.as_ref(), every.get(first + 1));
    }
    assert_eq!(names.len(), 13);
}

#[test]
fn agents_are_recognised_by_what_they_send_anyway() {
    let claude = by_default(
        &[("x-claude-code-session-id", "c-1"), ("user-agent", "claude-cli/2.1.332 (external, sdk-cli)")],
        CLAUDE,
    );
    assert_eq!((session(&claude), claude.agent_name.as_deref()), (Some("c-1"), Some("claude-code")));
    assert_eq!(claude.conflict, None);
    let bare = by_default(&[], CLAUDE);
    assert_eq!((session(&bare), bare.agent_name.as_deref()), (Some("c-1"), Some("claude-code")));
    let codex = by_default(
        &[
            ("session-id", "x-1"),
            ("thread-id", "x-1"),
            ("x-codex-window-id", "x-1:0"),
            ("user-agent", "codex_exec/0.171.0"),
        ],
        r#"{"prompt_cache_key":"x-1"}"#,
    );
    assert_eq!((session(&codex), codex.agent_name.as_deref()), (Some("x-1"), Some("codex")));
    assert_eq!((codex.window.as_deref(), codex.parent, codex.conflict), (Some("x-1:0"), None, None));
    let opencode = by_default(
        &[
            ("x-session-affinity", "ses_2"),
            ("x-session-id", "ses_2"),
            ("x-parent-session-id", "ses_1"),
            ("user-agent", "opencode/1.18.33 ai-sdk"),
        ],
        "{}",
    );
    assert_eq!((session(&opencode), opencode.agent_name.as_deref()), (Some("ses_2"), Some("opencode")));
    assert_eq!(parent(&opencode), Some("ses_1"));
    let pi = by_default(&[("session-id", "p"), ("x-client-request-id", "p")], r#"{"prompt_cache_key":"p"}"#);
    assert_eq!((session(&pi), pi.agent_name.as_deref()), (Some("p"), None));
}

#[test]
fn what_an_agent_calls_itself_beats_what_it_looks_like() {
    let identity =
        by_default(&[("user-agent", "opencode/1")], r#"{"agent_name":"mine","agent_session_id":"s"}"#);
    assert_eq!(identity.agent_name.as_deref(), Some("mine"));
}

#[test]
fn a_subagent_that_goes_by_its_parents_id_has_a_session_of_its_own() {
    let claude = [("x-claude-code-session-id", "c-1"), ("x-claude-code-agent-id", "a50a")];
    let identity = by_default(&claude, CLAUDE);
    assert_eq!((session(&identity), parent(&identity)), (Some("c-1/a50a"), Some("c-1")));
    let codex = [
        ("session-id", "x-1"),
        ("thread-id", "x-2"),
        ("x-codex-parent-thread-id", "x-1"),
        ("x-codex-window-id", "x-2:0"),
    ];
    let identity = by_default(&codex, r#"{"prompt_cache_key":"x-1"}"#);
    assert_eq!((session(&identity), parent(&identity)), (Some("x-1/x-2"), Some("x-1")));
    let off = Rules { split_subagents: false, ..Rules::default() };
    assert_eq!(session(&identified(&off, &codex, "{}")), Some("x-1"));
    assert_eq!(session(&by_default(&claude, r#"{"agent_session_id":"mine"}"#)), Some("mine"));
}

#[test]
fn a_subagent_whose_id_is_too_long_goes_by_its_parent_and_that_is_told() {
    let long = "x".repeat(512);
    let identity =
        by_default(&[("x-claude-code-session-id", "c-1"), ("x-claude-code-agent-id", &long)], "{}");
    assert_eq!(session(&identity), Some("c-1"));
    assert_eq!(identity.rejected[0].1, Unusable::TooLong);
}

#[test]
fn an_id_that_is_too_long_or_no_text_is_passed_over_and_told() {
    let long = "x".repeat(513);
    let identity =
        by_default(&[("x-agent-session-id", &long), ("x-session-id", "s\tt"), ("x-task-id", "ok")], "{}");
    assert_eq!((session(&identity), source(&identity).as_str()), (Some("ok"), "header:x-task-id"));
    let whys: Vec<_> = identity.rejected.iter().map(|(source, why)| (source.to_string(), *why)).collect();
    assert_eq!(
        whys,
        [
            ("header:x-agent-session-id".into(), Unusable::TooLong),
            ("header:x-session-id".into(), Unusable::Control)
        ]
    );
    let c1 = by_default(&[("x-session-id", "a\u{85}b")], "{}");
    assert_eq!((session(&c1), c1.rejected[0].1), (None, Unusable::Control));
    let mut raw = HeaderMap::new();
    raw.insert("x-session-id", HeaderValue::from_bytes(b"\xff").expect("a value"));
    let body = parse(b"{}").expect("usable").expect("an object");
    assert_eq!(Rules::default().identify(&raw, &body, None).rejected[0].1, Unusable::NotText);
    let key = by_default(&[], &format!(r#"{{"prompt_cache_key":"{long}"}}"#));
    assert_eq!((session(&key), key.rejected[0].1), (None, Unusable::TooLong));
}

#[test]
fn a_hash_of_the_prompt_is_no_conversation() {
    let key = |key: &str| by_default(&[], &format!(r#"{{"prompt_cache_key":"{key}"}}"#));
    assert_eq!(session(&key("pck_a54ed9541fe853923c17e2c3")), None);
    assert_eq!(session(&key("pck_mine")), Some("pck_mine"));
    let hermes =
        by_default(&[], r#"{"prompt_cache_key":"pck_a54ed9541fe853923c17e2c3","agent_session_id":"s"}"#);
    assert_eq!((session(&hermes), &hermes.conflict), (Some("s"), &None));
}

#[test]
fn an_empty_header_names_nobody() {
    let identity = by_default(&[("x-agent-session-id", " "), ("x-session-id", "")], "{}");
    assert_eq!(session(&identity), None);
    assert!(identity.rejected.is_empty());
}

#[test]
fn ids_of_other_scripts_are_as_good_as_any() {
    assert_eq!(
        session(&by_default(&[("x-session-id", " S\u{fc}d \u{2713} ")], "{}")),
        Some("S\u{fc}d \u{2713}")
    );
}

#[test]
fn runs_of_one_cron_job_are_one_session_whichever_way_they_are_named() {
    let body = r#"{"agent_session_id":"cron:0123456789ab"}"#;
    let identity = by_default(&[("x-session-id", "cron_0123456789ab_20260131_235959")], body);
    assert_eq!(session(&identity), Some("cron:0123456789ab"));
    assert_eq!(identity.conflict, None);
}

#[test]
fn the_users_rules_see_what_the_cron_rule_left() {
    let rule = |pattern, replace| Rewrite::new(pattern, replace).expect("a rule");
    let rewrites =
        vec![rule(r"^job-(\w+)-\d+$", "job:$1"), rule("^cron:", "nightly:"), rule("^nightly:0", "n")];
    let rules = Rules { rewrites, ..Rules::default() };
    assert_eq!(session(&identified(&rules, &[("x-session-id", "job-a-1")], "{}")), Some("job:a"));
    let run = [("x-session-id", "cron_0123456789ab_20260131_235959")];
    assert_eq!(session(&identified(&rules, &run, "{}")), Some("n123456789ab"));
}

#[test]
fn a_rule_that_leaves_no_usable_id_changes_nothing() {
    let rule = |pattern, replace: &str| Rewrite::new(pattern, replace).expect("a rule");
    let rules = Rules { rewrites: vec![rule("^.*$", "")], ..Rules::default() };
    assert_eq!(session(&identified(&rules, &[("x-session-id", "s")], "{}")), Some("s"));
    let rules = Rules { rewrites: vec![rule("^.*$", &"x".repeat(600))], ..Rules::default() };
    assert_eq!(session(&identified(&rules, &[("x-session-id", "s")], "{}")), Some("s"));
}

#[test]
fn two_users_have_two_sessions_of_one_name() {
    let body = parse(br#"{"agent_session_id":"s"}"#).expect("usable").expect("an object");
    let key = |user| Rules::default().identify(&HeaderMap::new(), &body, user).session.expect("a session");
    assert_eq!(key(Some("ann")).as_str(), "ann/s");
    assert_ne!(key(Some("ann")), key(Some("bob")));
    assert_eq!(key(None).as_str(), "s");
}

#[test]
fn a_parent_goes_by_the_key_of_its_own_session() {
    let rule = Rewrite::new("^ses_", "").expect("a rule");
    let rules = Rules { rewrites: vec![rule], ..Rules::default() };
    let body = parse(b"{}").expect("usable").expect("an object");
    let child_of = |lines: &[(&str, &str)]| rules.identify(&headers(lines), &body, Some("ann"));
    let child = [("x-session-id", "ses_2"), ("x-parent-session-id", "ses_1")];
    assert_eq!(parent(&child_of(&child)), Some("ann/1"));
    let thread = [("session-id", "x-1"), ("thread-id", "x-2"), ("x-codex-parent-thread-id", "x-1")];
    assert_eq!(parent(&child_of(&thread)), Some("ann/x-1"));
}

#[test]
fn a_place_there_is_not_is_refused_with_those_there_are() {
    for text in ["x-session-id", "body:model", "header:", "header:a b", "header:X-API-Key", ""] {
        let error = text.parse::<Source>().expect_err("refused").to_string();
        assert!(error.contains("header:NAME") && error.contains("body:prompt_cache_key"), "{error}");
    }
    assert_eq!("header:X-Mine".parse::<Source>().expect("a source").to_string(), "header:x-mine");
}

#[test]
fn rules_that_make_an_id_longer_and_longer_leave_it_as_it_was() {
    let doubling = Rewrite::new("^.*$", "$0$0").expect("a rule");
    let rules = Rules { rewrites: vec![doubling; 60], ..Rules::default() };
    assert_eq!(session(&identified(&rules, &[("x-session-id", "ab")], "{}")), Some("ab"));
}
