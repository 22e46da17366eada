//! An agent's session: a conversation that grows, sent with its id.
use serde_json::{Value, json};

use super::{Answer, Outgoing, send};

/// `count` words no other name has: as many tokens in the fake.
#[must_use]
pub fn words(name: &str, count: usize) -> String {
    (0..count).map(|index| format!("{name}{index}")).collect::<Vec<_>>().join(" ")
}

/// The body of a chat turn. With a session it carries `agent_session_id`.
#[must_use]
pub fn chat_body(session: Option<&str>, text: &str) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": text}]});
    if let Some(session) = session {
        body["agent_session_id"] = json!(session);
    }
    body
}

/// A chat turn of a session, to be sent or opened.
#[must_use]
pub fn chat_request(base: &str, session: &str, text: &str) -> Outgoing {
    let body = chat_body(Some(session), text).to_string();
    Outgoing::post(format!("{base}/v1/chat/completions"), body)
}

/// Sends one chat turn of a session to `base`, such as `http://127.0.0.1:8081`.
pub async fn chat(base: &str, session: &str, text: &str) -> Answer {
    send(chat_request(base, session, text)).await
}

/// A conversation: each turn sends all the turns before it.
#[derive(Clone, Debug)]
pub struct Session {
    base: String,
    id: Option<String>,
    key: Option<String>,
    more: Value,
    messages: Vec<Value>,
}

impl Session {
    /// A session with this id at `base`.
    #[must_use]
    pub fn new(base: &str, id: &str) -> Self {
        Self { id: Some(id.to_owned()), ..Self::anonymous(base) }
    }

    /// A conversation without an id.
    #[must_use]
    pub fn anonymous(base: &str) -> Self {
        Self { base: base.to_owned(), id: None, key: None, more: json!({}), messages: Vec::new() }
    }

    /// Begins with this system text.
    #[must_use]
    pub fn system(mut self, text: &str) -> Self {
        self.messages.push(json!({"role": "system", "content": text}));
        self
    }

    /// Comes in with this API key.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// Has these members in every turn, `{"max_tokens": 8}` for instance.
    #[must_use]
    pub fn members(self, more: Value) -> Self {
        Self { more, ..self }
    }

    /// The same conversation, from now on at another address: after a restart of the router.
    pub fn move_to(&mut self, base: &str) {
        base.clone_into(&mut self.base);
    }

    /// The next turn; its answer becomes part of the conversation.
    ///
    /// # Panics
    /// If the answer is not a 200 with a message.
    pub async fn say(&mut self, text: &str) -> Answer {
        let answer = send(self.turn(text)).await;
        assert!(self.keep(text, &answer), "{}: {}", answer.status, answer.text());
        answer
    }

    /// The request of the next turn, which does not become part of the conversation.
    #[must_use]
    pub fn turn(&self, text: &str) -> Outgoing {
        let mut messages = self.messages.clone();
        messages.push(json!({"role": "user", "content": text}));
        let mut body = json!({"model": "m", "messages": messages});
        if let Some(id) = &self.id {
            body["agent_session_id"] = json!(id);
        }
        for (name, value) in self.more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let turn = Outgoing::post(format!("{}/v1/chat/completions", self.base), body.to_string());
        match &self.key {
            Some(key) => turn.header("authorization", &format!("Bearer {key}")),
            None => turn,
        }
    }

    /// Makes a turn and its answer part of the conversation, if there is one.
    pub fn keep(&mut self, text: &str, answer: &Answer) -> bool {
        if answer.status != 200 {
            return false;
        }
        self.messages.push(json!({"role": "user", "content": text}));
        self.messages.push(answer.json()["choices"][0]["message"].clone());
        true
    }
}
