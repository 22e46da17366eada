//! Which members of a body are text for the model, and where its parts end. One pass over the bytes; only hashes are kept.

use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::feed::{Digest, Feed, Tag};
use super::value::{Kind, Value};
use super::{ChainKey, MOST_NODES};

/// A plain prompt has a node each so many bytes, or so many tokens of [`NUMBER_BYTES`](super::feed::NUMBER_BYTES).
const BLOCK: usize = 2_048;
/// Some clients write this in front; llama-server skips it.
const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

/// What changes all of the rest: how templates render it, what an infill puts around it, how the model reads it. Some do
/// so with some templates only, and are here to be on the safe side: a state that turns out useless costs more than one
/// that is not tried.
const RENDERING: [&str; 10] = [
    "chat_template_kwargs",
    "response_format",
    "json_schema",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "input_prefix",
    "input_suffix",
    "input_extra",
    "lora",
];
const SYSTEM: [&str; 2] = ["system", "instructions"];
const TOOLS: [&str; 3] = ["tools", "tool_choice", "parallel_tool_calls"];
/// Where the conversation is, the first that is there: chats, responses, completions.
const LISTS: [&str; 3] = ["messages", "input", "prompt"];
/// The one of them that is no conversation.
const PROMPT: &str = LISTS[2];

/// The text of a request, part by part.
#[derive(Debug)]
pub(super) struct Found {
    /// What changes all of the rest.
    pub(super) rendering: Option<Digest>,
    pub(super) system: Option<Digest>,
    pub(super) tools: Option<Digest>,
    /// The index of the first of `messages`; those before it belong to the system text.
    pub(super) first: u32,
    pub(super) messages: Vec<Digest>,
    /// The last of `messages` may go on.
    pub(super) open: bool,
}

/// Finds the text of `body`; `None` if it is no JSON object.
pub(super) fn text_of(body: &[u8], key: &ChainKey) -> Option<Found> {
    let json = body.strip_prefix(UTF8_BOM).unwrap_or(body);
    let members = serde_json::Deserializer::from_slice(json).deserialize_map(Members { key }).ok()?;
    let join = |names: &[&'static str], last: Option<Digest>| {
        let parts = names.iter().filter_map(|name| members.single.get(name).copied()).chain(last);
        parts.fold(None, |before, part| Some(Digest::pair(key, before, part)))
    };
    let list = LISTS.iter().find_map(|name| members.list.get(name).cloned()).unwrap_or_default();
    let has_tools = members.single.contains_key(TOOLS[0]);
    Some(Found {
        rendering: join(&RENDERING, None),
        system: join(&SYSTEM, list.leading),
        tools: if has_tools { join(&TOOLS, None) } else { None },
        first: list.first,
        messages: list.items,
        open: list.open,
    })
}

/// The top level of a body.
struct Members<'k> {
    key: &'k ChainKey,
}

#[derive(Default)]
struct Parts {
    single: HashMap<&'static str, Digest>,
    list: HashMap<&'static str, List>,
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = Parts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a request")
    }

    /// Of members that are there twice the last one counts, as for llama-server.
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Parts, A::Error> {
        let mut parts = Parts::default();
        while let Some(name) = members.next_key_seed(Name)? {
            match name {
                Some(name) if LISTS.contains(&name) => {
                    let seed = Conversation { key: self.key, plain: name == PROMPT };
                    set(&mut parts.list, name, members.next_value_seed(seed)?);
                }
                Some(name) => {
                    let mut feed = Feed::new(self.key);
                    feed.name(name);
                    let seed = if name == SYSTEM[0] { Value::of_content } else { Value::of };
                    let kind = members.next_value_seed(seed(&mut feed))?;
                    set(&mut parts.single, name, (kind != Kind::Nothing).then(|| feed.finish()));
                }
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(parts)
    }
}

fn set<T>(members: &mut HashMap<&'static str, T>, name: &'static str, value: Option<T>) {
    match value {
        Some(value) => drop(members.insert(name, value)),
        None => drop(members.remove(name)),
    }
}

/// The name of a member at the top level, if it is one of those that matter.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        let mut known = RENDERING.iter().chain(&SYSTEM).chain(&TOOLS).chain(&LISTS);
        Ok(known.find(|known| **known == name).copied())
    }
}

/// A conversation, or a plain prompt in blocks.
#[derive(Debug, Clone, Default)]
struct List {
    /// The system messages it begins with.
    leading: Option<Digest>,
    /// How many these are.
    first: u32,
    items: Vec<Digest>,
    open: bool,
}

impl List {
    /// Room is left for the nodes before the messages.
    fn push(&mut self, key: &ChainKey, item: Digest) {
        let is_full = self.items.len() >= MOST_NODES - 2;
        match self.items.last_mut() {
            Some(last) if is_full => {
                *last = Digest::pair(key, Some(*last), item);
                self.open = true;
            }
            _ => self.items.push(item),
        }
    }

    fn push_leading(&mut self, key: &ChainKey, item: Digest) {
        self.leading = Some(Digest::pair(key, self.leading, item));
        self.first = self.first.saturating_add(1);
    }
}

/// Reads a [`List`]; `None` where there is neither a list nor a text.
struct Conversation<'k> {
    key: &'k ChainKey,
    /// Its items are tokens and pieces of one prompt.
    plain: bool,
}

impl<'de> DeserializeSeed<'de> for Conversation<'_> {
    type Value = Option<List>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Conversation<'_> {
    type Value = Option<List>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a conversation")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let mut list = List::default();
        for block in text.as_bytes().chunks(BLOCK) {
            let mut feed = Feed::new(self.key);
            feed.string(Tag::Block, block);
            list.push(self.key, feed.finish());
        }
        list.open |= !text.len().is_multiple_of(BLOCK);
        Ok(Some(list))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        if self.plain { tokens(self.key, items).map(Some) } else { messages(self.key, items).map(Some) }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }
}

fn messages<'de, A: SeqAccess<'de>>(key: &ChainKey, mut items: A) -> Result<List, A::Error> {
    let mut list = List::default();
    loop {
        let mut feed = Feed::new(key);
        let Some(kind) = items.next_element_seed(Value::of(&mut feed))? else { return Ok(list) };
        if kind == Kind::SystemMessage && list.items.is_empty() {
            list.push_leading(key, feed.finish());
        } else {
            list.push(key, feed.finish());
        }
    }
}

fn tokens<'de, A: SeqAccess<'de>>(key: &ChainKey, mut items: A) -> Result<List, A::Error> {
    let mut list = List::default();
    let mut feed = Feed::new(key);
    while items.next_element_seed(Value::of(&mut feed))?.is_some() {
        if feed.text() >= BLOCK as u64 {
            list.push(key, std::mem::replace(&mut feed, Feed::new(key)).finish());
        }
    }
    if feed.text() > 0 {
        list.push(key, feed.finish());
        list.open = true;
    }
    Ok(list)
}
