//! Flags, environment and a TOML file become one validated `Config`, before anything is bound.
//!
//! Flags beat the environment (`SLOT_ROUTER_*`), the environment beats the file, the file beats the defaults.
//! Relative paths, also those in the file, start at the working directory.

mod fleet;
mod hygiene;
mod identity;
mod keepalive;
mod keys;
mod placing;
mod queue;
mod seconds;
mod servers;
mod shared;
mod sources;
mod values;
mod warm;
mod watch;

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;

pub use crate::identify::Rules;
pub use crate::slots::{Concurrent, Evict, PinPolicy, Policy, Queue};
pub use fleet::{Fleet, Names, Server, Shared};
pub use hygiene::{Hygiene, HygieneSettings};
pub use identity::IdentitySettings;
pub use keepalive::{KeepAlive, KeepAliveSettings};
pub use keys::ClientKey;
pub use placing::{AffinitySettings, BudgetSettings};
pub use queue::QueueSettings;
pub use servers::{FleetError, ServerSettings};
pub use shared::{SharedError, SharedSettings};
pub use sources::{Args, Command, Settings};
pub use values::{ByteSize, LogFormat, Secret, Upstream};
pub use warm::{Warm, WarmSettings};
pub use watch::{UpstreamSettings, Watch};

use servers::Around;
use sources::{Environment, PREFIX};

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
const DATABASE: &str = "router.sqlite";
/// The folder of several servers' databases.
const SERVERS: &str = "servers";
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
    /// The llama-server behind the router; means nothing if there is a `fleet`.
    pub upstream: Upstream,
    /// Several servers, instead of `upstream`.
    pub fleet: Option<Fleet>,
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
    /// Which session loses its slot to one that has none.
    pub evict: Evict,
    /// Which states are saved, and where.
    pub warm: Warm,
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
    /// What is changed in requests so that more of them can be reused.
    pub hygiene: Hygiene,
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
    /// `budget.share` is out of range.
    #[error("budget.share must be above 0 and at most 1, the share of a server's memory; 0.9 is the default")]
    Share,
    /// The servers can't be used as they are given.
    #[error(transparent)]
    Fleet(#[from] FleetError),
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
        self.state_dir.join(DATABASE)
    }

    /// The path of one of several servers' own database.
    #[must_use]
    pub fn database_of_server(&self, name: &str) -> PathBuf {
        self.state_dir.join(SERVERS).join(format!("{name}.sqlite"))
    }

    /// The database's path where nothing else is asked for: the other settings may be wrong, and key files unreadable.
    ///
    /// # Errors
    /// Where the environment or the file can't be read.
    pub fn database_of(args: &Args) -> Result<PathBuf, ConfigError> {
        let settings = Settings::merged(args, &Environment::read(std::env::vars_os()))?;
        Ok(settings.state_dir().join(DATABASE))
    }

    /// What decides about slots.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy {
            pin: self.pin,
            concurrent: self.concurrent,
            evict: self.evict,
            queue: self.queue,
            warm: self.warm.policy,
            stuck: self.upstream_watch.stuck,
        }
    }

    /// The settings in force as a configuration file; holds the paths of key files, never the keys.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut lines = vec![
            line("listen", self.listen.to_string()),
            watch::to_toml(self.fleet.is_none().then_some(&self.upstream), &self.upstream_watch),
            line("state_dir", path(&self.state_dir)),
            line("pin", spelling(self.pin)),
            line("concurrent", spelling(self.concurrent)),
            line("evict", spelling(self.evict)),
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
        lines.extend(self.fleet.as_ref().map(fleet::top_to_toml));
        let sections = [
            queue::to_toml(&self.queue),
            warm::to_toml(&self.warm),
            keepalive::to_toml(&self.keep_alive),
            hygiene::to_toml(self.hygiene),
            identity::to_toml(&self.identity),
            self.fleet.as_ref().map(fleet::to_toml).unwrap_or_default(),
        ];
        lines.concat() + &sections.concat()
    }

    fn resolve(
        args: &Args,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let environment = Environment::read(variables);
        let config = Settings::merged(args, &environment)?.into_config(environment.warnings())?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let local = self.listen.ip().to_canonical().is_loopback();
        if !local && self.api_keys.is_empty() && !self.allow_unauthenticated {
            return Err(ConfigError::Unauthenticated { listen: self.listen });
        }
        if self.fleet.is_none() && self.upstream.is_reached_at(self.listen) {
            let upstream = self.upstream.clone();
            return Err(ConfigError::Loop { listen: self.listen, upstream });
        }
        Ok(())
    }
}

/// The databases of several servers beside `database`, the router's own; in the order of their names.
#[must_use]
pub fn databases_of_servers(database: &Path) -> Vec<PathBuf> {
    let folder = database.with_file_name(SERVERS);
    let files = std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|ending| ending == "sqlite")).collect();
    found.sort_unstable();
    found
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
    /// What flags, environment and file say together.
    fn merged(args: &Args, environment: &Environment) -> Result<Self, ConfigError> {
        let path = args.config.clone().or(environment.get("CONFIG", sources::path)?);
        let file = path.map(|path| Self::from_file(&path)).transpose()?.unwrap_or_default();
        Ok(args.settings.clone().or(environment.settings()?).or(file))
    }

    fn state_dir(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(|| PathBuf::from("."))
    }

    /// Fills in the defaults and reads the key files.
    fn into_config(mut self, mut warnings: Vec<String>) -> Result<Config, ConfigError> {
        let state_dir = self.state_dir();
        let listen = self.listen.unwrap_or(DEFAULT_LISTEN);
        let fleet = self.take_fleet();
        let upstream = self.upstream.unwrap_or_default();
        let watch = upstream.watch();
        let queue = self.queue.unwrap_or_default().into_queue();
        let mut warm = self.warm.unwrap_or_default().into_warm(self.warm_dir);
        let around = Around {
            listen,
            upstream: upstream.url,
            upstream_key_file: self.upstream_api_key_file,
            warm_dir: warm.dir,
            max_waiting: queue.max_waiting,
        };
        let behind = fleet.resolve(around, &mut warnings)?;
        warm.dir = behind.warm_dir;
        if watch.end_stalled && watch.stall.is_none() {
            warnings.push("upstream.end_stalled ends nothing without upstream.stall".to_owned());
        }
        Ok(Config {
            listen,
            upstream_watch: watch,
            fleet: behind.fleet,
            upstream: behind.url,
            keep_alive: self.keepalive.unwrap_or_default().into_keep_alive()?,
            state_dir,
            pin: self.pin.unwrap_or_default(),
            concurrent: self.concurrent.unwrap_or_default(),
            evict: self.evict.unwrap_or_default(),
            warm,
            queue,
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
            upstream_api_key: behind.api_key,
            upstream_api_key_file: behind.api_key_file,
            hygiene: self.hygiene.unwrap_or_default().into_hygiene(),
            identity: self.identity.unwrap_or_default().into_rules(&mut warnings),
            warnings,
        })
    }
}

#[cfg(test)]
mod tests;
