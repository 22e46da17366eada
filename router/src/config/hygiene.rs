//! The section `[hygiene]` of the file: which agents' requests are changed so that more of them can be reused.

use serde::Deserialize;

/// What is changed in requests so that they begin as the ones before. Nothing, unless the user wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hygiene {
    /// Claude Code's billing line, which changes from request to request, is replaced by a constant.
    pub claude_code: bool,
}

/// What the file says about it; there are no flags or variables for it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HygieneSettings {
    claude_code: Option<bool>,
}

impl HygieneSettings {
    pub(super) fn into_hygiene(self) -> Hygiene {
        Hygiene { claude_code: self.claude_code.unwrap_or_default() }
    }
}

/// The section, as a file would have it.
pub(super) fn to_toml(hygiene: Hygiene) -> String {
    ["\n[hygiene]\n".to_owned(), super::line("claude_code", hygiene.claude_code)].concat()
}
