//! Where a stream of events (SSE) stands: between two events or inside one, and whether it has said its last word.

use memchr::memmem;

/// How the last event of an answer begins: OpenAI's end of a stream, Anthropic's, and those of responses.
const LAST_WORDS: [&[u8]; 5] = [
    b"data: [DONE]",
    b"event: message_stop",
    b"event: response.completed",
    b"event: response.incomplete",
    b"event: response.failed",
];
const GAP: &[u8] = b"\n\n";
/// As much of what has passed as can belong to a gap and a last word.
const SEAM_BYTES: usize = 32;

/// Follows one stream, chunk by chunk.
#[derive(Debug)]
pub(crate) struct EventStream {
    /// Something has passed.
    begun: bool,
    /// The newest bytes, after the gap that a stream may be thought to begin with.
    tail: Vec<u8>,
    last_word: bool,
}

impl Default for EventStream {
    fn default() -> Self {
        Self { begun: false, tail: GAP.to_vec(), last_word: false }
    }
}

impl EventStream {
    /// Reads the next part of the body. Parts may be cut anywhere.
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        self.begun |= !chunk.is_empty();
        self.tail.extend_from_slice(&chunk[..chunk.len().min(SEAM_BYTES)]);
        self.last_word |= has_last_word(&self.tail) || has_last_word(chunk);
        if chunk.len() > SEAM_BYTES {
            self.tail.clear();
            self.tail.extend_from_slice(&chunk[chunk.len() - SEAM_BYTES..]);
        } else {
            self.tail.drain(..self.tail.len().saturating_sub(SEAM_BYTES));
        }
    }

    /// Nothing has passed yet.
    pub(crate) fn is_silent(&self) -> bool {
        !self.begun
    }

    /// An event of another kind may be put in here.
    pub(crate) fn is_between(&self) -> bool {
        self.tail.ends_with(GAP)
    }

    /// The answer is whole, even if its body has not ended yet.
    pub(crate) fn has_ended(&self) -> bool {
        self.last_word && self.is_between()
    }
}

fn has_last_word(text: &[u8]) -> bool {
    let mut events = memmem::find_iter(text, GAP).map(|at| &text[at + GAP.len()..]);
    events.any(|event| LAST_WORDS.iter().any(|word| event.starts_with(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(chunks: &[&str]) -> EventStream {
        let mut stream = EventStream::default();
        chunks.iter().for_each(|chunk| stream.feed(chunk.as_bytes()));
        stream
    }

    #[test]
    fn a_stream_is_between_events_at_its_start_and_after_an_empty_line() {
        assert!(after(&[]).is_between() && after(&[""]).is_silent());
        for chunks in
            [&["data: 1\n\n"][..], &["data: 1\n", "\n"], &["data: 1", "\n\n"], &["data: 1\n\ndata: 2\n\n"]]
        {
            assert!(after(chunks).is_between(), "{chunks:?}");
        }
        for chunks in [&["data: 1"][..], &["data: 1\n"], &["data: 1\n\nda"], &["data: 1\n\n", "data: 2\n"]] {
            assert!(!after(chunks).is_between(), "{chunks:?}");
        }
    }

    #[test]
    fn an_answer_is_whole_after_the_last_event_of_its_dialect() {
        for last in [
            "data: [DONE]\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            "event: response.completed\ndata: {}\n\n",
        ] {
            assert!(after(&["data: 1\n\n", last]).has_ended(), "{last}");
            let whole = format!("data: 1\n\n{last}");
            assert!(after(&[&whole]).has_ended(), "{last}");
            for cut in 1..whole.len() {
                assert!(after(&[&whole[..cut], &whole[cut..]]).has_ended(), "{last} cut at {cut}");
            }
            let bytes: Vec<_> = whole.chars().map(String::from).collect();
            assert!(after(&bytes.iter().map(String::as_str).collect::<Vec<_>>()).has_ended(), "{last}");
            assert!(!after(&["data: 1\n\n", last.trim_end()]).has_ended(), "{last}");
        }
    }

    #[test]
    fn what_a_model_says_of_endings_ends_nothing() {
        for text in [
            "data: {\"content\":\"data: [DONE]\"}\n\n",
            "data: {\"content\":\"\\n\\nevent: message_stop\"}\n\n",
        ] {
            assert!(!after(&[text]).has_ended(), "{text}");
            assert!(!after(&[&text[..18], &text[18..]]).has_ended(), "{text}");
        }
    }
}
