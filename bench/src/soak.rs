//! Many clients for a long time: what each request came to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::rng::Rng;
use crate::wire::{self, Connection};

/// A request that has no answer after so long has none.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client that leaves does so within this time.
const LONGEST_STAY: Duration = Duration::from_secs(3);

/// How long a client waits after an error before it asks again, on average.
const BACK_OFF: Duration = Duration::from_millis(200);

/// Fewer sessions than clients: some have two requests at a time.
const SESSIONS: usize = 40;

/// How clients behave.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The router.
    pub address: SocketAddr,
    /// How many at a time.
    pub clients: usize,
    /// The part of the requests whose client leaves before the end.
    pub leaving: f64,
    /// No request is begun after this.
    pub until: Instant,
    /// The same seed makes the same choices.
    pub seed: u64,
}

/// How many requests came to what.
#[derive(Debug, Default)]
pub struct Tally {
    /// Whole answers.
    pub whole: AtomicUsize,
    /// Answers with an error's status.
    pub refused: AtomicUsize,
    /// Streams that ended with an error.
    pub failed: AtomicUsize,
    /// Clients that left.
    pub left: AtomicUsize,
    /// Answers that broke off without an error.
    pub broken: AtomicUsize,
    /// No end in time.
    pub unanswered: AtomicUsize,
}

impl Tally {
    /// All requests so far.
    pub fn requests(&self) -> usize {
        let parts = [&self.whole, &self.refused, &self.failed, &self.left, &self.broken, &self.unanswered];
        parts.iter().map(|part| part.load(Ordering::Relaxed)).sum()
    }
}

/// One client: request after request until the time is over.
pub async fn client(plan: Plan, index: usize, tally: Arc<Tally>) {
    let mut rng = Rng::new(plan.seed, index as u64);
    let mut connection = None;
    while Instant::now() < plan.until {
        let request = request(&plan, &mut rng);
        let leaves = unit(&mut rng) < plan.leaving;
        let stay = if leaves { LONGEST_STAY.mul_f64(unit(&mut rng)) } else { PATIENCE };
        let (counter, kept) =
            match tokio::time::timeout(stay, exchange(&plan, connection.take(), &request)).await {
                Ok(Ok((answer, kept))) => (answer.counter(&tally), Some(kept)),
                Ok(Err(_)) => (&tally.broken, None),
                Err(_) if leaves => (&tally.left, None),
                Err(_) => (&tally.unanswered, None),
            };
        counter.fetch_add(1, Ordering::Relaxed);
        connection = kept;
        // As agents do. Whoever has an answer goes on at once.
        if !std::ptr::eq(counter, &tally.whole) {
            tokio::time::sleep(rng.think(BACK_OFF)).await;
        }
    }
}

/// A number from 0 to below 1.
fn unit(rng: &mut Rng) -> f64 {
    rng.below(1 << 20) as f64 / f64::from(1 << 20)
}

/// Streamed or not, of a session or, one in four, of none.
fn request(plan: &Plan, rng: &mut Rng) -> Vec<u8> {
    let session = (rng.below(4) > 0).then(|| format!("soak-{}", rng.below(SESSIONS)));
    let size = 1024 << rng.below(6);
    wire::request(plan.address, size, rng.below(2) == 0, session.as_deref())
}

/// What came back.
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl Answer {
    fn counter<'a>(&self, tally: &'a Tally) -> &'a AtomicUsize {
        let has = |wanted: &[u8]| self.body.windows(wanted.len()).any(|window| window == wanted);
        match self.status {
            200 if has(b"\"error\"") => &tally.failed,
            // The end of a stream, or of a whole answer.
            200 if has(b"data: [DONE]") || self.body.ends_with(b"}") => &tally.whole,
            200 => &tally.broken,
            _ => &tally.refused,
        }
    }
}

async fn exchange(
    plan: &Plan,
    connection: Option<Connection>,
    request: &[u8],
) -> io::Result<(Answer, Connection)> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => Connection::open(plan.address).await?,
    };
    let mut body = Vec::new();
    let status = connection.exchange(request, |piece| body.extend_from_slice(piece)).await?;
    Ok((Answer { status, body }, connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(status: u16, body: &str) -> Tally {
        let tally = Tally::default();
        let answer = Answer { status, body: body.as_bytes().to_vec() };
        answer.counter(&tally).fetch_add(1, Ordering::Relaxed);
        tally
    }

    #[test]
    fn a_stream_that_just_ends_is_no_answer() {
        assert_eq!(counted(200, "data: {}\n\n").broken.into_inner(), 1);
        assert_eq!(counted(200, "data: {}\n\ndata: [DONE]\n\n").whole.into_inner(), 1);
        assert_eq!(counted(200, "data: {}\n\ndata: {\"error\":{}}\n\n").failed.into_inner(), 1);
    }

    #[test]
    fn a_whole_answer_and_a_refusal_are_told_apart() {
        assert_eq!(counted(200, "{}").whole.into_inner(), 1);
        assert_eq!(counted(503, "{\"error\":{}}").refused.into_inner(), 1);
    }
}
