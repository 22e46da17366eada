//! A stream on its way to the client, which ends before the event that tells of a full memory.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::begin::Begun;
use crate::sieve::{Sieve, Sifted};

/// A body that passes unchanged unless it is sifted.
#[derive(Debug)]
pub(crate) struct SiftedBody {
    body: Begun,
    sieve: Option<Sieve>,
    full: bool,
}

impl From<Begun> for SiftedBody {
    fn from(body: Begun) -> Self {
        Self { body, sieve: None, full: false }
    }
}

impl SiftedBody {
    /// It is a stream of events, in which a full memory is looked for from here on.
    pub(crate) fn sift(&mut self) {
        self.sieve.get_or_insert_default();
    }

    /// It has ended because the server's memory is full; its client has not been told.
    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// The server has said itself that it can't go on with this request.
    pub(crate) fn has_told(&self) -> bool {
        self.sieve.as_ref().is_some_and(Sieve::has_told)
    }

    /// What goes out of it. `None`: nothing yet, or nothing any more.
    fn settle(&mut self, sifted: Sifted) -> Option<Frame<Bytes>> {
        self.full = sifted.full;
        Some(sifted.passes).filter(|passes| !passes.is_empty()).map(Frame::data)
    }
}

impl Body for SiftedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        while !this.full {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            let Some(sieve) = &mut this.sieve else { return Poll::Ready(frame) };
            let sifted = match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => sieve.feed(data),
                // What was held back is no event: nobody misses half of one.
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                // A stream's trailers have no meaning to anybody.
                Some(Ok(Err(_))) => continue,
                None if sieve.is_empty() => return Poll::Ready(None),
                None => sieve.finish(),
            };
            if let Some(frame) = this.settle(sifted) {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.full || (self.body.is_end_stream() && self.sieve.as_ref().is_none_or(Sieve::is_empty))
    }

    fn size_hint(&self) -> SizeHint {
        if self.sieve.is_some() { SizeHint::default() } else { self.body.size_hint() }
    }
}
