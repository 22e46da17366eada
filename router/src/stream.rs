//! The response body: forwards bytes as they come, reads usage in passing, holds lease and seat until its end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tracing::warn;

use crate::begin::Begun;
use crate::dispatch::Lease;
use crate::events::EventStream;
use crate::fullness::MEMORY_FULL;
use crate::record::Record;
use crate::servers::Seat;
use crate::sifted::SiftedBody;
use crate::usage::UsageScanner;

/// A body on its way to the client. Dropped before its end, it leaves the lease to be settled by `/slots`.
#[derive(Debug)]
pub(crate) struct Forwarded {
    body: SiftedBody,
    events: EventStream,
    /// It is the answer to a turn.
    of_turn: bool,
    /// The stream has to end with an event that says so.
    last_word: bool,
    watch: Option<Watch>,
}

/// What goes with the body of an answer.
#[derive(Debug)]
struct Watch {
    record: Record,
    lease: Option<Lease>,
    seat: Option<Seat>,
    usage: UsageScanner,
}

impl Forwarded {
    /// The answer to a turn. With `last_word` it is a stream of events that has to end with one that says so.
    /// An attempt that has failed has neither lease nor seat any more.
    pub(crate) fn of_turn(
        body: Begun,
        record: Record,
        lease: Option<Lease>,
        seat: Option<Seat>,
        last_word: bool,
    ) -> Self {
        let watch = Watch { record, lease, seat, usage: UsageScanner::default() };
        Self::new(body, watch, true, last_word)
    }

    /// The answer to a request that takes no slot.
    pub(crate) fn passing(body: Begun, record: Record) -> Self {
        let watch = Watch { record, lease: None, seat: None, usage: UsageScanner::default() };
        Self::new(body, watch, false, false)
    }

    fn new(body: Begun, watch: Watch, of_turn: bool, last_word: bool) -> Self {
        let (body, watch) = (SiftedBody::from(body), Some(watch));
        let mut forwarded = Self { body, events: EventStream::default(), of_turn, last_word, watch };
        forwarded.end_if_over();
        forwarded
    }

    /// It is a stream whose client is to be told in words of the router's own that the server's memory is full.
    pub(crate) fn sift(&mut self) {
        self.body.sift();
    }

    /// The server's memory is full: the stream has ended here, and its client has not been told.
    pub(crate) fn is_full(&self) -> bool {
        self.body.is_full()
    }

    /// Not a byte has passed.
    pub(crate) fn is_silent(&self) -> bool {
        self.events.is_silent()
    }

    /// Something may be put into the stream here.
    pub(crate) fn is_between_events(&self) -> bool {
        self.events.is_between()
    }

    /// The answer is whole, though its body goes on.
    pub(crate) fn has_ended(&self) -> bool {
        self.events.has_ended()
    }

    /// Nothing has come for `silence` though the answer has begun.
    pub(crate) fn stalled(&mut self, silence: Duration, ends: bool) {
        let Some(Watch { record, lease, .. }) = &mut self.watch else { return };
        let silence_s = silence.as_secs();
        let slot = lease.as_ref().and_then(Lease::slot_shown).map(tracing::field::debug);
        warn!(
            session = record.session_shown().as_deref(),
            server = record.server(),
            silence_s,
            slot,
            ends,
            "llama-server has fallen silent"
        );
        if ends {
            record.failed("llama-server has fallen silent");
        }
    }

    /// hyper does not ask a body for more once it says that it is over, so this has to be noticed after each frame.
    fn end_if_over(&mut self) {
        if self.body.is_end_stream() {
            self.end();
        }
    }

    /// The body has ended, but the stream has not said its last word.
    pub(crate) fn lacks_last_word(&self) -> bool {
        self.last_word && !self.has_ended()
    }

    fn end(&mut self) {
        let Some(watch) = self.watch.take() else { return };
        if self.is_full() {
            return watch.full();
        }
        if self.lacks_last_word() && self.body.has_told() {
            return watch.given_up();
        }
        if self.lacks_last_word() {
            // What the server does now is for `/slots` to show.
            return watch.broken("the answer ended before its last event");
        }
        if self.of_turn {
            watch.ended();
        }
    }

    fn fail(&mut self, error: &hyper::Error) {
        if let Some(watch) = self.watch.take() {
            watch.broken(&format!("the answer broke off: {error}"));
        }
    }

    /// Why it is not read to its end.
    pub(crate) fn failed(&mut self, reason: &str) {
        if let Some(watch) = &mut self.watch {
            watch.record.failed(reason);
        }
    }
}

impl Watch {
    /// The answer has come to its end.
    fn ended(mut self) {
        let (usage, slot) = (self.usage.finish(), self.usage.slot());
        self.record.usage(usage, slot);
        let succeeded = self.record.succeeded();
        match self.lease {
            Some(lease) if succeeded => lease.complete(usage, slot),
            Some(lease) => lease.declined(),
            None => {}
        }
        match self.seat {
            Some(seat) if succeeded => self.record.lost(seat.complete(usage)),
            Some(seat) => seat.declined(),
            None => {}
        }
    }

    /// The answer has not come to its end.
    fn broken(mut self, reason: &str) {
        self.record.failed(reason);
        if let Some(seat) = self.seat {
            seat.broken();
        }
    }

    /// The server has ended the answer with an error of this request's. What it does now is for `/slots` to show.
    fn given_up(mut self) {
        self.record.failed("the server has ended the answer with an error");
        if let Some(seat) = self.seat {
            seat.declined();
        }
    }

    /// The server's memory is full: it has ended this request, and all others that it ran.
    fn full(mut self) {
        self.record.failed(MEMORY_FULL);
        if let Some(lease) = self.lease {
            lease.declined();
        }
        if let Some(seat) = self.seat {
            seat.full();
        }
    }
}

impl Body for Forwarded {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = std::task::ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), true, Some(watch)) = (frame.data_ref(), this.of_turn, &mut this.watch) {
                    watch.usage.feed(data);
                    this.events.feed(data);
                    let is_event = this.last_word && !data.starts_with(b":");
                    if let Some(lease) = watch.lease.as_mut().filter(|_| is_event) {
                        lease.answers();
                    }
                }
                this.end_if_over();
            }
            // A server that goes away after its last word has broken nothing off.
            Some(Err(_)) if this.has_ended() => {
                this.end();
                return Poll::Ready(None);
            }
            Some(Err(error)) => this.fail(error),
            None => this.end(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        if self.has_ended() {
            // Some clients hang up on the last event. The server has nothing more to do for this one.
            return self.end();
        }
        if let Some(watch) = &mut self.watch {
            watch.record.failed("the client left before the end of the answer");
        }
    }
}
