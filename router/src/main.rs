//! Starts the router.
fn main() {}
