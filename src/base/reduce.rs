//! How parts of a value become the whole.

use std::fmt;

/// How the parts of a partial value combine to the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduce {
    /// The whole is the sum of the parts.
    Sum,
    /// As `Sum`, in one order: cards join their parts by pairs.
    Tree,
    /// The whole is the largest part.
    Max,
    /// The whole is the smallest part.
    Min,
}

impl Reduce {
    /// The name in texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Tree => "tree",
            Self::Max => "max",
            Self::Min => "min",
        }
    }

    /// The reduction of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Sum, Self::Tree, Self::Max, Self::Min].into_iter().find(|reduce| reduce.name() == name)
    }
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
