//! Which agent sent a request, and whether one of its subagents did, where no member of ours says so.

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName};

use crate::body::Parsed;

/// What gives an agent away: a header whose name begins so, or a `User-Agent` that does, in lower case. As observed of
/// Claude Code 2.1.332, Codex 0.171.0 and opencode 1.18.33; the others as read in their code or documentation.
const AGENTS: [(&str, &[&str], &[&str]); 7] = [
    ("claude-code", &["x-claude-code-"], &["claude-cli/"]),
    ("codex", &["x-codex-"], &["codex"]),
    ("opencode", &["x-opencode-"], &["opencode/"]),
    ("kilo", &[], &["kilo"]),
    ("cline", &["x-task-id"], &["cline"]),
    ("open-webui", &["x-openwebui-"], &[]),
    ("litellm", &["x-litellm-"], &["litellm"]),
];

/// The name of the agent that sent this.
pub(super) fn recognised(headers: &HeaderMap, body: &Parsed) -> Option<&'static str> {
    let program = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).map(str::to_ascii_lowercase);
    let program = program.unwrap_or_default();
    let begins = |text: &str, beginnings: &[&str]| beginnings.iter().any(|start| text.starts_with(start));
    let known = AGENTS.iter().find(|(_, names, programs)| {
        begins(&program, programs) || headers.keys().any(|name| begins(name.as_str(), names))
    });
    known.map(|(agent, ..)| *agent).or(body.claude_session().map(|_| "claude-code"))
}

/// A conversation of its own that goes by the session of the agent that started it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subagent<'a> {
    /// What tells it from its parent and siblings.
    pub(super) id: &'a str,
    /// The header that holds it.
    pub(super) header: HeaderName,
    /// The session or thread it was started by, where a header names it.
    pub(super) parent: Option<&'a str>,
}

/// Where agents say which of their subagents it is, and which header has to be there too. Observed: Claude Code's
/// subagents send their parent's session id and this header, Codex' send the parent's `session-id` and a `thread-id` of
/// their own. (opencode's have a session of their own.)
const SUBAGENTS: [(&str, &str); 2] =
    [("x-claude-code-agent-id", "x-claude-code-agent-id"), ("thread-id", CODEX_PARENT)];

const CODEX_PARENT: &str = "x-codex-parent-thread-id";

/// The subagent that sent this, if one did.
pub(super) fn subagent(headers: &HeaderMap) -> Option<Subagent<'_>> {
    let (header, _) = SUBAGENTS.iter().find(|(_, sign)| headers.contains_key(*sign))?;
    let header = HeaderName::from_static(header);
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok().filter(|text| !text.is_empty());
    Some(Subagent { id: text(&header)?, parent: text(&HeaderName::from_static(CODEX_PARENT)), header })
}
