//! What is known of a session besides its id.

use serde::{Serialize, Serializer};

use crate::identify::Source;

/// The session as it introduced itself. Recorded, never used to choose a slot.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Who {
    /// `agent_name`, or the agent recognised.
    pub agent_name: Option<String>,
    /// `client_type`; `None` where nothing tells.
    pub client_type: Option<String>,
    /// Where the session's id was found.
    #[serde(serialize_with = "as_text")]
    pub source: Option<Source>,
    /// The session that started this one.
    pub parent: Option<String>,
    /// Codex's window.
    pub window: Option<String>,
}

impl Who {
    /// What a later request says; what it leaves out stays as it was.
    pub(super) fn update(&mut self, later: &Self) {
        let update = |known: &mut Option<String>, said: &Option<String>| {
            if said.is_some() && known != said {
                known.clone_from(said);
            }
        };
        update(&mut self.agent_name, &later.agent_name);
        update(&mut self.client_type, &later.client_type);
        update(&mut self.parent, &later.parent);
        update(&mut self.window, &later.window);
        self.source.clone_from(&later.source);
    }
}

fn as_text<S: Serializer>(source: &Option<Source>, to: S) -> Result<S::Ok, S::Error> {
    source.as_ref().map(Source::to_string).serialize(to)
}
