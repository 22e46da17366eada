//! Reads a streamed answer: its text, what was computed and cached, and whether it came whole.

use serde_json::Value;

use crate::conversation::Route;

/// What became of one streamed answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The assistant's text.
    pub text: String,
    /// Prompt tokens the server says it computed for this request, and reused for it.
    pub accounting: Option<Accounting>,
    /// The route's own end mark was seen; without it the stream was cut.
    pub finished: bool,
    /// An error frame inside a stream that began with 200.
    pub error: Option<String>,
}

/// Prompt tokens of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounting {
    /// Computed anew.
    pub computed: u64,
    /// Reused from the slot's cache.
    pub cached: u64,
}

/// Splits a byte stream into SSE data and feeds them to an [`Answer`].
#[derive(Debug)]
pub struct Reader {
    route: Route,
    /// The last, incomplete line.
    rest: Vec<u8>,
    answer: Answer,
}

impl Reader {
    /// For an answer on `route`.
    pub fn new(route: Route) -> Self {
        Self { route, rest: Vec::new(), answer: Answer::default() }
    }

    /// Takes what arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            // Event names and comments (keep-alives) carry nothing the data doesn't.
            if let Some(data) = line.trim_end().strip_prefix("data:") {
                self.event(data.trim_start());
            }
        }
    }

    /// Whether the model has said anything yet: the moment an agent's user sees something.
    pub fn has_begun(&self) -> bool {
        !self.answer.text.is_empty() || self.answer.finished
    }

    /// The answer, at the end of the stream.
    pub fn finish(self) -> Answer {
        self.answer
    }

    fn event(&mut self, data: &str) {
        if data == "[DONE]" {
            self.answer.finished |= self.route == Route::Chat;
            return;
        }
        let Ok(event) = serde_json::from_str::<Value>(data) else {
            self.answer.error = Some("a frame that is not JSON".to_owned());
            return;
        };
        if event["type"] == "error" || event.get("error").is_some_and(|error| !error.is_null()) {
            self.answer.error = Some(event["error"]["message"].as_str().unwrap_or("error frame").to_owned());
        }
        match self.route {
            Route::Chat => self.chat(&event),
            Route::Completion => self.completion(&event),
            Route::Messages => self.messages(&event),
            Route::Responses => self.responses(&event),
        }
    }

    fn chat(&mut self, event: &Value) {
        let delta = &event["choices"][0]["delta"];
        self.say(&delta["content"]);
        // Kept as text, so that the next prompt still begins with what the server generated.
        self.say(&delta["tool_calls"][0]["function"]["arguments"]);
        self.timings(&event["timings"]);
        self.usage(&event["usage"]);
    }

    fn completion(&mut self, event: &Value) {
        self.say(&event["content"]);
        self.timings(&event["timings"]);
        self.answer.finished |= event["stop"] == true;
    }

    fn messages(&mut self, event: &Value) {
        self.say(&event["delta"]["text"]);
        self.say(&event["delta"]["partial_json"]);
        let usage = &event["message"]["usage"];
        if let Some(computed) = usage["input_tokens"].as_u64() {
            // Here input_tokens leaves out what was cached, unlike in the OpenAI dialects.
            let cached = usage["cache_read_input_tokens"].as_u64().unwrap_or(0);
            self.answer.accounting = Some(Accounting { computed, cached });
        }
        self.answer.finished |= event["type"] == "message_stop";
    }

    fn responses(&mut self, event: &Value) {
        if event["type"] == "response.output_text.delta" {
            self.say(&event["delta"]);
        }
        let usage = &event["response"]["usage"];
        if let Some(all) = usage["input_tokens"].as_u64() {
            let cached = usage["input_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
            self.answer.accounting = Some(Accounting { computed: all.saturating_sub(cached), cached });
        }
        self.answer.finished |= event["type"] == "response.completed";
    }

    fn say(&mut self, text: &Value) {
        self.answer.text.push_str(text.as_str().unwrap_or_default());
    }

    /// What is left of the counts behind a router that takes llama-server's own members out.
    fn usage(&mut self, usage: &Value) {
        if let (Some(all), None) = (usage["prompt_tokens"].as_u64(), self.answer.accounting) {
            let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
            self.answer.accounting = Some(Accounting { computed: all.saturating_sub(cached), cached });
        }
    }

    fn timings(&mut self, timings: &Value) {
        if let (Some(computed), Some(cached)) = (timings["prompt_n"].as_u64(), timings["cache_n"].as_u64()) {
            self.answer.accounting = Some(Accounting { computed, cached });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(route: Route, stream: &str) -> Answer {
        let mut reader = Reader::new(route);
        // One byte at a time: a frame may be cut anywhere.
        stream.bytes().for_each(|byte| reader.feed(&[byte]));
        reader.finish()
    }

    #[test]
    fn a_chat_stream_gives_text_and_timings() {
        let answer = read(
            Route::Chat,
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n\
             : keep-alive\n\n\
             data: {\"choices\":[{\"delta\":{\"content\":\"hé\"}}]}\n\n\
             data: {\"choices\":[{\"delta\":{}}],\"timings\":{\"cache_n\":49,\"prompt_n\":5}}\n\ndata: [DONE]\n\n",
        );
        assert_eq!(answer.text, "hé");
        assert_eq!(answer.accounting, Some(Accounting { computed: 5, cached: 49 }));
        assert!(answer.finished && answer.error.is_none());
    }

    #[test]
    fn a_chat_stream_whose_timings_were_taken_out_is_counted_by_its_usage() {
        let answer = read(
            Route::Chat,
            "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n\
             data: {\"choices\":[],\"usage\":{\"prompt_tokens\":54,\
             \"prompt_tokens_details\":{\"cached_tokens\":49}}}\n\ndata: [DONE]\n\n",
        );
        assert_eq!(answer.accounting, Some(Accounting { computed: 5, cached: 49 }));
    }

    #[test]
    fn a_message_stream_counts_uncached_input_apart() {
        let answer = read(
            Route::Messages,
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":\
             {\"cache_read_input_tokens\":20,\"input_tokens\":25}}}\n\n\
             data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n\
             data: {\"type\":\"message_stop\"}\n\n",
        );
        assert_eq!(answer.accounting, Some(Accounting { computed: 25, cached: 20 }));
        assert_eq!((answer.text.as_str(), answer.finished), ("hi", true));
    }

    #[test]
    fn a_responses_stream_counts_all_input_together() {
        let answer = read(
            Route::Responses,
            "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n\
             data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":45,\
             \"input_tokens_details\":{\"cached_tokens\":40}}}}\n\n",
        );
        assert_eq!(answer.accounting, Some(Accounting { computed: 5, cached: 40 }));
        assert!(answer.finished);
    }

    #[test]
    fn a_stream_without_its_end_mark_is_not_finished() {
        let answer = read(Route::Completion, "data: {\"content\":\"a\",\"stop\":false}\n\n");
        assert!(!answer.finished);
    }

    #[test]
    fn an_error_frame_is_seen_in_either_dialect() {
        let frames = [
            (Route::Chat, "data: {\"error\":{\"code\":500,\"message\":\"full\"}}\n\n"),
            (
                Route::Messages,
                "event: error\ndata: {\"type\":\"error\",\"error\":{\"message\":\"full\"}}\n\n",
            ),
        ];
        for (route, frame) in frames {
            assert_eq!(read(route, frame).error.as_deref(), Some("full"));
        }
    }
}
