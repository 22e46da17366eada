//! What is logged on this thread, for tests to read.

use std::io::{Result, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Level;
use tracing::subscriber::DefaultGuard;

/// Lines as a person would see them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Logged(Arc<Mutex<Vec<u8>>>);

impl Logged {
    /// Listens until the guard is dropped.
    pub(crate) fn listen(level: Level) -> (Self, DefaultGuard) {
        let logged = Self::default();
        let writer = logged.clone();
        let subscriber = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
        let subscriber = subscriber.with_writer(move || writer.clone()).finish();
        (logged, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// How often these words were logged.
    pub(crate) fn count(&self, words: &str) -> usize {
        self.text().matches(words).count()
    }
}

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
