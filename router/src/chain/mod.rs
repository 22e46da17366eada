//! A request's text as a chain of keyed hashes: how far two requests begin alike, without keeping a word of them.
//!
//! Each node covers all the text up to its end: the system text first, then the tools, then each message. Requests
//! with a node in common begin with the same text up to there. Hashes are keyed per installation, so that nobody who
//! reads the database can find out whether a text he guesses was sent.
//!
//! * `feed`: how a value is written for the hasher;
//! * `value`: what of a value reaches the model;
//! * `walk`: which members of a body are text, found in one pass and without a tree;
//! * `stored`: a chain as the database keeps it.

mod feed;
mod stored;
#[cfg(test)]
mod tests;
mod value;
mod walk;

use bytes::Bytes;

pub(crate) use feed::MEDIA_BYTES;

use feed::Digest;

/// Nodes a chain has at most; what comes after them is part of the last one.
const MOST_NODES: usize = 4_096;

/// The key of one installation's hashes; drawn once, kept in its database.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChainKey(pub [u8; 16]);

impl std::fmt::Debug for ChainKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChainKey(..)")
    }
}

/// Which part of a request a node ends with; in the order in which they stand in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The system text: a system prompt of its own, or the leading system messages of the list.
    System,
    /// The tools.
    Tools,
    /// A message (or item, or block of a plain prompt), by its index in the request's list, from 0.
    Message(u32),
}

/// All the text up to the end of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Of everything up to here.
    pub hash: u64,
    /// Bytes of text up to here.
    pub end: u64,
    /// What ends here.
    pub part: Part,
}

/// The hashes of a request's beginnings, the shortest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    nodes: Vec<Node>,
    /// The last node ends inside something that may go on: a block of a plain prompt, or what was left when there were
    /// nodes enough.
    open: bool,
}

/// What all requests of one conversation begin with, whatever tools they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// Of the system text.
    pub system: Option<u64>,
    /// Of the first message.
    pub first: u64,
}

impl Chain {
    /// The chain of a JSON body on any route that takes text; `None` if there is no text in it.
    #[must_use]
    pub fn of(body: &Bytes, key: &ChainKey) -> Option<Self> {
        Self::with_opening(body, key).map(|(chain, _)| chain)
    }

    /// The same, and what the conversation begins with; without one where that may go on in a later request.
    #[must_use]
    pub fn with_opening(body: &Bytes, key: &ChainKey) -> Option<(Self, Option<Opening>)> {
        let found = walk::text_of(body, key)?;
        let whole_messages = found.messages.len() - usize::from(found.open && !found.messages.is_empty());
        let first = found.messages.first().filter(|_| whole_messages > 0);
        let system = found.system.map(|system| system.hash);
        let opening = first.map(|first| Opening { system, first: first.hash });
        let mut chain = Self { nodes: Vec::new(), open: found.open };
        let mut before = found.rendering;
        let preamble = [(Part::System, found.system), (Part::Tools, found.tools)];
        let preamble = preamble.into_iter().filter_map(|(part, digest)| Some((part, digest?)));
        let messages = (found.first..).map(Part::Message).zip(found.messages);
        for (part, digest) in preamble.chain(messages) {
            let end = chain.len() + digest.text;
            let whole = Digest::pair(key, before, digest);
            chain.nodes.push(Node { hash: whole.hash, end, part });
            before = Some(whole);
        }
        (!chain.is_empty()).then_some((chain, opening))
    }

    /// From the shortest beginning to the whole.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many nodes the two have in common, from the first on.
    #[must_use]
    pub fn common(&self, other: &Self) -> usize {
        let pairs = self.nodes.iter().zip(&other.nodes);
        pairs.take_while(|(one, two)| one.hash == two.hash).count()
    }

    /// Bytes of text in the whole.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.nodes.last().map_or(0, |node| node.end)
    }

    /// There is no text in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many nodes stand before the first message: what sessions of one agent share.
    #[must_use]
    pub fn preamble(&self) -> usize {
        self.nodes.iter().take_while(|node| !matches!(node.part, Part::Message(_))).count()
    }

    /// The share of the text that the first `nodes` nodes cover, from 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a share of a few megabytes")]
    pub fn share(&self, nodes: usize) -> f64 {
        let covered = nodes.checked_sub(1).and_then(|last| self.nodes.get(last)).map_or(0, |node| node.end);
        if covered == 0 { 0.0 } else { covered as f64 / self.len() as f64 }
    }
}

/// The first part in which `now` says something else than `before` did. `None` if `now` goes on where `before` ended, is
/// the same, or ends earlier without saying anything else.
#[must_use]
pub fn first_difference(before: &Chain, now: &Chain) -> Option<Part> {
    let common = before.common(now);
    let (was, is) = (before.nodes.get(common)?, now.nodes.get(common)?);
    // Of text that went on inside its last node nobody can say whether it began alike.
    let unknown = before.open && common + 1 == before.nodes.len() && was.part == is.part;
    // A part that one of them lacks is the one that differs, not what stands in its place.
    (!unknown).then(|| was.part.min(is.part))
}
