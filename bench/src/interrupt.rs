//! How a benchmark ends early: normally, so that the programs it has started end with it.

use std::io;
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

/// Does `work`, unless Ctrl-C or SIGTERM comes before it is done: only then are the started programs dropped, and so
/// ended.
///
/// # Errors
/// Those of `work`, and that it was interrupted.
async fn unless_interrupted<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => return done,
        _ = tokio::signal::ctrl_c() => (),
        _ = terminate.recv() => (),
    }
    Err(io::Error::other("interrupted"))
}

/// Does the work of a program's `main` so, and tells what its exit code is: 0, or 1 if `work` ends with false and that
/// `counts`, or 2 with a line on stderr for an error.
pub async fn exit_code(work: impl Future<Output = io::Result<bool>>, counts: bool) -> ExitCode {
    match unless_interrupted(work).await {
        Ok(good) if good || !counts => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
