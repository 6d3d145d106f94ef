//! What strict mode finds: one kind, one sentence, the calls concerned.
//!
//! Input: what a check found. Output: a [`Report`] whose text names both calls with their ranks, streams and tags.
//! Does not: decide what happens next; the check does.

use std::fmt;
use std::sync::Arc;

use super::site::Site;

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ReportKind {
    /// Two accesses to the same bytes, at least one of them a write, which nothing orders.
    Race,
    /// Memory, or another object, used after it was given back.
    UseAfterFree,
    /// An access outside an allocation.
    OutOfBounds,
    /// A stream, event or buffer used under another device or context.
    WrongContext,
    /// A wait for an event that nothing has recorded.
    WaitBeforeRecord,
    /// Something destroyed or freed while queued work uses it.
    DestroyWhileBusy,
    /// Something that still exists when the machine is finalized.
    Leak,
    /// Ranks whose collective calls do not fit together.
    CollectiveMismatch,
    /// A collective for which a rank never comes.
    RankAbsent,
    /// A cycle of waits.
    Deadlock,
    /// The host touched device memory.
    HostAccess,
    /// A kernel breaks a rule of the vector cores.
    Kernel,
    /// A call that breaks a documented rule in another way.
    Misuse,
}

impl ReportKind {
    /// Every kind, in the order of the documentation.
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

    /// The name used in the text of a report.
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
    pub(crate) sites: Vec<Arc<Site>>,
}

impl Report {
    /// A finding that concerns the calls at `sites`.
    pub(crate) fn new(kind: ReportKind, what: impl Into<String>, sites: Vec<Arc<Site>>) -> Self {
        Self { kind, what: what.into(), sites }
    }

    /// What is wrong.
    #[must_use]
    pub fn kind(&self) -> ReportKind {
        self.kind
    }
}

impl Report {
    /// The report without the calls it names.
    pub(crate) fn finding(&self) -> String {
        format!("{}: {}", self.kind.name(), self.what)
    }
}

/// `race: …; [1] …; [2] …`
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.finding())?;
        for (i, site) in self.sites.iter().enumerate() {
            write!(f, "; [{}] {site}", i + 1)?;
        }
        Ok(())
    }
}
