//! A small HTTP client: one connection per request, which is closed when its future is dropped.
mod answer;
mod raw;
mod session;

use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub use answer::{Answer, Streaming};
pub use raw::RawConnection;
pub use session::{Session, chat, chat_body, chat_request, words};

/// A request to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    method: Method,
    url: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Outgoing {
    /// Any method; not a standard one either.
    ///
    /// # Panics
    /// If the method is no token.
    #[must_use]
    pub fn new(method: &str, url: impl Into<String>) -> Self {
        let method = method.parse().expect("the method should be a token");
        Self { method, url: url.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// `GET`
    #[must_use]
    pub fn get(url: impl Into<String>) -> Self {
        Self::new("GET", url)
    }

    /// `POST` with a JSON body.
    #[must_use]
    pub fn post(url: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self::new("POST", url).header("content-type", "application/json").body(body)
    }

    /// Adds a header; a name can be added twice.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// The HTTP message and the address to send it to.
    fn into_message(self) -> Result<(String, Request<Full<Bytes>>), String> {
        let uri: Uri = self.url.parse().map_err(|error| format!("{}: {error}", self.url))?;
        let address = uri.authority().ok_or("the URL should have a host")?.to_string();
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut message = Request::builder().method(self.method).uri(target);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            message = message.header(header::HOST, &address);
        }
        for (name, value) in &self.headers {
            message = message.header(name, value);
        }
        let message = message.body(Full::new(self.body)).map_err(|error| error.to_string())?;
        Ok((address, message))
    }
}

/// The task that drives a connection, ended with it.
#[derive(Debug)]
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a request and returns as soon as the status and headers are there.
///
/// # Errors
/// If nothing listens, or the connection breaks.
pub async fn try_open(request: Outgoing) -> Result<Streaming, String> {
    let (address, message) = request.into_message()?;
    let stream = TcpStream::connect(&address).await.map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let connection = Connection(tokio::spawn(async move {
        // How it ends is seen in the answer.
        let _ = connection.await;
    }));
    let answer = sender.send_request(message).await.map_err(|error| format!("{error:?}"))?;
    let (parts, body) = answer.into_parts();
    let (status, headers) = (parts.status, parts.headers);
    Ok(Streaming { status, headers, body, trailers: None, _connection: connection })
}

/// Sends a request and reads the whole answer.
///
/// # Errors
/// If nothing listens, or the connection breaks.
pub async fn try_send(request: Outgoing) -> Result<Answer, String> {
    try_open(request).await?.finish().await
}

/// [`try_open`] for requests that must succeed.
///
/// # Panics
/// If they don't.
pub async fn open(request: Outgoing) -> Streaming {
    let url = request.url.clone();
    try_open(request).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// [`try_send`] for requests that must succeed.
///
/// # Panics
/// If they don't.
pub async fn send(request: Outgoing) -> Answer {
    let url = request.url.clone();
    try_send(request).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Sends a request in a task of its own. Aborting the task is a client that leaves.
#[must_use]
pub fn send_later(request: Outgoing) -> JoinHandle<Answer> {
    tokio::spawn(send(request))
}

/// `GET url`
pub async fn get(url: impl Into<String>) -> Answer {
    send(Outgoing::get(url)).await
}

/// `POST url` with a JSON body.
pub async fn post_json(url: impl Into<String>, body: impl Into<String>) -> Answer {
    send(Outgoing::post(url, body.into())).await
}

/// `POST url` with a JSON body, the answer read piece by piece.
pub async fn stream_json(url: impl Into<String>, body: impl Into<String>) -> Streaming {
    open(Outgoing::post(url, body.into())).await
}
