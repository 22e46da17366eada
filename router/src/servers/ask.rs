//! What a request says about servers: whose it is, and which model it wants.

use std::hash::Hash;
use std::sync::Arc;

use session_slot_identity::SessionId;
use sha2::{Digest, Sha256};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::Servers;
use crate::chain::{ChainKey, Opening};
use crate::fleet::{Eligible, Key};

/// Which servers a request may go to, and where its conversation lives.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) key: Option<Key>,
    pub(crate) of: Eligible,
    /// What the server calls the model, if the client calls it otherwise.
    pub(crate) model: Option<String>,
}

/// What a session is known by among servers: the same in all routers.
pub(crate) fn key_of(session: &SessionId) -> Key {
    Key(u128::from_be_bytes(half(Sha256::digest(session.as_str()).into())))
}

/// What a resumable stream without a session is known by: those who read it on tell nothing but its name.
pub(crate) fn key_of_stream(name: &[u8]) -> Key {
    let hash = Sha256::new().chain_update("stream\n").chain_update(name).finalize();
    Key(u128::from_be_bytes(half(hash.into())))
}

/// As much of a hash as nobody hits by chance.
pub(super) fn half(hash: [u8; 32]) -> [u8; 16] {
    std::array::from_fn(|index| hash[index])
}

/// What a conversation without a session is known by: how its requests begin. Keyed, so that nobody can find out whether
/// a text he guesses was sent.
pub(crate) fn fingerprint(key: &ChainKey, opening: Opening, model: Option<&str>, user: Option<&str>) -> Key {
    let mut hasher = SipHasher24::new_with_key(&key.0);
    (opening.system, opening.first, model, user).hash(&mut hasher);
    Key(hasher.finish128().as_u128())
}

impl Servers {
    /// Where a request may go that belongs to `key` and asks for `model`. `None`: no server has it.
    pub(crate) fn target(&self, key: Option<Key>, model: Option<&str>) -> Option<Target> {
        let any = Target { key, of: Eligible::Any, model: None };
        let (Some(several), Some(model)) = (&self.several, model) else { return Some(any) };
        if several.hosts.is_none() {
            return Some(Target { of: Eligible::Model(Arc::from(model)), ..any });
        }
        let (server, own) = self.host_of(several, model)?;
        Some(Target { of: Eligible::Only(server), model: Some(own.to_owned()), ..any })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_the_same_key_in_every_router() {
        let key = |session: &str| key_of(&SessionId::new(session).expect("an id"));
        assert_eq!(key("ann/s"), Key(0xded7_b350_154d_6476_e446_b47f_f19f_efbd));
        assert_ne!(key("ann/s"), key("bob/s"));
    }

    #[test]
    fn conversations_are_told_apart_by_how_they_begin_by_model_and_by_user() {
        let of = |system, first, model, user| {
            fingerprint(&ChainKey([7; 16]), Opening { system, first }, model, user)
        };
        let one = of(Some(1), 2, Some("m"), None);
        assert_eq!(one, of(Some(1), 2, Some("m"), None));
        for other in [
            of(None, 2, Some("m"), None),
            of(Some(1), 3, Some("m"), None),
            of(Some(1), 2, None, None),
            of(Some(1), 2, Some("m"), Some("ann")),
            of(Some(1), 2, None, Some("m")),
        ] {
            assert_ne!(one, other);
        }
        assert_ne!(
            one,
            fingerprint(&ChainKey([8; 16]), Opening { system: Some(1), first: 2 }, Some("m"), None)
        );
    }
}
