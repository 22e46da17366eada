//! What is true of the router as a whole, whichever server a request goes to: it is stopping, and counts of its own.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::watch;

/// The router in front of its servers.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// The drain is over: whoever still runs is told so and ends.
    stopped: watch::Sender<bool>,
    counts: Mutex<Counts>,
}

/// Counts since the router's start.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Signs of life that waiting clients were sent.
    pub(crate) keepalives: u64,
    /// Streams that had begun and fell silent.
    pub(crate) stalled: u64,
    /// Requests in which Claude Code's billing line was replaced.
    pub(crate) billing_lines_replaced: u64,
}

impl Front {
    /// Has the answers end that still run.
    pub(crate) fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Ends when the drain is over.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stopped = self.stopped.subscribe();
        async move {
            // An error means that the router itself is gone.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        }
    }

    /// Counts something.
    pub(crate) fn note(&self, count: impl FnOnce(&mut Counts)) {
        count(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
