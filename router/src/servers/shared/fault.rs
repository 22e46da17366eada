//! Why the shared homes can't be had.

/// Never quotes the URL, nor what a server says beyond the code of its error: either could hold the password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[cfg_attr(
    not(feature = "shared"),
    allow(dead_code, reason = "there is nothing that could fail in these ways")
)]
pub(super) enum Fault {
    /// Too slow.
    #[error("it does not answer in time")]
    Late,
    /// No connection.
    #[error("it can't be reached")]
    Unreachable,
    /// There was a connection.
    #[error("the connection broke")]
    Broken,
    /// It does not understand what is asked.
    #[error("it is too old: Valkey, or Redis 7.0 or later, is needed")]
    TooOld,
    /// It says no.
    #[error("it answers with the error {0}")]
    Refused(String),
    /// The configuration is wrong.
    #[error("its URL is none of a Valkey or Redis")]
    BadUrl,
    /// It can't be used by this program.
    #[error("this router was built without the feature `shared`")]
    #[cfg_attr(feature = "shared", allow(dead_code, reason = "it was built with it"))]
    NotBuilt,
}
