//! What the file says about the server: its address, and when its silence is worth a word.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};

use super::seconds::{self, Seconds};
use super::values::Upstream;

/// A slot that makes no progress for longer is stuck.
const DEFAULT_STUCK: Seconds = Seconds::whole(600);

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
    stall: Option<Seconds>,
    end_stalled: Option<bool>,
    stuck: Option<Seconds>,
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

    pub(super) fn watch(&self) -> Watch {
        Watch {
            stall: self.stall.and_then(Seconds::unless_zero),
            end_stalled: self.end_stalled.unwrap_or(false),
            stuck: self.stuck.unwrap_or(DEFAULT_STUCK).unless_zero(),
        }
    }
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
            stall: Option<Seconds>,
            end_stalled: Option<bool>,
            stuck: Option<Seconds>,
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

/// The setting, as a file would have it; without a URL where there are several servers.
pub(super) fn to_toml(url: Option<&Upstream>, watch: &Watch) -> String {
    let seconds = |limit: Option<Duration>| seconds::to_toml(limit.unwrap_or_default());
    let mut table = toml::Table::new();
    if let Some(url) = url {
        table.insert("url".to_owned(), url.to_string().into());
    }
    table.insert("stall".to_owned(), seconds(watch.stall));
    table.insert("end_stalled".to_owned(), watch.end_stalled.into());
    table.insert("stuck".to_owned(), seconds(watch.stuck));
    super::line("upstream", table)
}
