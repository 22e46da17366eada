//! How a value is written for the hasher: so that two values are written alike only if they are the same, and none is
//! written as the beginning of another.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use super::ChainKey;

/// What a number, or one token of a prompt written as tokens, counts as text, in bytes.
pub(super) const NUMBER_BYTES: u64 = 4;

/// What a picture or a sound counts as text, in bytes: about a thousand tokens, however many its file has.
pub(crate) const MEDIA_BYTES: u64 = 4096;

/// The kinds of things that are written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tag {
    Null,
    False,
    True,
    Integer,
    Negative,
    Float,
    Text,
    Key,
    List,
    Object,
    End,
    Block,
    Pair,
}

/// A part of a request, hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) hash: u64,
    /// Bytes of text in it.
    pub(super) text: u64,
}

impl Digest {
    /// The two, one after the other.
    pub(super) fn pair(key: &ChainKey, first: Option<Self>, second: Self) -> Self {
        let mut feed = Feed::new(key);
        for digest in first.into_iter().chain([second]) {
            feed.sized(Tag::Pair, digest.hash, &[]);
            feed.text += digest.text;
        }
        feed.finish()
    }
}

/// One part of a request on its way into its hash.
#[derive(Debug)]
pub(super) struct Feed {
    hasher: SipHasher24,
    text: u64,
}

impl Feed {
    pub(super) fn new(key: &ChainKey) -> Self {
        Self { hasher: SipHasher24::new_with_key(&key.0), text: 0 }
    }

    /// Bytes of text so far.
    pub(super) fn text(&self) -> u64 {
        self.text
    }

    pub(super) fn finish(self) -> Digest {
        Digest { hash: self.hasher.finish(), text: self.text }
    }

    /// Something that has no content of its own.
    pub(super) fn mark(&mut self, tag: Tag) {
        self.hasher.write(&[tag as u8]);
    }

    /// A truth value, or null.
    pub(super) fn word(&mut self, tag: Tag) {
        self.mark(tag);
        self.text += NUMBER_BYTES;
    }

    pub(super) fn number(&mut self, tag: Tag, bits: u64) {
        self.sized(tag, bits, &[]);
        self.text += NUMBER_BYTES;
    }

    pub(super) fn string(&mut self, tag: Tag, bytes: &[u8]) {
        self.sized(tag, bytes.len() as u64, bytes);
        self.text += bytes.len() as u64;
    }

    /// A picture or a sound, written as text.
    pub(super) fn media(&mut self, bytes: &[u8]) {
        self.sized(Tag::Text, bytes.len() as u64, bytes);
        self.text += MEDIA_BYTES.min(bytes.len() as u64);
    }

    /// A name that tells one part from another, but is no text of the request.
    pub(super) fn name(&mut self, name: &str) {
        self.sized(Tag::Key, name.len() as u64, name.as_bytes());
    }

    fn sized(&mut self, tag: Tag, number: u64, bytes: &[u8]) {
        let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
        self.hasher.write(&[tag as u8, a, b, c, d, e, f, g, h]);
        if !bytes.is_empty() {
            self.hasher.write(bytes);
        }
    }
}
