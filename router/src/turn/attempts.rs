//! The attempts of a turn: at its server, there again when that was full, and once at another one when that was broken.
//!
//! An answer is looked at before its client gets any of it, but only where there are several servers: with one there is
//! nothing else to do than to pass it on.

use axum::body::Body;
use bytes::Bytes;
use chrono::Utc;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use session_slot_identity::SessionId;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Turn, large_aside};
use crate::begin::{Begun, Verdict, look};
use crate::body::{Edits, MembersEdit, SlotEdit};
use crate::dispatch::{Lease, Refused, Who};
use crate::fleet::{Again, ServerId};
use crate::headers;
use crate::prepare::Filler;
use crate::proxy::App;
use crate::record::Record;
use crate::refusal::Refusal;
use crate::servers::{NoSeat, NotSeated, Seat, Slots};
use crate::slots::{Launch, Refusal as SlotRefusal};
use crate::store::Write;
use crate::upstream::{Upstream, UpstreamError};

/// An answer that the client gets.
pub(super) struct Served {
    pub(super) answer: http::Response<Begun>,
    /// Of a slot that is this router's; none if the attempt has failed.
    pub(super) lease: Option<Lease>,
    /// None if the attempt has failed.
    pub(super) seat: Option<Seat>,
}

/// An attempt that came to nothing.
struct Failure {
    /// Where it may be tried again.
    again: Option<Again>,
    /// The server, if that may be what is broken, or the request at fault.
    suspect: Option<ServerId>,
    /// What the client gets if it is not.
    instead: Result<Served, Refusal>,
}

/// What a request is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Receiver {
    Server,
    Router,
}

/// How often a turn may still be tried.
struct Tries {
    full: u32,
    elsewhere: u32,
}

impl Tries {
    fn of(app: &App) -> Self {
        let full = app.config.fleet.as_ref().map_or(0, |fleet| fleet.policy.budget.retries);
        Self { full, elsewhere: 1 }
    }

    fn take(&mut self, again: Again) -> bool {
        let left = match again {
            Again::Full { .. } => &mut self.full,
            Again::Elsewhere { .. } => &mut self.elsewhere,
        };
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }
}

impl Failure {
    /// There is no answer.
    fn of(error: UpstreamError, seat: Seat) -> Self {
        let is_servers = matches!(error, UpstreamError::Unreachable { .. } | UpstreamError::Broken { .. });
        let again = if is_servers { seat.broken() } else { None };
        Self { again, suspect: None, instead: Err(error.into()) }
    }

    /// There is no slot.
    fn no_slot(refused: Refused, seat: Seat) -> Self {
        let is_down = refused.why == SlotRefusal::Unreachable;
        let instead = Err(Refusal::of(refused, &seat.member().upstream));
        let again = if is_down { seat.broken() } else { None };
        Self { again, suspect: None, instead }
    }
}

impl Turn {
    /// The answer of the first attempt that comes to something, or what the last one came to.
    pub(super) async fn answered(mut self, app: &App, record: &mut Record) -> Result<Served, Refusal> {
        let mut ask = self.ask.clone();
        let mut tries = Tries::of(app);
        let mut before: Option<Result<Served, Refusal>> = None;
        let mut suspects = Vec::new();
        loop {
            record.waits();
            let until = Instant::now() + app.config.queue.max_wait;
            let seat = match app.servers.seat(ask.clone(), until).await {
                Ok(seat) => seat,
                Err(refused) => return instead_of(before, refused),
            };
            record.seated(&seat);
            let Failure { again, suspect, instead } = match self.attempt(seat, until, record).await {
                Ok(served) => {
                    // It was not the request.
                    suspects.retain(|_| served.answer.status().is_success());
                    suspects.into_iter().for_each(|server| app.servers.failed_alone(server));
                    return Ok(served);
                }
                Err(failure) => failure,
            };
            suspects.extend(suspect);
            match again {
                Some(again) if tries.take(again) => ask.again = Some(again),
                _ => return instead,
            }
            before = Some(instead);
        }
    }

    async fn attempt(&mut self, seat: Seat, until: Instant, record: &mut Record) -> Result<Served, Failure> {
        match seat.member().slots.clone() {
            Some(slots) => self.direct(&slots, seat, until, record).await,
            None => self.passed_on(seat, record).await,
        }
    }

    /// At a server whose slots are this router's.
    async fn direct(
        &mut self,
        slots: &Slots,
        seat: Seat,
        until: Instant,
        record: &mut Record,
    ) -> Result<Served, Failure> {
        let (want, story, who) = (self.want.clone(), self.story.clone(), self.who());
        let granted = slots.dispatch.acquire(want, self.shape, story, who, until).await;
        let mut lease = match granted {
            Ok(lease) => lease,
            Err(refused) => return Err(Failure::no_slot(refused, seat)),
        };
        record.granted(&lease);
        let request = self.request(self.slot_edit(lease.launch), Receiver::Server).await;
        match send(&seat.member().upstream, slots, request, &mut lease).await {
            Ok(answer) => judged(answer, Some(lease), seat, self.keys_are_ours, record).await,
            Err(error) => {
                if matches!(error, UpstreamError::Unreachable { .. } | UpstreamError::Path(_)) {
                    lease.unsent();
                }
                Err(Failure::of(error, seat))
            }
        }
    }

    /// At another router, which owns the slots.
    async fn passed_on(&mut self, seat: Seat, record: &mut Record) -> Result<Served, Failure> {
        if let Some(session) = self.want.session() {
            seat.member().store.record(self.lives_there(session));
        }
        let mut request = self.request(SlotEdit::Keep, Receiver::Router).await;
        let user = self.user.as_ref().and_then(|user| HeaderValue::from_bytes(user.as_bytes()).ok());
        request.headers_mut().extend(user.map(|user| (headers::USER, user)));
        match seat.member().upstream.forward(request).await {
            Ok(answer) => judged(answer, None, seat, self.keys_are_ours, record).await,
            Err(error) => Err(Failure::of(error, seat)),
        }
    }

    /// For the next start of this router. Which slot it is in is for the other one to remember.
    fn lives_there(&self, session: &SessionId) -> Write {
        Write::Assigned {
            session: session.to_string(),
            agent_name: self.who.agent_name.clone(),
            client_type: self.who.client_type.clone(),
            slot: None,
            fingerprint: None,
            at: Utc::now(),
        }
    }

    /// A session's slot is the router's to name. What an anonymous client asks for stays: its request was held until
    /// that slot was free.
    fn slot_edit(&self, launch: Launch) -> SlotEdit {
        match (self.want.session(), launch) {
            (None, _) => SlotEdit::Keep,
            (Some(_), Launch::Pin { slot, .. }) => SlotEdit::Set(slot.0),
            (Some(_), Launch::Free { .. }) => SlotEdit::Remove,
        }
    }

    /// The request as its server gets it.
    async fn request(&mut self, slot: SlotEdit, receiver: Receiver) -> Request<Body> {
        let body = self.edited(slot, receiver).await;
        let mut parts = self.parts();
        // Also a wish for HTTP/2 (`Upgrade: h2c`): it is no reason to let a request past the slots.
        headers::clean_request(&mut parts.headers);
        // Whatever framing it came in; also when it is empty, lest the server wait for a body.
        parts.headers.insert(CONTENT_LENGTH, body.len().into());
        Request::from_parts(parts, Body::from(body))
    }

    async fn edited(&mut self, slot: SlotEdit, receiver: Receiver) -> Bytes {
        let body = self.body();
        let Some(parsed) = self.parsed.clone() else { return body };
        let session = self.want.session().filter(|_| receiver == Receiver::Router).cloned();
        let model = self.model.clone();
        large_aside(body.len(), move || {
            let members = match (receiver, &session) {
                (Receiver::Server, _) => MembersEdit::Remove,
                (Receiver::Router, Some(session)) => MembersEdit::Session(session.as_str()),
                (Receiver::Router, None) => MembersEdit::Keep,
            };
            parsed.rewrite(&body, Edits { slot, model: model.as_deref(), members })
        })
        .await
    }

    /// Where it can't be sent again it is not kept either: it may be large.
    fn body(&mut self) -> Bytes {
        if self.may_be_tried_again { self.body.clone() } else { std::mem::take(&mut self.body) }
    }

    fn parts(&mut self) -> Parts {
        if self.may_be_tried_again {
            return self.parts.clone();
        }
        let (nothing, ()) = Request::new(()).into_parts();
        std::mem::replace(&mut self.parts, nothing)
    }

    fn who(&mut self) -> Who {
        if self.may_be_tried_again { self.who.clone() } else { std::mem::take(&mut self.who) }
    }
}

/// What the client gets if a turn may go nowhere any more: what its last attempt came to `before`, as that tells more. But
/// that a server is down which alone may serve it is told by the server's name.
fn instead_of(before: Option<Result<Served, Refusal>>, refused: NotSeated) -> Result<Served, Refusal> {
    match before {
        Some(Err(_)) if matches!(refused.why, NoSeat::HostDown(_)) => Err(refused.into()),
        Some(before) => before,
        None => Err(refused.into()),
    }
}

/// The request, with what its slot has to hold put there first.
async fn send(
    upstream: &Upstream,
    slots: &Slots,
    request: Request<Body>,
    lease: &mut Lease,
) -> Result<http::Response<Incoming>, UpstreamError> {
    lease.sent();
    let credentials = headers::credentials(request.headers());
    Filler { upstream, shelf: &slots.shelf, credentials: &credentials }.fill(lease).await?;
    upstream.forward(request).await
}

/// What an answer is worth. `keys_are_ours`: the client's did not go with the request.
async fn judged(
    answer: http::Response<Incoming>,
    mut lease: Option<Lease>,
    seat: Seat,
    keys_are_ours: bool,
    record: &mut Record,
) -> Result<Served, Failure> {
    let Some(server) = seat.name().cloned() else {
        return Ok(Served { answer: answer.map(Begun::from), lease, seat: Some(seat) });
    };
    // The head tells that it has a slot; its first event may be a long prompt away, and others wait for that.
    record.ran_in(lease.as_mut().and_then(Lease::landed));
    let (verdict, answer) = look(answer).await;
    match verdict {
        Verdict::Good { usage } => {
            seat.began();
            record.lost(usage.and_then(|usage| seat.lost(usage)));
            Ok(Served { answer, lease, seat: Some(seat) })
        }
        Verdict::Declined if keys_are_ours && refuses_key(answer.status()) => {
            warn!(
                server = &*server,
                status = answer.status().as_u16(),
                "a server refuses this router or its key"
            );
            Err(failed(answer, lease, seat.broken()))
        }
        Verdict::Declined => {
            seat.began();
            Ok(Served { answer, lease, seat: Some(seat) })
        }
        Verdict::Full => {
            info!(server = &*server, "a turn has found a server's memory full");
            Err(failed(answer, lease, seat.full()))
        }
        Verdict::NotReady => Err(failed(answer, lease, seat.not_ready())),
        Verdict::Broken(reason) => {
            info!(server = &*server, reason, "a server has failed a request");
            Err(failed(answer, lease, seat.broken()))
        }
        Verdict::Doubtful(reason) => {
            info!(server = &*server, reason, "a server has failed a request, or could not run it");
            let suspect = Some(seat.server());
            Err(Failure { suspect, ..failed(answer, lease, seat.doubtful()) })
        }
    }
}

/// An attempt whose answer is none. Its client gets it if nothing comes of another one, but not that the memory is full: agents
/// would take llama-server's words for a conversation that is too long.
fn failed(answer: http::Response<Begun>, lease: Option<Lease>, again: Option<Again>) -> Failure {
    if let Some(lease) = lease.filter(|_| !answer.status().is_success()) {
        // It has told so instead of running the request. Whatever else it does is for `/slots` to show.
        lease.declined();
    }
    let is_full = matches!(again, Some(Again::Full { .. }));
    let instead = if is_full { Err(Refusal::Full) } else { Ok(Served { answer, lease: None, seat: None }) };
    Failure { again, suspect: None, instead }
}

fn refuses_key(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}
