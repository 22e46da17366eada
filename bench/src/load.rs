//! Puts a bounded load on one address and keeps every latency.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use crate::wire::Connection;

/// What a burst measured.
#[derive(Clone, Debug, Default)]
pub struct Burst {
    /// One per request.
    pub latencies: Vec<Duration>,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Bytes of all bodies that came back.
    pub body_bytes: usize,
}

impl Burst {
    /// Requests per second.
    pub fn per_second(&self) -> f64 {
        self.latencies.len() as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Bounds of a burst: it ends at whichever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long requests are begun.
    pub time: Duration,
    /// How many requests each connection sends at most.
    pub requests: usize,
}

/// Sends `requests[i]` again and again over connection i, all connections side by side. Any answer but 200 is an
/// error: a refused request is quick, and would pass for speed.
pub async fn burst(address: SocketAddr, requests: &[Vec<u8>], limits: Limits) -> io::Result<Burst> {
    // Opening, and a session's first request, are not what is measured.
    let opened = requests.iter().map(|request| warm(address, request));
    let connections = try_join_all(opened).await?;
    let begun = Instant::now();
    let loops =
        connections.into_iter().zip(requests).map(|(connection, request)| drive(connection, request, limits));
    let parts = try_join_all(loops).await?;
    let mut all = Burst { elapsed: begun.elapsed(), ..Burst::default() };
    for part in parts {
        all.latencies.extend(part.latencies);
        all.body_bytes += part.body_bytes;
    }
    Ok(all)
}

async fn warm(address: SocketAddr, request: &[u8]) -> io::Result<Connection> {
    let mut connection = Connection::open(address).await?;
    succeeded(connection.exchange(request, |_| ()).await?)?;
    Ok(connection)
}

async fn drive(mut connection: Connection, request: &[u8], limits: Limits) -> io::Result<Burst> {
    let mut part = Burst::default();
    let begun = Instant::now();
    while begun.elapsed() < limits.time && part.latencies.len() < limits.requests {
        let sent = Instant::now();
        let status = connection.exchange(request, |piece| part.body_bytes += piece.len()).await?;
        succeeded(status)?;
        part.latencies.push(sent.elapsed());
    }
    Ok(part)
}

fn succeeded(status: u16) -> io::Result<()> {
    match status {
        200 => Ok(()),
        other => Err(io::Error::other(format!("answered with status {other}"))),
    }
}
