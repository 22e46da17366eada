//! The toy tokenizer: one token per word, so that a test can count tokens by counting words.
use std::hash::{DefaultHasher, Hash, Hasher};

/// One token. Equal for equal words said by the same role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token(pub(super) u64);

/// The tokens of `text`. The role is part of each token instead of being a marker of its own, so
/// that two prompts that differ in their first word share nothing at all.
pub(super) fn tokenize<'a>(role: &'a str, text: &'a str) -> impl Iterator<Item = Token> + 'a {
    text.split_whitespace().map(move |word| token(role, word))
}

/// The token of one word.
pub(super) fn token(role: &str, word: &str) -> Token {
    // `DefaultHasher::new` has fixed keys: the same word is the same token in every run.
    let mut hasher = DefaultHasher::new();
    role.hash(&mut hasher);
    word.hash(&mut hasher);
    Token(hasher.finish())
}

/// How many tokens the two have in common at their beginning.
pub(super) fn common_prefix(one: &[Token], other: &[Token]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// The word the fake says as its `index`th output token.
pub(super) fn output_word(index: usize) -> String {
    format!("out{index}")
}
