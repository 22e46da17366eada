//! Starting, stopping, and what is found in the state folder.
mod ports;
mod shutdown;
mod state_folder;
