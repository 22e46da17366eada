//! A fresh real llama-server with one of the ways before it; all of it ends with the value.

use std::io;
use std::path::{Path, PathBuf};

use super::{Case, Settings, Way};
use crate::peers::{self, Peer};

/// What is started, and how.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The router.
    pub router: PathBuf,
    /// hearth, if it is to be measured.
    pub hearth: Option<PathBuf>,
    /// A Python that can run the launcher.
    pub python: PathBuf,
    /// `scripts/llama_server.py`.
    pub launcher: PathBuf,
    /// The model file.
    pub model: PathBuf,
    /// Threads of llama-server.
    pub threads: usize,
    /// Tokens over all slots.
    pub context: usize,
    /// MiB of a RAM cache that is too short.
    pub short_cache: usize,
}

/// A server and what stands before it.
#[derive(Debug)]
pub(super) struct Stack {
    // Ends before the server it forwards to.
    front: Option<Peer>,
    llama: Peer,
    flags: Vec<String>,
    folder: tempfile::TempDir,
}

impl Stack {
    /// The server under `settings` and `way` before it.
    pub(super) fn start(programs: &Programs, settings: Settings, case: Case, way: Way) -> io::Result<Self> {
        let mut flags = if way == Way::Hearth { one_slot() } else { strings(settings.flags()) };
        if case == Case::Short {
            flags.extend(["--cache-ram".to_owned(), programs.short_cache.to_string()]);
        }
        let mut stack = Self::alone(programs, flags)?;
        stack.front = stack.start_front(programs, way)?;
        Ok(stack)
    }

    /// A server with one slot and nothing before it.
    pub(super) fn private(programs: &Programs) -> io::Result<Self> {
        Self::alone(programs, one_slot())
    }

    fn alone(programs: &Programs, mut flags: Vec<String>) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        flags.push("--swa-full".to_owned());
        let named = [
            ("--model", programs.model.display().to_string()),
            ("--ctx-size", programs.context.to_string()),
            ("--threads", programs.threads.to_string()),
            ("--slot-save-path", states(folder.path()).display().to_string()),
        ];
        flags.extend(named.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
        let llama = peers::llama(&programs.python, &programs.launcher, &flags, folder.path())?;
        Ok(Self { front: None, llama, flags, folder })
    }

    fn start_front(&self, programs: &Programs, way: Way) -> io::Result<Option<Peer>> {
        let (folder, upstream) = (self.folder.path(), self.llama.address);
        let evict = match way {
            Way::Direct => return Ok(None),
            Way::Hearth => {
                let hearth = programs.hearth.as_ref().ok_or_else(|| io::Error::other("no --hearth given"))?;
                return peers::hearth(hearth, upstream, &states(folder), folder).map(Some);
            }
            Way::Off | Way::Lru => "lru",
            Way::Cost => "cost",
        };
        let dir = states(folder).display().to_string();
        let config =
            format!("evict = \"{evict}\"\n[warm]\nenabled = {}\ndir = {}\n", way.saves(), quoted(&dir));
        peers::router_with(&programs.router, upstream, folder, &config).map(Some)
    }

    /// The server dies and comes back at the same address.
    pub(super) fn restart(self, programs: &Programs) -> io::Result<Self> {
        let Self { front, llama, flags, folder } = self;
        let port = llama.address.port().to_string();
        llama.crash()?;
        let again: Vec<_> = flags.iter().cloned().chain(["--port".to_owned(), port]).collect();
        let llama = peers::llama(&programs.python, &programs.launcher, &again, folder.path())?;
        Ok(Self { front, llama, flags, folder })
    }

    /// Where agents send.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.front.as_ref().unwrap_or(&self.llama).address)
    }

    /// llama-server itself.
    pub(super) fn server(&self) -> String {
        format!("http://{}", self.llama.address)
    }
}

fn states(folder: &Path) -> PathBuf {
    folder.join("states")
}

fn one_slot() -> Vec<String> {
    strings(&["--parallel", "1"])
}

fn strings(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

/// As a TOML string; the same escapes as in JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
