//! The keys clients may come in with, and whose they are.

use std::collections::HashSet;
use std::path::Path;

use super::ConfigError;
use super::values::Secret;

/// The longest name of a user, in bytes.
const NAME_MAX_BYTES: usize = 64;

/// A key, and the user it was given to.
#[derive(Debug, Clone)]
pub struct ClientKey {
    /// Whose it is; `None` where there is one key for all.
    pub user: Option<String>,
    /// The key.
    pub key: Secret,
}

impl ClientKey {
    /// Reads a file that holds one key, or a line `NAME KEY` for each user.
    pub(super) fn read(option: &'static str, path: &Path) -> Result<Vec<Self>, ConfigError> {
        let bytes = super::values::key_file(option, path)?;
        let bad =
            |line: usize, problem| ConfigError::BadKeys { option, path: path.to_owned(), line, problem };
        let text = std::str::from_utf8(&bytes).map_err(|_| bad(1, "is not text"))?;
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            keys.push((index + 1, Self::parse(line).map_err(|problem| bad(index + 1, problem))?));
        }
        if keys.is_empty() {
            return Err(bad(1, "is empty"));
        }
        let (mut users, mut secrets) = (HashSet::new(), HashSet::new());
        let several = keys.len() > 1;
        for (line, key) in &keys {
            if several && key.user.is_none() {
                return Err(bad(*line, "has no name, though there are several keys"));
            }
            if !users.insert(&key.user) {
                return Err(bad(*line, "gives a name again"));
            }
            if !secrets.insert(key.key.expose()) {
                return Err(bad(*line, "gives a key again"));
            }
        }
        Ok(keys.into_iter().map(|(_, key)| key).collect())
    }

    fn parse(line: &str) -> Result<Self, &'static str> {
        let mut words = line.split_ascii_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(key), None, _) => Ok(Self { user: None, key: secret(key)? }),
            (Some(name), Some(key), None) if is_name(name) => {
                Ok(Self { user: Some(name.to_owned()), key: secret(key)? })
            }
            (Some(_), Some(_), None) => {
                Err("has a name with other characters than letters, digits, '.', '_' and '-', or a long one")
            }
            _ => Err("has more than a name and a key"),
        }
    }
}

fn secret(key: &str) -> Result<Secret, &'static str> {
    Secret::new(key).ok_or("has a key with characters that are not ASCII")
}

fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    name.len() <= NAME_MAX_BYTES && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<ClientKey>, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        ClientKey::read("--api-key-file", file.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_alone_is_everybodys() {
        let keys = read(" k1 \r\n\n").expect("a key");
        assert_eq!((keys.len(), &keys[0].user, keys[0].key.expose()), (1, &None, "k1"));
    }

    #[test]
    fn each_line_is_a_user() {
        let keys = read("ann k1\n\nbob\tk2\n").expect("keys");
        let keys: Vec<_> = keys.iter().map(|key| (key.user.as_deref(), key.key.expose())).collect();
        assert_eq!(keys, [(Some("ann"), "k1"), (Some("bob"), "k2")]);
    }

    #[test]
    fn what_would_mix_users_up_is_refused_with_its_line_and_without_the_key() {
        for (text, line, problem) in [
            ("ann sec\nsec2", 2, "no name"),
            ("sec\nbob sec2", 1, "no name"),
            ("ann sec\nann sec2", 2, "name again"),
            ("ann sec\n\nbob sec", 3, "key again"),
            ("a b sec", 1, "more than"),
            ("a/b sec", 1, "name with other"),
            ("ann s\u{e9}c", 1, "not ASCII"),
            ("", 1, "empty"),
            (" \n", 1, "empty"),
        ] {
            let message = read(text).expect_err("refused");
            assert!(message.contains(problem) && message.contains(&format!("line {line}")), "{message}");
            assert!(message.contains("NAME KEY") && !message.contains("sec"), "{message}");
        }
    }
}
