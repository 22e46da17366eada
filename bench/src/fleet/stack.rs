//! Fresh real llama-servers with one of the ways before them; all of it ends with the value.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::{Case, Fronts, Way};
use crate::peers::{self, Peer};
use crate::warm::Settings;

/// The servers, and how each is started.
#[derive(Clone, Debug)]
pub struct Servers {
    /// How many.
    pub count: usize,
    /// A Python that can run the launcher.
    pub python: PathBuf,
    /// `scripts/llama_server.py`.
    pub launcher: PathBuf,
    /// The model file.
    pub model: PathBuf,
    /// Threads of each.
    pub threads: usize,
    /// Tokens over all slots of each.
    pub context: usize,
    /// The same where there is too little.
    pub small_context: usize,
}

/// Servers and what stands before them.
#[derive(Debug)]
pub(super) struct Stack {
    // Ends before the servers it forwards to.
    front: Peer,
    servers: Vec<Peer>,
    // Logs and configurations; removed at the end.
    _folder: tempfile::TempDir,
}

impl Servers {
    /// All of them, with `way` before them.
    pub(super) fn start(
        &self,
        (settings, case): (Settings, Case),
        way: Way,
        fronts: &Fronts,
    ) -> io::Result<Stack> {
        let folder = tempfile::tempdir()?;
        let flags = self.flags(settings, case);
        let servers: Vec<_> = (0..self.count)
            .map(|_| peers::llama(&self.python, &self.launcher, &flags, folder.path()))
            .collect::<io::Result<_>>()?;
        let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
        let front = fronts.start(way, &addresses, folder.path())?;
        Ok(Stack { front, servers, _folder: folder })
    }

    fn flags(&self, settings: Settings, case: Case) -> Vec<String> {
        let context = if case == Case::Small { self.small_context } else { self.context };
        let named = [
            ("--model", self.model.display().to_string()),
            ("--ctx-size", context.to_string()),
            ("--threads", self.threads.to_string()),
        ];
        let mut flags: Vec<_> = settings.flags().iter().map(|flag| (*flag).to_owned()).collect();
        flags.extend(named.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        // As with the many models that have no sliding window.
        flags.push("--swa-full".to_owned());
        flags
    }
}

impl Stack {
    /// Where agents send.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.front.address)
    }

    /// The llama-servers themselves.
    pub(super) fn servers(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|server| format!("http://{}", server.address))
    }
}
