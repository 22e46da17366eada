//! Session names: what makes two requests belong to one conversation, the same in the router and in every hook.
//!
//! Pure, and small: the very same rules compile to WASM.

mod attach;
mod client;
mod cron;
pub mod members;
mod session;
mod target;
#[cfg(test)]
mod vectors;

pub use attach::{Attachment, attach, member};
pub use client::client_type;
pub use cron::routing_id;
pub use session::{SessionId, SessionIdError};
pub use target::{DEFAULT_PORT, targets_router};
