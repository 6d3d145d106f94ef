//! Card memory that plans need, by kind.
//!
//! - Invariant: the sum equals what the runtime allocates, to the byte, including the overhead of
//!   `aclrtMalloc` and the buffers of communicators.

use ascend_tp_machine::Profile;

use ascend_tp::base::{Bytes, Diagnostic};
use ascend_tp::exec::{communicators_wanted, regions_wanted};
use ascend_tp::schedule::launch::largest_workspaces;
use ascend_tp::schedule::plan::{ALIGNMENT_BYTES, Plan, Region};

/// Bytes of each communicator on a card: two buffers of 200 MiB (default `HCCL_BUFFSIZE`).
pub const COMMUNICATOR_BYTES: Bytes = Bytes(2 * (200 << 20));

/// Purpose of a card's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Weights of the model.
    Weights,
    /// Keys and values of past tokens.
    KvCache,
    /// Data written by the host before a run.
    Inputs,
    /// Data read by the host after a run.
    Outputs,
    /// Values between two steps.
    Arena,
    /// Scratch memory of running operators.
    Workspace,
    /// Buffers of all communicators.
    HcclBuffers,
    /// Sizes rounded up to 32 bytes, plus 32 (AscendCL guide, `aclrtMalloc`).
    Rounding,
}

impl MemoryKind {
    /// Every kind, in table order.
    pub const ALL: [Self; 8] = [
        Self::Weights,
        Self::KvCache,
        Self::Inputs,
        Self::Outputs,
        Self::Arena,
        Self::Workspace,
        Self::HcclBuffers,
        Self::Rounding,
    ];

    /// Returns the table name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::KvCache => "KV cache",
            Self::Inputs => "inputs",
            Self::Outputs => "outputs",
            Self::Arena => "arena",
            Self::Workspace => "workspace",
            Self::HcclBuffers => "HCCL buffers",
            Self::Rounding => "rounding",
        }
    }
}

/// Bytes on one card by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardMemory([u64; MemoryKind::ALL.len()]);

impl CardMemory {
    /// Returns the memory of a rank for these programs.
    #[must_use]
    pub fn of(programs: &[&[Plan]], rank: usize, communicator: Bytes) -> Self {
        let mut memory = Self::default();
        let mut allocate = |kind: MemoryKind, bytes: u64| {
            memory.0[kind as usize] += bytes;
            memory.0[MemoryKind::Rounding as usize] += bytes.next_multiple_of(32) + 32 - bytes;
        };
        for (region, bytes) in Region::ALL.into_iter().zip(regions_wanted(programs, rank)) {
            let kind = match region {
                Region::Weights => MemoryKind::Weights,
                Region::States => MemoryKind::KvCache,
                Region::Inputs => MemoryKind::Inputs,
                Region::Outputs => MemoryKind::Outputs,
                Region::Arena => MemoryKind::Arena,
            };
            allocate(kind, bytes.0.max(ALIGNMENT_BYTES));
        }
        let workspaces = largest_workspaces(programs.iter().map(|plans| &plans[rank]));
        for workspace in workspaces.into_iter().filter(|bytes| *bytes > 0) {
            allocate(MemoryKind::Workspace, workspace as u64);
        }
        let communicators = communicators_wanted(programs, rank) as u64;
        memory.0[MemoryKind::HcclBuffers as usize] = communicators * communicator.0;
        memory
    }

    /// Returns the memory of the fullest card.
    #[must_use]
    pub fn fullest(programs: &[&[Plan]], communicator: Bytes) -> Self {
        let ranks = programs.first().map_or(0, |plans| plans.len());
        let cards = (0..ranks).map(|rank| Self::of(programs, rank, communicator));
        cards.max_by_key(|memory| memory.total().0).unwrap_or_default()
    }

    /// Returns `self` plus `part / whole` of the difference between `more` and `self`.
    #[must_use]
    pub(super) fn along(&self, more: &Self, [part, whole]: [usize; 2]) -> Self {
        let bytes = |(few, more): (u64, u64)| {
            let grown = i128::from(few) + (i128::from(more) - i128::from(few)) * part as i128 / whole as i128;
            u64::try_from(grown).unwrap_or(0)
        };
        Self(std::array::from_fn(|kind| bytes((self.0[kind], more.0[kind]))))
    }

    #[must_use]
    pub(super) fn with(mut self, kind: MemoryKind, other: Self) -> Self {
        self.0[kind as usize] = other.0[kind as usize];
        self
    }

    /// Returns the bytes of a kind.
    #[must_use]
    pub const fn bytes(&self, kind: MemoryKind) -> Bytes {
        Bytes(self.0[kind as usize])
    }

    /// Lists bytes by kind, in table order.
    pub fn kinds(&self) -> impl Iterator<Item = (MemoryKind, Bytes)> + '_ {
        MemoryKind::ALL.into_iter().map(|kind| (kind, self.bytes(kind)))
    }

    /// Sums the bytes of all kinds.
    #[must_use]
    pub fn total(&self) -> Bytes {
        Bytes(self.0.iter().sum())
    }

    /// Reports a card that is too small.
    #[must_use]
    pub fn problem(&self, place: &str, profile: &Profile) -> Option<Diagnostic> {
        let usable = Bytes(profile.hbm_usable_bytes());
        if self.total() <= usable {
            return None;
        }
        let parts: Vec<String> = self
            .kinds()
            .filter(|(_, bytes)| bytes.0 > 0)
            .map(|(kind, bytes)| format!("{} {bytes}", kind.name()))
            .collect();
        Some(
            Diagnostic::new(place, "does not fit the memory of a card")
                .expected(format!(
                    "at most {usable} of {}, which has {}",
                    profile.soc,
                    Bytes(profile.hbm_installed_bytes)
                ))
                .found(format!("{}: {}", self.total(), parts.join(", "))),
        )
    }
}

impl serde::Serialize for CardMemory {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.kinds().map(|(kind, bytes)| (kind, bytes.0)))
    }
}
