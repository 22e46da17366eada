//! llama-server's resumable streams: a request with `X-Conversation-Id` outlives its client, and another one with the
//! same id ends it. So the id is made the session's own: two sessions, or two users, never meet in one stream.

use axum::extract::Request;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use session_slot_identity::SessionId;
use sha2::{Digest, Sha256};

use crate::headers;

const CONVERSATION: HeaderName = HeaderName::from_static("x-conversation-id");
/// Where llama-server looks a stream up, reads on and ends it (b11549): the id is the parameter `conv_id`, or, in older
/// builds, the rest of the path.
const STREAMS: [&str; 2] = ["/v1/stream", "/v1/streams"];
/// As much of the hash as no two owners share by chance or on purpose.
const PREFIX_BYTES: usize = 16;
const PARAMETERS: [&str; 2] = ["conv_id", "conversation_id"];

/// The request may outlive its client.
pub(crate) fn is_named_in(headers: &HeaderMap) -> bool {
    headers.get(CONVERSATION).is_some_and(|id| !id.is_empty())
}

/// Makes the conversation named in the headers of a turn that of `owner`: its session, or its user.
pub(crate) fn name_in(headers: &mut HeaderMap, owner: Option<&str>) {
    let Some(owner) = owner else { return };
    let Some(id) = headers.get(CONVERSATION).filter(|id| !id.is_empty()) else { return };
    if let Ok(own) = HeaderValue::from_bytes(&[prefix(owner).as_bytes(), id.as_bytes()].concat()) {
        headers.insert(CONVERSATION, own);
    }
}

/// The same for a request that reads a stream on or ends it.
pub(crate) fn name_in_stream(request: &mut Request, session: Option<&SessionId>, user: Option<&str>) {
    if !is_about_streams(request.uri()) {
        return;
    }
    let owner = session.map(SessionId::as_str).or(user).map(str::to_owned);
    name_in(request.headers_mut(), owner.as_deref());
    if let Some(owner) = owner {
        // Whoever spells the route in another way to get at a stream by its full name gets at none.
        let uri = renamed(request.uri(), &prefix(&owner));
        *request.uri_mut() = uri.unwrap_or_else(|| Uri::from_static(STREAMS[0]));
    }
}

/// A request there reads a stream on or ends it.
pub(crate) fn is_about_streams(uri: &Uri) -> bool {
    is_route_of_streams(&headers::unescaped(uri.path()))
}

/// The stream that a turn makes, once it has its owner's name: what [`name_in`] and [`name_in_stream`] have made of it.
pub(crate) fn named_in(headers: &HeaderMap) -> Option<Vec<u8>> {
    headers.get(CONVERSATION).filter(|id| !id.is_empty()).map(|id| id.as_bytes().to_vec())
}

/// The same for a request that reads a stream on or ends it.
pub(crate) fn named_in_stream(request: &Request) -> Option<Vec<u8>> {
    if !is_about_streams(request.uri()) {
        return None;
    }
    let in_path = request.uri().path().strip_prefix("/v1/stream/").filter(|id| !id.is_empty());
    let in_query = request.uri().query().into_iter().flat_map(|query| query.split('&')).find_map(|part| {
        let (name, id) = part.split_once('=')?;
        (PARAMETERS.contains(&&*headers::unescaped(name)) && !id.is_empty()).then_some(id)
    });
    let id = in_path.or(in_query).map(|id| percent_decode_str(id).collect());
    id.or_else(|| named_in(request.headers()))
}

fn is_route_of_streams(path: &str) -> bool {
    let mut rests = STREAMS.iter().filter_map(|route| path.strip_prefix(route));
    rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The same URI with the id it names made the owner's. `None` if the route is not spelled as usual.
fn renamed(uri: &Uri, prefix: &str) -> Option<Uri> {
    if !is_route_of_streams(uri.path()) {
        return None;
    }
    let path = match uri.path().strip_prefix("/v1/stream/") {
        Some(id) if !id.is_empty() => format!("/v1/stream/{prefix}{id}"),
        _ => uri.path().to_owned(),
    };
    let query = uri.query().map(|query| {
        let named = |part: &str| match part.split_once('=') {
            Some((name, id)) if PARAMETERS.contains(&&*headers::unescaped(name)) => {
                format!("{name}={prefix}{id}")
            }
            _ => part.to_owned(),
        };
        query.split('&').map(named).collect::<Vec<_>>().join("&")
    });
    let target = query.map_or(path.clone(), |query| format!("{path}?{query}"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Uri::from_parts(parts).ok()
}

/// What stands before the ids of one owner. A hash, since it has to fit into a header and a query whatever the owner is
/// called; the same in every run, so that a stream can be read on after a restart of the router.
fn prefix(owner: &str) -> String {
    let hash = Sha256::digest(owner);
    let hex: String = hash.iter().take(PREFIX_BYTES).map(|byte| format!("{byte:02x}")).collect();
    hex + "-"
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn asked(uri: &str, session: Option<&str>, user: Option<&str>) -> String {
        let mut request = Request::get(uri).body(Body::empty()).expect("a request");
        let session = session.map(|session| SessionId::new(session).expect("an id"));
        let session = session.map(|session| user.map_or(session.clone(), |user| session.of_user(user)));
        name_in_stream(&mut request, session.as_ref(), user);
        request.uri().to_string()
    }

    fn named(owner: Option<&str>) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(CONVERSATION, HeaderValue::from_static("c1"));
        name_in(&mut headers, owner);
        headers[CONVERSATION].to_str().expect("text").to_owned()
    }

    #[test]
    fn whoever_reads_a_stream_on_calls_it_as_the_turn_did_that_made_it() {
        for (user, id) in [(None, "c1"), (Some("ann"), "c1"), (None, "c/1 +%2B")] {
            let mut headers = HeaderMap::new();
            headers.insert(CONVERSATION, HeaderValue::from_str(id).expect("a header"));
            name_in(&mut headers, user);
            let escaped = id.replace('%', "%25").replace('/', "%2F").replace(' ', "%20").replace('+', "%2B");
            for uri in [format!("/v1/stream?a=b&conv_id={escaped}"), format!("/v1/stream/{escaped}")] {
                let mut request = Request::get(&uri).body(Body::empty()).expect("a request");
                name_in_stream(&mut request, None, user);
                assert_eq!(named_in_stream(&request), named_in(&headers), "{uri}");
            }
        }
        let other = Request::get("/v1/models?conv_id=c1").body(Body::empty()).expect("a request");
        assert_eq!(named_in_stream(&other), None);
    }

    #[test]
    fn two_sessions_of_one_conversation_id_have_two_streams() {
        assert_ne!(named(Some("a")), named(Some("b")));
        assert!(named(Some("S\u{fc}d ✓")).ends_with("-c1"));
        assert_eq!(named(None), "c1");
    }

    #[test]
    fn an_empty_id_is_none() {
        let mut headers = HeaderMap::new();
        headers.insert(CONVERSATION, HeaderValue::from_static(""));
        name_in(&mut headers, Some("s"));
        assert!(headers[CONVERSATION].is_empty() && !is_named_in(&headers));
    }

    #[test]
    fn a_stream_is_read_on_under_the_name_it_was_begun_with() {
        let own = named(Some("s"));
        assert_eq!(
            asked("/v1/stream?from=7&conv_id=c1", Some("s"), None),
            format!("/v1/stream?from=7&conv_id={own}")
        );
        assert_eq!(asked("/v1/stream/c1?from=7", Some("s"), None), format!("/v1/stream/{own}?from=7"));
        assert_eq!(
            asked("/v1/streams?conversation_id=c1", Some("s"), None),
            format!("/v1/streams?conversation_id={own}")
        );
        assert_eq!(
            asked("/v1/stream?conv_id=c1", None, Some("ann")),
            format!("/v1/stream?conv_id={}", named(Some("ann")))
        );
        let of_user = named(Some("ann/s"));
        assert_eq!(
            asked("/v1/stream?conv_id=c1", Some("s"), Some("ann")),
            format!("/v1/stream?conv_id={of_user}")
        );
    }

    #[test]
    fn however_a_route_or_parameter_is_spelled_no_stream_of_another_owner_is_named() {
        let own = named(Some("s"));
        assert_eq!(
            asked("/v1/stream?conv%5Fid=c1&%63onv_id=c1", Some("s"), None),
            format!("/v1/stream?conv%5Fid={own}&%63onv_id={own}")
        );
        for uri in ["/v1/%73tream?conv_id=c1", "/v1/%u0073tream/c1", "/v1%2Fstream%2Fc1"] {
            assert_eq!(asked(uri, Some("s"), None), "/v1/stream", "{uri}");
        }
        // Also where only the slash before the id is another one.
        assert_eq!(asked("/v1/stream%2Fc1", Some("s"), None), "/v1/stream");
    }

    #[test]
    fn without_an_owner_and_elsewhere_nothing_is_renamed() {
        assert_eq!(asked("/v1/stream?conv_id=c1", None, None), "/v1/stream?conv_id=c1");
        for uri in ["/v1/streamer?conv_id=c1", "/v1/models?conv_id=c1"] {
            assert_eq!(asked(uri, Some("s"), None), uri);
        }
    }
}
