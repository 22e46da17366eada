//! What is edited in a body on its way to a server, and into what.

use session_slot_identity::members::Fate;

use super::Role;

/// What becomes of the member `id_slot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEdit {
    /// It names this slot, whatever was there.
    Set(u32),
    /// It is taken out.
    Remove,
    /// It stays as the client wrote it, or stays away.
    Keep,
}

impl SlotEdit {
    /// What becomes of an `id_slot` that is there, which names `slot` if it is set.
    fn fate(self, slot: &str) -> Fate<'_> {
        match self {
            Self::Set(_) => Fate::Set(slot),
            Self::Remove => Fate::Remove,
            Self::Keep => Fate::Keep,
        }
    }
}

/// What becomes of the routing members `agent_session_id`, `agent_name` and `client_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MembersEdit<'a> {
    /// They are taken out: a llama-server gets the body.
    #[default]
    Remove,
    /// They stay: another router gets the body, and no session is known.
    Keep,
    /// They stay, and `agent_session_id` is this: another router gets the body.
    Session(&'a str),
}

/// What becomes of a body on its way to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edits<'a> {
    /// Of `id_slot`.
    pub slot: SlotEdit,
    /// Every `model` there is gets this value; `None`: it stays.
    pub model: Option<&'a str>,
    /// Of the routing members.
    pub members: MembersEdit<'a>,
}

/// The edits for a llama-server that knows the model by the name the client used.
impl From<SlotEdit> for Edits<'_> {
    fn from(slot: SlotEdit) -> Self {
        Self { slot, model: None, members: MembersEdit::Remove }
    }
}

/// The new values of the members that get one, as raw JSON; empty for the others.
pub(super) struct Texts {
    pub(super) slot: String,
    pub(super) session: String,
    pub(super) model: String,
}

impl Texts {
    pub(super) fn of(edits: &Edits<'_>) -> Self {
        let slot = if let SlotEdit::Set(slot) = edits.slot { slot.to_string() } else { String::new() };
        let session = match edits.members {
            MembersEdit::Session(session) => json_text(session),
            MembersEdit::Remove | MembersEdit::Keep => String::new(),
        };
        Self { slot, session, model: edits.model.map_or_else(String::new, json_text) }
    }

    pub(super) fn fate(&self, edits: &Edits<'_>, role: Role) -> Fate<'_> {
        match (role, edits.members) {
            (Role::Slot, _) => edits.slot.fate(&self.slot),
            (Role::Model, _) => edits.model.map_or(Fate::Keep, |_| Fate::Set(&self.model)),
            (_, MembersEdit::Remove) => Fate::Remove,
            (Role::Session, MembersEdit::Session(_)) => Fate::Set(&self.session),
            (_, MembersEdit::Keep | MembersEdit::Session(_)) => Fate::Keep,
        }
    }
}

/// `text` as raw JSON.
fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
