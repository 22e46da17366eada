//! What flags, environment and file add up to.

#![allow(clippy::unwrap_used)]

mod servers;

use clap::Parser;

use super::*;

fn resolve(flags: &[&str], variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let args = Args::try_parse_from(["session-slot-router"].iter().chain(flags)).unwrap();
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Config::resolve(&args, variables)
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("router.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

fn complaint(flags: &[&str], variables: &[(&str, &str)]) -> String {
    resolve(flags, variables).unwrap_err().to_string()
}

#[test]
fn nothing_given_means_the_documented_defaults() {
    let config = resolve(&[], &[]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8081");
    assert_eq!(config.upstream.to_string(), "http://127.0.0.1:8080");
    assert_eq!(config.database(), Path::new("./router.sqlite"));
    assert_eq!(config.pin, PinPolicy::Auto);
    assert_eq!(config.concurrent, Concurrent::Wait);
    assert_eq!(config.evict, Evict::Cost);
    assert_eq!(config.warm, Warm::default());
    assert_eq!(config.policy(), Policy::default());
    assert_eq!(config.max_body, 268_435_456);
    assert_eq!(config.drain, Duration::from_secs(30));
    assert_eq!(config.event_days, 30);
    assert_eq!(config.log_format, LogFormat::Text);
    assert!(config.api_keys.is_empty() && config.upstream_api_key.is_none());
    assert!(config.warnings.is_empty());
}

#[test]
fn flags_beat_the_environment_which_beats_the_file_which_beats_the_defaults() {
    let (_dir, path) = file("drain = 1\nevent_days = 1\npin = \"never\"\n");
    let config = resolve(
        &["--config", &path, "--drain", "3"],
        &[("SLOT_ROUTER_DRAIN", "2"), ("SLOT_ROUTER_EVENT_DAYS", "2")],
    )
    .unwrap();
    assert_eq!(config.drain, Duration::from_secs(3));
    assert_eq!(config.event_days, 2);
    assert_eq!(config.pin, PinPolicy::Never);
    assert_eq!(config.log_format, LogFormat::Text);
}

#[test]
fn every_setting_can_come_from_each_source() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "k\n").unwrap();
    let key = key.to_str().unwrap();
    let values = [
        ("LISTEN", "0.0.0.0:9"),
        ("UPSTREAM", "http://h:1/p"),
        ("STATE_DIR", "/s"),
        ("PIN", "always"),
        ("CONCURRENT", "spill"),
        ("EVICT", "cost"),
        ("WARM_DIR", "/w"),
        ("MAX_BODY", "7"),
        ("DRAIN", "8"),
        ("EVENT_DAYS", "9"),
        ("LOG_FORMAT", "json"),
        ("API_KEY_FILE", key),
        ("ALLOW_UNAUTHENTICATED", "true"),
        ("ALLOWED_HOSTS", "a,b"),
        ("UPSTREAM_API_KEY_FILE", key),
    ];
    let variables: Vec<_> =
        values.iter().map(|(name, value)| (format!("SLOT_ROUTER_{name}"), *value)).collect();
    let variables: Vec<_> = variables.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let from_environment = resolve(&[], &variables).unwrap();
    let flags: Vec<_> = values
        .iter()
        .map(|(name, value)| {
            let flag = name.to_ascii_lowercase().replace('_', "-");
            let flag = if flag == "allowed-hosts" { "allowed-host" } else { &flag };
            format!("--{flag}={value}")
        })
        .collect();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let from_flags = resolve(&flags, &[]).unwrap();
    let (_dir, path) = file(&from_flags.to_toml());
    let from_file = resolve(&["--config", &path], &[]).unwrap();
    assert_eq!(format!("{from_environment:?}"), format!("{from_flags:?}"));
    assert_eq!(format!("{from_file:?}"), format!("{from_flags:?}"));
    assert_eq!(from_file.allowed_hosts, ["a", "b"]);
    assert_eq!(from_file.upstream_api_key.unwrap().expose(), "k");
}

#[test]
fn an_unknown_key_is_refused_with_file_line_and_key_but_without_its_value() {
    let (_dir, path) = file("drain = 1\n\napi_key = \"hunter2\"\n");
    let message = complaint(&["--config", &path], &[]);
    assert!(message.starts_with(&format!("{path}:3: ")), "{message}");
    assert!(message.contains("`api_key`") && message.contains("`api_key_file`"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn a_bad_value_in_the_file_is_refused_with_its_line_and_a_way_out() {
    for (text, needle) in [
        ("\nlisten = \"localhost\"\n", "127.0.0.1:8081"),
        ("\nupstream = \"https://h\"\n", "plain HTTP"),
        ("\nmax_body = -1\n", "256MiB"),
        ("\nmax_body = 1.5\n", "number of bytes"),
        ("\npin = \"sometimes\"\n", "`auto`"),
        ("\nconcurrent = \"both\"\n", "`spill`"),
        ("\nevict = \"me\"\n", "`cost`"),
        ("\nwarm_dir = \"/w\"\n", "`warm`"),
        ("[warm]\nshare = \"some\"\n", "`same_key`"),
        ("[warm]\nmax_bytes = 0\n", "size above 0"),
        ("[warm]\nmin_tokens = -1\n", "u64"),
        ("\ndrain = \"30s\"\n", "u64"),
        ("\ndrain = \n", ""),
        ("\ndrain = 1\ndrain = 2\n", "duplicate"),
    ] {
        let (_dir, path) = file(text);
        let message = complaint(&["--config", &path], &[]);
        assert!(message.starts_with(&path) && message.contains(needle), "{message}");
    }
}

#[test]
fn what_the_file_says_of_the_queue_is_in_force_and_printed() {
    let (_dir, path) =
        file("[upstream]\nstuck = 0\n[queue]\nmax_wait = 7\nmax_per_session = 1\novertake = 0\n");
    let config = resolve(&["--config", &path], &[]).unwrap();
    let max_wait = Duration::from_secs(7);
    let queue = Queue { max_wait, max_per_session: 1, overtake: 0, ..Queue::default() };
    assert_eq!((config.queue, config.upstream_watch.stuck), (queue, None));
    let (_dir, path) = file(&config.to_toml());
    let again = resolve(&["--config", &path], &[]).unwrap();
    assert_eq!((again.queue, again.upstream_watch.stuck), (queue, None));
}

#[test]
fn hygiene_is_off_unless_the_file_wants_it_and_is_printed() {
    assert!(!resolve(&[], &[]).unwrap().hygiene.claude_code);
    let (_dir, path) = file("[hygiene]\nclaude_code = true\n");
    let config = resolve(&["--config", &path], &[]).unwrap();
    assert!(config.hygiene.claude_code);
    let (_dir, path) = file(&config.to_toml());
    assert!(resolve(&["--config", &path], &[]).unwrap().hygiene.claude_code);
    let (_dir, path) = file("[hygiene]\nclaude = true\n");
    assert!(complaint(&["--config", &path], &[]).contains("claude_code"));
}

#[test]
fn what_the_file_says_of_saved_states_is_in_force_and_printed() {
    let (_dir, path) = file(
        "[warm]\nenabled = false\ndir = \"/w\"\nmax_bytes = \"2GiB\"\nmin_tokens = 9\nshare = \"all\"\n",
    );
    let config = resolve(&["--config", &path], &[]).unwrap();
    let policy = crate::warm::Policy { enabled: false, min_tokens: 9, share: crate::warm::Share::All };
    let warm = Warm { policy, dir: Some(PathBuf::from("/w")), max_bytes: Some(2 << 30) };
    assert_eq!((&config.warm, config.policy().warm), (&warm, policy));
    let (_dir, path) = file(&config.to_toml());
    assert_eq!(resolve(&["--config", &path], &[]).unwrap().warm, warm);
}

#[test]
fn the_folder_of_saved_states_given_as_a_flag_beats_the_files() {
    let (_dir, path) = file("[warm]\ndir = \"/file\"\nmin_tokens = 9\n");
    let config = resolve(&["--config", &path, "--warm-dir=/flag"], &[]).unwrap();
    assert_eq!((config.warm.dir, config.warm.policy.min_tokens), (Some(PathBuf::from("/flag")), 9));
}

#[test]
fn what_the_file_says_of_signs_of_life_and_silence_is_in_force_and_printed() {
    let (_dir, path) = file(
        "[upstream]\nstall = 120\nend_stalled = true\n[keepalive]\nafter = 0\nevery = 0.5\njson = true\n",
    );
    let config = resolve(&["--config", &path], &[]).unwrap();
    let keep_alive = KeepAlive { after: None, every: Duration::from_millis(500), json: true };
    let stall = Some(Duration::from_secs(120));
    let watch = Watch { stall, end_stalled: true, stuck: Some(Duration::from_secs(600)) };
    assert_eq!((config.keep_alive, config.upstream_watch), (keep_alive, watch));
    let (_dir, path) = file(&config.to_toml());
    let again = resolve(&["--config", &path], &[]).unwrap();
    assert_eq!((again.keep_alive, again.upstream_watch), (keep_alive, watch));
}

#[test]
fn times_that_make_no_sense_are_refused() {
    for (text, word) in [
        ("[keepalive]\nevery = 0\n", "keepalive.every"),
        ("[keepalive]\nafter = -1\n", "from 0 to 86400"),
        ("[keepalive]\nafter = nan\n", "from 0 to 86400"),
        ("[upstream]\nstall = 86401\n", "from 0 to 86400"),
    ] {
        let (_dir, path) = file(text);
        let message = complaint(&["--config", &path], &[]);
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn a_queue_in_which_nobody_could_wait_is_refused() {
    for key in ["max_wait", "max_waiting", "max_per_session"] {
        let (_dir, path) = file(&format!("[queue]\n{key} = 0\n"));
        let message = complaint(&["--config", &path], &[]);
        assert!(message.starts_with(&format!("{path}:2: ")) && message.contains("nonzero"), "{message}");
    }
}

#[test]
fn a_missing_configuration_file_is_an_error_that_names_it() {
    let message = complaint(&[], &[("SLOT_ROUTER_CONFIG", "/nowhere/router.toml")]);
    assert!(message.contains("/nowhere/router.toml"), "{message}");
}

#[test]
fn an_empty_variable_counts_as_absent() {
    let names = ["LISTEN", "CONFIG", "API_KEY_FILE", "ALLOW_UNAUTHENTICATED", "OTHER"];
    let names = names.map(|name| format!("SLOT_ROUTER_{name}"));
    let config = resolve(&[], &names.each_ref().map(|name| (name.as_str(), ""))).unwrap();
    assert_eq!(config.listen, DEFAULT_LISTEN);
    assert!(config.warnings.is_empty());
}

#[test]
fn an_unknown_variable_is_a_warning_that_lists_the_known_ones() {
    let config = resolve(&[], &[("SLOT_ROUTER_PORT", "1"), ("OTHER", "1")]).unwrap();
    assert_eq!(config.warnings.len(), 1);
    assert!(config.warnings[0].contains("SLOT_ROUTER_PORT "));
    assert!(config.warnings[0].contains("SLOT_ROUTER_LISTEN"));
}

#[test]
fn a_bad_variable_is_refused_by_name() {
    for (name, value) in [
        ("SLOT_ROUTER_LISTEN", "8081"),
        ("SLOT_ROUTER_PIN", "sometimes"),
        ("SLOT_ROUTER_DRAIN", "30s"),
        ("SLOT_ROUTER_ALLOW_UNAUTHENTICATED", "maybe"),
    ] {
        let message = complaint(&[], &[(name, value)]);
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn an_address_other_machines_can_reach_needs_a_key_or_an_explicit_yes() {
    for listen in ["0.0.0.0:8081", "[::]:8081", "192.168.1.2:8081"] {
        let message = complaint(&["--listen", listen], &[]);
        assert!(message.contains("--api-key-file"), "{message}");
        assert!(message.contains("--allow-unauthenticated"), "{message}");
        assert!(resolve(&["--listen", listen, "--allow-unauthenticated"], &[]).is_ok());
    }
    for listen in ["127.0.0.2:8081", "[::1]:8081", "[::ffff:127.0.0.1]:8081"] {
        assert!(resolve(&["--listen", listen], &[]).is_ok(), "{listen}");
    }
}

#[test]
fn a_flag_can_take_back_what_the_environment_allows() {
    let yes = [("SLOT_ROUTER_ALLOW_UNAUTHENTICATED", "1")];
    assert!(resolve(&["--listen=0.0.0.0:1"], &yes).is_ok());
    let flags = ["--listen=0.0.0.0:1", "--allow-unauthenticated=false"];
    assert!(matches!(resolve(&flags, &yes), Err(ConfigError::Unauthenticated { .. })));
}

#[test]
fn a_router_in_front_of_itself_is_refused() {
    for (listen, upstream) in [
        ("127.0.0.1:9", "http://127.0.0.1:9"),
        ("127.0.0.1:9", "http://localhost:9/v1"),
        ("127.0.0.1:9", "http://0.0.0.0:9"),
        ("0.0.0.0:9", "http://127.0.0.1:9"),
        ("[::1]:9", "http://[::1]:9"),
        ("[::]:9", "http://localhost:9"),
    ] {
        let flags = ["--listen", listen, "--upstream", upstream, "--allow-unauthenticated"];
        assert!(matches!(resolve(&flags, &[]), Err(ConfigError::Loop { .. })), "{flags:?}");
    }
    for upstream in ["http://127.0.0.2:9", "http://127.0.0.1:10", "http://gpu:9"] {
        assert!(resolve(&["--listen=127.0.0.1:9", "--upstream", upstream], &[]).is_ok());
    }
}

#[test]
fn host_names_are_kept_in_lower_case_and_must_be_plain() {
    let config = resolve(&["--allowed-host=GPU.lan", "--allowed-host", "a,b,"], &[]).unwrap();
    assert_eq!(config.allowed_hosts, ["gpu.lan", "a", "b"]);
    for host in ["http://gpu", "gpu:8081", "a b"] {
        assert!(complaint(&["--allowed-host", host], &[]).contains("name alone"));
    }
}

#[test]
fn a_drain_longer_than_a_day_is_taken_for_a_mistake() {
    assert!(complaint(&["--drain=86401"], &[]).contains("seconds"));
}

#[test]
fn printed_settings_and_debug_output_hold_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("k\"ey");
    std::fs::write(&key, "hunter2").unwrap();
    let flags = ["--api-key-file", key.to_str().unwrap()];
    let config = resolve(&flags, &[]).unwrap();
    assert!(!format!("{config:?}{}", config.to_toml()).contains("hunter2"));
    let (_dir, path) = file(&config.to_toml());
    assert_eq!(resolve(&["--config", &path], &[]).unwrap().api_key_file, Some(key));
}
