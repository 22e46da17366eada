//! What a server means by an error: that its memory is full, that it is not ready, that it is busy, or that it is broken.
//!
//! As observed of llama-server b11549, whose four slots share a memory that runs short:
//!
//! | where | bytes |
//! |---|---|
//! | not streamed, any route | status 500, `{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}` |
//! | streamed, before or after output | status 200, and the event `data: {"error":{...as above...}}` |
//! | `/v1/messages`, streamed | status 200, and `event: error` with `data: {"code":500,"message":...,"type":"server_error"}` |
//!
//! Another router beside its server (a sidecar) tells the same in its own words.

use memchr::memmem;
use serde_json::Value;

/// llama-server's words for a full memory, in 5xx; and this program's.
const FULL: [&str; 2] = ["Context size has been exceeded", MEMORY_FULL];
/// How clients are told: agents that go by the text would take llama-server's words for a conversation too long.
pub(crate) const MEMORY_FULL: &str = "the server's memory is full";
/// llama-server's and this program's words for a server that will be there in a moment.
const NOT_READY: [&str; 2] = ["Loading model", "the router is stopping"];
/// For one that has too much to do.
const BUSY: [&str; 2] = ["no slot available", "the server is overloaded"];

/// What an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server's memory is full, or was until this request, and all that ran with it, failed.
    Full,
    /// The server is broken.
    Broken,
    /// The server is broken or the request is at fault: llama-server says 500 for both (as for a picture that its model
    /// can't see). Another server's answer tells.
    Doubtful,
    /// It loads its model, or is about to stop.
    NotReady,
    /// The request is at fault, or the server has too much to do, or can't do such a thing.
    Declined,
}

impl Fault {
    /// What an answer with an error's status means.
    pub(crate) fn of_answer(status: u16, body: &[u8]) -> Self {
        let body = serde_json::from_slice::<Value>(body).unwrap_or_default();
        Self::judge(status, body.get("error").unwrap_or(&body))
    }

    /// What an event of a stream means, if it tells an error.
    pub(crate) fn of_event(event: &[u8]) -> Option<Self> {
        let (name, data) = parts(event)?;
        let said = serde_json::from_slice::<Value>(data).ok()?;
        let error = match name {
            // A sidecar's; llama-server puts nothing around what its event says.
            b"error" => said.get("error").unwrap_or(&said),
            b"response.failed" => said.get("response")?.get("error")?,
            b"" => said.get("error").filter(|error| error.is_object())?,
            _ => return None,
        };
        Some(Self::judge(status_of(error), error))
    }

    fn judge(status: u16, error: &Value) -> Self {
        let message = error["message"].as_str().unwrap_or_default();
        let says = |words: &[&str]| words.iter().any(|words| message.contains(words));
        match status {
            // Also when it is in the words of a full memory: the prompt is longer than the context.
            ..=499 | 501 => Self::Declined,
            _ if says(&FULL) => Self::Full,
            _ if says(&NOT_READY) => Self::NotReady,
            503 | 529 if says(&BUSY) => Self::Declined,
            503 if error["type"] == "unavailable_error" => Self::NotReady,
            529 => Self::Declined,
            500 if !message.is_empty() => Self::Doubtful,
            _ => Self::Broken,
        }
    }
}

/// The name and the data of an event; of a comment there is neither.
fn parts(event: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut name = &b""[..];
    for line in event.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_end();
        if let Some(said) = line.strip_prefix(b"event:") {
            name = said.trim_ascii_start();
        } else if let Some(data) = line.strip_prefix(b"data:") {
            return Some((name, data.trim_ascii_start()));
        } else if let Some(data) = line.strip_prefix(b"error:") {
            // How older builds begin it.
            return Some((b"error", data.trim_ascii_start()));
        }
    }
    None
}

/// The status that an error within a stream would have had. Not every dialect has a number for it.
fn status_of(error: &Value) -> u16 {
    if let Some(code) = error["code"].as_u64() {
        return u16::try_from(code).unwrap_or(500);
    }
    match error["code"].as_str().or_else(|| error["type"].as_str()) {
        None | Some("server_error" | "api_error" | "overloaded_error" | "unavailable_error") => 503,
        Some(_) => 400,
    }
}

/// Where the first event of a stream ends that says something; what is before it are comments, or `idle` events.
pub(crate) fn first_event<'a>(text: &'a [u8], idle: &[u8]) -> Option<&'a [u8]> {
    let mut at = 0;
    loop {
        let end = at + event_end(&text[at..])?;
        let event = &text[at..end];
        if parts(event).is_some() && event != idle {
            return Some(event);
        }
        at = end;
    }
}

/// Where the first event ends, with the empty line behind it.
fn event_end(text: &[u8]) -> Option<usize> {
    let (unix, other) = (memmem::find(text, b"\n\n"), memmem::find(text, b"\r\n\r\n"));
    match (unix.map(|at| at + 2), other.map(|at| at + 4)) {
        (Some(one), Some(another)) => Some(one.min(another)),
        (one, another) => one.or(another),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, kind: &str, message: &str) -> Fault {
        let body =
            format!(r#"{{"error":{{"code":{status},"message":"{message}","type":"{kind}"}}}}"#).into_bytes();
        Fault::of_answer(status, &body)
    }

    #[test]
    fn a_full_memory_is_told_from_a_prompt_that_is_too_long() {
        let words = "Context size has been exceeded.";
        assert_eq!(answer(500, "server_error", words), Fault::Full);
        assert_eq!(answer(400, "invalid_request_error", words), Fault::Declined);
        let too_long =
            "request (11 tokens) exceeds the available context size (10 tokens), try increasing it";
        assert_eq!(answer(400, "exceed_context_size_error", too_long), Fault::Declined);
    }

    #[test]
    fn a_server_that_is_not_there_yet_is_told_from_one_that_has_too_much_to_do() {
        assert_eq!(answer(503, "unavailable_error", "Loading model"), Fault::NotReady);
        assert_eq!(answer(503, "unavailable_error", "no slot available"), Fault::Declined);
    }

    #[test]
    fn what_another_router_says_of_its_server_is_understood_in_every_dialect() {
        use crate::dialect::{Dialect, Trouble};
        let cases = [
            (503, "the router is stopping: send the request again in a moment", Fault::NotReady),
            (503, "the server is overloaded, 9 requests wait for it", Fault::Declined),
            (500, "the server's memory is full (500 Internal Server Error)", Fault::Full),
            (502, "llama-server's answer broke off before its end", Fault::Broken),
            (400, "the body is no JSON", Fault::Declined),
        ];
        for (status, message, fault) in cases {
            let trouble =
                Trouble::new(http::StatusCode::from_u16(status).expect("a status"), message.to_owned());
            for dialect in [Dialect::OpenAi, Dialect::Anthropic, Dialect::Responses] {
                let body = dialect.body(&trouble).to_string();
                let told = dialect.status(trouble.status).as_u16();
                assert_eq!(Fault::of_answer(told, body.as_bytes()), fault, "{dialect:?}: {body}");
                let events = dialect.events(&trouble);
                let event = first_event(&events, b"").expect("an event");
                assert_eq!(Fault::of_event(event), Some(fault), "{events:?}");
            }
        }
    }

    #[test]
    fn other_errors_of_a_server_are_faults_and_what_it_cannot_do_is_none() {
        for status in [500, 502, 503, 504] {
            assert_eq!(Fault::of_answer(status, b"<html>Bad Gateway</html>"), Fault::Broken, "{status}");
        }
        assert_eq!(answer(501, "not_supported_error", "Start it with `--embeddings`"), Fault::Declined);
    }

    #[test]
    fn what_llama_server_says_of_requests_that_it_cannot_run_may_be_their_fault() {
        for message in ["image input is not supported", "Failed to parse messages: Missing 'role' in message"]
        {
            assert_eq!(answer(500, "server_error", message), Fault::Doubtful);
        }
        assert_eq!(Fault::of_answer(500, b"{}"), Fault::Broken, "that is no error of llama-server's");
    }

    #[test]
    fn the_events_of_a_full_server_are_known() {
        let error = r#"{"code":500,"message":"Context size has been exceeded.","type":"server_error"}"#;
        for event in [
            format!("data: {{\"error\":{error}}}\n\n"),
            format!("event: error\ndata: {error}\n\n"),
            format!("error: {error}\n\n"),
        ] {
            assert_eq!(Fault::of_event(event.as_bytes()), Some(Fault::Full), "{event}");
        }
    }

    #[test]
    fn what_a_model_says_of_a_full_memory_is_no_error() {
        for event in [
            "data: {\"content\":\"Context size has been exceeded.\"}\n\n",
            "data: {\"error\":null,\"content\":\"Context size has been exceeded.\"}\n\n",
            "event: content_block_delta\ndata: {\"delta\":{\"text\":\"Context size has been exceeded.\"}}\n\n",
            "data: [DONE]\n\n",
            ": Context size has been exceeded.\n\n",
        ] {
            assert_eq!(Fault::of_event(event.as_bytes()), None, "{event}");
        }
    }

    #[test]
    fn the_first_event_is_the_first_that_says_something() {
        let idle = b"event: wait\ndata: {}\n\n";
        let stream = b": waiting\n\n\n\nevent: wait\ndata: {}\n\ndata: 1\n\ndata: 2\n\n";
        assert_eq!(first_event(stream, idle), Some(&b"data: 1\n\n"[..]));
        assert_eq!(first_event(&stream[..stream.len() - 18], idle), None);
        assert_eq!(first_event(b"data: 1\r\n\r\n", idle), Some(&b"data: 1\r\n\r\n"[..]));
    }
}
