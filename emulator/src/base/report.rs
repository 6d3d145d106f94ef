//! Findings of strict mode. The text of a [`Report`] names the calls concerned.

use std::fmt;
use std::sync::Arc;

use super::site::CallSite;

/// Kind of a finding of strict mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ReportKind {
    /// Unordered accesses to the same bytes, at least one a write.
    Race,
    /// Use of an object after it was freed or destroyed.
    UseAfterFree,
    /// An access outside an allocation.
    OutOfBounds,
    /// An object used with the wrong device or context.
    WrongContext,
    /// A wait for an event that was never recorded.
    WaitBeforeRecord,
    /// An object destroyed or freed while queued work uses it.
    DestroyWhileBusy,
    /// An object that still exists when the machine is finalized.
    Leak,
    /// Collective calls of different ranks that do not match.
    CollectiveMismatch,
    /// A collective that a rank never calls.
    RankAbsent,
    /// A cycle of waits between streams or threads.
    Deadlock,
    /// An access of the host to device memory.
    HostAccess,
    /// A kernel that breaks a rule of the vector cores.
    Kernel,
    /// A call that breaks another documented rule.
    Misuse,
}

impl ReportKind {
    /// Lists every kind, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::Race,
        Self::UseAfterFree,
        Self::OutOfBounds,
        Self::WrongContext,
        Self::WaitBeforeRecord,
        Self::DestroyWhileBusy,
        Self::Leak,
        Self::CollectiveMismatch,
        Self::RankAbsent,
        Self::Deadlock,
        Self::HostAccess,
        Self::Misuse,
    ];

    /// Returns the name used in the text of a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Race => "race",
            Self::UseAfterFree => "use after free",
            Self::OutOfBounds => "out of bounds",
            Self::WrongContext => "wrong context",
            Self::WaitBeforeRecord => "wait before record",
            Self::DestroyWhileBusy => "destroy while busy",
            Self::Leak => "leak",
            Self::CollectiveMismatch => "collective mismatch",
            Self::RankAbsent => "rank absent",
            Self::Deadlock => "deadlock",
            Self::HostAccess => "host access",
            Self::Kernel => "kernel",
            Self::Misuse => "misuse",
        }
    }
}

/// One finding of strict mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub(crate) kind: ReportKind,
    pub(crate) what: String,
    pub(crate) sites: Vec<Arc<CallSite>>,
}

impl Report {
    pub(crate) fn new(kind: ReportKind, what: impl Into<String>, sites: Vec<Arc<CallSite>>) -> Self {
        Self { kind, what: what.into(), sites }
    }

    /// Returns the kind of the finding.
    #[must_use]
    pub fn kind(&self) -> ReportKind {
        self.kind
    }
}

impl Report {
    pub(crate) fn finding(&self) -> String {
        format!("{}: {}", self.kind.name(), self.what)
    }
}

/// Formats a report as `race: …; [1] …; [2] …`.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.finding())?;
        for (i, site) in self.sites.iter().enumerate() {
            write!(f, "; [{}] {site}", i + 1)?;
        }
        Ok(())
    }
}
