//! The name of a session, checked once and cheap to pass around.

use std::fmt;
use std::sync::Arc;

use crate::routing_id;

/// The name of one conversation of one agent: 1 to [`SessionId::MAX_BYTES`] bytes (and the user's name before them, see
/// [`SessionId::of_user`]), with the cron rule applied.
///
/// Cloning shares the text. `Display` writes it as it is: escape control characters before it goes into a log.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// The longest id accepted, in bytes of UTF-8.
    pub const MAX_BYTES: usize = 512;

    /// Takes the id an agent sent and applies [`routing_id`] to it.
    ///
    /// # Errors
    /// [`SessionIdError::Empty`] and [`SessionIdError::TooLong`]; the length counted is that of `raw`.
    pub fn new(raw: &str) -> Result<Self, SessionIdError> {
        match raw.len() {
            0 => Err(SessionIdError::Empty),
            bytes if bytes > Self::MAX_BYTES => Err(SessionIdError::TooLong { bytes }),
            _ => Ok(Self(routing_id(raw).into())),
        }
    }

    /// The same id among those of one of several users: `USER/ID`.
    #[must_use]
    pub fn of_user(&self, user: &str) -> Self {
        Self(format!("{user}/{}", self.0).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text can't name a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionIdError {
    /// There is nothing in it.
    Empty,
    /// It is longer than [`SessionId::MAX_BYTES`].
    TooLong {
        /// Its length in bytes of UTF-8.
        bytes: usize,
    },
}

impl fmt::Display for SessionIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a session id must not be empty"),
            Self::TooLong { bytes } => {
                write!(
                    f,
                    "a session id may have at most {} bytes, this one has {bytes}",
                    SessionId::MAX_BYTES
                )
            }
        }
    }
}

impl std::error::Error for SessionIdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_kept_as_sent() {
        let id = SessionId::new("Tab\there ✓").expect("a valid id");
        assert_eq!(id.as_str(), "Tab\there ✓");
        assert_eq!(id.to_string(), "Tab\there ✓");
    }

    #[test]
    fn two_runs_of_one_cron_job_are_one_session() {
        let morning = SessionId::new("cron_0123456789ab_20260131_080000");
        let evening = SessionId::new("cron_0123456789ab_20260131_200000");
        assert_eq!(morning, evening);
        assert_eq!(morning.expect("a valid id").as_str(), "cron:0123456789ab");
    }

    #[test]
    fn two_users_never_share_a_session() {
        let id = SessionId::new("s").expect("a valid id");
        assert_ne!(id.of_user("ann"), id.of_user("bob"));
        assert_eq!(id.of_user("ann").as_str(), "ann/s");
    }

    #[test]
    fn an_empty_id_is_refused() {
        assert_eq!(SessionId::new(""), Err(SessionIdError::Empty));
    }

    #[test]
    fn length_is_counted_in_bytes_and_ends_at_512() {
        assert!(SessionId::new(&"é".repeat(256)).is_ok());
        let error = SessionId::new(&"x".repeat(513)).expect_err("too long");
        assert_eq!(error, SessionIdError::TooLong { bytes: 513 });
        assert_eq!(error.to_string(), "a session id may have at most 512 bytes, this one has 513");
    }
}
