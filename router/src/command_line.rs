//! What the command line of a llama-server and its environment say: some of it is on no page of the server. Nothing of
//! them is ever logged, as there may be keys in them. Pure.

use std::borrow::Cow;
use std::fmt;

/// What the program is called, whatever the folder it is in.
const PROGRAM: &str = "llama-server";
/// `llama serve` is the same program.
const COMMAND: (&str, &str) = ("llama", "serve");
/// What llama-server keeps keys and values in if nothing else is said.
const USUAL_TYPE: &str = "f16";

/// The words of a llama-server's command line, and its variables.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandLine {
    words: Vec<String>,
    variables: Vec<(String, String)>,
}

/// Nothing of it: there may be keys in it.
impl fmt::Debug for CommandLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CommandLine").finish_non_exhaustive()
    }
}

impl CommandLine {
    /// `args` begin with the program's name. `None` if it is no llama-server.
    #[must_use]
    pub fn of(args: &[String], variables: Vec<(String, String)>) -> Option<Self> {
        let words = words_of_a_server(args)?.to_vec();
        Some(Self { words, variables })
    }

    /// Every word as llama-server's help spells options (to it, `--kv_unified` is the same), with the word behind it.
    pub(crate) fn options(&self) -> impl Iterator<Item = (Cow<'_, str>, Option<&str>)> {
        let behind = self.words.iter().skip(1).map(|word| Some(&**word)).chain([None]);
        self.words.iter().zip(behind).map(|(word, behind)| {
            let spelled =
                if word.starts_with("--") { word.replace('_', "-").into() } else { Cow::from(word) };
            (spelled, behind)
        })
    }

    /// A variable's value.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(other, _)| other == name).map(|(_, value)| &**value)
    }

    /// The types of the cache's keys and values, as `f16/q8_0`. States of other types are not to be restored.
    #[must_use]
    pub fn cache_types(&self) -> String {
        let said = |short, long, variable| {
            let options = self.options().filter(|(option, _)| option == short || option == long);
            let last = options.filter_map(|(_, value)| value).last();
            last.or(self.variable(variable)).unwrap_or(USUAL_TYPE).to_ascii_lowercase()
        };
        let keys = said("-ctk", "--cache-type-k", "LLAMA_ARG_CACHE_TYPE_K");
        format!("{keys}/{}", said("-ctv", "--cache-type-v", "LLAMA_ARG_CACHE_TYPE_V"))
    }
}

/// Whether it is the command line of a llama-server.
#[must_use]
pub fn is_server(args: &[String]) -> bool {
    words_of_a_server(args).is_some()
}

/// The words behind the program's name, if it is a llama-server.
fn words_of_a_server(args: &[String]) -> Option<&[String]> {
    let (program, words) = args.split_first()?;
    let name = program.rsplit(['/', '\\']).next()?;
    let name = name.strip_suffix(".exe").unwrap_or(name);
    match words.split_first() {
        _ if name == PROGRAM => Some(words),
        Some((command, words)) if (name, &**command) == COMMAND => Some(words),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A command line, and variables as `NAME=value` without what they all begin with.
    pub(crate) fn told(line: &str, variables: &str) -> Option<CommandLine> {
        let args: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let pairs = variables.split(' ').filter_map(|pair| pair.split_once('='));
        let variables = pairs.map(|(name, value)| (format!("LLAMA_ARG_{name}"), value.to_owned()));
        CommandLine::of(&args, variables.collect())
    }

    #[test]
    fn other_programs_tell_nothing() {
        for line in
            ["", "python server.py -np 4", "session-slot-router", "llama run -np 4", "llama", "llama-server2"]
        {
            assert_eq!(told(line, ""), None, "{line}");
        }
        assert_eq!(CommandLine::of(&[], Vec::new()), None);
    }

    #[test]
    fn the_types_of_keys_and_values_are_those_said_last() {
        let types = |line: &str, variables| told(line, variables).expect("a llama-server").cache_types();
        assert_eq!(types("llama-server -m x.gguf", ""), "f16/f16");
        assert_eq!(types("llama-server -ctk q8_0 -ctk bf16 --cache_type_v Q4_0", ""), "bf16/q4_0");
        assert_eq!(types("llama serve -ctv f32", "CACHE_TYPE_K=bf16 CACHE_TYPE_V=q8_0"), "bf16/f32");
        assert_eq!(types("llama-server -ctk", ""), "f16/f16", "a word is missing");
    }

    #[test]
    fn nothing_of_it_gets_into_a_log() {
        let line = told("llama-server --api-key hunter2", "API_KEY=hunter2").expect("a llama-server");
        assert!(!format!("{line:?}").contains("hunter2"));
    }
}
