//! The three places settings come from: flags, environment and file. Each says what it says; nothing is checked across.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Deserializer, de};

use super::ConfigError;
use super::fleet::Names;
use super::hygiene::HygieneSettings;
use super::identity::IdentitySettings;
use super::keepalive::KeepAliveSettings;
use super::placing::{AffinitySettings, BudgetSettings};
use super::queue::QueueSettings;
use super::servers::{FleetSettings, ServerSettings};
use super::shared::SharedSettings;
use super::values::{ByteSize, LogFormat};
use super::warm::WarmSettings;
use super::watch::UpstreamSettings;
use crate::fleet::Placement;
use crate::slots::{Concurrent, Evict, PinPolicy};

pub(super) const PREFIX: &str = "SLOT_ROUTER_";

/// What follows `SLOT_ROUTER_` in the names of the variables that mean something.
const VARIABLES: [&str; 17] = [
    "CONFIG",
    "LISTEN",
    "UPSTREAM",
    "STATE_DIR",
    "PIN",
    "CONCURRENT",
    "EVICT",
    "WARM_DIR",
    "MAX_BODY",
    "DRAIN",
    "EVENT_DAYS",
    "LOG_FORMAT",
    // Read by the program itself: which of its own lines it logs.
    "LOG",
    "API_KEY_FILE",
    "ALLOW_UNAUTHENTICATED",
    "ALLOWED_HOSTS",
    "UPSTREAM_API_KEY_FILE",
];

const AFTER_HELP: &str = "\
EXAMPLES:
  In front of a llama-server on this machine; agents then use http://127.0.0.1:8081/v1:
    session-slot-router

  In front of another port, with the database in its own folder:
    session-slot-router --upstream http://127.0.0.1:9000/v1 --state-dir /var/lib/session-slot-router

  Reachable from other machines, with a key:
    session-slot-router --listen 0.0.0.0:8081 --api-key-file router.key --allowed-host gpu.lan

  Show what a file and the environment add up to:
    SLOT_ROUTER_PIN=never session-slot-router --config router.toml --print-config

  Tell why a session's turns read their prompts again:
    session-slot-router why SESSION --state-dir /var/lib/session-slot-router

Each option can also be set in the environment as SLOT_ROUTER_ and its name (SLOT_ROUTER_MAX_BODY,
SLOT_ROUTER_ALLOWED_HOSTS with commas) or in the file (max_body = \"64MiB\", allowed_hosts = [\"gpu.lan\"]).
Where sessions are looked for, how many requests may wait, what they get meanwhile, what is changed in them for more
reuse and which states are saved is set in the file only, in its sections [identity], [queue], [keepalive], [hygiene]
and [warm] (--warm-dir is dir in [warm]); several servers are, too, each in a [[server]] instead of --upstream.
Flags beat the environment, the environment beats the file. An empty variable counts as absent.";

/// The command line.
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "session-slot-router", version, about, after_help = AFTER_HELP)]
pub struct Args {
    /// Read settings from this TOML file
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Print the settings in force as TOML (paths of key files, never the keys) and exit
    #[arg(long)]
    pub print_config: bool,
    /// The settings given as flags.
    #[command(flatten)]
    pub settings: Settings,
    /// What to do instead of running the router.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the program does besides running the router.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Tell why turns of a session read again what had been read
    ///
    /// Prints the session's last 20 turns that read more again than they should have, the newest first, each with its
    /// cause: the first part of the request that is not what it was in the turn before (the system text, the tools, or a
    /// message by its index in the request's list, from 0), or that the cache was gone. Reads the router's database,
    /// whether the router runs or not, and changes nothing.
    Why {
        /// The session's id, as the router's log and its status page show it; after -- if it begins with a dash
        session: String,
    },
}

/// What one source (flags, environment or file) says; `None` where it says nothing.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Address to listen on, IP:PORT [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    #[serde(deserialize_with = "listen_in_file")]
    pub listen: Option<SocketAddr>,
    /// The llama-server, as http://HOST:PORT with or without /v1 [default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub upstream: Option<UpstreamSettings>,
    /// Folder of router.sqlite [default: the working directory]
    #[arg(long, value_name = "DIR", global = true)]
    pub state_dir: Option<PathBuf>,
    /// When requests name the session's slot; auto pins only where it costs no reuse [default: auto]
    #[arg(long)]
    pub pin: Option<PinPolicy>,
    /// What becomes of a session's request while its slot is busy with another [default: wait]
    #[arg(long)]
    pub concurrent: Option<Concurrent>,
    /// Which session loses its slot to one that has none [default: cost]
    #[arg(long)]
    pub evict: Option<Evict>,
    /// llama-server's --slot-save-path, where saved states are checked, renamed and removed [default: by name alone]
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    pub warm_dir: Option<PathBuf>,
    /// Largest request body, in bytes or with KiB, MiB, GiB [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    pub max_body: Option<ByteSize>,
    /// Seconds that running streams get to end at shutdown [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub drain: Option<u64>,
    /// Days the event log is kept; 0 keeps none [default: 30]
    #[arg(long, value_name = "DAYS")]
    pub event_days: Option<u32>,
    /// How log lines are written [default: text]
    #[arg(long)]
    pub log_format: Option<LogFormat>,
    /// File with the key clients must send (Bearer or x-api-key), or with a line NAME KEY for each user
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Serve other machines without a key
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_unauthenticated: Option<bool>,
    /// Host name clients may use besides IP addresses and localhost; repeatable
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',')]
    pub allowed_hosts: Option<Vec<String>>,
    /// File with the key to send to the llama-server
    #[arg(long, value_name = "FILE")]
    pub upstream_api_key_file: Option<PathBuf>,
    /// Where sessions are looked for; only in the file.
    #[arg(skip)]
    pub identity: Option<IdentitySettings>,
    /// How answers that have not begun show that they are alive; only in the file.
    #[arg(skip)]
    pub keepalive: Option<KeepAliveSettings>,
    /// How many may wait, and how long; only in the file.
    #[arg(skip)]
    pub queue: Option<QueueSettings>,
    /// What is changed in requests so that more of them can be reused; only in the file.
    #[arg(skip)]
    pub hygiene: Option<HygieneSettings>,
    /// Which states are saved; but for the folder only in the file.
    #[arg(skip)]
    pub warm: Option<WarmSettings>,
    /// Several servers; this and all that follows only in the file.
    #[arg(skip)]
    pub server: Vec<ServerSettings>,
    /// Where conversations without a home go.
    #[arg(skip)]
    pub placement: Option<Placement>,
    /// How models are called.
    #[arg(skip)]
    pub names: Option<Names>,
    /// Whether the client's credentials reach the servers.
    #[arg(skip)]
    pub forward_credentials: Option<bool>,
    /// How long conversations have a home.
    #[arg(skip)]
    pub affinity: Option<AffinitySettings>,
    /// How much a server is given.
    #[arg(skip)]
    pub budget: Option<BudgetSettings>,
    /// Where routers share the homes.
    #[arg(skip)]
    pub shared: Option<SharedSettings>,
}

impl Settings {
    pub(super) fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        // Only the message and the line are kept: toml's own Display quotes the offending line, and somebody who
        // writes `api_key = "..."` by mistake should not find that key in a log.
        toml::from_str(&text).map_err(|error| ConfigError::File {
            path: path.to_owned(),
            line: line_of(&text, error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })
    }

    /// These settings, and those of a `lower` source where these say nothing.
    pub(super) fn or(self, lower: Self) -> Self {
        Self {
            listen: self.listen.or(lower.listen),
            upstream: Some(self.upstream.unwrap_or_default().or(lower.upstream.unwrap_or_default())),
            state_dir: self.state_dir.or(lower.state_dir),
            pin: self.pin.or(lower.pin),
            concurrent: self.concurrent.or(lower.concurrent),
            evict: self.evict.or(lower.evict),
            warm_dir: self.warm_dir.or(lower.warm_dir),
            max_body: self.max_body.or(lower.max_body),
            drain: self.drain.or(lower.drain),
            event_days: self.event_days.or(lower.event_days),
            log_format: self.log_format.or(lower.log_format),
            api_key_file: self.api_key_file.or(lower.api_key_file),
            allow_unauthenticated: self.allow_unauthenticated.or(lower.allow_unauthenticated),
            allowed_hosts: self.allowed_hosts.or(lower.allowed_hosts),
            upstream_api_key_file: self.upstream_api_key_file.or(lower.upstream_api_key_file),
            identity: self.identity.or(lower.identity),
            keepalive: self.keepalive.or(lower.keepalive),
            queue: self.queue.or(lower.queue),
            hygiene: self.hygiene.or(lower.hygiene),
            warm: self.warm.or(lower.warm),
            server: if self.server.is_empty() { lower.server } else { self.server },
            placement: self.placement.or(lower.placement),
            names: self.names.or(lower.names),
            forward_credentials: self.forward_credentials.or(lower.forward_credentials),
            affinity: self.affinity.or(lower.affinity),
            budget: self.budget.or(lower.budget),
            shared: self.shared.or(lower.shared),
        }
    }

    /// Takes out what is only said of several servers.
    pub(super) fn take_fleet(&mut self) -> FleetSettings {
        FleetSettings {
            servers: std::mem::take(&mut self.server),
            placement: self.placement.take(),
            names: self.names.take(),
            forward_credentials: self.forward_credentials.take(),
            affinity: self.affinity.take(),
            budget: self.budget.take(),
            shared: self.shared.take(),
        }
    }
}

/// The line of a byte offset, counted from 1.
fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

/// The `SLOT_ROUTER_*` variables that have a value, by what follows the prefix.
pub(super) struct Environment(BTreeMap<String, OsString>);

impl Environment {
    pub(super) fn read(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let named = variables.into_iter().filter_map(|(name, value)| {
            let name = name.to_str()?.strip_prefix(PREFIX)?.to_owned();
            (!value.is_empty()).then_some((name, value))
        });
        Self(named.collect())
    }

    pub(super) fn get<T, E: fmt::Display>(
        &self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        let parsed = value.to_str().ok_or("is not UTF-8".to_owned());
        parsed
            .and_then(|text| parse(text).map_err(|error| error.to_string()))
            .map(Some)
            .map_err(|reason| ConfigError::Variable { name, reason })
    }

    pub(super) fn settings(&self) -> Result<Settings, ConfigError> {
        Ok(Settings {
            listen: self.get("LISTEN", parse_listen)?,
            upstream: self.get("UPSTREAM", str::parse::<UpstreamSettings>)?,
            state_dir: self.get("STATE_DIR", path)?,
            pin: self.get("PIN", choice::<PinPolicy>)?,
            concurrent: self.get("CONCURRENT", choice::<Concurrent>)?,
            evict: self.get("EVICT", choice::<Evict>)?,
            warm_dir: self.get("WARM_DIR", path)?,
            max_body: self.get("MAX_BODY", str::parse::<ByteSize>)?,
            drain: self.get("DRAIN", str::parse::<u64>)?,
            event_days: self.get("EVENT_DAYS", str::parse::<u32>)?,
            log_format: self.get("LOG_FORMAT", choice::<LogFormat>)?,
            api_key_file: self.get("API_KEY_FILE", path)?,
            allow_unauthenticated: self.get("ALLOW_UNAUTHENTICATED", truth)?,
            allowed_hosts: self.get("ALLOWED_HOSTS", list)?,
            upstream_api_key_file: self.get("UPSTREAM_API_KEY_FILE", path)?,
            ..Settings::default()
        })
    }

    /// A mistyped variable would otherwise be ignored without a word.
    pub(super) fn warnings(&self) -> Vec<String> {
        let unknown = self.0.keys().filter(|name| !VARIABLES.contains(&name.as_str()));
        let known = VARIABLES.map(|name| format!("{PREFIX}{name}")).join(", ");
        unknown
            .map(|name| {
                format!(
                    "environment variable {PREFIX}{name} means nothing and is ignored; there are: {known}"
                )
            })
            .collect()
    }
}

pub(super) fn path(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

fn list(text: &str) -> Result<Vec<String>, std::convert::Infallible> {
    Ok(text.split(',').map(str::to_owned).collect())
}

fn truth(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

fn choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, true).map_err(|_| {
        let known: Vec<_> = T::value_variants()
            .iter()
            .filter_map(ValueEnum::to_possible_value)
            .map(|value| value.get_name().to_owned())
            .collect();
        format!("{text:?} is not one of {}", known.join(", "))
    })
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("{text:?} is not an IP address and a port, such as 127.0.0.1:8081"))
}

fn listen_in_file<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_listen(&text).map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn help_says_what_the_program_does_and_shows_examples() {
        let help = Args::command().render_long_help().to_string();
        assert!(help.starts_with("Sends every agent session back"), "{help}");
        assert!(help.contains("EXAMPLES:") && help.contains("--print-config"), "{help}");
    }

    #[test]
    fn each_option_has_a_variable_and_each_variable_an_option() {
        let command = Args::command();
        let flags = command.get_arguments().filter_map(clap::Arg::get_long);
        let mut flags: Vec<_> = flags
            .map(|flag| flag.replace("allowed-host", "allowed-hosts"))
            .map(|flag| flag.replace('-', "_").to_ascii_uppercase())
            .filter(|flag| flag != "PRINT_CONFIG")
            .collect();
        flags.push("LOG".to_owned());
        let mut variables = VARIABLES.map(str::to_owned);
        flags.sort();
        variables.sort();
        assert_eq!(flags, variables);
    }
}
