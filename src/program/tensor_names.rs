//! Names of checkpoint tensors, as a pattern with braces.
//!
//! `experts.{0..128}.{gate,up}.weight` means 256 tensors. `{0..128}` means the numbers from 0 to
//! 127: the end is exclusive. `{gate,up}` means these two texts. A name without braces is one
//! tensor.
//!
//! Input: the text of a pattern. Output: the names by index, in row-major order: the last brace
//! changes fastest.
//!
//! Invariants: the names of a pattern are distinct, and the text of a pattern is never changed.
//!
//! Not here: shapes and files.

use std::ops::Range;

/// Largest number of names of a pattern. Larger numbers are typing errors.
const MOST_NAMES: usize = 1 << 20;

/// The names of one or more checkpoint tensors.
///
/// ```
/// use ascend_tp::program::TensorNames;
///
/// let names = TensorNames::parse("experts.{6..8}.{gate,up}.weight").unwrap();
/// let names: Vec<String> = names.iter().collect();
/// assert_eq!(names[1..3], ["experts.6.up.weight", "experts.7.gate.weight"]);
/// assert_eq!(names.len(), 4);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorNames {
    parts: Vec<NamePart>,
    count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NamePart {
    Text(String),
    /// Consecutive numbers, with an exclusive end.
    Numbers(Range<usize>),
    Texts(Vec<String>),
}

impl NamePart {
    fn brace(inner: &str) -> Result<Self, String> {
        if let Some((start, end)) = inner.split_once("..") {
            let number = |text: &str| text.parse::<usize>().ok().filter(|number| number.to_string() == text);
            return match (number(start), number(end)) {
                (Some(start), Some(end)) if start < end => Ok(Self::Numbers(start..end)),
                _ => Err(format!("`{{{inner}}}` is not a range such as `{{0..8}}`, with an exclusive end")),
            };
        }
        let texts: Vec<String> = inner.split(',').map(str::to_owned).collect();
        for (at, text) in texts.iter().enumerate() {
            if text.is_empty() || text.contains('.') {
                return Err(format!("`{{{inner}}}` is not a list of texts without `.`, such as `{{a,b}}`"));
            }
            if texts[..at].contains(text) {
                return Err(format!("`{{{inner}}}` has `{text}` twice"));
            }
        }
        Ok(Self::Texts(texts))
    }

    fn count(&self) -> usize {
        match self {
            Self::Text(_) => 1,
            Self::Numbers(numbers) => numbers.len(),
            Self::Texts(texts) => texts.len(),
        }
    }
}

impl TensorNames {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A sentence that describes the first problem:
    /// - A brace has no partner, or contains another brace.
    /// - A brace is neither a range of numbers nor a list of distinct texts without `.`.
    /// - Two braces have no `.` between them, so that two names could be equal.
    /// - The pattern has a quotation mark, or more than a million names.
    pub fn parse(pattern: &str) -> Result<Self, String> {
        if pattern.contains('"') {
            return Err(format!("`{pattern}` has a quotation mark, which the text form cannot contain"));
        }
        let (mut parts, mut count, mut rest) = (Vec::new(), 1_usize, pattern);
        let unpaired = |brace: char| format!("`{pattern}` has a `{brace}` without its partner");
        while let Some((text, tail)) = rest.split_once('{') {
            if text.contains('}') {
                return Err(unpaired('}'));
            }
            if !parts.is_empty() && !text.contains('.') {
                return Err(format!("`{pattern}` has two braces without a `.` between them"));
            }
            let (inner, after) = tail.split_once('}').ok_or_else(|| unpaired('{'))?;
            if inner.contains('{') {
                return Err(format!("`{pattern}` has a brace within a brace"));
            }
            let brace = NamePart::brace(inner)?;
            count = count.saturating_mul(brace.count());
            parts.push(NamePart::Text(text.to_owned()));
            parts.push(brace);
            rest = after;
        }
        if rest.contains('}') {
            return Err(unpaired('}'));
        }
        if count > MOST_NAMES {
            return Err(format!("`{pattern}` has more than {MOST_NAMES} names"));
        }
        parts.push(NamePart::Text(rest.to_owned()));
        Ok(Self { parts, count })
    }

    /// Returns the number of names, at least 1.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns all names in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = String> + '_ {
        (0..self.count).map(|index| self.name(index))
    }

    /// Returns the name with this index, modulo the number of names.
    fn name(&self, index: usize) -> String {
        let (mut rest, mut texts) = (index, Vec::with_capacity(self.parts.len()));
        for part in self.parts.iter().rev() {
            let (at, count) = (rest % part.count(), part.count());
            rest /= count;
            texts.push(match part {
                NamePart::Text(text) => text.clone(),
                NamePart::Numbers(numbers) => (numbers.start + at).to_string(),
                NamePart::Texts(texts) => texts[at].clone(),
            });
        }
        texts.into_iter().rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(pattern: &str) -> Vec<String> {
        TensorNames::parse(pattern).unwrap().iter().collect()
    }

    #[test]
    fn the_last_brace_changes_fastest_and_ends_are_exclusive() {
        assert_eq!(names("lm_head.weight"), ["lm_head.weight"]);
        assert_eq!(names(""), [""]);
        assert_eq!(names("e.{8..11}"), ["e.8", "e.9", "e.10"]);
        assert_eq!(
            names("l.3.{0..2}.{w1,w3,x}.weight"),
            [
                "l.3.0.w1.weight",
                "l.3.0.w3.weight",
                "l.3.0.x.weight",
                "l.3.1.w1.weight",
                "l.3.1.w3.weight",
                "l.3.1.x.weight",
            ]
        );
        assert_eq!(names("{a}.b{c}"), ["a.bc"]);
        let large = TensorNames::parse("m.{0..1024}.{0..512}.x.{a,b}").unwrap();
        assert_eq!(large.count(), 1 << 20);
        assert_eq!(large.iter().len(), 1 << 20);
        assert_eq!(large.iter().last().unwrap(), "m.1023.511.x.b");
    }

    #[test]
    fn every_problem_is_a_sentence() {
        for (pattern, problem) in [
            ("a{", "`a{` has a `{` without its partner"),
            ("a}", "`a}` has a `}` without its partner"),
            ("a}.{b}", "`a}.{b}` has a `}` without its partner"),
            ("{a}.b}", "`{a}.b}` has a `}` without its partner"),
            ("{a{b}}", "`{a{b}}` has a brace within a brace"),
            ("{0..9}{0..9}", "`{0..9}{0..9}` has two braces without a `.` between them"),
            ("x.{}", "`{}` is not a list of texts without `.`, such as `{a,b}`"),
            ("x.{a,}", "`{a,}` is not a list of texts without `.`, such as `{a,b}`"),
            ("x.{a,b.c}", "`{a,b.c}` is not a list of texts without `.`, such as `{a,b}`"),
            ("x.{a,b,a}", "`{a,b,a}` has `a` twice"),
            ("{4..4}", "`{4..4}` is not a range such as `{0..8}`, with an exclusive end"),
            ("{5..4}", "`{5..4}` is not a range such as `{0..8}`, with an exclusive end"),
            ("{0..08}", "`{0..08}` is not a range such as `{0..8}`, with an exclusive end"),
            ("{0..+8}", "`{0..+8}` is not a range such as `{0..8}`, with an exclusive end"),
            ("{..8}", "`{..8}` is not a range such as `{0..8}`, with an exclusive end"),
            ("{0..3,5}", "`{0..3,5}` is not a range such as `{0..8}`, with an exclusive end"),
            ("\"", "`\"` has a quotation mark, which the text form cannot contain"),
            ("{0..1048577}", "`{0..1048577}` has more than 1048576 names"),
            (
                "{0..4294967296}.{0..4294967296}",
                "`{0..4294967296}.{0..4294967296}` has more than 1048576 names",
            ),
        ] {
            assert_eq!(TensorNames::parse(pattern), Err(problem.to_owned()));
        }
    }

    #[test]
    fn names_are_distinct() {
        for pattern in ["{1,11}.{1,11}", "{0..12}.{0..12}", "a{1,2}b.{12,2}c", "{x,xy}y.{z,yz}"] {
            let (mut names, count) = (names(pattern), TensorNames::parse(pattern).unwrap().count());
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{pattern}");
        }
    }
}
