//! The files of saved states: what each is called, whether it is still what was written, and what is left over.
//!
//! llama-server writes and reads them in its `--slot-save-path`. Where that folder can be seen from here, a state is
//! written under a temporary name and renamed once it is whole, its length is compared before it is read, and what is
//! not wanted any more is removed. Where it can't, files are known *by name alone*: a name is used again for another
//! state, which overwrites the file, once it is sure that no row of the database speaks of the old one.
//!
//! Whatever is called "blocking" here waits for a disk.

mod folder;
mod names;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tracing::{info, warn};

use crate::chain::ChainKey;
use crate::config;
use crate::slots::SlotId;
use crate::store::StateRow;
use crate::warm::{RestoreError, SaveError, SavedState, StateId, Written};
use folder::Folder;
use names::{Names, Owner};

/// The most that is taken of a disk unasked.
const MOST: u64 = 20 << 30;
/// ... and the part of what is free.
const PART: u64 = 4;

/// The files of saved states.
#[derive(Debug)]
pub struct Shelf {
    names: Names,
    folder: Option<Folder>,
    /// The folder has been seen not to be the one the server writes to.
    disowned: AtomicBool,
    room: u64,
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    files: HashMap<StateId, File>,
    /// Names that may not be used: of saves whose end was not seen, in this life of the server, ...
    adrift: HashSet<String>,
    /// ... and of states that are forgotten, but of which the database may still speak.
    parting: HashSet<String>,
    /// Bytes of a one-word prompt's state, in this life of the server.
    layout: Option<u64>,
}

#[derive(Debug, Clone)]
struct File {
    name: String,
    bytes: u64,
    layout: Option<u64>,
    /// Saved in this life of the server, so of its layout whatever that is.
    fresh: bool,
    /// The folder shows it.
    visible: bool,
    /// It is whole.
    kept: bool,
    /// The database has its row.
    registered: bool,
}

/// A file to restore from.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name in the server's folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// What the start has found.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Registered states whose files are as they were, or can't be seen; in the order of the rows.
    pub states: Vec<SavedState>,
    /// Those whose files are gone or have another length.
    pub gone: Vec<StateId>,
}

/// Where states are, as the status page shows it.
#[derive(Debug, Clone, Serialize)]
pub struct Place {
    /// The folder, where it can be seen.
    dir: Option<PathBuf>,
    /// Files are known by name alone: none can be checked, renamed or removed.
    by_name: bool,
}

/// Files whose server has ended while it may have been writing them.
#[derive(Debug, PartialEq, Eq)]
pub struct Torn(Vec<String>);

impl Shelf {
    /// Looks the folder over and brings it in line with the rows of the database. Blocking.
    #[must_use]
    pub fn open(settings: &config::Warm, key: ChainKey, rows: Vec<StateRow>) -> (Self, Inventory) {
        let names = Names::new(key);
        let wanted = settings.dir.as_ref().filter(|_| settings.policy.enabled);
        let folder = wanted.and_then(|path| {
            let ours = |name: &str| names.owner(name) != Owner::Nobody;
            let opened =
                Folder::open(path, ours).and_then(|folder| folder.files().map(|files| (folder, files)));
            opened.map_err(|error| cannot_use(path, &error)).ok()
        });
        let (folder, files) = folder.unzip();
        let mut shelf = Self {
            names,
            folder,
            disowned: AtomicBool::new(false),
            room: settings.max_bytes.unwrap_or(MOST),
            contents: Mutex::default(),
        };
        let inventory = shelf.reconcile(rows, &files.unwrap_or_default());
        if settings.max_bytes.is_none() {
            shelf.room = shelf.default_room();
        }
        (shelf, inventory)
    }

    /// Bytes there is room for.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Where the files are.
    #[must_use]
    pub fn place(&self) -> Place {
        let folder = self.folder();
        Place { dir: folder.map(|folder| folder.path().to_owned()), by_name: folder.is_none() }
    }

    /// Files can be seen, as far as is known.
    #[must_use]
    pub fn has_folder(&self) -> bool {
        self.folder().is_some()
    }

    /// The name under which the server shall save a new state.
    #[must_use]
    pub fn begin(&self, state: StateId) -> String {
        let mut contents = self.lock();
        let visible = self.folder().is_some();
        let name = if visible { self.names.of(state) } else { contents.free_name(&self.names) };
        let shown = if visible { Names::partial(&name) } else { name.clone() };
        let file =
            File { name, bytes: 0, layout: None, fresh: true, visible, kept: false, registered: false };
        contents.files.insert(state, file);
        shown
    }

    /// The server says that it has written the file. Blocking.
    ///
    /// # Errors
    /// When it is not there, or not whole.
    pub fn keep(&self, state: StateId, written: Written) -> Result<(), SaveError> {
        let file = self.lock().files.get(&state).cloned().ok_or(SaveError::Failed)?;
        if file.visible {
            self.put_in_place(&file.name, written.bytes).inspect_err(|_| self.discard(state))?;
        }
        if let Some(file) = self.lock().files.get_mut(&state) {
            (file.bytes, file.kept) = (written.bytes, true);
        }
        Ok(())
    }

    /// The server says that it has not written the file, or not to its end. Blocking.
    pub fn discard(&self, state: StateId) {
        let file = self.lock().files.remove(&state);
        if let Some((folder, file)) = self.folder.as_ref().zip(file.filter(|file| file.visible)) {
            folder.remove(&Names::partial(&file.name));
        }
    }

    /// Nobody knows whether, or when, the server writes the file: its name is not used again before a restart of the
    /// server. What one was writing that has ended since is for [`Shelf::sweep`].
    #[must_use]
    pub fn abandon(&self, state: StateId) -> Torn {
        let mut contents = self.lock();
        let Some(file) = contents.files.remove(&state) else { return Torn(Vec::new()) };
        if !file.fresh {
            return Torn(vec![Names::partial(&file.name)]);
        }
        contents.adrift.insert(file.name);
        Torn(Vec::new())
    }

    /// The row of a state whose file is there.
    #[must_use]
    pub fn register(&self, state: &SavedState) -> Option<StateRow> {
        let mut contents = self.lock();
        let file = contents.files.get_mut(&state.id).filter(|file| file.kept)?;
        (file.layout, file.registered) = (state.layout, true);
        Some(StateRow { name: file.name.clone(), state: state.clone() })
    }

    /// Nothing came of a state although its file is whole: it goes. Blocking.
    pub fn settle(&self, state: StateId) {
        let unregistered = self.lock().files.get(&state).is_some_and(|file| file.kept && !file.registered);
        if unregistered && let Some(forgotten) = self.forget(state) {
            let forgotten = self.remove(forgotten);
            // No row ever spoke of it.
            self.parted(&forgotten);
        }
    }

    /// A state is not wanted any more: its file may go, and its name be used again after [`Shelf::parted`].
    #[must_use]
    pub fn forget(&self, state: StateId) -> Option<Forgotten> {
        let mut contents = self.lock();
        // One that is still being written ends with `keep`, `discard` or `abandon`.
        let file = contents.files.get(&state).filter(|file| file.kept)?.clone();
        contents.files.remove(&state);
        contents.parting.insert(file.name.clone());
        Some(Forgotten { name: file.name, visible: file.visible })
    }

    /// Removes the file, where it can. Blocking.
    #[must_use]
    pub fn remove(&self, forgotten: Forgotten) -> Forgotten {
        if let Some(folder) = self.folder.as_ref().filter(|_| forgotten.visible) {
            folder.remove(&forgotten.name);
        }
        forgotten
    }

    /// The database on disk has forgotten it as well.
    pub fn parted(&self, forgotten: &Forgotten) {
        self.lock().parting.remove(&forgotten.name);
    }

    /// The file a state can be restored from, if it is what was written and of the layout of this server. A file that
    /// was cut short may kill the server. Blocking.
    ///
    /// # Errors
    /// When it is not, so that the server must not be asked.
    pub fn find(&self, state: StateId) -> Result<Found, RestoreError> {
        let (file, layout) = {
            let contents = self.lock();
            let file = contents.files.get(&state).filter(|file| file.kept).cloned();
            (file.ok_or(RestoreError::Missing)?, contents.layout)
        };
        if !file.fresh && (file.layout.is_none() || file.layout != layout) {
            return Err(RestoreError::Mismatch);
        }
        let as_written = |folder: &Folder| folder.length(&file.name) == Some(file.bytes);
        if file.visible && !self.folder().is_some_and(as_written) {
            return Err(RestoreError::Missing);
        }
        Ok(Found { name: file.name, bytes: file.bytes })
    }

    /// The name under which a one-word prompt is saved from a slot.
    #[must_use]
    pub fn probe_name(&self, slot: SlotId) -> String {
        self.names.probe(slot)
    }

    /// The server has saved a one-word prompt: so large is its state, and here it writes. Blocking.
    pub fn probed(&self, slot: SlotId, bytes: u64) {
        if let Some(folder) = self.folder() {
            let name = self.names.probe(slot);
            if folder.length(&name) == Some(bytes) {
                folder.remove(&name);
            } else {
                self.disown(folder);
            }
        }
        self.lock().layout = Some(bytes);
    }

    /// The server is a new one: nothing is under way, and everything is to be found out again. What the old one may have
    /// left half written is for [`Shelf::sweep`].
    #[must_use]
    pub fn restarted(&self) -> Torn {
        self.disowned.store(false, Ordering::Relaxed);
        let mut contents = self.lock();
        contents.layout = None;
        contents.files.values_mut().for_each(|file| file.fresh = false);
        Torn(contents.adrift.drain().map(|name| Names::partial(&name)).collect())
    }

    /// Removes files that are half written. Blocking.
    pub fn sweep(&self, torn: &Torn) {
        if let Some(folder) = &self.folder {
            torn.0.iter().for_each(|name| folder.remove(name));
        }
    }

    fn folder(&self) -> Option<&Folder> {
        self.folder.as_ref().filter(|_| !self.disowned.load(Ordering::Relaxed))
    }

    fn put_in_place(&self, name: &str, bytes: u64) -> Result<(), SaveError> {
        let folder = self.folder().ok_or(SaveError::Failed)?;
        let partial = Names::partial(name);
        match folder.length(&partial) {
            Some(length) if length == bytes => folder.rename(&partial, name).map_err(|error| {
                warn!(%error, "a saved state's file could not be renamed");
                SaveError::Failed
            }),
            Some(_) => Err(SaveError::NoRoom),
            None => {
                self.disown(folder);
                Err(SaveError::Failed)
            }
        }
    }

    fn disown(&self, folder: &Folder) {
        if !self.disowned.swap(true, Ordering::Relaxed) {
            warn!(
                folder = %folder.path().display(),
                "llama-server writes its saved states elsewhere: give it this folder as --slot-save-path, or the router \
                 the server's as --warm-dir; until then files are known by name alone, so that none is checked or removed"
            );
        }
    }

    /// Rows without a file and files without a row go; files of others stay.
    fn reconcile(&mut self, rows: Vec<StateRow>, files: &[(String, u64)]) -> Inventory {
        let lengths: HashMap<&str, u64> = files.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
        let mut inventory = Inventory::default();
        let contents = self.contents.get_mut().unwrap_or_else(PoisonError::into_inner);
        for StateRow { name, state } in rows {
            let pooled = self.folder.is_none();
            if pooled || lengths.get(name.as_str()) == Some(&state.bytes) {
                let (bytes, layout) = (state.bytes, state.layout);
                let file = File {
                    name,
                    bytes,
                    layout,
                    fresh: false,
                    visible: !pooled,
                    kept: true,
                    registered: true,
                };
                contents.files.insert(state.id, file);
                inventory.states.push(state);
            } else {
                inventory.gone.push(state.id);
            }
        }
        if let Some(folder) = &self.folder {
            let known: HashSet<&str> = contents.files.values().map(|file| file.name.as_str()).collect();
            clear_out(folder, &self.names, files.iter().filter(|(name, _)| !known.contains(name.as_str())));
        }
        inventory
    }

    fn default_room(&self) -> u64 {
        let Some(free) = self.folder.as_ref().and_then(Folder::free) else { return MOST };
        let taken: u64 = self.lock().files.values().map(|file| file.bytes).sum();
        MOST.min(free.saturating_add(taken) / PART)
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A state that is not wanted any more.
#[derive(Debug)]
pub struct Forgotten {
    name: String,
    visible: bool,
}

impl Contents {
    fn free_name(&self, names: &Names) -> String {
        let taken = |name: &String| {
            self.adrift.contains(name)
                || self.parting.contains(name)
                || self.files.values().any(|file| file.name == *name)
        };
        names.pool().find(|name| !taken(name)).expect("there are more names than files")
    }
}

fn cannot_use(path: &std::path::Path, error: &std::io::Error) {
    warn!(
        folder = %path.display(), %error,
        "the folder of saved states can't be used: files are known by name alone, so that none is checked or removed"
    );
}

fn clear_out<'a>(folder: &Folder, names: &Names, unknown: impl Iterator<Item = &'a (String, u64)>) {
    let (mut removed, mut strange, mut bytes) = (0, 0, 0);
    for (name, length) in unknown {
        match names.owner(name) {
            Owner::Us => {
                folder.remove(name);
                removed += 1;
            }
            Owner::Stranger => {
                strange += 1;
                bytes += length;
            }
            Owner::Nobody => {}
        }
    }
    if removed > 0 {
        info!(files = removed, "saved states of which nothing is known any more were removed");
    }
    if strange > 0 {
        warn!(
            folder = %folder.path().display(), files = strange, bytes,
            "the folder holds saved states of another router, or of a database that is gone: remove them if no other \
             router uses this folder"
        );
    }
}
