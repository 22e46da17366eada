//! What is read of a turn's text: what saved states are found by, how much it is, and which conversation it belongs to.

use std::sync::Arc;

use bytes::Bytes;
use http::Uri;

use super::large_aside;
use crate::body::Parsed;
use crate::chain::{Chain, MEDIA_BYTES};
use crate::fleet::{Ask, Key};
use crate::passing::model_of;
use crate::proxy::App;
use crate::refusal::Refusal;
use crate::servers::{fingerprint, key_of, key_of_stream};
use crate::slots::{Heeds, Shape, Want};
use crate::warm::Story;

/// What a turn says about servers and saved states.
pub(super) struct Asked {
    pub(super) ask: Ask,
    /// What its server calls the model, if its client calls it otherwise.
    pub(super) model: Option<String>,
    pub(super) story: Option<Arc<Story>>,
}

/// What is known of a turn that has been read.
pub(super) struct Said<'a> {
    /// As the server will get it.
    pub(super) body: &'a Bytes,
    /// What it says of routing, if it can be read.
    pub(super) parsed: Option<&'a Parsed>,
    pub(super) uri: &'a Uri,
    /// It is no JSON but a form.
    pub(super) is_form: bool,
    pub(super) want: &'a Want,
    /// The name of its stream, if that can be read on.
    pub(super) stream: Option<&'a [u8]>,
    pub(super) shape: Shape,
    pub(super) user: Option<Arc<str>>,
    /// Whose saved states it may start from.
    pub(super) mark: Option<Arc<str>>,
}

impl Asked {
    /// Reads what a turn says.
    pub(super) async fn of(app: &App, said: Said<'_>) -> Result<Self, Refusal> {
        let Said { body, parsed, uri, is_form, want, stream, shape, user, mark } = said;
        let model = model_of(parsed, uri);
        if parsed.is_none() && model.is_none() && app.servers.hosts_are_named() {
            return Err(Refusal::ModelUnread);
        }
        let model = model.as_deref();
        let text = Text::read(app, body, want, stream, shape.heeds_slot, model, user.as_deref()).await;
        let target = app.servers.target(text.key, model).ok_or_else(|| app.servers.unknown_model())?;
        let ask = Ask {
            key: text.key,
            home: None,
            of: target.of,
            characters: text.characters(body, is_form),
            max_output: parsed.and_then(Parsed::max_output),
            // Where no slot can be named, nothing is generated.
            answers: if shape.heeds_slot == Heeds::No { 0 } else { shape.tasks },
            again: None,
        };
        Ok(Self { ask, model: target.model, story: text.story(want, mark) })
    }
}

/// As much of a turn's text as somebody asks for.
#[derive(Debug, Default)]
struct Text {
    chain: Option<Chain>,
    /// The conversation, among several servers.
    key: Option<Key>,
}

impl Text {
    /// Reads `body` as the server will get it. A conversation without a session goes by its `stream`, if that can be read
    /// on, or by how it begins, and is then told apart by `model` and `user` as well.
    async fn read(
        app: &App,
        body: &Bytes,
        want: &Want,
        stream: Option<&[u8]>,
        heeds_slot: Heeds,
        model: Option<&str>,
        user: Option<&str>,
    ) -> Self {
        let fleet = app.config.fleet.as_ref();
        let known = want.session().map(key_of).or(stream.map(key_of_stream)).filter(|_| fleet.is_some());
        if heeds_slot == Heeds::No || (want.session().is_none() && fleet.is_none()) {
            return Self { chain: None, key: known };
        }
        let by_opening = known.is_none() && fleet.is_some_and(|fleet| fleet.fingerprint);
        let hash_key = if by_opening { app.servers.opening_key(app.chain_key).await } else { app.chain_key };
        let (size, body) = (body.len(), body.clone());
        let read = large_aside(size, move || Chain::with_opening(&body, &hash_key)).await;
        let (chain, opening) = read.unzip();
        let opening = opening.flatten().filter(|_| by_opening);
        let key = known.or(opening.map(|opening| fingerprint(&hash_key, opening, model, user)));
        Self { chain, key }
    }

    /// How much it is. A form, which holds a sound, counts as one picture does.
    fn characters(&self, body: &Bytes, is_form: bool) -> u64 {
        let size = body.len() as u64;
        let size = if is_form { size.min(MEDIA_BYTES) } else { size };
        self.chain.as_ref().map_or(size, Chain::len)
    }

    /// What saved states are found by: sessions have them.
    fn story(self, want: &Want, user: Option<Arc<str>>) -> Option<Arc<Story>> {
        let chain = self.chain.filter(|_| want.session().is_some())?;
        Some(Arc::new(Story { chain, user }))
    }
}
