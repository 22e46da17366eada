//! The words this module shares with those around it.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::chain::Chain;
use crate::usage::Usage;

/// What the user has chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// States are saved and restored where it pays and the server can.
    pub enabled: bool,
    /// Shorter states, and shorter common beginnings, are not worth a file.
    pub min_tokens: u64,
    /// Whose states a request may start from.
    pub share: Share,
}

impl Default for Policy {
    fn default() -> Self {
        Self { enabled: true, min_tokens: 512, share: Share::default() }
    }
}

/// Whose states a request may start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// Those of sessions with the same client key: how fast an answer comes must not tell what another user has sent.
    #[default]
    SameKey,
    /// Everybody's.
    All,
}

/// A state's number; never used twice with one database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct StateId(pub u64);

/// What a request says, as far as states are found by it.
#[derive(Debug, Clone, Default)]
pub struct Story {
    /// The hashes of its beginnings.
    pub chain: Chain,
    /// The name of its client key, where keys have names.
    pub user: Option<Arc<str>>,
}

/// A turn that has ended.
#[derive(Debug, Clone)]
pub struct Turn {
    /// What it said.
    pub story: Option<Arc<Story>>,
    /// What it cost, where the answer told.
    pub usage: Option<Usage>,
    /// The state it started from, if its slot was prepared with one and is the one it ran in.
    pub restored: Option<StateId>,
}

/// A state to start from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Source {
    /// Which.
    pub state: StateId,
    /// Tokens of the request it most likely spares the server.
    pub tokens: u64,
}

/// Why a slot's state would be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// Another session is about to take the slot; a client waits.
    Eviction,
    /// A turn has ended on a server that is about to clear the slot.
    TurnEnd,
    /// A session's first turn has ended, and others may begin as it did.
    Shared,
    /// The router or the server is about to stop.
    Stop,
}

/// llama-server has written or read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Tokens in the state.
    pub tokens: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// How long the server took for it.
    pub took: Duration,
}

/// Why nothing was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveError {
    /// The server has no `--slot-save-path` (501).
    Unsupported,
    /// The disk is full, or the folder can't be written.
    NoRoom,
    /// The slot held something else by then, the server has gone, or it said no.
    Failed,
}

/// Why nothing was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreError {
    /// The server has no `--slot-save-path` (501).
    Unsupported,
    /// There is no such file, or it is not as long as it was; the server was not asked.
    Missing,
    /// It was made under other settings; the server was not asked.
    Mismatch,
    /// The server answered with an error.
    Refused,
}

/// A registered state, as the database keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedState {
    /// Its number.
    pub id: StateId,
    /// Whose.
    pub session: String,
    /// The name of the client key it belongs to.
    pub user: Option<String>,
    /// The server it was made on.
    pub fingerprint: String,
    /// The layout it was made under, once known: see [`super::Warm::measured`].
    pub layout: Option<u64>,
    /// Tokens it holds.
    pub tokens: u64,
    /// Of these, tokens of the prompt; all of them where that is not known.
    pub prompt: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// What its prompt said.
    pub chain: Chain,
}

impl SavedState {
    /// It is known where the prompt ends. Of a turn that was cut off the answer may be in the state, and the next request
    /// may not repeat it. (After an answer of one token it might as well be known, but nothing is lost.)
    #[must_use]
    pub fn knows_prompt(&self) -> bool {
        self.prompt < self.tokens
    }
}

/// What `dispatch` has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Write the state's row: it is new, or something about it is.
    Register(SavedState),
    /// The state goes: delete its row and its file.
    Forget(StateId),
    /// Warm starts are off from now on, or work again; say so and what to change.
    Turned(Standing),
    /// A turn read more again than it should have.
    Reread(Reread),
    /// There was no room for a state. Said once.
    NoRoom,
}

/// Whether warm starts work, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Nothing is known of the server yet.
    #[default]
    Unknown,
    /// They work, as far as is known.
    On,
    /// The user does not want them.
    Disabled,
    /// The server has no `--slot-save-path`.
    Unsupported,
    /// Restored states were not reused, twice: a model with a sliding window needs `--swa-full`; hybrid models can't.
    Unreused,
    /// The server refused three restores in a row.
    Refused,
}

/// A turn that read more again than it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reread {
    /// Whose.
    pub session: String,
    /// Prompt tokens computed.
    pub computed: u64,
    /// Prompt tokens taken from a cache.
    pub cached: u64,
    /// Prompt tokens of the session's turn before: what could have been reused.
    pub before: u64,
    /// Why.
    pub cause: Cause,
}

/// Why a turn read again what had been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It says something else from here on than the turn before.
    Changed(crate::chain::Part),
    /// It goes on where the turn before ended, but its cache was gone.
    Lost,
}

/// For the status page.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// Whether warm starts work.
    pub standing: Standing,
    /// States that could be used on this server now.
    pub states: usize,
    /// Bytes of all states, also those of other servers.
    pub bytes: u64,
    /// Bytes there is room for; `None`: not known.
    pub room: Option<u64>,
    /// States saved since the router's start.
    pub saved: u64,
    /// States restored.
    pub restored: u64,
    /// ... and then reused as they should.
    pub reused: u64,
    /// ... and then not.
    pub unreused: u64,
    /// Saves that failed.
    pub save_failures: u64,
    /// Restores that failed.
    pub restore_failures: u64,
    /// Prompt tokens that restored states spared.
    pub tokens_spared: u64,
    /// Turns after which a save would not have paid.
    pub not_worth: u64,
    /// Requests run one at a time, as too much would be lost of turns that end while another starts.
    pub one_at_a_time: bool,
    /// Seconds to read a prompt token, as measured.
    pub read_s_per_token: Option<f64>,
    /// Seconds to save a byte.
    pub save_s_per_byte: Option<f64>,
    /// Seconds to restore a byte.
    pub restore_s_per_byte: Option<f64>,
    /// Bytes of a token's state.
    pub bytes_per_token: Option<f64>,
}
