//! Who may come in, and how the router is told.
mod hosts;
mod keys;
mod server_key;
mod settings;
