//! Requests that take no slot: which server they go to, and under which names.

use axum::extract::Request;
use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use session_slot_identity::SessionId;

use crate::body;
use crate::conversation;
use crate::headers;
use crate::proxy::App;
use crate::refusal::Refusal;
use crate::servers::{Member, key_of};

/// Where clients of llama-server's own router mode name a model.
const MODEL: &str = "model";
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
    let asked = model_asked(request.uri());
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

fn model_asked(uri: &Uri) -> Option<String> {
    let mut parts = uri.query()?.split('&').filter_map(|part| part.split_once('='));
    let (_, model) = parts.find(|(name, _)| headers::unescaped(name) == MODEL)?;
    Some(headers::unescaped(model).into_owned()).filter(|model| !model.is_empty())
}

/// The same URI with the model called as its server does.
fn renamed(uri: &Uri, model: &str) -> Option<Uri> {
    let renamed = |part: &str| match part.split_once('=') {
        Some((name, _)) if headers::unescaped(name) == MODEL => format!("{name}={model}"),
        _ => part.to_owned(),
    };
    let query = uri.query()?.split('&').map(renamed).collect::<Vec<_>>().join("&");
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{query}", uri.path())).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_asked_for_in_the_query_however_that_is_spelled() {
        let asked = |uri: &str| model_asked(&uri.parse().expect("a URI"));
        assert_eq!(asked("/props?a=1&model=a-m").as_deref(), Some("a-m"));
        assert_eq!(asked("/props?m%6fdel=a%2Dm").as_deref(), Some("a-m"));
        for uri in ["/props", "/props?model=", "/props?models=m", "/props?model"] {
            assert_eq!(asked(uri), None, "{uri}");
        }
    }

    #[test]
    fn only_the_models_name_is_changed_in_a_query() {
        let renamed = |uri: &str| renamed(&uri.parse().expect("a URI"), "m").map(|uri| uri.to_string());
        assert_eq!(renamed("/props?a=1&model=a-m&b").as_deref(), Some("/props?a=1&model=m&b"));
    }
}
