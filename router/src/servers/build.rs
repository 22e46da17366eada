//! The servers as the configuration has them: databases opened, files looked over, nothing asked yet.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::ask::half;
use super::{Member, Servers, Slots};
use crate::chain::ChainKey;
use crate::config::{self, Config};
use crate::dispatch::{Dispatch, Remembered};
use crate::serve::RunError;
use crate::shelf::{Inventory, Shelf};
use crate::store::{Opened, Store, Write};
use crate::upstream::Upstream;

impl Servers {
    /// All servers of `config`. `opened` is the router's own database, which with one server is also that one's. Blocking.
    ///
    /// # Errors
    /// When a database can't be used, or an address or key can't be written into a request.
    pub(crate) fn build(config: &Config, opened: Opened) -> Result<Arc<Self>, RunError> {
        let Some(fleet) = &config.fleet else {
            let upstream = Upstream::new(&config.upstream, config.upstream_api_key.as_ref())?;
            let key = opened.chain_key;
            return Ok(Self::one(direct("", upstream, config, &config.warm, key, opened)));
        };
        let key = opened.chain_key;
        let members = fleet.servers.iter().map(|server| member(server, config, key));
        Ok(Self::several(members.collect::<Result<_, _>>()?, fleet))
    }
}

fn member(server: &config::Server, config: &Config, key: ChainKey) -> Result<Member, RunError> {
    let upstream = Upstream::new(&server.url, server.api_key.as_ref())?.among_several();
    let opened = Store::open(&config.database_of_server(&server.name), config.event_days)?;
    let sessions = opened.sessions.clone();
    let member = if server.sidecar {
        Member::new(&server.name, upstream, opened.store, None)
    } else {
        let warm = config::Warm { dir: server.warm_dir.clone(), ..config.warm.clone() };
        direct(&server.name, upstream, config, &warm, of_server(key, &server.name), opened)
    };
    Ok(member.remembering(sessions).listing(server.models.clone()))
}

/// A server whose slots are this router's. `key` names the files of its saved states.
fn direct(
    name: &str,
    upstream: Upstream,
    config: &Config,
    warm: &config::Warm,
    key: ChainKey,
    opened: Opened,
) -> Member {
    let Opened { store, sessions, states, .. } = opened;
    let (shelf, Inventory { states, gone }) = Shelf::open(warm, key, states);
    gone.into_iter().for_each(|state| store.record(Write::StateGone(state)));
    let (shelf, remembered) = (Arc::new(shelf), Remembered { sessions, states });
    let dispatch =
        Dispatch::new(config.policy(), upstream.clone(), store.clone(), Arc::clone(&shelf), remembered);
    Member::new(name, upstream, store, Some(Slots { dispatch, shelf }))
}

/// A key of a server's own, so that two servers that write to one folder by mistake take each other's files for a
/// stranger's.
fn of_server(key: ChainKey, name: &str) -> ChainKey {
    ChainKey(half(Sha256::new().chain_update(key.0).chain_update(name).finalize().into()))
}
