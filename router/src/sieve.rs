//! Finds the event of a stream that tells of a full memory, after output has begun. Every other byte passes unchanged.

use bytes::{Bytes, BytesMut};
use memchr::memmem;

use crate::fullness::Fault;

/// How an event that tells an error begins: llama-server's, that of its `/v1/messages`, and that of older builds.
const STARTS: [&[u8]; 3] = [b"data: {\"error\"", b"event: error\n", b"error: "];
/// An event is looked at up to so many bytes. Real ones have about 100.
const EVENT_MAX: usize = 16 << 10;

/// Follows one stream, chunk by chunk. Holds back what may be the beginning of such an event, and nothing else.
#[derive(Debug)]
pub(crate) struct Sieve {
    held: BytesMut,
    place: Place,
    told: bool,
}

/// Where in the stream the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where an event begins; what has come of it is held.
    Between,
    /// In an event that passes, at the beginning of a line or not.
    Inside { line_begins: bool },
}

/// What becomes of a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sifted {
    /// What passes of it, and of what was held before.
    pub(crate) passes: Bytes,
    /// The memory is full: nothing that comes after this matters.
    pub(crate) full: bool,
}

impl Default for Sieve {
    fn default() -> Self {
        Self { held: BytesMut::new(), place: Place::Between, told: false }
    }
}

impl Sieve {
    /// Takes the next part of the body. Parts may be cut anywhere.
    pub(crate) fn feed(&mut self, chunk: Bytes) -> Sifted {
        let mut text = if self.held.is_empty() {
            chunk
        } else {
            self.held.extend_from_slice(&chunk);
            self.held.split().freeze()
        };
        let (passes, full) = self.decide(&text);
        self.held.extend_from_slice(&text.split_off(passes));
        Sifted { passes: text, full }
    }

    /// The stream has ended: there is nothing more to wait for.
    pub(crate) fn finish(&mut self) -> Sifted {
        let text = self.held.split().freeze();
        let full = is_full(&text);
        Sifted { passes: if full { Bytes::new() } else { text }, full }
    }

    /// The server has said itself that it can't go on with this request, in an event that has passed: it runs.
    pub(crate) fn has_told(&self) -> bool {
        self.told
    }

    /// Nothing is held back.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many bytes of `text` may pass, and whether the memory is full behind them.
    fn decide(&mut self, text: &[u8]) -> (usize, bool) {
        let Some(mut at) = self.go_on(text) else { return (text.len(), false) };
        loop {
            // More empty lines than one are no event.
            at += text[at..].iter().take_while(|byte| **byte == b'\n').count();
            let event = &text[at..];
            let end = event_end(event);
            match (kind(event), end) {
                // The rest of it decides.
                (Kind::Open, _) => return (at, false),
                (Kind::Error, None) if event.len() < EVENT_MAX => return (at, false),
                (Kind::Error, Some(end)) if end <= EVENT_MAX => match Fault::of_event(&event[..end]) {
                    Some(Fault::Full) => return (at, true),
                    fault => self.told |= matches!(fault, Some(Fault::Doubtful | Fault::Declined)),
                },
                _ => {}
            }
            let Some(end) = end else {
                self.place = Place::Inside { line_begins: event.ends_with(b"\n") };
                return (text.len(), false);
            };
            at += end;
        }
    }

    /// Where the first event begins, if the one that passes ends in `text`.
    fn go_on(&mut self, text: &[u8]) -> Option<usize> {
        let Place::Inside { line_begins } = self.place else { return Some(0) };
        let end = if line_begins && text.first() == Some(&b'\n') { Some(1) } else { event_end(text) };
        match end {
            Some(_) => self.place = Place::Between,
            None if text.is_empty() => {}
            None => self.place = Place::Inside { line_begins: text.ends_with(b"\n") },
        }
        end
    }
}

/// What an event is, by how it begins.
enum Kind {
    /// It may become one that tells an error.
    Open,
    Error,
    Other,
}

fn kind(event: &[u8]) -> Kind {
    if STARTS.iter().any(|start| event.starts_with(start)) {
        Kind::Error
    } else if STARTS.iter().any(|start| start.starts_with(event)) {
        Kind::Open
    } else {
        Kind::Other
    }
}

/// Where an event ends, with the empty line behind it. llama-server ends its lines with one byte.
fn event_end(text: &[u8]) -> Option<usize> {
    memmem::find(text, b"\n\n").map(|at| at + 2)
}

fn is_full(event: &[u8]) -> bool {
    Fault::of_event(event) == Some(Fault::Full)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ERROR: &str = r#"{"code":500,"message":"Context size has been exceeded.","type":"server_error"}"#;

    /// What passes of a stream in these parts, and whether the memory was full.
    fn sift<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
        let mut sieve = Sieve::default();
        let mut passed = Vec::new();
        for chunk in chunks {
            let sifted = sieve.feed(Bytes::copy_from_slice(chunk));
            passed.extend_from_slice(&sifted.passes);
            if sifted.full {
                return (passed, true);
            }
        }
        let last = sieve.finish();
        passed.extend_from_slice(&last.passes);
        (passed, last.full)
    }

    #[test]
    fn the_event_of_a_full_memory_is_found_wherever_it_is_cut() {
        let before = "data: {\"content\":\"a\"}\n\n";
        for error in [
            format!("data: {{\"error\":{ERROR}}}\n\n"),
            format!("event: error\ndata: {ERROR}\n\n"),
            format!("error: {ERROR}\n\n"),
        ] {
            for before in ["", before, "\n\n", ": a\n\n\n"] {
                let text = format!("{before}{error}");
                for cut in 0..text.len() {
                    let (one, other) = text.as_bytes().split_at(cut);
                    assert_eq!(sift([one, other]), (before.as_bytes().to_vec(), true), "{text:?} at {cut}");
                }
                assert!(sift(text.as_bytes().chunks(1)).1, "{text:?}");
                assert!(sift([text.trim_end().as_bytes()]).1, "{text:?}");
            }
        }
    }

    #[test]
    fn other_errors_and_what_a_model_says_pass() {
        for text in [
            "data: {\"content\":\"Context size has been exceeded.\"}\n\n".to_owned(),
            format!("data: {{\"content\":\"\\n\\ndata: {{\\\"error\\\":{ERROR:?}\"}}\n\n"),
            format!("data: a\ndata: {{\"error\":{ERROR}}}\n\n"),
            "data: {\"error\":{\"code\":500,\"message\":\"it fell over\",\"type\":\"server_error\"}}\n\n"
                .to_owned(),
            "data: {\"error\":{\"code\":400,\"message\":\"Context size has been exceeded.\"}}\n\n".to_owned(),
            "event: error\ndata: {\"error\n\ndata: 1\n\n".to_owned(),
        ] {
            for size in [1, 7, text.len()] {
                assert_eq!(sift(text.as_bytes().chunks(size)), (text.clone().into_bytes(), false), "{text}");
            }
        }
    }

    #[test]
    fn what_a_server_tells_of_one_request_is_told_from_what_breaks_it() {
        for (said, told) in [
            (r#"data: {"error":{"code":500,"message":"Failed to parse input","type":"server_error"}}"#, true),
            (r#"data: {"error":{"code":400,"message":"no","type":"invalid_request_error"}}"#, true),
            (r#"data: {"error":{"code":502,"message":"it broke off","type":"server_error"}}"#, false),
            (r#"data: {"content":"data: {\"error\":{\"code\":500,\"message\":\"a\"}}"}"#, false),
        ] {
            let mut sieve = Sieve::default();
            for byte in format!("data: 1\n\n{said}\n\n").as_bytes().chunks(1) {
                assert!(!sieve.feed(Bytes::copy_from_slice(byte)).full);
            }
            assert_eq!(sieve.has_told(), told, "{said}");
        }
    }

    #[test]
    fn a_word_of_the_model_is_never_held_back() {
        let mut sieve = Sieve::default();
        for chunk in ["data: {\"choices\":[1]}\n\n", "data: {\"choices\":", "[2]}\n", "\n", "event: content_"]
        {
            assert_eq!(sieve.feed(Bytes::from(chunk)), Sifted { passes: Bytes::from(chunk), full: false });
        }
    }

    #[test]
    fn an_error_that_has_no_end_is_not_held_for_ever() {
        let text = format!("data: {{\"error\":\"{}", "a".repeat(2 * EVENT_MAX));
        let mut sieve = Sieve::default();
        let passed: usize = text
            .as_bytes()
            .chunks(100)
            .map(|chunk| sieve.feed(Bytes::copy_from_slice(chunk)).passes.len())
            .sum();
        assert!(passed + 100 >= text.len() && sieve.is_empty(), "{passed}");
    }

    proptest! {
        #[test]
        fn where_the_chunks_are_cut_does_not_matter(
            picks in proptest::collection::vec(0..9_usize, 0..12), sizes in proptest::collection::vec(1..40_usize, 1..20),
        ) {
            let full = format!("data: {{\"error\":{ERROR}}}\n\n");
            let named = format!("event: error\ndata: {ERROR}\n\n");
            let parts = [
                "data: {\"content\":\"Context size has been exceeded.\"}\n\n", ": waiting\n\n", "\n", "\r\n", "data: {\"error\":",
                "event: error\n", "data: {\"error\":{\"code\":500}}\n\n", &full, &named,
            ];
            let text: String = picks.iter().map(|pick| parts[*pick]).collect();
            let whole = sift([text.as_bytes()]);
            prop_assert!(text.as_bytes().starts_with(&whole.0));
            prop_assert!(whole.1 || whole.0.len() == text.len());
            let mut rest = text.as_bytes();
            let mut sizes = sizes.iter().cycle();
            let chunks = std::iter::from_fn(|| {
                let (chunk, left) = rest.split_at((*sizes.next()?).min(rest.len()));
                rest = left;
                Some(chunk).filter(|chunk| !chunk.is_empty())
            });
            prop_assert_eq!(sift(chunks), whole);
        }
    }
}
