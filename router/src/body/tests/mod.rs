//! What a body says and what becomes of it.

mod properties;

use super::*;

fn parsed(body: &str) -> Parsed {
    parse(body.as_bytes()).expect("usable members").expect("an object")
}

fn rewritten<'e>(body: &str, edits: impl Into<Edits<'e>>) -> String {
    let bytes = Bytes::copy_from_slice(body.as_bytes());
    let out = parsed(body).rewrite(&bytes, edits);
    String::from_utf8(out.to_vec()).expect("UTF-8 stays UTF-8")
}

fn set(body: &str) -> String {
    rewritten(body, SlotEdit::Set(3))
}

/// As another router gets it.
fn passed_on(body: &str, members: MembersEdit<'_>) -> String {
    rewritten(body, Edits { slot: SlotEdit::Keep, model: None, members })
}

/// As a server gets it that knows the model by another name.
fn renamed(body: &str, model: &str) -> String {
    rewritten(body, Edits { slot: SlotEdit::Keep, model: Some(model), members: MembersEdit::Keep })
}

fn refusal(body: &str) -> BodyError {
    parse(body.as_bytes()).expect_err("refused")
}

#[test]
fn every_answer_to_every_prompt_is_a_task() {
    let cases = [
        (Lists::Prompt, r#"{"prompt":"a"}"#, 1),
        (Lists::None, r#"{"n":3}"#, 3),
        (Lists::None, r#"{"n":0}"#, 1),
        (Lists::None, r#"{"n":-2}"#, 1),
        (Lists::None, r#"{"n":null,"n_cmpl":2}"#, 2),
        (Lists::None, r#"{"n":"4"}"#, 1),
        (Lists::Prompt, r#"{"prompt":["a","b"],"n":2}"#, 4),
        (Lists::Prompt, r#"{"prompt":[[1,2],[3]]}"#, 2),
        (Lists::Prompt, r#"{"prompt":[1,2,3]}"#, 1),
        (Lists::Prompt, r#"{"prompt":["a",5,"b"]}"#, 1),
        (Lists::Prompt, r#"{"prompt":[]}"#, 1),
        (Lists::Input, r#"{"input":["a","b","c"],"n":2}"#, 3),
        (Lists::Input, r#"{"content":["a","b"]}"#, 2),
        (Lists::Documents, r#"{"query":"q","documents":["a","b"]}"#, 2),
        (Lists::None, r#"{"messages":[{"n":5}],"documents":["a","b"],"prompt":["a","b"]}"#, 1),
        (Lists::None, r#"{"n":99999999999}"#, 1_215_752_191),
    ];
    for (lists, body, tasks) in cases {
        assert_eq!(parsed(body).tasks(lists), tasks, "{body}");
    }
}

#[test]
fn routing_members_go_and_the_slot_comes_and_the_rest_stays() {
    let body =
        r#"{"model": "m", "agent_name":"pi","agent_session_id": "s-1" , "n":1.50, "client_type":"tui"}"#;
    assert_eq!(set(body), r#"{"model": "m" , "n":1.50,"id_slot":3}"#);
    let facts = parsed(body);
    assert_eq!(facts.session(), Some("s-1"));
    assert_eq!(facts.agent_name(), Some("pi"));
    assert_eq!(facts.client_type(), Some("tui"));
    assert_eq!(facts.asked_slot(), AskedSlot::Absent);
    assert_eq!(facts.asked_slot_text(), None);
}

#[test]
fn the_first_member_kept_leaves_its_gap_behind() {
    assert_eq!(set("{ \"agent_name\":1 ,\n\"a\":2}"), "{ \"a\":2,\"id_slot\":3}");
    assert_eq!(rewritten("{\"agent_name\":1 , \"client_type\":2\n}\n", SlotEdit::Keep), "{\n}\n");
    assert_eq!(rewritten(r#"{"id_slot":1,"a":2,"id_slot":4}"#, SlotEdit::Remove), r#"{"a":2}"#);
    assert_eq!(rewritten(r#"{"id_slot":1}"#, SlotEdit::Remove), "{}");
}

#[test]
fn a_slot_is_added_to_an_object_that_is_or_becomes_empty() {
    assert_eq!(set("{}"), r#"{"id_slot":3}"#);
    assert_eq!(set(" { } "), r#" {"id_slot":3 } "#);
    assert_eq!(set(r#"{ "agent_session_id":"x" }"#), r#"{ "id_slot":3 }"#);
}

#[test]
fn every_id_slot_gets_the_new_value_in_its_place() {
    assert_eq!(
        set(r#"{"id_slot" : "2","a":{"id_slot":9},"id\u005fslot":null}"#),
        r#"{"id_slot" : 3,"a":{"id_slot":9},"id\u005fslot":3}"#
    );
    assert_eq!(
        rewritten(r#"{"id_slot":1,"agent_name":0}"#, SlotEdit::Set(u32::MAX)),
        r#"{"id_slot":4294967295}"#
    );
}

#[test]
fn what_json_parsers_lose_is_kept() {
    let kept = "\u{feff}\r\n\t{\"a\":1.0e+02,\"a\":-0,\"b\":\"\\u00e9\\/\\ud83d\",\"c\":[ 12345678901234567890123 , {}]";
    assert_eq!(set(&format!("{kept},\"agent_name\":{{}}}}\n\n")), format!("{kept},\"id_slot\":3}}\n\n"));
}

#[test]
fn an_untouched_body_is_not_copied() {
    let body = Bytes::from_static(br#"{"messages":[{"agent_session_id":"x"}],"id_slot":2}"#);
    let facts = parse(&body).expect("usable").expect("an object");
    assert_eq!(facts.session(), None);
    assert_eq!(facts.rewrite(&body, SlotEdit::Keep).as_ptr(), body.as_ptr());
    let plain = Bytes::from_static(br#"{"a":1}"#);
    let facts = parse(&plain).expect("usable").expect("an object");
    assert_eq!(facts.rewrite(&plain, SlotEdit::Remove).as_ptr(), plain.as_ptr());
}

#[test]
fn routing_members_are_removed_without_a_usable_session_too() {
    for session in ["null", "\"\""] {
        let body = format!(r#"{{"agent_session_id":{session},"agent_name":["x"],"a":1}}"#);
        assert_eq!(parsed(&body).session(), None);
        assert_eq!(parsed(&body).agent_name(), None);
        assert_eq!(rewritten(&body, SlotEdit::Keep), r#"{"a":1}"#);
    }
}

#[test]
fn a_number_is_a_session_spelled_as_in_the_body() {
    for number in ["7", "-0", "1.50", "1E+2", "123456789012345678901234567890"] {
        assert_eq!(parsed(&format!(r#"{{"agent_session_id": {number} }}"#)).session(), Some(number));
    }
}

#[test]
fn a_session_is_decoded_and_measured_in_bytes() {
    assert_eq!(parsed(r#"{"agent\u005fsession_id":"a\n\ud83d\ude00"}"#).session(), Some("a\n😀"));
    let body = |text: &str| format!(r#"{{"agent_session_id":"{text}"}}"#);
    assert_eq!(parsed(&body(&"\\u00e9".repeat(256))).session(), Some("é".repeat(256).as_str()));
    assert_eq!(refusal(&body(&"é".repeat(257))), BodyError::SessionTooLong { bytes: 514 });
    let digits = "1".repeat(513);
    assert_eq!(
        refusal(&format!(r#"{{"agent_session_id":{digits}}}"#)),
        BodyError::SessionTooLong { bytes: 513 }
    );
}

#[test]
fn a_session_of_another_kind_is_refused() {
    for (value, found) in
        [("true", "a boolean"), ("false", "a boolean"), ("[1]", "an array"), ("{}", "an object")]
    {
        let error = refusal(&format!(r#"{{"agent_session_id":{value}}}"#));
        assert_eq!(error, BodyError::SessionType { found });
        assert!(error.to_string().contains(found));
    }
    assert_eq!(refusal(r#"{"agent_session_id":"\ud800"}"#), BodyError::SessionNotText);
}

#[test]
fn a_routing_member_given_twice_is_refused_however_it_is_spelled() {
    for (body, member) in [
        (r#"{"agent_name":1,"x":0,"agent_name":1}"#, "agent_name"),
        (r#"{"agent_name":1,"\u0061gent\u005fname":1}"#, "agent_name"),
        (r#"{"client_type":null,"client_type":null}"#, "client_type"),
        (r#"{"agent_session_id":"a","agent_session_id":"a"}"#, "agent_session_id"),
    ] {
        assert_eq!(refusal(body), BodyError::Duplicate { member });
    }
    let error = BodyError::Duplicate { member: "agent_name" };
    assert_eq!(error.to_string(), "\"agent_name\" appears more than once in the request body: send it once");
}

#[test]
fn an_id_slot_may_repeat_but_not_without_end() {
    let body = |times| format!("{{{}}}", vec!["\"id_slot\":1"; times].join(","));
    assert_eq!(set(&body(MARKS_MAX)).matches(":3").count(), MARKS_MAX);
    assert_eq!(refusal(&body(MARKS_MAX + 1)), BodyError::Duplicate { member: "id_slot" });
}

#[test]
fn what_is_no_json_object_is_left_alone_even_where_members_repeat() {
    let bodies: [&[u8]; 16] = [
        b"",
        b" ",
        b"\xef\xbb\xbf",
        b"null",
        b"[{\"agent_name\":1}]",
        b"\"agent_name\"",
        b"{",
        b"{\"a\":1,}",
        b"{\"a\" 1}",
        b"{a:1}",
        b"{\"agent_name\":1,\"agent_name\":1",
        b"{\"agent_name\":1}{}",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"\n\"}",
        b"\0{}",
        b"{\"a\":01}",
    ];
    for body in bodies {
        assert!(matches!(parse(body), Ok(None)), "{:?}", String::from_utf8_lossy(body));
    }
}

#[test]
fn a_nul_after_the_object_ends_it_as_it_does_for_llama_server() {
    assert_eq!(set("{\"id_slot\":1} \0}junk"), "{\"id_slot\":3} \0}junk");
}

#[test]
fn the_asked_slot_is_what_llama_server_makes_of_it() {
    use AskedSlot::{Absent, Named};
    // Each seen on llama.cpp b11549, except the floats beyond int.
    for (raw, wanted) in [
        ("0", Named(0)),
        ("5", Named(5)),
        ("-1", Absent),
        ("-1.9", Absent),
        ("-2", Named(-2)),
        ("1.7", Named(1)),
        ("-0.5", Named(0)),
        ("2e0", Named(2)),
        ("true", Named(1)),
        ("false", Named(0)),
        ("null", Absent),
        ("\"2\"", Absent),
        ("[2]", Absent),
        ("{\"a\":2}", Absent),
        ("4294967298", Named(2)),
        ("4294967295", Absent),
        ("-4294967295", Named(1)),
        ("9223372036854775810", Named(2)),
        ("18446744073709551614", Named(-2)),
        ("1e10", Named(2_147_483_647)),
        ("-1e10", Named(-2_147_483_648)),
    ] {
        let body = format!(r#"{{"id_slot": 3, "a":0, "id_slot": {raw} }}"#);
        assert_eq!(parsed(&body).asked_slot(), wanted, "for {raw}");
        assert_eq!(parsed(&body).asked_slot_text(), Some(raw));
    }
}

#[test]
fn texts_for_the_log_are_cut_between_characters() {
    let body = format!(
        r#"{{"id_slot":"{}","agent_name":"x{}","client_type":12.0}}"#,
        "é".repeat(40),
        "é".repeat(200)
    );
    let facts = parsed(&body);
    assert_eq!(facts.asked_slot_text(), Some(format!("\"{}", "é".repeat(15)).as_str()));
    assert_eq!(facts.agent_name(), Some(format!("x{}", "é".repeat(127)).as_str()));
    assert_eq!(facts.client_type(), Some("12.0"));
}

#[test]
fn only_a_true_at_the_top_level_asks_for_a_stream() {
    assert!(parsed(r#"{"stream":false,"stream" : true }"#).streams());
    assert!(parsed(r#"{"str\u0065am":true}"#).streams());
    for body in [
        r#"{"stream":1}"#,
        r#"{"stream":"true"}"#,
        r#"{"a":{"stream":true}}"#,
        r#"{"stream":true,"stream":null}"#,
    ] {
        assert!(!parsed(body).streams(), "{body}");
    }
}

#[test]
fn claude_codes_session_is_found_inside_the_text_of_its_user_id() {
    let body = |user_id: &str| format!(r#"{{"metadata":{{"a":[{{}}],"user_id":{user_id}}},"messages":[]}}"#);
    let facts = parsed(&body(r#""{\"device_id\":\"d\",\"account_uuid\":\"\",\"session_id\":\"s-1\"}""#));
    assert_eq!(facts.claude_session(), Some("s-1"));
    for other in [
        r#""user_1_account__session_s-1""#,
        r#""[\"s-1\"]""#,
        r#""{\"session_id\":7}""#,
        r#""{}""#,
        r#""{""#,
        r#""""#,
        "7",
        "null",
        r#"{"session_id":"s-1"}"#,
        r#""\ud800""#,
    ] {
        assert_eq!(parsed(&body(other)).claude_session(), None, "{other}");
    }
    for metadata in ["null", "[]", "\"x\"", "{}"] {
        assert_eq!(parsed(&format!(r#"{{"metadata":{metadata}}}"#)).claude_session(), None, "{metadata}");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(parsed(&body(&deep)).claude_session(), None);
}

#[test]
fn a_prompt_cache_key_is_read_and_stays() {
    let body = r#"{"prompt_cache_key":"k\u0031","a":1}"#;
    assert_eq!(parsed(body).prompt_cache_key(), Some("k1"));
    assert_eq!(rewritten(body, SlotEdit::Keep), body);
    assert_eq!(parsed(r#"{"prompt_cache_key":17}"#).prompt_cache_key(), None);
    let long = format!(r#"{{"prompt_cache_key":"{}"}}"#, "x".repeat(5000));
    assert_eq!(parsed(&long).prompt_cache_key().map(str::len), Some(1024));
}

#[test]
fn the_last_model_counts_and_only_a_name_is_one() {
    assert_eq!(parsed(r#"{"model":"a","x":{"model":"b"}}"#).model(), Some("a"));
    assert_eq!(parsed(r#"{"model":"a","m\u006fdel" : "\u00e9\n"}"#).model(), Some("é\n"));
    for body in [
        r#"{}"#,
        r#"{"model":7}"#,
        r#"{"model":"a","model":null}"#,
        r#"{"model":""}"#,
        r#"{"model":"\ud800"}"#,
    ] {
        assert_eq!(parsed(body).model(), None, "{body}");
    }
    assert_eq!(parsed(&format!(r#"{{"model":"{}"}}"#, "x".repeat(5000))).model().map(str::len), Some(1024));
}

#[test]
fn every_model_gets_the_new_name_in_its_place() {
    assert_eq!(
        renamed(r#"{"model" : "a-m","x":{"model":"a-m"},"m\u006fdel":null, "agent_name":1}"#, "m\"é"),
        r#"{"model" : "m\"é","x":{"model":"a-m"},"m\u006fdel":"m\"é", "agent_name":1}"#
    );
    assert_eq!(renamed(r#"{"a":1}"#, "m"), r#"{"a":1}"#);
}

#[test]
fn a_model_repeated_without_end_takes_no_memory_and_the_new_name_still_counts() {
    let body = |times| format!("{{{}}}", vec![r#""model":"a""#; times].join(","));
    assert!(!renamed(&body(MARKS_MAX), "m").contains(r#""a""#));
    let endless = body(100_000);
    assert_eq!(parsed(&endless).layout.marks().count(), MARKS_MAX);
    let renamed = renamed(&endless, "m");
    assert_eq!(parsed(&renamed).model(), Some("m"));
    assert_eq!(renamed.len(), endless.len() + r#","model":"m""#.len());
    assert_eq!(rewritten(&endless, SlotEdit::Remove), endless);
}

#[test]
fn models_leave_room_for_as_many_slots_as_before() {
    let both = vec![r#""id_slot":1,"model":"a""#; MARKS_MAX].join(",");
    assert_eq!(set(&format!("{{{both}}}")).matches(":3").count(), MARKS_MAX);
}

#[test]
fn the_smallest_limit_of_the_answer_is_found_under_all_its_names() {
    for (body, limit) in [
        (r#"{}"#, None),
        (r#"{"max_tokens":32000}"#, Some(32_000)),
        (r#"{"max_tokens":32000,"max_completion_tokens":300}"#, Some(300)),
        (r#"{"max_output_tokens":7,"n_predict":-1}"#, Some(7)),
        (r#"{"n_predict":0}"#, Some(0)),
        (r#"{"max_t\u006fkens":9}"#, Some(9)),
        (r#"{"max_tokens":null,"n_predict":"5","max_completion_tokens":1.5,"max_output_tokens":-1}"#, None),
        (r#"{"options":{"n_predict":5}}"#, None),
    ] {
        assert_eq!(parsed(body).max_output(), limit, "{body}");
        assert_eq!(rewritten(body, SlotEdit::Remove), body);
    }
}

#[test]
fn another_router_gets_the_routing_members_with_the_session_that_was_found() {
    let body =
        r#"{ "agent_name":"pi","agent_session_id" : "s\u0031", "client_type":"tui","a":1.0,"id_slot":2}"#;
    assert_eq!(
        passed_on(body, MembersEdit::Session("u/\"1\"")),
        body.replace(r#""s\u0031""#, r#""u/\"1\"""#),
        "in its place"
    );
    assert_eq!(passed_on(body, MembersEdit::Keep), body);
    assert_eq!(
        passed_on(r#"{"agent_name":"pi" }"#, MembersEdit::Session("s")),
        r#"{"agent_name":"pi","agent_session_id":"s" }"#,
        "where there was none"
    );
    assert_eq!(passed_on("{}", MembersEdit::Session("s")), r#"{"agent_session_id":"s"}"#);
}

#[test]
fn a_body_that_another_router_gets_as_it_is_is_not_copied() {
    let body = Bytes::from_static(br#"{"agent_session_id":"x","agent_name":"pi","id_slot":2,"model":"m"}"#);
    let edits = Edits { slot: SlotEdit::Keep, model: None, members: MembersEdit::Keep };
    let facts = parse(&body).expect("usable").expect("an object");
    assert_eq!(facts.rewrite(&body, edits).as_ptr(), body.as_ptr());
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for member in ["a", "agent_name", "id_slot"] {
        let body = format!(r#"{{"{member}":{deep},"agent_session_id":"s"}}"#);
        assert_eq!(parsed(&body).session(), Some("s"));
        assert!(set(&body).ends_with("\"id_slot\":3}") || member == "id_slot");
    }
    assert_eq!(
        refusal(&format!(r#"{{"agent_session_id":{deep}}}"#)),
        BodyError::SessionType { found: "an array" }
    );
    assert!(matches!(parse("{\"a\":[".repeat(100_000).as_bytes()), Ok(None)));
}
