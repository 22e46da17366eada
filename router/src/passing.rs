//! Requests that take no slot: which server they go to, and under which names.

use axum::extract::Request;
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use session_slot_identity::SessionId;

use crate::body;
use crate::conversation;
use crate::fleet::naming;
use crate::proxy::App;
use crate::refusal::Refusal;
use crate::servers::{Member, key_of};

/// Where another router looks for a session first, of what a request without a body can carry.
const SESSION: &str = "x-agent-session-id";

/// The server of a request, and the request as it goes there.
pub(crate) fn server_of<'a>(
    app: &'a App,
    mut request: Request,
    user: Option<&str>,
) -> Result<(&'a Member, Request), Refusal> {
    let session = session_of(app, &request, user);
    conversation::name_in_stream(&mut request, session.as_ref(), user);
    if let Some(only) = app.servers.only() {
        return Ok((only, request));
    }
    let asked = request.uri().query().and_then(naming::of_query);
    let target = app.servers.target(session.as_ref().map(key_of), asked.as_deref());
    let target = target.ok_or_else(|| app.servers.unknown_model())?;
    if let Some(uri) = target.model.as_deref().and_then(|model| renamed(request.uri(), model)) {
        *request.uri_mut() = uri;
    }
    let member = app.servers.for_passing(&target);
    if let Some(session) = session.filter(|_| member.slots.is_none())
        && let Ok(session) = HeaderValue::from_bytes(session.as_str().as_bytes())
    {
        // There its turns came under this name, and so did its streams.
        request.headers_mut().insert(SESSION, session);
    }
    Ok((member, request))
}

/// The session, as far as the headers tell it: the body is not read.
fn session_of(app: &App, request: &Request, user: Option<&str>) -> Option<SessionId> {
    let no_members = body::parse(b"{}").ok()??;
    app.config.identity.identify(request.headers(), &no_members, user).session
}

/// The same URI with the model called as its server does.
fn renamed(uri: &Uri, model: &str) -> Option<Uri> {
    let query = naming::with_model(uri.query()?, model);
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{query}", uri.path())).ok()?);
    Uri::from_parts(parts).ok()
}
