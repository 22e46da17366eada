//! What is kept under which name, so that a Valkey may hold other things too; and the hash key as text.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::chain::ChainKey;
use crate::fleet::Key;

/// All names begin with the configured prefix.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: Arc<str>,
    me: Arc<str>,
}

impl Keys {
    /// Draws a name for this router, different at every start.
    pub(super) fn new(prefix: &str) -> Self {
        let drawn = RandomState::new().hash_one(std::process::id());
        Self { prefix: prefix.into(), me: format!("{drawn:016x}").into() }
    }

    /// This router.
    pub(super) fn me(&self) -> &str {
        &self.me
    }

    /// Where a conversation lives.
    pub(super) fn home(&self, key: Key) -> String {
        format!("{}:home:{:032x}", self.prefix, key.0)
    }

    /// What a router has at the servers.
    pub(super) fn load(&self, router: &str) -> String {
        format!("{}:load:{router}", self.prefix)
    }

    /// The set of the routers.
    pub(super) fn routers(&self) -> String {
        format!("{}:routers", self.prefix)
    }

    /// The key of everyone's hashes.
    pub(super) fn hash_key(&self) -> String {
        format!("{}:hash_key", self.prefix)
    }
}

/// The hash key as 32 hexadecimal digits.
pub(super) fn key_text(key: ChainKey) -> String {
    format!("{:032x}", u128::from_be_bytes(key.0))
}

/// What [`key_text`] wrote.
pub(super) fn key_of(text: &str) -> Option<ChainKey> {
    let written = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = written.then(|| u128::from_str_radix(text, 16).ok()).flatten();
    number.map(|number| ChainKey(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_key_survives_being_written_and_nothing_else_is_read_as_one() {
        let key = ChainKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(key_of(&key_text(key)), Some(key));
        for other in ["", "0", "+0000000000000000000000000000001", "g0000000000000000000000000000000"] {
            assert_eq!(key_of(other), None, "{other}");
        }
    }

    #[test]
    fn no_two_routers_have_one_name() {
        assert_ne!(Keys::new("p").me(), Keys::new("p").me());
    }

    #[test]
    fn a_home_is_named_by_all_of_its_key() {
        assert_eq!(Keys::new("p").home(Key(0xab)), "p:home:000000000000000000000000000000ab");
    }
}
