//! Reductions that combine partial values.

use std::fmt;

/// The operation that combines partial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reduce {
    /// The sum of the parts.
    Sum,
    /// The sum in a fixed order: ranks are added in pairs.
    Tree,
    /// The largest of the parts.
    Max,
    /// The smallest of the parts.
    Min,
}

impl Reduce {
    /// Returns the name in texts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Tree => "tree",
            Self::Max => "max",
            Self::Min => "min",
        }
    }

    /// Returns the reduction with this name.
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
