//! Rules of the user's that make one session of several ids.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};

/// The most memory one compiled pattern may take, in bytes: a rule is a line, not a program.
const PATTERN_MAX_BYTES: usize = 1 << 20;

/// One rule: where the pattern matches first, the match is replaced. Matching takes linear time whatever the pattern.
#[derive(Debug, Clone)]
pub struct Rewrite {
    pattern: Regex,
    replace: String,
}

/// Why a rule can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// The pattern is no regular expression, or a too large one.
    #[error("the pattern {pattern:?} can't be used: {reason}")]
    Pattern {
        /// As it was given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The replacement names a group that the pattern does not have.
    #[error(
        "the replacement {replace:?} names the group {group:?}, which the pattern does not have; \
         write ${{1}} where a letter, digit or _ follows, and $$ for a dollar sign"
    )]
    Group {
        /// As it was given.
        replace: String,
        /// The name without a group.
        group: String,
    },
}

impl Rewrite {
    /// Compiles a rule. `replace` refers to groups of the pattern as `$1`, `${1}` or `$name`.
    ///
    /// # Errors
    /// See [`RewriteError`].
    pub fn new(pattern: &str, replace: &str) -> Result<Self, RewriteError> {
        let compiled = RegexBuilder::new(pattern).size_limit(PATTERN_MAX_BYTES).build();
        let compiled = compiled.map_err(|error| RewriteError::Pattern {
            pattern: pattern.to_owned(),
            reason: last_line(&error.to_string()).to_owned(),
        })?;
        if let Some(group) = groups(replace).find(|group| !has_group(&compiled, group)) {
            return Err(RewriteError::Group { replace: replace.to_owned(), group: group.to_owned() });
        }
        Ok(Self { pattern: compiled, replace: replace.to_owned() })
    }

    /// The pattern as it was given.
    #[must_use]
    pub fn pattern(&self) -> &str {
        self.pattern.as_str()
    }

    /// The replacement as it was given.
    #[must_use]
    pub fn replacement(&self) -> &str {
        &self.replace
    }

    pub(super) fn apply<'a>(&self, id: Cow<'a, str>) -> Cow<'a, str> {
        match self.pattern.replace(&id, self.replace.as_str()) {
            Cow::Borrowed(_) => id,
            Cow::Owned(rewritten) => rewritten.into(),
        }
    }
}

/// The library draws a picture of the pattern first; the reason is in the last line.
fn last_line(message: &str) -> &str {
    message.trim_end().rsplit('\n').next().unwrap_or(message).trim_start_matches("error: ")
}

/// The groups a replacement refers to, read as the library reads them: a missing one would silently become nothing.
fn groups(replace: &str) -> impl Iterator<Item = &str> {
    let mut rest = replace;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('$')? + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                rest = after;
                continue;
            }
            let name = match rest.strip_prefix('{') {
                Some(braced) => braced.split_once('}').map_or("", |(name, _)| name),
                None => {
                    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    &rest[..end.unwrap_or(rest.len())]
                }
            };
            if !name.is_empty() {
                return Some(name);
            }
        }
    })
}

fn has_group(pattern: &Regex, group: &str) -> bool {
    match group.parse::<usize>() {
        Ok(number) => number < pattern.captures_len(),
        Err(_) => pattern.capture_names().flatten().any(|name| name == group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(pattern: &str, replace: &str, id: &str) -> String {
        Rewrite::new(pattern, replace).expect("a rule").apply(id.into()).into_owned()
    }

    #[test]
    fn a_match_is_replaced_and_other_ids_stay() {
        let rule = |id| rewritten(r"^job-(\w+)-\d+$", "job:$1", id);
        assert_eq!(rule("job-backup-17"), "job:backup");
        assert_eq!(rule("job-backup-17\n"), "job-backup-17\n");
        assert_eq!(rule("ajob-backup-17"), "ajob-backup-17");
    }

    #[test]
    fn groups_have_numbers_or_names_and_a_dollar_sign_can_be_written() {
        assert_eq!(rewritten("(?<who>[a-z]+)-(x)", "${who}_$2 $$1 $0", "bob-x"), "bob_x $1 bob-x");
    }

    #[test]
    fn a_group_that_is_not_there_is_refused() {
        for (replace, group) in [("job:$2", "2"), ("$1a", "1a"), ("${name}", "name"), ("$$ $x", "x")] {
            let error = Rewrite::new("(.)", replace).expect_err("refused");
            assert_eq!(error, RewriteError::Group { replace: replace.into(), group: group.into() });
        }
    }

    #[test]
    fn a_bad_or_huge_pattern_is_refused_with_its_reason() {
        for (pattern, reason) in
            [("(", "unclosed group"), (r"(a)\1", "backreferences"), (r"(\w{100}){100}", "size limit")]
        {
            let message = Rewrite::new(pattern, "").expect_err("refused").to_string();
            assert!(message.contains(reason) && !message.contains('\n'), "{message}");
        }
    }
}
