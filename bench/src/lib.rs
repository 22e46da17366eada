//! What the benchmarks share: `replay`, `warm` and `fleet` (how much of a prompt is reused), `overhead` (what the router costs),
//! `soak` (what it loses in a long time) and `outage` (what becomes of turns while one of several servers is away).
//!
//! Replay: [`sources`] and [`conversation`] make what agents send, [`client`] and [`answer`] send it and read the
//! streams, [`replay`] lets sessions run side by side or in turn, [`report`] sums up.
//! Overhead: [`peers`] starts the fake server, nginx and the router, [`wire`] and [`load`] put load on them,
//! [`overhead`] interleaves and compares, [`memory`] reads what the router holds, [`machine`] says where.
//! Warm: [`mod@warm`] replays in every case on fresh real servers, before which stands each of several ways.
//! Fleet: [`mod@fleet`] replays before several fresh real servers, on each of several ways to choose among them.
//! Those that start programs end with [`interrupt`]; those that are judged, by [`targets`].
//! Evictions: [`mod@evictions`] plays agents against the router's slot table in virtual time.
//! Soak: [`soak`] plays clients that leave, while the fake server is killed and started again.
//! Outage: [`outage`] plays agents that go on while one of several fake servers is away.

pub mod answer;
pub mod client;
pub mod conversation;
pub mod evictions;
pub mod fleet;
pub mod interrupt;
pub mod load;
pub mod machine;
pub mod memory;
pub mod outage;
pub mod overhead;
pub mod peers;
pub mod replay;
pub mod report;
pub mod rng;
pub mod soak;
pub mod sources;
pub mod stats;
pub mod targets;
pub mod warm;
pub mod wire;
