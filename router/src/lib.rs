//! A router in front of llama-server that sends every agent's conversation back to the slot that holds its cache.
//!
//! A request comes in at [`proxy`](self), which asks `dispatch` for a lease and forwards it through `upstream`;
//! `stream` carries the answer back and ends the lease. What decides is pure: `slots` knows no clock, no socket and
//! no database, and `body` edits bytes.
//!
//! | module | for |
//! |---|---|
//! | [`config`] | flags, environment and file into one checked [`Config`](config::Config) |
//! | [`body`] | the routing members of a JSON body (pure) |
//! | [`identify`] | which session a request belongs to (pure) |
//! | [`chain`] | a request's beginnings as keyed hashes (pure) |
//! | [`fleet`] | which of several servers (pure) |
//! | [`slots`] | one server's slot table (pure) |
//! | [`warm`] | saved states: what they are worth, which one a request starts from (pure) |
//! | [`dispatch`] | the lock over the table; leases |
//! | [`upstream`] | the HTTP client to llama-server |
//! | [`store`] | SQLite on its own thread |
//! | [`shelf`] | the files of saved states |
//! | `servers` | the servers, the lock over the fleet, seats; what several routers share |
//! | `front` | what is true whichever server a request goes to |
//! | `prepare` | what is put into a slot before its request |
//! | [`usage`] | token counts in passing answers (pure) |
//! | `begin`, `fullness`, `sieve`, `sifted` | whether an answer is one, before and after it has begun |
//! | `proxy`, `turn`, `stream`, `alive`, `events`, `dialect`, `refusal`, `record`, `status` | HTTP in front: requests, answers, errors |
//! | `passing`, `routes`, `headers`, `conversation`, `linger`, `tunnel` | HTTP in front: what is particular to some requests |
//! | [`why`] | the command `why`: a session's turns that read too much again |
//! | [`serve`] | the accept loop and draining |

mod alive;
mod aside;
mod begin;
pub mod body;
pub mod chain;
pub mod command_line;
pub mod config;
mod conversation;
mod dialect;
pub mod dispatch;
mod events;
pub mod fleet;
mod front;
mod fullness;
mod headers;
pub mod identify;
mod linger;
#[cfg(test)]
mod logged;
mod passing;
mod prepare;
mod proxy;
#[cfg(test)]
mod random;
mod record;
mod refusal;
mod routes;
pub mod serve;
mod servers;
pub mod shelf;
mod sieve;
mod sifted;
pub mod slots;
mod status;
pub mod store;
mod stream;
mod tunnel;
mod turn;
pub mod upstream;
pub mod usage;
pub mod warm;
pub mod why;

pub use serve::run;
