//! The section `[keepalive]` of the file: how long an answer may be silent before it shows that it is alive.

use std::time::Duration;

use serde::Deserialize;

use super::ConfigError;

const DEFAULT_AFTER: u64 = 10;
const DEFAULT_EVERY: u64 = 15;
/// Clients give up sooner; a longer one is a mistyped unit.
const LONGEST: u64 = 3600;

/// When an answer that has not begun shows that it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// After so much silence; never if `None`.
    pub after: Option<Duration>,
    /// ... and then so often.
    pub every: Duration,
    /// Also where no stream was asked for: by white space in front of the JSON.
    pub json: bool,
}

/// What the file says about signs of life.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeepAliveSettings {
    after: Option<u64>,
    every: Option<u64>,
    json: Option<bool>,
}

impl KeepAliveSettings {
    pub(super) fn into_keep_alive(self) -> Result<KeepAlive, ConfigError> {
        let after = self.after.unwrap_or(DEFAULT_AFTER);
        let every = self.every.unwrap_or(DEFAULT_EVERY);
        for (name, seconds, least) in [("keepalive.after", after, 0), ("keepalive.every", every, 1)] {
            if !(least..=LONGEST).contains(&seconds) {
                return Err(ConfigError::Seconds { name, seconds, least, most: LONGEST });
            }
        }
        Ok(KeepAlive {
            after: (after > 0).then_some(Duration::from_secs(after)),
            every: Duration::from_secs(every),
            json: self.json.unwrap_or(false),
        })
    }
}

/// The section, as a file would have it.
pub(super) fn to_toml(keep_alive: &KeepAlive) -> String {
    let after = keep_alive.after.map_or(0, |after| after.as_secs());
    [
        "\n[keepalive]\n".to_owned(),
        super::line("after", super::integer(after)),
        super::line("every", super::integer(keep_alive.every.as_secs())),
        super::line("json", keep_alive.json),
    ]
    .concat()
}
