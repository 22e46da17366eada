//! The response body: forwards bytes as they come, reads usage in passing, holds the lease until its end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tracing::warn;

use crate::begin::Begun;
use crate::dispatch::Lease;
use crate::events::EventStream;
use crate::record::Record;
use crate::usage::UsageScanner;

/// A body on its way to the client. Dropped before its end, it leaves the lease to be settled by `/slots`.
#[derive(Debug)]
pub(crate) struct Forwarded {
    body: Begun,
    events: EventStream,
    /// The stream has to end with an event that says so.
    last_word: bool,
    watch: Option<Watch>,
}

/// What goes with the body of a slot-taking request.
#[derive(Debug)]
struct Watch {
    record: Record,
    lease: Option<Lease>,
    usage: UsageScanner,
}

impl Forwarded {
    /// The answer to a turn. With `last_word` it is a stream of events that has to end with one that says so.
    pub(crate) fn of_turn(body: Begun, record: Record, lease: Lease, last_word: bool) -> Self {
        Self::new(body, record, Some(lease), last_word)
    }

    /// The answer to a request that takes no slot.
    pub(crate) fn passing(body: Begun, record: Record) -> Self {
        Self::new(body, record, None, false)
    }

    fn new(body: Begun, record: Record, lease: Option<Lease>, last_word: bool) -> Self {
        let watch = Watch { record, lease, usage: UsageScanner::default() };
        let mut forwarded = Self { body, events: EventStream::default(), last_word, watch: Some(watch) };
        forwarded.end_if_over();
        forwarded
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
        let Some(Watch { record, lease: Some(lease), .. }) = &mut self.watch else { return };
        let silence_s = silence.as_secs();
        let slot = lease.slot_shown().map(tracing::field::debug);
        warn!(
            session = record.session_shown().as_deref(),
            silence_s, slot, ends, "llama-server has fallen silent"
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
        let Some(mut watch) = self.watch.take() else { return };
        if self.lacks_last_word() {
            // What the server does now is for `/slots` to show.
            return watch.record.failed("the answer ended before its last event");
        }
        if let Some(lease) = watch.lease {
            let (usage, slot) = (watch.usage.finish(), watch.usage.slot());
            watch.record.usage(usage, slot);
            if watch.record.succeeded() {
                lease.complete(usage, slot);
            } else {
                lease.declined();
            }
        }
    }

    fn fail(&mut self, error: &hyper::Error) {
        self.failed(&format!("the answer broke off: {error}"));
        self.watch = None;
    }

    /// Why it is not read to its end.
    pub(crate) fn failed(&mut self, reason: &str) {
        if let Some(watch) = &mut self.watch {
            watch.record.failed(reason);
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
                if let (Some(data), Some(Watch { lease: Some(_), usage, .. })) =
                    (frame.data_ref(), &mut this.watch)
                {
                    usage.feed(data);
                    this.events.feed(data);
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
