//! Which headers cross the router, and which requests may come in.

use std::borrow::Cow;
use std::hash::{Hash as _, Hasher as _};

use axum::http::request::Parts;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE, EXPECT, HOST, TE, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::net::IpAddr;
use std::sync::Arc;

use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;

use crate::chain::ChainKey;
use crate::config::{ClientKey, Secret};

/// What one router tells another of whose a request is.
pub(crate) const USER: HeaderName = HeaderName::from_static("x-slot-router-user");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// They concern one connection only (RFC 9110, section 7.6.1, and the older `Keep-Alive` and `Proxy-*`).
const HOP_BY_HOP: [HeaderName; 7] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// The codings of a body that hide what is in it.
const COMPRESSIONS: [&str; 7] = ["gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd"];

/// Takes out what concerns the client's connection only. `TE: trailers` stays: the router passes trailers on.
pub(crate) fn clean_request(headers: &mut HeaderMap) {
    let trailers =
        headers.get_all(TE).iter().any(|value| list(value).any(|word| word.eq_ignore_ascii_case("trailers")));
    clean_response(headers);
    headers.remove(TE);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // hyper has answered it with 100 Continue by reading the body.
    headers.remove(EXPECT);
}

/// Takes out what concerns the server's connection only.
pub(crate) fn clean_response(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(list)
        .filter_map(|word| word.parse::<HeaderName>().ok())
        // A client must not be able to have the length of its body removed by naming it.
        .filter(|name| *name != http::header::CONTENT_LENGTH && *name != HOST && *name != TE)
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

fn list(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// The request asks for another protocol on its connection.
pub(crate) fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE)
        && headers.get_all(CONNECTION).iter().flat_map(list).any(|word| word.eq_ignore_ascii_case("upgrade"))
}

/// The path as llama-server compares it: `/v1/chat/completion%73` and `/v1/chat/completion%u0073` lead to its slots.
pub(crate) fn unescaped(path: &str) -> Cow<'_, str> {
    let mut parts = path.split('%');
    let first = parts.next().unwrap_or_default();
    if first.len() == path.len() {
        return path.into();
    }
    let mut plain = first.to_owned();
    for part in parts {
        let (start, digits) = if part.starts_with('u') { (1, 4) } else { (0, 2) };
        let hex =
            part.get(start..start + digits).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let code = hex.and_then(|hex| u32::from_str_radix(hex, 16).ok());
        // No route has other letters than these.
        if let Some(letter) = code.and_then(char::from_u32).filter(char::is_ascii) {
            plain.push(letter);
            plain.push_str(&part[start + digits..]);
        } else {
            plain.push('%');
            plain.push_str(part);
        }
    }
    plain.into()
}

/// A compressed body can't be edited. Any other `Content-Encoding` (some clients name the character set there) means
/// nothing to llama-server.
pub(crate) fn is_compressed(headers: &HeaderMap) -> bool {
    let mut words = headers.get_all(CONTENT_ENCODING).iter().flat_map(list);
    words.any(|word| COMPRESSIONS.iter().any(|compression| word.eq_ignore_ascii_case(compression)))
}

/// The body is a form, as sounds are sent in.
pub(crate) fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.get(..10).is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart/"))
}

/// A web page that has its own name resolve to this machine (DNS rebinding) shows in `Host`. Addresses and
/// `localhost` can't be rebound; other names have to be allowed. A request without `Host` comes from no browser.
pub(crate) fn host_is_allowed(parts: &Parts, allowed: &[String]) -> bool {
    let in_headers = parts.headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or("\0"));
    let in_target = parts.uri.authority().map(http::uri::Authority::as_str);
    in_headers.chain(in_target).all(|host| name_is_allowed(host, allowed))
}

fn name_is_allowed(host: &str, allowed: &[String]) -> bool {
    let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
    let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || address.parse::<IpAddr>().is_ok() || allowed.contains(&name)
}

/// The one of the router's keys that the request carries. The headers that do are taken out: the key is not the server's.
pub(crate) fn take_key<'a>(headers: &mut HeaderMap, keys: &'a [ClientKey]) -> Option<&'a ClientKey> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().split_at_checked(7));
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer ")).map(|(_, given)| given);
    let in_bearer = bearer.and_then(|given| known(given.trim_ascii(), keys));
    let in_header = headers.get(API_KEY).and_then(|value| known(value.as_bytes(), keys));
    if in_bearer.is_some() {
        headers.remove(AUTHORIZATION);
    }
    if in_header.is_some() {
        headers.remove(API_KEY);
    }
    in_bearer.or(in_header)
}

/// Takes out what a router in front says of whose a request is. It is behind `own`, the user of the key that it came with,
/// so that nobody can be another key's user.
pub(crate) fn take_user(headers: &mut HeaderMap, own: Option<&str>) -> Option<Arc<str>> {
    let told = headers.remove(USER);
    let told = told.as_ref().and_then(|told| std::str::from_utf8(told.as_bytes()).ok());
    match (own, told.filter(|told| !told.is_empty())) {
        (Some(own), Some(told)) => Some(format!("{own}/{told}").into()),
        (own, told) => own.or(told).map(Arc::from),
    }
}

/// What stands for the key a request carries, where users have no names here: whoever has another one is somebody else.
/// Keyed, so that a key can't be found out from it.
pub(crate) fn mark_of_key(headers: &HeaderMap, key: &ChainKey) -> Option<Arc<str>> {
    let carried = [AUTHORIZATION, API_KEY].map(|name| headers.get(name).map(HeaderValue::as_bytes));
    carried.iter().any(Option::is_some).then(|| {
        let mut hasher = SipHasher24::new_with_key(&key.0);
        ("key", carried).hash(&mut hasher);
        format!("#{:016x}", hasher.finish()).into()
    })
}

/// Takes out what lets a client in elsewhere: with several servers each gets the router's own key for it.
pub(crate) fn drop_credentials(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, API_KEY, COOKIE] {
        headers.remove(name);
    }
}

/// Compares with every key, whichever fits: how long it takes tells nothing about them.
fn known<'a>(given: &[u8], keys: &'a [ClientKey]) -> Option<&'a ClientKey> {
    keys.iter().fold(None, |found, key| if is_key(given, &key.key) { Some(key) } else { found })
}

fn is_key(given: &[u8], key: &Secret) -> bool {
    given.ct_eq(key.expose().as_bytes()).into()
}

/// The credentials of a request, for the primer that is sent before it.
pub(crate) fn credentials(headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
    [AUTHORIZATION, API_KEY]
        .into_iter()
        .filter_map(|name| Some((name.clone(), headers.get(&name)?.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_another_key_is_somebody_else_and_no_key_can_be_read_from_it() {
        let mark = |carried: &[(HeaderName, &str)], secret: u8| {
            let pairs = carried.iter().map(|(name, value)| (name.clone(), value.parse().expect("a value")));
            mark_of_key(&pairs.collect(), &ChainKey([secret; 16]))
        };
        let ann = mark(&[(AUTHORIZATION, "Bearer ann's")], 7).expect("a key");
        assert_eq!(mark(&[(AUTHORIZATION, "Bearer ann's"), (HOST, "x")], 7), Some(ann.clone()));
        assert_ne!(mark(&[(AUTHORIZATION, "Bearer bob's")], 7), Some(ann.clone()));
        assert_ne!(mark(&[(API_KEY, "Bearer ann's")], 7), Some(ann.clone()));
        assert_ne!(mark(&[(AUTHORIZATION, "Bearer ann's")], 8), Some(ann.clone()));
        assert_eq!(mark(&[(HOST, "x")], 7), None);
        assert!(ann.len() == 17 && !ann.contains("ann"));
    }

    #[test]
    fn names_other_than_localhost_have_to_be_allowed() {
        let allowed = vec!["gpu.lan".to_owned()];
        for host in [
            "localhost",
            "LOCALHOST:8081",
            "127.0.0.1:8081",
            "[::1]:8081",
            "192.168.1.7",
            "gpu.lan:8081",
            "GPU.lan.",
        ] {
            assert!(name_is_allowed(host, &allowed), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "gpu.lan.evil.example",
            "",
            "\0",
        ] {
            assert!(!name_is_allowed(host, &allowed), "{host}");
        }
    }

    #[test]
    fn a_path_is_read_as_llama_server_reads_it() {
        for path in ["/v1/completion%73", "/v1/completion%u0073", "/v1/%63%6fmpletions", "%2Fv1/completions"]
        {
            assert_eq!(unescaped(path), "/v1/completions");
        }
        for path in ["/a", "/%", "/%4", "/%zz", "/%u00", "/%ff\u{fc}", "/%+1"] {
            assert_eq!(unescaped(path), path);
        }
    }

    #[test]
    fn whose_a_request_is_comes_from_its_key_first_and_from_the_router_in_front_behind_it() {
        let taken = |own: Option<&str>, told: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.extend(told.map(|told| (USER, HeaderValue::from_static(told))));
            let user = take_user(&mut headers, own);
            assert!(headers.is_empty(), "a server must not see it");
            user
        };
        assert_eq!(taken(Some("front"), Some("ann")).as_deref(), Some("front/ann"));
        assert_eq!(taken(Some("front"), None).as_deref(), Some("front"));
        assert_eq!(taken(None, Some("ann")).as_deref(), Some("ann"));
        assert_eq!((taken(None, None), taken(None, Some(""))), (None, None));
    }

    #[test]
    fn headers_named_by_connection_are_dropped_but_never_the_length_of_the_body() {
        let mut headers = HeaderMap::new();
        headers.insert(CONNECTION, HeaderValue::from_static("close, X-Private, content-length"));
        headers.insert("x-private", HeaderValue::from_static("1"));
        headers.insert("content-length", HeaderValue::from_static("5"));
        headers.insert(TE, HeaderValue::from_static("gzip, trailers"));
        clean_request(&mut headers);
        assert_eq!(headers.get(TE), Some(&HeaderValue::from_static("trailers")));
        assert_eq!(headers.get("content-length"), Some(&HeaderValue::from_static("5")));
        assert_eq!(headers.len(), 2);
    }
}
