//! What is read of a turn's text: what saved states are found by, how much it is, and which conversation it belongs to.

use std::sync::Arc;

use bytes::Bytes;

use super::large_aside;
use crate::chain::Chain;
use crate::fleet::Key;
use crate::proxy::App;
use crate::servers::{fingerprint, key_of};
use crate::slots::{Heeds, Want};
use crate::warm::Story;

/// As much of a turn's text as somebody asks for.
#[derive(Debug, Default)]
pub(super) struct Text {
    chain: Option<Chain>,
    /// The conversation, among several servers.
    pub(super) key: Option<Key>,
}

impl Text {
    /// Reads `body` as the server will get it. A conversation without a session is told apart by `model` and `user` as
    /// well.
    pub(super) async fn read(
        app: &App,
        body: &Bytes,
        want: &Want,
        heeds_slot: Heeds,
        model: Option<&str>,
        user: Option<&str>,
    ) -> Self {
        let fleet = app.config.fleet.as_ref();
        let known = want.session().filter(|_| fleet.is_some()).map(key_of);
        if heeds_slot == Heeds::No || (want.session().is_none() && fleet.is_none()) {
            return Self { chain: None, key: known };
        }
        let by_opening = want.session().is_none() && fleet.is_some_and(|fleet| fleet.fingerprint);
        let hash_key = if by_opening { app.servers.opening_key(app.chain_key).await } else { app.chain_key };
        let (size, body) = (body.len(), body.clone());
        let read = large_aside(size, move || Chain::with_opening(&body, &hash_key)).await;
        let (chain, opening) = read.unzip();
        let opening = opening.flatten().filter(|_| by_opening);
        let key = known.or(opening.map(|opening| fingerprint(&hash_key, opening, model, user)));
        Self { chain, key }
    }

    /// How much it is.
    pub(super) fn characters(&self, body: &Bytes) -> u64 {
        self.chain.as_ref().map_or(body.len() as u64, Chain::len)
    }

    /// What saved states are found by: sessions have them.
    pub(super) fn story(self, want: &Want, user: Option<Arc<str>>) -> Option<Arc<Story>> {
        let chain = self.chain.filter(|_| want.session().is_some())?;
        Some(Arc::new(Story { chain, user }))
    }
}
