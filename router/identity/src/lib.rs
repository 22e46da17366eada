//! Session names: what makes two requests belong to one conversation, the same in the router and in every hook.
//!
//! Pure and without dependencies, so that the very same rules compile to WASM.

mod client;
mod cron;
mod session;
mod target;
#[cfg(test)]
mod vectors;

pub use client::client_type;
pub use cron::routing_id;
pub use session::{SessionId, SessionIdError};
pub use target::{DEFAULT_PORT, targets_router};
