//! The values a setting can have, each with its own spelling and its own complaint.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::{Deserialize, Deserializer, de};

use super::ConfigError;
use crate::slots::{Concurrent, Evict, PinPolicy};

const DEFAULT_UPSTREAM: &str = "127.0.0.1:8080";

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// A llama-server's base URL, taken apart. Shown as `http://host:port/prefix`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// `host:port`, always with a port; an IPv6 address is in brackets.
    pub authority: String,
    /// The path before `/v1`, `/slots` and so on: empty or `/llama`, never with a `/` at the end.
    pub prefix: String,
}

/// A number of bytes, written as an integer or with `KiB`, `MiB` or `GiB`; from 1 to `i64::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// A key. Its `Debug` form is `***`, so that it cannot reach a log by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The spellings of [`PinPolicy`] as a flag. Here and not beside the type, which knows nothing of flags.
impl ValueEnum for PinPolicy {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Auto, Self::Always, Self::Never]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Auto => PossibleValue::new("auto").help("Where `/slots` shows that it costs no reuse"),
            Self::Always => PossibleValue::new("always").help("Always"),
            Self::Never => PossibleValue::new("never").help("Never; the server chooses"),
        })
    }
}

/// The spellings of [`Concurrent`] as a flag.
impl ValueEnum for Concurrent {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Wait, Self::Spill]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Wait => PossibleValue::new("wait").help("It waits for its slot"),
            Self::Spill => {
                PossibleValue::new("spill").help("It takes a free slot for this once, if none is harmed")
            }
        })
    }
}

/// The spellings of [`Evict`] as a flag.
impl ValueEnum for Evict {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Lru, Self::Cost]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Lru => PossibleValue::new("lru").help("The one whose slot was used least recently"),
            Self::Cost => PossibleValue::new("cost")
                .help("The one whose loss costs least, by what it reads and when it returns"),
        })
    }
}

impl Upstream {
    /// Whether a connection to this upstream would reach a socket bound to `listen`.
    pub(super) fn is_reached_at(&self, listen: SocketAddr) -> bool {
        let Some((host, port)) = self.authority.rsplit_once(':') else {
            return false;
        };
        if port.parse() != Ok(listen.port()) {
            return false;
        }
        let own = listen.ip().to_canonical();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
            // Connecting to the unspecified address means this machine.
            Ok(ip) if ip.is_loopback() || ip.is_unspecified() => {
                own == ip || own.is_unspecified() || (ip.is_unspecified() && own.is_loopback())
            }
            Ok(ip) => own == ip,
            Err(_) => bare == "localhost" && (own.is_loopback() || own.is_unspecified()),
        }
    }
}

impl Default for Upstream {
    fn default() -> Self {
        Self { authority: DEFAULT_UPSTREAM.to_owned(), prefix: String::new() }
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

impl FromStr for Upstream {
    type Err = String;

    /// Reads `http://host[:port][/prefix][/v1][/]`. The messages never quote the URL: it may hold a password.
    fn from_str(url: &str) -> Result<Self, String> {
        let rest = after_scheme(url)?;
        if rest.contains(['?', '#', '@']) {
            return Err("give the URL without user name, password, query and fragment".to_owned());
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let path: http::uri::PathAndQuery = if path.is_empty() { "/" } else { path }
            .parse()
            .map_err(|_| "its path has characters no URL may have")?;
        let prefix = path.path().trim_end_matches('/');
        let prefix = prefix.strip_suffix("/v1").unwrap_or(prefix).trim_end_matches('/');
        Ok(Self { authority: authority_with_port(authority)?, prefix: prefix.to_owned() })
    }
}

/// The URL without `http://`.
fn after_scheme(url: &str) -> Result<&str, String> {
    match url.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => Ok(rest),
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("https") => {
            Err("llama-server is reached by plain HTTP: start the URL with http://".to_owned())
        }
        _ => Err("start the URL with http://, such as http://127.0.0.1:8080".to_owned()),
    }
}

/// `host:port` in lower case, with HTTP's port 80 where none is given.
fn authority_with_port(authority: &str) -> Result<String, String> {
    let problem = "its host and port must look like 127.0.0.1:8080, gpu.lan:8080 or [::1]:8080";
    let parsed: http::uri::Authority = authority.parse().map_err(|_| problem)?;
    let host = parsed.host().to_ascii_lowercase();
    let literal = host.strip_prefix('[').map(|host| host.trim_end_matches(']'));
    if host.is_empty() || literal.is_some_and(|host| host.parse::<Ipv6Addr>().is_err()) {
        return Err(problem.to_owned());
    }
    let port = match authority[host.len()..].strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|&port: &u16| port > 0).ok_or(problem)?,
        None if authority.len() == host.len() => 80,
        None => return Err(problem.to_owned()),
    };
    Ok(format!("{host}:{port}"))
}

impl<'de> Deserialize<'de> for Upstream {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
            "" => Some(1),
            "kib" => Some(1 << 10),
            "mib" => Some(1 << 20),
            "gib" => Some(1_u64 << 30),
            _ => None,
        };
        let bytes = text[..digits].parse::<u64>().ok().zip(unit).and_then(|(n, unit)| n.checked_mul(unit));
        bytes.filter(|&bytes| bytes > 0 && i64::try_from(bytes).is_ok()).map(Self).ok_or_else(|| {
            format!("{text:?} is not a size above 0 such as 268435456, 512KiB, 256MiB or 1GiB")
        })
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, such as 268435456 or \"256MiB\"")
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                bytes.to_string().parse().map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Secret {
    /// The key itself, for comparing and sending; printable ASCII, never empty.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// `None` for what could not be sent in a header: it would fail at every request instead of at start.
    pub(crate) fn new(key: &str) -> Option<Self> {
        let sendable = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
        sendable.then(|| Self(key.to_owned()))
    }

    pub(super) fn read(option: &'static str, path: &Path) -> Result<Self, ConfigError> {
        let bytes = key_file(option, path)?;
        let bad = |problem| ConfigError::BadKey { option, path: path.to_owned(), problem };
        let key = bytes.trim_ascii();
        if key.is_empty() {
            return Err(bad("is empty"));
        }
        let key = std::str::from_utf8(key).ok().and_then(Self::new);
        key.ok_or(bad("holds spaces, several lines or characters that are not ASCII"))
    }
}

pub(super) fn key_file(option: &'static str, path: &Path) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|source| ConfigError::KeyUnreadable { option, path: path.to_owned(), source })
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_upstream_is_taken_apart_and_v1_is_understood() {
        for (url, authority, prefix) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", ""),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080", ""),
            ("http://127.0.0.1:8080/v1", "127.0.0.1:8080", ""),
            ("HTTP://GPU.lan:1/v1/", "gpu.lan:1", ""),
            ("http://gpu", "gpu:80", ""),
            ("http://[::1]:8080/v1", "[::1]:8080", ""),
            ("http://[::1]", "[::1]:80", ""),
            ("http://h:1/llama", "h:1", "/llama"),
            ("http://h:1/llama/v1/", "h:1", "/llama"),
            ("http://h:1/llama//v1//", "h:1", "/llama"),
            ("http://h:1/v10", "h:1", "/v10"),
            ("http://h:1/A/b%20c", "h:1", "/A/b%20c"),
        ] {
            let upstream: Upstream = url.parse().unwrap();
            assert_eq!((upstream.authority.as_str(), upstream.prefix.as_str()), (authority, prefix), "{url}");
            assert_eq!(upstream.to_string().parse(), Ok(upstream));
        }
    }

    #[test]
    fn an_upstream_that_cannot_be_reached_is_refused_without_quoting_it() {
        for url in [
            "",
            "hunter2",
            "hunter2:8080",
            "ftp://hunter2",
            "https://hunter2",
            "http://",
            "http:///v1",
            "http://u:hunter2@h",
            "http://h?hunter2",
            "http://h#hunter2",
            "http://h:99999/hunter2",
            "http://h:0/hunter2",
            "http://h:/hunter2",
            "http://:8080",
            "http://[hunter2]:1",
            "http://[::1",
            "http://h hunter2",
            "http://h/hun ter2",
            "http://::1:8080/hunter2",
        ] {
            let error = url.parse::<Upstream>().expect_err(url);
            assert!(!error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn a_size_may_have_a_binary_unit() {
        for (text, bytes) in
            [("1", 1), ("512KiB", 524_288), ("256 mib", 268_435_456), ("2GiB", 2_147_483_648)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn a_size_that_is_none_or_zero_or_beyond_counting_is_refused() {
        for text in ["", "0", "-1", "MiB", "10MB", "1.5MiB", "9223372036854775808", "99999999999GiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_file_holds_one_printable_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Secret::read("--api-key-file", &path)
        };
        assert_eq!(read(b"  sk-1\r\n").unwrap().expose(), "sk-1");
        for bytes in [&b""[..], b" \n", b"hunter2\nb", b"hunter2 b", b"hunter2\xff", b"hunter2\0"] {
            let message = read(bytes).unwrap_err().to_string();
            assert!(message.contains("--api-key-file") && !message.contains("hunter2"), "{message}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Secret::read("--x", &path), Err(ConfigError::KeyUnreadable { .. })));
    }
}
