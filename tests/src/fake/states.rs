//! Saved states: how a slot's tokens become a file, where files are kept, and what reading a bad one does.
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use super::options::{Options, Served};
use super::tokens::Token;

/// What every file begins with.
const MAGIC: u64 = u64::from_le_bytes(*b"fakeslot");
/// Numbers of eight bytes: the magic, the layout, bytes a token, who wrote it, how many tokens.
const HEAD: usize = 5 * 8;

/// What goes wrong with slot actions, as the test wants it; a restart changes none of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Saves and restores have arrived, but are not in the server's queue yet.
    pub late: bool,
    /// A save takes as long as this is set. As the real one the server does nothing else meanwhile.
    pub hold_saves: bool,
    /// The same for restores.
    pub hold_restores: bool,
    /// Every save is answered with an error, and writes nothing.
    pub fail_saves: bool,
    /// Every restore is answered with an error, and leaves its slot empty.
    pub fail_restores: bool,
    /// Bytes a file may have at most: the disk is full then, and what was written so far stays.
    pub room: Option<usize>,
}

/// Why a file is no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// The server sees it.
    Refused,
    /// The server does not see it, and dies.
    Deadly,
}

/// A state, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) tokens: Vec<Token>,
    pub(super) bytes: usize,
    /// Another model has written it, or another build: it looks right and is not.
    pub(super) spoiled: bool,
}

/// The files, which outlive the server's runs, and what is wrong with the disk.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// Where no folder is named.
    files: HashMap<String, Vec<u8>>,
    pub(super) faults: Faults,
}

impl Disk {
    /// Writes a state. `None`: there was no room for all of it.
    pub(super) fn write(&mut self, name: &str, tokens: &[Token], options: &Options) -> Option<usize> {
        let whole = encoded(tokens, options);
        let fitting = whole.len().min(self.faults.room.unwrap_or(usize::MAX));
        let written = whole[..fitting].to_vec();
        match &options.save_dir {
            Some(folder) => std::fs::write(folder.join(name), written).ok()?,
            None => drop(self.files.insert(name.to_owned(), written)),
        }
        (fitting == whole.len()).then_some(fitting)
    }

    /// Reads a state.
    pub(super) fn read(&self, name: &str, options: &Options) -> Result<State, Bad> {
        let bytes = match &options.save_dir {
            Some(folder) => read_file(&folder.join(name)),
            None => self.files.get(name).cloned(),
        };
        decoded(&bytes.ok_or(Bad::Refused)?, options)
    }
}

fn read_file(path: &Path) -> Option<Vec<u8>> {
    std::fs::read(path).ok()
}

fn encoded(tokens: &[Token], options: &Options) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [MAGIC, options.layout as u64, options.bytes_per_token as u64, origin(options)] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend((tokens.len() as u64).to_le_bytes());
    bytes.resize(options.layout, 0);
    for (index, token) in tokens.iter().enumerate() {
        bytes.extend(token.0.to_le_bytes());
        bytes.resize(options.layout + (index + 1) * options.bytes_per_token, 0);
    }
    bytes
}

fn decoded(bytes: &[u8], options: &Options) -> Result<State, Bad> {
    let head = bytes.get(..HEAD).ok_or(Bad::Refused)?;
    let numbers: Vec<u64> = head.chunks(8).map(number).collect();
    let (layout, width) = (options.layout, options.bytes_per_token);
    if numbers[..3] != [MAGIC, layout as u64, width as u64] {
        return Err(Bad::Refused);
    }
    let count = numbers[4] as usize;
    if bytes.len() < layout + count * width {
        return Err(Bad::Deadly);
    }
    let tokens = bytes[layout..].chunks(width).take(count).map(|chunk| Token(number(chunk)));
    Ok(State { tokens: tokens.collect(), bytes: bytes.len(), spoiled: numbers[3] != origin(options) })
}

/// The number in the first eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// What a state depends on without showing it: the build, the model and its adapters.
fn origin(options: &Options) -> u64 {
    let Served { build, alias, path, params, size, adapters } = &options.served;
    // Where the file is known the model's name is no more than a name.
    let model = if path.is_empty() { alias } else { path };
    let mut hasher = DefaultHasher::new();
    (build, model, params, size, adapters).hash(&mut hasher);
    hasher.finish()
}

/// Whether llama-server takes it for the name of a file.
pub(super) fn is_file_name(name: &str) -> bool {
    let odd = |letter: char| letter.is_control() || "/\\:*?\"<>|".contains(letter);
    let edges = name.starts_with(' ') || name.ends_with([' ', '.']);
    !name.is_empty() && name.len() <= 255 && !edges && !name.contains("..") && !name.contains(odd)
}
