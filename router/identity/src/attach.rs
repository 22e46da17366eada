//! Puts the three routing members into a request's body: what a hook does, and the router takes out again.

use crate::members::{Fate, Layout, name};

/// The names of the routing members.
pub mod member {
    /// The session's id.
    pub const SESSION: &str = "agent_session_id";
    /// The agent's name.
    pub const AGENT_NAME: &str = "agent_name";
    /// How the agent is driven.
    pub const CLIENT_TYPE: &str = "client_type";
}

/// What a hook tells the router about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment<'a> {
    /// The agent's name.
    pub agent_name: &'a str,
    /// The session's id, sent as it is: apply [`routing_id`](crate::routing_id) to it first.
    pub session_id: &'a str,
    /// How the agent is driven, see [`client_type`](crate::client_type).
    pub client_type: &'a str,
}

/// `body` with the routing members set: those that are there get the new value in their place (a second one of the same
/// name goes), the others are added at the end. Every other byte is kept.
///
/// `None` if `body` is not one JSON object: send it as it is.
///
/// ```
/// use session_slot_identity::{Attachment, attach};
/// let session = Attachment { agent_name: "cron", session_id: "s1", client_type: "cli" };
/// assert_eq!(
///     attach(r#"{"n": 1.0, "client_type":null}"#, &session).as_deref(),
///     Some(r#"{"n": 1.0, "client_type":"cli","agent_name":"cron","agent_session_id":"s1"}"#)
/// );
/// assert_eq!(attach("[1]", &session), None);
/// ```
pub fn attach(body: &str, session: &Attachment<'_>) -> Option<String> {
    let wanted = [
        (member::AGENT_NAME, quoted(session.agent_name)?),
        (member::SESSION, quoted(session.session_id)?),
        (member::CLIENT_TYPE, quoted(session.client_type)?),
    ];
    let longest = member::SESSION.len();
    let layout = Layout::of(body.as_bytes(), |key, _| {
        let key = name(key, longest)?;
        wanted.iter().position(|(name, _)| *name == key)
    })?;
    let mut is_there = [false; 3];
    layout.marks().for_each(|mark| is_there[mark] = true);
    let absent: Vec<_> = wanted.iter().zip(is_there).filter(|(_, there)| !there).collect();
    let added: Vec<_> = absent.iter().map(|((name, value), _)| (*name, value.as_str())).collect();
    let mut is_set = [false; 3];
    let fate = |mark: usize| {
        let again = std::mem::replace(&mut is_set[mark], true);
        if again { Fate::Remove } else { Fate::Set(&wanted[mark].1) }
    };
    String::from_utf8(layout.edited(body.as_bytes(), fate, &added)).ok()
}

/// `text` as a JSON string.
fn quoted(text: &str) -> Option<String> {
    serde_json::to_string(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SESSION: Attachment<'static> =
        Attachment { agent_name: "a", session_id: "s\"\n\u{1F600}", client_type: "c" };
    const ALL: &str = "\"agent_name\":\"a\",\"agent_session_id\":\"s\\\"\\n\u{1F600}\",\"client_type\":\"c\"";

    fn attached(body: &str) -> Option<String> {
        attach(body, &SESSION)
    }

    #[test]
    fn the_members_come_last_and_the_rest_keeps_its_spelling() {
        let kept = "\u{feff}\r\n{ \"z\" : 1.0e+02,\"a\":-0, \"a\":\"\\u00e9\\/\",\"messages\":[ {\"agent_name\":1} ]";
        assert_eq!(attached(&format!("{kept} }}\n")), Some(format!("{kept},{ALL} }}\n")));
    }

    #[test]
    fn an_empty_object_gets_them_too() {
        assert_eq!(attached("{}"), Some(format!("{{{ALL}}}")));
        assert_eq!(attached(" { } "), Some(format!(" {{{ALL} }} ")));
    }

    #[test]
    fn members_that_are_there_are_set_once_in_their_place() {
        let body =
            r#"{"agent\u005fname":{"x":1},"k":1,"client_type":2,"agent_name":3,"agent_session_id":null}"#;
        let wanted = "{\"agent\\u005fname\":\"a\",\"k\":1,\"client_type\":\"c\",\"agent_session_id\":\"s\\\"\\n\u{1F600}\"}";
        assert_eq!(attached(body).as_deref(), Some(wanted));
        assert_eq!(attached(wanted).as_deref(), Some(wanted));
    }

    #[test]
    fn what_is_no_json_object_stays_as_it_is() {
        for body in ["", " ", "null", "[]", "\"{}\"", "{", "{\"a\":1,}", "{}{}", "a=1&b=2", "{\"a\":01}"] {
            assert_eq!(attached(body), None, "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_session_the_result_reads_back(id in "\\PC{0,20}|[\\x00-\\x1f\"\\\\]{1,9}", n in 0_i64..9) {
            let session = Attachment { session_id: &id, ..SESSION };
            let body = attach(&format!("{{\"n\":{n}}}"), &session).expect("an object");
            let value: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            prop_assert_eq!(value["agent_session_id"].as_str(), Some(id.as_str()));
            prop_assert_eq!(value["n"].as_i64(), Some(n));
        }
    }
}
