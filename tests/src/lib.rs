//! What the end-to-end tests are made of: a scripted llama-server, the real router, a client.
//!
//! - [`fake`]: [`FakeLlama`], a llama-server with no model, whose every step a test can stop.
//! - [`router`]: [`Router`], the real binary as a child process, its log read line by line.
//! - [`client`]: requests whole, streamed, or byte by byte.
//! - [`raw_upstream`]: a server of a few given bytes, for what no HTTP library would say.
//! - [`real`]: a real llama-server with a real model.
//! - [`agents`]: real agents.
//! - [`valkey`]: a real Valkey or Redis.
pub mod agents;
pub mod client;
pub mod fake;
pub mod raw_upstream;
pub mod real;
pub mod router;
pub mod valkey;

pub use client::{Answer, Outgoing, RawConnection, Session, Streaming};
pub use fake::{FakeLlama, Options};
pub use raw_upstream::RawUpstream;
pub use real::RealLlama;
pub use router::Router;
pub use valkey::Valkey;
