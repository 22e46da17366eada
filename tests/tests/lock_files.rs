//! The lock files of what the tests install: they have to work wherever packages come from.
use std::fs;
use std::path::{Path, PathBuf};

fn agents() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("agents");
    let entries = fs::read_dir(folder).expect("the folder of the agents");
    entries.map(|entry| entry.expect("a readable folder").path()).collect()
}

#[test]
fn no_lock_file_holds_a_download_address() {
    let locks: Vec<_> = agents()
        .iter()
        .flat_map(|agent| [agent.join("package-lock.json"), agent.join("requirements.txt")])
        .filter(|file| file.exists())
        .collect();
    assert!(locks.len() >= 7, "{locks:?}");
    for lock in locks {
        let text = fs::read_to_string(&lock).expect("a readable file");
        assert!(!text.contains("\"resolved\"") && !text.contains("--index"), "{}", lock.display());
        let links = text.lines().filter(|line| line.contains("://"));
        let downloads: Vec<_> = links.filter(|line| line.contains(".tgz") || line.contains(".whl")).collect();
        assert!(downloads.is_empty(), "{}: {downloads:?}", lock.display());
    }
}

#[test]
fn the_next_install_writes_none_either() {
    for agent in agents().iter().filter(|agent| agent.join("package.json").exists()) {
        let settings = fs::read_to_string(agent.join(".npmrc")).unwrap_or_default();
        assert!(settings.contains("omit-lockfile-registry-resolved=true"), "{}", agent.display());
    }
}
