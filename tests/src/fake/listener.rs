//! The fake's port: accepting, cutting every connection at once, refusing, accepting again.
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderValue, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::breakage::{Cut, reset_at_close, twin};
use super::options::KeepAlive;
use super::reply::Reply;
use super::routes;
use super::state::Shared;

/// Whether a socket that does not listen can share the port of one that does, without getting any
/// of its connections.
const SHARES_PORTS: bool = cfg!(target_os = "linux");
/// How long a connection stays open after a streamed answer, for requests to get lost on.
const CLOSES_AFTER: Duration = Duration::from_millis(50);
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The port, open or not.
#[derive(Debug)]
pub(super) enum Port {
    Open {
        stop: watch::Sender<bool>,
        accepting: JoinHandle<()>,
        /// Bound all the while, so that no other test gets the port at the moment it is closed.
        reserved: Option<TcpSocket>,
    },
    /// Bound, so that nobody else gets the port, but not listening: connections are refused.
    Refusing(TcpSocket),
    /// Only while it changes from one to the other.
    Changing,
}

impl Port {
    /// Binds the address.
    pub(super) fn bind(address: SocketAddr) -> io::Result<(Self, SocketAddr)> {
        let socket = bound(address)?;
        let address = socket.local_addr()?;
        Ok((Self::Refusing(socket), address))
    }

    /// Begins to accept.
    pub(super) fn open(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        if let Self::Refusing(socket) = std::mem::replace(self, Self::Changing) {
            let (stop, stopped) = watch::channel(false);
            let reserved = SHARES_PORTS.then(|| bound(socket.local_addr()?)).transpose()?;
            let listener = socket.listen(BACKLOG)?;
            let accepting = tokio::spawn(accept(listener, Arc::clone(shared), stopped));
            *self = Self::Open { stop, accepting, reserved };
        }
        Ok(())
    }

    /// Cuts all connections and refuses new ones. When it returns that has happened.
    pub(super) async fn close(&mut self, address: SocketAddr) -> io::Result<()> {
        *self = match std::mem::replace(self, Self::Changing) {
            Self::Open { stop, accepting, reserved } => {
                stop.send_replace(true);
                accepting.await.map_err(io::Error::other)?;
                Self::Refusing(reserved.map_or_else(|| bound(address), Ok)?)
            }
            closed => closed,
        };
        Ok(())
    }
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    #[cfg(target_os = "linux")]
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Also when the sender is gone, and the fake with it.
            _ = stop.changed() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            },
        }
    }
    drop(listener);
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    // Each event leaves at once. Without it the fake would only be slower.
    let _ = stream.set_nodelay(true);
    let keep_alive = shared.read(|state| state.engine.options.keep_alive);
    let served = AtomicUsize::new(0);
    let streamed = Arc::new(Notify::new());
    let closing = AtomicBool::new(false);
    let (cut, twin) = (Cut::default(), twin(&stream));
    let service = service_fn(|mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(cut.clone());
        let number = served.fetch_add(1, Ordering::Relaxed) + 1;
        let reply = routes::handle(Arc::clone(&shared), request);
        let streamed = Arc::clone(&streamed);
        let lost = closing.load(Ordering::Relaxed);
        async move {
            if lost {
                return Err(io::Error::other("the connection is about to be closed"));
            }
            let reply = reply.await;
            let reply = if is_streamed(&reply) && keep_alive.is_some() {
                watched(reply, Over(streamed))
            } else {
                reply
            };
            Ok(with_keep_alive(reply, number, keep_alive))
        }
    });
    let mut server = http1::Builder::new();
    if let Some(limits) = keep_alive {
        // The time to the next request's head: it closes idle connections too.
        server.timer(TokioTimer::new()).header_read_timeout(limits.timeout);
    }
    let mut connection = pin!(server.serve_connection(TokioIo::new(stream), service).with_upgrades());
    tokio::select! {
        // How a connection ends is the client's business.
        _ = &mut connection => {}
        () = cut.asked_for() => {
            if let Some(twin) = twin {
                reset_at_close(twin);
            }
        }
        () = streamed.notified() => {
            closing.store(true, Ordering::Relaxed);
            let _ = timeout(CLOSES_AFTER, connection).await;
        }
    }
}

/// Tells the connection that a streamed answer is over: llama-server (b11549) closes it then, without having said so.
struct Over(Arc<Notify>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn is_streamed(reply: &Reply) -> bool {
    reply.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream")
}

fn watched(reply: Reply, over: Over) -> Reply {
    reply.map(|body| {
        let passing = move |frame| {
            let _until_the_end = &over;
            frame
        };
        body.map_frame(passing).boxed_unsync()
    })
}

fn with_keep_alive(mut reply: Reply, number: usize, limits: Option<KeepAlive>) -> Reply {
    let Some(limits) = limits else { return reply };
    if number >= limits.max {
        reply.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    } else if !reply.status().is_informational() {
        let told = format!("timeout={}, max={}", limits.timeout.as_secs(), limits.max);
        if let Ok(told) = HeaderValue::from_str(&told) {
            reply.headers_mut().insert("keep-alive", told);
        }
    }
    reply
}
