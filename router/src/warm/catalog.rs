//! Which states there are, whose they are, what they begin with, and which of them this server can use.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use session_slot_identity::SessionId;

use crate::chain::Chain;

use super::sharing::{donates, gives_preamble, is_enough, may_share, shared_tokens};
use super::types::{SavedState, Share, StateId, Story};

/// So many files are enough.
const MOST_STATES: usize = 10_000;
/// Until the folder has been looked at: the most that is taken by default.
const ROOM: u64 = 20 << 30;

/// The server as it is now.
#[derive(Debug, Default)]
struct Server {
    fingerprint: Option<String>,
    layout: Option<u64>,
    /// Counts its lives.
    life: u64,
}

/// A state and what the database does not keep of it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) state: Arc<SavedState>,
    /// The server's life it was made in; `None`: an earlier run of the router.
    life: Option<u64>,
    used: u64,
    /// Another session's request that should have shared it did not.
    own_only: bool,
}

/// A state to start from, and what it most likely spares.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) state: Arc<SavedState>,
    pub(super) tokens: u64,
}

/// All states, those of other servers too.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    server: Server,
    states: BTreeMap<StateId, Entry>,
    /// Being saved, with as many bytes as are expected.
    pending: BTreeMap<StateId, Entry>,
    by_session: HashMap<String, BTreeSet<StateId>>,
    /// By the first node: whatever shares anything shares that.
    by_beginning: HashMap<u64, BTreeSet<StateId>>,
    room: Option<u64>,
    bytes: u64,
    uses: u64,
}

impl Catalog {
    // ---- the server

    pub(super) fn fingerprint(&self) -> Option<&str> {
        self.server.fingerprint.as_deref()
    }

    pub(super) fn layout(&self) -> Option<u64> {
        self.server.layout
    }

    pub(super) fn served_by(&mut self, fingerprint: &str) {
        self.server.fingerprint = Some(fingerprint.to_owned());
    }

    /// The layout of this life's states: those made in it carry it from now on. Returns them.
    pub(super) fn measured(&mut self, layout: u64) -> Vec<SavedState> {
        self.server.layout = Some(layout);
        let life = Some(self.server.life);
        let made =
            self.states.values_mut().filter(|entry| entry.life == life && entry.state.layout.is_none());
        let stamped = made.map(|entry| {
            let state = Arc::make_mut(&mut entry.state);
            state.layout = Some(layout);
            state.clone()
        });
        stamped.collect()
    }

    /// The server begins another life, perhaps as another one. Returns the states that can't be used any more.
    pub(super) fn restarted(&mut self) -> Vec<StateId> {
        self.server = Server { fingerprint: None, layout: None, life: self.server.life + 1 };
        let unmeasured = self.states.values().filter(|entry| entry.state.layout.is_none());
        unmeasured.map(|entry| entry.state.id).collect()
    }

    // ---- what comes and goes

    /// Takes over a row of an earlier run.
    pub(super) fn load(&mut self, state: SavedState) {
        self.insert(Entry { state: Arc::new(state), life: None, used: 0, own_only: false });
    }

    /// A save begins.
    pub(super) fn begin(&mut self, state: SavedState) {
        let (id, life) = (state.id, Some(self.server.life));
        self.pending.insert(id, Entry { state: Arc::new(state), life, used: 0, own_only: false });
    }

    /// What is being saved under this number.
    pub(super) fn pending(&self, id: StateId) -> Option<&SavedState> {
        self.pending.get(&id).map(|entry| &*entry.state)
    }

    /// A save has ended: the state counts from now on, if it can be told from those of other servers.
    pub(super) fn commit(&mut self, id: StateId, bytes: u64) -> Option<SavedState> {
        let mut entry = self.pending.remove(&id)?;
        let state = Arc::make_mut(&mut entry.state);
        state.bytes = bytes;
        let lives = entry.life == Some(self.server.life);
        if lives && state.layout.is_none() {
            state.layout = self.server.layout;
        }
        if !lives && state.layout.is_none() {
            return None;
        }
        let state = state.clone();
        self.insert(entry);
        Some(state)
    }

    /// A save has come to nothing.
    pub(super) fn abandon(&mut self, id: StateId) -> bool {
        self.pending.remove(&id).is_some()
    }

    pub(super) fn remove(&mut self, id: StateId) -> bool {
        let Some(Entry { state, .. }) = self.states.remove(&id) else { return false };
        self.bytes -= state.bytes;
        drop_from(&mut self.by_session, &state.session, id);
        if let Some(first) = state.chain.nodes().first() {
            drop_from(&mut self.by_beginning, &first.hash, id);
        }
        true
    }

    fn insert(&mut self, mut entry: Entry) {
        self.uses += 1;
        entry.used = self.uses;
        let state = &entry.state;
        self.bytes += state.bytes;
        self.by_session.entry(state.session.clone()).or_default().insert(state.id);
        if let Some(first) = state.chain.nodes().first() {
            self.by_beginning.entry(first.hash).or_default().insert(state.id);
        }
        self.states.insert(state.id, entry);
    }

    /// A state has been restored.
    pub(super) fn touch(&mut self, id: StateId) {
        self.uses += 1;
        if let Some(entry) = self.states.get_mut(&id) {
            entry.used = self.uses;
        }
    }

    /// Others' requests do not share it as they should.
    pub(super) fn keep_from_others(&mut self, id: StateId) {
        if let Some(entry) = self.states.get_mut(&id) {
            entry.own_only = true;
        }
    }

    // ---- what is there

    pub(super) fn get(&self, id: StateId) -> Option<&Arc<SavedState>> {
        self.states.get(&id).map(|entry| &entry.state)
    }

    /// The states this server could use now.
    pub(super) fn usable(&self) -> impl Iterator<Item = &Arc<SavedState>> {
        self.states.values().filter(|entry| self.is_usable(entry)).map(|entry| &entry.state)
    }

    /// Of the states of this session, those this server could use now, the newest first.
    pub(super) fn own(&self, session: &str) -> impl Iterator<Item = &Arc<SavedState>> {
        let ids = self.by_session.get(session).into_iter().flatten().rev();
        let entries = ids.filter_map(|id| self.states.get(id));
        entries.filter(|entry| self.is_usable(entry)).map(|entry| &entry.state)
    }

    /// Bytes of all states.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn room(&self) -> Option<u64> {
        self.room
    }

    pub(super) fn set_room(&mut self, bytes: u64) {
        self.room = Some(bytes);
    }

    /// The states a request may start from, as far as it shares enough with them.
    pub(super) fn candidates<'a>(
        &'a self,
        session: &'a SessionId,
        story: Option<&'a Story>,
        share: Share,
    ) -> impl Iterator<Item = Candidate> + 'a {
        let first = story.and_then(|story| story.chain.nodes().first());
        let alike = first.and_then(|first| self.by_beginning.get(&first.hash)).into_iter().flatten();
        let entries = alike.filter_map(|id| self.states.get(id));
        let open = entries.filter(move |entry| self.is_open_to(entry, Some(session.as_str()), story, share));
        let alike =
            open.filter_map(move |entry| story.and_then(|story| candidate(&entry.state, &story.chain)));
        // Where a request's text is not known, only what its own session left without a text can be its beginning.
        let newest = self.own(session.as_str()).next().filter(|_| first.is_none());
        let blind = newest.filter(|state| state.chain.is_empty());
        alike.chain(blind.map(|state| Candidate { state: state.clone(), tokens: state.prompt }))
    }

    /// A new session that begins as `story` could start from a state that is there.
    pub(super) fn covers_preamble(&self, story: &Story, share: Share) -> bool {
        let Some(first) = story.chain.nodes().first() else { return false };
        let ids = self.by_beginning.get(&first.hash).into_iter().flatten();
        let entries = ids.filter_map(|id| self.states.get(id));
        let mut open = entries.filter(|entry| self.is_open_to(entry, None, Some(story), share));
        open.any(|entry| gives_preamble(&entry.state, &story.chain))
    }

    /// The older states of `new`'s session that nobody misses: it takes their place, unless one of them is the only one
    /// that new sessions with its preamble can start from.
    pub(super) fn replaced_by(&self, new: &SavedState) -> Vec<StateId> {
        let mut gone = Vec::new();
        let ids = self.by_session.get(&new.session).into_iter().flatten();
        for state in ids.filter(|id| **id < new.id).filter_map(|id| self.get(*id)) {
            let server = (&state.fingerprint, state.layout);
            let stays = server == (&new.fingerprint, new.layout)
                && donates(state).is_some()
                && !self.other_gives_preamble(state, &gone);
            if !stays {
                gone.push(state.id);
            }
        }
        gone
    }

    fn other_gives_preamble(&self, state: &SavedState, gone: &[StateId]) -> bool {
        let Some(first) = state.chain.nodes().first() else { return false };
        let others = self.by_beginning.get(&first.hash).into_iter().flatten();
        let mut others = others.filter(|id| **id != state.id && !gone.contains(id));
        others.any(|id| {
            self.states.get(id).is_some_and(|Entry { state: other, own_only, .. }| {
                let alike = (&other.user, &other.fingerprint, other.layout);
                alike == (&state.user, &state.fingerprint, state.layout)
                    && !own_only
                    && gives_preamble(other, &state.chain)
            })
        })
    }

    /// What has to go so that a state of `bytes` finds room: the least valuable, and of these the least recently used.
    /// `None` if that is not enough, or worth more than `limit`. Values are by the byte.
    pub(super) fn victims(
        &self,
        bytes: u64,
        limit: f64,
        value: impl Fn(&SavedState) -> f64,
    ) -> Option<Vec<StateId>> {
        let expected: u64 = self.pending.values().map(|entry| entry.state.bytes).sum();
        let (victims, worth) = self.least_valuable(expected + bytes, self.pending.len() + 1, value)?;
        (worth <= limit).then_some(victims)
    }

    /// What has to go because there is more than there is room for.
    pub(super) fn surplus(&self, value: impl Fn(&SavedState) -> f64) -> Vec<StateId> {
        self.least_valuable(0, 0, value).map_or(Vec::new(), |(victims, _)| victims)
    }

    /// What has to go for so much more, and the greatest value among it.
    fn least_valuable(
        &self,
        bytes: u64,
        files: usize,
        value: impl Fn(&SavedState) -> f64,
    ) -> Option<(Vec<StateId>, f64)> {
        let mut bytes_over = (self.bytes + bytes).saturating_sub(self.room.unwrap_or(ROOM));
        let mut files_over = (self.states.len() + files).saturating_sub(MOST_STATES);
        let (mut victims, mut worth) = (Vec::new(), 0.0);
        if bytes_over == 0 && files_over == 0 {
            return Some((victims, worth));
        }
        for (value, state) in self.ranked(value) {
            if bytes_over == 0 && files_over == 0 {
                break;
            }
            bytes_over = bytes_over.saturating_sub(state.bytes);
            files_over = files_over.saturating_sub(1);
            victims.push(state.id);
            worth = value;
        }
        (bytes_over == 0 && files_over == 0).then_some((victims, worth))
    }

    /// All states by what they are worth, the least first; those of other servers are worth nothing here.
    fn ranked(&self, value: impl Fn(&SavedState) -> f64) -> impl Iterator<Item = (f64, &SavedState)> {
        let values = self.states.values().map(|entry| {
            let value = if self.is_usable(entry) { value(&entry.state) } else { 0.0 };
            (value, entry.used, &*entry.state)
        });
        let mut ranked: Vec<_> = values.collect();
        ranked.sort_by(|one, two| one.0.total_cmp(&two.0).then(one.1.cmp(&two.1)));
        ranked.into_iter().map(|(value, _, state)| (value, state))
    }

    fn is_usable(&self, entry: &Entry) -> bool {
        let Server { fingerprint: Some(fingerprint), layout, life } = &self.server else { return false };
        let measured = match entry.state.layout {
            // Before the first restore in this life it is measured, in the very slot.
            Some(_) => layout.is_none() || entry.state.layout == *layout,
            // Nothing was known of the layout so far in the life it was made in: this one.
            None => entry.life == Some(*life),
        };
        measured && entry.state.fingerprint == *fingerprint
    }

    fn is_open_to(&self, entry: &Entry, session: Option<&str>, story: Option<&Story>, share: Share) -> bool {
        let own = session == Some(entry.state.session.as_str());
        let shared = !entry.own_only
            && story.is_some_and(|story| may_share(entry.state.user.as_deref(), story, share));
        self.is_usable(entry) && (own || shared)
    }
}

fn candidate(state: &Arc<SavedState>, chain: &Chain) -> Option<Candidate> {
    let tokens = shared_tokens(state, chain);
    is_enough(tokens, state.tokens).then(|| Candidate { state: state.clone(), tokens })
}

fn drop_from<K: std::hash::Hash + Eq>(index: &mut HashMap<K, BTreeSet<StateId>>, key: &K, id: StateId) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
