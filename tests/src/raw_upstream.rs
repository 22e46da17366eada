//! A server that says given bytes and keeps the bytes it gets: for what no HTTP library would say or show.
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// No test waits longer than this for a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gives every request the same answer and closes the connection. The router's own questions get a 404, so that it
/// takes this for a server without slots, and are not kept.
#[derive(Debug)]
pub struct RawUpstream {
    address: SocketAddr,
    seen: watch::Receiver<Vec<Vec<u8>>>,
    accepting: JoinHandle<()>,
}

impl RawUpstream {
    /// Starts it on the current tokio runtime. The answer is written as it is; an empty one is a hang-up.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start(answer: impl Into<Vec<u8>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port should be free");
        let address = listener.local_addr().expect("a bound port has an address");
        let (keep, seen) = watch::channel(Vec::new());
        let (keep, answer) = (Arc::new(keep), Arc::new(answer.into()));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&answer), Arc::clone(&keep)));
            }
        });
        Self { address, seen, accepting }
    }

    /// `http://ADDRESS`
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every complete request so far, as its bytes.
    #[must_use]
    pub fn seen(&self) -> Vec<Vec<u8>> {
        self.seen.borrow().clone()
    }

    /// Waits for the first complete request.
    ///
    /// # Panics
    /// After 30 s.
    pub async fn first(&self) -> Vec<u8> {
        let mut seen = self.seen.clone();
        let found = tokio::time::timeout(PATIENCE, seen.wait_for(|seen| !seen.is_empty())).await;
        found.expect("a request should come").expect("the upstream should run")[0].clone()
    }
}

impl Drop for RawUpstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, answer: Arc<Vec<u8>>, keep: Arc<watch::Sender<Vec<Vec<u8>>>>) {
    let Some(request) = read_request(&mut stream).await else { return };
    let own = [b"GET /slots ".as_slice(), b"GET /props "].iter().any(|start| request.starts_with(start));
    let answer = if own {
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec()
    } else {
        keep.send_modify(|seen| seen.push(request));
        answer.to_vec()
    };
    // A client that has left is one of the things to be tested.
    let _ = stream.write_all(&answer).await;
    let _ = stream.shutdown().await;
}

/// Head and body with their framing, or `None` if the connection ends before.
async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut read = Vec::new();
    while !is_complete(&read) {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
    Some(read)
}

fn is_complete(read: &[u8]) -> bool {
    let Some(head_end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&read[..head_end]).to_ascii_lowercase();
    let body = &read[head_end + 4..];
    let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if value("transfer-encoding:") == Some("chunked") {
        // Good enough for tests: their chunks hold no such text.
        let last = body.windows(3).position(|bytes| bytes == b"0\r\n");
        return last.is_some_and(|last| body[last..].windows(4).any(|bytes| bytes == b"\r\n\r\n"));
    }
    body.len() >= value("content-length:").and_then(|length| length.parse().ok()).unwrap_or(0)
}
