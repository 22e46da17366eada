//! Takes the routing members out of a JSON body and sets `id_slot`, keeping every other byte.
//!
//! Only the top level of the object is looked at: nested members mean nothing. The body is never turned into a tree;
//! it is walked once, noting where the few members that matter lie, and a new body is copied together around them.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use bytes::Bytes;
use serde::Deserializer as _;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use session_slot_identity::SessionId;
use thiserror::Error;

/// The longest agent name or client type that is kept, in bytes: they are only recorded.
const LABEL_MAX_BYTES: usize = 256;
/// How much of the client's own `id_slot` is kept for the log, in bytes.
const ASKED_TEXT_MAX_BYTES: usize = 32;
/// The longest spelling of a member's name that can be one of ours: quotes, and each character as `\uXXXX`.
const KEY_MAX_BYTES: usize = 2 + 6 * "agent_session_id".len();
/// How many members are noted. Only `id_slot` may repeat at all; without a limit a body made of nothing else would
/// take many times its size in memory.
const MARKS_MAX: usize = 64;
/// Some clients write this in front; llama-server skips it, and so do we.
const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

/// What a JSON object body says about routing, and where it says so.
///
/// Made by [`parse`]. It owns its facts and refers to the body by byte offsets only.
#[derive(Debug)]
pub struct Parsed {
    layout: Layout,
    session: Option<String>,
    agent_name: Option<String>,
    client_type: Option<String>,
    asked_slot: AskedSlot,
    asked_slot_text: Option<String>,
    streams: bool,
    answers: u32,
    lengths: Lengths,
}

/// Where a route takes several prompts from, if there is a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// From nowhere: a chat is one prompt.
    None,
    /// `prompt`: completions.
    Prompt,
    /// `input` or `content`: embeddings.
    Input,
    /// `documents` or `texts`: reranking.
    Documents,
}

/// How many prompts each list holds.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    prompt: u32,
    input: u32,
    documents: u32,
}

/// The slot a body names by itself, as llama-server would read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedSlot {
    /// None: there is no `id_slot`, or one that llama-server takes for none.
    Absent,
    /// This one, before llama-server wraps it to its number of slots (it may be negative).
    Named(i64),
}

/// What becomes of the member `id_slot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEdit {
    /// It names this slot, whatever was there.
    Set(u32),
    /// It is taken out.
    Remove,
    /// It stays as the client wrote it, or stays away.
    Keep,
}

/// Why a body is refused. The messages say what to do and never quote the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// A routing member is there twice, so that it is unclear which one counts (or `id_slot` more often than is sane).
    #[error("\"{member}\" appears more than once in the request body: send it once")]
    Duplicate {
        /// The member's name.
        member: &'static str,
    },
    /// The session id is something that has no spelling as text.
    #[error("\"agent_session_id\" must be a string, not {found}: send a string, or leave it out")]
    SessionType {
        /// What it is, with its article.
        found: &'static str,
    },
    /// The session id is longer than [`SessionId::MAX_BYTES`].
    #[error(
        "\"agent_session_id\" may have at most {max} bytes, this one has {bytes}: send a shorter one",
        max = SessionId::MAX_BYTES
    )]
    SessionTooLong {
        /// Its decoded length in bytes.
        bytes: usize,
    },
    /// The session id holds an escape that stands for no character.
    #[error("\"agent_session_id\" holds half of a surrogate pair (\\uD800-\\uDFFF): send valid Unicode text")]
    SessionNotText,
}

/// Reads the routing members of `body`.
///
/// `Ok(None)` means that it is no JSON object (empty, malformed, another kind of value): forward it as it is, the
/// server will answer.
///
/// # Errors
/// Only for a well-formed object whose routing members can't be used; see [`BodyError`].
pub fn parse(body: &[u8]) -> Result<Option<Parsed>, BodyError> {
    let Some(scan) = Scan::of(body) else {
        return Ok(None);
    };
    let session = scan.only(Role::Session)?;
    let agent_name = scan.only(Role::AgentName)?;
    let client_type = scan.only(Role::ClientType)?;
    if scan.overfull {
        return Err(BodyError::Duplicate { member: Role::Slot.name() });
    }
    let asked = scan.last(Role::Slot);
    Ok(Some(Parsed {
        session: session.map_or(Ok(None), session_text)?,
        agent_name: agent_name.and_then(label_text),
        client_type: client_type.and_then(label_text),
        asked_slot: asked.map_or(AskedSlot::Absent, asked_slot),
        asked_slot_text: asked.map(|raw| truncated(raw, ASKED_TEXT_MAX_BYTES).to_owned()),
        streams: scan.streams,
        answers: scan.answers,
        lengths: scan.lengths,
        layout: scan.layout,
    }))
}

impl Parsed {
    /// The decoded `agent_session_id` as sent (numbers as they are spelled in the body), 1 to 512 bytes.
    /// `None` if it is absent, null or empty.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The decoded `agent_name`, cut to 256 bytes; `None` unless it is a non-empty string or a number.
    pub fn agent_name(&self) -> Option<&str> {
        self.agent_name.as_deref()
    }

    /// The decoded `client_type`, cut to 256 bytes; `None` unless it is a non-empty string or a number.
    pub fn client_type(&self) -> Option<&str> {
        self.client_type.as_deref()
    }

    /// Whether any of the three routing members is there, of whatever type: then [`rewrite`](Self::rewrite) changes the body.
    pub fn has_routing_members(&self) -> bool {
        self.layout.marks.iter().any(|mark| mark.role != Role::Slot)
    }

    /// The slot llama-server would use for this body as the client sent it.
    pub fn asked_slot(&self) -> AskedSlot {
        self.asked_slot
    }

    /// How the client spelled `id_slot`, for the log: raw JSON of any type, cut to 32 bytes.
    pub fn asked_slot_text(&self) -> Option<&str> {
        self.asked_slot_text.as_deref()
    }

    /// Whether the client asked for a stream (`"stream": true`).
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// How many slots llama-server wants for it, at least 1: one for each answer (`n`, `n_cmpl`) to each prompt. Only
    /// one of them can be named.
    pub fn tasks(&self, lists: Lists) -> u32 {
        match lists {
            Lists::None => self.answers,
            Lists::Prompt => self.answers.saturating_mul(self.lengths.prompt),
            Lists::Input => self.lengths.input,
            Lists::Documents => self.lengths.documents,
        }
    }

    /// The body without the routing members and with `id_slot` edited; every other byte of `body` is kept.
    ///
    /// `body` must be the one this was parsed from. Where nothing changes, the very same bytes come back uncopied.
    ///
    /// # Panics
    /// May panic if `body` is another, shorter one.
    pub fn rewrite(&self, body: &Bytes, edit: SlotEdit) -> Bytes {
        if self.layout.is_untouched_by(edit) { body.clone() } else { self.layout.rewrite(body, edit).into() }
    }
}

/// What a member at the top level is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Session,
    AgentName,
    ClientType,
    Slot,
    Stream,
    /// How many answers are asked for.
    Answers,
    /// Lists of several prompts, where they are lists.
    Prompt,
    Input,
    Documents,
}

impl Role {
    /// `n_cmpl` is llama-server's own name for `n`.
    const NAMES: [(&'static str, Self); 12] = [
        ("agent_session_id", Self::Session),
        ("agent_name", Self::AgentName),
        ("client_type", Self::ClientType),
        ("id_slot", Self::Slot),
        ("stream", Self::Stream),
        ("n", Self::Answers),
        ("n_cmpl", Self::Answers),
        ("prompt", Self::Prompt),
        ("input", Self::Input),
        ("content", Self::Input),
        ("documents", Self::Documents),
        ("texts", Self::Documents),
    ];

    /// The name of a member that there is only one of.
    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, role)| *role == self).map_or("", |(name, _)| name)
    }

    /// The role of the member whose name is spelled `raw` in the body, quotes included.
    fn of(raw: &str) -> Option<Self> {
        if raw.len() > KEY_MAX_BYTES {
            return None;
        }
        if raw.contains('\\') {
            // A lone surrogate can't be decoded; no name of ours has one.
            return serde_json::from_str::<String>(raw).ok().and_then(|name| Self::named(&name));
        }
        Self::named(raw.get(1..raw.len() - 1)?)
    }

    fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, role)| *role)
    }
}

/// Where a member to take out or to edit lies in the body, in byte offsets.
#[derive(Debug)]
struct Mark {
    role: Role,
    /// Where the member before it ends: from here to the key lie the comma and white space that belong to it.
    gap: usize,
    key: usize,
    value: Range<usize>,
}

impl Mark {
    fn is_removed_by(&self, edit: SlotEdit) -> bool {
        self.role != Role::Slot || edit == SlotEdit::Remove
    }
}

/// Where in the body the things that [`Layout::rewrite`] needs lie, in byte offsets.
#[derive(Debug, Default)]
struct Layout {
    /// Where the first key starts (after the brace in an empty object).
    head_end: usize,
    /// Where the last value ends (after the brace in an empty object).
    tail_start: usize,
    /// Where the key of the first member without a mark starts.
    first_other: Option<usize>,
    /// The routing members and every `id_slot`, in order.
    marks: Vec<Mark>,
}

impl Layout {
    fn is_untouched_by(&self, edit: SlotEdit) -> bool {
        !matches!(edit, SlotEdit::Set(_)) && !self.marks.iter().any(|mark| mark.is_removed_by(edit))
    }

    fn rewrite(&self, body: &[u8], edit: SlotEdit) -> Vec<u8> {
        // An edited or added member takes at most 21 bytes: `,"id_slot":4294967295`.
        let mut out = Vec::with_capacity(body.len() + 24 * (self.marks.len() + 1));
        out.extend_from_slice(&body[..self.head_end]);
        self.copy_members(body, edit, &mut out);
        out.extend_from_slice(&body[self.tail_start..]);
        out
    }

    /// Copies what lies between the braces. The first member kept leaves its gap behind, as there is none to separate it from.
    fn copy_members(&self, body: &[u8], edit: SlotEdit, out: &mut Vec<u8>) {
        let first_kept = self.first_kept(edit);
        if let Some(first) = first_kept {
            let mut copied = first;
            for mark in self.marks.iter().filter(|mark| mark.key >= first) {
                if mark.is_removed_by(edit) {
                    out.extend_from_slice(&body[copied..mark.gap]);
                } else if let SlotEdit::Set(slot) = edit {
                    out.extend_from_slice(&body[copied..mark.value.start]);
                    out.extend_from_slice(slot.to_string().as_bytes());
                } else {
                    continue;
                }
                copied = mark.value.end;
            }
            out.extend_from_slice(&body[copied..self.tail_start]);
        }
        if let SlotEdit::Set(slot) = edit
            && !self.marks.iter().any(|mark| mark.role == Role::Slot)
        {
            let comma = if first_kept.is_some() { "," } else { "" };
            out.extend_from_slice(format!("{comma}\"id_slot\":{slot}").as_bytes());
        }
    }

    /// Where the key of the first member that stays starts, if any stays.
    fn first_kept(&self, edit: SlotEdit) -> Option<usize> {
        let marked = self.marks.iter().find(|mark| !mark.is_removed_by(edit)).map(|mark| mark.key);
        self.first_other.into_iter().chain(marked).min()
    }
}

/// One walk over a body: the layout, and the raw text of the members that say something.
struct Scan<'a> {
    body: &'a [u8],
    layout: Layout,
    /// Raw JSON values, one for each of the layout's marks.
    values: Vec<(Role, &'a str)>,
    streams: bool,
    answers: u32,
    lengths: Lengths,
    /// There are more than [`MARKS_MAX`].
    overfull: bool,
}

impl<'a> Scan<'a> {
    /// `None` if `body` is not one JSON object.
    fn of(body: &'a [u8]) -> Option<Self> {
        let text = body.strip_prefix(UTF8_BOM).unwrap_or(body);
        let open = body.len() - text.len() + text.iter().position(|byte| !is_json_space(*byte))?;
        let layout = Layout { head_end: open + 1, tail_start: open + 1, ..Layout::default() };
        let scan = Self {
            body,
            layout,
            values: Vec::new(),
            streams: false,
            answers: 1,
            lengths: Lengths { prompt: 1, input: 1, documents: 1 },
            overfull: false,
        };
        let scan = serde_json::Deserializer::from_slice(text).deserialize_map(scan).ok()?;
        let tail = body[scan.layout.tail_start..].iter().skip_while(|byte| is_json_space(**byte)).skip(1);
        // llama-server takes a NUL after the object for the end of the text. Did we not, its `id_slot` would pass unseen.
        let after = tail.copied().find(|byte| !is_json_space(*byte));
        matches!(after, None | Some(0)).then_some(scan)
    }

    /// Notes one member; `key` and `value` are raw JSON and lie in the body.
    fn add(&mut self, key: &'a str, value: &'a str) {
        let (key_start, value_start) = (self.offset(key), self.offset(value));
        if self.layout.first_other.is_none() && self.layout.marks.is_empty() {
            self.layout.head_end = key_start;
        }
        let value_range = value_start..value_start + value.len();
        let gap = std::mem::replace(&mut self.layout.tail_start, value_range.end);
        match Role::of(key) {
            Some(Role::Stream) => self.streams = value == "true",
            Some(Role::Answers) => self.answers = self.answers.max(count(value)),
            Some(Role::Prompt) => self.lengths.prompt = list_length(value),
            Some(Role::Input) => self.lengths.input = list_length(value),
            Some(Role::Documents) => self.lengths.documents = list_length(value),
            Some(_) if self.layout.marks.len() == MARKS_MAX => self.overfull = true,
            Some(role) => {
                self.values.push((role, value));
                let (key, value) = (key_start, value_range);
                self.layout.marks.push(Mark { role, gap, key, value });
                return;
            }
            None => {}
        }
        self.layout.first_other.get_or_insert(key_start);
    }

    /// The raw values are slices of the body itself, so their addresses tell where they lie.
    fn offset(&self, part: &str) -> usize {
        part.as_ptr().addr() - self.body.as_ptr().addr()
    }

    /// The raw value of a member that may be there once at most.
    fn only(&self, role: Role) -> Result<Option<&'a str>, BodyError> {
        let mut values = self.of_role(role);
        let first = values.next();
        if values.next().is_some() { Err(BodyError::Duplicate { member: role.name() }) } else { Ok(first) }
    }

    /// The raw value that counts where a member may be there more than once.
    fn last(&self, role: Role) -> Option<&'a str> {
        self.of_role(role).last()
    }

    fn of_role(&self, role: Role) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(move |(of, _)| *of == role).map(|(_, value)| *value)
    }
}

impl<'de> Visitor<'de> for Scan<'de> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    /// Raw values are skipped over by a loop, not by recursion: however deep a body nests, it can't exhaust the stack.
    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Self, A::Error> {
        while let Some((key, value)) = members.next_entry::<&'de RawValue, &'de RawValue>()? {
            self.add(key.get(), value.get());
        }
        Ok(self)
    }
}

fn is_json_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The session id that the raw JSON value `raw` stands for.
fn session_text(raw: &str) -> Result<Option<String>, BodyError> {
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
fn label_text(raw: &str) -> Option<String> {
    let text = match raw.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(raw).ok()?,
        b'-' | b'0'..=b'9' => raw.to_owned(),
        _ => return None,
    };
    let text = truncated(&text, LABEL_MAX_BYTES);
    if text.is_empty() { None } else { Some(text.to_owned()) }
}

/// A number of answers; anything but a number above 1 means one.
fn count(raw: &str) -> u32 {
    let number =
        if raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) { cpp_int(raw) } else { 1 };
    u32::try_from(number).unwrap_or(1).max(1)
}

/// How many prompts a list holds. A list with numbers in it is one prompt, written as tokens, and one of objects is one
/// prompt in parts.
fn list_length(raw: &str) -> u32 {
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
fn asked_slot(raw: &str) -> AskedSlot {
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

fn truncated(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn parsed(body: &str) -> Parsed {
        parse(body.as_bytes()).expect("usable members").expect("an object")
    }

    fn rewritten(body: &str, edit: SlotEdit) -> String {
        let bytes = Bytes::copy_from_slice(body.as_bytes());
        let out = parsed(body).rewrite(&bytes, edit);
        String::from_utf8(out.to_vec()).expect("UTF-8 stays UTF-8")
    }

    fn set(body: &str) -> String {
        rewritten(body, SlotEdit::Set(3))
    }

    fn refusal(body: &str) -> BodyError {
        parse(body.as_bytes()).expect_err("refused")
    }

    #[test]
    fn every_answer_to_every_prompt_is_a_task() {
        let cases = [
            (Lists::Prompt, r#"{"prompt":"a"}"#, 1),
            (Lists::None, r#"{"n":3}"#, 3),
            (Lists::None, r#"{"n":0}"#, 1),
            (Lists::None, r#"{"n":-2}"#, 1),
            (Lists::None, r#"{"n":null,"n_cmpl":2}"#, 2),
            (Lists::None, r#"{"n":"4"}"#, 1),
            (Lists::Prompt, r#"{"prompt":["a","b"],"n":2}"#, 4),
            (Lists::Prompt, r#"{"prompt":[[1,2],[3]]}"#, 2),
            (Lists::Prompt, r#"{"prompt":[1,2,3]}"#, 1),
            (Lists::Prompt, r#"{"prompt":["a",5,"b"]}"#, 1),
            (Lists::Prompt, r#"{"prompt":[]}"#, 1),
            (Lists::Input, r#"{"input":["a","b","c"],"n":2}"#, 3),
            (Lists::Input, r#"{"content":["a","b"]}"#, 2),
            (Lists::Documents, r#"{"query":"q","documents":["a","b"]}"#, 2),
            (Lists::None, r#"{"messages":[{"n":5}],"documents":["a","b"],"prompt":["a","b"]}"#, 1),
            (Lists::None, r#"{"n":99999999999}"#, 1_215_752_191),
        ];
        for (lists, body, tasks) in cases {
            assert_eq!(parsed(body).tasks(lists), tasks, "{body}");
        }
    }

    #[test]
    fn routing_members_go_and_the_slot_comes_and_the_rest_stays() {
        let body =
            r#"{"model": "m", "agent_name":"pi","agent_session_id": "s-1" , "n":1.50, "client_type":"tui"}"#;
        assert_eq!(set(body), r#"{"model": "m" , "n":1.50,"id_slot":3}"#);
        let facts = parsed(body);
        assert_eq!(facts.session(), Some("s-1"));
        assert_eq!(facts.agent_name(), Some("pi"));
        assert_eq!(facts.client_type(), Some("tui"));
        assert!(facts.has_routing_members());
        assert_eq!(facts.asked_slot(), AskedSlot::Absent);
        assert_eq!(facts.asked_slot_text(), None);
    }

    #[test]
    fn the_first_member_kept_leaves_its_gap_behind() {
        assert_eq!(set("{ \"agent_name\":1 ,\n\"a\":2}"), "{ \"a\":2,\"id_slot\":3}");
        assert_eq!(rewritten("{\"agent_name\":1 , \"client_type\":2\n}\n", SlotEdit::Keep), "{\n}\n");
        assert_eq!(rewritten(r#"{"id_slot":1,"a":2,"id_slot":4}"#, SlotEdit::Remove), r#"{"a":2}"#);
        assert_eq!(rewritten(r#"{"id_slot":1}"#, SlotEdit::Remove), "{}");
    }

    #[test]
    fn a_slot_is_added_to_an_object_that_is_or_becomes_empty() {
        assert_eq!(set("{}"), r#"{"id_slot":3}"#);
        assert_eq!(set(" { } "), r#" {"id_slot":3 } "#);
        assert_eq!(set(r#"{ "agent_session_id":"x" }"#), r#"{ "id_slot":3 }"#);
    }

    #[test]
    fn every_id_slot_gets_the_new_value_in_its_place() {
        assert_eq!(
            set(r#"{"id_slot" : "2","a":{"id_slot":9},"id\u005fslot":null}"#),
            r#"{"id_slot" : 3,"a":{"id_slot":9},"id\u005fslot":3}"#
        );
        assert_eq!(
            rewritten(r#"{"id_slot":1,"agent_name":0}"#, SlotEdit::Set(u32::MAX)),
            r#"{"id_slot":4294967295}"#
        );
    }

    #[test]
    fn what_json_parsers_lose_is_kept() {
        let kept = "\u{feff}\r\n\t{\"a\":1.0e+02,\"a\":-0,\"b\":\"\\u00e9\\/\\ud83d\",\"c\":[ 12345678901234567890123 , {}]";
        assert_eq!(set(&format!("{kept},\"agent_name\":{{}}}}\n\n")), format!("{kept},\"id_slot\":3}}\n\n"));
    }

    #[test]
    fn an_untouched_body_is_not_copied() {
        let body = Bytes::from_static(br#"{"messages":[{"agent_session_id":"x"}],"id_slot":2}"#);
        let facts = parse(&body).expect("usable").expect("an object");
        assert!(!facts.has_routing_members());
        assert_eq!(facts.session(), None);
        assert_eq!(facts.rewrite(&body, SlotEdit::Keep).as_ptr(), body.as_ptr());
        let plain = Bytes::from_static(br#"{"a":1}"#);
        let facts = parse(&plain).expect("usable").expect("an object");
        assert_eq!(facts.rewrite(&plain, SlotEdit::Remove).as_ptr(), plain.as_ptr());
    }

    #[test]
    fn routing_members_are_removed_without_a_usable_session_too() {
        for session in ["null", "\"\""] {
            let body = format!(r#"{{"agent_session_id":{session},"agent_name":["x"],"a":1}}"#);
            assert_eq!(parsed(&body).session(), None);
            assert_eq!(parsed(&body).agent_name(), None);
            assert_eq!(rewritten(&body, SlotEdit::Keep), r#"{"a":1}"#);
        }
    }

    #[test]
    fn a_number_is_a_session_spelled_as_in_the_body() {
        for number in ["7", "-0", "1.50", "1E+2", "123456789012345678901234567890"] {
            assert_eq!(parsed(&format!(r#"{{"agent_session_id": {number} }}"#)).session(), Some(number));
        }
    }

    #[test]
    fn a_session_is_decoded_and_measured_in_bytes() {
        assert_eq!(parsed(r#"{"agent\u005fsession_id":"a\n\ud83d\ude00"}"#).session(), Some("a\n😀"));
        let body = |text: &str| format!(r#"{{"agent_session_id":"{text}"}}"#);
        assert_eq!(parsed(&body(&"\\u00e9".repeat(256))).session(), Some("é".repeat(256).as_str()));
        assert_eq!(refusal(&body(&"é".repeat(257))), BodyError::SessionTooLong { bytes: 514 });
        let digits = "1".repeat(513);
        assert_eq!(
            refusal(&format!(r#"{{"agent_session_id":{digits}}}"#)),
            BodyError::SessionTooLong { bytes: 513 }
        );
    }

    #[test]
    fn a_session_of_another_kind_is_refused() {
        for (value, found) in
            [("true", "a boolean"), ("false", "a boolean"), ("[1]", "an array"), ("{}", "an object")]
        {
            let error = refusal(&format!(r#"{{"agent_session_id":{value}}}"#));
            assert_eq!(error, BodyError::SessionType { found });
            assert!(error.to_string().contains(found));
        }
        assert_eq!(refusal(r#"{"agent_session_id":"\ud800"}"#), BodyError::SessionNotText);
    }

    #[test]
    fn a_routing_member_given_twice_is_refused_however_it_is_spelled() {
        for (body, member) in [
            (r#"{"agent_name":1,"x":0,"agent_name":1}"#, "agent_name"),
            (r#"{"agent_name":1,"\u0061gent\u005fname":1}"#, "agent_name"),
            (r#"{"client_type":null,"client_type":null}"#, "client_type"),
            (r#"{"agent_session_id":"a","agent_session_id":"a"}"#, "agent_session_id"),
        ] {
            assert_eq!(refusal(body), BodyError::Duplicate { member });
        }
        let error = BodyError::Duplicate { member: "agent_name" };
        assert_eq!(
            error.to_string(),
            "\"agent_name\" appears more than once in the request body: send it once"
        );
    }

    #[test]
    fn an_id_slot_may_repeat_but_not_without_end() {
        let body = |times| format!("{{{}}}", vec!["\"id_slot\":1"; times].join(","));
        assert_eq!(set(&body(MARKS_MAX)).matches(":3").count(), MARKS_MAX);
        assert_eq!(refusal(&body(MARKS_MAX + 1)), BodyError::Duplicate { member: "id_slot" });
    }

    #[test]
    fn what_is_no_json_object_is_left_alone_even_where_members_repeat() {
        let bodies: [&[u8]; 16] = [
            b"",
            b" ",
            b"\xef\xbb\xbf",
            b"null",
            b"[{\"agent_name\":1}]",
            b"\"agent_name\"",
            b"{",
            b"{\"a\":1,}",
            b"{\"a\" 1}",
            b"{a:1}",
            b"{\"agent_name\":1,\"agent_name\":1",
            b"{\"agent_name\":1}{}",
            b"{\"a\":\"\xff\"}",
            b"{\"a\":\"\n\"}",
            b"\0{}",
            b"{\"a\":01}",
        ];
        for body in bodies {
            assert!(matches!(parse(body), Ok(None)), "{:?}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn a_nul_after_the_object_ends_it_as_it_does_for_llama_server() {
        assert_eq!(set("{\"id_slot\":1} \0}junk"), "{\"id_slot\":3} \0}junk");
    }

    #[test]
    fn the_asked_slot_is_what_llama_server_makes_of_it() {
        use AskedSlot::{Absent, Named};
        // Each seen on llama.cpp b11549, except the floats beyond int.
        for (raw, wanted) in [
            ("0", Named(0)),
            ("5", Named(5)),
            ("-1", Absent),
            ("-1.9", Absent),
            ("-2", Named(-2)),
            ("1.7", Named(1)),
            ("-0.5", Named(0)),
            ("2e0", Named(2)),
            ("true", Named(1)),
            ("false", Named(0)),
            ("null", Absent),
            ("\"2\"", Absent),
            ("[2]", Absent),
            ("{\"a\":2}", Absent),
            ("4294967298", Named(2)),
            ("4294967295", Absent),
            ("-4294967295", Named(1)),
            ("9223372036854775810", Named(2)),
            ("18446744073709551614", Named(-2)),
            ("1e10", Named(2_147_483_647)),
            ("-1e10", Named(-2_147_483_648)),
        ] {
            let body = format!(r#"{{"id_slot": 3, "a":0, "id_slot": {raw} }}"#);
            assert_eq!(parsed(&body).asked_slot(), wanted, "for {raw}");
            assert_eq!(parsed(&body).asked_slot_text(), Some(raw));
        }
    }

    #[test]
    fn texts_for_the_log_are_cut_between_characters() {
        let body = format!(
            r#"{{"id_slot":"{}","agent_name":"x{}","client_type":12.0}}"#,
            "é".repeat(40),
            "é".repeat(200)
        );
        let facts = parsed(&body);
        assert_eq!(facts.asked_slot_text(), Some(format!("\"{}", "é".repeat(15)).as_str()));
        assert_eq!(facts.agent_name(), Some(format!("x{}", "é".repeat(127)).as_str()));
        assert_eq!(facts.client_type(), Some("12.0"));
    }

    #[test]
    fn only_a_true_at_the_top_level_asks_for_a_stream() {
        assert!(parsed(r#"{"stream":false,"stream" : true }"#).streams());
        assert!(parsed(r#"{"str\u0065am":true}"#).streams());
        for body in [
            r#"{"stream":1}"#,
            r#"{"stream":"true"}"#,
            r#"{"a":{"stream":true}}"#,
            r#"{"stream":true,"stream":null}"#,
        ] {
            assert!(!parsed(body).streams(), "{body}");
        }
    }

    #[test]
    fn deep_nesting_does_not_exhaust_the_stack() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for member in ["a", "agent_name", "id_slot"] {
            let body = format!(r#"{{"{member}":{deep},"agent_session_id":"s"}}"#);
            assert_eq!(parsed(&body).session(), Some("s"));
            assert!(set(&body).ends_with("\"id_slot\":3}") || member == "id_slot");
        }
        assert_eq!(
            refusal(&format!(r#"{{"agent_session_id":{deep}}}"#)),
            BodyError::SessionType { found: "an array" }
        );
        assert!(matches!(parse("{\"a\":[".repeat(100_000).as_bytes()), Ok(None)));
    }

    /// One member as text, in the pieces the model needs.
    #[derive(Clone, Debug)]
    struct Piece {
        /// White space before and after the comma in front.
        around_comma: (String, String),
        key: String,
        /// From the key's end to the value's start.
        colon: String,
        value: String,
    }

    impl Piece {
        fn name(&self) -> String {
            serde_json::from_str(&self.key).expect("a key")
        }

        fn is_routing(&self) -> bool {
            ["agent_name", "agent_session_id", "client_type"].contains(&self.name().as_str())
        }

        fn text(&self) -> String {
            format!("{}{}{}", self.key, self.colon, self.value)
        }
    }

    /// A whole body, in pieces.
    #[derive(Clone, Debug)]
    struct Model {
        head: String,
        pieces: Vec<Piece>,
        tail: String,
    }

    impl Model {
        fn text(&self) -> String {
            let mut text = self.head.clone();
            for (index, piece) in self.pieces.iter().enumerate() {
                let (before, after) = &piece.around_comma;
                text += &if index > 0 { format!("{before},{after}") } else { String::new() };
                text += &piece.text();
            }
            text + &self.tail
        }

        /// The same edit, done on the pieces.
        fn edited(&self, edit: SlotEdit) -> Self {
            let mut model = self.clone();
            model.pieces.retain(|piece| match piece.name().as_str() {
                "id_slot" => edit != SlotEdit::Remove,
                _ => !piece.is_routing(),
            });
            let SlotEdit::Set(slot) = edit else {
                return model;
            };
            let mut slots: Vec<_> =
                model.pieces.iter_mut().filter(|piece| piece.name() == "id_slot").collect();
            slots.iter_mut().for_each(|piece| piece.value = slot.to_string());
            if slots.is_empty() {
                let (key, colon, value) = ("\"id_slot\"".to_owned(), ":".to_owned(), slot.to_string());
                model.pieces.push(Piece { around_comma: Default::default(), key, colon, value });
            }
            model
        }
    }

    fn space() -> impl Strategy<Value = String> {
        "[ \t\r\n]{0,2}"
    }

    fn any_value() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|b| b.to_string()),
            "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,4})?([eE][+-]?[0-9])?",
            "\"([a-z{}:,\\[\\]é😀]|\\\\[\"\\\\/bfnrt]|\\\\u00[0-9a-fA-F]{2}|\\\\ud83d\\\\ude00){0,8}\"",
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let entry = (prop_oneof![special_key(), "\"[a-c]{0,2}\""], space(), space(), inner.clone())
                .prop_map(|(key, before, after, value)| format!("{key}{before}:{after}{value}"));
            prop_oneof![
                (proptest::collection::vec(inner, 0..4), space())
                    .prop_map(|(v, s)| format!("[{s}{}]", v.join(&format!("{s},")))),
                (proptest::collection::vec(entry, 0..4), space())
                    .prop_map(|(v, s)| format!("{{{s}{}{s}}}", v.join(","))),
            ]
        })
    }

    fn special_key() -> impl Strategy<Value = String> {
        proptest::sample::select(vec![
            "\"agent_name\"",
            "\"agent_session_id\"",
            "\"agent\\u005fsession\\u005Fid\"",
            "\"client_type\"",
            "\"id_slot\"",
            "\"\\u0069d_slot\"",
            "\"stream\"",
            "\"id_slot2\"",
            "\"xagent_name\"",
        ])
        .prop_map(str::to_owned)
    }

    fn piece() -> impl Strategy<Value = Piece> {
        let key = prop_oneof![3 => special_key(), 2 => "\"([a-c]|\\\\n|\\\\u0061|é){0,3}\""];
        (key, any_value(), space(), space(), space(), space()).prop_map(|(key, value, a, b, c, d)| Piece {
            around_comma: (a, b),
            key,
            colon: format!("{c}:{d}"),
            value,
        })
    }

    /// Bodies that `parse` accepts: no routing member twice, and a session that can be one.
    fn model() -> impl Strategy<Value = Model> {
        let head = (proptest::bool::weighted(0.1), space(), space())
            .prop_map(|(bom, a, b)| format!("{}{a}{{{b}", if bom { "\u{feff}" } else { "" }));
        let tail = (space(), space()).prop_map(|(a, b)| format!("{a}}}{b}"));
        (head, proptest::collection::vec(piece(), 0..9), tail).prop_map(|(head, mut pieces, tail)| {
            let mut seen = std::collections::HashSet::new();
            pieces.retain(|piece| !piece.is_routing() || seen.insert(piece.name()));
            for piece in pieces.iter_mut().filter(|piece| piece.name() == "agent_session_id") {
                if !piece.value.starts_with(['"', '-']) {
                    piece.value = "null".to_owned();
                }
            }
            // An empty object has only one stretch of white space, and it belongs to the tail.
            let head = if pieces.is_empty() { head.trim_end().to_owned() } else { head };
            Model { head, pieces, tail }
        })
    }

    fn edit() -> impl Strategy<Value = SlotEdit> {
        prop_oneof![any::<u32>().prop_map(SlotEdit::Set), Just(SlotEdit::Remove), Just(SlotEdit::Keep)]
    }

    fn value_of(text: &str) -> Value {
        serde_json::from_str(text.trim_start_matches('\u{feff}')).expect("valid JSON")
    }

    proptest! {
        #[test]
        fn the_rewritten_body_means_the_same_less_the_members_and_with_the_slot(model in model(), edit in edit()) {
            let text = model.text();
            let mut wanted = value_of(&text);
            let members = wanted.as_object_mut().expect("an object");
            members.retain(|name, _| !["agent_name", "agent_session_id", "client_type"].contains(&name.as_str()));
            match edit {
                SlotEdit::Set(slot) => drop(members.insert("id_slot".to_owned(), slot.into())),
                SlotEdit::Remove => drop(members.remove("id_slot")),
                SlotEdit::Keep => {}
            }
            prop_assert_eq!(value_of(&rewritten(&text, edit)), wanted);
        }

        #[test]
        fn every_byte_kept_is_where_it_was(model in model(), edit in edit()) {
            let out = rewritten(&model.text(), edit);
            let wanted = model.edited(edit);
            prop_assert_eq!(&out, &wanted.text());
            let mut rest = out.as_str();
            for piece in wanted.pieces {
                let at = rest.find(&piece.text());
                prop_assert!(at.is_some(), "{:?} is gone or out of order", piece);
                rest = &rest[at.unwrap_or(0) + piece.text().len()..];
            }
        }

        #[test]
        fn rewriting_twice_is_rewriting_once(model in model(), edit in edit()) {
            let once = rewritten(&model.text(), edit);
            prop_assert_eq!(&rewritten(&once, edit), &once);
            prop_assert!(!parsed(&once).has_routing_members());
        }

        #[test]
        fn the_facts_are_those_the_oracle_sees(model in model()) {
            let text = model.text();
            let (facts, value) = (parsed(&text), value_of(&text));
            prop_assert_eq!(facts.streams(), value["stream"] == Value::Bool(true));
            if let Some(session) = value["agent_session_id"].as_str() {
                prop_assert_eq!(facts.session().unwrap_or(""), session);
            }
            prop_assert_eq!(facts.has_routing_members(), model.pieces.iter().any(Piece::is_routing));
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn a_damaged_body_is_refused_left_alone_or_rewritten_to_an_object(
            model in model(), edit in edit(), damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3)
        ) {
            let mut bytes = model.text().into_bytes();
            for (index, byte) in damage {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            let body = Bytes::from(bytes);
            if let Ok(Some(facts)) = parse(&body) {
                prop_assert!(matches!(parse(&facts.rewrite(&body, edit)), Ok(Some(_))));
            }
        }
    }
}
