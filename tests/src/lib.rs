//! What the end-to-end tests are made of: a scripted llama-server, the real router, a client.
//!
//! - [`fake`]: [`FakeLlama`], a llama-server with no model, whose every step a test can stop.
//! - [`router`]: [`Router`], the real binary as a child process, its log read line by line.
//! - [`client`]: requests whole, streamed, or byte by byte.
pub mod client;
pub mod fake;
pub mod router;

pub use client::{Answer, Outgoing, RawConnection, Session, Streaming};
pub use fake::{FakeLlama, Options};
pub use router::Router;
