//! Diagnostics: located problems with expected and found values. A pass collects all its problems.

use std::collections::BTreeMap;
use std::fmt;

/// Maximum number of shown problems with the same message. One wrong number of layers affects
/// hundreds of tensors.
const SHOWN: usize = 10;

/// One problem. Prints as `place: message: expected …, found …; help`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostic {
    /// Location: a file and field, `rank 2: %17 = matmul …`, or a tensor's name.
    pub place: String,
    /// Description of the problem, without values.
    pub message: String,
    /// The value that was expected.
    pub expected: Option<String>,
    /// The value that was found.
    pub found: Option<String>,
    /// Advice for the user.
    pub help: Option<String>,
}

#[doc(hidden)]
impl Diagnostic {
    /// Creates a problem at `place`.
    #[must_use]
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into(), ..Self::default() }
    }

    /// Sets the expected value.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display) -> Self {
        self.expected = Some(expected.to_string());
        self
    }

    /// Sets the found value.
    #[must_use]
    pub fn found(mut self, found: impl fmt::Display) -> Self {
        self.found = Some(found.to_string());
        self
    }

    /// Sets the advice for the user.
    #[must_use]
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.help = Some(help.to_string());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        match (&self.expected, &self.found) {
            (Some(expected), Some(found)) => write!(f, ": expected {expected}, found {found}")?,
            (Some(expected), None) => write!(f, ": expected {expected}")?,
            (None, Some(found)) => write!(f, ": found {found}")?,
            (None, None) => {}
        }
        if let Some(help) = &self.help {
            write!(f, "; {help}")?;
        }
        Ok(())
    }
}

/// All problems of a pass. Its error text is [`Self::lines`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Creates an empty list.
    #[must_use]
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one problem to the list.
    #[doc(hidden)]
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds the problems of another pass.
    #[doc(hidden)]
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Returns whether there are no problems.
    #[must_use]
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the problems in the order found.
    #[must_use]
    pub fn items(&self) -> &[Diagnostic] {
        &self.0
    }

    /// Returns the lines for the user, one per problem, in order. If more than eleven problems
    /// share a message, only the first ten are shown, with a count of the rest.
    #[must_use]
    #[doc(hidden)]
    pub fn lines(&self) -> Vec<String> {
        let mut kinds: BTreeMap<&str, Vec<&Diagnostic>> = BTreeMap::new();
        for problem in &self.0 {
            kinds.entry(&problem.message).or_default().push(problem);
        }
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let mut lines = Vec::new();
        for problem in &self.0 {
            let (count, kind) = (seen.entry(&problem.message).or_default(), &kinds[problem.message.as_str()]);
            // A single further problem is shown itself, not as a count.
            if *count < SHOWN || kind.len() == SHOWN + 1 {
                lines.push(problem.to_string());
            } else if *count == SHOWN {
                let (more, last) = (kind.len() - SHOWN, kind[kind.len() - 1]);
                lines.push(format!("{}: {more} more of these, the last at {}", problem.message, last.place));
            }
            *count += 1;
        }
        lines
    }

    /// Returns `value` if there are no problems.
    ///
    /// # Errors
    /// Returns the collected problems, if any.
    #[doc(hidden)]
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(count: usize) -> Diagnostics {
        Diagnostics(
            (0..count).map(|i| Diagnostic::new(format!("t{i}"), "missing tensor").expected(i)).collect(),
        )
    }

    #[test]
    fn a_kind_is_shown_ten_times_and_counted() {
        let mut many = problems(865);
        many.push(Diagnostic::new("config.json", "another"));
        let lines = many.lines();
        assert_eq!(lines.len(), 12);
        assert_eq!(lines[9], "t9: missing tensor: expected 9");
        assert_eq!(lines[10], "missing tensor: 855 more of these, the last at t864");
        assert_eq!(lines[11], "config.json: another");
        assert_eq!(many.to_string(), lines.join("\n"));
        assert_eq!(many.items().len(), 866, "a program gets all");
    }

    #[test]
    fn a_count_takes_no_line_that_a_problem_could_have() {
        for count in [0, 1, 10, 11] {
            assert_eq!(problems(count).lines().len(), count);
        }
        assert_eq!(problems(12).lines()[10], "missing tensor: 2 more of these, the last at t11");
    }
}
