//! Any value inside a request's text, written for the hasher.
//!
//! What llama-server's templates never see is left out, and what is the same to them is made the same: a text alone, and a
//! list of just that text, between which agents change as they move their cache marks.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::feed::{Feed, Tag};

/// What a value turned out to be, as far as the one around it wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Null, or empty.
    Nothing,
    /// The word for who speaks in a system message.
    SystemRole,
    SystemMessage,
    Other,
}

/// Any value below the top level, written into `feed`.
pub(super) struct Value<'f> {
    feed: &'f mut Feed,
    /// Of which member.
    of: Member,
}

impl<'f> Value<'f> {
    pub(super) fn of(feed: &'f mut Feed) -> Self {
        Self { feed, of: Member::Other }
    }

    /// A value that is the content of something: a text, or a list of blocks.
    pub(super) fn of_content(feed: &'f mut Feed) -> Self {
        Self { feed, of: Member::Content }
    }

    /// As the list of one block that means the same.
    fn write_block(feed: &mut Feed, text: &str) {
        feed.mark(Tag::List);
        feed.mark(Tag::Object);
        feed.string(Tag::Key, b"text");
        feed.string(Tag::Text, text.as_bytes());
        feed.mark(Tag::End);
        feed.mark(Tag::End);
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Kind;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Kind, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = Kind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Kind, E> {
        match self.of {
            Member::Content => Self::write_block(self.feed, text),
            // What a block is if nothing else is said.
            Member::Type if text == "text" => {}
            of if is_media(of, text) => self.feed.media(text.as_bytes()),
            _ => self.feed.string(Tag::Text, text.as_bytes()),
        }
        Ok(match text {
            "" => Kind::Nothing,
            "system" | "developer" => Kind::SystemRole,
            _ => Kind::Other,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Kind, A::Error> {
        let mut kind = Kind::Nothing;
        self.feed.mark(Tag::List);
        while items.next_element_seed(Value::of(self.feed))?.is_some() {
            kind = Kind::Other;
        }
        self.feed.mark(Tag::End);
        Ok(kind)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Kind, A::Error> {
        let mut kind = Kind::Nothing;
        self.feed.mark(Tag::Object);
        while let Some(member) = members.next_key_seed(MemberName { feed: self.feed })? {
            if member == Member::Unseen {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = members.next_value_seed(Value { feed: self.feed, of: member })?;
            match (member, value) {
                (Member::Role, Kind::SystemRole) => kind = Kind::SystemMessage,
                (Member::Role, _) => kind = Kind::Other,
                _ if kind == Kind::Nothing => kind = Kind::Other,
                _ => {}
            }
        }
        self.feed.mark(Tag::End);
        Ok(kind)
    }

    fn visit_unit<E: Error>(self) -> Result<Kind, E> {
        self.feed.word(Tag::Null);
        Ok(Kind::Nothing)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Kind, E> {
        self.feed.word(if value { Tag::True } else { Tag::False });
        Ok(Kind::Other)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Kind, E> {
        self.feed.number(Tag::Integer, value);
        Ok(Kind::Other)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Kind, E> {
        self.feed.number(Tag::Negative, value.unsigned_abs());
        Ok(Kind::Other)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Kind, E> {
        self.feed.number(Tag::Float, value.to_bits());
        Ok(Kind::Other)
    }
}

/// A picture or a sound: a `data:` URL, or base64 in a member named `data`.
fn is_media(of: Member, text: &str) -> bool {
    const LEAST_BYTES: usize = 512;
    let Some(beginning) = text.as_bytes().get(..LEAST_BYTES) else { return false };
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let url = text.strip_prefix("data:").and_then(|url| url.split_once(";base64,"));
    match url {
        Some((_, data)) => data.as_bytes().iter().take(LEAST_BYTES / 2).all(is_base64),
        None => of == Member::Data && beginning.iter().all(is_base64),
    }
}

/// What a member inside a message or a tool is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    /// It does not reach the model.
    Unseen,
    Role,
    /// A text, or a list of blocks.
    Content,
    /// Its name is not written: it is the one without.
    Type,
    /// Where Anthropic's and OpenAI's blocks have a picture or a sound.
    Data,
    Other,
}

/// The name of a member below the top level, written into `feed`.
struct MemberName<'f> {
    feed: &'f mut Feed,
}

impl<'de> DeserializeSeed<'de> for MemberName<'_> {
    type Value = Member;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Member, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for MemberName<'_> {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Member, E> {
        let kind = match name {
            // Marks where Anthropic's cache ends; Claude Code moves it every turn.
            "cache_control" => return Ok(Member::Unseen),
            "type" => return Ok(Member::Type),
            "role" => Member::Role,
            "content" => Member::Content,
            "data" => Member::Data,
            _ => Member::Other,
        };
        self.feed.string(Tag::Key, name.as_bytes());
        Ok(kind)
    }
}
