//! What the file says about several servers, and what may not be said together.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::Deserialize;

use super::ConfigError;
use super::fleet::{Fleet, Names, Server};
use super::placing::{AffinitySettings, BudgetSettings};
use super::shared::{SharedError, SharedSettings};
use super::values::{Secret, Upstream};
use crate::fleet::{KvSetting, Placement, Policy};

/// The longest name of a server, in bytes.
const NAME_MAX_BYTES: usize = 64;
const KEY_OPTION: &str = "api_key_file of a [[server]]";
const UPSTREAM_KEY_OPTION: &str = "--upstream-api-key-file";

/// One `[[server]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    name: String,
    url: Upstream,
    api_key_file: Option<PathBuf>,
    kv: Option<KvSetting>,
    budget_tokens: Option<NonZeroU64>,
    weight: Option<f64>,
    models: Option<Vec<String>>,
    #[serde(default)]
    sidecar: bool,
    warm_dir: Option<PathBuf>,
}

/// Everything that is only said of several servers; there are no flags or variables for it.
#[derive(Debug)]
pub(super) struct FleetSettings {
    pub(super) servers: Vec<ServerSettings>,
    pub(super) placement: Option<Placement>,
    pub(super) names: Option<Names>,
    pub(super) forward_credentials: Option<bool>,
    pub(super) affinity: Option<AffinitySettings>,
    pub(super) budget: Option<BudgetSettings>,
    pub(super) shared: Option<SharedSettings>,
}

/// The rest of the settings, as far as it matters here.
#[derive(Debug)]
pub(super) struct Around {
    pub(super) listen: SocketAddr,
    /// The URL in `upstream`.
    pub(super) upstream: Option<Upstream>,
    pub(super) upstream_key_file: Option<PathBuf>,
    /// `dir` in `[warm]`.
    pub(super) warm_dir: Option<PathBuf>,
    /// `max_waiting` in `[queue]`.
    pub(super) max_waiting: usize,
}

/// What is behind the router.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) fleet: Option<Fleet>,
    /// This and the next two are the only server's; they mean nothing if there is a fleet.
    pub(super) url: Upstream,
    pub(super) api_key: Option<Secret>,
    pub(super) api_key_file: Option<PathBuf>,
    /// `dir` in `[warm]`, or the only server's.
    pub(super) warm_dir: Option<PathBuf>,
}

/// What is wrong with the servers. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// There are two ways to say where the server is.
    #[error(
        "[[server]] and {0} are both given, so it is unclear which servers are meant; \
         leave {0} out (flag, variable and file) and say it in a [[server]]"
    )]
    Both(&'static str),
    /// A name can't be used.
    #[error(
        "[[server]] name {0:?} must be 1 to {NAME_MAX_BYTES} letters, digits, '-', '_' and '.'; give another name"
    )]
    Name(String),
    /// Two servers have the same name.
    #[error(
        "[[server]] name {0:?} is given twice (upper and lower case count as the same); give each a name of its own"
    )]
    SameName(String),
    /// Two servers have the same address.
    #[error("[[server]] {first:?} and {second:?} have the same url {url}; list each server once")]
    SameUrl {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// Their address.
        url: Upstream,
    },
    /// The router would send requests to itself.
    #[error(
        "[[server]] {name:?} has the router's own address ({url}, listening on {listen}), so the router would call \
         itself; give the server's address, or listen on another port"
    )]
    Loop {
        /// The server.
        name: String,
        /// Its address.
        url: Upstream,
        /// Where the router would listen.
        listen: SocketAddr,
    },
    /// A weight is no number to divide by.
    #[error(
        "[[server]] {0:?} has a weight that is not a number above 0; 1 is the weight of a server without one"
    )]
    Weight(String),
    /// A list of models names none.
    #[error(
        "[[server]] {0:?} has models = [] or an empty name in it; leave models out, then the server is asked"
    )]
    Models(String),
    /// Two servers save their states in one folder.
    #[error(
        "[[server]] {first:?} and {second:?} have the same warm_dir {}; each server needs its own --slot-save-path",
        path.display()
    )]
    SameWarmDir {
        /// One.
        first: String,
        /// The other.
        second: String,
        /// Their folder.
        path: PathBuf,
    },
    /// It is unclear whose folder it is.
    #[error("dir in [warm] (or --warm-dir) is one server's folder; give warm_dir in each [[server]] instead")]
    WarmDir,
    /// Slots would have two owners.
    #[error(
        "[shared] is for several routers in front of the same servers, and slots are never shared between owners: \
         put a session-slot-router beside each llama-server and list these with sidecar = true ({0} is not one), \
         or leave [shared] out"
    )]
    SharedSlots(String),
    /// The section `[shared]` can't be used.
    #[error(transparent)]
    Shared(#[from] SharedError),
}

impl FleetSettings {
    /// Checks it all and reads the key files.
    pub(super) fn resolve(self, around: Around, warnings: &mut Vec<String>) -> Result<Behind, ConfigError> {
        if self.servers.is_empty() {
            if self.shared.is_some() {
                return Err(FleetError::SharedSlots("the server in upstream".to_owned()).into());
            }
            self.warn_of_what_means_nothing("without [[server]]", warnings);
            return Behind::upstream(around);
        }
        self.check(&around)?;
        match &*self.servers {
            [only] if !only.sidecar => {
                self.warn_of_what_means_nothing("with one [[server]]", warnings);
                only.warn_of_what_means_nothing(warnings);
                Ok(Behind::one(only.clone().into_server()?, around.warm_dir))
            }
            _ => {
                let fleet = Some(self.into_fleet(around.max_waiting, warnings)?);
                Ok(Behind { fleet, ..Behind::upstream(around)? })
            }
        }
    }

    fn into_fleet(self, max_waiting: usize, warnings: &mut Vec<String>) -> Result<Fleet, ConfigError> {
        for sidecar in self.servers.iter().filter(|server| server.sidecar && server.warm_dir.is_some()) {
            let name = &sidecar.name;
            warnings.push(format!(
                "warm_dir of the [[server]] {name:?} is ignored: a sidecar saves its states itself"
            ));
        }
        let affinity = self.affinity.unwrap_or_default();
        Ok(Fleet {
            servers: self.servers.into_iter().map(ServerSettings::into_server).collect::<Result<_, _>>()?,
            fingerprint: affinity.fingerprint(),
            policy: Policy {
                placement: self.placement.unwrap_or_default(),
                affinity: affinity.into_affinity()?,
                budget: self.budget.unwrap_or_default().into_budget(max_waiting)?,
            },
            names: self.names.unwrap_or_default(),
            forward_credentials: self.forward_credentials.unwrap_or(false),
            shared: self.shared.map(SharedSettings::into_shared).transpose().map_err(FleetError::from)?,
        })
    }

    fn check(&self, around: &Around) -> Result<(), FleetError> {
        if around.upstream.is_some() {
            return Err(FleetError::Both("upstream's url"));
        }
        if around.upstream_key_file.is_some() {
            return Err(FleetError::Both("upstream_api_key_file"));
        }
        self.servers.iter().try_for_each(|server| server.check(around.listen))?;
        self.check_each_is_another()?;
        let has_folder =
            self.servers.len() > 1 || self.servers.iter().any(|server| server.warm_dir.is_some());
        if around.warm_dir.is_some() && has_folder {
            return Err(FleetError::WarmDir);
        }
        match self.servers.iter().find(|server| !server.sidecar) {
            Some(owned) if self.shared.is_some() => Err(FleetError::SharedSlots(format!("{:?}", owned.name))),
            _ => Ok(()),
        }
    }

    fn check_each_is_another(&self) -> Result<(), FleetError> {
        let mut names = HashSet::new();
        for (index, server) in self.servers.iter().enumerate() {
            // Their databases are files of these names, and not every file system tells the cases apart.
            if !names.insert(server.name.to_ascii_lowercase()) {
                return Err(FleetError::SameName(server.name.clone()));
            }
            for before in &self.servers[..index] {
                server.check_is_another_than(before)?;
            }
        }
        Ok(())
    }

    fn warn_of_what_means_nothing(&self, when: &str, warnings: &mut Vec<String>) {
        let given = [
            ("placement", self.placement.is_some()),
            ("names", self.names.is_some()),
            ("forward_credentials", self.forward_credentials.is_some()),
            ("[affinity]", self.affinity.is_some()),
            ("[budget]", self.budget.is_some()),
        ];
        for (setting, _) in given.iter().filter(|(_, given)| *given) {
            warnings.push(format!("{setting} means nothing {when} and is ignored"));
        }
    }
}

impl Behind {
    /// What `upstream` says.
    fn upstream(around: Around) -> Result<Self, ConfigError> {
        let api_key_file = around.upstream_key_file;
        let api_key =
            api_key_file.as_deref().map(|path| Secret::read(UPSTREAM_KEY_OPTION, path)).transpose()?;
        let url = around.upstream.unwrap_or_default();
        Ok(Self { fleet: None, url, api_key, api_key_file, warm_dir: around.warm_dir })
    }

    /// The only `server`, instead of what `upstream` says.
    fn one(server: Server, warm_dir: Option<PathBuf>) -> Self {
        let Server { url, api_key, api_key_file, .. } = server;
        Self { fleet: None, url, api_key, api_key_file, warm_dir: warm_dir.or(server.warm_dir) }
    }
}

impl ServerSettings {
    fn check(&self, listen: SocketAddr) -> Result<(), FleetError> {
        let name = || self.name.clone();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !(1..=NAME_MAX_BYTES).contains(&self.name.len()) || !self.name.bytes().all(plain) {
            return Err(FleetError::Name(name()));
        }
        if self.url.is_reached_at(listen) {
            return Err(FleetError::Loop { name: name(), url: self.url.clone(), listen });
        }
        if self.weight.is_some_and(|weight| !weight.is_finite() || weight <= 0.0) {
            return Err(FleetError::Weight(name()));
        }
        if self.models.as_ref().is_some_and(|models| models.is_empty() || models.iter().any(String::is_empty))
        {
            return Err(FleetError::Models(name()));
        }
        Ok(())
    }

    fn check_is_another_than(&self, before: &Self) -> Result<(), FleetError> {
        let (first, second) = (before.name.clone(), self.name.clone());
        if self.url == before.url {
            return Err(FleetError::SameUrl { first, second, url: self.url.clone() });
        }
        match &self.warm_dir {
            // Compared as paths: a `/` at the end makes no other folder.
            Some(dir) if before.warm_dir.as_deref() == Some(dir) => {
                Err(FleetError::SameWarmDir { first, second, path: dir.clone() })
            }
            _ => Ok(()),
        }
    }

    fn warn_of_what_means_nothing(&self, warnings: &mut Vec<String>) {
        let given = [
            ("kv", self.kv.is_some()),
            ("budget_tokens", self.budget_tokens.is_some()),
            ("weight", self.weight.is_some()),
            ("models", self.models.is_some()),
        ];
        for (setting, _) in given.iter().filter(|(_, given)| *given) {
            warnings.push(format!("{setting} means nothing with one [[server]] and is ignored"));
        }
    }

    fn into_server(self) -> Result<Server, ConfigError> {
        let api_key = self.api_key_file.as_deref().map(|path| Secret::read(KEY_OPTION, path)).transpose()?;
        Ok(Server {
            name: self.name,
            url: self.url,
            api_key_file: self.api_key_file,
            api_key,
            kv: self.kv.unwrap_or_default(),
            budget_tokens: self.budget_tokens.map(NonZeroU64::get),
            weight: self.weight.unwrap_or(1.0),
            models: self.models,
            sidecar: self.sidecar,
            warm_dir: self.warm_dir.filter(|_| !self.sidecar),
        })
    }
}
