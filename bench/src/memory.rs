//! What the router holds in memory while hundreds of requests wait and stream.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::machine::output_of;
use crate::peers::Peer;
use crate::wire::{self, Connection};

/// What was seen at the peak.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Resident memory before any request.
    pub idle_mb: f64,
    /// Resident memory with all requests open.
    pub peak_mb: f64,
    /// Requests whose stream had begun.
    pub streaming: usize,
    /// Requests the router held back.
    pub waiting: usize,
}

/// What became of the open requests so far.
#[derive(Debug, Default)]
struct Tally {
    streaming: AtomicUsize,
    ended: AtomicUsize,
}

/// Opens `count` streamed requests of `body_size` bytes, each of its own session, and reads the router's memory while
/// they are open. The server behind it must have fewer slots and pace its streams slowly.
pub async fn measure(router: &Peer, count: usize, body_size: usize) -> io::Result<Held> {
    let idle_mb = resident_mb(router.pid())?;
    let tally = Arc::new(Tally::default());
    let mut open = JoinSet::new();
    for index in 0..count {
        let request = wire::request(router.address, body_size, true, Some(&format!("memory-{index}")));
        open.spawn(hold(router.address, request, Arc::clone(&tally)));
    }
    let mut peak_mb = idle_mb;
    // Long enough for every request to arrive and for streams to have run a while.
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        peak_mb = peak_mb.max(resident_mb(router.pid())?);
    }
    let ended = tally.ended.load(Ordering::Relaxed);
    let streaming = tally.streaming.load(Ordering::Relaxed);
    open.shutdown().await;
    if ended > 0 {
        return Err(io::Error::other(format!(
            "{ended} of {count} requests ended instead of waiting or streaming"
        )));
    }
    Ok(Held { idle_mb, peak_mb, streaming, waiting: count - streaming })
}

async fn hold(address: std::net::SocketAddr, request: Vec<u8>, tally: Arc<Tally>) {
    let mut begun = false;
    let on_body = |_: &[u8]| {
        if !std::mem::replace(&mut begun, true) {
            tally.streaming.fetch_add(1, Ordering::Relaxed);
        }
    };
    if let Ok(mut connection) = Connection::open(address).await {
        let _ = connection.exchange(&request, on_body).await;
    }
    tally.ended.fetch_add(1, Ordering::Relaxed);
}

/// Resident memory of a process in MB (10^6 bytes).
pub fn resident_mb(pid: u32) -> io::Result<f64> {
    let linux = std::fs::read_to_string(format!("/proc/{pid}/status")).ok();
    let kib = linux
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:").map(str::to_owned))?;
            line.trim().trim_end_matches("kB").trim().parse::<f64>().ok()
        })
        .or_else(|| output_of("ps", &["-o", "rss=", "-p", &pid.to_string()])?.parse().ok());
    kib.map(|kib| kib * 1024.0 / 1e6)
        .ok_or_else(|| io::Error::other(format!("can't read the memory of process {pid}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_some_memory() {
        let mb = resident_mb(std::process::id()).expect("readable");
        assert!(mb > 0.5 && mb < 1000.0, "{mb}");
    }
}
