//! What the file says about the server: its address, and when its silence is worth a word.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use super::ConfigError;
use super::values::Upstream;

/// A slot that makes no progress for longer is stuck.
const DEFAULT_STUCK: u64 = 600;
/// A day: longer is a mistyped unit.
const LONGEST: u64 = 86_400;

/// When the server's silence is worth a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch {
    /// A stream that has begun and brings nothing for so long has stalled; `None`: never.
    pub stall: Option<Duration>,
    /// Such a stream is ended, with an error.
    pub end_stalled: bool,
    /// A slot at work for nobody, without progress for so long, is stuck; `None`: never.
    pub stuck: Option<Duration>,
}

/// `upstream` in the file: a URL, or a table with more.
#[derive(Debug, Clone, Default)]
pub struct UpstreamSettings {
    pub(super) url: Option<Upstream>,
    stall: Option<u64>,
    end_stalled: Option<bool>,
    stuck: Option<u64>,
}

impl UpstreamSettings {
    /// These, and those of a `lower` source where these say nothing.
    pub(super) fn or(self, lower: Self) -> Self {
        Self {
            url: self.url.or(lower.url),
            stall: self.stall.or(lower.stall),
            end_stalled: self.end_stalled.or(lower.end_stalled),
            stuck: self.stuck.or(lower.stuck),
        }
    }

    pub(super) fn watch(&self) -> Result<Watch, ConfigError> {
        Ok(Watch {
            stall: seconds("upstream.stall", self.stall.unwrap_or(0))?,
            end_stalled: self.end_stalled.unwrap_or(false),
            stuck: seconds("upstream.stuck", self.stuck.unwrap_or(DEFAULT_STUCK))?,
        })
    }
}

/// 0 turns it off.
fn seconds(name: &'static str, seconds: u64) -> Result<Option<Duration>, ConfigError> {
    if seconds > LONGEST {
        return Err(ConfigError::Seconds { name, seconds, least: 0, most: LONGEST });
    }
    Ok((seconds > 0).then_some(Duration::from_secs(seconds)))
}

impl From<Upstream> for UpstreamSettings {
    fn from(url: Upstream) -> Self {
        Self { url: Some(url), ..Self::default() }
    }
}

impl std::str::FromStr for UpstreamSettings {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        url.parse::<Upstream>().map(Self::from)
    }
}

impl<'de> Deserialize<'de> for UpstreamSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            url: Option<Upstream>,
            stall: Option<u64>,
            end_stalled: Option<bool>,
            stuck: Option<u64>,
        }
        struct UrlOrTable;
        impl<'de> de::Visitor<'de> for UrlOrTable {
            type Value = UpstreamSettings;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL, or a table with url, stall, end_stalled and stuck")
            }
            fn visit_str<E: de::Error>(self, url: &str) -> Result<UpstreamSettings, E> {
                url.parse().map_err(E::custom)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<UpstreamSettings, A::Error> {
                let Table { url, stall, end_stalled, stuck } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(UpstreamSettings { url, stall, end_stalled, stuck })
            }
        }
        deserializer.deserialize_any(UrlOrTable)
    }
}

/// The setting, as a file would have it.
pub(super) fn to_toml(url: &Upstream, watch: &Watch) -> String {
    let seconds = |limit: Option<Duration>| super::integer(limit.map_or(0, |limit| limit.as_secs()));
    let mut table = toml::Table::new();
    table.insert("url".to_owned(), url.to_string().into());
    table.insert("stall".to_owned(), seconds(watch.stall).into());
    table.insert("end_stalled".to_owned(), watch.end_stalled.into());
    table.insert("stuck".to_owned(), seconds(watch.stuck).into());
    super::line("upstream", table)
}
