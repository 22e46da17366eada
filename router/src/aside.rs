//! Work that would hold everything else up is done on another thread.

/// Does `job` on another thread: it goes over many bytes, or waits for a disk.
pub(crate) async fn aside<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(job).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Not run because the runtime is shutting down: this task is about to be dropped as well.
            Err(_) => std::future::pending().await,
        },
    }
}
