//! What a user would notice of warm starts, told to the facade.

mod saving;
mod simulation;
mod standing;
mod starting;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use session_slot_identity::SessionId;

use crate::chain::{Chain, ChainKey};
use crate::usage::Usage;
use crate::warm::{Effect, Occasion, Policy, Source, StateId, Story, Turn, Warm, Written};

/// The chain of a request with this system text, if any, and these messages.
pub(super) fn chain(system: &str, messages: &[&str]) -> Chain {
    let system =
        Some(system).filter(|text| !text.is_empty()).map(|text| json!({"role": "system", "content": text}));
    let messages = messages.iter().map(|text| json!({"role": "user", "content": text}));
    let body = json!({ "messages": system.into_iter().chain(messages).collect::<Vec<_>>() });
    Chain::of(&Bytes::from(body.to_string()), &ChainKey([7; 16])).unwrap_or_default()
}

/// As [`chain`], of a client without a key.
pub(crate) fn story(system: &str, messages: &[&str]) -> Story {
    Story { chain: chain(system, messages), user: None }
}

/// A turn that read 500 tokens a second and generated 10.
pub(super) fn usage(computed: u64, cached: u64) -> Usage {
    Usage { computed, cached, generated: 10, reading: Some(Duration::from_millis(2 * computed)) }
}

/// The size of a one-word state of the small model.
const LAYOUT: u64 = 37_452;

/// Warm starts of a server that is known, supports them, and has room; and a clock.
struct Server {
    warm: Warm,
    now: Instant,
    /// Bytes that a token takes in its files.
    token_bytes: u64,
}

impl Server {
    /// A small model on a CPU: 500 tokens a second, 20 kB a token, 900 MB a second to save.
    fn small() -> Self {
        Self::with(Policy::default(), LAYOUT, 20_000)
    }

    /// An 8B model: 128 KiB a token.
    fn large() -> Self {
        Self::with(Policy::default(), 2 * 131_072, 131_072)
    }

    fn with(policy: Policy, layout: u64, token_bytes: u64) -> Self {
        let mut warm = Warm::new(policy);
        warm.served_by("server");
        warm.supported(true);
        warm.measured(layout);
        warm.has_run_nothing();
        warm.room(20 << 30);
        Self { warm, now: Instant::now(), token_bytes }
    }

    fn pass(&mut self, seconds: u64) -> &mut Self {
        self.now += Duration::from_secs(seconds);
        self
    }

    fn turn(&mut self, name: &str, story: Story, usage: Usage) -> &mut Self {
        self.turn_from(name, story, usage, None)
    }

    fn turn_from(&mut self, name: &str, story: Story, usage: Usage, restored: Option<StateId>) -> &mut Self {
        self.warm.arrived(&session(name), self.now);
        let turn = Turn { story: Some(Arc::new(story)), usage: Some(usage), restored };
        self.warm.ended(&session(name), turn, self.now);
        self
    }

    fn written(&self, tokens: u64) -> Written {
        let bytes = tokens * self.token_bytes;
        Written { tokens, bytes, took: Duration::from_secs_f64(bytes as f64 * 1e-9) }
    }

    /// Saves what the session's last turn left.
    fn save(&mut self, name: &str) -> StateId {
        let tokens = self.warm.left_by(&session(name));
        let state = self.warm.begin(&session(name), tokens, self.now);
        self.warm.saved(state, Ok(self.written(tokens)), self.now);
        state
    }

    fn pays(&self, name: &str, occasion: Occasion, delayed: usize) -> bool {
        let tokens = self.warm.left_by(&session(name));
        self.warm.save_pays(&session(name), tokens, occasion, delayed, self.now)
    }

    fn source(&self, name: &str, story: &Story) -> Option<Source> {
        self.warm.source_for(&session(name), Some(story))
    }

    fn state_for(&self, name: &str, story: &Story) -> Option<StateId> {
        self.source(name, story).map(|source| source.state)
    }

    /// What has to be deleted since the last look.
    fn forgotten(&mut self) -> Vec<StateId> {
        let effects = self.warm.take_effects().into_iter();
        effects
            .filter_map(|effect| if let Effect::Forget(state) = effect { Some(state) } else { None })
            .collect()
    }
}

fn session(name: &str) -> SessionId {
    SessionId::new(name).expect("a session id")
}

/// A text of so many bytes that begins with this word.
fn long(word: &str, bytes: usize) -> String {
    word.chars().chain(std::iter::repeat('.')).take(bytes).collect()
}
