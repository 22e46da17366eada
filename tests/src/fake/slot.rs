//! One slot of the fake: what it holds, what runs in it, and how `/slots` shows it.
use serde_json::{Value, json};

use super::tokens::{Token, common_prefix};

/// A slot's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub usize);

/// A task's number, from the server's one counter (polls of `/slots` take numbers too).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub i64);

/// What a slot is doing.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// The task that owns the slot: its own, or the parent's for the further choices of `n` > 1.
    pub(super) owner: TaskId,
    /// The further choices keep nothing when they end.
    pub(super) is_child: bool,
    /// Another request named this slot: what it says from now on is not its own.
    pub(super) damaged: bool,
    /// It came past the router.
    pub(super) foreign: bool,
    /// The pool was full: the request is to fail.
    pub(super) failed: bool,
    /// The token said last: not in the slot yet.
    pub(super) unread: Option<Token>,
}

impl Running {
    pub(super) fn new(owner: TaskId, is_child: bool, foreign: bool) -> Self {
        Self { owner, is_child, damaged: false, foreign, failed: false, unread: None }
    }
}

/// The numbers of the task that ran last (or runs).
#[derive(Clone, Copy, Debug)]
pub(super) struct LastTask {
    pub(super) id: TaskId,
    pub(super) limit: usize,
    pub(super) computed: usize,
    pub(super) cached: usize,
    pub(super) decoded: usize,
}

/// A slot's tokens came from a file, and no request has used them yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restored {
    pub(super) tokens: usize,
    /// With a sliding window a restore is answered with 200, and then nothing of it is reused.
    pub(super) reused: bool,
    /// It was another model's: whoever reuses it talks nonsense.
    pub(super) spoiled: bool,
}

/// One slot.
#[derive(Clone, Debug)]
pub struct Slot {
    pub(super) id: SlotId,
    pub(super) tokens: Vec<Token>,
    pub(super) running: Option<Running>,
    pub(super) last: Option<LastTask>,
    /// The time of the last release on the engine's own clock; -1 = never used.
    pub(super) last_used: i64,
    pub(super) restored: Option<Restored>,
}

impl Slot {
    pub(super) fn new(id: usize) -> Self {
        Self { id: SlotId(id), tokens: Vec::new(), running: None, last: None, last_used: -1, restored: None }
    }

    /// The slot's number.
    #[must_use]
    pub fn id(&self) -> SlotId {
        self.id
    }

    /// Whether a request runs in it.
    #[must_use]
    pub fn is_processing(&self) -> bool {
        self.running.is_some()
    }

    /// Tokens the request that runs here has said so far.
    #[must_use]
    pub fn said(&self) -> usize {
        self.last.filter(|_| self.is_processing()).map_or(0, |last| last.decoded)
    }

    /// How many tokens it holds (prompt and generated).
    #[must_use]
    pub fn held_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The last task that ran here, if any.
    #[must_use]
    pub fn id_task(&self) -> Option<TaskId> {
        self.last.map(|last| last.id)
    }

    /// It holds nothing any more.
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.restored = None;
    }

    /// What the RAM cache can make use of.
    pub(super) fn worth_keeping(&self) -> &[Token] {
        if self.restored.is_none_or(|restored| restored.reused) { &self.tokens } else { &[] }
    }

    /// How many tokens a prompt finds here. Of a restored state at least half has to fit.
    pub(super) fn found_by(&self, prompt: &[Token]) -> usize {
        let common = common_prefix(&self.tokens, prompt);
        let useless = |restored: Restored| !restored.reused || common * 2 < self.tokens.len();
        if self.restored.is_some_and(useless) { 0 } else { common }
    }

    /// A state was restored into it that has little to do with this prompt.
    pub(super) fn holds_anothers_state(&self, prompt: &[Token]) -> bool {
        self.restored.is_some() && common_prefix(&self.tokens, prompt) * 2 < self.tokens.len()
    }

    /// What `GET /slots` says of it.
    pub(super) fn to_json(&self, n_ctx: usize) -> Value {
        let mut shown = json!({
            "id": self.id.0, "n_ctx": n_ctx, "speculative": false,
            "is_processing": self.is_processing(),
        });
        let Some(last) = self.last else { return shown };
        shown["id_task"] = json!(last.id.0);
        // After a restore this is the file's count beside the number of the task before.
        shown["n_prompt_tokens"] = json!(self.tokens.len());
        shown["n_prompt_tokens_processed"] = json!(last.computed);
        shown["n_prompt_tokens_cache"] = json!(last.cached);
        shown["params"] = json!({"n_predict": last.limit, "temperature": 0.8});
        shown["next_token"] = json!([{
            "has_next_token": self.is_processing(), "has_new_line": false,
            "n_remain": last.limit.saturating_sub(last.decoded), "n_decoded": last.decoded,
        }]);
        shown
    }
}
