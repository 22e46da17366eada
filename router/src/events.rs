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

/// Follows one stream, chunk by chunk. Events that are cut in the middle of their first words are not recognised as
/// the last one: then the end of the body tells.
#[derive(Debug, Default)]
pub(crate) struct EventStream {
    /// Something has passed.
    begun: bool,
    /// The newest byte but one, and the newest.
    newest: [u8; 2],
    last_word: bool,
}

impl EventStream {
    /// Reads the next part of the body. Parts may be cut anywhere.
    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        let Some((&last, before)) = chunk.split_last() else { return };
        let is_last = |rest: &[u8]| LAST_WORDS.iter().any(|word| rest.starts_with(word));
        self.last_word |= self.is_between() && is_last(chunk)
            || memmem::find_iter(chunk, GAP).any(|at| is_last(&chunk[at + GAP.len()..]));
        self.newest = [before.last().copied().unwrap_or(self.newest[1]), last];
        self.begun = true;
    }

    /// Nothing has passed yet.
    pub(crate) fn is_silent(&self) -> bool {
        !self.begun
    }

    /// An event of another kind may be put in here.
    pub(crate) fn is_between(&self) -> bool {
        !self.begun || self.newest == GAP
    }

    /// The answer is whole, even if its body has not ended yet.
    pub(crate) fn has_ended(&self) -> bool {
        self.last_word && self.is_between()
    }
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
            assert!(after(&[&format!("data: 1\n\n{last}")]).has_ended(), "{last}");
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
