//! The members at the top level of a JSON object: finding some of them, and editing those without touching another byte.
//!
//! The text is never turned into a tree; it is walked once, noting where the few members that matter lie, and a new text
//! is copied together around them.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// Some clients write this in front; llama-server skips it, and so do we.
const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

/// Where in a JSON object's text the members lie that somebody marked. It refers to the text by byte offsets only.
#[derive(Debug)]
pub struct Layout<M> {
    /// Where the first key starts (after the brace in an empty object).
    head_end: usize,
    /// Where the last value ends (after the brace in an empty object).
    tail_start: usize,
    /// Where the key of the first member without a mark starts.
    first_other: Option<usize>,
    /// The marked members, in order.
    members: Vec<Member<M>>,
}

#[derive(Debug)]
struct Member<M> {
    mark: M,
    /// Where the member before it ends: from here to the key lie the comma and white space that belong to it.
    gap: usize,
    key: usize,
    value: Range<usize>,
}

/// What becomes of a marked member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'a> {
    /// It stays as it is.
    Keep,
    /// It goes, and the comma before it.
    Remove,
    /// It gets this raw JSON value.
    Set(&'a str),
}

impl<M: Copy> Layout<M> {
    /// Walks over `text`. `look` is given each member's name and value as raw JSON, in order, and returns a mark for
    /// those that may be edited later.
    ///
    /// `None` if `text` is not one JSON object (empty, malformed, another kind of value).
    pub fn of<'a>(text: &'a [u8], look: impl FnMut(&'a str, &'a str) -> Option<M>) -> Option<Self> {
        let json = text.strip_prefix(UTF8_BOM).unwrap_or(text);
        let open = text.len() - json.len() + json.iter().position(|byte| !is_space(*byte))?;
        let layout =
            Self { head_end: open + 1, tail_start: open + 1, first_other: None, members: Vec::new() };
        let walk = Walk { text, layout, look };
        let layout = serde_json::Deserializer::from_slice(json).deserialize_map(walk).ok()?;
        let tail = text[layout.tail_start..].iter().skip_while(|byte| is_space(**byte)).skip(1);
        // llama-server takes a NUL after the object for the end of the text. Did we not, its `id_slot` would pass unseen.
        let after = tail.copied().find(|byte| !is_space(*byte));
        matches!(after, None | Some(0)).then_some(layout)
    }

    /// The marks, in the order of their members.
    pub fn marks(&self) -> impl Iterator<Item = M> {
        self.members.iter().map(|member| member.mark)
    }

    /// The text with each marked member treated as `fate` says (asked for the first to the last), and with `added`
    /// (names that need no escape, raw JSON values) at its end. `text` must be the one the layout was made of.
    ///
    /// # Panics
    /// May panic if `text` is another, shorter one.
    pub fn edited<'e>(
        &self,
        text: &[u8],
        mut fate: impl FnMut(M) -> Fate<'e>,
        added: &[(&str, &str)],
    ) -> Vec<u8> {
        let fates: Vec<_> = self.members.iter().map(|member| fate(member.mark)).collect();
        let size = |fate: &Fate<'_>| if let Fate::Set(value) = fate { value.len() } else { 0 };
        let more: usize = added.iter().map(|(name, value)| name.len() + value.len() + r#","":"#.len()).sum();
        let mut out = Vec::with_capacity(text.len() + fates.iter().map(size).sum::<usize>() + more);
        out.extend_from_slice(&text[..self.head_end]);
        let mut any = self.copy_members(text, &fates, &mut out);
        for (name, value) in added {
            let comma = if any { "," } else { "" };
            for part in [comma, "\"", name, "\":", value] {
                out.extend_from_slice(part.as_bytes());
            }
            any = true;
        }
        out.extend_from_slice(&text[self.tail_start..]);
        out
    }

    /// Copies the members that stay, and says whether there are any. The first of them leaves its gap behind, as there
    /// is nothing to separate it from.
    fn copy_members(&self, text: &[u8], fates: &[Fate<'_>], out: &mut Vec<u8>) -> bool {
        let Some(first) = self.first_kept(fates) else { return false };
        let mut copied = first;
        for (member, fate) in self.members.iter().zip(fates).filter(|(member, _)| member.key >= first) {
            match fate {
                Fate::Keep => continue,
                Fate::Remove => out.extend_from_slice(&text[copied..member.gap]),
                Fate::Set(value) => {
                    out.extend_from_slice(&text[copied..member.value.start]);
                    out.extend_from_slice(value.as_bytes());
                }
            }
            copied = member.value.end;
        }
        out.extend_from_slice(&text[copied..self.tail_start]);
        true
    }

    /// Where the key of the first member that stays starts, if any stays.
    fn first_kept(&self, fates: &[Fate<'_>]) -> Option<usize> {
        let mut kept = self.members.iter().zip(fates).filter(|(_, fate)| **fate != Fate::Remove);
        let marked = kept.next().map(|(member, _)| member.key);
        self.first_other.into_iter().chain(marked).min()
    }
}

/// The name that `raw` (a JSON string, quotes included) spells. `None` for one that is longer than `longest` bytes in
/// whatever spelling, or that holds half of a surrogate pair.
#[must_use]
pub fn name(raw: &str, longest: usize) -> Option<Cow<'_, str>> {
    // Quotes, and each character as `\uXXXX`.
    if raw.len() > 2 + 6 * longest {
        return None;
    }
    if raw.contains('\\') {
        return serde_json::from_str::<String>(raw).ok().map(Cow::Owned);
    }
    raw.get(1..raw.len() - 1).map(Cow::Borrowed)
}

/// One walk over a text.
struct Walk<'a, M, L> {
    text: &'a [u8],
    layout: Layout<M>,
    look: L,
}

impl<'a, M, L: FnMut(&'a str, &'a str) -> Option<M>> Walk<'a, M, L> {
    /// Notes one member; `key` and `value` are raw JSON and lie in the text.
    fn note(&mut self, key: &'a str, value: &'a str) {
        let (key_start, value_start) = (self.offset(key), self.offset(value));
        let layout = &mut self.layout;
        if layout.first_other.is_none() && layout.members.is_empty() {
            layout.head_end = key_start;
        }
        let range = value_start..value_start + value.len();
        let gap = std::mem::replace(&mut layout.tail_start, range.end);
        match (self.look)(key, value) {
            Some(mark) => layout.members.push(Member { mark, gap, key: key_start, value: range }),
            None => {
                layout.first_other.get_or_insert(key_start);
            }
        }
    }

    /// Raw values are slices of the text itself, so their addresses tell where they lie.
    fn offset(&self, part: &str) -> usize {
        part.as_ptr().addr() - self.text.as_ptr().addr()
    }
}

impl<'de, M, L: FnMut(&'de str, &'de str) -> Option<M>> Visitor<'de> for Walk<'de, M, L> {
    type Value = Layout<M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    /// Raw values are skipped over by a loop, not by recursion: however deep a text nests, it can't exhaust the stack.
    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Self::Value, A::Error> {
        while let Some((key, value)) = members.next_entry::<&'de RawValue, &'de RawValue>()? {
            self.note(key.get(), value.get());
        }
        Ok(self.layout)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}
