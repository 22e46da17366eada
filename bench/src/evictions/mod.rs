//! Which session should lose its slot: the router's real slot table against patterns of agents, in virtual time.
//!
//! * `patterns`: who sends when, and how much;
//! * `agent`: one agent's conversation;
//! * `server`: a llama-server that knows what each slot holds and what reading, saving and restoring take;
//! * `world`: the table, the server and the agents.

mod agent;
mod patterns;
mod server;
mod world;

pub use patterns::{PATTERNS, Pattern};
pub use world::{Tally, play};
