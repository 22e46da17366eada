//! A unit of work in the server's queue.
use tokio::sync::oneshot;

use super::failure::Failure;
use super::records::Launch;
use super::slot::TaskId;
use super::tokens::Token;

/// One task.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    /// The number of the request it came with.
    pub(super) request: usize,
    /// Whether that request came past the router.
    pub(super) foreign: bool,
    /// `id_slot`, as written.
    pub(super) named: Option<i64>,
    pub(super) work: Work,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Work {
    Generate(Generate),
    Act(Act),
}

/// Read a prompt and say some tokens.
#[derive(Debug)]
pub(super) struct Generate {
    pub(super) tokens: Vec<Token>,
    pub(super) limit: usize,
    /// `n` - 1: how many further slots it takes.
    pub(super) children: usize,
    /// Embeddings neither look at what the slot holds nor at the RAM cache.
    pub(super) uses_cache: bool,
    pub(super) answer: oneshot::Sender<Result<Launch, Failure>>,
}

/// Do something to a slot's state.
#[derive(Debug)]
pub(super) struct Act {
    pub(super) action: Action,
    pub(super) answer: oneshot::Sender<Result<Moved, Failure>>,
}

/// What an action was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) tokens: usize,
    pub(super) bytes: usize,
}

/// `POST /slots/{id}?action=`
#[derive(Clone, Debug)]
pub(super) enum Action {
    Save(String),
    Restore(String),
    Erase,
}

impl Action {
    /// The file it is about.
    pub(super) fn file(&self) -> Option<&str> {
        match self {
            Self::Save(name) | Self::Restore(name) => Some(name),
            Self::Erase => None,
        }
    }
}
