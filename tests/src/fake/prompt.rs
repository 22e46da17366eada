//! From a request body to a prompt: which texts, said by whom, in which order.
use serde_json::Value;

use super::request::Route;
use super::tokens::{Token, tokenize};

/// A text and who says it.
type Said = (String, String);

/// The prompt of a body, as tokens and as text; or what is missing in it.
pub(super) fn render(route: Route, body: &Value) -> Result<(Vec<Token>, String), String> {
    let said = match route {
        Route::Completion | Route::OaiCompletion => vec![plain(body, "prompt")?],
        Route::Embedding => vec![plain(body, "input").or_else(|_| plain(body, "content"))?],
        Route::Chat => conversation(body, None, "messages")?,
        Route::Messages => conversation(body, Some("system"), "messages")?,
        Route::Responses => conversation(body, Some("instructions"), "input")?,
    };
    let tokens = said.iter().flat_map(|(role, text)| tokenize(role, text)).collect();
    let texts: Vec<&str> = said.iter().map(|(_, text)| text.as_str()).collect();
    Ok((tokens, texts.join("\n")))
}

fn plain(body: &Value, key: &str) -> Result<Said, String> {
    let value = body.get(key).ok_or_else(|| format!("\"{key}\" is required"))?;
    Ok((String::new(), text_of(value)))
}

/// Tools come first, then the system text, then the turns: what changes least comes first.
fn conversation(body: &Value, system: Option<&str>, turns: &str) -> Result<Vec<Said>, String> {
    let mut said = Vec::new();
    if let Some(tools) = body.get("tools") {
        said.push(("tools".to_owned(), tools.to_string()));
    }
    if let Some(system) = system.and_then(|key| body.get(key)) {
        said.push(("system".to_owned(), text_of(system)));
    }
    match body.get(turns) {
        Some(Value::String(text)) => said.push(("user".to_owned(), text.clone())),
        Some(Value::Array(items)) => said.extend(items.iter().map(turn)),
        _ => return Err(format!("\"{turns}\" is required")),
    }
    Ok(said)
}

fn turn(item: &Value) -> Said {
    let role = item.get("role").and_then(Value::as_str).unwrap_or("tool");
    let text = item.get("content").map_or_else(|| item.to_string(), text_of);
    (role.to_owned(), text)
}

/// A string, or the texts of content blocks, or whatever else there is as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        Value::Object(block) => match block.get("text").or_else(|| block.get("content")) {
            Some(inner) => text_of(inner),
            None => value.to_string(),
        },
        other => other.to_string(),
    }
}
