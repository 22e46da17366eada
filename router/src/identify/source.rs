//! The places a session's id can come from, how they are spelled in the configuration, and what they hold.

use std::fmt;
use std::str::FromStr;

use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use http::{HeaderMap, HeaderName};
use serde::{Deserialize, Deserializer, de};
use session_slot_identity::SessionId;

use super::Unusable;
use crate::body::Parsed;

/// The order that holds unless the configuration gives another. As observed of Claude Code 2.1.332, Codex 0.171.0,
/// opencode 1.18.33 and Pi 1.6; as read in the code of Kilo 7.7.9 and Cline 3.0.65; LiteLLM's and Open WebUI's as
/// documented.
const DEFAULTS: [&str; 13] = [
    "body:agent_session_id",
    "header:x-agent-session-id",
    "header:x-claude-code-session-id",
    "body:metadata.user_id",
    "header:session-id",
    "header:session_id",
    "body:prompt_cache_key",
    "header:x-session-affinity",
    "header:x-session-id",
    "header:x-litellm-session-id",
    "header:x-opencode-session",
    "header:x-openwebui-chat-id",
    "header:x-task-id",
];

/// A place a session's id can come from. Spelled `header:NAME` or `body:MEMBER`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The member `agent_session_id`, which the router takes out again.
    Ours,
    /// The `session_id` in the text of `metadata.user_id`: Claude Code.
    ClaudeUserId,
    /// The member `prompt_cache_key`: Codex, Pi.
    PromptCacheKey,
    /// A header.
    Header(HeaderName),
}

/// A place there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no source of session ids; there are \"header:NAME\" for any header but those of keys and cookies, \
     \"body:agent_session_id\", \"body:metadata.user_id\" and \"body:prompt_cache_key\""
)]
pub struct SourceError(String);

impl Source {
    /// All that are looked at unless the configuration says otherwise.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        DEFAULTS.iter().filter_map(|spelling| spelling.parse().ok()).collect()
    }

    /// The id there, 1 to 512 bytes; `None` where there is none.
    pub(super) fn read<'a>(
        &self,
        headers: &'a HeaderMap,
        body: &'a Parsed,
    ) -> Result<Option<&'a str>, Unusable> {
        match self {
            // The body's reader has its own rules for this one: it is addressed to us, so that a bad one is refused.
            Self::Ours => Ok(body.session()),
            Self::ClaudeUserId => body.claude_session().map_or(Ok(None), usable),
            Self::PromptCacheKey => {
                let key = body.prompt_cache_key().filter(|key| !is_prompts_hash(key));
                key.map_or(Ok(None), usable)
            }
            Self::Header(name) => {
                let Some(value) = headers.get(name) else { return Ok(None) };
                usable(std::str::from_utf8(value.as_bytes()).map_err(|_| Unusable::NotText)?)
            }
        }
    }
}

/// Hermes 0.19 sends a hash of instructions and tools, the same for all conversations that begin alike: `pck_` and 24
/// hex digits, as observed.
fn is_prompts_hash(key: &str) -> bool {
    let digits = key.strip_prefix("pck_");
    digits.is_some_and(|digits| digits.len() == 24 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// An id that an agent sends for its own purposes: not worth refusing a request for.
fn usable(id: &str) -> Result<Option<&str>, Unusable> {
    let id = id.trim_matches([' ', '\t']);
    if id.len() > SessionId::MAX_BYTES {
        Err(Unusable::TooLong)
    } else if id.chars().any(char::is_control) {
        Err(Unusable::Control)
    } else if id.is_empty() {
        Ok(None)
    } else {
        Ok(Some(id))
    }
}

/// A session's id stands in the log and in the database.
fn is_secret(header: &HeaderName) -> bool {
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(header) || header == "x-api-key"
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours => f.write_str("body:agent_session_id"),
            Self::ClaudeUserId => f.write_str("body:metadata.user_id"),
            Self::PromptCacheKey => f.write_str("body:prompt_cache_key"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

impl FromStr for Source {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        let source = match text.split_once(':') {
            Some(("body", "agent_session_id")) => Some(Self::Ours),
            Some(("body", "metadata.user_id")) => Some(Self::ClaudeUserId),
            Some(("body", "prompt_cache_key")) => Some(Self::PromptCacheKey),
            Some(("header", name)) => name.parse().ok().filter(|name| !is_secret(name)).map(Self::Header),
            _ => None,
        };
        source.ok_or_else(|| SourceError(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}
