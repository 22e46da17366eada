//! What the file says about several servers: `[[server]]`, `placement`, `[affinity]`, `[budget]`, `names`, `[shared]`.

use std::path::PathBuf;

use super::values::{Secret, Upstream};
use crate::fleet::{KvSetting, Placement, Policy};

/// Several servers, and how they are used. There is none of this with one server.
#[derive(Debug, Clone)]
pub struct Fleet {
    /// At least two, each with a name of its own, or one that is a sidecar.
    pub servers: Vec<Server>,
    /// What decides about them.
    pub policy: Policy,
    /// Requests without a session are known by how they begin.
    pub fingerprint: bool,
    /// How models are called.
    pub names: Names,
    /// The client's credentials reach the servers.
    pub forward_credentials: bool,
    /// Where routers share the homes of conversations.
    pub shared: Option<Shared>,
}

/// One of several servers.
#[derive(Debug, Clone)]
pub struct Server {
    /// Letters, digits, `-`, `_` and `.`; at most 64.
    pub name: String,
    /// Where it is.
    pub url: Upstream,
    /// Where `api_key` came from.
    pub api_key_file: Option<PathBuf>,
    /// The key sent to it.
    pub api_key: Option<Secret>,
    /// Its KV memory.
    pub kv: KvSetting,
    /// The size of its shared memory in tokens, if it is given.
    pub budget_tokens: Option<u64>,
    /// Its slots count so many times in comparisons; above 0.
    pub weight: f64,
    /// The models it has; asked of it if `None`.
    pub models: Option<Vec<String>>,
    /// It is another session-slot-router, which owns the slots.
    pub sidecar: bool,
    /// Its --slot-save-path, if this router sees it; never that of another server.
    pub warm_dir: Option<PathBuf>,
}

/// How models are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Names {
    /// As their servers call them.
    #[default]
    Plain,
    /// `<server>-<model>`: each is on one server only.
    Host,
}

/// Where routers share the homes of conversations.
#[derive(Debug, Clone)]
pub struct Shared {
    /// `redis://...`, with its password if it has one.
    pub url: Secret,
    /// Stands in front of every key, so that several pools of servers can share one Valkey or Redis.
    pub prefix: String,
}

/// What stands in front of all sections, as a file would have it.
pub(super) fn top_to_toml(fleet: &Fleet) -> String {
    [
        super::line("placement", placement(fleet.policy.placement)),
        super::line("names", names(fleet.names)),
        super::line("forward_credentials", fleet.forward_credentials),
    ]
    .concat()
}

/// The sections, as a file would have them; paths of key files, and no password.
pub(super) fn to_toml(fleet: &Fleet) -> String {
    let servers: String = fleet.servers.iter().map(server_to_toml).collect();
    let policy = &fleet.policy;
    let placing = super::placing::to_toml(&policy.affinity, fleet.fingerprint, &policy.budget);
    let shared = fleet.shared.as_ref().map(super::shared::to_toml);
    [servers, placing, shared.unwrap_or_default()].concat()
}

fn server_to_toml(server: &Server) -> String {
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    let mut text = "\n[[server]]\n".to_owned();
    text += &super::line("name", &*server.name);
    text += &super::line("url", server.url.to_string());
    if let Some(file) = &server.api_key_file {
        text += &super::line("api_key_file", path(file));
    }
    text += &super::line("kv", kv(server.kv));
    if let Some(tokens) = server.budget_tokens {
        text += &super::line("budget_tokens", super::integer(tokens));
    }
    text += &super::line("weight", server.weight);
    if let Some(models) = &server.models {
        text += &super::line("models", models.clone());
    }
    text += &super::line("sidecar", server.sidecar);
    if let Some(dir) = &server.warm_dir {
        text += &super::line("warm_dir", path(dir));
    }
    text
}

fn placement(placement: Placement) -> &'static str {
    match placement {
        Placement::Spread => "spread",
        Placement::LeastBusy => "least_busy",
        Placement::RoundRobin => "round_robin",
    }
}

fn names(names: Names) -> &'static str {
    match names {
        Names::Plain => "plain",
        Names::Host => "host",
    }
}

fn kv(kv: KvSetting) -> &'static str {
    match kv {
        KvSetting::Auto => "auto",
        KvSetting::Shared => "shared",
        KvSetting::Divided => "divided",
    }
}
