//! The words the slot table shares with the modules around it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use session_slot_identity::SessionId;

use crate::usage::Usage;
use crate::warm::{self, StateId};

/// A slot's number, from 0, as `id_slot` and `/slots` spell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SlotId(pub u32);

impl SlotId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("a slot table has far fewer than 2^32 slots"))
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When a session's request names its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinPolicy {
    /// As `/slots` shows it to be best (see `decide`).
    #[default]
    Auto,
    /// Always, whatever the server does with idle slots.
    Always,
    /// Never: llama-server chooses. Requests are still held until it has a slot for them.
    Never,
}

/// What becomes of a session's request whose slot is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Concurrent {
    /// It waits for its slot.
    #[default]
    Wait,
    /// It gets another slot for this once, where that costs no other session its cache (see `spill`).
    Spill,
}

/// Which session loses its slot to one that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evict {
    /// The one whose slot was used least recently.
    Lru,
    /// The one whose loss costs least: what has to be read (or restored) again, by the chance that it is wanted soon.
    #[default]
    Cost,
}

/// How many may wait, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queue {
    /// Whoever has waited so long is told no. `dispatch` keeps the time.
    pub max_wait: Duration,
    /// Requests held back at the same time.
    pub max_waiting: usize,
    /// ... of one session.
    pub max_per_session: usize,
    /// How often a waiter may be passed by one that came later, but whose slot holds its cache.
    pub overtake: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self { max_wait: Duration::from_secs(15 * 60), max_waiting: 256, max_per_session: 8, overtake: 3 }
    }
}

/// What the user has chosen about one server's slots.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// When a session's request names its slot.
    pub pin: PinPolicy,
    /// What becomes of a session's request whose slot is busy.
    pub concurrent: Concurrent,
    /// Which session loses its slot.
    pub evict: Evict,
    /// How many may wait, and how long.
    pub queue: Queue,
    /// Which states are saved.
    pub warm: warm::Policy,
    /// Foreign work that makes no progress for so long is reported; `None` never is.
    pub stuck: Option<Duration>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            pin: PinPolicy::default(),
            concurrent: Concurrent::default(),
            evict: Evict::default(),
            queue: Queue::default(),
            warm: warm::Policy::default(),
            stuck: Some(Duration::from_secs(10 * 60)),
        }
    }
}

/// Counts the server's lives as far as the router has noticed: a restart begins a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

/// The right to run one request. Numbers are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId {
    /// The server's life it was granted in.
    pub generation: Generation,
    /// Unique in this process.
    pub number: u64,
}

/// A place in the queue. Later arrivals have greater tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The number of a probe of `/slots`, in the order they were asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ProbeId(pub u64);

impl ProbeId {
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What a request asks of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// A turn of a session.
    Session(SessionId),
    /// A request with no session: it takes a slot of the server's choice.
    Anonymous,
    /// A request with no session whose body names a slot; taken modulo the slot count, as llama-server does.
    Named(i64),
}

impl Want {
    /// Whose turn it is, if it is a session's.
    #[must_use]
    pub fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session(session) => Some(session),
            Self::Anonymous | Self::Named(_) => None,
        }
    }
}

/// What llama-server will make of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Slots it takes, at least 1: several answers or several prompts are as many tasks. Only one could be named.
    pub tasks: u32,
    /// Whether the slot named in it is where it will run.
    pub heeds_slot: Heeds,
    /// It may go on when its client has left, or when its answer seems to have ended (llama-server's resumable
    /// streams): only `/slots` tells when its slot is free.
    pub resumable: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { tasks: 1, heeds_slot: Heeds::Yes, resumable: false }
    }
}

/// Whether a route runs a request in the slot that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heeds {
    /// It does.
    Yes,
    /// Some builds do. Where it runs is only known once it is seen there, so it has to be alone on its way.
    Perhaps,
    /// Embeddings and reranking go where the server likes.
    No,
}

/// How a granted request is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    /// Name this slot.
    Pin {
        /// The slot to name.
        slot: SlotId,
        /// What is put into the slot first.
        fill: Fill,
        /// Nothing else may start between the decision and the landing: on a server that clears idle slots any
        /// other start would empty this slot again.
        alone: bool,
    },
    /// Name none; llama-server chooses.
    Free {
        /// Nothing else may start before it has landed: its several tasks take whatever slots they find.
        alone: bool,
    },
}

/// What is put into a slot before the request that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Nothing.
    Nothing,
    /// A one-word prompt: the session's state may lie in the server's RAM cache, where llama-server looks for it if the
    /// slot is not empty.
    Prime,
    /// A one-word prompt whose state is saved as well, which shows the layout of this server's states; perhaps in another
    /// slot (see `measuring`).
    Measure,
    /// A saved state.
    Restore(StateId),
}

impl Launch {
    /// What is put into the slot first.
    #[must_use]
    pub fn fill(self) -> Fill {
        match self {
            Self::Pin { fill, .. } => fill,
            Self::Free { .. } => Fill::Nothing,
        }
    }

    /// The slot named, if any.
    #[must_use]
    pub fn slot(self) -> Option<SlotId> {
        match self {
            Self::Pin { slot, .. } => Some(slot),
            Self::Free { .. } => None,
        }
    }
}

/// How a session came by its slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Back to its own slot.
    Home,
    /// Into a slot no session owned.
    New,
    /// Into the slot of this session, which has lost its home.
    Evict(SessionId),
    /// Its own slot is busy: into another one for this once. The session named has lost its home to it.
    Spill(Option<SessionId>),
    /// A session's turn whose slot llama-server chooses.
    Free,
    /// No session.
    Anonymous,
}

/// Whether a request, or what shows the layout of states before it, may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It may.
    Now,
    /// On a server that clears idle slots others have ended meanwhile, whose states are to be saved first. To be asked
    /// again after every change.
    Later,
    /// The server has restarted: its slot is not its own any more.
    Never,
}

/// A waiter may be sent.
#[derive(Debug, Clone)]
pub struct Grant {
    /// Whose turn it is.
    pub ticket: Ticket,
    /// To be released exactly once.
    pub lease: LeaseId,
    /// How to send it.
    pub launch: Launch,
    /// For the log.
    pub action: Action,
    /// The request was held back at least once.
    pub waited: bool,
    /// The slots as seen when it was granted, as `0:idle 1:busy`.
    pub slots_seen: Arc<str>,
}

/// Why a waiter is told no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody listens at the server's address.
    Unreachable,
    /// The router is stopping.
    Stopping,
    /// Too many wait for this server.
    Full {
        /// How many.
        waiting: usize,
    },
    /// Too many requests of this session wait.
    SessionFull {
        /// How many.
        waiting: usize,
    },
    /// No slot became free in time.
    TimedOut {
        /// How long it was held back.
        after: Duration,
    },
}

/// What `dispatch` has to do.
#[derive(Debug, Clone)]
pub enum Output {
    /// Send the request.
    Granted(Grant),
    /// Answer with an error.
    Refused {
        /// Whose.
        ticket: Ticket,
        /// The reason.
        why: Refusal,
    },
    /// A session has lost its home: its stored row keeps no slot.
    Evicted {
        /// Which.
        session: SessionId,
    },
    /// Where a session's last turn ran and what it left there.
    Left {
        /// Which.
        session: SessionId,
        /// Where, and the mark by which the state is known again.
        home: Home,
    },
    /// Work that did not come through the router took the slot of a session, which is cold now.
    Overwritten {
        /// Whose slot it was, and still is.
        session: SessionId,
        /// Which.
        slot: SlotId,
    },
    /// Work that did not come through the router makes no progress. Said once for each standstill.
    Stuck {
        /// Where.
        slot: SlotId,
        /// How long it has not.
        since: Duration,
    },
    /// The server has restarted; the leases of earlier generations are void.
    Restarted,
    /// Have the server save this slot's state; then [`super::SlotTable::save_ended`].
    Save {
        /// Holds the slot meanwhile.
        lease: LeaseId,
        /// Which.
        slot: SlotId,
        /// The state that becomes of it.
        state: StateId,
    },
    /// Something about saved states.
    Warm(warm::Effect),
    /// It is now known whether the server clears idle slots.
    Learned {
        /// It does.
        clears_idle: bool,
    },
}

/// How a lease ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing was sent to the server.
    Unsent,
    /// The server answered that it did not run the request; its slot holds what it held.
    Declined,
    /// The answer came to its end.
    Complete {
        /// What it cost, where the answer told.
        usage: Option<Usage>,
        /// The slot it ran in, where the answer told.
        slot: Option<SlotId>,
    },
    /// The client or the connection to the server was lost: llama-server may still be at work.
    Broken,
}

/// What identifies the state in a slot: unchanged marks mean an unchanged state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The task that ran last.
    pub id_task: i64,
    /// Prompt and generated tokens held.
    pub tokens: u64,
}

/// A session's slot and what it left there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// The slot.
    pub slot: SlotId,
    /// `None`: not known, so never warm.
    pub left: Option<Mark>,
}

/// One slot in an answer of `/slots`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeenSlot {
    /// The task that runs or ran last; `None` = unused since the server's start.
    pub id_task: Option<i64>,
    /// Prompt and generated tokens held; `None` after a restore.
    pub tokens: Option<u64>,
    /// It is at work.
    pub processing: bool,
    /// Prompt tokens its task has read so far, and tokens it has generated.
    pub progress: Progress,
}

/// How far the task in a slot has come. Whatever changes in it is progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Prompt tokens read; grows by whole batches, each of which may take a minute.
    pub read: Option<u64>,
    /// Tokens generated.
    pub generated: Option<u64>,
}

/// What a probe of `/slots` brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The slots, in order.
    Slots(Vec<SeenSlot>),
    /// No answer in time; one may still come under the same probe number.
    Silent,
    /// The server has no `/slots` (or hides it); its slot count where `/props` told.
    Blind(Option<u32>),
    /// The server is loading its model.
    Loading,
    /// Nobody listens.
    Refused,
}

/// When to probe `/slots`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// After this moment.
    At(std::time::Instant),
}

/// The table at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct TableSnapshot {
    /// Lives of the server seen, from 1.
    pub generation: Generation,
    /// Whether the server empties idle slots whenever a task starts; `None` = not seen yet.
    pub clears_idle: Option<bool>,
    /// One a slot.
    pub slots: Vec<SlotSnapshot>,
    /// Requests granted and not ended.
    pub leases: usize,
    /// Requests held back now.
    pub waiting: usize,
    /// How long the first of them has waited.
    #[serde(serialize_with = "as_millis", rename = "oldest_wait_ms")]
    pub oldest_wait: Option<Duration>,
    /// Sessions remembered.
    pub sessions: usize,
}

fn as_millis<S: serde::Serializer>(wait: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)).serialize(to)
}

/// One slot at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct SlotSnapshot {
    /// Its number.
    #[serde(rename = "id")]
    pub slot: SlotId,
    /// Who owns it.
    pub session: Option<String>,
    /// A request of the router runs in it.
    pub leased: bool,
    /// `/slots` showed it at work.
    pub processing: bool,
    /// ... with work that did not come through the router.
    pub foreign: bool,
    /// ... that makes no progress.
    pub stuck: bool,
    /// It provably holds what its owner left.
    pub warm: bool,
    /// Tokens it was last seen to hold.
    pub tokens: Option<u64>,
}
