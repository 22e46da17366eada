//! A chain as the database keeps it: about 11 bytes a node, and a check sum, since files get damaged.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use super::{Chain, MOST_NODES, Node, Part};

/// The first byte: the form of the rest.
const FORM: u8 = 1;
const SUM_BYTES: usize = 8;

impl Chain {
    /// As bytes, for [`Chain::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![FORM, u8::from(self.open)];
        let mut before = 0;
        for node in &self.nodes {
            out.extend_from_slice(&node.hash.to_le_bytes());
            put(&mut out, node.end - before);
            put(&mut out, part_number(node.part));
            before = node.end;
        }
        out.extend_from_slice(&check_sum(&out));
        out
    }

    /// What [`Chain::to_bytes`] has written; `None` for anything else, damaged or of another version.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (content, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
        let [FORM, open @ (0 | 1), nodes @ ..] = content else { return None };
        if sum != check_sum(content) {
            return None;
        }
        let (mut rest, mut chain) = (nodes, Self { nodes: Vec::new(), open: *open == 1 });
        while !rest.is_empty() && chain.nodes.len() < MOST_NODES {
            let hash = u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?);
            let end = chain.len().checked_add(take(&mut rest)?)?;
            let part = part_of(take(&mut rest)?)?;
            chain.nodes.push(Node { hash, end, part });
        }
        rest.is_empty().then_some(chain)
    }
}

fn check_sum(content: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = SipHasher24::new();
    hasher.write(content);
    hasher.finish().to_le_bytes()
}

fn part_number(part: Part) -> u64 {
    match part {
        Part::System => 0,
        Part::Tools => 1,
        Part::Message(index) => 2 + u64::from(index),
    }
}

fn part_of(number: u64) -> Option<Part> {
    match number {
        0 => Some(Part::System),
        1 => Some(Part::Tools),
        index => u32::try_from(index - 2).ok().map(Part::Message),
    }
}

/// Seven bits a byte, the lowest first; the eighth says that more follow.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
