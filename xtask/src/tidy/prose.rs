//! Measures the prose of comments and documents: headless phrases per 1,000 words.
//!
//! - Input: the project's Rust and Markdown files.
//! - Output: violations of the limits of [`LIMITS`].
//! - Invariants: text in backticks, code blocks and tables does not count. A limit may only fall.
//! - Not here: the style of single sentences, which CONTRIBUTING.md describes.

use crate::project::source::{Source, words};

/// The highest rate of each crate's folder. The last row covers all other files.
pub(super) const LIMITS: [(&str, f64); 8] = [
    ("cli/", 1.0),
    ("planner/", 1.5),
    ("machine/", 1.0),
    ("emulator/", 1.5),
    ("sys/", 3.5),
    ("tests/", 1.0),
    ("xtask/", 1.5),
    ("", 1.5),
];

/// Margin below a limit. Beyond this margin the limit must be lowered.
const MARGIN: f64 = 1.0;

/// Phrases that refer to a thing instead of naming it. Each word after a colon follows the head.
const PHRASES: [&str; 15] = [
    "what: a is are the it that they was each all other has goes comes lies does this an follows stands",
    "those: that of there which",
    "who: is wants has",
    "as it: is are stands lies come",
    "as they: is are stands lies come",
    "that of",
    "of which",
    "in which",
    "by which",
    "the others",
    "all of: it them",
    "of: it them its",
    "one behind the other",
    "whoever",
    "whose",
];

/// Words and headless phrases of some text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Prose {
    words: usize,
    phrases: usize,
}

impl Prose {
    /// Measures the comments of a Rust file, or the text of a Markdown file.
    fn of(source: &Source) -> Self {
        let mut prose = Self::default();
        for block in blocks(source) {
            prose.words += block.split(' ').filter(|word| !word.is_empty()).count();
            prose.phrases += phrases().map(|phrase| words(&block, &phrase).count()).sum::<usize>();
        }
        prose
    }

    fn add(&mut self, other: Self) {
        self.words += other.words;
        self.phrases += other.phrases;
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with one decimal")]
    fn rate(self) -> f64 {
        1000.0 * self.phrases as f64 / self.words.max(1) as f64
    }
}

/// Returns a violation for each folder with a rate above the limit, or far below it.
pub(super) fn violations(sources: &[Source], limits: &[(&str, f64)]) -> Vec<String> {
    let mut total = vec![Prose::default(); limits.len()];
    for source in sources.iter().filter(|source| source.path.ends_with(".rs") || source.path.ends_with(".md"))
    {
        if let Some(row) = limits.iter().position(|(folder, _)| source.path.starts_with(folder)) {
            total[row].add(Prose::of(source));
        }
    }
    let mut violations = Vec::new();
    for ((folder, limit), prose) in limits.iter().zip(total) {
        let rate = prose.rate();
        let folder = if folder.is_empty() { "all other files" } else { folder };
        let measure = format!("{folder}: headless phrases per 1,000 words");
        if rate > *limit {
            let help = "name the thing (CONTRIBUTING.md, Writing)";
            violations.push(format!("{measure}: expected at most {limit}, found {rate:.1}; {help}"));
        } else if rate + MARGIN < *limit {
            let help = "lower its limit in xtask/src/tidy/prose.rs";
            violations.push(format!("{measure}: found {rate:.1}, the limit is {limit}; {help}"));
        }
    }
    violations
}

fn phrases() -> impl Iterator<Item = String> {
    PHRASES.iter().flat_map(|row| match row.split_once(": ") {
        Some((head, tails)) => tails.split(' ').map(|tail| format!("{head} {tail}")).collect::<Vec<_>>(),
        None => vec![(*row).to_owned()],
    })
}

/// Contiguous comments or paragraphs, in lower case, with single spaces.
fn blocks(source: &Source) -> Vec<String> {
    let is_rust = source.path.ends_with(".rs");
    let (mut blocks, mut text, mut is_code) = (Vec::new(), String::new(), false);
    for line in source.text.lines().chain([""]) {
        let line = line.trim_start();
        let comment = || line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']));
        let prose = if is_rust { comment() } else { Some(line) };
        match prose.map(str::trim).filter(|prose| !prose.is_empty()) {
            Some(prose) if prose.starts_with("```") => is_code = !is_code,
            Some(prose) if is_code || prose.starts_with('|') => {}
            Some(prose) => {
                text.push_str(prose);
                text.push(' ');
            }
            None => blocks.push(plain(&std::mem::take(&mut text))),
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// Lower-case words without code, separated by single spaces.
fn plain(text: &str) -> String {
    let prose = text.split('`').step_by(2).collect::<Vec<_>>().join("x");
    let kept = prose.to_lowercase().replace(|c: char| !c.is_alphabetic() && c != '\'', " ");
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prose(path: &str, text: &str) -> Prose {
        Prose::of(&Source::new(path, text))
    }

    #[test]
    fn phrases_are_counted_across_lines() {
        let text = "//! A header.\n/// What\n/// is left of it.\nstruct A; // trailing\n";
        assert_eq!(prose("src/a.rs", text), Prose { words: 7, phrases: 2 });
    }

    #[test]
    fn code_and_tables_do_not_count() {
        let text = "Text `of it` here.\n\n| what is | this |\n\n```\nwhat is this\n```\n";
        assert_eq!(prose("docs/a.md", text), Prose { words: 3, phrases: 0 });
    }

    #[test]
    fn a_rate_above_or_far_below_its_limit_is_a_violation() {
        let sources = [Source::new("cli/a.md", "what is it\n"), Source::new("docs/a.md", "a plain text\n")];
        let found = violations(&sources, &[("cli/", 1000.0), ("", 0.5)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("found 333.3, the limit is 1000; lower"), "{found:?}");
        let found = violations(&sources, &[("cli/", 3.0), ("", 0.5)]);
        assert!(found[0].contains("expected at most 3, found 333.3"), "{found:?}");
    }
}
