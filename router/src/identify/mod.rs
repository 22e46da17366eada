//! Which session a request belongs to: from our own member, or from a signal its agent sends anyway.
//!
//! Nothing is taken out here: headers and members that are the agent's own reach the server.

mod agent;
mod rewrite;
mod source;

use http::HeaderMap;
use session_slot_identity::{SessionId, routing_id};

pub use rewrite::{Rewrite, RewriteError};
pub use source::{Source, SourceError};

use crate::body::Parsed;
use agent::Subagent;

/// Child sessions name their parent's here (opencode, Kilo).
const PARENT: &str = "x-parent-session-id";
/// Codex's window: one conversation on a screen.
const WINDOW: &str = "x-codex-window-id";
/// How much of a recorded header is kept, in bytes.
const RECORDED_MAX_BYTES: usize = SessionId::MAX_BYTES;
/// How long rules may make an id on the way to a shorter one, in bytes: each of them can double it.
const REWRITTEN_MAX_BYTES: usize = 16 * SessionId::MAX_BYTES;

/// Where sessions are looked for, and how their ids are rewritten.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The first of these that names a session wins.
    pub sources: Vec<Source>,
    /// Applied in order, each to what the one before left.
    pub rewrites: Vec<Rewrite>,
    /// A subagent that goes by its parent's session id gets a session of its own.
    pub split_subagents: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { sources: Source::defaults(), rewrites: Vec::new(), split_subagents: true }
    }
}

/// What a request says of itself.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    /// The key under which the session is routed.
    pub(crate) session: Option<SessionId>,
    /// Where the id was found.
    pub(crate) source: Option<Source>,
    /// The first further source that names another session.
    pub(crate) conflict: Option<Source>,
    /// Sources whose ids can't be used.
    pub(crate) rejected: Vec<(Source, Unusable)>,
    /// The agent as it names itself, or as it was recognised.
    pub(crate) agent_name: Option<String>,
    /// How the agent is driven.
    pub(crate) client_type: Option<String>,
    /// The key of the session this one was started by.
    pub(crate) parent: Option<SessionId>,
    /// Codex's window.
    pub(crate) window: Option<String>,
}

/// Why the id an agent sends for its own purposes is not used. Never quotes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("it is longer than {} bytes", SessionId::MAX_BYTES)]
    TooLong,
    #[error("it holds control characters")]
    Control,
    #[error("it is not UTF-8")]
    NotText,
}

impl Rules {
    /// Looks through the sources, in order. `user` is whose key the request came with; it is part of the session's key,
    /// so that two users never share one.
    pub(crate) fn identify(&self, headers: &HeaderMap, body: &Parsed, user: Option<&str>) -> Identity {
        let mut identity = Identity {
            agent_name: body.agent_name().or_else(|| agent::recognised(headers, body)).map(str::to_owned),
            client_type: body.client_type().map(str::to_owned),
            parent: recorded(headers, PARENT).and_then(|parent| self.key(&parent, user)),
            window: recorded(headers, WINDOW),
            ..Identity::default()
        };
        for source in &self.sources {
            match source.read(headers, body) {
                Ok(None) => {}
                Ok(Some(raw)) => identity.heard(source, self.key(raw, user)),
                Err(why) => identity.rejected.push((source.clone(), why)),
            }
        }
        if self.split_subagents
            && let Some(subagent) = agent::subagent(headers)
        {
            let parent = subagent.parent.and_then(|parent| self.key(parent, user));
            identity.split(&subagent, parent);
        }
        identity
    }

    /// The key of the session that an agent calls `raw`.
    ///
    /// The cron rule comes first, so that users' rules see a job's runs as one whether or not a hook has applied it.
    fn key(&self, raw: &str, user: Option<&str>) -> Option<SessionId> {
        let id = routing_id(raw);
        let rewritten = self.rewrites.iter().try_fold(id.clone(), |id, rule| {
            Some(rule.apply(id)).filter(|rewritten| rewritten.len() <= REWRITTEN_MAX_BYTES)
        });
        // A rule that leaves nothing, or makes too much of it, has misfired: the id as it was is better than none.
        let rewritten = rewritten.and_then(|id| SessionId::new(&id).ok());
        let id = rewritten.or_else(|| SessionId::new(&id).ok())?;
        Some(user.map_or(id.clone(), |user| id.of_user(user)))
    }
}

impl Identity {
    /// The prompt of a subagent has little in common with its parent's: in one slot they would take it from each other.
    /// An id that was put there for us means what it says.
    fn split(&mut self, subagent: &Subagent<'_>, parent: Option<SessionId>) {
        let Some(session) = self.session.as_ref().filter(|_| self.source != Some(Source::Ours)) else {
            return;
        };
        match SessionId::new(&format!("{session}/{}", subagent.id)) {
            Ok(own) => {
                self.parent = parent.or_else(|| Some(session.clone()));
                self.session = Some(own);
            }
            Err(_) => self.rejected.push((Source::Header(subagent.header.clone()), Unusable::TooLong)),
        }
    }

    fn heard(&mut self, source: &Source, key: Option<SessionId>) {
        match (&self.session, key) {
            (_, None) => {}
            (None, Some(key)) => (self.session, self.source) = (Some(key), Some(source.clone())),
            (Some(session), Some(key)) => {
                if *session != key && self.conflict.is_none() {
                    self.conflict = Some(source.clone());
                }
            }
        }
    }
}

fn recorded(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = std::str::from_utf8(headers.get(name)?.as_bytes()).ok()?;
    let text = &text[..text.floor_char_boundary(RECORDED_MAX_BYTES)];
    if text.is_empty() { None } else { Some(text.to_owned()) }
}

#[cfg(test)]
mod tests;
