//! A slot-taking request, read: its prompt, its limits, the slot it names, the gates it stops at.
use serde::Deserialize;
use serde_json::Value;

use super::failure::Failure;
use super::options::Options;
use super::prompt;
use super::tokens::Token;

/// How many tokens an answer has if the request sets no limit.
const DEFAULT_LIMIT: usize = 4;

/// The kinds of slot-taking routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Completion,
    OaiCompletion,
    Chat,
    Messages,
    Responses,
    Embedding,
}

impl Route {
    /// The route of a path, if it takes a slot.
    pub(super) fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/completion" | "/completions" => Self::Completion,
            "/v1/completions" => Self::OaiCompletion,
            "/chat/completions" | "/v1/chat/completions" => Self::Chat,
            "/v1/messages" => Self::Messages,
            "/v1/responses" | "/responses" => Self::Responses,
            "/embedding" | "/embeddings" | "/v1/embeddings" => Self::Embedding,
            _ => return None,
        })
    }

    /// Who says the output: it must be the same tokens when the client sends it back.
    pub(super) fn output_role(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages | Self::Responses => "assistant",
            Self::Completion | Self::OaiCompletion | Self::Embedding => "",
        }
    }
}

/// The gates named in the prompt, and the word to be said.
#[derive(Clone, Debug, Default)]
pub(super) struct Stops {
    pub(super) late: Option<String>,
    pub(super) hold: Option<String>,
    pub(super) hold_end: Option<String>,
    /// What is said first.
    pub(super) echo: Option<String>,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) route: Route,
    pub(super) tokens: Vec<Token>,
    pub(super) limit: usize,
    /// Whether the answer ends because of a limit the request set itself.
    pub(super) limited: bool,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) choices: usize,
    pub(super) named: Option<i64>,
    pub(super) stops: Stops,
}

/// The members that matter in fast mode; all others are skipped unparsed.
#[derive(Deserialize)]
struct Skimmed {
    #[serde(default)]
    stream: bool,
    id_slot: Option<Value>,
    max_tokens: Option<usize>,
    n_predict: Option<usize>,
}

impl Request {
    /// Reads a body.
    pub(super) fn parse(route: Route, body: &[u8], options: &Options) -> Result<Self, Failure> {
        if options.record { Self::read(route, body, options) } else { Self::skim(route, body, options) }
    }

    fn read(route: Route, body: &[u8], options: &Options) -> Result<Self, Failure> {
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| Failure::invalid(format!("parse error: {error}")))?;
        let (mut tokens, text) = prompt::render(route, &body).map_err(Failure::invalid)?;
        if tokens.is_empty() {
            tokens.push(Token(0));
        }
        let asked = asked_limit(&body);
        let stream = body["stream"] == true;
        let forced = options.sse_events.filter(|_| stream);
        Ok(Self {
            route,
            tokens,
            limit: forced.or(asked).unwrap_or(DEFAULT_LIMIT),
            // With a given number of tokens it is the model that ends.
            limited: asked.is_some() && forced.is_none(),
            stream,
            include_usage: body["stream_options"]["include_usage"] == true,
            choices: body["n"].as_u64().map_or(1, |n| (n as usize).max(1)),
            named: named_slot(route, body.get("id_slot"), options),
            stops: stops(&text),
        })
    }

    /// In fast mode the prompt is one token, and is not even looked at.
    fn skim(route: Route, body: &[u8], options: &Options) -> Result<Self, Failure> {
        let body: Skimmed = serde_json::from_slice(body)
            .map_err(|error| Failure::invalid(format!("parse error: {error}")))?;
        let asked = body.max_tokens.or(body.n_predict);
        let forced = options.sse_events.filter(|_| body.stream);
        Ok(Self {
            route,
            tokens: vec![Token(0)],
            limit: forced.or(asked).unwrap_or(DEFAULT_LIMIT),
            limited: forced.is_none() && asked.is_some(),
            stream: body.stream,
            include_usage: false,
            choices: 1,
            named: named_slot(route, body.id_slot.as_ref(), options),
            stops: Stops::default(),
        })
    }
}

fn asked_limit(body: &Value) -> Option<usize> {
    let names = ["max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict"];
    let asked = names.iter().find_map(|name| body.get(*name).and_then(Value::as_u64));
    asked.map(|limit| limit as usize)
}

/// Anything but a number counts as absent, and so does -1; 1.7 is 1. Embeddings name no slot.
fn named_slot(route: Route, id_slot: Option<&Value>, options: &Options) -> Option<i64> {
    if !options.honour_id_slot || route == Route::Embedding {
        return None;
    }
    let id_slot = id_slot?;
    let whole = id_slot.as_i64().or_else(|| id_slot.as_f64().map(|number| number as i64))?;
    Some(whole).filter(|number| *number != -1)
}

fn stops(text: &str) -> Stops {
    let mut stops = Stops::default();
    for word in text.split_whitespace() {
        match word.split_once(':') {
            // The last one counts: a growing conversation still contains the words of old turns.
            Some(("LATE", name)) => stops.late = Some(name.to_owned()),
            Some(("HOLD", name)) => stops.hold = Some(name.to_owned()),
            Some(("HOLDEND", name)) => stops.hold_end = Some(name.to_owned()),
            Some(("ECHO", word)) => stops.echo = Some(word.to_owned()),
            _ => {}
        }
    }
    stops
}
