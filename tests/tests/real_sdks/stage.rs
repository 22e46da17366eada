//! A folder in which JavaScript finds the SDKs and the hook by their names, as in a user's project.
use std::path::{Path, PathBuf};

use session_slot_tests::Router;
use session_slot_tests::agents::{Run, command, folder};
use tempfile::TempDir;

/// Such a folder. It is also the home of the programs that run in it.
pub(crate) struct Stage(TempDir);

impl Stage {
    /// # Panics
    /// If the hook is not built: run `scripts/build-wasm.sh`.
    pub(crate) fn new() -> Self {
        let stage = tempfile::tempdir().expect("a temporary folder should be possible");
        let modules = stage.path().join("node_modules");
        link_all(&installed(), &modules);
        assert!(hook().join("generated/module.js").is_file(), "run scripts/build-wasm.sh first");
        link(&hook(), &modules.join("session-slot-hook"));
        // Real files: Node.js looks for packages where a file is, not where a link to it is.
        for program in entries(&hook().join("tests/sdks")) {
            let name = program.file_name().expect("an entry of a folder has a name");
            std::fs::copy(&program, stage.path().join(name)).expect("the folder should be writable");
        }
        Self(stage)
    }

    /// Runs one of `wasm-hook/tests/sdks` against the router, with the arguments that `runtime` wants before a file's
    /// name. Sessions are called `NAME-a` and `NAME-b`.
    pub(crate) async fn play(&self, runtime: &[&str], program: &str, router: &Router, name: &str) {
        let mut command = command(&installed().join(runtime[0]), self.0.path());
        let port = router.address().rsplit(':').next().unwrap_or_default();
        command.env("SESSION_SLOT_ROUTER_PORT", port).args(&runtime[1..]);
        command.args([program, &format!("{}/v1", router.url()), name]);
        let _ = Run::of(&mut command).await.succeeded();
    }
}

/// Where the SDKs and runtimes are.
fn installed() -> PathBuf {
    folder("sdks").join("node_modules")
}

/// The hook's package.
pub(crate) fn hook() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("wasm-hook")
}

fn link_all(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("the folder should be writable");
    for entry in entries(from) {
        link(&entry, &to.join(entry.file_name().expect("an entry of a folder has a name")));
    }
}

pub(crate) fn link(from: &Path, to: &Path) {
    std::os::unix::fs::symlink(from, to).expect("links should be possible");
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.expect("the folder should be readable").path()).collect()
}
