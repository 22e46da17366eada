//! One agent's conversation: how long it is, what it says, and when the next turn comes.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use session_slot_identity::SessionId;
use session_slot_router::chain::{Chain, ChainKey};
use session_slot_router::warm::Story;

use super::patterns::{Habit, Pace};
use crate::rng::Rng;

/// What a slot or a file holds: the beginning of one of an agent's conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) agent: usize,
    /// Which of the agent's conversations; they begin with the same system text.
    talk: u64,
    system: u64,
    pub(super) tokens: u64,
}

impl Content {
    /// Tokens with which `self` and `prompt` begin alike.
    pub(super) fn common(&self, prompt: &Self) -> u64 {
        if self.agent != prompt.agent {
            return 0;
        }
        let alike = if self.talk == prompt.talk { self.tokens } else { self.system };
        alike.min(self.tokens).min(prompt.tokens)
    }
}

#[derive(Debug)]
pub(super) struct Agent {
    index: usize,
    pub(super) session: SessionId,
    habit: Habit,
    rng: Rng,
    turns: usize,
    talk: u64,
    tokens: u64,
    /// The messages of the conversation as JSON; the first is the system text.
    messages: Vec<String>,
    /// When its last turn came.
    came: Option<Instant>,
    /// What its last turn left.
    pub(super) left: Option<Content>,
}

impl Agent {
    pub(super) fn new(index: usize, habit: Habit, seed: u64) -> Self {
        let session = SessionId::new(&format!("agent-{index}")).expect("a plain name");
        let mut agent = Self {
            index,
            session,
            habit,
            rng: Rng::new(seed, 1 << 32 | index as u64),
            turns: 0,
            talk: 0,
            tokens: habit.size.system,
            messages: Vec::new(),
            came: None,
            left: None,
        };
        agent.say("system", habit.size.system);
        agent
    }

    /// Its next turn comes: the prompt.
    pub(super) fn ask(&mut self, now: Instant) -> Content {
        if self.tokens > self.habit.size.limit.max(self.habit.size.system) {
            self.talk += 1;
            self.tokens = self.habit.size.system;
            self.messages.truncate(1);
        }
        self.came = Some(now);
        self.turns += 1;
        self.tokens += self.habit.size.turn;
        self.say("user", self.habit.size.turn);
        self.content()
    }

    /// It has been answered: what that leaves, and how many tokens were generated.
    pub(super) fn hear(&mut self) -> (Content, u64) {
        let answer = self.habit.size.answer;
        self.tokens += answer;
        self.say("assistant", answer);
        // The last token sampled is never evaluated.
        let left = Content { tokens: self.tokens - 1, ..self.content() };
        self.left = Some(left);
        (left, answer)
    }

    /// When its next turn comes, after the last one has ended.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        match self.habit.pace {
            Pace::Every(period) => self.came.map_or(now, |came| came + period).max(now),
            Pace::Thinks(mean) => now + self.rng.think(mean),
            Pace::Bursts { turns, rest, .. } if self.turns.is_multiple_of(turns) => {
                now + self.rng.think(rest)
            }
            Pace::Bursts { think, .. } => now + self.rng.think(think),
        }
    }

    pub(super) fn answer_tokens(&self) -> u64 {
        self.habit.size.answer
    }

    pub(super) fn story(&self) -> Arc<Story> {
        let body = Bytes::from(format!("{{\"messages\":[{}]}}", self.messages.join(",")));
        Arc::new(Story { chain: Chain::of(&body, &ChainKey([0; 16])).unwrap_or_default(), user: None })
    }

    fn content(&self) -> Content {
        Content { agent: self.index, talk: self.talk, system: self.habit.size.system, tokens: self.tokens }
    }

    /// A message whose length stands for `tokens`, and that nobody else says.
    fn say(&mut self, role: &str, tokens: u64) {
        let name = format!("{}.{}.{} ", self.index, self.talk, self.messages.len());
        let text = name.repeat((tokens as usize / name.len()).max(1));
        self.messages.push(format!("{{\"role\":\"{role}\",\"content\":\"{text}\"}}"));
    }
}
