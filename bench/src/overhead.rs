//! Measures the router beside nginx and no proxy at all, in interleaved rounds, so that a busy moment of the machine
//! hits all of them alike.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::load::{Burst, Limits, burst};
use crate::stats::{Sample, median};
use crate::wire::request;

/// A way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// No proxy.
    Direct,
    /// Through nginx.
    Nginx,
    /// Through the router, without a session.
    Anonymous,
    /// Through the router, each connection its own session.
    Session,
}

impl Way {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Nginx, Self::Anonymous, Self::Session];
}

/// Where the ways begin.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The fake server.
    pub direct: SocketAddr,
    /// nginx.
    pub nginx: SocketAddr,
    /// The router.
    pub router: SocketAddr,
}

impl Addresses {
    fn of(&self, way: Way) -> SocketAddr {
        match way {
            Way::Direct => self.direct,
            Way::Nginx => self.nginx,
            Way::Anonymous | Way::Session => self.router,
        }
    }
}

/// One kind of load.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Bytes of a request's body.
    pub body: usize,
    /// Connections side by side.
    pub connections: usize,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Bounds of a single burst.
    pub limits: Limits,
}

/// What a case measured on one way.
#[derive(Clone, Debug)]
pub struct Result {
    /// Requests per second: the median of the rounds.
    pub per_second: f64,
    /// Latencies of all rounds.
    pub latency: Sample,
    /// Bytes of a response body, on average.
    pub body_bytes: usize,
}

/// Runs a case on every way, `rounds` times in turn; results in the order of [`Way::ALL`].
pub async fn compare(case: Case, rounds: usize, addresses: Addresses) -> io::Result<Vec<Result>> {
    let mut bursts: Vec<Vec<Burst>> = vec![Vec::new(); Way::ALL.len()];
    for round in 0..rounds {
        for step in 0..Way::ALL.len() {
            // Another way begins in each round: the first of a round may find a cooler or a warmer machine.
            let index = (round + step) % Way::ALL.len();
            let way = Way::ALL[index];
            let measured = run(case, way, addresses.of(way)).await;
            bursts[index]
                .push(measured.map_err(|error| io::Error::new(error.kind(), format!("{way:?}: {error}")))?);
        }
    }
    Ok(bursts.into_iter().map(summarise).collect())
}

async fn run(case: Case, way: Way, address: SocketAddr) -> io::Result<Burst> {
    let requests: Vec<_> = (0..case.connections)
        .map(|index| {
            let session = (way == Way::Session).then(|| format!("overhead-{index}"));
            request(address, case.body, case.stream, session.as_deref())
        })
        .collect();
    burst(address, &requests, case.limits).await
}

fn summarise(bursts: Vec<Burst>) -> Result {
    let per_second = median(bursts.iter().map(Burst::per_second).collect());
    let requests: usize = bursts.iter().map(|burst| burst.latencies.len()).sum();
    let bytes: usize = bursts.iter().map(|burst| burst.body_bytes).sum();
    let latencies: Vec<Duration> = bursts.into_iter().flat_map(|burst| burst.latencies).collect();
    Result { per_second, latency: Sample::new(latencies), body_bytes: bytes / requests.max(1) }
}
