//! Whatever a body looks like: what holds of all of them, against a model in pieces and a parser of JSON.

use proptest::prelude::*;
use serde_json::Value;

use super::super::*;
use super::{parsed, rewritten};

/// One member as text, in the pieces the model needs.
#[derive(Clone, Debug)]
struct Piece {
    /// White space before and after the comma in front.
    around_comma: (String, String),
    key: String,
    /// From the key's end to the value's start.
    colon: String,
    value: String,
}

impl Piece {
    fn name(&self) -> String {
        serde_json::from_str(&self.key).expect("a key")
    }

    fn is_routing(&self) -> bool {
        ["agent_name", "agent_session_id", "client_type"].contains(&self.name().as_str())
    }

    fn text(&self) -> String {
        format!("{}{}{}", self.key, self.colon, self.value)
    }
}

/// A whole body, in pieces.
#[derive(Clone, Debug)]
struct Model {
    head: String,
    pieces: Vec<Piece>,
    tail: String,
}

impl Model {
    fn text(&self) -> String {
        let mut text = self.head.clone();
        for (index, piece) in self.pieces.iter().enumerate() {
            let (before, after) = &piece.around_comma;
            text += &if index > 0 { format!("{before},{after}") } else { String::new() };
            text += &piece.text();
        }
        text + &self.tail
    }

    /// The same edits, done on the pieces.
    fn edited(&self, edits: &Owned) -> Self {
        let mut model = self.clone();
        model.pieces.retain(|piece| match piece.name().as_str() {
            "id_slot" => edits.slot != SlotEdit::Remove,
            _ => !piece.is_routing() || edits.members.is_some(),
        });
        if let Some(name) = &edits.model {
            model.set("model", &json(name));
        }
        if let SlotEdit::Set(slot) = edits.slot {
            model.set("id_slot", &slot.to_string()).then(|| model.push("id_slot", slot.to_string()));
        }
        if let Some(Some(session)) = &edits.members {
            let session = json(session);
            model.set("agent_session_id", &session).then(|| model.push("agent_session_id", session));
        }
        model
    }

    /// Sets all pieces of a name; true if there is none.
    fn set(&mut self, name: &str, value: &str) -> bool {
        let mut pieces: Vec<_> = self.pieces.iter_mut().filter(|piece| piece.name() == name).collect();
        pieces.iter_mut().for_each(|piece| value.clone_into(&mut piece.value));
        pieces.is_empty()
    }

    fn push(&mut self, name: &str, value: String) {
        self.pieces.push(Piece {
            around_comma: Default::default(),
            key: json(name),
            colon: ":".to_owned(),
            value,
        });
    }
}

fn json(text: &str) -> String {
    serde_json::to_string(text).expect("a text")
}

/// [`Edits`] that own their texts. No `members`: they are taken out; none inside: they stay.
#[derive(Clone, Debug)]
struct Owned {
    slot: SlotEdit,
    model: Option<String>,
    members: Option<Option<String>>,
}

impl<'o> From<&'o Owned> for Edits<'o> {
    fn from(owned: &'o Owned) -> Self {
        let members = match &owned.members {
            None => MembersEdit::Remove,
            Some(None) => MembersEdit::Keep,
            Some(Some(session)) => MembersEdit::Session(session),
        };
        Self { slot: owned.slot, model: owned.model.as_deref(), members }
    }
}

fn space() -> impl Strategy<Value = String> {
    "[ \t\r\n]{0,2}"
}

fn any_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,4})?([eE][+-]?[0-9])?",
        "\"([a-z{}:,\\[\\]é😀]|\\\\[\"\\\\/bfnrt]|\\\\u00[0-9a-fA-F]{2}|\\\\ud83d\\\\ude00){0,8}\"",
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let entry = (prop_oneof![special_key(), "\"[a-c]{0,2}\""], space(), space(), inner.clone())
            .prop_map(|(key, before, after, value)| format!("{key}{before}:{after}{value}"));
        prop_oneof![
            (proptest::collection::vec(inner, 0..4), space())
                .prop_map(|(v, s)| format!("[{s}{}]", v.join(&format!("{s},")))),
            (proptest::collection::vec(entry, 0..4), space())
                .prop_map(|(v, s)| format!("{{{s}{}{s}}}", v.join(","))),
        ]
    })
}

fn special_key() -> impl Strategy<Value = String> {
    proptest::sample::select(vec![
        "\"agent_name\"",
        "\"agent_session_id\"",
        "\"agent\\u005fsession\\u005Fid\"",
        "\"client_type\"",
        "\"id_slot\"",
        "\"\\u0069d_slot\"",
        "\"stream\"",
        "\"model\"",
        "\"mo\\u0064el\"",
        "\"id_slot2\"",
        "\"xagent_name\"",
    ])
    .prop_map(str::to_owned)
}

fn piece() -> impl Strategy<Value = Piece> {
    let key = prop_oneof![3 => special_key(), 2 => "\"([a-c]|\\\\n|\\\\u0061|é){0,3}\""];
    (key, any_value(), space(), space(), space(), space()).prop_map(|(key, value, a, b, c, d)| Piece {
        around_comma: (a, b),
        key,
        colon: format!("{c}:{d}"),
        value,
    })
}

/// Bodies that `parse` accepts: no routing member twice, and a session that can be one.
fn model() -> impl Strategy<Value = Model> {
    let head = (proptest::bool::weighted(0.1), space(), space())
        .prop_map(|(bom, a, b)| format!("{}{a}{{{b}", if bom { "\u{feff}" } else { "" }));
    let tail = (space(), space()).prop_map(|(a, b)| format!("{a}}}{b}"));
    (head, proptest::collection::vec(piece(), 0..9), tail).prop_map(|(head, mut pieces, tail)| {
        let mut seen = std::collections::HashSet::new();
        pieces.retain(|piece| !piece.is_routing() || seen.insert(piece.name()));
        for piece in pieces.iter_mut().filter(|piece| piece.name() == "agent_session_id") {
            if !piece.value.starts_with(['"', '-']) {
                piece.value = "null".to_owned();
            }
        }
        // An empty object has only one stretch of white space, and it belongs to the tail.
        let head = if pieces.is_empty() { head.trim_end().to_owned() } else { head };
        Model { head, pieces, tail }
    })
}

fn edits() -> impl Strategy<Value = Owned> {
    let slot =
        prop_oneof![any::<u32>().prop_map(SlotEdit::Set), Just(SlotEdit::Remove), Just(SlotEdit::Keep)];
    let text = || proptest::option::of("[a-c\"\\\\é\n]{1,5}");
    (slot, text(), proptest::option::of(text())).prop_map(|(slot, model, members)| Owned {
        slot,
        model,
        members,
    })
}

fn value_of(text: &str) -> Value {
    serde_json::from_str(text.trim_start_matches('\u{feff}')).expect("valid JSON")
}

proptest! {
    #[test]
    fn the_rewritten_body_means_the_same_but_for_what_was_edited(model in model(), edits in edits()) {
        let text = model.text();
        let mut wanted = value_of(&text);
        let members = wanted.as_object_mut().expect("an object");
        match &edits.members {
            None => members.retain(|name, _| !["agent_name", "agent_session_id", "client_type"].contains(&name.as_str())),
            Some(Some(session)) => drop(members.insert("agent_session_id".to_owned(), session.as_str().into())),
            Some(None) => {}
        }
        match edits.slot {
            SlotEdit::Set(slot) => drop(members.insert("id_slot".to_owned(), slot.into())),
            SlotEdit::Remove => drop(members.remove("id_slot")),
            SlotEdit::Keep => {}
        }
        if let (Some(name), Some(value)) = (&edits.model, members.get_mut("model")) {
            *value = name.as_str().into();
        }
        prop_assert_eq!(value_of(&rewritten(&text, &edits)), wanted);
    }

    #[test]
    fn every_byte_kept_is_where_it_was(model in model(), edits in edits()) {
        let out = rewritten(&model.text(), &edits);
        let wanted = model.edited(&edits);
        prop_assert_eq!(&out, &wanted.text());
        let mut rest = out.as_str();
        for piece in wanted.pieces {
            let at = rest.find(&piece.text());
            prop_assert!(at.is_some(), "{:?} is gone or out of order", piece);
            rest = &rest[at.unwrap_or(0) + piece.text().len()..];
        }
    }

    #[test]
    fn rewriting_twice_is_rewriting_once(model in model(), edits in edits()) {
        let once = rewritten(&model.text(), &edits);
        prop_assert_eq!(&rewritten(&once, &edits), &once);
        prop_assert!(edits.members.is_some() || !value_of(&once).as_object().expect("an object").contains_key("agent_name"));
    }

    #[test]
    fn the_facts_are_those_the_oracle_sees(model in model()) {
        let text = model.text();
        let (facts, value) = (parsed(&text), value_of(&text));
        prop_assert_eq!(facts.streams(), value["stream"] == Value::Bool(true));
        prop_assert_eq!(facts.model(), value["model"].as_str().filter(|name| !name.is_empty()));
        if let Some(session) = value["agent_session_id"].as_str() {
            prop_assert_eq!(facts.session().unwrap_or(""), session);
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn a_damaged_body_is_refused_left_alone_or_rewritten_to_an_object(
        model in model(), edits in edits(), damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3)
    ) {
        let mut bytes = model.text().into_bytes();
        for (index, byte) in damage {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let body = Bytes::from(bytes);
        if let Ok(Some(facts)) = parse(&body) {
            prop_assert!(matches!(parse(&facts.rewrite(&body, &edits)), Ok(Some(_))));
        }
    }
}
