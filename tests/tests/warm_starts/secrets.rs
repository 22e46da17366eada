//! Nothing of what was said is found in the database, the log, the status or the names of files.
use std::fs;
use std::path::Path;

use session_slot_tests::client::words;

use crate::small;
use crate::stage::Stage;

/// In every text.
const CANARY: &str = "kanarienvogel";

fn assert_silent(what: &str, bytes: &[u8]) {
    let found = bytes.windows(CANARY.len()).any(|seen| seen.eq_ignore_ascii_case(CANARY.as_bytes()));
    assert!(!found, "in {what}");
}

/// All files of a folder, and their names.
fn assert_folder_is_silent(folder: &Path) -> usize {
    let files = fs::read_dir(folder).expect("the folder should be there").filter_map(Result::ok);
    let mut databases = 0;
    for file in files {
        assert_silent("the name of a file", file.file_name().as_encoded_bytes());
        let bytes = fs::read(file.path()).expect("a file should be readable");
        assert_silent(&file.path().display().to_string(), &bytes);
        databases += usize::from(bytes.starts_with(b"SQLite format 3"));
    }
    databases
}

#[tokio::test]
async fn what_was_said_leaves_no_trace_but_in_the_servers_own_files() {
    let stage = Stage::open(small(2)).await;
    let system = format!("{} {}", words(&format!("{CANARY}system"), 300), CANARY);
    let mut talks: Vec<_> =
        ["a", "b", "c", "d"].map(|id| stage.talk(id).system(&system)).into_iter().collect();
    for turn in 0..3 {
        for (talk, id) in talks.iter_mut().zip(["a", "b", "c", "d"]) {
            talk.say(&words(&format!("{id}-{CANARY}{turn}-"), 200)).await;
        }
    }
    stage.restart_server().await;
    for (talk, id) in talks.iter_mut().zip(["a", "b", "c", "d"]) {
        talk.say(&words(&format!("{id}-{CANARY}3-"), 200)).await;
    }
    assert!(stage.asked("restore") > 0);
    assert_silent("the status", stage.router.status().await.to_string().as_bytes());
    stage.router.terminate().await;
    assert_eq!(assert_folder_is_silent(&stage.state_dir()), 1);
    for name in stage.files() {
        assert_silent("the name of a state", name.as_bytes());
    }
    assert_silent("the log", stage.router.log_lines().join("\n").as_bytes());
    assert_silent("stderr", stage.router.stderr_lines().join("\n").as_bytes());
    let sent = stage.fake.look(|state| {
        let actions = state.received().iter().filter(|one| one.target.starts_with("/slots/"));
        actions.flat_map(|one| [one.body.to_vec(), one.target.clone().into_bytes()]).collect::<Vec<_>>()
    });
    for bytes in sent {
        assert_silent("a slot action", &bytes);
    }
}

#[tokio::test]
async fn the_hashes_of_what_was_said_differ_from_installation_to_installation() {
    let mut chains = Vec::new();
    for _ in 0..2 {
        let stage = Stage::open(small(1)).await;
        stage.first_turns(&["a", "b"]).await;
        stage.router.terminate().await;
        let rows = stage.router.database().rows("SELECT hex(chain) AS chain FROM states WHERE session = 'a'");
        chains.push(rows[0]["chain"].clone());
    }
    assert_ne!(chains[0], "");
    assert_ne!(chains[0], chains[1]);
}
