//! Flags, environment and a TOML file become one validated `Config`, before anything is bound.
//!
//! Flags beat the environment (`SLOT_ROUTER_*`), the environment beats the file, the file beats the defaults.
//! Relative paths, also those in the file, start at the working directory.

mod identity;
mod keepalive;
mod keys;
mod queue;
mod seconds;
mod sources;
mod values;
mod watch;

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

pub use crate::identify::Rules;
pub use crate::slots::{Concurrent, PinPolicy, Policy, Queue};
pub use identity::IdentitySettings;
pub use keepalive::{KeepAlive, KeepAliveSettings};
pub use keys::ClientKey;
pub use queue::QueueSettings;
pub use sources::{Args, Settings};
pub use values::{ByteSize, LogFormat, Secret, Upstream};
pub use watch::{UpstreamSettings, Watch};

use sources::{Environment, PREFIX};

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
const DEFAULT_MAX_BODY: u64 = 256 << 20;
const DEFAULT_DRAIN: u64 = 30;
const DEFAULT_EVENT_DAYS: u32 = 30;
/// A day: a longer drain is a mistyped unit, not a wish.
const LONGEST_DRAIN: u64 = 86_400;

/// The settings in force: every source merged, checked, key files read.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the router listens; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The llama-server behind the router.
    pub upstream: Upstream,
    /// When the server's silence is worth a word.
    pub upstream_watch: Watch,
    /// How answers that have not begun show that they are alive.
    pub keep_alive: KeepAlive,
    /// The folder of the database.
    pub state_dir: PathBuf,
    /// When a request names its session's slot.
    pub pin: PinPolicy,
    /// What becomes of a session's request whose slot is busy.
    pub concurrent: Concurrent,
    /// How many requests may wait for a slot, and how long.
    pub queue: Queue,
    /// Largest accepted request body, in bytes; at least 1.
    pub max_body: u64,
    /// How long running streams may take to end at shutdown.
    pub drain: Duration,
    /// Days the event log is kept; 0 keeps none.
    pub event_days: u32,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// Where `api_keys` came from.
    pub api_key_file: Option<PathBuf>,
    /// The keys of which clients must send one; none if they need not.
    pub api_keys: Vec<ClientKey>,
    /// Whether an address that is not loopback may be served without a key.
    pub allow_unauthenticated: bool,
    /// Lower-case host names accepted besides IP addresses and localhost; without ports.
    pub allowed_hosts: Vec<String>,
    /// Where `upstream_api_key` came from.
    pub upstream_api_key_file: Option<PathBuf>,
    /// The key sent to the llama-server, if any.
    pub upstream_api_key: Option<Secret>,
    /// Where sessions are looked for.
    pub identity: Rules,
    /// What the user should be told once logging is up.
    pub warnings: Vec<String>,
}

/// Why there is no valid configuration. Each message says what to do; none holds a key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}: {source}; check the path given by --config or SLOT_ROUTER_CONFIG", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The configuration file is not TOML, has an unknown key or a value of the wrong kind.
    #[error("{}:{line}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong; names the key.
        message: String,
    },
    /// An environment variable has a bad value.
    #[error("environment variable {PREFIX}{name}: {reason}")]
    Variable {
        /// The name after `SLOT_ROUTER_`.
        name: &'static str,
        /// What is wrong with the value.
        reason: String,
    },
    /// A key file cannot be read.
    #[error("cannot read the key file {} given by {option}: {source}", path.display())]
    KeyUnreadable {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A key file holds nothing that can be sent as a key.
    #[error("the key file {} given by {option} {problem}; put one key on one line into it", path.display())]
    BadKey {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with the contents.
        problem: &'static str,
    },
    /// A file of clients' keys has a line that can't be used.
    #[error(
        "line {line} of the key file {} given by {option} {problem}; \
         write one key alone, or a line `NAME KEY` for each user", path.display()
    )]
    BadKeys {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Other machines could use the server without a key.
    #[error(
        "{listen} can be reached from other machines: give a key with --api-key-file FILE, \
         or say --allow-unauthenticated, or listen on 127.0.0.1"
    )]
    Unauthenticated {
        /// The address asked for.
        listen: SocketAddr,
    },
    /// The router would send requests to itself.
    #[error(
        "--listen {listen} and --upstream {upstream} are the same address, so the router would call itself; \
         give llama-server's address as --upstream, or listen on another port"
    )]
    Loop {
        /// Where the router would listen.
        listen: SocketAddr,
        /// Where it would send requests.
        upstream: Upstream,
    },
    /// A time that can't be 0 is.
    #[error("{0} = 0 makes no sense; give a number of seconds above 0")]
    Zero(&'static str),
    /// `drain` is out of range.
    #[error("--drain {0} is longer than a day; it is given in seconds, at most {LONGEST_DRAIN}")]
    Drain(u64),
    /// An allowed host is not a plain name.
    #[error("--allowed-host {0:?} is not a host name; give the name alone, without scheme, port or path")]
    Host(String),
}

impl Config {
    /// Merges `args`, the process environment and the configuration file, reads the key files and checks the result.
    ///
    /// # Errors
    /// Whatever makes the configuration unusable; nothing has been bound or written then.
    pub fn load(args: &Args) -> Result<Self, ConfigError> {
        Self::resolve(args, std::env::vars_os())
    }

    /// The database's path.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.state_dir.join("router.sqlite")
    }

    /// What decides about slots.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            pin: self.pin,
            concurrent: self.concurrent,
            queue: self.queue,
            stuck: self.upstream_watch.stuck,
        }
    }

    /// The settings in force as a configuration file; holds the paths of key files, never the keys.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut lines = vec![
            line("listen", self.listen.to_string()),
            watch::to_toml(&self.upstream, &self.upstream_watch),
            line("state_dir", path(&self.state_dir)),
            line("pin", spelling(self.pin)),
            line("concurrent", spelling(self.concurrent)),
            line("max_body", integer(self.max_body)),
            line("drain", integer(self.drain.as_secs())),
            line("event_days", i64::from(self.event_days)),
            line("log_format", spelling(self.log_format)),
            line("allow_unauthenticated", self.allow_unauthenticated),
            line("allowed_hosts", self.allowed_hosts.clone()),
        ];
        let files =
            [("api_key_file", &self.api_key_file), ("upstream_api_key_file", &self.upstream_api_key_file)];
        lines.extend(files.iter().filter_map(|(key, file)| Some(line(key, path(file.as_ref()?)))));
        let sections = [
            queue::to_toml(&self.queue),
            keepalive::to_toml(&self.keep_alive),
            identity::to_toml(&self.identity),
        ];
        lines.concat() + &sections.concat()
    }

    fn resolve(
        args: &Args,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let environment = Environment::read(variables);
        let path = args.config.clone().or(environment.get("CONFIG", sources::path)?);
        let file = path.map(|path| Settings::from_file(&path)).transpose()?.unwrap_or_default();
        let settings = args.settings.clone().or(environment.settings()?).or(file);
        let config = settings.into_config(environment.warnings())?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let local = self.listen.ip().to_canonical().is_loopback();
        if !local && self.api_keys.is_empty() && !self.allow_unauthenticated {
            return Err(ConfigError::Unauthenticated { listen: self.listen });
        }
        if self.upstream.is_reached_at(self.listen) {
            let upstream = self.upstream.clone();
            return Err(ConfigError::Loop { listen: self.listen, upstream });
        }
        Ok(())
    }
}

/// One line of TOML.
fn line(key: &str, value: impl Into<toml::Value>) -> String {
    format!("{key} = {}\n", value.into())
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// How a choice is written in flags and in the file.
fn spelling(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn drain(seconds: u64) -> Result<Duration, ConfigError> {
    if seconds > LONGEST_DRAIN {
        return Err(ConfigError::Drain(seconds));
    }
    Ok(Duration::from_secs(seconds))
}

/// Names in lower case, without the empty ones a trailing comma leaves.
fn host_names(names: Vec<String>) -> Result<Vec<String>, ConfigError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let names = names.iter().map(|name| name.trim().to_ascii_lowercase());
    names
        .filter(|name| !name.is_empty())
        .map(|name| if name.bytes().all(plain) { Ok(name) } else { Err(ConfigError::Host(name)) })
        .collect()
}

impl Settings {
    /// Fills in the defaults and reads the key files.
    fn into_config(self, mut warnings: Vec<String>) -> Result<Config, ConfigError> {
        let key = |option, path: &Option<PathBuf>| {
            path.as_deref().map(|path| Secret::read(option, path)).transpose()
        };
        let upstream = self.upstream.unwrap_or_default();
        if upstream.watch().end_stalled && upstream.watch().stall.is_none() {
            warnings.push("upstream.end_stalled ends nothing without upstream.stall".to_owned());
        }
        Ok(Config {
            listen: self.listen.unwrap_or(DEFAULT_LISTEN),
            upstream_watch: upstream.watch(),
            upstream: upstream.url.unwrap_or_default(),
            keep_alive: self.keepalive.unwrap_or_default().into_keep_alive()?,
            state_dir: self.state_dir.unwrap_or_else(|| PathBuf::from(".")),
            pin: self.pin.unwrap_or_default(),
            concurrent: self.concurrent.unwrap_or_default(),
            queue: self.queue.unwrap_or_default().into_queue(),
            max_body: self.max_body.map_or(DEFAULT_MAX_BODY, |ByteSize(bytes)| bytes),
            drain: drain(self.drain.unwrap_or(DEFAULT_DRAIN))?,
            event_days: self.event_days.unwrap_or(DEFAULT_EVENT_DAYS),
            log_format: self.log_format.unwrap_or_default(),
            api_keys: match &self.api_key_file {
                Some(path) => ClientKey::read("--api-key-file", path)?,
                None => Vec::new(),
            },
            api_key_file: self.api_key_file,
            allow_unauthenticated: self.allow_unauthenticated.unwrap_or(false),
            allowed_hosts: host_names(self.allowed_hosts.unwrap_or_default())?,
            upstream_api_key: key("--upstream-api-key-file", &self.upstream_api_key_file)?,
            upstream_api_key_file: self.upstream_api_key_file,
            identity: self.identity.unwrap_or_default().into_rules(&mut warnings),
            warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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
        let (_dir, path) = file("[upstream]\nstuck = 0\n[queue]\nmax_wait = 7\nmax_per_session = 1\n");
        let config = resolve(&["--config", &path], &[]).unwrap();
        let queue = Queue { max_wait: Duration::from_secs(7), max_per_session: 1, ..Queue::default() };
        assert_eq!((config.queue, config.upstream_watch.stuck), (queue, None));
        let (_dir, path) = file(&config.to_toml());
        let again = resolve(&["--config", &path], &[]).unwrap();
        assert_eq!((again.queue, again.upstream_watch.stuck), (queue, None));
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
}
