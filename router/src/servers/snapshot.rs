//! What the status page shows of several servers.

use std::time::Instant;

use serde::Serialize;

use super::Servers;
use crate::dispatch::{ServerSnapshot, SessionSnapshot};
use crate::fleet;

/// One of several servers.
#[derive(Debug, Serialize)]
pub(crate) struct ServerStatus {
    #[serde(flatten)]
    shown: fleet::ServerSnapshot,
    url: String,
    /// Another router beside it owns its slots.
    sidecar: bool,
    /// Its slots, where they are this router's.
    slot_table: Option<ServerSnapshot>,
    /// The sessions seen there last, the last first.
    recent: Vec<SessionSnapshot>,
}

impl Servers {
    /// All servers, in the order of the configuration; none with one.
    pub(crate) fn snapshot(&self) -> Vec<ServerStatus> {
        let Some(several) = &self.several else { return Vec::new() };
        let shown = several.room.lock().fleet.snapshot(Instant::now());
        let pairs = shown.into_iter().zip(&self.members);
        pairs
            .map(|(shown, member)| {
                let dispatch = member.slots.as_ref().map(|slots| &slots.dispatch);
                ServerStatus {
                    shown,
                    url: member.upstream.address(),
                    sidecar: dispatch.is_none(),
                    slot_table: dispatch.map(|dispatch| dispatch.snapshot()),
                    recent: dispatch.map_or_else(Vec::new, |dispatch| dispatch.sessions()),
                }
            })
            .collect()
    }
}
