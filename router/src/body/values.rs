//! What single members of a body mean: each reads one raw JSON value.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::Deserializer as _;
use serde::de::{self, SeqAccess, Visitor};
use serde_json::value::RawValue;
use session_slot_identity::SessionId;

use super::{AskedSlot, BodyError};

/// The longest agent name or client type that is kept, in bytes: they are only recorded.
const LABEL_MAX_BYTES: usize = 256;
/// How much is kept of a model's name or of an id that an agent put into the body for its own purposes. More than a session id may have, so
/// that one cut off still shows as too long.
const SIGNAL_MAX_BYTES: usize = 2 * SessionId::MAX_BYTES;

/// The session id that the raw JSON value `raw` stands for.
pub(super) fn session_text(raw: &str) -> Result<Option<String>, BodyError> {
    let text = match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).map_err(|_| BodyError::SessionNotText)?,
        Some(b'n') => return Ok(None),
        Some(b't' | b'f') => return Err(BodyError::SessionType { found: "a boolean" }),
        Some(b'[') => return Err(BodyError::SessionType { found: "an array" }),
        Some(b'{') => return Err(BodyError::SessionType { found: "an object" }),
        _ => raw.to_owned(),
    };
    match text.len() {
        0 => Ok(None),
        bytes if bytes > SessionId::MAX_BYTES => Err(BodyError::SessionTooLong { bytes }),
        _ => Ok(Some(text)),
    }
}

/// The name or type that the raw JSON value `raw` stands for.
pub(super) fn label_text(raw: &str) -> Option<String> {
    let text = match raw.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(raw).ok()?,
        b'-' | b'0'..=b'9' => raw.to_owned(),
        _ => return None,
    };
    let text = truncated(&text, LABEL_MAX_BYTES);
    if text.is_empty() { None } else { Some(text.to_owned()) }
}

/// The id in a member that an agent sends for its own purposes: any string.
pub(super) fn signal_text(raw: &str) -> Option<String> {
    let text = serde_json::from_str::<String>(raw).ok()?;
    Some(truncated(&text, SIGNAL_MAX_BYTES).to_owned())
}

/// The name of a model: a string that is not empty.
pub(super) fn model_text(raw: &str) -> Option<String> {
    signal_text(raw).filter(|name| !name.is_empty())
}

/// A limit in tokens. Anything but an integer from 0 is none: -1 means without end.
pub(super) fn limit(raw: &str) -> Option<u64> {
    raw.parse().ok()
}

/// The session in Claude Code's `metadata`: its `user_id` is a string that holds JSON itself. As observed of version
/// 2.1.332; a `user_id` of any other form names no session.
pub(super) fn claude_session(raw: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Metadata {
        user_id: String,
    }
    #[derive(Deserialize)]
    struct UserId {
        session_id: String,
    }
    // Serde takes a list for a struct, too.
    let object = |text: &str| text.trim_ascii_start().starts_with('{');
    let metadata = object(raw).then(|| serde_json::from_str::<Metadata>(raw).ok())??;
    let user =
        object(&metadata.user_id).then(|| serde_json::from_str::<UserId>(&metadata.user_id).ok())??;
    Some(truncated(&user.session_id, SIGNAL_MAX_BYTES).to_owned())
}

/// A number of answers; anything but a number above 1 means one.
pub(super) fn count(raw: &str) -> u32 {
    let number =
        if raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) { cpp_int(raw) } else { 1 };
    u32::try_from(number).unwrap_or(1).max(1)
}

/// How many prompts a list holds. A list with numbers in it is one prompt, written as tokens, and one of objects is one
/// prompt in parts.
pub(super) fn list_length(raw: &str) -> u32 {
    if !raw.starts_with('[') {
        return 1;
    }
    let length = serde_json::Deserializer::from_str(raw).deserialize_seq(Prompts);
    length.unwrap_or(1).max(1)
}

/// Counts the items of a list of prompts without keeping them; an error for one that is a single prompt.
struct Prompts;

impl<'de> Visitor<'de> for Prompts {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of prompts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<u32, A::Error> {
        let mut length = 0_u32;
        while let Some(item) = items.next_element::<&'de RawValue>()? {
            if !item.get().starts_with(['"', '[']) {
                return Err(de::Error::custom("one prompt"));
            }
            length = length.saturating_add(1);
        }
        Ok(length)
    }
}

/// What llama-server makes of an `id_slot`: it wants a C++ `int`, gets numbers and booleans converted to it, and takes
/// anything else for absent. (Booleans were seen to work: `true` is slot 1.)
pub(super) fn asked_slot(raw: &str) -> AskedSlot {
    let slot = match raw.as_bytes().first() {
        Some(b't') => 1,
        Some(b'f') => 0,
        Some(b'-' | b'0'..=b'9') => cpp_int(raw),
        _ => return AskedSlot::Absent,
    };
    if slot == -1 { AskedSlot::Absent } else { AskedSlot::Named(slot.into()) }
}

/// A JSON number as `static_cast<int>` gives it: integers lose their upper bits, fractions are cut off.
/// Beyond the range of `int` C++ leaves a float's result open; the nearest value is as good as any.
fn cpp_int(number: &str) -> i32 {
    let parsed = i64::from_str(number).map(|n| n as i32);
    let parsed = parsed.or_else(|_| u64::from_str(number).map(|n| n as i32));
    parsed.unwrap_or_else(|_| f64::from_str(number).unwrap_or(-1.0) as i32)
}

pub(super) fn truncated(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}
