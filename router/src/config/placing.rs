//! The sections `[affinity]` and `[budget]` of the file: how long conversations stay with their server, and how much a
//! server is given.

use std::num::NonZeroUsize;

use serde::Deserialize;

use super::ConfigError;
use super::seconds::{self, Seconds};
use crate::fleet::{Affinity, Budget};

const DEFAULT_TTL: Seconds = Seconds::whole(30 * 60);
const DEFAULT_MAX_SESSIONS: usize = 65_536;
const DEFAULT_SHARE: f64 = 0.9;
const DEFAULT_PATIENCE: Seconds = Seconds::whole(20);
const DEFAULT_RETRIES: u32 = 3;

/// What the file says about homes; there are no flags or variables for it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AffinitySettings {
    enabled: Option<bool>,
    ttl: Option<Seconds>,
    max_sessions: Option<NonZeroUsize>,
    fingerprint: Option<bool>,
}

/// What the file says about the token budget; there are no flags or variables for it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BudgetSettings {
    enabled: Option<bool>,
    share: Option<f64>,
    patience: Option<Seconds>,
    retries: Option<u32>,
}

impl AffinitySettings {
    pub(super) fn fingerprint(&self) -> bool {
        self.fingerprint.unwrap_or(true)
    }

    pub(super) fn into_affinity(self) -> Result<Affinity, ConfigError> {
        let ttl = self.ttl.unwrap_or(DEFAULT_TTL).unless_zero().ok_or(ConfigError::Zero("affinity.ttl"))?;
        let max_sessions = self.max_sessions.map_or(DEFAULT_MAX_SESSIONS, NonZeroUsize::get);
        Ok(Affinity { enabled: self.enabled.unwrap_or(true), ttl, max_sessions })
    }
}

impl BudgetSettings {
    /// `max_waiting` is that of the queue.
    pub(super) fn into_budget(self, max_waiting: usize) -> Result<Budget, ConfigError> {
        let share = self.share.unwrap_or(DEFAULT_SHARE);
        if !(share > 0.0 && share <= 1.0) {
            return Err(ConfigError::Share);
        }
        Ok(Budget {
            enabled: self.enabled.unwrap_or(true),
            share,
            patience: self.patience.unwrap_or(DEFAULT_PATIENCE).0,
            retries: self.retries.unwrap_or(DEFAULT_RETRIES),
            max_waiting,
        })
    }
}

/// The sections, as a file would have them.
pub(super) fn to_toml(affinity: &Affinity, fingerprint: bool, budget: &Budget) -> String {
    [
        "\n[affinity]\n".to_owned(),
        super::line("enabled", affinity.enabled),
        super::line("ttl", seconds::to_toml(affinity.ttl)),
        super::line("max_sessions", super::integer(affinity.max_sessions as u64)),
        super::line("fingerprint", fingerprint),
        "\n[budget]\n".to_owned(),
        super::line("enabled", budget.enabled),
        super::line("share", budget.share),
        super::line("patience", seconds::to_toml(budget.patience)),
        super::line("retries", i64::from(budget.retries)),
    ]
    .concat()
}
