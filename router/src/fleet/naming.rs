//! How models are called: the names in requests and in the list that `/v1/models` answers.
//!
//! With `names = "host"` a model is called `<server>-<model>`; a copy on another server is another model then.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use session_slot_identity::members::{self, Fate, Layout};

use super::ServerId;

/// How many names an error names.
const KNOWN_MAX: usize = 20;
/// The parameter of a query that names a model.
const PARAMETER: &str = "model";
/// What a value in a query has to escape; RFC 3986's unreserved characters are not.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The longest name among an entry's members that matter.
const MEMBER_MAX_BYTES: usize = "aliases".len();

/// The servers' names in front of models' names.
#[derive(Debug)]
pub struct Hosts {
    /// The longest first: of `gpu` and `gpu-2` the latter is meant by `gpu-2-m`.
    servers: Vec<(Arc<str>, ServerId)>,
}

impl Hosts {
    /// `names` are those of the servers, in the order of their [`ServerId`]s.
    pub fn new(names: impl IntoIterator<Item = Arc<str>>) -> Self {
        let mut servers: Vec<_> = names.into_iter().zip((0..).map(ServerId)).collect();
        servers.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        Self { servers }
    }

    /// The servers that `name` begins with, the longest first, and what each calls the model.
    pub fn split<'n>(&self, name: &'n str) -> impl Iterator<Item = (ServerId, &'n str)> {
        let of =
            |server: &str| name.strip_prefix(server)?.strip_prefix('-').filter(|model| !model.is_empty());
        self.servers.iter().filter_map(move |(server, id)| Some((*id, of(server)?)))
    }
}

/// What a model is called that `server` calls `model`.
#[must_use]
pub fn hosted(server: &str, model: &str) -> String {
    format!("{server}-{model}")
}

/// Names for an error, sorted: `a, b and 7 more`.
#[must_use]
pub fn known(mut names: Vec<String>) -> String {
    names.sort();
    names.dedup();
    let more = names.len().saturating_sub(KNOWN_MAX);
    names.truncate(KNOWN_MAX);
    let named = names.join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// The model that a query (what follows the `?`) names: the first, as for llama-server.
#[must_use]
pub fn of_query(query: &str) -> Option<String> {
    let value = query.split('&').find_map(value_of_model)?;
    let value = value.replace('+', " ");
    let model = percent_decode_str(&value).decode_utf8().ok()?;
    if model.is_empty() { None } else { Some(model.into_owned()) }
}

/// The query with every model in it replaced; the rest is kept byte for byte.
#[must_use]
pub fn with_model(query: &str, model: &str) -> String {
    let edited = query.split('&').map(|pair| match value_of_model(pair) {
        Some(value) => {
            let name = &pair[..pair.len() - value.len()];
            Cow::Owned(format!("{name}{}", utf8_percent_encode(model, ESCAPED)))
        }
        None => Cow::Borrowed(pair),
    });
    edited.collect::<Vec<_>>().join("&")
}

/// What stands behind the `=`, if the pair names a model.
fn value_of_model(pair: &str) -> Option<&str> {
    let (name, value) = pair.split_once('=')?;
    let is_model = percent_decode_str(name).eq(PARAMETER.bytes());
    is_model.then_some(value)
}

/// The names of the models in a server's answer to `/v1/models`, each under all its names. `None` if it is none.
#[must_use]
pub fn listed(page: &[u8]) -> Option<Vec<String>> {
    let page: Page<'_> = serde_json::from_slice(page).ok()?;
    let mut seen = HashSet::new();
    let names = page.data.iter().filter_map(|entry| Entry::of(entry)).flat_map(Entry::names);
    Some(names.filter(|name| seen.insert(name.clone())).collect())
}

/// What is known of one server's models.
#[derive(Debug, Clone, Copy)]
pub struct Listing<'a> {
    /// Its name, if it is to stand in front of its models' names.
    pub host: Option<&'a str>,
    /// Its answer to `/v1/models`, if it gave one.
    pub page: Option<&'a [u8]>,
    /// The names it serves, where the configuration lists them, or from when it last answered.
    pub only: Option<&'a [String]>,
}

/// One answer to `/v1/models` for all servers: their own entries as they are (but for names that get the server's in
/// front), each id once. Names without an entry get a short one.
#[must_use]
pub fn union(servers: &[Listing<'_>]) -> String {
    let mut answer = Answer { models: None, object: "list", data: Vec::new() };
    let (mut ids, mut models) = (HashSet::new(), HashSet::new());
    for server in servers {
        let page = server.page.and_then(|page| serde_json::from_slice::<Page<'_>>(page).ok());
        let page = page.unwrap_or_default();
        let own = server.wanted(&page);
        answer.data.extend(server.entries(&own, &mut ids));
        if let Some(tags) = &page.models {
            answer.models.get_or_insert_default().extend(server.tags(tags, &own, &mut models));
        }
    }
    serde_json::to_string(&answer).unwrap_or_default()
}

impl Listing<'_> {
    /// Its entries, but for those that a list in the configuration leaves out.
    fn wanted<'p>(&self, page: &Page<'p>) -> Vec<(&'p RawValue, Entry)> {
        let own = page.data.iter().filter_map(|raw| Some((*raw, Entry::of(raw)?)));
        own.filter(|(_, entry)| entry.any_name(|name| self.wants(name))).collect()
    }

    /// Its `own` entries, and those that are missing, but for what was `seen`.
    fn entries(&self, own: &[(&RawValue, Entry)], seen: &mut HashSet<String>) -> Vec<Box<RawValue>> {
        let missing = self.only.unwrap_or_default().iter();
        let missing =
            missing.filter(|name| !own.iter().any(|(_, entry)| entry.any_name(|known| known == *name)));
        let short = missing.map(|name| (self.named(name), short_entry(&self.named(name))));
        let own = own.iter().map(|(raw, entry)| (self.named(&entry.id), self.renamed(raw)));
        own.chain(short).filter(|(id, _)| seen.insert(id.clone())).filter_map(|(_, raw)| raw).collect()
    }

    /// The same for `models`, a list that llama-server adds for clients of Ollama.
    fn tags(
        &self,
        tags: &[&RawValue],
        own: &[(&RawValue, Entry)],
        seen: &mut HashSet<String>,
    ) -> Vec<Box<RawValue>> {
        let tags = tags.iter().filter_map(|raw| Some((*raw, serde_json::from_str::<Tag>(raw.get()).ok()?)));
        let tags =
            tags.filter(|(_, tag)| own.iter().any(|(_, entry)| entry.any_name(|name| name == tag.model)));
        tags.filter(|(_, tag)| seen.insert(self.named(&tag.model)))
            .filter_map(|(raw, _)| self.renamed(raw))
            .collect()
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_none_or(|only| only.iter().any(|wanted| wanted == name))
    }

    fn named(&self, model: &str) -> String {
        self.host.map_or_else(|| model.to_owned(), |host| hosted(host, model))
    }

    /// An entry with the server's name in front of all its names; every other byte is kept.
    fn renamed(&self, raw: &RawValue) -> Option<Box<RawValue>> {
        if self.host.is_none() {
            return Some(raw.to_owned());
        }
        let mut texts = Vec::new();
        let layout = Layout::of(raw.get().as_bytes(), |name, value| {
            let name = members::name(name, MEMBER_MAX_BYTES)?;
            let matters = matches!(&*name, "id" | "aliases" | "name" | "model");
            texts.push(self.renamed_value(value).filter(|_| matters)?);
            Some(texts.len() - 1)
        })?;
        let edited = layout.edited(raw.get().as_bytes(), |index| Fate::Set(&texts[index]), &[]);
        RawValue::from_string(String::from_utf8(edited).ok()?).ok()
    }

    /// A name, or each name of a list.
    fn renamed_value(&self, raw: &str) -> Option<String> {
        match serde_json::from_str(raw).ok()? {
            Value::String(name) => Some(Value::from(self.named(&name)).to_string()),
            Value::Array(names) => {
                let names = names.iter().filter_map(Value::as_str).map(|name| self.named(name));
                Some(Value::from_iter(names).to_string())
            }
            _ => None,
        }
    }
}

fn short_entry(id: &str) -> Option<Box<RawValue>> {
    let entry = serde_json::json!({ "id": id, "object": "model", "owned_by": "llamacpp" });
    RawValue::from_string(entry.to_string()).ok()
}

/// A server's answer to `/v1/models`.
#[derive(Default, Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
    #[serde(borrow)]
    models: Option<Vec<&'a RawValue>>,
}

/// One of `data`.
#[derive(Deserialize)]
struct Entry {
    id: String,
    #[serde(default)]
    aliases: Value,
}

/// One of `models`.
#[derive(Deserialize)]
struct Tag {
    model: String,
}

#[derive(Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Vec<Box<RawValue>>>,
    object: &'static str,
    data: Vec<Box<RawValue>>,
}

impl Entry {
    /// What is no entry is nothing that could be asked for.
    fn of(raw: &RawValue) -> Option<Self> {
        let entry: Self = serde_json::from_str(raw.get()).ok()?;
        if entry.id.is_empty() { None } else { Some(entry) }
    }

    fn aliases(&self) -> impl Iterator<Item = &str> {
        self.aliases.as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    fn any_name(&self, is: impl Fn(&str) -> bool) -> bool {
        is(&self.id) || self.aliases().any(is)
    }

    fn names(self) -> Vec<String> {
        std::iter::once(&*self.id).chain(self.aliases()).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As llama.cpp b11549 answers, with fewer members.
    const REAL: &str = r#"{"models":[{"name":"m.gguf","model":"m.gguf","details":{"model":"x"}}],"object":"list","data":[{"id":"m.gguf","aliases":["m.gguf","small"],"tags":[],"object":"model","created":1796020591,"meta":{"n_params":268098176}}]}"#;
    const OTHER: &str = r#"{"data":[ {"id":"m.gguf","created":2} , {"id":"big" ,"size":1.50} ]}"#;

    fn listing<'a>(host: Option<&'a str>, page: &'a str, only: Option<&'a [String]>) -> Listing<'a> {
        Listing { host, page: Some(page.as_bytes()), only }
    }

    #[test]
    fn the_longest_name_of_a_server_is_taken_off() {
        let hosts = Hosts::new(["gpu", "gpu-2", "b"].map(Arc::from));
        let first = |name| hosts.split(name).next();
        assert_eq!(first("gpu-2-m-7b"), Some((ServerId(1), "m-7b")));
        assert_eq!(first("gpu-m-7b"), Some((ServerId(0), "m-7b")));
        assert_eq!(first("b-b-b"), Some((ServerId(2), "b-b")));
        for unknown in ["m", "gpu", "gpu-", "B-m", "gpu2-m", ""] {
            assert_eq!(first(unknown), None, "{unknown}");
        }
        assert_eq!(first(&hosted("gpu", "2-m")), Some((ServerId(1), "m")), "as documented");
        let all: Vec<_> = hosts.split("gpu-2-m").collect();
        assert_eq!(all, [(ServerId(1), "m"), (ServerId(0), "2-m")]);
    }

    #[test]
    fn known_names_are_sorted_and_not_without_end() {
        let names = |count: usize| (0..count).rev().map(|index| format!("m{index:02}")).collect::<Vec<_>>();
        assert_eq!(known(vec!["b".to_owned(), "a".to_owned(), "b".to_owned()]), "a, b");
        assert!(known(names(20)).ends_with(", m19"));
        assert!(known(names(27)).ends_with(", m19 and 7 more"));
        assert_eq!(known(Vec::new()), "");
    }

    #[test]
    fn a_query_names_a_model_however_it_is_spelled() {
        for (query, model) in [
            ("model=a", Some("a")),
            ("x=1&mod%65l=a%2Fb+c&model=d", Some("a/b c")),
            ("model=%C3%A9", Some("\u{e9}")),
            ("model=", None),
            ("model", None),
            ("models=a&xmodel=b", None),
            ("model=%ff", None),
            ("", None),
        ] {
            assert_eq!(of_query(query).as_deref(), model, "{query}");
        }
    }

    #[test]
    fn a_model_in_a_query_is_replaced_and_the_rest_stays() {
        assert_eq!(
            with_model("a=%zz&mod%65l=gpu-m&&b&model=gpu-m", "m/1 \u{e9}&"),
            "a=%zz&mod%65l=m%2F1%20%C3%A9%26&&b&model=m%2F1%20%C3%A9%26"
        );
        assert_eq!(with_model("a=b+c&models=x", "m"), "a=b+c&models=x");
        assert_eq!(of_query(&with_model("model=x", "a b+c%/")).as_deref(), Some("a b+c%/"));
    }

    #[test]
    fn a_model_is_listed_under_all_its_names_once() {
        assert_eq!(listed(REAL.as_bytes()), Some(vec!["m.gguf".to_owned(), "small".to_owned()]));
        assert_eq!(listed(OTHER.as_bytes()), Some(vec!["m.gguf".to_owned(), "big".to_owned()]));
        let odd =
            r#"{"data":[1,{},{"id":""},{"id":7},{"id":"a","aliases":null},{"id":"b","aliases":[1,"c"]}]}"#;
        assert_eq!(listed(odd.as_bytes()), Some(["a", "b", "c"].map(str::to_owned).to_vec()));
        for none in ["", "[]", "{}", r#"{"data":{}}"#, r#"{"error":{"code":503}}"#] {
            assert_eq!(listed(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn one_servers_list_is_what_it_answered_itself() {
        assert_eq!(union(&[listing(None, REAL, None)]), REAL);
    }

    #[test]
    fn the_first_server_with_a_model_describes_it() {
        let answer = union(&[listing(None, REAL, None), listing(None, OTHER, None)]);
        assert_eq!(answer, REAL.replace("}]}", r#"},{"id":"big" ,"size":1.50}]}"#));
    }

    #[test]
    fn with_the_servers_names_in_front_each_copy_is_another_model() {
        let answer = union(&[listing(Some("a"), REAL, None), listing(Some("b"), OTHER, None)]);
        let wanted = REAL.replace(r#""m.gguf""#, r#""a-m.gguf""#).replace(r#""small""#, r#""a-small""#);
        let more = r#"},{"id":"b-m.gguf","created":2},{"id":"b-big" ,"size":1.50}]}"#;
        assert_eq!(answer, wanted.replace("}]}", more));
    }

    #[test]
    fn a_list_in_the_configuration_leaves_out_what_it_does_not_name_and_adds_what_is_missing() {
        let only = ["small", "big"].map(str::to_owned);
        let answer = union(&[listing(None, REAL, Some(&only))]);
        let more = r#"},{"id":"big","object":"model","owned_by":"llamacpp"}]}"#;
        assert_eq!(answer, REAL.replace("}]}", more));
        let answer = union(&[listing(None, REAL, Some(&only[1..]))]);
        assert!(!answer.contains("m.gguf") && answer.contains(r#""big""#), "{answer}");
        let away = Listing { host: Some("a"), page: None, only: Some(&only[1..]) };
        assert_eq!(
            union(&[away]),
            r#"{"object":"list","data":[{"id":"a-big","object":"model","owned_by":"llamacpp"}]}"#
        );
    }

    #[test]
    fn no_servers_or_nonsense_make_an_empty_list() {
        let empty = r#"{"object":"list","data":[]}"#;
        assert_eq!(union(&[]), empty);
        assert_eq!(union(&[listing(Some("a"), "nonsense", None)]), empty);
    }
}
