//! The section `[warm]` of the file: which states are saved, where, and how much room they have.

use std::path::PathBuf;

use serde::Deserialize;

use super::values::ByteSize;
use crate::warm::{Policy, Share};

/// Which states are saved, and where.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Warm {
    /// Which.
    pub policy: Policy,
    /// llama-server's `--slot-save-path`; `None`: not visible here, so that states are known by name alone.
    pub dir: Option<PathBuf>,
    /// Bytes for all of them; `None`: as much as the disk can spare.
    pub max_bytes: Option<u64>,
}

/// What the file says about saved states.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WarmSettings {
    enabled: Option<bool>,
    dir: Option<PathBuf>,
    max_bytes: Option<ByteSize>,
    min_tokens: Option<u64>,
    share: Option<Share>,
}

impl WarmSettings {
    /// `dir` is what flags or variables say; it beats the file.
    pub(super) fn into_warm(self, dir: Option<PathBuf>) -> Warm {
        let default = Policy::default();
        let policy = Policy {
            enabled: self.enabled.unwrap_or(default.enabled),
            min_tokens: self.min_tokens.unwrap_or(default.min_tokens),
            share: self.share.unwrap_or(default.share),
        };
        Warm { policy, dir: dir.or(self.dir), max_bytes: self.max_bytes.map(|ByteSize(bytes)| bytes) }
    }
}

/// The section, as a file would have it.
pub(super) fn to_toml(warm: &Warm) -> String {
    let mut text = "\n[warm]\n".to_owned();
    text += &super::line("enabled", warm.policy.enabled);
    if let Some(dir) = &warm.dir {
        text += &super::line("dir", dir.to_string_lossy().into_owned());
    }
    if let Some(bytes) = warm.max_bytes {
        text += &super::line("max_bytes", super::integer(bytes));
    }
    text += &super::line("min_tokens", super::integer(warm.policy.min_tokens));
    text += &super::line("share", spelling(warm.policy.share));
    text
}

fn spelling(share: Share) -> &'static str {
    match share {
        Share::SameKey => "same_key",
        Share::All => "all",
    }
}
