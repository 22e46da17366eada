//! A turn: a request that takes a slot. It is read whole, held until a slot is free, and sent there.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderMap, ORIGIN};
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use session_slot_identity::SessionId;
use tracing::warn;

use crate::alive::{Form, is_stream};
use crate::aside::aside;
use crate::begin::Begun;
use crate::body::{self, AskedSlot, BodyError, Parsed, SlotEdit};
use crate::chain::{Chain, ChainKey};
use crate::conversation;
use crate::dialect::Dialect;
use crate::dispatch::{Lease, Who};
use crate::headers;
use crate::identify::Identity;
use crate::prepare::Filler;
use crate::proxy::{App, tell};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::routes::SlotRoute;
use crate::slots::{Heeds, Launch, Shape, Want};
use crate::stream::Forwarded;
use crate::upstream::UpstreamError;
use crate::warm::Story;

/// A body of this many bytes takes about half a millisecond to edit.
const LARGE: usize = 512 << 10;

/// A request that has been read and understood.
pub(crate) struct Turn {
    parts: Parts,
    body: Bytes,
    parsed: Option<Parsed>,
    want: Want,
    shape: Shape,
    story: Option<Arc<Story>>,
    who: Who,
    last_word: bool,
}

/// The server's answer to a turn, as the client gets it; the lease goes with its body.
pub(crate) struct Answer {
    pub(crate) parts: http::response::Parts,
    pub(crate) body: Box<Forwarded>,
}

/// How a turn ends: with the server's answer, or with the router's own.
pub(crate) type Outcome = Result<Answer, Refusal>;

impl Turn {
    /// Reads a request to its end.
    pub(crate) async fn read(
        app: &App,
        request: Request,
        taking: SlotRoute,
        user: Option<&str>,
        record: &mut Record,
    ) -> Result<Self, Refusal> {
        record.anonymous();
        let (mut parts, body) = request.into_parts();
        let body = read_body(app.config.max_body, &parts.headers, body).await?;
        let (body, parsed) =
            if headers::is_compressed(&parts.headers) { (body, None) } else { parse(app, body).await? };
        let (want, who) = match &parsed {
            Some(parsed) => {
                wanted(parsed, app.config.identity.identify(&parts.headers, parsed, user), record)
            }
            // What can't be edited, as a compressed body can't, has no session, whatever its headers say.
            None => (Want::Anonymous, Who::default()),
        };
        let owner = want.session().map(SessionId::as_str).or(user);
        conversation::name_in(&mut parts.headers, owner);
        let tasks = parsed.as_ref().map_or(1, |parsed| parsed.tasks(taking.lists));
        let resumable = conversation::is_named_in(&parts.headers);
        let shape = Shape { tasks, heeds_slot: taking.heeds_slot, resumable };
        let has_story = want.session().is_some() && taking.heeds_slot != Heeds::No;
        let story = if has_story { story(app.chain_key, &body, user).await } else { None };
        Ok(Self { parts, body, parsed, want, shape, story, who, last_word: taking.last_word })
    }

    /// The web page that asks, if one does.
    pub(crate) fn origin(&self) -> Option<HeaderValue> {
        self.parts.headers.get(ORIGIN).cloned()
    }

    /// Nothing is known of what its client asked for.
    pub(crate) fn is_opaque(&self) -> bool {
        self.parsed.is_none()
    }

    /// What its client asked for.
    pub(crate) fn form(&self) -> Form {
        // Embeddings are never streamed, whatever is asked for.
        let may_stream = self.shape.heeds_slot != Heeds::No;
        if may_stream && self.parsed.as_ref().is_some_and(Parsed::streams) {
            Form::Events
        } else {
            Form::Json
        }
    }

    /// Something may be put before or behind the server's answer, so it may not come compressed.
    pub(crate) fn wants_plain_answer(&mut self) {
        self.parts.headers.remove(ACCEPT_ENCODING);
    }

    /// Waits for a slot and sends the request there. Dropped, it is withdrawn.
    pub(crate) async fn run(self, app: Arc<App>, dialect: Dialect, mut record: Record) -> Outcome {
        let last_word = self.last_word;
        let answered = tokio::select! {
            biased;
            answered = self.answered(&app, &mut record) => answered,
            () = app.dispatch.stopped() => Err(Refusal::Stopping),
        };
        match answered {
            Ok((answer, lease)) => Ok(begun(answer, record, lease, last_word)),
            Err(refusal) => {
                record.refused(refusal.status_in(dialect), &refusal.to_string());
                Err(refusal)
            }
        }
    }

    async fn answered(
        self,
        app: &App,
        record: &mut Record,
    ) -> Result<(http::Response<Begun>, Lease), Refusal> {
        let Self { mut parts, body, parsed, want, shape, story, who, .. } = self;
        let has_session = want.session().is_some();
        record.waits();
        let granted = app.dispatch.acquire(want, shape, story, who).await;
        let mut lease = granted.map_err(|refused| Refusal::of(refused, app.upstream.address()))?;
        record.granted(&lease);
        // Also a wish for HTTP/2 (`Upgrade: h2c`): it is no reason to let a request past the slots.
        headers::clean_request(&mut parts.headers);
        let body = edit(parsed, has_session, body, lease.launch).await;
        // Whatever framing it came in; also when it is empty, lest the server wait for a body.
        parts.headers.insert(CONTENT_LENGTH, body.len().into());
        match send(app, Request::from_parts(parts, Body::from(body)), &mut lease).await {
            Ok(answer) => Ok((answer, lease)),
            Err(error) => {
                if matches!(error, UpstreamError::Unreachable { .. } | UpstreamError::Path(_)) {
                    lease.unsent();
                }
                Err(error.into())
            }
        }
    }
}

/// The server has begun to answer.
fn begun(answer: http::Response<Begun>, mut record: Record, mut lease: Lease, last_word: bool) -> Answer {
    let (mut parts, body) = answer.into_parts();
    record.status(parts.status);
    headers::clean_response(&mut parts.headers);
    let slot = lease.landed();
    record.ran_in(slot);
    record.restored(lease.restored);
    tell(&mut parts.headers, &record);
    let last_word = last_word && is_stream(parts.status, &parts.headers);
    Answer { body: Box::new(Forwarded::of_turn(body, record, lease, last_word)), parts }
}

/// The request, with what its slot has to hold put there first.
async fn send(
    app: &App,
    request: Request,
    lease: &mut Lease,
) -> Result<http::Response<Begun>, UpstreamError> {
    lease.sent();
    let credentials = headers::credentials(request.headers());
    let filler = Filler { upstream: &app.upstream, shelf: &app.shelf, credentials: &credentials };
    filler.fill(lease).await?;
    app.upstream.forward(request).await.map(|answer| answer.map(Begun::from))
}

async fn read_body(limit: u64, headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(Refusal::TooLarge { limit });
    }
    let body = Limited::new(body, usize::try_from(limit).unwrap_or(usize::MAX)).collect().await;
    body.map(http_body_util::Collected::to_bytes).map_err(|error| {
        if error.is::<LengthLimitError>() { Refusal::TooLarge { limit } } else { Refusal::Incomplete }
    })
}

fn wanted(parsed: &Parsed, identity: Identity, record: &mut Record) -> (Want, Who) {
    record.asked_slot(parsed.asked_slot_text());
    for (source, why) in &identity.rejected {
        warn!(%source, "a session id is ignored: {why}");
    }
    let who = Who {
        agent_name: identity.agent_name,
        client_type: identity.client_type,
        source: identity.source,
        parent: identity.parent.map(|parent| parent.to_string()),
        window: identity.window,
    };
    let want = match (identity.session, parsed.asked_slot()) {
        (Some(session), _) => {
            record.session(session.as_str(), identity.conflict);
            Want::Session(session)
        }
        (None, AskedSlot::Named(number)) => Want::Named(number),
        (None, AskedSlot::Absent) => Want::Anonymous,
    };
    record.who(&who);
    (want, who)
}

/// What the body says, and the body as it goes on from here.
async fn parse(app: &App, body: Bytes) -> Result<(Bytes, Option<Parsed>), BodyError> {
    let (hygiene, size) = (app.config.hygiene, body.len());
    let job = move || {
        let settled = if hygiene.claude_code { body::without_billing(&body) } else { None };
        let replaced = settled.is_some();
        let body = settled.unwrap_or(body);
        body::parse(&body).map(|parsed| (body, parsed, replaced))
    };
    let (body, parsed, replaced) = large_aside(size, job).await?;
    if replaced {
        app.dispatch.note(|totals| totals.billing_lines_replaced += 1);
    }
    Ok((body, parsed))
}

/// What saved states are found by: hashes of the body as the server will get it.
async fn story(key: ChainKey, body: &Bytes, user: Option<&str>) -> Option<Arc<Story>> {
    let body = body.clone();
    let chain = large_aside(body.len(), move || Chain::of(&body, &key)).await?;
    Some(Arc::new(Story { chain, user: user.map(Arc::from) }))
}

/// A session's slot is the router's to name. What an anonymous client asks for stays: its request was held until
/// that slot was free.
async fn edit(parsed: Option<Parsed>, has_session: bool, body: Bytes, launch: Launch) -> Bytes {
    let Some(parsed) = parsed else { return body };
    let edit = match (has_session, launch) {
        (false, _) => SlotEdit::Keep,
        (true, Launch::Pin { slot, .. }) => SlotEdit::Set(slot.0),
        (true, Launch::Free { .. }) => SlotEdit::Remove,
    };
    large_aside(body.len(), move || parsed.rewrite(&body, edit)).await
}

/// Does `job` on another thread if it goes over so many bytes that other streams would notice.
async fn large_aside<T: Send + 'static>(bytes: usize, job: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes < LARGE { job() } else { aside(job).await }
}
