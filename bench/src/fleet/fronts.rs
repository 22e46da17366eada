//! Each way of choosing a server, as a program before them: the router by its configuration, and its peers.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::Way;
use crate::client::SESSION_HEADER;
use crate::peers::{self, Peer};

/// The programs that choose.
#[derive(Clone, Debug)]
pub struct Fronts {
    /// The router.
    pub router: PathBuf,
    /// sglang-router's own program.
    pub sglang: Option<PathBuf>,
    /// LiteLLM's own program.
    pub litellm: Option<PathBuf>,
    /// nginx.
    pub nginx: Option<PathBuf>,
}

/// What the replay calls the model; the servers don't mind.
const MODEL: &str = "local";

/// What cache awareness takes to follow sessions here. On its own settings sglang-router takes two sessions for one if
/// 30 % of their text is alike, as it is with a shared system text, and lets one server have 64 requests more than
/// another before it balances.
const TUNED: [&str; 4] = ["--cache-threshold", "0.66", "--balance-abs-threshold", "4"];

/// LiteLLM imports for half a minute on a slow machine.
const PATIENCE: Duration = Duration::from_secs(180);

impl Fronts {
    /// Starts what `way` is before `servers`; its configuration and log go to `folder`.
    pub(super) fn start(&self, way: Way, servers: &[SocketAddr], folder: &Path) -> io::Result<Peer> {
        let given = |program: &Option<PathBuf>| {
            program.clone().ok_or_else(|| io::Error::other("its program was not given"))
        };
        match way {
            Way::Sglang => sglang(&given(&self.sglang)?, servers, &[], folder),
            Way::SglangTuned => sglang(&given(&self.sglang)?, servers, &TUNED, folder),
            Way::Litellm => litellm(&given(&self.litellm)?, servers, folder),
            Way::Nginx => peers::nginx_over(&given(&self.nginx)?, 1, &hashing(servers), folder),
            ours => peers::router_over(&self.router, folder, &router_config(ours, servers)),
        }
    }
}

impl Way {
    /// The page that says 200 as soon as it has found its servers.
    pub(super) fn ready_page(self) -> Option<&'static str> {
        match self {
            Self::Sglang | Self::SglangTuned => Some("/readiness"),
            Self::Litellm => Some("/health/readiness"),
            Self::Nginx => None,
            _ => Some("/router/health"),
        }
    }
}

fn router_config(way: Way, servers: &[SocketAddr]) -> String {
    let placement = match way {
        Way::RoundRobin => "round_robin",
        Way::HomeSpread => "spread",
        _ => "least_busy",
    };
    let affinity = matches!(way, Way::Home | Way::HomeSpread);
    let budget = match way {
        Way::LeastBusyUnbudgeted => "enabled = false\nretries = 0",
        _ => "enabled = true",
    };
    let mut config =
        format!("placement = \"{placement}\"\n[affinity]\nenabled = {affinity}\n[budget]\n{budget}\n");
    for (index, server) in servers.iter().enumerate() {
        config +=
            &format!("[[server]]\nname = \"s{index}\"\nurl = \"http://{server}\"\nmodels = [\"{MODEL}\"]\n");
    }
    config
}

fn sglang(program: &Path, servers: &[SocketAddr], flags: &[&str], folder: &Path) -> io::Result<Peer> {
    let (address, metrics) = (peers::free_address()?, peers::free_address()?);
    let mut command = Command::new(program);
    command
        .args(["launch", "--policy", "cache_aware", "--host", "127.0.0.1"])
        .args(["--port", &address.port().to_string()])
        // Its second port is 29000 for everybody otherwise.
        .args(["--prometheus-host", "127.0.0.1", "--prometheus-port", &metrics.port().to_string()])
        .args(flags)
        .arg("--worker-urls")
        .args(servers.iter().map(|server| format!("http://{server}")));
    peers::start_within(PATIENCE, command, address, folder, "sglang.log")
}

fn litellm(program: &Path, servers: &[SocketAddr], folder: &Path) -> io::Result<Peer> {
    let (address, config) = (peers::free_address()?, folder.join("litellm.yaml"));
    // JSON is YAML.
    std::fs::write(&config, litellm_config(servers).to_string())?;
    let mut command = Command::new(program);
    command
        .args(["--host", "127.0.0.1", "--port", &address.port().to_string(), "--telemetry", "False"])
        .arg("--config")
        .arg(config)
        // Prices come with the package; no key is needed on this machine.
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
    peers::start_within(PATIENCE, command, address, folder, "litellm.log")
}

fn litellm_config(servers: &[SocketAddr]) -> serde_json::Value {
    let models: Vec<_> = servers
        .iter()
        .map(|server| {
            json!({
                "model_name": MODEL,
                "litellm_params":
                    {"model": format!("openai/{MODEL}"), "api_base": format!("http://{server}/v1"), "api_key": "none"},
            })
        })
        .collect();
    json!({
        "model_list": models,
        "router_settings":
            {"optional_pre_call_checks": ["session_affinity"], "routing_strategy": "least-busy"},
    })
}

/// No connection is kept: llama-server closes them without a word after a streamed answer.
fn hashing(servers: &[SocketAddr]) -> String {
    let header = SESSION_HEADER.replace('-', "_");
    let servers: Vec<_> = servers.iter().map(|server| format!("server {server};")).collect();
    format!("hash $http_{header} consistent; {}", servers.join(" "))
}
