//! Where the router's binary is.
use std::path::PathBuf;

/// Names another binary to test.
const OVERRIDE: &str = "SLOT_ROUTER_BIN";

/// The binary of the same build as the running test: `target/<profile>/session-slot-router`.
///
/// # Panics
/// If it is not there: it is no dependency of the tests, so cargo doesn't build it for them.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os(OVERRIDE) {
        return path.into();
    }
    let test = std::env::current_exe().expect("a running test should know its own path");
    // Tests are in target/<profile>/deps, programs in target/<profile>.
    let found = test.ancestors().skip(1).take(2).map(|folder| folder.join(name()));
    let found = found.into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "no session-slot-router near {}: run `cargo build -p session-slot-router` first, \
             or set {OVERRIDE}",
            test.display()
        )
    })
}

fn name() -> String {
    format!("session-slot-router{}", std::env::consts::EXE_SUFFIX)
}
