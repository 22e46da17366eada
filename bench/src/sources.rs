//! Real source text for the prompts: agents mostly send files, and files repeat and tokenise unlike random words.

use std::path::{Path, PathBuf};

use crate::rng::Rng;

/// Source code averages about this many bytes per token with Gemma's vocabulary; sizes are approximate anyway.
const BYTES_PER_TOKEN: usize = 3;

/// Used where the project's sources aren't at hand, such as a copied binary.
const EMBEDDED: [(&str, &str); 3] = [
    ("conversation.rs", include_str!("conversation.rs")),
    ("answer.rs", include_str!("answer.rs")),
    ("rng.rs", include_str!("rng.rs")),
];

/// All the text prompts are cut from.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Lines of all files, each file begun by a line with its name.
    lines: Vec<String>,
}

impl Sources {
    /// The router's own.
    pub fn of_the_router() -> Self {
        Self::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../router/src"))
    }

    /// Reads every Rust file under `folder`; the embedded text when there is none.
    pub fn load(folder: &Path) -> Self {
        let mut paths = Vec::new();
        collect(folder, &mut paths);
        // A folder is listed in any order; the same seed must still cut the same chunks.
        paths.sort();
        let files = paths.iter().filter_map(|path| {
            let name = path.strip_prefix(folder).unwrap_or(path);
            Some((name.display().to_string(), std::fs::read_to_string(path).ok()?))
        });
        let loaded = Self::from_files(files);
        // A skeleton of a project has too little to tell sessions apart.
        if loaded.bytes() > 20_000 { loaded } else { Self::embedded() }
    }

    /// The text that is part of this binary.
    pub fn embedded() -> Self {
        Self::from_files(EMBEDDED.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
    }

    fn from_files(files: impl Iterator<Item = (String, String)>) -> Self {
        let mut lines = Vec::new();
        for (name, text) in files {
            lines.push(format!("// file: {name}"));
            lines.extend(text.lines().map(str::to_owned));
        }
        Self { lines }
    }

    fn bytes(&self) -> usize {
        self.lines.iter().map(|line| line.len() + 1).sum()
    }

    /// About `tokens` tokens of consecutive lines from a place the generator chooses, going on at the start after
    /// the end.
    pub fn chunk(&self, rng: &mut Rng, tokens: usize) -> String {
        let start = rng.below(self.lines.len());
        let mut text = String::new();
        for line in self.lines.iter().cycle().skip(start) {
            text.push_str(line);
            text.push('\n');
            if text.len() >= tokens * BYTES_PER_TOKEN {
                break;
            }
        }
        text
    }
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_folder_falls_back_to_the_embedded_text() {
        let sources = Sources::load(Path::new("/nowhere/at/all"));
        let chunk = sources.chunk(&mut Rng::new(1, 1), 1000);
        assert!(chunk.len() >= 3000 && chunk.len() < 3300, "{}", chunk.len());
    }

    #[test]
    fn a_seed_chooses_the_place() {
        let sources = Sources::embedded();
        let cut = |seed| sources.chunk(&mut Rng::new(seed, 0), 100);
        assert_eq!(cut(1), cut(1));
        assert_ne!(cut(1), cut(2));
    }
}
