//! A time in the file: a number of seconds, whole or not.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// A day: longer is a mistyped unit.
const LONGEST: f64 = 86_400.0;

/// From 0 to a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seconds(pub(super) Duration);

impl Seconds {
    pub(super) const fn whole(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// `None` for 0, which turns off what has a time.
    pub(super) fn unless_zero(self) -> Option<Duration> {
        Some(self.0).filter(|time| !time.is_zero())
    }
}

/// As a file would have it.
pub(super) fn to_toml(time: Duration) -> toml::Value {
    if time.subsec_nanos() == 0 { super::integer(time.as_secs()).into() } else { time.as_secs_f64().into() }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl de::Visitor<'_> for Number {
            type Value = Seconds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of seconds, from 0 to 86400 (a day)")
            }
            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Seconds, E> {
                // Exact up to 2^53, and out of range long before.
                self.visit_f64(seconds as f64)
            }
            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Seconds, E> {
                let time = Some(seconds).filter(|seconds| (0.0..=LONGEST).contains(seconds));
                let time = time.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                time.map(Seconds).ok_or_else(|| E::invalid_value(de::Unexpected::Float(seconds), &self))
            }
        }
        deserializer.deserialize_any(Number)
    }
}
