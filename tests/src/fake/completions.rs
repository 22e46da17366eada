//! Serving a slot-taking request, whole or streamed, and noticing that its client has left.
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::oneshot;

use super::answers::{Report, error_event};
use super::failure::Failure;
use super::generation::{Arrival, Generation};
use super::reply::{Reply, failed, json_or, typed};
use super::request::Request;
use super::state::Shared;

/// llama-server looks after the client of a whole answer only after this long without traffic.
const QUIET: Duration = Duration::from_secs(1);

/// Serves one request.
pub(super) async fn serve(shared: &Arc<Shared>, request: Request, arrival: Arrival) -> Reply {
    if request.stream {
        streamed(shared, request, arrival).await.unwrap_or_else(|failure| failed(&failure))
    } else {
        let (answer, outcome) = oneshot::channel();
        // A task of its own: it goes on when the connection, and this future with it, is gone.
        tokio::spawn(run_whole(Arc::clone(shared), request, arrival, answer));
        json_or(outcome.await.unwrap_or_else(|_| Err(Failure::gone())))
    }
}

async fn run_whole(
    shared: Arc<Shared>,
    request: Request,
    arrival: Arrival,
    mut answer: oneshot::Sender<Result<Value, Failure>>,
) {
    let run = shared.read(|state| state.run);
    let outcome = tokio::select! {
        // First, so that nothing is submitted to the run after this one.
        biased;
        () = shared.run_over(run) => return,
        () = left_and_noticed(&shared, &mut answer) => return,
        outcome = whole(&shared, request, arrival) => outcome,
    };
    let _ = answer.send(outcome);
}

async fn whole(shared: &Arc<Shared>, request: Request, arrival: Arrival) -> Result<Value, Failure> {
    let mut generation = Generation::start(shared, request, arrival).await?;
    while generation.next_piece().await?.is_some() {}
    generation.finish();
    Ok(Report::of(&generation).whole())
}

/// Returns when the client has left *and* the server was left alone for a second: any traffic,
/// a poll of `/slots` for instance, puts the noticing off.
async fn left_and_noticed(shared: &Shared, answer: &mut oneshot::Sender<Result<Value, Failure>>) {
    answer.closed().await;
    let mut quiet_since = Instant::now();
    loop {
        tokio::time::sleep_until((quiet_since + QUIET).into()).await;
        let last_traffic = shared.read(|state| state.last_traffic);
        if last_traffic <= quiet_since {
            return;
        }
        quiet_since = last_traffic;
    }
}

/// The answer begins when the request is in its slot (b11549): what goes wrong later is told within it. When the client
/// leaves, hyper drops this future or the body, and the generation in it ends at once.
async fn streamed(shared: &Arc<Shared>, request: Request, arrival: Arrival) -> Result<Reply, Failure> {
    let interval = shared.read(|state| state.engine.options.sse_interval);
    let generation = Generation::start(shared, request, arrival).await?;
    let events = Events { generation, interval, closed: false };
    let frames = stream::unfold(events, |mut events| async move {
        let bytes = events.next_or_error().await?;
        Some((Ok(Frame::data(bytes)), events))
    });
    Ok(typed("text/event-stream", StreamBody::new(frames).boxed_unsync()))
}

/// The event stream of one answer.
struct Events {
    generation: Generation,
    interval: Duration,
    closed: bool,
}

impl Events {
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if self.closed {
            return Ok(None);
        }
        let is_first = self.generation.said == 0;
        if !is_first && !self.interval.is_zero() {
            tokio::time::sleep(self.interval).await;
        }
        let piece = self.generation.next_piece().await?;
        let report = Report::of(&self.generation);
        let mut frames = if is_first { report.opening() } else { String::new() };
        match piece {
            Some(piece) => frames.push_str(&report.piece(&piece)),
            None => {
                frames.push_str(&report.closing());
                self.generation.finish();
                self.closed = true;
            }
        }
        Ok(Some(frames.into()))
    }

    /// An error after the status has gone out is told inside the stream.
    async fn next_or_error(&mut self) -> Option<Bytes> {
        // Let the frame before this one out: each event travels on its own.
        tokio::task::yield_now().await;
        self.next().await.unwrap_or_else(|failure| {
            self.generation.finish();
            self.closed = true;
            Some(error_event(self.generation.request.route, &failure).into())
        })
    }
}
