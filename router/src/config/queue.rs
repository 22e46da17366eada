//! The section `[queue]` of the file: how many requests may wait for a slot, and how long.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use serde::Deserialize;

use crate::slots::Queue;

/// What the file says about waiting; there are no flags or variables for it. Nothing but `overtake` may be 0.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueSettings {
    /// In seconds.
    max_wait: Option<NonZeroU32>,
    max_waiting: Option<NonZeroUsize>,
    max_per_session: Option<NonZeroUsize>,
    overtake: Option<u32>,
}

impl QueueSettings {
    pub(super) fn into_queue(self) -> Queue {
        let default = Queue::default();
        let wait = self.max_wait.map(|seconds| Duration::from_secs(seconds.get().into()));
        Queue {
            max_wait: wait.unwrap_or(default.max_wait),
            max_waiting: self.max_waiting.map_or(default.max_waiting, NonZeroUsize::get),
            max_per_session: self.max_per_session.map_or(default.max_per_session, NonZeroUsize::get),
            overtake: self.overtake.unwrap_or(default.overtake),
        }
    }
}

/// The section, as a file would have it.
pub(super) fn to_toml(queue: &Queue) -> String {
    let count = |count: usize| super::integer(count as u64);
    [
        "\n[queue]\n".to_owned(),
        super::line("max_wait", super::integer(queue.max_wait.as_secs())),
        super::line("max_waiting", count(queue.max_waiting)),
        super::line("max_per_session", count(queue.max_per_session)),
        super::line("overtake", i64::from(queue.overtake)),
    ]
    .concat()
}
