//! Agents that go on while one of several servers is away: what became of each of their turns.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::answer::{Answer, Reader};
use crate::conversation::Route;
use crate::rng::Rng;
use crate::stats::Sample;
use crate::wire::{self, Connection};

/// A turn that has no answer after so long has none.
const PATIENCE: Duration = Duration::from_secs(120);

/// An agent begins another session after so many turns: a server that has come back gets sessions that are new.
const TURNS: usize = 10;

/// How agents behave.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The router.
    pub address: SocketAddr,
    /// Mean time between a turn's end and the next one.
    pub think: Duration,
    /// No turn is begun after this.
    pub until: Instant,
    /// The same seed makes the same choices.
    pub seed: u64,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A whole answer.
    Whole,
    /// It failed after its output had begun: nobody can take that back.
    FailedBegun,
    /// It failed before: somebody else could have answered it.
    FailedUnbegun,
}

/// One turn.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// When it was sent.
    pub sent: Instant,
    /// How long until its first word, if it was streamed and had one.
    pub first_word: Option<Duration>,
    /// What it came to.
    pub end: End,
}

/// What the turns of some time came to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// All.
    pub turns: usize,
    /// That failed after their output had begun.
    pub failed_begun: usize,
    /// That failed before.
    pub failed_unbegun: usize,
    /// Times until the first word.
    pub waits: Sample,
}

impl Summary {
    /// Of the turns sent from `from` on and before `until`.
    #[must_use]
    pub fn of(turns: &[Turn], from: Instant, until: Instant) -> Self {
        let turns: Vec<_> = turns.iter().filter(|turn| turn.sent >= from && turn.sent < until).collect();
        let count = |end| turns.iter().filter(|turn| turn.end == end).count();
        Self {
            turns: turns.len(),
            failed_begun: count(End::FailedBegun),
            failed_unbegun: count(End::FailedUnbegun),
            waits: Sample::new(turns.iter().filter_map(|turn| turn.first_word).collect()),
        }
    }
}

/// One agent: session after session until the time is over.
pub async fn agent(plan: Plan, index: usize) -> Vec<Turn> {
    let mut rng = Rng::new(plan.seed, index as u64);
    let (mut turns, mut connection) = (Vec::new(), None);
    while Instant::now() < plan.until {
        let session = format!("outage-{index}-{}", turns.len() / TURNS);
        let size = 1024 << rng.below(4);
        let streamed = rng.below(3) > 0;
        let request = wire::request(plan.address, size, streamed, Some(&session));
        let (turn, kept) = turn(plan.address, connection.take(), &request, streamed).await;
        connection = kept;
        turns.push(turn);
        tokio::time::sleep(rng.think(plan.think)).await;
    }
    turns
}

async fn turn(
    address: SocketAddr,
    connection: Option<Connection>,
    request: &[u8],
    streamed: bool,
) -> (Turn, Option<Connection>) {
    let (sent, mut body) = (Instant::now(), Body::new(streamed));
    let exchange = exchange(address, connection, request, |piece| body.feed(piece, sent));
    let (status, kept) = match timeout(PATIENCE, exchange).await {
        Ok(Ok((status, kept))) => (Some(status), Some(kept)),
        Ok(Err(_)) | Err(_) => (None, None),
    };
    let first_word = body.first_word;
    (Turn { sent, first_word, end: body.end(status) }, kept)
}

async fn exchange(
    address: SocketAddr,
    connection: Option<Connection>,
    request: &[u8],
    on_body: impl FnMut(&[u8]),
) -> io::Result<(u16, Connection)> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => Connection::open(address).await?,
    };
    let status = connection.exchange(request, on_body).await?;
    Ok((status, connection))
}

/// What has been read of an answer.
#[derive(Debug)]
enum Read {
    Stream(Reader),
    Whole(Vec<u8>),
}

#[derive(Debug)]
struct Body {
    read: Read,
    first_word: Option<Duration>,
}

impl Body {
    fn new(streamed: bool) -> Self {
        let read = if streamed { Read::Stream(Reader::new(Route::Chat)) } else { Read::Whole(Vec::new()) };
        Self { read, first_word: None }
    }

    fn feed(&mut self, piece: &[u8], sent: Instant) {
        match &mut self.read {
            Read::Whole(body) => body.extend_from_slice(piece),
            Read::Stream(reader) => {
                reader.feed(piece);
                if self.first_word.is_none() && reader.has_begun() {
                    self.first_word = Some(sent.elapsed());
                }
            }
        }
    }

    /// `status` is none if the connection broke.
    fn end(self, status: Option<u16>) -> End {
        let begun = self.first_word.is_some();
        let whole = status == Some(200)
            && match self.read {
                Read::Stream(reader) => is_whole(&reader.finish()),
                // Whoever gets no stream gets all or nothing.
                Read::Whole(body) => serde_json::from_slice::<serde_json::Value>(&body)
                    .is_ok_and(|answer| answer["choices"].is_array()),
            };
        match (whole, begun) {
            (true, _) => End::Whole,
            (false, true) => End::FailedBegun,
            (false, false) => End::FailedUnbegun,
        }
    }
}

fn is_whole(answer: &Answer) -> bool {
    answer.finished && answer.error.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    const ERROR: &str = "data: {\"error\":{\"code\":500,\"message\":\"broken\"}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    fn end(streamed: bool, pieces: &[&str], status: Option<u16>) -> End {
        let mut body = Body::new(streamed);
        pieces.iter().for_each(|piece| body.feed(piece.as_bytes(), Instant::now()));
        body.end(status)
    }

    #[test]
    fn a_stream_that_fails_has_begun_when_it_has_said_a_word() {
        assert_eq!(end(true, &[WORD, DONE], Some(200)), End::Whole);
        assert_eq!(end(true, &[WORD, ERROR, DONE], Some(200)), End::FailedBegun);
        assert_eq!(end(true, &[WORD], None), End::FailedBegun);
        assert_eq!(end(true, &[": alive\n\n", ERROR], Some(200)), End::FailedUnbegun);
        assert_eq!(end(true, &[": alive\n\n"], None), End::FailedUnbegun);
        assert_eq!(end(true, &["{\"error\":{}}"], Some(503)), End::FailedUnbegun);
    }

    #[test]
    fn an_answer_that_is_no_stream_is_whole_or_has_not_begun() {
        assert_eq!(end(false, &["  {\"choices\":[]}"], Some(200)), End::Whole);
        assert_eq!(end(false, &["  {\"error\":{}}"], Some(200)), End::FailedUnbegun);
        assert_eq!(end(false, &["{\"choices\":["], None), End::FailedUnbegun);
    }

    #[test]
    fn turns_are_summed_up_by_when_they_were_sent() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let turn = |seconds, end| Turn { sent: at(seconds), first_word: Some(Duration::from_millis(5)), end };
        let turns = [turn(0, End::Whole), turn(1, End::FailedBegun), turn(2, End::FailedUnbegun)];
        let summary = Summary::of(&turns, at(1), at(2));
        assert_eq!((summary.turns, summary.failed_begun, summary.failed_unbegun), (1, 1, 0));
        assert_eq!(summary.waits.percentile_ms(50.0), 5.0);
    }
}
