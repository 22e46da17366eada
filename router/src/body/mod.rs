//! Takes the routing members out of a JSON body and sets `id_slot` and `model`, keeping every other byte.
//!
//! Only the top level of the object is looked at: nested members mean nothing (but for the one place where an agent of
//! its own accord keeps its session id, and for a line of Claude Code's system text: `billing`).

mod billing;
mod edits;
#[cfg(test)]
mod tests;
mod values;

use bytes::Bytes;
use session_slot_identity::SessionId;
use session_slot_identity::member;
use session_slot_identity::members::{self, Fate, Layout};
use thiserror::Error;

pub use billing::without_billing;
use edits::Texts;
pub use edits::{Edits, MembersEdit, SlotEdit};
use values::{
    asked_slot, claude_session, count, label_text, limit, list_length, model_text, session_text, signal_text,
    truncated,
};

/// Names the slot.
const SLOT: &str = "id_slot";
/// Names the model.
const MODEL: &str = "model";
/// How much of the client's own `id_slot` is kept for the log, in bytes.
const ASKED_TEXT_MAX_BYTES: usize = 32;
/// The longest name among the members that matter.
const NAME_MAX_BYTES: usize = "max_completion_tokens".len();
/// How many members are noted, besides as many named `model`. Only these and `id_slot` may repeat at all; without a limit
/// a body made of nothing else would take many times its size in memory.
const MARKS_MAX: usize = 64;

/// What a JSON object body says about routing, and where it says so.
///
/// Made by [`parse`]. It owns its facts and refers to the body by byte offsets only.
#[derive(Debug)]
pub struct Parsed {
    layout: Layout<Role>,
    session: Option<String>,
    agent_name: Option<String>,
    client_type: Option<String>,
    asked_slot: AskedSlot,
    asked_slot_text: Option<String>,
    streams: bool,
    claude_session: Option<String>,
    prompt_cache_key: Option<String>,
    answers: u32,
    lengths: Lengths,
    model: Option<String>,
    /// Not all members named `model` are noted.
    models_overfull: bool,
    max_output: Option<u64>,
}

/// Where a route takes several prompts from, if there is a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// From nowhere: a chat is one prompt.
    None,
    /// `prompt`: completions.
    Prompt,
    /// `input` or `content`: embeddings.
    Input,
    /// `documents` or `texts`: reranking.
    Documents,
}

/// How many prompts each list holds.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    prompt: u32,
    input: u32,
    documents: u32,
}

/// The slot a body names by itself, as llama-server would read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedSlot {
    /// None: there is no `id_slot`, or one that llama-server takes for none.
    Absent,
    /// This one, before llama-server wraps it to its number of slots (it may be negative).
    Named(i64),
}

/// Why a body is refused. The messages say what to do and never quote the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BodyError {
    /// A routing member is there twice, so that it is unclear which one counts (or `id_slot` more often than is sane).
    #[error("\"{member}\" appears more than once in the request body: send it once")]
    Duplicate {
        /// The member's name.
        member: &'static str,
    },
    /// The session id is something that has no spelling as text.
    #[error("\"agent_session_id\" must be a string, not {found}: send a string, or leave it out")]
    SessionType {
        /// What it is, with its article.
        found: &'static str,
    },
    /// The session id is longer than [`SessionId::MAX_BYTES`].
    #[error(
        "\"agent_session_id\" may have at most {max} bytes, this one has {bytes}: send a shorter one",
        max = SessionId::MAX_BYTES
    )]
    SessionTooLong {
        /// Its decoded length in bytes.
        bytes: usize,
    },
    /// The session id holds an escape that stands for no character.
    #[error("\"agent_session_id\" holds half of a surrogate pair (\\uD800-\\uDFFF): send valid Unicode text")]
    SessionNotText,
}

/// Reads the routing members of `body`.
///
/// `Ok(None)` means that it is no JSON object (empty, malformed, another kind of value): forward it as it is, the
/// server will answer.
///
/// # Errors
/// Only for a well-formed object whose routing members can't be used; see [`BodyError`].
pub fn parse(body: &[u8]) -> Result<Option<Parsed>, BodyError> {
    let mut scan = Scan::new();
    let Some(layout) = Layout::of(body, |key, value| scan.look(key, value)) else {
        return Ok(None);
    };
    let session = scan.only(Role::Session)?;
    let agent_name = scan.only(Role::AgentName)?;
    let client_type = scan.only(Role::ClientType)?;
    if scan.overfull {
        return Err(BodyError::Duplicate { member: Role::Slot.name() });
    }
    let asked = scan.last(Role::Slot);
    Ok(Some(Parsed {
        session: session.map_or(Ok(None), session_text)?,
        agent_name: agent_name.and_then(label_text),
        client_type: client_type.and_then(label_text),
        asked_slot: asked.map_or(AskedSlot::Absent, asked_slot),
        asked_slot_text: asked.map(|raw| truncated(raw, ASKED_TEXT_MAX_BYTES).to_owned()),
        streams: scan.streams,
        claude_session: scan.claude_session,
        prompt_cache_key: scan.prompt_cache_key,
        answers: scan.answers,
        lengths: scan.lengths,
        model: scan.model.and_then(model_text),
        models_overfull: scan.models > MARKS_MAX,
        max_output: scan.max_output,
        layout,
    }))
}

impl Parsed {
    /// The decoded `agent_session_id` as sent (numbers as they are spelled in the body), 1 to 512 bytes.
    /// `None` if it is absent, null or empty.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The decoded `agent_name`, cut to 256 bytes; `None` unless it is a non-empty string or a number.
    pub fn agent_name(&self) -> Option<&str> {
        self.agent_name.as_deref()
    }

    /// The decoded `client_type`, cut to 256 bytes; `None` unless it is a non-empty string or a number.
    pub fn client_type(&self) -> Option<&str> {
        self.client_type.as_deref()
    }

    /// The slot llama-server would use for this body as the client sent it.
    pub fn asked_slot(&self) -> AskedSlot {
        self.asked_slot
    }

    /// How the client spelled `id_slot`, for the log: raw JSON of any type, cut to 32 bytes.
    pub fn asked_slot_text(&self) -> Option<&str> {
        self.asked_slot_text.as_deref()
    }

    /// The session id inside `metadata.user_id`, as Claude Code sends it; of any length up to 1 KiB.
    pub fn claude_session(&self) -> Option<&str> {
        self.claude_session.as_deref()
    }

    /// The `prompt_cache_key`, if it is a string; cut to 1 KiB.
    pub fn prompt_cache_key(&self) -> Option<&str> {
        self.prompt_cache_key.as_deref()
    }

    /// Whether the client asked for a stream (`"stream": true`).
    pub fn streams(&self) -> bool {
        self.streams
    }

    /// How many slots llama-server wants for it, at least 1: one for each answer (`n`, `n_cmpl`) to each prompt. Only
    /// one of them can be named.
    pub fn tasks(&self, lists: Lists) -> u32 {
        match lists {
            Lists::None => self.answers,
            Lists::Prompt => self.answers.saturating_mul(self.lengths.prompt),
            Lists::Input => self.lengths.input,
            Lists::Documents => self.lengths.documents,
        }
    }

    /// The decoded `model`, the last one if there are several, as for llama-server; cut to 1 KiB. `None` unless it is a
    /// string that is not empty.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The fewest tokens that a member limits the answer to; `None` if none does.
    pub fn max_output(&self) -> Option<u64> {
        self.max_output
    }

    /// The body with `edits` made; every other byte of `body` is kept.
    ///
    /// `body` must be the one this was parsed from. Where nothing changes, the very same bytes come back uncopied.
    ///
    /// # Panics
    /// May panic if `body` is another, shorter one.
    pub fn rewrite<'e>(&self, body: &Bytes, edits: impl Into<Edits<'e>>) -> Bytes {
        let edits = edits.into();
        let texts = Texts::of(&edits);
        let added = self.added(&edits, &texts);
        let fate = |role| texts.fate(&edits, role);
        let changed = !added.is_empty() || self.layout.marks().any(|role| fate(role) != Fate::Keep);
        if changed { self.layout.edited(body, fate, &added).into() } else { body.clone() }
    }

    /// What the body has no place for yet.
    fn added<'t>(&self, edits: &Edits<'_>, texts: &'t Texts) -> Vec<(&'static str, &'t str)> {
        let lacks = |wanted| !self.layout.marks().any(|role| role == wanted);
        let slot = matches!(edits.slot, SlotEdit::Set(_)) && lacks(Role::Slot);
        let session = matches!(edits.members, MembersEdit::Session(_)) && lacks(Role::Session);
        // The last one counts for a server, and not all were noted.
        let model = edits.model.is_some() && self.models_overfull;
        [(slot, SLOT, &texts.slot), (session, member::SESSION, &texts.session), (model, MODEL, &texts.model)]
            .into_iter()
            .filter(|(wanted, ..)| *wanted)
            .map(|(_, name, text)| (name, text.as_str()))
            .collect()
    }
}

/// What a member at the top level is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Session,
    AgentName,
    ClientType,
    Slot,
    Model,
    Stream,
    /// Where Claude Code keeps its session.
    Metadata,
    PromptCacheKey,
    /// How many answers are asked for.
    Answers,
    /// Lists of several prompts, where they are lists.
    Prompt,
    Input,
    Documents,
    /// How many tokens the answer may have.
    MaxOutput,
}

impl Role {
    /// `n_cmpl` is llama-server's own name for `n`, and `n_predict` for `max_tokens`.
    const NAMES: [(&'static str, Self); 19] = [
        (member::SESSION, Self::Session),
        (member::AGENT_NAME, Self::AgentName),
        (member::CLIENT_TYPE, Self::ClientType),
        (SLOT, Self::Slot),
        (MODEL, Self::Model),
        ("metadata", Self::Metadata),
        ("prompt_cache_key", Self::PromptCacheKey),
        ("stream", Self::Stream),
        ("n", Self::Answers),
        ("n_cmpl", Self::Answers),
        ("prompt", Self::Prompt),
        ("input", Self::Input),
        ("content", Self::Input),
        ("documents", Self::Documents),
        ("texts", Self::Documents),
        ("max_tokens", Self::MaxOutput),
        ("max_completion_tokens", Self::MaxOutput),
        ("max_output_tokens", Self::MaxOutput),
        ("n_predict", Self::MaxOutput),
    ];

    /// The name of a member that there is only one of.
    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, role)| *role == self).map_or("", |(name, _)| name)
    }

    /// The role of the member whose name is spelled `raw` in the body, quotes included.
    fn of(raw: &str) -> Option<Self> {
        let name = members::name(raw, NAME_MAX_BYTES)?;
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, role)| *role)
    }
}

/// What one walk over a body finds.
struct Scan<'a> {
    /// Raw JSON values of the members that may be edited.
    values: Vec<(Role, &'a str)>,
    /// There are more than [`MARKS_MAX`].
    overfull: bool,
    streams: bool,
    claude_session: Option<String>,
    prompt_cache_key: Option<String>,
    answers: u32,
    lengths: Lengths,
    /// The raw value of the last `model`.
    model: Option<&'a str>,
    /// How many there are.
    models: usize,
    max_output: Option<u64>,
}

impl<'a> Scan<'a> {
    fn new() -> Self {
        Self {
            values: Vec::new(),
            overfull: false,
            streams: false,
            claude_session: None,
            prompt_cache_key: None,
            answers: 1,
            lengths: Lengths { prompt: 1, input: 1, documents: 1 },
            model: None,
            models: 0,
            max_output: None,
        }
    }

    /// Takes down what one member says; its role if it may be edited.
    fn look(&mut self, key: &'a str, value: &'a str) -> Option<Role> {
        match Role::of(key)? {
            Role::Stream => self.streams = value == "true",
            Role::Metadata => self.claude_session = claude_session(value),
            Role::PromptCacheKey => self.prompt_cache_key = signal_text(value),
            Role::Answers => self.answers = self.answers.max(count(value)),
            Role::Prompt => self.lengths.prompt = list_length(value),
            Role::Input => self.lengths.input = list_length(value),
            Role::Documents => self.lengths.documents = list_length(value),
            Role::MaxOutput => self.max_output = self.max_output.into_iter().chain(limit(value)).min(),
            Role::Model => {
                self.model = Some(value);
                self.models += 1;
                return (self.models <= MARKS_MAX).then_some(Role::Model);
            }
            Role::Session | Role::AgentName | Role::ClientType | Role::Slot
                if self.values.len() == MARKS_MAX =>
            {
                self.overfull = true;
            }
            role @ (Role::Session | Role::AgentName | Role::ClientType | Role::Slot) => {
                self.values.push((role, value));
                return Some(role);
            }
        }
        None
    }

    /// The raw value of a member that may be there once at most.
    fn only(&self, role: Role) -> Result<Option<&'a str>, BodyError> {
        let mut values = self.of_role(role);
        let first = values.next();
        if values.next().is_some() { Err(BodyError::Duplicate { member: role.name() }) } else { Ok(first) }
    }

    /// The raw value that counts where a member may be there more than once.
    fn last(&self, role: Role) -> Option<&'a str> {
        self.of_role(role).last()
    }

    fn of_role(&self, role: Role) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(move |(of, _)| *of == role).map(|(_, value)| *value)
    }
}
