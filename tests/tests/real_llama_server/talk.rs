//! An agent's conversation: a system text all agents share, turns that only grow, answers that are kept.
use serde_json::{Value, json};
use session_slot_tests::client::{self, Outgoing};
use session_slot_tests::{Answer, Streaming};

const VOCABULARY: [&str; 32] = [
    "river", "stone", "window", "garden", "letter", "engine", "bridge", "winter", "market", "doctor",
    "yellow", "silver", "travel", "number", "summer", "forest", "island", "school", "paper", "music",
    "green", "water", "north", "story", "house", "table", "light", "night", "horse", "cloud", "field",
    "train",
];

/// More than half of a first turn, so that a server that goes by the longest common beginning takes one session for
/// another.
const SYSTEM_TOKENS: usize = 150;
const FIRST_TOKENS: usize = 80;
/// More than the least that is worth a saved state.
const LONG_TOKENS: usize = 650;
const LATER_TOKENS: usize = 30;

/// `count` words, about as many tokens, that depend on `name` alone.
pub(crate) fn prose(name: &str, count: usize) -> String {
    // FNV-1a, then a congruential generator: the same words in every run.
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut state = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    let word = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        VOCABULARY[(state >> 59) as usize]
    };
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

/// The counts in an answer's `usage`: the whole prompt, and the part of it that came from a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt {
    pub(crate) tokens: u64,
    pub(crate) cached: u64,
}

impl Prompt {
    pub(crate) fn of(usage: &Value) -> Self {
        let tokens = usage["prompt_tokens"].as_u64();
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        let known = tokens.zip(cached);
        let (tokens, cached) = known.unwrap_or_else(|| panic!("no counts in {usage}"));
        Self { tokens, cached }
    }

    /// At least nine tenths of what was sent before came from a cache.
    pub(crate) fn reuses(self, before: Self) -> bool {
        self.cached * 10 >= before.tokens * 9
    }
}

/// One conversation.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    pub(crate) id: String,
    base: String,
    messages: Vec<Value>,
    /// The prompt of the last turn.
    pub(crate) before: Option<Prompt>,
}

impl Talk {
    pub(crate) fn new(base: &str, id: &str) -> Self {
        Self::beginning(base, id, &prose("system", SYSTEM_TOKENS))
    }

    /// A conversation with a long system text, which it shares with those that give it the same name.
    pub(crate) fn long(base: &str, id: &str, system: &str) -> Self {
        Self::beginning(base, id, &prose(system, LONG_TOKENS))
    }

    fn beginning(base: &str, id: &str, system: &str) -> Self {
        let system = json!({"role": "system", "content": system});
        Self { id: id.to_owned(), base: base.to_owned(), messages: vec![system], before: None }
    }

    pub(crate) fn all(base: &str, ids: &[&str]) -> Vec<Self> {
        ids.iter().map(|id| Self::new(base, id)).collect()
    }

    /// The same conversation, from now on at another address.
    pub(crate) fn move_to(&mut self, base: &str) {
        base.clone_into(&mut self.base);
    }

    /// Adds what the user says next. Each session's turns have lengths of their own.
    pub(crate) fn ask(&mut self) {
        let count = if self.messages.len() == 1 { FIRST_TOKENS } else { LATER_TOKENS };
        let own = self.id.bytes().map(usize::from).sum::<usize>() % 16;
        let text = prose(&format!("{} {}", self.id, self.messages.len()), count + own);
        self.messages.push(json!({"role": "user", "content": text}));
    }

    /// The body of the turn that was asked, without a session.
    pub(crate) fn body(&self) -> Value {
        json!({"messages": self.messages, "max_tokens": 8, "temperature": 0})
    }

    /// The turn that was asked, with more members.
    pub(crate) fn request(&self, more: &Value) -> Outgoing {
        let mut body = self.body();
        body["agent_session_id"] = json!(self.id);
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        Outgoing::post(format!("{}/v1/chat/completions", self.base), body.to_string())
    }

    /// Keeps an answer as part of the conversation; its counts.
    fn keep(&mut self, text: &str, usage: &Value) -> Prompt {
        self.messages.push(json!({"role": "assistant", "content": text}));
        let prompt = Prompt::of(usage);
        self.before = Some(prompt);
        prompt
    }

    /// The next turn, whole.
    pub(crate) async fn say(&mut self) -> (Answer, Prompt) {
        self.ask();
        let answer = client::send(self.request(&json!({}))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let json = answer.json();
        let text = json["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        let prompt = self.keep(text, &json["usage"]);
        (answer, prompt)
    }

    /// The next turn, streamed.
    pub(crate) async fn say_streamed(&mut self) -> (Streamed, Prompt) {
        self.ask();
        let more = json!({"stream": true, "stream_options": {"include_usage": true}});
        let streamed = Streamed::read(client::open(self.request(&more)).await).await;
        let prompt = self.keep(&streamed.text, &streamed.usage);
        (streamed, prompt)
    }

    /// How many tokens the server makes of the last turn, which has been answered.
    pub(crate) async fn tokens_of_last_turn(&self, server: &str) -> u64 {
        let mut asked = self.clone();
        asked.messages.pop();
        asked.tokens_at(server).await
    }

    /// How many tokens the server makes of the turn that was asked.
    pub(crate) async fn tokens_at(&self, server: &str) -> u64 {
        let applied = client::post_json(format!("{server}/apply-template"), self.body().to_string()).await;
        let content = &applied.json()["prompt"];
        let body = json!({"content": content, "add_special": true, "parse_special": true});
        let tokens = client::post_json(format!("{server}/tokenize"), body.to_string()).await.json();
        tokens["tokens"].as_array().map_or(0, |tokens| tokens.len() as u64)
    }
}

/// A chat answer that came as a stream.
#[derive(Debug)]
pub(crate) struct Streamed {
    /// The ids its events carry.
    pub(crate) ids: Vec<String>,
    pub(crate) text: String,
    usage: Value,
}

impl Streamed {
    async fn read(stream: Streaming) -> Self {
        let answer = stream.finish().await.expect("the stream should come to its end");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.last(), Some(&"[DONE]"), "{text}");
        let events: Vec<Value> = data.iter().filter_map(|data| serde_json::from_str(data).ok()).collect();
        let mut ids: Vec<String> = events.iter().map(|event| event["id"].to_string()).collect();
        ids.dedup();
        let said = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
        let said = said.collect();
        let usage = events.iter().map(|event| &event["usage"]).find(|usage| usage.is_object());
        let usage = usage.unwrap_or_else(|| panic!("no usage in {text}")).clone();
        Self { ids, text: said, usage }
    }
}
