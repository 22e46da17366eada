//! The section `[keepalive]` of the file: how long an answer may be silent before it shows that it is alive.

use std::time::Duration;

use serde::Deserialize;

use super::ConfigError;
use super::seconds::{self, Seconds};

const DEFAULT_AFTER: Seconds = Seconds::whole(10);
const DEFAULT_EVERY: Seconds = Seconds::whole(15);

/// When an answer that has not begun shows that it is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepAlive {
    /// After so much silence; never if `None`.
    pub after: Option<Duration>,
    /// ... and then so often; above 0.
    pub every: Duration,
    /// Also where no stream was asked for: by white space in front of the JSON.
    pub json: bool,
}

/// What the file says about signs of life.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeepAliveSettings {
    after: Option<Seconds>,
    every: Option<Seconds>,
    json: Option<bool>,
}

impl KeepAliveSettings {
    pub(super) fn into_keep_alive(self) -> Result<KeepAlive, ConfigError> {
        let every = self.every.unwrap_or(DEFAULT_EVERY);
        Ok(KeepAlive {
            after: self.after.unwrap_or(DEFAULT_AFTER).unless_zero(),
            every: every.unless_zero().ok_or(ConfigError::Zero("keepalive.every"))?,
            json: self.json.unwrap_or(false),
        })
    }
}

/// The section, as a file would have it.
pub(super) fn to_toml(keep_alive: &KeepAlive) -> String {
    [
        "\n[keepalive]\n".to_owned(),
        super::line("after", seconds::to_toml(keep_alive.after.unwrap_or_default())),
        super::line("every", seconds::to_toml(keep_alive.every)),
        super::line("json", keep_alive.json),
    ]
    .concat()
}
