//! A bare TCP connection, for what no HTTP client would send.
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No test waits longer than this for an answer's end.
const PATIENCE: Duration = Duration::from_secs(30);

/// One connection; dropping it closes it.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl RawConnection {
    /// Connects to the host of a URL such as `http://127.0.0.1:8081`.
    ///
    /// # Panics
    /// If nothing listens there.
    pub async fn open(url: &str) -> Self {
        let address = url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        let stream = TcpStream::connect(address).await;
        let stream = stream.unwrap_or_else(|error| panic!("{url}: {error}"));
        stream.set_nodelay(true).expect("a connected socket should take options");
        Self { stream, unread: Vec::new() }
    }

    /// Sends bytes on a connection of their own and reads all that comes back until it is closed.
    ///
    /// # Panics
    /// If nothing listens there, or the connection stays open for 30 s.
    pub async fn exchange(url: &str, bytes: impl AsRef<[u8]>) -> String {
        let mut connection = Self::open(url).await;
        // The other side may refuse without reading to the end.
        let _ = connection.stream.write_all(bytes.as_ref()).await;
        let answer = tokio::time::timeout(PATIENCE, connection.read_to_end()).await;
        answer.unwrap_or_else(|_| panic!("the connection stays open: {:?}", connection.unread))
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    /// If the other side has closed.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("the other side should still read");
    }

    /// Closes the sending direction only.
    ///
    /// # Panics
    /// If the other side has closed.
    pub async fn finish_sending(&mut self) {
        self.stream.shutdown().await.expect("the other side should still read");
    }

    /// Reads up to and including `end`; what comes after it is kept for the next read.
    ///
    /// # Panics
    /// If the connection ends before.
    pub async fn read_until(&mut self, end: &str) -> String {
        loop {
            let found = self.unread.windows(end.len()).position(|seen| seen == end.as_bytes());
            if let Some(start) = found {
                let read: Vec<u8> = self.unread.drain(..start + end.len()).collect();
                return String::from_utf8_lossy(&read).into_owned();
            }
            let more = self.stream.read_buf(&mut self.unread).await.unwrap_or(0);
            let seen = String::from_utf8_lossy(&self.unread);
            assert!(more > 0, "the connection ended before {end:?}: {seen:?}");
        }
    }

    /// Reads until the other side closes, well or badly.
    pub async fn read_to_end(&mut self) -> String {
        // A reset ends it as well as a close does.
        let _ = self.stream.read_to_end(&mut self.unread).await;
        String::from_utf8_lossy(&std::mem::take(&mut self.unread)).into_owned()
    }
}
