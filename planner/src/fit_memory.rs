//! What plans take of a card's memory, and what a card has.
//!
//! Input → output: the plans of all programs of one engine → bytes on a rank's card by kind. Invariant: the sum is what the
//! card hands out for them, to the byte: regions and workspace as `exec` takes them, with what `aclrtMalloc` adds, and the
//! buffers of every communicator. Does not: know what the library takes of the driver's part.

use ascend_tp_machine::Profile;

use ascend_tp::base::{Bytes, Diagnostic};
use ascend_tp::exec::{communicators_wanted, regions_wanted};
use ascend_tp::schedule::launch::largest_workspaces;
use ascend_tp::schedule::plan::{ALIGNMENT_BYTES, Plan, Region};

/// What each communicator takes of each of its cards: a buffer to send and one to receive, 200 MiB each (`HCCL_BUFFSIZE`
/// when it is not set; CANN environment variables).
pub const COMMUNICATOR_BYTES: Bytes = Bytes(2 * (200 << 20));

/// What card memory is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Weights of the model.
    Weights,
    /// Keys and values of past tokens.
    KvCache,
    /// What the host writes before a run.
    Inputs,
    /// What the host reads after a run.
    Outputs,
    /// Everything between two steps.
    Arena,
    /// What operators need while they run.
    Workspace,
    /// Buffers of communicators.
    HcclBuffers,
    /// What the allocator adds: sizes are rounded up to 32 bytes, plus 32 (AscendCL guide, `aclrtMalloc`).
    Rounding,
}

impl MemoryKind {
    /// Every kind, in the order of tables.
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

    /// The name in tables.
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

/// Bytes on one card by kind; as JSON, a field for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardMemory([u64; MemoryKind::ALL.len()]);

impl CardMemory {
    /// What a rank takes to run its plans of these programs.
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
            // A buffer is never empty.
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

    /// What the fullest card takes.
    #[must_use]
    pub fn fullest(programs: &[&[Plan]], communicator: Bytes) -> Self {
        let ranks = programs.first().map_or(0, |plans| plans.len());
        let cards = (0..ranks).map(|rank| Self::of(programs, rank, communicator));
        cards.max_by_key(|memory| memory.total().0).unwrap_or_default()
    }

    /// These bytes and `times.0 / times.1` of what came on top of them in `more`.
    #[must_use]
    pub(super) fn along(&self, more: &Self, times: (usize, usize)) -> Self {
        let bytes = |(few, more): (u64, u64)| {
            let grown = i128::from(few) + (i128::from(more) - i128::from(few)) * times.0 as i128 / times.1 as i128;
            u64::try_from(grown).unwrap_or(0)
        };
        Self(std::array::from_fn(|kind| bytes((self.0[kind], more.0[kind]))))
    }

    /// Bytes of a kind.
    #[must_use]
    pub const fn bytes(&self, kind: MemoryKind) -> Bytes {
        Bytes(self.0[kind as usize])
    }

    /// Bytes by kind, in the order of tables.
    pub fn kinds(&self) -> impl Iterator<Item = (MemoryKind, Bytes)> + '_ {
        MemoryKind::ALL.into_iter().map(|kind| (kind, self.bytes(kind)))
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> Bytes {
        Bytes(self.0.iter().sum())
    }

    /// What is wrong if a card has not so much, with the arithmetic.
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
