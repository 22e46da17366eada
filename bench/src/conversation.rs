//! What an agent sends: a system text and tools that never change, and turns that only ever grow.

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::rng::Rng;
use crate::sources::Sources;

/// The dialect the sessions speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Route {
    /// POST /v1/chat/completions
    Chat,
    /// POST /completion, one text
    Completion,
    /// POST /v1/messages
    Messages,
    /// POST /v1/responses
    Responses,
}

impl Route {
    /// Where its requests go.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completion => "/completion",
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
        }
    }
}

/// How big the prompts are.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Of the system text, about.
    pub system_tokens: usize,
    /// Of what a user's turn adds, about.
    pub turn_tokens: usize,
    /// The longest answer.
    pub max_tokens: usize,
}

/// One session's conversation so far.
#[derive(Clone, Debug)]
pub struct Conversation {
    route: Route,
    size: Size,
    system: String,
    /// What was said: (user, assistant) in turn.
    said: Vec<(String, String)>,
    rng: Rng,
}

impl Conversation {
    /// The conversation of session `index`. All sessions of one seed share the system text, as agents of one kind
    /// do: that is what makes llama-server mix them up.
    pub fn new(route: Route, size: Size, sources: &Sources, seed: u64, index: usize) -> Self {
        let mut shared = Rng::new(seed, u64::MAX);
        let system = format!("{INTRODUCTION}{}", sources.chunk(&mut shared, size.system_tokens));
        Self { route, size, system, said: Vec::new(), rng: Rng::new(seed, index as u64) }
    }

    /// What the user says next.
    pub fn next_question(&mut self, sources: &Sources) -> String {
        let questions = ["Explain this code.", "Find a bug in this code.", "Write a test for this code."];
        let question = questions[self.rng.below(questions.len())];
        format!("{question}\n{}", sources.chunk(&mut self.rng, self.size.turn_tokens))
    }

    /// Keeps what was said. A turn that failed is not kept: the session goes on as if it had not been asked.
    pub fn keep(&mut self, question: String, answer: String) {
        self.said.push((question, answer));
    }

    /// The request body for a question. `session` is the router's routing members; absent for a direct run.
    pub fn body(&self, question: &str, session: Option<&str>) -> String {
        self.json(question, session).to_string()
    }

    /// The same, in which an OpenAI chat's token counts are asked for: routers drop those that llama-server adds of
    /// its own accord.
    pub fn body_asking_for_usage(&self, question: &str, session: Option<&str>) -> String {
        let mut body = self.json(question, session);
        if self.route == Route::Chat {
            body["stream_options"] = json!({"include_usage": true});
        }
        body.to_string()
    }

    fn json(&self, question: &str, session: Option<&str>) -> Value {
        let mut body = match self.route {
            Route::Chat => self.chat(question),
            Route::Completion => self.completion(question),
            Route::Messages => self.messages(question),
            Route::Responses => self.responses(question),
        };
        body["stream"] = json!(true);
        // Greedy, so that runs differ in as little as possible.
        body["temperature"] = json!(0);
        if let Some(session) = session {
            body["agent_name"] = json!("replay");
            body["agent_session_id"] = json!(session);
            body["client_type"] = json!("cli");
        }
        body
    }

    fn turns(&self, question: &str) -> Vec<Value> {
        let mut turns = Vec::new();
        for (user, assistant) in &self.said {
            turns.push(json!({"role": "user", "content": user}));
            turns.push(json!({"role": "assistant", "content": assistant}));
        }
        turns.push(json!({"role": "user", "content": question}));
        turns
    }

    fn chat(&self, question: &str) -> Value {
        let mut messages = vec![json!({"role": "system", "content": self.system})];
        messages.extend(self.turns(question));
        let tools: Vec<_> = tools().map(|tool| json!({"type": "function", "function": tool})).collect();
        json!({"model": "local", "messages": messages, "tools": tools, "max_tokens": self.size.max_tokens})
    }

    fn messages(&self, question: &str) -> Value {
        let tools: Vec<_> = tools()
            .map(|tool| json!({"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}))
            .collect();
        json!({
            "model": "local", "system": self.system, "messages": self.turns(question),
            "tools": tools, "max_tokens": self.size.max_tokens,
        })
    }

    fn responses(&self, question: &str) -> Value {
        let tools: Vec<_> = tools()
            .map(|mut tool| {
                tool["type"] = json!("function");
                tool
            })
            .collect();
        let mut input = self.turns(question);
        for answer in input.iter_mut().filter(|item| item["role"] == "assistant") {
            // llama-server refuses a past answer that is a bare text here.
            answer["content"] =
                json!([{"type": "output_text", "text": answer["content"], "annotations": []}]);
            answer["type"] = json!("message");
        }
        json!({
            "model": "local", "instructions": self.system, "input": input,
            "tools": tools, "max_output_tokens": self.size.max_tokens,
        })
    }

    fn completion(&self, question: &str) -> Value {
        let mut prompt = format!("{}\n{}\n", self.system, Value::from_iter(tools()));
        for (user, assistant) in &self.said {
            prompt.push_str(&format!("User: {user}\nAssistant:{assistant}\n"));
        }
        prompt.push_str(&format!("User: {question}\nAssistant:"));
        json!({"prompt": prompt, "n_predict": self.size.max_tokens})
    }
}

const INTRODUCTION: &str = "You are a coding agent in a terminal. You read and change files with the tools you are given, \
    keep answers short, and never invent a file. The project you work in begins like this:\n";

/// A few function tools, as coding agents declare them.
fn tools() -> impl Iterator<Item = Value> {
    let tool = |name: &str, what: &str, arguments: &[&str]| {
        let properties: serde_json::Map<_, _> =
            arguments.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
        json!({
            "name": name, "description": what,
            "parameters": {"type": "object", "properties": properties, "required": arguments},
        })
    };
    [
        tool("read_file", "Reads a text file of the project and returns its numbered lines.", &["path"]),
        tool("edit_file", "Replaces one exact piece of text in a file by another.", &["path", "old", "new"]),
        tool(
            "run_command",
            "Runs a shell command in the project's folder and returns its output.",
            &["command"],
        ),
        tool("search", "Finds lines matching a regular expression under a folder.", &["pattern", "folder"]),
    ]
    .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { system_tokens: 50, turn_tokens: 20, max_tokens: 8 };

    fn conversation(route: Route, index: usize) -> (Conversation, Sources) {
        let sources = Sources::embedded();
        (Conversation::new(route, SIZE, &sources, 1, index), sources)
    }

    #[test]
    fn the_prompt_of_a_turn_begins_with_the_one_before() {
        let (mut talk, sources) = conversation(Route::Completion, 0);
        let prompt = |body: String| {
            serde_json::from_str::<Value>(&body).map(|b| b["prompt"].as_str().map(str::to_owned))
        };
        let question = talk.next_question(&sources);
        let first = prompt(talk.body(&question, None)).expect("JSON").expect("a prompt");
        talk.keep(question, "yes".to_owned());
        let question = talk.next_question(&sources);
        let second = prompt(talk.body(&question, None)).expect("JSON").expect("a prompt");
        assert!(second.starts_with(&first));
    }

    #[test]
    fn sessions_share_the_system_text_and_nothing_else() {
        let (mut one, sources) = conversation(Route::Chat, 0);
        let (mut two, _) = conversation(Route::Chat, 1);
        assert_eq!(one.system, two.system);
        assert_ne!(one.next_question(&sources), two.next_question(&sources));
    }

    #[test]
    fn routing_members_are_only_sent_when_asked_for() {
        for route in [Route::Chat, Route::Completion, Route::Messages, Route::Responses] {
            let (talk, _) = conversation(route, 0);
            assert!(!talk.body("hi", None).contains("agent_"));
            assert!(talk.body("hi", Some("s-1")).contains(r#""agent_session_id":"s-1""#));
        }
    }
}
