//! The load generator's HTTP: ready-made request bytes out, a minimal response reader in.
//!
//! A full client would cost more CPU than the proxies under test, and both share the machine.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One keep-alive connection.
#[derive(Debug)]
pub struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    /// Bytes read and not yet used.
    buffer: Vec<u8>,
}

/// How a response's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// What a response's head says, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    framing: Framing,
    closes: bool,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { address, stream, buffer: Vec::with_capacity(16 * 1024) })
    }

    /// Sends a request and reads the whole answer, handing each piece of its body to `on_body`; returns the status.
    pub async fn exchange(&mut self, request: &[u8], mut on_body: impl FnMut(&[u8])) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        let head = self.head().await?;
        match head.framing {
            Framing::Length(length) => self.take(length, &mut on_body).await?,
            Framing::Chunked => self.chunks(&mut on_body).await?,
        }
        if head.closes {
            *self = Self::open(self.address).await?;
        }
        Ok(head.status)
    }

    async fn head(&mut self) -> io::Result<Head> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = parse_head(&self.buffer[..end]);
                self.buffer.drain(..end + 4);
                return head;
            }
            self.more().await?;
        }
    }

    async fn chunks(&mut self, on_body: &mut impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            let length = self.chunk_length().await?;
            self.take(length, on_body).await?;
            // The line end after a chunk's data; after the last one, the end of the (empty) trailers.
            self.take(2, &mut |_| ()).await?;
            if length == 0 {
                return Ok(());
            }
        }
    }

    async fn chunk_length(&mut self) -> io::Result<usize> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 2);
                let digits = line.split(';').next().unwrap_or_default().trim();
                return usize::from_str_radix(digits, 16).map_err(|_| bad("chunk length"));
            }
            self.more().await?;
        }
    }

    /// Uses up `length` bytes.
    async fn take(&mut self, mut length: usize, on_body: &mut impl FnMut(&[u8])) -> io::Result<()> {
        loop {
            let now = length.min(self.buffer.len());
            on_body(&self.buffer[..now]);
            self.buffer.drain(..now);
            length -= now;
            if length == 0 {
                return Ok(());
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// The router's status.
pub async fn status(router: SocketAddr) -> io::Result<serde_json::Value> {
    let request = format!("GET /router/status HTTP/1.1\r\nhost: {router}\r\nconnection: close\r\n\r\n");
    let mut body = Vec::new();
    let mut connection = Connection::open(router).await?;
    connection.exchange(request.as_bytes(), |piece| body.extend_from_slice(piece)).await?;
    Ok(serde_json::from_slice(&body)?)
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("bad {what} in a response"))
}

fn parse_head(bytes: &[u8]) -> io::Result<Head> {
    let text = std::str::from_utf8(bytes).map_err(|_| bad("head"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let mut head =
        Head { status: status.ok_or_else(|| bad("status"))?, framing: Framing::Length(0), closes: false };
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            head.framing = Framing::Length(value.parse().map_err(|_| bad("content-length"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            head.framing = Framing::Chunked;
        } else if name.eq_ignore_ascii_case("connection") {
            head.closes = value.eq_ignore_ascii_case("close");
        }
    }
    Ok(head)
}

/// A chat request as ready-made bytes; its text fills the body up to about `body_size`. `session` adds the routing
/// members.
pub fn request(host: SocketAddr, body_size: usize, stream: bool, session: Option<&str>) -> Vec<u8> {
    let members = session.map_or_else(String::new, |session| {
        format!(r#""agent_name":"bench","agent_session_id":"{session}","client_type":"cli","#)
    });
    // Line breaks and quotes as in real text: a JSON reader must look at escapes, not only skip letters.
    let text = r#"let answer = \"forty-two\";\n"#;
    let text = text.repeat(body_size.saturating_sub(90) / text.len());
    let body = format!(
        r#"{{{members}"model":"local","stream":{stream},"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_tells_status_framing_and_end() {
        let head = parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close")
            .expect("a head");
        assert_eq!(head, Head { status: 200, framing: Framing::Chunked, closes: true });
        let head = parse_head(b"HTTP/1.1 503 Busy\r\ncontent-length: 12").expect("a head");
        assert_eq!(head, Head { status: 503, framing: Framing::Length(12), closes: false });
        assert!(parse_head(b"nonsense").is_err());
    }

    #[tokio::test]
    async fn two_answers_are_read_from_one_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accept");
            let answers =
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n\
                HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nfg";
            stream.write_all(answers).await.expect("write");
            // Kept open until the client has gone.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        });
        let mut connection = Connection::open(address).await.expect("connect");
        let mut body = Vec::new();
        for _ in 0..2 {
            assert_eq!(
                connection.exchange(b"x", |piece| body.extend_from_slice(piece)).await.expect("answer"),
                200
            );
        }
        assert_eq!(body, b"abcdefg");
        drop(connection);
        server.await.expect("server");
    }

    #[test]
    fn a_request_is_valid_json_of_about_the_asked_size() {
        let address = "127.0.0.1:1".parse().expect("address");
        for size in [1024, 1 << 20] {
            let bytes = request(address, size, false, Some("s-1"));
            let start = find(&bytes, b"\r\n\r\n").expect("a head") + 4;
            let body: serde_json::Value = serde_json::from_slice(&bytes[start..]).expect("JSON");
            assert_eq!(body["agent_session_id"], "s-1");
            assert!((bytes.len() - start).abs_diff(size) < 150, "{}", bytes.len() - start);
        }
    }
}
