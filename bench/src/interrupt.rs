//! How a benchmark ends early: normally, so that the programs it has started end with it.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Does `work`, unless Ctrl-C or SIGTERM comes before it is done: only then are the started programs dropped, and so
/// ended.
///
/// # Errors
/// Those of `work`, and that it was interrupted.
pub async fn unless_interrupted<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => return done,
        _ = tokio::signal::ctrl_c() => (),
        _ = terminate.recv() => (),
    }
    Err(io::Error::other("interrupted"))
}
