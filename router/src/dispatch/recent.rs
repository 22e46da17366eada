//! The sessions seen last, as the status page shows them.

use std::num::NonZeroUsize;
use std::time::Instant;

use lru::LruCache;
use serde::Serialize;
use session_slot_identity::SessionId;

use super::Who;

/// How many sessions the status page shows.
const SHOWN: NonZeroUsize = NonZeroUsize::new(200).expect("not zero");

/// The sessions seen last.
#[derive(Debug)]
pub(super) struct Recent(LruCache<SessionId, Seen>);

#[derive(Debug)]
struct Seen {
    who: Who,
    at: Instant,
    requests: u64,
}

/// One session, as the status page shows it.
#[derive(Debug, Clone, Serialize)]
pub struct SessionSnapshot {
    id: String,
    #[serde(flatten)]
    who: Who,
    /// Its home, if it has one.
    pub(super) slot: Option<u32>,
    /// Requests since it came into this list.
    requests: u64,
    /// Time since the last of them came.
    idle_ms: u64,
}

impl SessionSnapshot {
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

impl Default for Recent {
    fn default() -> Self {
        Self(LruCache::new(SHOWN))
    }
}

impl Recent {
    pub(super) fn saw(&mut self, session: &SessionId, who: &Who, at: Instant) {
        let seen = self.0.get_or_insert_mut_ref(session, || Seen { who: Who::default(), at, requests: 0 });
        seen.who.update(who);
        seen.at = at;
        seen.requests += 1;
    }

    /// The last first.
    pub(super) fn snapshot(&self, now: Instant) -> Vec<SessionSnapshot> {
        let show = |(id, seen): (&SessionId, &Seen)| SessionSnapshot {
            id: id.to_string(),
            who: seen.who.clone(),
            slot: None,
            requests: seen.requests,
            idle_ms: u64::try_from(now.saturating_duration_since(seen.at).as_millis()).unwrap_or(u64::MAX),
        };
        self.0.iter().map(show).collect()
    }
}
