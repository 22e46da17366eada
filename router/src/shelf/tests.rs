//! A folder with saved states in it, and one that can't be seen.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::chain::Chain;

const KEY: ChainKey = ChainKey([7; 16]);
const ONE: StateId = StateId(1);
const TWO: StateId = StateId(2);

struct Place {
    dir: tempfile::TempDir,
    settings: config::Warm,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = config::Warm { dir: Some(dir.path().join("kv")), ..config::Warm::default() };
        Self { dir, settings }
    }

    fn path(&self) -> &Path {
        self.settings.dir.as_deref().unwrap()
    }

    fn open(&self, rows: Vec<StateRow>) -> (Shelf, Inventory) {
        Shelf::open(&self.settings, KEY, rows)
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut files: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        files
    }

    /// What the server does when it is told to save.
    fn write(&self, name: &str, bytes: usize) {
        fs::write(self.path().join(name), vec![0; bytes]).unwrap();
    }

    /// Saves a state whole and registers it.
    fn saved(&self, shelf: &Shelf, state: StateId, bytes: usize) -> StateRow {
        self.write(&shelf.begin(state), bytes);
        shelf.keep(state, written(bytes)).unwrap();
        shelf.register(&described(state, bytes)).unwrap()
    }
}

fn by_name() -> Shelf {
    Shelf::open(&config::Warm::default(), KEY, Vec::new()).0
}

fn written(bytes: usize) -> Written {
    Written { tokens: 10, bytes: bytes as u64, took: Duration::from_millis(1) }
}

fn described(id: StateId, bytes: usize) -> SavedState {
    SavedState {
        id,
        session: "s".to_owned(),
        user: None,
        fingerprint: "server".to_owned(),
        layout: Some(40),
        tokens: 10,
        prompt: 9,
        bytes: bytes as u64,
        chain: Chain::default(),
    }
}

fn part(forgotten: Option<Forgotten>, shelf: &Shelf) {
    let forgotten = shelf.remove(forgotten.unwrap());
    shelf.parted(&forgotten);
}

#[test]
fn a_state_is_written_under_another_name_until_it_is_whole() {
    let place = Place::new();
    let (shelf, _) = place.open(Vec::new());
    let partial = shelf.begin(ONE);
    place.write(&partial, 100);
    assert!(partial.ends_with(".part"));
    assert_eq!(shelf.register(&described(ONE, 100)), None, "not before the server has said that it is done");
    assert_eq!(shelf.find(ONE), Err(RestoreError::Missing));
    shelf.keep(ONE, written(100)).unwrap();
    let row = shelf.register(&described(ONE, 100)).unwrap();
    assert!(row.name.ends_with(".kv") && place.files() == [row.name.clone()]);
    assert_eq!(shelf.find(ONE), Ok(Found { name: row.name, bytes: 100 }));
}

#[test]
fn a_file_cut_short_is_never_restored_from() {
    let place = Place::new();
    let (shelf, _) = place.open(Vec::new());
    let row = place.saved(&shelf, ONE, 100);
    place.write(&row.name, 99);
    assert_eq!(shelf.find(ONE), Err(RestoreError::Missing));
    fs::remove_file(place.path().join(&row.name)).unwrap();
    assert_eq!(shelf.find(ONE), Err(RestoreError::Missing));
}

#[test]
fn what_a_full_disk_leaves_of_a_file_is_removed() {
    let place = Place::new();
    let (shelf, _) = place.open(Vec::new());
    place.write(&shelf.begin(ONE), 60);
    shelf.discard(ONE);
    assert_eq!(place.files(), Vec::<String>::new());
    place.write(&shelf.begin(TWO), 60);
    assert_eq!(shelf.keep(TWO, written(100)), Err(SaveError::NoRoom), "whatever the server said");
    assert_eq!(place.files(), Vec::<String>::new());
}

#[test]
fn a_state_survives_a_restart_of_the_router() {
    let place = Place::new();
    let row = place.saved(&place.open(Vec::new()).0, ONE, 100);
    let (shelf, inventory) = place.open(vec![row.clone()]);
    assert_eq!((inventory.states, inventory.gone), (vec![row.state], Vec::new()));
    shelf.probed(SlotId(0), 40);
    assert_eq!(shelf.find(ONE), Err(RestoreError::Missing), "the probe was not in this folder");
    drop(shelf.restarted());
    place.write(&shelf.probe_name(SlotId(0)), 40);
    shelf.probed(SlotId(0), 40);
    assert_eq!(shelf.find(ONE).unwrap().name, row.name);
    assert_eq!(place.files(), [row.name]);
}

#[test]
fn a_state_of_another_layout_or_of_an_unknown_one_is_not_restored() {
    let place = Place::new();
    let row = place.saved(&place.open(Vec::new()).0, ONE, 100);
    let probed = |row: StateRow, layout: usize| {
        let (shelf, _) = place.open(vec![row]);
        place.write(&shelf.probe_name(SlotId(0)), layout);
        shelf.probed(SlotId(0), layout as u64);
        shelf.find(ONE).map(drop)
    };
    assert_eq!(place.open(vec![row.clone()]).0.find(ONE), Err(RestoreError::Mismatch), "not measured");
    assert_eq!(probed(row.clone(), 40), Ok(()));
    assert_eq!(probed(row.clone(), 41), Err(RestoreError::Mismatch));
    let unknown = StateRow { state: SavedState { layout: None, ..row.state }, name: row.name };
    assert_eq!(probed(unknown, 40), Err(RestoreError::Mismatch));
}

#[test]
fn a_restart_of_the_server_makes_the_layout_unknown() {
    let place = Place::new();
    let (shelf, _) = place.open(Vec::new());
    place.saved(&shelf, ONE, 100);
    assert!(shelf.find(ONE).is_ok(), "saved in this very life of the server");
    drop(shelf.restarted());
    assert_eq!(shelf.find(ONE), Err(RestoreError::Mismatch));
}

#[test]
fn rows_without_a_whole_file_and_our_files_without_a_row_go_and_others_stay() {
    let place = Place::new();
    let (shelf, _) = place.open(Vec::new());
    let (one, two) = (place.saved(&shelf, ONE, 100), place.saved(&shelf, TWO, 100));
    let orphan = place.saved(&shelf, StateId(3), 100);
    let half = shelf.begin(StateId(4));
    let stranger = Shelf::open(&place.settings, ChainKey([8; 16]), Vec::new()).0.begin(ONE);
    for (name, bytes) in [(&one.name, 50), (&half, 5), (&stranger, 5), (&"notes.txt".to_owned(), 5)] {
        place.write(name, bytes);
    }
    let gone = StateRow { state: described(StateId(9), 1), name: orphan.name.replace(".kv", "0.kv") };
    let (_, inventory) = place.open(vec![one, two.clone(), gone]);
    assert_eq!((inventory.states, inventory.gone), (vec![two.state], vec![ONE, StateId(9)]));
    let mut left = vec![two.name, stranger, "notes.txt".to_owned()];
    left.sort();
    assert_eq!(place.files(), left);
}

#[test]
fn a_state_not_wanted_any_more_leaves_no_file() {
    let place = Place::new();
    let (shelf, _) = place.open(Vec::new());
    place.saved(&shelf, ONE, 100);
    part(shelf.forget(ONE), &shelf);
    assert_eq!(place.files(), Vec::<String>::new());
    assert_eq!(shelf.find(ONE), Err(RestoreError::Missing));
}

#[test]
fn a_file_of_which_nothing_came_goes_and_a_registered_one_stays() {
    let place = Place::new();
    let (shelf, _) = place.open(Vec::new());
    let row = place.saved(&shelf, ONE, 100);
    place.write(&shelf.begin(TWO), 100);
    shelf.keep(TWO, written(100)).unwrap();
    shelf.settle(ONE);
    shelf.settle(TWO);
    assert_eq!(place.files(), [row.name]);
}

#[test]
fn the_folder_is_made_for_its_owner_alone_and_closed_if_it_holds_nothing_else() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let open_to_all = || fs::Permissions::from_mode(0o755);
    let place = Place::new();
    let shelf = place.open(Vec::new()).0;
    assert_eq!(mode(place.path()), 0o700);
    place.saved(&shelf, ONE, 10);
    fs::set_permissions(place.path(), open_to_all()).unwrap();
    drop(place.open(Vec::new()));
    assert_eq!(mode(place.path()), 0o700);
    place.write("notes.txt", 1);
    fs::set_permissions(place.path(), open_to_all()).unwrap();
    drop(place.open(Vec::new()));
    assert_eq!(mode(place.path()), 0o755, "others' files are in it");
}

#[test]
fn a_folder_that_is_none_means_names_alone() {
    let place = Place::new();
    fs::write(place.path(), b"a file").unwrap();
    let (shelf, _) = place.open(Vec::new());
    assert!(shelf.place().by_name && shelf.place().dir.is_none());
    assert!(shelf.begin(ONE).ends_with(".kv"));
    assert_eq!(place.dir.path().read_dir().unwrap().count(), 1);
}

#[test]
fn a_folder_the_server_does_not_write_to_means_names_alone() {
    let place = Place::new();
    let (shelf, _) = place.open(Vec::new());
    let _ = shelf.begin(ONE);
    assert_eq!(shelf.keep(ONE, written(100)), Err(SaveError::Failed), "it is not there");
    assert!(shelf.place().by_name);
    let name = shelf.begin(TWO);
    shelf.keep(TWO, written(100)).unwrap();
    shelf.register(&described(TWO, 100)).unwrap();
    assert_eq!(shelf.find(TWO), Ok(Found { name, bytes: 100 }));
}

#[test]
fn without_a_folder_a_name_is_used_again_only_once_the_database_has_forgotten_it() {
    let shelf = by_name();
    let keep = |state| {
        let name = shelf.begin(state);
        shelf.keep(state, written(100)).unwrap();
        shelf.register(&described(state, 100)).unwrap();
        name
    };
    let first = keep(ONE);
    let forgotten = shelf.forget(ONE).unwrap();
    let second = keep(TWO);
    assert_ne!(first, second, "a row may still speak of the first");
    shelf.parted(&shelf.remove(forgotten));
    assert_eq!(keep(StateId(3)), first);
    assert_ne!(keep(StateId(4)), second);
}

#[test]
fn a_name_the_server_may_still_write_to_is_not_used_before_its_restart() {
    let shelf = by_name();
    let first = shelf.begin(ONE);
    drop(shelf.abandon(ONE));
    let second = shelf.begin(TWO);
    assert_ne!(first, second);
    shelf.discard(TWO);
    assert_eq!(shelf.begin(TWO), second, "that one is known to be over");
    drop(shelf.restarted());
    assert_eq!(shelf.begin(StateId(3)), first);
}

#[test]
fn what_a_server_was_writing_when_it_ended_is_removed() {
    let place = Place::new();
    let (shelf, _) = place.open(Vec::new());
    place.saved(&shelf, ONE, 100);
    place.write(&shelf.begin(TWO), 60);
    drop(shelf.abandon(TWO));
    assert_eq!(place.files().len(), 2);
    shelf.sweep(&shelf.restarted());
    assert_eq!(place.files().len(), 1);
}

#[test]
fn the_room_is_what_was_asked_for_or_a_quarter_of_what_is_free_and_at_most_20_gib() {
    let mut place = Place::new();
    let shelf = place.open(Vec::new()).0;
    let free = shelf.folder.as_ref().unwrap().free().unwrap();
    assert!(shelf.room() <= 20 << 30 && shelf.room().abs_diff((free / 4).min(20 << 30)) < 1 << 30);
    place.settings.max_bytes = Some(1_000);
    assert_eq!(place.open(Vec::new()).0.room(), 1_000);
    assert_eq!(by_name().room(), 20 << 30);
}
