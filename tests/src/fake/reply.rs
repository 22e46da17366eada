//! Ready-made HTTP answers.
use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::failure::Failure;

/// The body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, hyper::Error>;
/// Every answer.
pub(super) type Reply = Response<Body>;

/// A body that is all there.
pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// A body of the given type.
pub(super) fn typed(content_type: &'static str, body: Body) -> Reply {
    let mut reply = Response::new(body);
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    reply
}

/// 200 with JSON.
pub(super) fn json(value: &Value) -> Reply {
    typed("application/json; charset=utf-8", full(value.to_string()))
}

/// JSON or the failure.
pub(super) fn json_or(result: Result<Value, Failure>) -> Reply {
    result.map_or_else(|failure| failed(&failure), |value| json(&value))
}

/// The failure as an answer.
pub(super) fn failed(failure: &Failure) -> Reply {
    let mut reply = json(&failure.to_json());
    *reply.status_mut() = failure.code();
    reply
}

/// A status without a body.
pub(super) fn bare(status: StatusCode) -> Reply {
    let mut reply = Response::new(full(Bytes::new()));
    *reply.status_mut() = status;
    reply
}
