//! What a request says about servers: whose it is, and which model it wants.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use session_slot_identity::SessionId;
use sha2::{Digest, Sha256};
use siphasher::sip128::{Hasher128, SipHasher24};

use super::{NoSeat, NotSeated, Servers};
use crate::chain::{ChainKey, Opening};
use crate::config::Names;
use crate::fleet::{Eligible, Key, ServerId};

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
    /// Why a request gets no server whose model none has.
    pub(crate) fn unknown_model(&self) -> NotSeated {
        NotSeated { why: NoSeat::UnknownModel { known: self.models() }, retry_after: Duration::ZERO }
    }

    /// Where a request may go that belongs to `key` and asks for `model`. `None`: no server has it.
    pub(crate) fn target(&self, key: Option<Key>, model: Option<&str>) -> Option<Target> {
        let any = Target { key, of: Eligible::Any, model: None };
        let (Some(several), Some(model)) = (&self.several, model) else { return Some(any) };
        match several.names {
            Names::Plain => Some(Target { of: Eligible::Model(Arc::from(model)), ..any }),
            Names::Host => {
                let (server, own) = self.host_of(model)?;
                Some(Target { of: Eligible::Only(server), model: Some(own.to_owned()), ..any })
            }
        }
    }

    /// The server whose name stands in front of a model's, the longest that does, and the rest.
    fn host_of<'m>(&self, model: &'m str) -> Option<(ServerId, &'m str)> {
        let named = |server: ServerId| {
            let member = self.member(server);
            let own = model.strip_prefix(&*member.name)?.strip_prefix('-').filter(|own| !own.is_empty())?;
            let known = member.models().is_none_or(|models| models.iter().any(|known| known == own));
            known.then_some((server, own))
        };
        self.ids().filter_map(named).min_by_key(|(_, own)| own.len())
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
