//! What makes two requests begin alike, and what does not.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const KEY: ChainKey = ChainKey([7; 16]);

fn chain(body: &Value) -> Chain {
    of(&body.to_string()).unwrap()
}

fn of(body: &str) -> Option<Chain> {
    Chain::of(&Bytes::copy_from_slice(body.as_bytes()), &KEY)
}

fn parts(chain: &Chain) -> Vec<Part> {
    chain.nodes().iter().map(|node| node.part).collect()
}

fn difference(before: &Value, now: &Value) -> Option<Part> {
    first_difference(&chain(before), &chain(now))
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn chat(messages: &[Value]) -> Value {
    json!({"messages": messages})
}

/// A turn of Claude Code.
fn claude() -> Value {
    json!({
        "model": "m",
        "messages": [user("hello"), {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}],
        "system": [{"type": "text", "text": "You are Claude Code."}],
        "tools": [{"name": "Bash", "input_schema": {"type": "object", "properties": {}}}],
    })
}

#[test]
fn the_system_text_comes_first_then_the_tools_then_each_message_in_every_dialect() {
    use Part::{Message, System, Tools};
    let system = json!({"role": "system", "content": "be brief"});
    let developer = json!({"role": "developer", "content": "use tools"});
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let cases = [
        (claude(), vec![System, Tools, Message(0), Message(1)]),
        (
            json!({"messages": [system, developer, user("a"), system, user("b")], "tools": tools}),
            vec![System, Tools, Message(2), Message(3), Message(4)],
        ),
        (
            json!({"instructions": "be brief", "input": [{"type": "message", "role": "user"}], "tools": tools}),
            vec![System, Tools, Message(0)],
        ),
        (json!({"input": "hello"}), vec![Message(0)]),
        (json!({"prompt": "x".repeat(5_000)}), vec![Message(0), Message(1), Message(2)]),
        (json!({"prompt": vec![17; 1_024]}), vec![Message(0), Message(1)]),
        (json!({"prompt": [1, 2, "three", 4]}), vec![Message(0)]),
        (json!({"messages": [user("a")], "tools": [], "system": null}), vec![Message(0)]),
        (json!({"messages": [system]}), vec![System]),
    ];
    for (body, expected) in cases {
        assert_eq!(parts(&chain(&body)), expected, "{body:.100}");
    }
}

#[test]
fn a_body_without_text_has_no_chain() {
    for body in [
        "",
        "{",
        "[]",
        "null",
        "\"prompt\"",
        "{}",
        r#"{"messages":[]}"#,
        r#"{"messages":7}"#,
        r#"{"prompt":""}"#,
        r#"{"prompt":null,"model":"m"}"#,
        r#"{"messages":{"role":"user"}}"#,
        r#"{"prompt":"\ud800"}"#,
        r#"{"prompt":"a"#,
    ] {
        assert_eq!(of(body), None, "{body}");
    }
    assert_eq!(Chain::of(&Bytes::from_static(b"{\"prompt\":\"\xff\"}"), &KEY), None);
}

#[test]
fn spelling_white_space_and_the_order_of_the_top_level_do_not_matter() {
    let plain = r#"{"messages":[{"role":"system","content":"\u00fc\n"},{"role":"user","content":"a/b"}],"tools":[{"name":"f"}]}"#;
    let odd = "\u{feff} {\r\n\"tools\" : [ {\"n\\u0061me\":\"f\"} ],\"messages\":\t[{\"role\":\"s\\u0079stem\",\
               \"content\":\"ü\\u000a\"} , {\"role\":\"user\" ,\"content\":\"a\\/b\"}]\n}\0";
    assert_eq!(of(plain).unwrap(), of(odd).unwrap());
}

#[test]
fn what_steers_the_answer_or_the_router_does_not_matter() {
    let mut other = claude();
    for (name, value) in [
        ("agent_session_id", json!("s")),
        ("agent_name", json!("pi")),
        ("client_type", json!("tui")),
        ("id_slot", json!(3)),
        ("stream", json!(true)),
        ("temperature", json!(0.2)),
        ("max_tokens", json!(77)),
        ("metadata", json!({"user_id": "u"})),
    ] {
        other[name] = value;
    }
    assert_eq!(chain(&claude()), chain(&other));
}

#[test]
fn a_moved_cache_mark_changes_nothing() {
    let mark = json!({"type": "ephemeral"});
    let marked = json!({
        "system": [{"type": "text", "text": "You are Claude Code.", "cache_control": mark}],
        "tools": [{"name": "Bash", "input_schema": {"type": "object", "properties": {}}, "cache_control": mark}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": mark}]},
            {"role": "assistant", "content": [{"type": "text", "cache_control": mark, "text": "hi"}]},
        ],
    });
    assert_eq!(chain(&claude()), chain(&marked));
    let spelled = |block: &str| of(&format!(r#"{{"messages":[{{"role":"user","content":{block}}}]}}"#));
    let alone = spelled(r#""a""#);
    assert_eq!(alone, spelled(r#"[{"type":"text","text":"a"}]"#));
    assert_eq!(alone, spelled(r#"[{"text":"a","type":"text"}]"#));
    assert_ne!(alone, spelled(r#"[{"text":"a","type":"image"}]"#));
    assert_ne!(alone, spelled(r#"[{"text":"a"},{"text":""}]"#));
}

#[test]
fn what_reaches_the_model_matters_and_the_part_is_named() {
    let before = claude();
    let change = |pointer: &str, value: Value| {
        let mut now = before.clone();
        *now.pointer_mut(pointer).unwrap() = value;
        difference(&before, &now)
    };
    assert_eq!(change("/system/0/text", json!("You are another.")), Some(Part::System));
    assert_eq!(change("/tools/0/name", json!("Fish")), Some(Part::Tools));
    assert_eq!(change("/messages/0/content", json!("hullo")), Some(Part::Message(0)));
    assert_eq!(change("/messages/0/role", json!("assistant")), Some(Part::Message(0)));
    assert_eq!(change("/messages/1/content/0/text", json!("ho")), Some(Part::Message(1)));
    assert_eq!(change("/model", json!("other")), None);
}

#[test]
fn a_part_that_came_or_went_is_the_one_that_differs() {
    let (mut bare, full) = (claude(), claude());
    bare.as_object_mut().unwrap().remove("tools");
    assert_eq!(difference(&bare, &full), Some(Part::Tools));
    assert_eq!(difference(&full, &bare), Some(Part::Tools));
    bare.as_object_mut().unwrap().remove("system");
    assert_eq!(difference(&full, &bare), Some(Part::System));
    let mut chosen = full.clone();
    chosen["tool_choice"] = json!("none");
    assert_eq!(difference(&full, &chosen), Some(Part::Tools));
    bare["tool_choice"] = json!("none");
    let (first, second) = (chat(&[user("a"), user("b")]), chat(&[user("a")]));
    assert_eq!(difference(&first, &second), None, "what is still there is the same");
    assert_eq!(difference(&second, &first), None);
    assert_eq!(difference(&first, &first), None);
}

#[test]
fn what_changes_the_rendering_changes_everything() {
    for (name, value) in [
        ("chat_template_kwargs", json!({"enable_thinking": false})),
        ("thinking", json!({"type": "enabled"})),
        ("input_prefix", json!("fn main() {")),
        ("lora", json!([{"id": 0, "scale": 0.5}])),
    ] {
        let mut other = claude();
        other[name] = value;
        assert_eq!(chain(&claude()).common(&chain(&other)), 0, "{name}");
    }
    let mut other = claude();
    other["chat_template_kwargs"] = json!({});
    assert_eq!(chain(&claude()), chain(&other));
}

#[test]
fn a_plain_prompt_that_goes_on_shares_its_whole_blocks_and_differs_in_none() {
    let text = "0123456789".repeat(1_000);
    let (before, now) = (json!({"prompt": text[..5_000]}), json!({"prompt": text}));
    assert_eq!(chain(&before).common(&chain(&now)), 2);
    assert_eq!(difference(&before, &now), None);
    let other = json!({"prompt": format!("{}x{}", &text[..2_100], &text[2_101..])});
    assert_eq!(difference(&before, &other), Some(Part::Message(1)));
    let tokens: Vec<_> = (0..2_000).collect();
    let (before, now) = (json!({"prompt": tokens[..1_100]}), json!({"prompt": tokens}));
    assert_eq!(chain(&before).common(&chain(&now)), 2);
    assert_eq!(difference(&before, &now), None);
}

#[test]
fn text_is_counted_and_shares_follow_from_it() {
    let body = chat(&[user(&"a".repeat(3_000)), user(&"b".repeat(1_000))]);
    let chain = chain(&body);
    let share = chain.share(1);
    assert!(chain.len() >= 4_000 && chain.len() < 4_200, "{}", chain.len());
    assert!((0.7..0.8).contains(&share), "{share}");
    assert!((chain.share(2) - 1.0).abs() < f64::EPSILON);
    assert_eq!((chain.share(0), chain.share(9)), (0.0, 0.0));
}

#[test]
fn a_picture_counts_as_a_picture_however_large_its_file_is() {
    let picture = "iVBORw0KGgo".repeat(50_000);
    let openai =
        json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{picture}")}});
    let anthropic = json!({"type": "image", "source": {"type": "base64", "data": &picture}});
    for block in [openai, anthropic] {
        let with = |block: &Value| chain(&chat(&[json!({"role": "user", "content": [block]})]));
        assert!(with(&block).len() < 5_000, "{}", with(&block).len());
        let other = serde_json::from_str(&block.to_string().replace("Ggo\"", "Ggp\"")).expect("JSON");
        assert_ne!(with(&block).nodes(), with(&other).nodes(), "all of it is hashed");
    }
    let words = "some words ".repeat(1_000);
    for text in [
        json!({"type": "tool_use", "input": {"data": words}}),
        json!({"type": "text", "text": format!("data: {words}")}),
        json!({"type": "text", "text": format!("data:;base64, {words}")}),
    ] {
        assert!(chain(&chat(&[json!({"role": "user", "content": [&text]})])).len() > 10_000, "{text}");
    }
}

#[test]
fn another_installations_hashes_have_nothing_in_common() {
    let body = Bytes::from(claude().to_string());
    let other = Chain::of(&body, &ChainKey([8; 16])).unwrap();
    assert_eq!(chain(&claude()).common(&other), 0);
}

#[test]
fn of_members_that_are_there_twice_the_last_one_counts() {
    let twice = r#"{"prompt":"a","prompt":"b","system":"x","system":null}"#;
    assert_eq!(of(twice), of(r#"{"prompt":"b"}"#));
    assert_eq!(of(r#"{"prompt":"a","prompt":null}"#), None);
}

#[test]
fn huge_and_deep_bodies_are_bounded() {
    let many = vec![user("a"); 100_000];
    let mut body = chat(&many);
    body["system"] = json!("s");
    body["tools"] = json!([{"name": "f"}]);
    let before = chain(&body);
    assert_eq!(before.nodes().len(), MOST_NODES);
    assert!(before.len() > 100_000);
    assert_eq!(Chain::from_bytes(&before.to_bytes()).as_ref(), Some(&before));
    body["messages"].as_array_mut().unwrap().push(user("b"));
    assert_eq!(first_difference(&before, &chain(&body)), None, "nobody can say");
    for nested in ["[".repeat(100_000), r#"{"a":"#.repeat(100_000)] {
        assert_eq!(of(&format!(r#"{{"messages":[{nested}"#)), None);
    }
    let leading = vec![json!({"role": "system", "content": "s"}); 10_000];
    assert_eq!(parts(&chain(&chat(&leading))), [Part::System]);
}

#[test]
fn a_stored_chain_comes_back_and_a_damaged_one_does_not() {
    let chain = chain(&claude());
    let bytes = chain.to_bytes();
    assert!(bytes.len() < 16 * chain.nodes().len());
    assert_eq!(Chain::from_bytes(&bytes), Some(chain));
    for length in 0..bytes.len() {
        assert_eq!(Chain::from_bytes(&bytes[..length]), None, "cut to {length}");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(Chain::from_bytes(&damaged), None, "byte {at}");
    }
    assert_eq!(Chain::from_bytes(&Chain::default().to_bytes()), Some(Chain::default()));
}

/// Texts with characters that have several spellings.
fn text() -> impl Strategy<Value = String> {
    "[a-z \"\\\\/\n\u{e9}\u{1f999}\u{1}]{0,12}"
}

fn message() -> impl Strategy<Value = Value> {
    let role = prop::sample::select(vec!["system", "user", "assistant", "tool"]);
    let call = prop::option::of((any::<i64>(), any::<bool>(), text()));
    (role, text(), call).prop_map(|(role, content, call)| {
        let mut message = json!({"role": role, "content": content});
        if let Some((number, truth, text)) = call {
            message["tool_calls"] = json!([{"n": number, "t": truth, "a": {"x": text}, "z": null}]);
        }
        message
    })
}

/// JSON in another spelling: white space everywhere, every character of a string escaped.
fn spelled_oddly(value: &Value) -> String {
    let string = |text: &str| -> String {
        let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        format!("\"{units}\"")
    };
    let list = |items: Vec<String>| items.join(" ,\n");
    match value {
        Value::String(text) => string(text),
        Value::Array(items) => format!("[\t{} ]", list(items.iter().map(spelled_oddly).collect())),
        Value::Object(members) => {
            let member =
                |(name, value): (&String, &Value)| format!("{} :\r\n {}", string(name), spelled_oddly(value));
            format!("{{ {}\n}}", list(members.iter().map(member).collect()))
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn formatting_does_not_matter(messages in prop::collection::vec(message(), 1..6), system in text()) {
        let body = json!({"system": system, "messages": messages});
        prop_assert_eq!(of(&body.to_string()), of(&spelled_oddly(&body)));
    }

    #[test]
    fn a_further_message_keeps_all_nodes_before_it(
        messages in prop::collection::vec(message(), 1..8), cut in 1..8_usize, with_tools in any::<bool>(),
    ) {
        let cut = cut.min(messages.len());
        let body = |messages: &[Value]| {
            let tools = if with_tools { json!([{"name": "f"}]) } else { Value::Null };
            json!({"messages": messages, "tools": tools, "instructions": "i"})
        };
        let (short, long) = (chain(&body(&messages[..cut])), chain(&body(&messages)));
        let leads = messages.iter().take_while(|message| message["role"] == "system").count();
        if cut < leads {
            // Another system message is more system text.
            prop_assert_eq!(first_difference(&short, &long), Some(Part::System));
        } else {
            prop_assert_eq!(short.common(&long), short.nodes().len());
            prop_assert_eq!(first_difference(&short, &long), None);
            prop_assert_eq!(long.nodes().len() - short.nodes().len(), messages.len() - cut);
        }
        prop_assert!(long.nodes().is_sorted_by_key(|node| node.end));
    }

    #[test]
    fn another_message_is_another_chain_from_there_on(
        messages in prop::collection::vec(message(), 1..6), at in 0..6_usize, other in message(),
    ) {
        let at = at % messages.len();
        let mut changed = messages.clone();
        changed[at] = other;
        let (before, now) = (chain(&chat(&messages)), chain(&chat(&changed)));
        prop_assert_eq!(before == now, messages == changed);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), tail in "[\\[\\]{}\":,a0]{0,60}") {
        let _ = Chain::from_bytes(&bytes);
        let _ = Chain::of(&Bytes::from(bytes), &KEY);
        let _ = of(&format!("{{\"messages\":{tail}"));
    }
}

#[test]
fn a_conversation_opens_alike_in_all_its_turns_whatever_tools_it_has() {
    let opening = |body: &Value| Chain::with_opening(&body.to_string().into(), &KEY).unwrap().1;
    let system = json!({"role": "system", "content": "be brief"});
    let first = opening(&chat(&[system.clone(), user("hello")]));
    assert!(first.is_some_and(|opening| opening.system.is_some()));
    let mut later =
        chat(&[system.clone(), user("hello"), json!({"role": "assistant", "content": "hi"}), user("go on")]);
    later["tools"] = json!([{"type": "function", "function": {"name": "read"}}]);
    assert_eq!(opening(&later), first);
    assert_ne!(opening(&chat(&[system, user("hi")])), first);
    assert_ne!(opening(&chat(&[user("hello")])), first);
    // The end of a plain prompt may go on.
    assert_eq!(opening(&json!({"prompt": "once upon a time"})), None);
    assert!(opening(&json!({"prompt": "once upon a time ".repeat(200)})).is_some());
}
