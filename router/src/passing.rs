//! Requests that take no slot: which server they go to, and under which names.

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri};
use session_slot_identity::SessionId;

use crate::body::{self, Edits, MembersEdit, Parsed, SlotEdit};
use crate::conversation;
use crate::fleet::{Eligible, ServerId, naming};
use crate::headers;
use crate::proxy::App;
use crate::refusal::Refusal;
use crate::servers::{Member, Target, key_of, key_of_stream};
use crate::turn::{large_aside, read_body};
use crate::upstream::UpstreamError;

/// Where another router looks for a session first, of what a request without a body can carry.
const SESSION: &str = "x-agent-session-id";

/// A body that can be read, and what it says.
type Text = (Bytes, Parsed);

/// A request on its way to a server.
pub(crate) struct Passing<'a> {
    pub(crate) member: &'a Member,
    pub(crate) request: Request,
    /// Where else it may go; `None`: nowhere.
    elsewhere: Option<Elsewhere>,
}

/// What it takes to send a request once more.
struct Elsewhere {
    server: ServerId,
    target: Target,
    session: Option<SessionId>,
    parts: Parts,
    body: Bytes,
}

impl<'a> Passing<'a> {
    /// Finds the server of a request, and brings the request into the form in which it goes there.
    pub(crate) async fn of(app: &'a App, mut request: Request, user: Option<&str>) -> Result<Self, Refusal> {
        let Some(member) = app.servers.only() else { return among(app, request, user).await };
        if conversation::is_about_streams(request.uri()) {
            let session = session_of(app, request.headers(), None, user);
            conversation::name_in_stream(&mut request, session.as_ref(), user);
        }
        Ok(Self { member, request, elsewhere: None })
    }
}

impl Elsewhere {
    /// Its server can't be reached, and has `refused` the connection if nobody listens there. The same for another one;
    /// `None`: there is none.
    ///
    /// # Errors
    /// If only that server may serve it, with that server's name.
    fn go(self, app: &App, refused: bool) -> Result<Option<(&Member, Request)>, Refusal> {
        if refused {
            app.servers.unreachable(self.server);
        }
        if let Eligible::Only(server) = self.target.of {
            return Err(app.servers.host_down(server).into());
        }
        let next = app.servers.for_passing(&self.target, false).filter(|(server, _)| *server != self.server);
        let request = Request::from_parts(self.parts, Body::from(self.body));
        Ok(next.map(|(_, member)| (member, addressed(request, member, self.session.as_ref()))))
    }
}

/// Sends `passing`, and if its server can't be reached to another one. Says which of them it was in the end.
pub(crate) async fn sent<'a, A>(
    app: &'a App,
    passing: Passing<'a>,
    send: impl AsyncFn(&'a Member, Request) -> Result<A, UpstreamError>,
) -> (&'a Member, Result<A, Refusal>) {
    let Passing { member, request, elsewhere } = passing;
    let (error, refused) = match send(member, request).await {
        Err(error @ UpstreamError::Unreachable { refused, .. }) => (error, refused),
        answer => return (member, answer.map_err(Refusal::from)),
    };
    match elsewhere.map(|elsewhere| elsewhere.go(app, refused)) {
        Some(Ok(Some((member, request)))) => (member, send(member, request).await.map_err(Refusal::from)),
        Some(Err(refusal)) => (member, Err(refusal)),
        Some(Ok(None)) | None => (member, Err(error.into())),
    }
}

/// Finds the server of a request among several.
async fn among<'a>(app: &'a App, request: Request, user: Option<&str>) -> Result<Passing<'a>, Refusal> {
    let (mut request, text) = read(app, request).await?;
    let said = text.as_ref().map(|(_, parsed)| parsed);
    let session = session_of(app, request.headers(), said, user);
    conversation::name_in_stream(&mut request, session.as_ref(), user);
    let stream = conversation::named_in_stream(&request);
    let key = session.as_ref().map(key_of).or(stream.as_deref().map(key_of_stream));
    let asked = model_of(said, request.uri());
    let target = app.servers.target(key, asked.as_deref());
    let target = target.ok_or_else(|| app.servers.unknown_model())?;
    // A stream is nowhere else, whatever has become of its server.
    let found = app.servers.for_passing(&target, stream.is_some());
    let (server, member) = found.ok_or_else(|| app.servers.unknown_model())?;
    let mut body = text.as_ref().map(|(body, _)| body.clone());
    if let Some(model) = &target.model {
        body = rename(&mut request, text, model).await;
    }
    let body = body.or_else(|| has_no_body(&request).then(Bytes::new)).filter(|_| stream.is_none());
    let (parts, passed) = request.into_parts();
    let again = |body| Elsewhere { server, target, session: session.clone(), parts: parts.clone(), body };
    let elsewhere = body.map(again);
    let request = addressed(Request::from_parts(parts, passed), member, session.as_ref());
    Ok(Passing { member, request, elsewhere })
}

/// At another router the turns of a session came under this name, and so did its streams.
fn addressed(mut request: Request, member: &Member, session: Option<&SessionId>) -> Request {
    let session = session.filter(|_| member.slots.is_none());
    if let Some(Ok(session)) = session.map(|session| HeaderValue::from_bytes(session.as_str().as_bytes())) {
        request.headers_mut().insert(SESSION, session);
    }
    request
}

fn has_no_body(request: &Request) -> bool {
    let framed = [CONTENT_LENGTH, TRANSFER_ENCODING].iter().any(|name| request.headers().contains_key(name));
    !framed && !headers::wants_upgrade(request.headers())
}

/// What is posted says in its body which model is meant, as a turn does. What can't be read passes as it comes.
async fn read(app: &App, request: Request) -> Result<(Request, Option<Text>), Refusal> {
    let (mut parts, body) = request.into_parts();
    let opaque = headers::is_compressed(&parts.headers) || headers::wants_upgrade(&parts.headers);
    if parts.method != Method::POST || opaque {
        return Ok((Request::from_parts(parts, body), None));
    }
    let body = read_body(app.config.max_body, &parts.headers, body).await?;
    parts.headers.remove(TRANSFER_ENCODING);
    parts.headers.insert(CONTENT_LENGTH, body.len().into());
    let text = body.clone();
    let parsed = large_aside(body.len(), move || body::parse(&text)).await.ok().flatten();
    let text = parsed.map(|parsed| (body.clone(), parsed));
    Ok((Request::from_parts(parts, Body::from(body)), text))
}

/// The session, as far as headers and body tell it.
fn session_of(
    app: &App,
    headers: &HeaderMap,
    said: Option<&Parsed>,
    user: Option<&str>,
) -> Option<SessionId> {
    let nothing = body::parse(b"{}").ok()??;
    app.config.identity.identify(headers, said.unwrap_or(&nothing), user).session
}

/// Calls the model as its server does. The body then, if it can be read.
async fn rename(request: &mut Request, text: Option<Text>, model: &str) -> Option<Bytes> {
    if let Some(uri) = renamed(request.uri(), model) {
        *request.uri_mut() = uri;
    }
    let (body, parsed) = text?;
    let (size, model) = (body.len(), model.to_owned());
    let edit = move || {
        let edits = Edits { slot: SlotEdit::Keep, model: Some(&model), members: MembersEdit::Keep };
        parsed.rewrite(&body, edits)
    };
    let body = large_aside(size, edit).await;
    request.headers_mut().insert(CONTENT_LENGTH, body.len().into());
    *request.body_mut() = Body::from(body.clone());
    Some(body)
}

/// The model that a request names, in its body or else in its URI.
pub(crate) fn model_of(said: Option<&Parsed>, uri: &Uri) -> Option<String> {
    let in_query = || uri.query().and_then(naming::of_query);
    said.and_then(Parsed::model).map(str::to_owned).or_else(in_query)
}

/// The same URI with the model called as its server does; `None`: it names none.
pub(crate) fn renamed(uri: &Uri, model: &str) -> Option<Uri> {
    let query = naming::with_model(uri.query()?, model);
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{query}", uri.path())).ok()?);
    Uri::from_parts(parts).ok()
}
