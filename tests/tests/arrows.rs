//! Keeps the arrows between the modules of the router: what is pure stays pure, and one module holds the lock.

use std::fs;
use std::path::{Path, PathBuf};

fn router() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../router")
}

/// The Rust files below `path` (or `path` itself), without the ones that only hold tests.
fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let relevant =
        paths.filter(|path| path.is_dir() || path.extension().is_some_and(|ending| ending == "rs"));
    relevant.filter(|path| !path.ends_with("tests")).flat_map(|path| sources(&path)).collect()
}

/// The code of a file: no comments, nothing in or behind its module of tests.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn mentions(folders: &[&str], words: &[&str]) -> Vec<String> {
    let files = folders.iter().flat_map(|folder| sources(&router().join(folder)));
    let found = files.flat_map(|file| {
        let code = code(&file);
        let words = words.iter().filter(move |word| code.contains(**word));
        words.map(|word| format!("{} mentions {word}", file.display())).collect::<Vec<_>>()
    });
    found.collect()
}

const PURE: [&str; 12] = [
    "identity/src",
    "src/body",
    "src/chain",
    "src/command_line.rs",
    "src/events.rs",
    "src/fleet",
    "src/fullness.rs",
    "src/identify",
    "src/sieve.rs",
    "src/slots",
    "src/usage.rs",
    "src/warm",
];

#[test]
fn the_pure_modules_know_no_runtime_no_network_no_database_and_no_clock() {
    let forbidden = [
        "tokio",
        "axum",
        "hyper",
        "rusqlite",
        "tracing",
        "std::net",
        "std::fs",
        "std::thread",
        "Instant::now",
        "SystemTime",
        "Utc::now",
    ];
    assert_eq!(mentions(&PURE, &forbidden), Vec::<String>::new());
}

#[test]
fn the_pure_modules_import_nothing_of_the_modules_around_them() {
    let outer = [
        "alive", "config", "dialect", "dispatch", "proxy", "record", "refusal", "serve", "servers", "status",
        "store", "stream", "turn", "upstream",
    ];
    let paths: Vec<String> = outer.iter().map(|module| format!("crate::{module}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    assert_eq!(mentions(&PURE, &paths), Vec::<String>::new());
}

/// The files outside `homes` that mention `word`.
fn strangers_to(word: &str, homes: &[&str]) -> Vec<PathBuf> {
    let at_home = |file: &PathBuf| homes.iter().any(|home| file.starts_with(router().join("src").join(home)));
    let elsewhere = sources(&router().join("src")).into_iter().filter(|file| !at_home(file));
    elsewhere.filter(|file| code(file).contains(word)).collect()
}

#[test]
fn only_dispatch_touches_the_slot_table() {
    assert_eq!(strangers_to("SlotTable", &["dispatch", "slots"]), Vec::<PathBuf>::new());
}

#[test]
fn only_servers_touches_the_fleet() {
    assert_eq!(strangers_to("Fleet::", &["fleet", "servers", "config"]), Vec::<PathBuf>::new());
    assert_eq!(strangers_to("fleet::Fleet", &["fleet", "servers", "config"]), Vec::<PathBuf>::new());
}

#[test]
fn every_source_file_says_in_its_first_line_what_it_is_for() {
    let folders = [
        "src",
        "identity/src",
        "../wasm-hook/src",
        "../wasm-hook/bindgen/src",
        "../tests/src",
        "../tests/tests",
        "../bench/src",
        "../bench/benches",
    ];
    let silent: Vec<_> = folders
        .iter()
        .flat_map(|folder| sources(&router().join(folder)))
        .filter(|file| !fs::read_to_string(file).expect("a source file").starts_with("//! "))
        .collect();
    assert_eq!(silent, Vec::<PathBuf>::new());
}
