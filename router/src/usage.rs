//! Reads the token counts out of a response while it passes, without holding it back or keeping its text.
//!
//! llama-server reports them in objects named `timings` and `usage`, in a JSON body or in the events of a stream. They
//! are looked for only where llama-server puts them: as the names of members at the top of a JSON text or one level
//! below. Text of the model can't imitate that. Within a string its quotes are escaped; and where a tool's arguments
//! appear as JSON of their own (`/v1/messages`, not streamed), they lie deeper.

use std::time::Duration;

use memchr::memchr3;
use serde_json::Value;

/// The longest object that is read, in bytes. The real ones have a few hundred.
const OBJECT_MAX_BYTES: usize = 4096;
/// How deep the named members may lie: 1 is `{"usage":`, 2 is `{"message":{"usage":` or one of a list of answers.
const DEEPEST: u32 = 2;

/// What one request cost, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Prompt tokens that the server had to read.
    pub computed: u64,
    /// Prompt tokens that it found in the slot's cache.
    pub cached: u64,
    /// Tokens that it generated.
    pub generated: u64,
    /// How long it read the computed prompt tokens, where the answer told (`timings.prompt_ms`).
    pub reading: Option<Duration>,
}

impl Usage {
    /// Tokens in the slot now: the last one sampled is never evaluated.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.computed.saturating_add(self.cached).saturating_add(self.generated).saturating_sub(1)
    }

    /// The same, with how long the prompt was read, if the answer has not told. A server that sends head and first event
    /// together shows nothing.
    #[must_use]
    pub fn read_in(mut self, reading: Option<Duration>) -> Self {
        const FASTEST: Duration = Duration::from_micros(10);
        let computed = u32::try_from(self.computed).unwrap_or(u32::MAX);
        self.reading = self.reading.or(reading.filter(|reading| *reading > FASTEST * computed));
        self
    }

    /// Tokens of the prompt.
    #[must_use]
    pub fn prompt(&self) -> u64 {
        self.computed.saturating_add(self.cached)
    }
}

/// Follows one response, chunk by chunk.
///
/// It holds a few numbers, at most seven bytes of a name, and while one of the two objects passes, that object.
#[derive(Debug, Default)]
pub struct UsageScanner {
    state: State,
    /// How many objects and arrays are open.
    depth: u32,
    recording: Option<Recording>,
    timings: Option<Usage>,
    counts: Counts,
    slot: Option<u32>,
}

impl UsageScanner {
    /// Reads the next part of the response body. Parts may be cut anywhere.
    pub fn feed(&mut self, chunk: &[u8]) {
        let mut at = 0;
        while at < chunk.len() {
            at = match self.state {
                State::Text { .. } => self.text(chunk, at),
                _ => self.structure(chunk, at),
            };
        }
    }

    /// What is known by now: the last `timings` if there were any, else what the `usage` objects say together.
    /// `None` if the response did not say how many prompt tokens there were.
    pub fn finish(&self) -> Option<Usage> {
        self.timings.or_else(|| self.counts.usage())
    }

    /// The slot the server says it used: only `/completion` answers do, a stream in its last event.
    pub fn slot(&self) -> Option<u32> {
        self.slot
    }

    /// Reads on inside a string; returns where to go on.
    fn text(&mut self, chunk: &[u8], at: usize) -> usize {
        let State::Text { name, escaped } = &mut self.state else {
            return at;
        };
        if std::mem::take(escaped) {
            self.record(&chunk[at..=at]);
            return at + 1;
        }
        let rest = &chunk[at..];
        let found = memchr3(b'"', b'\\', b'\n', rest);
        name.push(&rest[..found.unwrap_or(rest.len())]);
        match found.map(|offset| rest[offset]) {
            None => {}
            Some(b'"') => self.state = State::after_text(name, self.depth),
            Some(b'\\') => {
                name.spoil();
                *escaped = true;
            }
            // No JSON string holds a raw line end: this was no JSON (a comment in the stream). Start afresh.
            Some(_) => {
                self.state = State::Between;
                self.depth = 0;
                self.recording = None;
            }
        }
        let end = found.map_or(chunk.len(), |offset| at + offset + 1);
        self.record(&chunk[at..end]);
        end
    }

    /// Reads on outside strings, up to the start of the next one; returns where to go on.
    fn structure(&mut self, chunk: &[u8], at: usize) -> usize {
        let mut end = at;
        let mut recorded = at;
        while end < chunk.len() && !matches!(self.state, State::Text { .. }) {
            let byte = chunk[end];
            if self.step(byte) {
                recorded = end;
            }
            end += 1;
            if matches!(byte, b'}' | b']')
                && self.recording.as_ref().is_some_and(|open| open.depth == self.depth)
            {
                self.record(&chunk[recorded..end]);
                self.close();
                recorded = end;
            }
        }
        self.record(&chunk[recorded..end]);
        end
    }

    /// Takes one byte outside strings. True if an object to be recorded starts with it.
    fn step(&mut self, byte: u8) -> bool {
        let opens_object = self.expect(byte);
        match byte {
            b'"' => {
                let of_interest = (1..=DEEPEST).contains(&self.depth) && self.recording.is_none();
                self.state = State::Text { name: Name::new(of_interest), escaped: false };
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        opens_object
    }

    /// Goes on from a name of interest to its value. True if an object to be recorded starts with `byte`.
    fn expect(&mut self, byte: u8) -> bool {
        let next = match (self.state, byte) {
            (State::Between, _) => return false,
            (State::Colon(_) | State::Value(_), b' ' | b'\t' | b'\r' | b'\n') => return false,
            (State::Colon(key), b':') => State::Value(key),
            (State::Value(Key::Slot), b'0'..=b'9') => State::Digits(u32::from(byte - b'0')),
            (State::Value(key @ (Key::Timings | Key::Usage)), b'{') => {
                self.recording = Some(Recording { key, depth: self.depth, json: Vec::new() });
                self.state = State::Between;
                return true;
            }
            (State::Digits(slot), b'0'..=b'9') => State::digit(slot, byte),
            (State::Digits(slot), b',' | b'}' | b' ' | b'\r' | b'\n') => {
                self.slot = Some(slot);
                State::Between
            }
            _ => State::Between,
        };
        self.state = next;
        false
    }

    /// Keeps `bytes` if an object is being recorded.
    fn record(&mut self, bytes: &[u8]) {
        let Some(open) = &mut self.recording else {
            return;
        };
        if open.json.len() + bytes.len() > OBJECT_MAX_BYTES {
            self.recording = None;
        } else {
            open.json.extend_from_slice(bytes);
        }
    }

    /// Reads the object that has just been recorded to its end.
    fn close(&mut self) {
        let Some(done) = self.recording.take() else {
            return;
        };
        let Ok(object) = serde_json::from_slice::<Value>(&done.json) else {
            return;
        };
        match done.key {
            Key::Timings => self.timings = timings(&object).or(self.timings),
            _ => self.counts.merge(&object),
        }
    }
}

/// Where in the JSON text the scanner is.
#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Outside strings, and nothing of interest is expected.
    #[default]
    Between,
    /// In a string.
    Text { name: Name, escaped: bool },
    /// After a string that may be a name of interest: it is one if a colon follows.
    Colon(Key),
    /// After the colon.
    Value(Key),
    /// In the number of the slot.
    Digits(u32),
}

impl State {
    fn after_text(name: &Name, depth: u32) -> Self {
        match name.key() {
            Some(Key::Slot) if depth != 1 => Self::Between,
            Some(key) => Self::Colon(key),
            None => Self::Between,
        }
    }

    fn digit(slot: u32, byte: u8) -> Self {
        let longer = slot.checked_mul(10).and_then(|tens| tens.checked_add(u32::from(byte - b'0')));
        longer.map_or(Self::Between, Self::Digits)
    }
}

/// A member of interest.
#[derive(Clone, Copy, Debug)]
enum Key {
    Timings,
    Usage,
    Slot,
}

/// The start of a string, as far as it is needed to tell whether it is a name of interest.
#[derive(Clone, Copy, Debug)]
struct Name {
    bytes: [u8; Self::MAX],
    /// More than `MAX`: it is none.
    len: usize,
}

impl Name {
    const MAX: usize = "timings".len();

    fn new(of_interest: bool) -> Self {
        Self { bytes: [0; Self::MAX], len: if of_interest { 0 } else { Self::MAX + 1 } }
    }

    fn push(&mut self, more: &[u8]) {
        let len = self.len.saturating_add(more.len());
        match self.bytes.get_mut(self.len..len) {
            Some(place) => {
                place.copy_from_slice(more);
                self.len = len;
            }
            None => self.spoil(),
        }
    }

    fn spoil(&mut self) {
        self.len = Self::MAX + 1;
    }

    fn key(&self) -> Option<Key> {
        match self.bytes.get(..self.len)? {
            b"timings" => Some(Key::Timings),
            b"usage" => Some(Key::Usage),
            b"id_slot" => Some(Key::Slot),
            _ => None,
        }
    }
}

/// An object that is passing.
#[derive(Debug)]
struct Recording {
    key: Key,
    /// How many objects and arrays are open around it.
    depth: u32,
    json: Vec<u8>,
}

/// llama-server's own measurements. Older builds have no `cache_n`.
fn timings(object: &Value) -> Option<Usage> {
    Some(Usage {
        computed: object["prompt_n"].as_u64()?,
        cached: object["cache_n"].as_u64().unwrap_or(0),
        generated: object["predicted_n"].as_u64()?,
        reading: object["prompt_ms"].as_f64().and_then(milliseconds),
    })
}

fn milliseconds(count: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(count / 1000.0).ok()
}

/// What the `usage` objects of a response have said so far: a stream of `/v1/messages` spreads it over two events.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// All prompt tokens, cached ones included.
    prompt: Option<u64>,
    /// Prompt tokens less the cached ones.
    uncached: Option<u64>,
    cached: Option<u64>,
    generated: Option<u64>,
}

impl Counts {
    /// Takes over what `usage` says; what it leaves out stays.
    fn merge(&mut self, usage: &Value) {
        let count = |name: &str| usage[name].as_u64();
        let detail = |name: &str| usage[name]["cached_tokens"].as_u64();
        let details = detail("prompt_tokens_details").or_else(|| detail("input_tokens_details"));
        // The same name has two meanings: all of the prompt in /v1/responses, which has details; without them, in
        // /v1/messages, the uncached part.
        let input_is_all = usage["input_tokens_details"].is_object();
        let (all, uncached) =
            if input_is_all { (count("input_tokens"), None) } else { (None, count("input_tokens")) };
        self.prompt = count("prompt_tokens").or(all).or(self.prompt);
        self.uncached = uncached.or(self.uncached);
        self.cached = details.or_else(|| count("cache_read_input_tokens")).or(self.cached);
        self.generated = count("completion_tokens").or_else(|| count("output_tokens")).or(self.generated);
    }

    fn usage(&self) -> Option<Usage> {
        let cached = self.cached.unwrap_or(0);
        let computed = self.uncached.or_else(|| self.prompt.map(|all| all.saturating_sub(cached)))?;
        Some(Usage { computed, cached, generated: self.generated.unwrap_or(0), reading: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn how_long_a_prompt_was_read_is_taken_from_outside_only_where_the_answer_does_not_tell() {
        let second = Some(Duration::from_secs(1));
        let usage = Usage { computed: 1000, ..Usage::default() };
        assert_eq!(usage.read_in(second).reading, second);
        assert_eq!(usage.read_in(None).reading, None);
        assert_eq!(usage.read_in(Some(Duration::from_millis(1))).reading, None, "nothing reads so fast");
        let told = Usage { reading: Some(Duration::from_millis(3)), ..usage };
        assert_eq!(told.read_in(second).reading, told.reading);
    }

    // Answers of llama.cpp b11549, shortened where it does not matter.
    const COMPLETION: &str = r#"{"index":0,"content":", I'","tokens":[],"id_slot":3,"stop":true,"tokens_predicted":3,"tokens_evaluated":3,"generation_settings":{"seed":4294967295,"dry_sequence_breakers":["\n",":","\"","*"],"stop":[],"lora":[]},"prompt":"<bos>Hello","stop_type":"limit","tokens_cached":5,"timings":{"cache_n":11,"prompt_n":4,"prompt_ms":37.094,"prompt_per_token_ms":12.364666666666666,"predicted_n":3,"predicted_ms":44.617,"predicted_per_second":44.825963197884214}}"#;
    const COMPLETION_STREAM: &str = "data: {\"index\":0,\"content\":\"!\",\"tokens\":[236888],\"stop\":false,\"id_slot\":-1,\"tokens_predicted\":1,\"tokens_evaluated\":3}\n\ndata: {\"index\":0,\"content\":\"\",\"tokens\":[],\"id_slot\":12,\"stop\":true,\"generation_settings\":{\"dry_sequence_breakers\":[\"\\n\",\":\",\"\\\"\",\"*\"]},\"timings\":{\"cache_n\":0,\"prompt_n\":3,\"prompt_ms\":43.821,\"predicted_n\":3}}\n\n\n\n";
    const COMPLETION_LIST: &str = r#"[{"index":0,"content":".","id_slot":3,"timings":{"cache_n":0,"prompt_n":3,"predicted_n":1}},{"index":1,"content":" @","id_slot":2,"timings":{"cache_n":1,"prompt_n":2,"predicted_n":1}}]"#;
    const CHAT: &str = r#"{"choices":[{"finish_reason":"length","index":0,"message":{"role":"assistant","content":"Say \"usage"}}],"created":1795985211,"object":"chat.completion","usage":{"completion_tokens":3,"prompt_tokens":31,"total_tokens":34,"prompt_tokens_details":{"cached_tokens":26}},"id":"chatcmpl-qaz","timings":{"cache_n":26,"prompt_n":5,"prompt_ms":176.209,"predicted_n":3,"predicted_ms":55.773}}"#;
    const CHAT_STREAM: &str = "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"content\":\" \\\"\"}}],\"created\":1795985211,\"object\":\"chat.completion.chunk\"}\n\ndata: {\"choices\":[],\"object\":\"chat.completion.chunk\",\"usage\":{\"completion_tokens\":3,\"prompt_tokens\":31,\"total_tokens\":34,\"prompt_tokens_details\":{\"cached_tokens\":26}},\"timings\":{\"cache_n\":26,\"prompt_n\":5,\"prompt_ms\":47.76,\"predicted_n\":3}}\n\ndata: [DONE]\n\n";
    const MESSAGES: &str = r#"{"id":"chatcmpl-f3O","type":"message","role":"assistant","content":[{"type":"text","text":"Say \"assistant"}],"stop_reason":"max_tokens","stop_sequence":null,"usage":{"cache_read_input_tokens":26,"input_tokens":5,"output_tokens":3}}"#;
    const MESSAGES_STREAM: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"chatcmpl-1Dw\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"stop_reason\":null,\"usage\":{\"cache_read_input_tokens\":26,\"input_tokens\":5,\"output_tokens\":0}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" \\\"usage\\\":{\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":3}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    const RESPONSES: &str = r#"{"completed_at":1795985211,"object":"response","output":[{"content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hi there,"}],"role":"assistant","type":"message"}],"status":"completed","usage":{"input_tokens":31,"output_tokens":3,"total_tokens":34,"input_tokens_details":{"cached_tokens":26}}}"#;
    const RESPONSES_STREAM: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"<\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"object\":\"response\",\"output\":[{\"type\":\"message\",\"content\":[{\"text\":\"<|im\"}]}],\"usage\":{\"input_tokens\":31,\"output_tokens\":3,\"total_tokens\":34,\"input_tokens_details\":{\"cached_tokens\":26}}}}\n\n";

    const SAMPLES: [&str; 9] = [
        COMPLETION,
        COMPLETION_STREAM,
        COMPLETION_LIST,
        CHAT,
        CHAT_STREAM,
        MESSAGES,
        MESSAGES_STREAM,
        RESPONSES,
        RESPONSES_STREAM,
    ];

    fn scan<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Option<Usage>, Option<u32>) {
        let mut scanner = UsageScanner::default();
        chunks.into_iter().for_each(|chunk| scanner.feed(chunk));
        (counts(scanner.finish()), scanner.slot())
    }

    fn usage(text: &str) -> Option<Usage> {
        scan([text.as_bytes()]).0
    }

    fn tokens(computed: u64, cached: u64, generated: u64) -> Option<Usage> {
        Some(Usage { computed, cached, generated, reading: None })
    }

    /// As `scan`, without the time it took.
    fn counts(usage: Option<Usage>) -> Option<Usage> {
        usage.map(|usage| Usage { reading: None, ..usage })
    }

    #[test]
    fn timings_tell_how_long_the_prompt_was_read() {
        let mut scanner = UsageScanner::default();
        scanner.feed(COMPLETION.as_bytes());
        let reading = scanner.finish().and_then(|usage| usage.reading);
        assert_eq!(reading, Some(Duration::from_secs_f64(0.037_094)));
    }

    #[test]
    fn completion_answers_give_timings_and_slot() {
        assert_eq!(scan([COMPLETION.as_bytes()]), (tokens(4, 11, 3), Some(3)));
        assert_eq!(scan([COMPLETION_STREAM.as_bytes()]), (tokens(3, 0, 3), Some(12)));
        assert_eq!(scan([COMPLETION_LIST.as_bytes()]), (tokens(2, 1, 1), None));
    }

    #[test]
    fn every_other_route_gives_its_usage() {
        for sample in [CHAT, CHAT_STREAM, MESSAGES, MESSAGES_STREAM, RESPONSES, RESPONSES_STREAM] {
            assert_eq!(scan([sample.as_bytes()]), (tokens(5, 26, 3), None), "for {sample}");
        }
        assert_eq!(usage(r#"{"usage":{"prompt_tokens":7,"total_tokens":7}}"#), tokens(7, 0, 0));
    }

    #[test]
    fn timings_win_over_usage_and_later_timings_over_earlier_ones() {
        let timings = r#""timings":{"cache_n":1,"prompt_n":2,"predicted_n":3}"#;
        let usage_object = r#""usage":{"prompt_tokens":90,"completion_tokens":90}"#;
        assert_eq!(usage(&format!("{{{timings},{usage_object}}}")), tokens(2, 1, 3));
        assert_eq!(usage(&format!("{{{usage_object},{timings}}}")), tokens(2, 1, 3));
        let later = timings.replace("\"predicted_n\":3", "\"predicted_n\":4");
        assert_eq!(usage(&format!("data: {{{timings}}}\n\ndata: {{{later}}}\n\n")), tokens(2, 1, 4));
        assert_eq!(usage(&format!("data: {{{timings}}}\n\ndata: {{\"timings\":{{}}}}\n\n")), tokens(2, 1, 3));
    }

    #[test]
    fn white_space_between_the_parts_does_not_matter() {
        let pretty = "{\n  \"id_slot\" : 2 ,\n  \"usage\" :\r\n\t{\n \"prompt_tokens\" : 4 , \"completion_tokens\" : 2 } }";
        assert_eq!(scan([pretty.as_bytes()]), (tokens(4, 0, 2), Some(2)));
    }

    #[test]
    fn text_of_the_model_is_not_taken_for_counts() {
        let fake = r#""usage":{"prompt_tokens":1,"completion_tokens":1},"timings":{"cache_n":1,"prompt_n":1,"predicted_n":1},"id_slot":1"#;
        let escaped = fake.replace('"', "\\\"");
        assert_eq!(scan([format!("{{\"content\":\"{{{escaped}}}\"}}").as_bytes()]), (None, None));
        assert_eq!(scan([format!("{{\"a\":\"\\\\\\\"}},{{{escaped}\"}}").as_bytes()]), (None, None));
        let tool_use = format!(r#"{{"content":[{{"type":"tool_use","input":{{{fake}}}}}]}}"#);
        assert_eq!(scan([tool_use.as_bytes()]), (None, None));
        assert_eq!(scan([br#"{"x":"\"usage","a":["usage",{"prompt_tokens":1}]}"#.as_slice()]), (None, None));
    }

    #[test]
    fn values_of_other_kinds_are_passed_over() {
        for text in [
            r#"{"usage":null,"timings":3,"id_slot":"1"}"#,
            r#"{"usage":[{"prompt_tokens":1}],"timings":"{}","id_slot":-1}"#,
            r#"{"usage":{"prompt_tokens":"1"},"timings":{"prompt_n":-1,"predicted_n":1},"id_slot":1.5}"#,
            r#"{"usage":{"output_tokens":1},"timings":{"prompt_n":1},"id_slot":4294967296}"#,
            r#"{"usage":{"prompt_tokens":01},"timings":{"prompt_n":1"#,
            r#"{"us\u0061ge":{"prompt_tokens":1}}"#,
        ] {
            assert_eq!(scan([text.as_bytes()]), (None, None), "for {text}");
        }
    }

    #[test]
    fn an_object_too_long_to_be_real_is_passed_over_and_the_next_one_read() {
        let long = format!(r#"{{"usage":{{"prompt_tokens":1,"x":"{}"}}}}"#, "y".repeat(OBJECT_MAX_BYTES));
        assert_eq!(usage(&long), None);
        assert_eq!(usage(&format!("{long}\n{MESSAGES}")), tokens(5, 26, 3));
    }

    #[test]
    fn a_comment_in_the_stream_does_not_put_the_scanner_out_of_step() {
        assert_eq!(usage(&format!(": it's \"here\n\n{MESSAGES_STREAM}")), tokens(5, 26, 3));
    }

    proptest! {
        #[test]
        fn where_the_chunks_are_cut_does_not_matter(
            picks in proptest::collection::vec(0..SAMPLES.len(), 1..4), cuts in proptest::collection::vec(1..200_usize, 1..40)
        ) {
            let text = picks.iter().map(|pick| SAMPLES[*pick]).collect::<Vec<_>>().join("\n");
            let whole = scan([text.as_bytes()]);
            prop_assert_eq!(scan(text.as_bytes().chunks(1)), whole);
            let mut rest = text.as_bytes();
            let mut cut = cuts.iter().cycle().map(|length| {
                let (chunk, left) = rest.split_at((*length).min(rest.len()));
                rest = left;
                chunk
            });
            prop_assert_eq!(scan(std::iter::from_fn(|| cut.next().filter(|chunk| !chunk.is_empty()))), whole);
        }

        #[test]
        fn any_bytes_do_no_harm_and_give_the_same_in_any_chunks(
            text in "([{}\\[\\]:,\"\\\\ \n0-9]|\"usage\":\\{|\"timings\": \\{|\"id_slot\":|\"prompt_tokens\":1|x){0,60}", size in 1..9_usize
        ) {
            prop_assert_eq!(scan(text.as_bytes().chunks(size)), scan([text.as_bytes()]));
        }

        #[test]
        fn little_is_held_whatever_passes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut scanner = UsageScanner::default();
            scanner.feed(b"{\"usage\":{\"");
            for _ in 0..40 {
                scanner.feed(&bytes);
            }
            prop_assert!(scanner.recording.is_none_or(|open| open.json.len() <= OBJECT_MAX_BYTES));
        }
    }
}
