//! The section `[identity]` of the file: where sessions are looked for, and the user's rules for their ids.

use serde::Deserialize;

use crate::identify::{Rewrite, RewriteError, Rules, Source};

/// What the file says about sessions; there are no flags or variables for it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentitySettings {
    sources: Option<Vec<Source>>,
    disabled: Vec<Source>,
    split_subagents: Option<bool>,
    rewrite: Vec<Rewrite>,
}

impl IdentitySettings {
    pub(super) fn into_rules(self, warnings: &mut Vec<String>) -> Rules {
        let default = Rules::default();
        let mut sources = self.sources.unwrap_or(default.sources);
        for unknown in self.disabled.iter().filter(|source| !sources.contains(source)) {
            warnings
                .push(format!("identity.disabled names {unknown}, which is not among the sources anyway"));
        }
        sources.retain(|source| !self.disabled.contains(source));
        let split_subagents = self.split_subagents.unwrap_or(default.split_subagents);
        Rules { sources, rewrites: self.rewrite, split_subagents }
    }
}

impl<'de> Deserialize<'de> for Rewrite {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Rule {
            pattern: String,
            replace: String,
        }
        let rule = Rule::deserialize(deserializer)?;
        Self::new(&rule.pattern, &rule.replace).map_err(|error: RewriteError| serde::de::Error::custom(error))
    }
}

/// The section, as a file would have it.
pub(super) fn to_toml(rules: &Rules) -> String {
    let sources: Vec<_> = rules.sources.iter().map(Source::to_string).collect();
    let mut text = "\n[identity]\n".to_owned();
    text += &super::line("sources", sources);
    text += &super::line("split_subagents", rules.split_subagents);
    for rule in &rules.rewrites {
        text += "\n[[identity.rewrite]]\n";
        text += &super::line("pattern", rule.pattern());
        text += &super::line("replace", rule.replacement());
    }
    text
}
