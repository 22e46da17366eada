//! Thousands of seeded random operations against a naive model that knows what each state really is: none is ever used
//! on another server, under another layout or for another user; none that could be used is overlooked; and there is
//! never more than there is room for. A failure prints its seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{long, session, story, usage};
use crate::random::Random;
use crate::warm::{Effect, Occasion, Policy, SaveError, SavedState, StateId, Story, Turn, Warm, Written};

const SESSIONS: [&str; 6] = ["ann/1", "ann/2", "ann/3", "bob/1", "bob/2", "1"];
const TOKEN_BYTES: u64 = 8_000;

/// What a file really is.
#[derive(Debug, Clone)]
struct File {
    made_on: (&'static str, u64),
    session: &'static str,
    story: Story,
    tokens: u64,
    prompt: u64,
}

struct World {
    seed: u64,
    random: Random,
    warm: Warm,
    now: Instant,
    /// What really runs, and whether the router has been told: the fingerprint, the layout.
    server: (&'static str, u64),
    told: bool,
    room: u64,
    last: BTreeMap<&'static str, (Story, u64)>,
    saving: Vec<(StateId, File)>,
    files: BTreeMap<StateId, File>,
    rows: BTreeMap<StateId, SavedState>,
}

fn user(name: &str) -> Option<Arc<str>> {
    name.split_once('/').map(|(user, _)| user.into())
}

impl World {
    fn new(seed: u64) -> Self {
        let mut warm = Warm::new(Policy::default());
        warm.served_by("one");
        warm.supported(true);
        warm.room(200_000_000);
        Self {
            seed,
            random: Random(seed),
            warm,
            now: Instant::now(),
            server: ("one", 1000),
            told: true,
            room: 200_000_000,
            last: BTreeMap::new(),
            saving: Vec::new(),
            files: BTreeMap::new(),
            rows: BTreeMap::new(),
        }
    }

    /// One of a few agents' system texts, and up to three messages.
    fn story(&mut self, name: &str) -> Story {
        let system = long(
            self.random.pick(&["pi", "hermes"]).expect("there are some"),
            self.random.pick(&[500, 1500]).expect("there are some"),
        );
        let messages = ["one", "two", "three"]
            .map(|word| long(word, self.random.pick(&[20, 700]).expect("there are some")));
        let messages: Vec<&str> =
            messages.iter().map(String::as_str).take(1 + self.random.below(3)).collect();
        Story { user: user(name), ..story(&system, &messages) }
    }

    /// Says whether there was a state to start from.
    fn step(&mut self) -> bool {
        self.now += Duration::from_secs(self.random.below(20) as u64);
        match self.random.below(120) {
            0 => self.restart(),
            1 => self.reload(),
            2 => {
                self.room =
                    self.random.pick(&[50_000_000, 100_000_000, 200_000_000]).expect("there are some");
                self.warm.room(self.room);
            }
            3..10 => self.tell(),
            10..17 if self.told => self.warm.measured(self.server.1),
            17..50 => self.turn(),
            50..80 => self.begin(),
            _ => self.end_save(),
        }
        self.note_effects();
        self.check()
    }

    fn restart(&mut self) {
        self.server = (
            self.random.pick(&["one", "two"]).expect("there are some"),
            self.random.pick(&[1000, 2000]).expect("there are some"),
        );
        self.told = false;
        self.warm.restarted();
    }

    fn tell(&mut self) {
        self.told = true;
        self.warm.served_by(self.server.0);
    }

    fn turn(&mut self) {
        let name = self.random.pick(&SESSIONS).expect("there are some");
        let story = self.story(name);
        let prompt = story.chain.len();
        self.warm.arrived(&session(name), self.now);
        let turn =
            Turn { story: Some(Arc::new(story.clone())), usage: Some(usage(prompt, 0)), restored: None };
        self.warm.ended(&session(name), turn, self.now);
        self.last.insert(name, (story, prompt));
    }

    fn begin(&mut self) {
        let name = self.random.pick(&SESSIONS).expect("there are some");
        let Some((story, prompt)) = self.last.get(name).cloned() else { return };
        let tokens = self.warm.left_by(&session(name));
        if !self.warm.save_pays(&session(name), tokens, Occasion::Eviction, 0, self.now) {
            return;
        }
        let state = self.warm.begin(&session(name), tokens, self.now);
        let file = File { made_on: self.server, session: name, story, tokens, prompt };
        self.saving.push((state, file));
    }

    fn end_save(&mut self) {
        if self.saving.is_empty() {
            return;
        }
        let index = self.random.below(self.saving.len());
        let (state, file) = self.saving.swap_remove(index);
        let (tokens, bytes) = (file.tokens, file.tokens * TOKEN_BYTES);
        let written = Written { tokens, bytes, took: Duration::from_millis(bytes / 1_000_000) };
        let outcome = match self.random.below(6) {
            0 => Err(SaveError::Failed),
            1 => Ok(Written { tokens: tokens + 1, ..written }),
            _ => Ok(written),
        };
        self.files.insert(state, file);
        self.warm.saved(state, outcome, self.now);
    }

    /// The router starts anew, with the rows it left; what was being saved is lost.
    fn reload(&mut self) {
        self.warm = Warm::new(Policy::default());
        self.warm.load(self.rows.values().cloned().collect(), self.now);
        self.warm.supported(true);
        self.warm.room(self.room);
        self.told = false;
        self.last.clear();
        self.saving.clear();
    }

    fn note_effects(&mut self) {
        for effect in self.warm.take_effects() {
            match effect {
                Effect::Register(row) => drop(self.rows.insert(row.id, row)),
                Effect::Forget(state) => {
                    self.rows.remove(&state);
                    self.files.remove(&state);
                }
                _ => {}
            }
        }
    }

    fn check(&mut self) -> bool {
        let seed = self.seed;
        let bytes: u64 = self.rows.values().map(|row| row.bytes).sum();
        assert_eq!(self.warm.snapshot().bytes, bytes, "seed {seed}");
        assert!(bytes <= self.room, "seed {seed}: {bytes} bytes in a room of {}", self.room);
        let name = self.random.pick(&SESSIONS).expect("there are some");
        let story = self.story(name);
        if self.warm.source_for(&session(name), Some(&story)).is_some() && self.warm.needs_measure() {
            // Before a state is restored.
            self.warm.measured(self.server.1);
            self.note_effects();
        }
        let source = self.warm.source_for(&session(name), Some(&story));
        let could: Vec<StateId> =
            self.rows.keys().copied().filter(|id| self.fits(*id, name, &story)).collect();
        let measured = !self.warm.needs_measure() && self.warm.is_on();
        match source {
            Some(source) => {
                assert!(could.contains(&source.state), "seed {seed}: {source:?}, not of {could:?}")
            }
            None => assert!(could.is_empty() || !measured, "seed {seed}: {could:?} overlooked"),
        }
        source.is_some()
    }

    /// The file may be used for this request, and is of use.
    fn fits(&self, state: StateId, name: &str, story: &Story) -> bool {
        let file = &self.files[&state];
        let common = file.story.chain.common(&story.chain);
        let shared = match common == file.story.chain.nodes().len() {
            true => file.prompt,
            false => (file.prompt as f64 * file.story.chain.share(common)) as u64,
        };
        let may = file.session == name || file.story.user == story.user;
        may && file.made_on == self.server
            && shared >= Policy::default().min_tokens
            && shared as f64 >= 0.55 * file.tokens as f64
    }
}

#[test]
fn no_state_is_used_where_it_must_not_be_and_none_is_overlooked() {
    let mut used = 0;
    for seed in 1..=40 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            used += usize::from(world.step());
        }
    }
    assert!(used > 2000, "there was hardly ever a state to use: {used}");
}
