//! The names of the files of saved states: hashes, which tell nobody anything and can be told from other files.

use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::chain::ChainKey;
use crate::slots::SlotId;
use crate::warm::StateId;

/// What the files that count end with.
const SAVED: &str = ".kv";
/// What a file ends with that is being written, or whose end nobody has seen.
const PARTIAL: &str = ".part";
/// Hexadecimal digits that show whose a file is, and of which state.
const OWNER: usize = 8;
const STATE: usize = 16;

/// Makes the names of one installation's files.
#[derive(Debug)]
pub(super) struct Names {
    key: ChainKey,
    /// The start of the router: a state's number may come again after one, and a file of the first may still turn up.
    start: u128,
    owner: String,
}

/// Whose a file in the folder is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This installation's.
    Us,
    /// Another router's, or of this one before its database was lost.
    Stranger,
    /// It is no saved state.
    Nobody,
}

impl Names {
    pub(super) fn new(key: ChainKey) -> Self {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let owner = hex(&digest(&key, b"owner", 0, 0), OWNER);
        Self { key, start, owner }
    }

    /// The file of a state.
    pub(super) fn of(&self, state: StateId) -> String {
        self.name(b"state", state.0, self.start, SAVED)
    }

    /// Where it is written first, if it can be renamed afterwards.
    pub(super) fn partial(name: &str) -> String {
        format!("{}{PARTIAL}", name.trim_end_matches(SAVED))
    }

    /// The names that are used again and again where nothing can be removed.
    pub(super) fn pool(&self) -> impl Iterator<Item = String> {
        (0..).map(|number| self.name(b"pool", number, 0, SAVED))
    }

    /// Where a one-word prompt is saved from a slot to see how large that is.
    pub(super) fn probe(&self, slot: SlotId) -> String {
        self.name(b"probe", slot.0.into(), 0, PARTIAL)
    }

    pub(super) fn owner(&self, name: &str) -> Owner {
        let stem = name.strip_suffix(SAVED).or_else(|| name.strip_suffix(PARTIAL));
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match stem {
            Some(stem) if stem.len() == OWNER + STATE && stem.bytes().all(digit) => {
                if stem.starts_with(&self.owner) { Owner::Us } else { Owner::Stranger }
            }
            _ => Owner::Nobody,
        }
    }

    fn name(&self, kind: &[u8], number: u64, start: u128, ending: &str) -> String {
        format!("{}{}{ending}", self.owner, hex(&digest(&self.key, kind, number, start), STATE))
    }
}

fn digest(key: &ChainKey, kind: &[u8], number: u64, start: u128) -> [u8; 32] {
    let hash = Sha256::new().chain_update(key.0).chain_update(kind);
    hash.chain_update(number.to_le_bytes()).chain_update(start.to_le_bytes()).finalize().into()
}

fn hex(bytes: &[u8], digits: usize) -> String {
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_owner_and_nothing_else() {
        let (ours, theirs) = (Names::new(ChainKey([1; 16])), Names::new(ChainKey([2; 16])));
        let name = ours.of(StateId(7));
        assert_eq!((ours.owner(&name), theirs.owner(&name)), (Owner::Us, Owner::Stranger));
        assert_eq!(ours.owner(&Names::partial(&name)), Owner::Us);
        assert_eq!(ours.owner(&ours.probe(SlotId(0))), Owner::Us);
        for other in ["notes.kv", "model.gguf", "", ".kv", "0123456789abcdef0123456G.kv"] {
            assert_eq!(ours.owner(other), Owner::Nobody, "{other}");
        }
    }

    #[test]
    fn a_number_that_comes_again_after_a_start_makes_another_name() {
        let (first, second) = (Names::new(ChainKey([1; 16])), Names::new(ChainKey([1; 16])));
        assert_ne!(first.of(StateId(7)), second.of(StateId(7)));
        assert_eq!(first.pool().nth(3), second.pool().nth(3));
        assert_ne!(first.pool().nth(3), first.pool().nth(4));
    }
}
