//! `Upgrade` requests: once the server agrees, bytes go both ways untouched.

use axum::body::Body;
use axum::extract::Request;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;
use tracing::debug;

use crate::headers;
use crate::upstream::{Upstream, UpstreamError};

/// Forwards an upgrade request and, if the server switches, joins the two connections.
pub(crate) async fn open(
    upstream: &Upstream,
    mut request: Request,
) -> Result<Response<Incoming>, UpstreamError> {
    let client = hyper::upgrade::on(&mut request);
    let (mut parts, body) = request.into_parts();
    let protocol = parts.headers.get(UPGRADE).cloned();
    headers::clean_request(&mut parts.headers);
    parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    parts.headers.extend(protocol.map(|protocol| (UPGRADE, protocol)));
    let mut answer = upstream.forward(http::Request::from_parts(parts, Body::new(body))).await?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let server = hyper::upgrade::on(&mut answer);
        tokio::spawn(async move {
            if let Err(error) = join(client, server).await {
                debug!(%error, "a tunnel ended with an error");
            }
        });
    }
    Ok(answer)
}

async fn join(client: hyper::upgrade::OnUpgrade, server: hyper::upgrade::OnUpgrade) -> std::io::Result<()> {
    let (client, server) = tokio::try_join!(client, server).map_err(std::io::Error::other)?;
    copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await.map(drop)
}
