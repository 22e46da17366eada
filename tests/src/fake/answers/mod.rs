//! The shapes of answers, one file per dialect: whole, or as the frames of an event stream.
mod anthropic;
mod chat;
mod completion;
mod embedding;
mod responses;

use serde_json::{Value, json};

use super::failure::Failure;
use super::generation::Generation;
use super::request::Route;

/// The model's name in every answer.
pub(super) const MODEL: &str = "fake-model";

/// The facts an answer is made of.
pub(super) struct Report<'a> {
    run: &'a Generation,
}

impl<'a> Report<'a> {
    pub(super) fn of(run: &'a Generation) -> Self {
        Self { run }
    }

    /// The answer in one piece.
    pub(super) fn whole(&self) -> Value {
        match self.run.request.route {
            Route::Completion => completion::whole(self),
            Route::OaiCompletion => completion::oai_whole(self),
            Route::Chat => chat::whole(self),
            Route::Messages => anthropic::whole(self),
            Route::Responses => responses::whole(self),
            Route::Embedding => embedding::whole(self),
        }
    }

    /// The frames before the first piece of text.
    pub(super) fn opening(&self) -> String {
        match self.run.request.route {
            Route::Completion | Route::OaiCompletion | Route::Embedding => String::new(),
            Route::Chat => chat::opening(self),
            Route::Messages => anthropic::opening(self),
            Route::Responses => responses::opening(self),
        }
    }

    /// The frame of one piece of text.
    pub(super) fn piece(&self, text: &str) -> String {
        match self.run.request.route {
            Route::Completion | Route::Embedding => completion::piece(self, text),
            Route::OaiCompletion => completion::oai_piece(self, text),
            Route::Chat => chat::piece(self, text),
            Route::Messages => anthropic::piece(text),
            Route::Responses => responses::piece(self, text),
        }
    }

    /// The frames after the last piece of text.
    pub(super) fn closing(&self) -> String {
        match self.run.request.route {
            Route::Completion | Route::Embedding => completion::closing(self),
            Route::OaiCompletion => completion::oai_closing(self),
            Route::Chat => chat::closing(self),
            Route::Messages => anthropic::closing(self),
            Route::Responses => responses::closing(self),
        }
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.run.launch.task.0)
    }

    fn text(&self) -> &str {
        &self.run.text
    }

    fn cached(&self) -> usize {
        self.run.launch.cache_n
    }

    fn computed(&self) -> usize {
        self.run.launch.prompt_n
    }

    fn prompt(&self) -> usize {
        self.cached() + self.computed()
    }

    fn predicted(&self) -> usize {
        self.run.said
    }

    /// The reason the answer ended, in the words of the dialect.
    fn reason(&self, limit: &'static str, end: &'static str) -> &'static str {
        if self.run.request.limited { limit } else { end }
    }

    /// Milliseconds are made up: what reading takes is as the options say, all else means nothing.
    fn timings(&self) -> Value {
        json!({
            "cache_n": self.cached(),
            "prompt_n": self.computed(), "prompt_ms": self.run.read_ms * self.computed() as f64,
            "prompt_per_token_ms": self.run.read_ms, "prompt_per_second": 1000.0 / self.run.read_ms,
            "predicted_n": self.predicted(), "predicted_ms": 2.5, "predicted_per_token_ms": 0.5,
            "predicted_per_second": 2000.0,
        })
    }

    /// OpenAI's usage.
    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt(), "completion_tokens": self.predicted(),
            "total_tokens": self.prompt() + self.predicted(),
            "prompt_tokens_details": {"cached_tokens": self.cached()},
        })
    }
}

/// The frame of an error within a stream. Only `/v1/messages` has a name for it, and then nothing around the error.
pub(super) fn error_event(route: Route, failure: &Failure) -> String {
    let told = failure.to_json();
    match route {
        Route::Messages => format!("event: error\ndata: {}\n\n", told["error"]),
        _ => data(&told),
    }
}

/// A frame without a name.
fn data(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A frame named after its `type`.
fn event(value: &Value) -> String {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or_default())
}

/// What OpenAI streams end with.
const DONE: &str = "data: [DONE]\n\n";
