//! Claude Code's billing line: the first line of its system text, which changes from request to request and so makes
//! everything behind it new to the server. It can be replaced by one that stays.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use session_slot_identity::members::{self, Layout};

/// How the line begins; nobody has a reason to spell it with escapes.
const HEADER: &str = "x-anthropic-billing-header:";
/// What stands there instead.
const CONSTANT: &str = "x-anthropic-billing-header: unchanged";
/// The members with a system text: Anthropic's, and the list whose first message may be one.
const SYSTEM: &str = "system";
const MESSAGES: &str = "messages";

/// `body` with a constant for the billing line of its first system block; every other byte stays. `None` if there is no
/// such line, or it is the constant already.
#[must_use]
pub fn without_billing(body: &Bytes) -> Option<Bytes> {
    memmem::find(body, HEADER.as_bytes())?;
    let text = first_system_text(body)?;
    let line = billing_line(text)?;
    if &text[line.clone()] == CONSTANT {
        return None;
    }
    // The text is a part of the body.
    let start = text.as_ptr() as usize - body.as_ptr() as usize;
    let edited = [&body[..start + line.start], CONSTANT.as_bytes(), &body[start + line.end..]];
    Some(edited.concat().into())
}

/// The first block of the system text, as the body spells it.
fn first_system_text(body: &[u8]) -> Option<&str> {
    let (mut system, mut messages) = (None, None);
    Layout::of(body, |name, value| -> Option<()> {
        match members::name(name, MESSAGES.len()).as_deref() {
            Some(SYSTEM) => system = Some(value),
            Some(MESSAGES) => messages = Some(value),
            _ => {}
        }
        None
    })?;
    system.and_then(first_block).or_else(|| first_block(system_message(messages?)?))
}

/// A text, or that of the first block of a list, without its quotes.
fn first_block(raw: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct Block<'a> {
        #[serde(borrow)]
        text: &'a RawValue,
    }
    let raw = if raw.starts_with('[') { first::<Block<'_>>(raw)?.text.get() } else { raw };
    raw.strip_prefix('"')?.strip_suffix('"')
}

/// The content of the first message, if that is a system message.
fn system_message(raw: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        role: Cow<'a, str>,
        #[serde(borrow)]
        content: &'a RawValue,
    }
    let message = first::<Message<'_>>(raw)?;
    matches!(&*message.role, "system" | "developer").then(|| message.content.get())
}

/// The first item of a list of objects.
fn first<'a, T: Deserialize<'a>>(raw: &'a str) -> Option<T> {
    // Only as far as the first item ends: what follows may be megabytes.
    let items = raw.strip_prefix('[')?;
    let item = serde_json::Deserializer::from_str(items).into_iter::<&'a RawValue>().next()?.ok()?.get();
    // Serde takes a list for a struct, too.
    item.starts_with('{').then(|| serde_json::from_str(item).ok())?
}

/// Where the billing line is in a text that is spelled as JSON.
fn billing_line(text: &str) -> Option<Range<usize>> {
    let start = line_starts(text).find(|start| text[*start..].starts_with(HEADER))?;
    let end = line_breaks(&text[start..]).next().map_or(text.len(), |line_break| start + line_break.start);
    Some(start..end)
}

fn line_starts(text: &str) -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(line_breaks(text).map(|line_break| line_break.end))
}

/// The escapes that end a line.
fn line_breaks(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            at += memchr::memchr(b'\\', &text.as_bytes()[at..])?;
            let start = at;
            let escape = text.get(at + 1..)?;
            let digits = escape.strip_prefix('u').and_then(|digits| digits.get(..4));
            at += if digits.is_some() { 6 } else { 2 };
            let breaks = digits.map_or(escape.starts_with(['n', 'r']), |digits| {
                digits.eq_ignore_ascii_case("000a") || digits.eq_ignore_ascii_case("000d")
            });
            if breaks {
                return Some(start..at);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "x-anthropic-billing-header: cc_version=2.1.332.abc; cc_entrypoint=cli; cch=4f1c2;";

    fn edited(body: &str) -> Option<String> {
        let body = without_billing(&Bytes::copy_from_slice(body.as_bytes()))?;
        Some(String::from_utf8(body.to_vec()).unwrap())
    }

    /// Replaces the line in `form`, where `@` stands for it.
    fn check(form: &str) {
        let expected = form.replace('@', CONSTANT);
        assert_eq!(edited(&form.replace('@', LINE)).as_deref(), Some(&*expected), "{form}");
        assert_eq!(edited(&expected), None, "the constant stays");
    }

    #[test]
    fn the_line_is_replaced_wherever_a_system_text_is_and_every_other_byte_stays() {
        for form in [
            r#"{"system":"@"}"#,
            r#"{"system":"@\nYou are Claude Code.\n"}"#,
            r#" { "a" : 1.0e5 , "syst\u0065m" : [ { "type":"text" , "text" : "@" }, {"type":"text","text":"x"}]}"#,
            r#"{"system":[{"text":"@\r\nx","cache_control":{"type":"ephemeral"}}],"messages":[]}"#,
            r#"{"messages":[{"role":"system","content":"@\n\nYou are \"Claude\"."},{"role":"user","content":"\ud800"}]}"#,
            r#"{"messages":[ {"content":[{"text":"@","type":"text"}],"role":"syst\u0065m"}]}"#,
            r#"{"messages":[{"role":"developer","content":"first\n@\nlast"}],"system":null}"#,
            r#"{"system":"a\\\n@\u000aYou\u000D"}"#,
            r#"{"system":"x","system":"@"}"#,
        ] {
            check(form);
        }
        let odd = format!(r#"{{"system":"{LINE}\\n \"still\" it\/\u0041\nnot it"}}"#);
        assert_eq!(edited(&odd).unwrap(), format!(r#"{{"system":"{CONSTANT}\nnot it"}}"#));
    }

    #[test]
    fn two_requests_that_differ_in_the_line_only_become_the_same() {
        let one = r#"{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"}],"messages":[]}"#;
        assert_eq!(edited(one), edited(&one.replace("cch=1", "cch=22; more")));
    }

    #[test]
    fn the_same_words_elsewhere_are_left_alone() {
        for form in [
            r#"{"system":"say @"}"#,
            r#"{"system":" @"}"#,
            r#"{"system":"not a line\\n@"}"#,
            r#"{"system":[{"text":"x"},{"text":"@"}]}"#,
            r#"{"system":[[{"text":"@"}]]}"#,
            r#"{"system":{"text":"@"}}"#,
            r#"{"system":["@"]}"#,
            r#"{"messages":[{"role":"user","content":"@"}]}"#,
            r#"{"messages":[{"role":"user","content":"a"},{"role":"system","content":"@"}]}"#,
            r#"{"messages":[{"content":"@"}]}"#,
            r#"{"system":"x","prompt":"@"}"#,
            r#"{"a":{"system":"@"}}"#,
            r#"{"tools":[{"description":"@"}]}"#,
            r#"["@"]"#,
            r#"{"system":"@"#,
            r#"{"system":[]}@"#,
        ] {
            assert_eq!(edited(&form.replace('@', LINE)), None, "{form}");
        }
        assert_eq!(edited(""), None);
        assert_eq!(edited(r#"{"system":"x-anthropic-billing-headers: a"}"#), None);
    }

    proptest! {
        #[test]
        fn whatever_surrounds_the_line_stays(before in "([^\\x00]{0,9}\n)?", after in "(\n\\PC{0,9})?", rest in "\\PC{0,9}") {
            let text = |line: &str| format!("{before}{line}{after}");
            let body = |line: &str| serde_json::json!({"messages": [{"role": "user", "content": rest}],
                "system": [{"type": "text", "text": text(line)}, {"type": "text", "text": LINE}]}).to_string();
            prop_assert_eq!(edited(&body(LINE)), Some(body(CONSTANT)));
        }

        #[test]
        fn no_bytes_make_it_panic(tail in "[\\\\nru0\"\\[\\]{}:, ]{0,40}") {
            let _ = edited(&format!("{{\"system\":\"{tail}{LINE}{tail}\"}}"));
            let _ = edited(&format!("{{\"messages\":[{{\"role\":\"system\",\"content\":\"{LINE}{tail}"));
        }
    }
}
