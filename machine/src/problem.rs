//! Errors in a text.

use std::fmt;

/// One error. Prints as `place: what: expected …, found …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// A file and a field, or a line.
    pub place: String,
    /// Description of the error.
    pub what: String,
    /// The value that was expected.
    pub expected: String,
    /// The value that was found.
    pub found: String,
}

impl Problem {
    /// Creates an error at `place`.
    #[must_use]
    pub fn new(
        place: impl Into<String>,
        what: impl Into<String>,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: expected {}, found {}", self.place, self.what, self.expected, self.found)
    }
}

/// The errors of a text; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Returns `Ok` without errors.
    ///
    /// # Errors
    /// The list is not empty.
    pub fn none_or(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self(problems)) }
    }

    /// Converts a TOML parse error.
    #[must_use]
    pub fn of_toml(place: &str, text: &str, error: &toml::de::Error) -> Self {
        let start = error.span().map_or(0, |span| span.start).min(text.len());
        let line = 1 + text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count();
        let found = text.lines().nth(line - 1).unwrap_or_default().trim();
        let found = if found.is_empty() { "an empty line".to_owned() } else { format!("`{found}`") };
        Self(vec![Problem::new(
            format!("{place}: line {line}"),
            "not the TOML of this file",
            error.message(),
            found,
        )])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
