//! A turn: a request that takes a slot. It is read whole, held until a slot is free, and sent there.
//!
//! * here: what it says, and its answer;
//! * `text`: what is read of its text;
//! * `attempts`: the way to a server and back.

mod attempts;
mod text;

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
use crate::body::{self, AskedSlot, BodyError, Parsed};
use crate::conversation;
use crate::dialect::Dialect;
use crate::dispatch::Who;
use crate::fleet::Ask;
use crate::headers;
use crate::identify::Identity;
use crate::passing::renamed;
use crate::proxy::{App, Caller, slot_told, tell};
use crate::record::Record;
use crate::refusal::Refusal;
use crate::routes::SlotRoute;
use crate::slots::{Heeds, Shape, Want};
use crate::stream::Forwarded;
use crate::warm::Story;
use attempts::Served;
use text::{Asked, Said};

/// A body of this many bytes takes about half a millisecond to edit.
const LARGE: usize = 512 << 10;

/// A request that has been read and understood.
pub(crate) struct Turn {
    parts: Parts,
    body: Bytes,
    parsed: Option<Arc<Parsed>>,
    want: Want,
    shape: Shape,
    story: Option<Arc<Story>>,
    who: Who,
    last_word: bool,
    /// Whose it is, for a router behind this one.
    user: Option<Arc<str>>,
    /// What it says about servers.
    ask: Ask,
    /// What its server calls the model, if its client calls it otherwise.
    model: Option<String>,
    /// There are several servers. With one, what goes into its request is moved there and not kept.
    may_be_tried_again: bool,
    /// What its servers get of keys is the router's.
    keys_are_ours: bool,
}

/// The server's answer to a turn, as the client gets it; lease and seat go with its body.
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
        caller: Caller<'_>,
        record: &mut Record,
    ) -> Result<Self, Refusal> {
        record.anonymous();
        let (mut parts, body) = request.into_parts();
        let body = read_body(app.config.max_body, &parts.headers, body).await?;
        let (body, parsed) =
            if headers::is_compressed(&parts.headers) { (body, None) } else { parse(app, body).await? };
        let (want, who) = match &parsed {
            Some(parsed) => {
                wanted(parsed, app.config.identity.identify(&parts.headers, parsed, caller.user), record)
            }
            // What can't be edited, as a compressed body can't, has no session, whatever its headers say.
            None => (Want::Anonymous, Who::default()),
        };
        let owner = want.session().map(SessionId::as_str).or(caller.user);
        conversation::name_in(&mut parts.headers, owner);
        let tasks = parsed.as_ref().map_or(1, |parsed| parsed.tasks(taking.lists));
        let resumable = conversation::is_named_in(&parts.headers);
        let shape = Shape { tasks, heeds_slot: taking.heeds_slot, resumable };
        let stream = conversation::named_in(&parts.headers);
        let user = caller.whole;
        let said = Said {
            body: &body,
            parsed: parsed.as_ref(),
            uri: &parts.uri,
            is_form: headers::is_form(&parts.headers),
            want: &want,
            stream: stream.as_deref(),
            shape,
            user: user.clone(),
            mark: caller.mark,
        };
        let Asked { ask, model, story } = Asked::of(app, said).await?;
        if let Some(uri) = model.as_deref().and_then(|model| renamed(&parts.uri, model)) {
            parts.uri = uri;
        }
        let (parsed, last_word) = (parsed.map(Arc::new), taking.last_word);
        let may_be_tried_again = app.config.fleet.is_some();
        Ok(Self {
            parts,
            body,
            parsed,
            want,
            shape,
            story,
            who,
            last_word,
            user,
            ask,
            model,
            may_be_tried_again,
            keys_are_ours: app.config.fleet.as_ref().is_some_and(|fleet| !fleet.forward_credentials),
        })
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
        if may_stream && self.parsed.as_ref().is_some_and(|parsed| parsed.streams()) {
            Form::Events
        } else {
            Form::Json
        }
    }

    /// The server's answer is read, or something is put before or behind it, so it may not come compressed.
    pub(crate) fn wants_plain_answer(&mut self) {
        self.parts.headers.remove(ACCEPT_ENCODING);
    }

    /// Waits for a server and a slot and sends the request there. Dropped, it is withdrawn.
    pub(crate) async fn run(self, app: Arc<App>, dialect: Dialect, mut record: Record) -> Outcome {
        let last_word = self.last_word;
        let answered = tokio::select! {
            biased;
            answered = self.answered(&app, &mut record) => answered,
            () = app.servers.front().stopped() => Err(Refusal::Stopping),
        };
        match answered {
            Ok(served) => Ok(begun(served, record, last_word)),
            Err(refusal) => {
                record.refused(refusal.status_in(dialect), &refusal.to_string());
                Err(refusal)
            }
        }
    }
}

/// The server has begun to answer.
fn begun(served: Served, mut record: Record, last_word: bool) -> Answer {
    let Served { answer, mut lease, seat } = served;
    let (mut parts, body) = answer.into_parts();
    record.status(parts.status);
    headers::clean_response(&mut parts.headers);
    if let Some(lease) = &mut lease {
        record.ran_in(lease.landed());
        record.restored(lease.restored);
    } else if record.is_passed_on() {
        record.ran_in(slot_told(&parts.headers));
    }
    tell(&mut parts.headers, &record);
    let last_word = last_word && is_stream(parts.status, &parts.headers);
    Answer { body: Box::new(Forwarded::of_turn(body, record, lease, seat, last_word)), parts }
}

/// All of a body, if it is no larger than `limit`.
pub(crate) async fn read_body(limit: u64, headers: &HeaderMap, body: Body) -> Result<Bytes, Refusal> {
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
        app.servers.front().note(|counts| counts.billing_lines_replaced += 1);
    }
    Ok((body, parsed))
}

/// Does `job` on another thread if it goes over so many bytes that other streams would notice.
pub(crate) async fn large_aside<T: Send + 'static>(
    bytes: usize,
    job: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes < LARGE { job() } else { aside(job).await }
}
