//! Located problems: each says where, what, expected, found and what to do; a pass collects all of its own.

use std::fmt;

/// One problem, with its place, what was expected and found, and what to do.
///
/// Prints as `place: message: expected …, found …; help`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where: a file and field, `rank 2: %17 = matmul …`, a tensor's name.
    pub place: String,
    /// What is wrong, without the values.
    pub message: String,
    /// What would have been right.
    pub expected: Option<String>,
    /// What is there instead.
    pub found: Option<String>,
    /// What the user can do.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A problem at `place`.
    #[must_use]
    pub fn new(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into(), ..Self::default() }
    }

    /// Adds what would have been right.
    #[must_use]
    pub fn expected(mut self, expected: impl fmt::Display) -> Self {
        self.expected = Some(expected.to_string());
        self
    }

    /// Adds what is there instead.
    #[must_use]
    pub fn found(mut self, found: impl fmt::Display) -> Self {
        self.found = Some(found.to_string());
        self
    }

    /// Adds what the user can do.
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

/// All problems of one pass. As an error it prints one problem a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// No problem yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a problem.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds all problems of another pass.
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The problems in the order they were found.
    #[must_use]
    pub fn items(&self) -> &[Diagnostic] {
        &self.0
    }

    /// `value` if nothing is wrong, else these problems.
    ///
    /// # Errors
    /// The collected problems, if there are any.
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
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}
