//! The folder of saved states, where it can be seen: llama-server writes the files, here they are looked after.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tracing::warn;

/// Nobody else may read what was said.
const PRIVATE: u32 = 0o700;

/// A folder that can be read and written.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Opens the folder, or makes it. One that holds nothing but saved states (`ours` says which files are) is closed to
    /// others; in any other that is not ours to decide.
    pub(super) fn open(path: &Path, ours: impl Fn(&str) -> bool) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(PRIVATE).create(path)?;
        let folder = Self(path.to_owned());
        let alone = folder.files()?.iter().all(|(name, _)| ours(name));
        let mode = fs::metadata(path)?.permissions().mode() & 0o777;
        let wide = mode & !PRIVATE != 0;
        let closed = wide && alone && fs::set_permissions(path, Permissions::from_mode(PRIVATE)).is_ok();
        if wide && !closed {
            warn!(
                folder = %path.display(), mode = format!("{mode:o}"),
                "others may read the saved states, which hold what was said: give them a folder of their own and \
                 `chmod 700` it"
            );
        }
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Every entry but folders, with its length.
    pub(super) fn files(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if let Ok(name) = entry.file_name().into_string()
                && !metadata.is_dir()
            {
                files.push((name, metadata.len()));
            }
        }
        Ok(files)
    }

    /// The length of a file; `None` if there is none.
    pub(super) fn length(&self, name: &str) -> Option<u64> {
        let metadata = fs::symlink_metadata(self.0.join(name)).ok()?;
        metadata.is_file().then_some(metadata.len())
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(from), self.0.join(to))
    }

    /// Removes a file; it is no matter if there is none.
    pub(super) fn remove(&self, name: &str) {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(file = name, %error, "a saved state's file could not be removed");
            }
            _ => {}
        }
    }

    /// Bytes that may still be written here.
    pub(super) fn free(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(&self.0).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}
