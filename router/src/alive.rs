//! Answers that show they are alive: a stream that begins before the server's does, is never silent for long until
//! then, and never just breaks off.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body as AxumBody;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::{ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::config::KeepAlive;
use crate::dialect::{Dialect, Trouble};
use crate::front::Front;
use crate::headers;
use crate::proxy::ACTION;
use crate::refusal::Refusal;
use crate::stream::Forwarded;
use crate::turn::{Answer, Outcome};

/// How much of an answer that is no stream is read to be told within one, in bytes.
const TOLD_MAX_BYTES: usize = 64 << 10;

const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A turn on its way to its answer. Dropped, it is withdrawn: its client has left.
pub(crate) type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What the client of one turn is to see while it waits.
#[derive(Debug, Clone)]
pub(crate) struct Manners {
    pub(crate) dialect: Dialect,
    /// The web page that asks, if one does: it may read the answer, as llama-server says of its own.
    pub(crate) origin: Option<HeaderValue>,
    pub(crate) form: Form,
    pub(crate) keep_alive: KeepAlive,
    pub(crate) stall: Stall,
    /// A stream in which the server says that its memory is full ends with an error that makes its client try again.
    pub(crate) tells_full: bool,
}

/// What the client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A stream of events.
    Events,
    /// One JSON text, which may have white space in front.
    Json,
}

/// When a stream that has begun and then fell silent is worth a word.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stall {
    /// After so long; never if `None`.
    pub(crate) after: Option<Duration>,
    /// It is ended then.
    pub(crate) ends: bool,
}

impl Manners {
    /// The answer may get more than the server says: signs of life, or an error at its end.
    pub(crate) fn may_add(&self) -> bool {
        self.form == Form::Events || self.keep_alive.json
    }

    /// How long the answer may be silent at first.
    fn patience(&self) -> Option<Duration> {
        self.keep_alive.after.filter(|_| self.may_add())
    }

    /// How long a stream that has begun may be silent.
    fn stalls_after(&self) -> Option<Duration> {
        self.stall.after.filter(|_| self.form == Form::Events)
    }

    fn sign(&self) -> Bytes {
        match self.form {
            Form::Events => self.dialect.sign(),
            Form::Json => Bytes::from_static(b" "),
        }
    }

    fn trouble(&self, trouble: &Trouble) -> Bytes {
        match self.form {
            Form::Events => self.dialect.events(trouble),
            Form::Json => self.dialect.body(trouble).to_string().into(),
        }
    }
}

/// Waits for the turn's answer, but not in silence for longer than its client can bear.
pub(crate) async fn respond(mut running: Running, manners: Manners, front: &Arc<Front>) -> Response {
    let Some(patience) = manners.patience() else { return whole(running.await, manners, front) };
    tokio::select! {
        biased;
        outcome = &mut running => whole(outcome, manners, front),
        () = sleep(patience) => early(running, manners, front),
    }
}

/// The server's answer came, or there is none.
fn whole(outcome: Outcome, manners: Manners, front: &Arc<Front>) -> Response {
    match outcome {
        Err(refusal) => refusal.response(manners.dialect),
        Ok(Answer { mut parts, mut body }) if is_stream(parts.status, &parts.headers) => {
            if manners.tells_full {
                body.sift();
            }
            let manners = Manners { form: Form::Events, ..manners };
            // Signs of life or an error may be added to it.
            parts.headers.remove(CONTENT_LENGTH);
            Response::from_parts(parts, AxumBody::new(Alive::new(State::Streaming(body), manners, front)))
        }
        Ok(Answer { parts, body }) => Response::from_parts(parts, AxumBody::new(body)),
    }
}

/// An answer that begins before the server's: its status can only be a good one.
fn early(running: Running, manners: Manners, front: &Arc<Front>) -> Response {
    let kind = match manners.form {
        Form::Events => "text/event-stream",
        Form::Json => "application/json",
    };
    let origin = manners.origin.clone();
    let mut alive = Alive::new(State::Waiting(running), manners, front);
    // The first sign is due now.
    alive.timer.as_mut().reset(Instant::now());
    let mut response = Response::new(AxumBody::new(alive));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACTION, HeaderValue::from_static("wait"));
    // Or nginx would hold the signs back.
    headers.insert(BUFFERING, HeaderValue::from_static("no"));
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

pub(crate) fn is_stream(status: StatusCode, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let kind = kind.split(|byte| matches!(byte, b';' | b' ')).next().unwrap_or_default();
    status.is_success() && kind.eq_ignore_ascii_case(b"text/event-stream") && !headers::is_compressed(headers)
}

/// The body of an answer that shows it is alive.
struct Alive {
    state: State,
    manners: Manners,
    front: Arc<Front>,
    /// When the next sign of life is due, or a stream that has begun counts as stalled.
    timer: Pin<Box<Sleep>>,
    /// Ends when the router stops and can wait no longer.
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
}

enum State {
    /// The server has not answered.
    Waiting(Running),
    /// The server's own stream, or its JSON where that is what was asked for.
    Streaming(Box<Forwarded>),
    /// The server's answer is no stream, though one has begun: it is told within.
    Telling {
        status: StatusCode,
        body: Box<Forwarded>,
        read: BytesMut,
    },
    Over,
}

impl Alive {
    fn new(state: State, manners: Manners, front: &Arc<Front>) -> Self {
        let first = manners.patience();
        let timer = Box::pin(sleep_until(
            first.and_then(|wait| Instant::now().checked_add(wait)).unwrap_or_else(never),
        ));
        Self { state, manners, front: Arc::clone(front), timer, stopped: Box::pin(front.stopped()) }
    }

    /// Whether a sign of life is due; the next one is then set up.
    fn poll_sign(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        ready!(self.timer.as_mut().poll(cx));
        self.timer.as_mut().reset(Instant::now() + self.manners.keep_alive.every);
        self.front.note(|counts| counts.keepalives += 1);
        Poll::Ready(self.manners.sign())
    }

    /// The turn's outcome, after the answer has begun.
    fn begin(&mut self, outcome: Outcome) -> Option<Bytes> {
        match outcome {
            Err(refusal) => Some(self.end_with(&refusal.trouble())),
            Ok(Answer { parts, mut body }) => {
                let streams = is_stream(parts.status, &parts.headers);
                let fits = streams || self.manners.form == Form::Json;
                if streams && self.manners.tells_full {
                    body.sift();
                }
                self.state = if fits {
                    State::Streaming(body)
                } else {
                    State::Telling { status: parts.status, body, read: BytesMut::new() }
                };
                None
            }
        }
    }

    fn end_with(&mut self, trouble: &Trouble) -> Bytes {
        self.state = State::Over;
        self.manners.trouble(trouble)
    }

    /// The server's stream goes on, or it is silent and a sign of life is due, or it has broken off.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let State::Streaming(body) = &mut self.state else { return Poll::Ready(None) };
        match Pin::new(&mut **body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(after) = self.manners.stalls_after() {
                    // What has said its last word may be silent.
                    let limit = if body.has_ended() { never() } else { Instant::now() + after };
                    self.timer.as_mut().reset(limit);
                }
                Poll::Ready(Some(frame))
            }
            // Its client has the whole answer, and would take what follows for the end of it.
            Poll::Ready(Some(Err(_))) if body.has_ended() => {
                self.state = State::Over;
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => {
                let between = body.is_between_events();
                Poll::Ready(Some(self.break_off(between, &Refusal::BrokenOff.trouble())))
            }
            // Several clients take a mere end for a success.
            Poll::Ready(None) if body.is_full() => {
                Poll::Ready(Some(self.break_off(true, &Refusal::Full.trouble())))
            }
            Poll::Ready(None) if body.lacks_last_word() => {
                let between = body.is_between_events();
                Poll::Ready(Some(self.break_off(between, &Refusal::BrokenOff.trouble())))
            }
            Poll::Ready(None) => {
                self.state = State::Over;
                Poll::Ready(None)
            }
            // Its last word was its end: nothing may follow.
            Poll::Pending if body.has_ended() => Poll::Pending,
            Poll::Pending if self.stopped.as_mut().poll(cx).is_ready() => {
                let between = body.is_between_events();
                body.failed("the router stopped before the end of the answer");
                Poll::Ready(Some(self.break_off(between, &Refusal::Stopping.trouble())))
            }
            Poll::Pending if body.is_silent() && self.manners.patience().is_some() => {
                self.poll_sign(cx).map(|sign| Some(Frame::data(sign)))
            }
            Poll::Pending if !body.is_silent() => self.poll_stall(cx),
            Poll::Pending => Poll::Pending,
        }
    }

    /// A stream that has begun is silent. Nothing is put into it: only the log and the totals are told.
    fn poll_stall(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let State::Streaming(body) = &mut self.state else { return Poll::Ready(None) };
        let Some(after) = self.manners.stalls_after() else { return Poll::Pending };
        ready!(self.timer.as_mut().poll(cx));
        body.stalled(after, self.manners.stall.ends);
        self.front.note(|counts| counts.stalled += 1);
        if self.manners.stall.ends {
            let between = body.is_between_events();
            return Poll::Ready(Some(self.break_off(between, &Refusal::Stalled.trouble())));
        }
        // Told once; not again before another byte has come.
        self.timer.as_mut().reset(never());
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// An event that was cut is ended first: what follows must not become part of it.
    fn break_off(&mut self, between: bool, trouble: &Trouble) -> Frame<Bytes> {
        let events = self.end_with(trouble);
        if between || self.manners.form == Form::Json {
            return Frame::data(events);
        }
        Frame::data([&b"\n\n"[..], &events].concat().into())
    }

    fn poll_telling(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        let State::Telling { status, body, read } = &mut self.state else { return Poll::Ready(None) };
        // The rest of a longer answer is not waited for: it may have no end.
        while read.len() < TOLD_MAX_BYTES {
            let frame = match Pin::new(&mut **body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => return self.poll_sign(cx).map(|sign| Some(Frame::data(sign))),
            };
            let Some(data) = frame.and_then(|frame| frame.ok()?.into_data().ok()) else { break };
            let room = TOLD_MAX_BYTES - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
        }
        if read.len() == TOLD_MAX_BYTES {
            body.failed("llama-server's long answer instead of a stream was not read to its end");
        }
        let trouble = Trouble::told(*status, read);
        Poll::Ready(Some(Frame::data(self.end_with(&trouble))))
    }
}

impl Body for Alive {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::convert::Infallible>>> {
        let this = self.get_mut();
        loop {
            let frame = match &mut this.state {
                State::Waiting(running) => match running.as_mut().poll(cx) {
                    Poll::Ready(outcome) => match this.begin(outcome) {
                        Some(events) => Some(Frame::data(events)),
                        None => continue,
                    },
                    Poll::Pending => Some(Frame::data(ready!(this.poll_sign(cx)))),
                },
                State::Streaming(_) => ready!(this.poll_stream(cx)),
                State::Telling { .. } => ready!(this.poll_telling(cx)),
                State::Over => None,
            };
            return Poll::Ready(frame.map(Ok));
        }
    }
}

/// Far enough away.
fn never() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}

#[cfg(test)]
mod tests;
