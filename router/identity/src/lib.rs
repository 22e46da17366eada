//! Session names: what makes two requests belong to one conversation, the same in the router and in every hook.
//!
//! Pure and without dependencies, so that the very same rules compile to WASM.

mod cron;
mod session;

pub use cron::routing_id;
pub use session::{SessionId, SessionIdError};
