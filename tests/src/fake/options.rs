//! What a fake llama-server is started with: its stand-in for llama-server's command line.
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::answers::MODEL;

/// How long llama-server keeps an idle connection, and how many requests it takes on one.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    /// An idle connection is closed after this long.
    pub timeout: Duration,
    /// The answer with this number carries `Connection: close`.
    pub max: usize,
}

/// What is served, as `/props`, `/v1/models` and `/lora-adapters` tell it. A state written under one is no good under
/// another, though a restore does not find out: who goes on from it says [`DAMAGED`](super::DAMAGED).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// `build_info`
    pub build: String,
    /// The model's name.
    pub alias: String,
    /// Where its file would be; may be empty.
    pub path: String,
    /// How many parameters it has.
    pub params: u64,
    /// Bytes of its tensors.
    pub size: u64,
    /// `--lora`: paths of adapters.
    pub adapters: Vec<String>,
}

impl Default for Served {
    fn default() -> Self {
        Self {
            build: "b0-fake".to_owned(),
            alias: MODEL.to_owned(),
            path: "/models/fake.gguf".to_owned(),
            params: 268_000_000,
            size: 240_000_000,
            adapters: Vec::new(),
        }
    }
}

/// How long things take a token, in milliseconds: only told in answers, nothing really takes as long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// To read a prompt.
    pub read_ms: f64,
    /// To save a state.
    pub save_ms: f64,
    /// To restore one.
    pub restore_ms: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { read_ms: 5.0, save_ms: 0.01, restore_ms: 0.01 }
    }
}

/// The settings of one run of the fake.
///
/// The default is `-np 4 --no-kv-unified` with a RAM cache: slots keep what they hold.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen at the first start; later starts keep the port.
    pub listen: SocketAddr,
    /// `-np`: how many slots there are.
    pub slots: usize,
    /// The context of one slot, in tokens.
    pub n_ctx: usize,
    /// `--cache-ram`, counted in tokens; 0 turns the RAM prompt cache off.
    pub ram_cache_tokens: usize,
    /// `--cache-idle-slots`: every new task saves all idle slots into the RAM cache (and, under
    /// a unified KV, clears them).
    pub cache_idle_slots: bool,
    /// `--kv-unified`.
    pub kv_unified: bool,
    /// How many tokens all slots together may hold; only meaningful under a unified KV.
    pub unified_pool_tokens: Option<usize>,
    /// Whether `id_slot` is looked at; very old builds, or other servers, don't.
    pub honour_id_slot: bool,
    /// `--slots` (on in current builds); off answers 501.
    pub slots_endpoint: bool,
    /// `--metrics`; off answers 501.
    pub metrics_endpoint: bool,
    /// `--slot-save-path`: whether slot actions work; off answers 501.
    pub slot_save: bool,
    /// The folder of `--slot-save-path`; without one files are kept under their names alone.
    pub save_dir: Option<PathBuf>,
    /// Bytes of a saved state without a token; at least 40. A state of another layout is refused.
    pub layout: usize,
    /// Bytes a token adds to it; at least 8, and also part of the layout.
    pub bytes_per_token: usize,
    /// Build, model and adapters.
    pub served: Served,
    /// How long things take.
    pub pace: Pace,
    /// Whether a restored state is reused by the next request. With a sliding window it is not,
    /// though the restore answers 200.
    pub restore_is_reused: bool,
    /// `--api-key`.
    pub api_key: Option<String>,
    /// Keep-alive limits; `None` keeps connections for ever.
    pub keep_alive: Option<KeepAlive>,
    /// Whether every request is kept for the test to look at. Off for benchmarks: the memory
    /// would grow without bound. Then bodies are only skimmed, and every prompt is one token.
    pub record: bool,
    /// How many tokens a streamed answer has before it ends by itself, whatever limit the request sets.
    pub sse_events: Option<usize>,
    /// The pause between two tokens of a streamed answer.
    pub sse_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            slots: 4,
            n_ctx: 8192,
            ram_cache_tokens: 1_000_000,
            cache_idle_slots: true,
            kv_unified: false,
            unified_pool_tokens: None,
            honour_id_slot: true,
            slots_endpoint: true,
            metrics_endpoint: true,
            slot_save: false,
            save_dir: None,
            layout: 68,
            bytes_per_token: 100,
            served: Served::default(),
            pace: Pace::default(),
            restore_is_reused: true,
            api_key: None,
            keep_alive: Some(KeepAlive { timeout: Duration::from_secs(5), max: 100 }),
            record: true,
            sse_events: None,
            sse_interval: Duration::ZERO,
        }
    }
}

impl Options {
    /// llama-server without any flag: four slots, one unified KV, idle slots saved and cleared.
    #[must_use]
    pub fn default_settings() -> Self {
        Self { kv_unified: true, ..Self::default() }
    }

    /// `-np 4 -kvu --no-cache-idle-slots`: unified, but idle slots keep their tokens.
    #[must_use]
    pub fn unified_keeping_slots() -> Self {
        Self { kv_unified: true, cache_idle_slots: false, ..Self::default() }
    }

    /// `-np 4 --no-kv-unified --cache-ram 0`.
    #[must_use]
    pub fn without_ram_cache() -> Self {
        Self { ram_cache_tokens: 0, ..Self::default() }
    }

    /// For benchmarks: nothing recorded, bodies only skimmed, connections kept for ever.
    #[must_use]
    pub fn fast(slots: usize) -> Self {
        Self { slots, record: false, keep_alive: None, ram_cache_tokens: 0, ..Self::default() }
    }

    /// The same with this many slots.
    #[must_use]
    pub fn slots(self, slots: usize) -> Self {
        Self { slots, ..self }
    }

    /// The same with `--slot-save-path`.
    #[must_use]
    pub fn saving_to(self, folder: &Path) -> Self {
        Self { slot_save: true, save_dir: Some(folder.to_owned()), ..self }
    }

    /// The RAM cache is what idle slots are saved into: without one nothing is saved.
    pub(super) fn saves_idle_slots(&self) -> bool {
        self.cache_idle_slots && self.ram_cache_tokens > 0
    }
}
