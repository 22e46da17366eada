//! Where conversations lived in an earlier run, so that they still do after a restart of the router.

use std::sync::PoisonError;
use std::time::Instant;

use chrono::{DateTime, Utc};
use session_slot_identity::SessionId;

use super::{Member, key_of};
use crate::fleet::{Fleet, Key, ServerId};

/// Tells the fleet what the members' databases know. A session that several of them know lives where it was last.
pub(super) fn remember(fleet: &mut Fleet, members: &[Member]) {
    let (now, here) = (Instant::now(), Utc::now());
    let mut homes: Vec<(DateTime<Utc>, Key, ServerId)> =
        (0_u32..).map(ServerId).zip(members).flat_map(|(server, member)| of(server, member)).collect();
    homes.sort_by_key(|(last_used, ..)| *last_used);
    for (last_used, key, server) in homes {
        // A clock that was set back must not make it the future.
        let ago = (here - last_used).to_std().unwrap_or_default();
        if let Some(at) = now.checked_sub(ago) {
            fleet.remember(key, server, at);
        }
    }
}

fn of(server: ServerId, member: &Member) -> Vec<(DateTime<Utc>, Key, ServerId)> {
    let saved = std::mem::take(&mut *member.remembered.lock().unwrap_or_else(PoisonError::into_inner));
    let home = |session: crate::store::SavedSession| {
        let key = key_of(&SessionId::new(&session.session).ok()?);
        Some((session.last_used, key, server))
    };
    saved.into_iter().filter_map(home).collect()
}
