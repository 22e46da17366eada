//! What the file says about several servers: `[[server]]`, `placement`, `[affinity]`, `[budget]`, `names`, `[shared]`.

use std::path::PathBuf;

use super::values::{Secret, Upstream};
use crate::fleet::{KvSetting, Policy};

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
