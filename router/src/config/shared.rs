//! The section `[shared]` of the file: the Valkey or Redis where several routers keep the homes of conversations.

use serde::Deserialize;

use super::fleet::Shared;
use super::values::Secret;

const DEFAULT_PREFIX: &str = "session-slot-router";
const PREFIX_MAX_BYTES: usize = 64;
const SCHEMES: [&str; 3] = ["redis", "redis+unix", "unix"];
/// What is printed for a password.
const HIDDEN: &str = "***";

/// What the file says about other routers; there are no flags or variables for it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedSettings {
    url: Url,
    prefix: Option<String>,
}

/// Its `Debug` form and its errors hold nothing of it: there may be a password in it.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
struct Url(String);

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// What is wrong with the section. No message holds anything of the URL.
#[derive(Debug, thiserror::Error)]
pub enum SharedError {
    /// It is not the URL of a Valkey or Redis.
    #[error(
        "url in [shared] must be the URL of a Valkey or Redis, such as redis://127.0.0.1:6379 or \
         redis+unix:///run/valkey.sock; TLS (rediss://) is not supported"
    )]
    Url,
    /// It can't stand in front of keys.
    #[error(
        "prefix in [shared] must be 1 to {PREFIX_MAX_BYTES} printable ASCII characters without spaces; \
         routers with the same prefix share their homes"
    )]
    Prefix,
    /// The program can't do that.
    #[error(
        "[shared] is given, but this build of session-slot-router can't share homes; \
         build it with --features shared, or take a released build, or leave [shared] out"
    )]
    NotBuiltIn,
}

impl SharedSettings {
    pub(super) fn into_shared(self) -> Result<Shared, SharedError> {
        let (scheme, rest) = self.url.0.split_once("://").ok_or(SharedError::Url)?;
        if rest.is_empty() || !SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
            return Err(SharedError::Url);
        }
        let url = Secret::new(&self.url.0).ok_or(SharedError::Url)?;
        let prefix = self.prefix.unwrap_or_else(|| DEFAULT_PREFIX.to_owned());
        let plain = prefix.bytes().all(|byte| byte.is_ascii_graphic());
        if !plain || !(1..=PREFIX_MAX_BYTES).contains(&prefix.len()) {
            return Err(SharedError::Prefix);
        }
        if cfg!(feature = "shared") { Ok(Shared { url, prefix }) } else { Err(SharedError::NotBuiltIn) }
    }
}

/// The section, as a file would have it, but for the password.
pub(super) fn to_toml(shared: &Shared) -> String {
    [
        "\n[shared]\n".to_owned(),
        super::line("url", without_password(shared.url.expose())),
        super::line("prefix", &*shared.prefix),
    ]
    .concat()
}

/// The URL with `***` for its password, be it behind the user's name or, as with a socket, in the query. Where a password
/// has characters that should have been escaped, rather too much is hidden.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = match rest.rsplit_once('@') {
        Some((who, place)) => match who.split_once(':') {
            Some((user, _)) => format!("{user}:{HIDDEN}@{place}"),
            None => rest.to_owned(),
        },
        None => rest.to_owned(),
    };
    let rest = match rest.split_once('?') {
        Some((place, query)) => {
            let pairs = query.split('&').map(|pair| match pair.split_once('=') {
                Some((name @ ("pass" | "password"), _)) => format!("{name}={HIDDEN}"),
                _ => pair.to_owned(),
            });
            format!("{place}?{}", pairs.collect::<Vec<_>>().join("&"))
        }
        None => rest,
    };
    format!("{scheme}://{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str, prefix: Option<&str>) -> String {
        let settings = SharedSettings { url: Url(url.to_owned()), prefix: prefix.map(str::to_owned) };
        settings.into_shared().expect_err("refused").to_string()
    }

    #[test]
    fn a_password_is_never_printed() {
        for (url, printed) in [
            ("redis://127.0.0.1:6379/1", "redis://127.0.0.1:6379/1"),
            ("redis://:hunter2@h:1", "redis://:***@h:1"),
            ("redis://ann:hunter2@h:1/2", "redis://ann:***@h:1/2"),
            ("redis://ann@h:1", "redis://ann@h:1"),
            ("redis://ann:hunter2@:/?#hunter2@h", "redis://ann:***@h"),
            ("redis+unix:///s?db=1&pass=hunter2&user=ann", "redis+unix:///s?db=1&pass=***&user=ann"),
            ("unix:///s?user=ann&pass=hunter2@", "unix:///s?user=ann&pass=***"),
        ] {
            assert_eq!(without_password(url), printed, "{url}");
        }
        let settings = SharedSettings { url: Url("redis://:hunter2@h".to_owned()), prefix: None };
        assert!(!format!("{settings:?}").contains("hunter2"));
    }

    #[test]
    fn what_is_no_valkey_or_redis_is_refused_without_quoting_it() {
        for url in [
            "",
            "hunter2",
            "redis://",
            "http://hunter2",
            "redis://hunter2 x",
            "rediss://hunter2",
            "127.0.0.1:6379",
        ] {
            let message = refusal(url, None);
            assert!(message.contains("redis://127.0.0.1:6379") && !message.contains("hunter2"), "{message}");
        }
        for prefix in ["", "a b", "\u{e9}", &"x".repeat(65)] {
            assert!(refusal("redis://h", Some(prefix)).contains("prefix"), "{prefix}");
        }
    }

    #[test]
    fn a_build_that_can_not_share_says_so() {
        let settings = SharedSettings { url: Url("REDIS://h".to_owned()), prefix: None };
        let shared = settings.into_shared().map(|shared| (shared.url.expose().to_owned(), shared.prefix));
        let shared = shared.map_err(|error| error.to_string().contains("--features shared"));
        let wanted = ("REDIS://h".to_owned(), "session-slot-router".to_owned());
        assert_eq!(shared, if cfg!(feature = "shared") { Ok(wanted) } else { Err(true) });
    }
}
