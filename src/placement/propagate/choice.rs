//! The ways to run an op, and their scores.

use smallvec::SmallVec;

use super::super::layout::Layout;
use super::super::transition::Cost;

pub(super) struct OpChoice {
    pub(super) operands: Vec<Layout>,
    pub(super) produced: SmallVec<[Layout; 1]>,
    pub(super) stored: SmallVec<[Layout; 1]>,
    pub(super) paid: Score,
    pub(super) due: Cost,
}

impl OpChoice {
    pub(super) fn score(&self) -> Score {
        Score { cost: self.paid.cost + self.due, ..self.paid }
    }
}

/// A score; smaller is better, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    /// Number of work axes on which the op runs whole; see
    /// [`Pins::dealt_on`](super::super::Pins::dealt_on).
    pub(super) repeated: usize,
    pub(super) cost: Cost,
    /// Elements on the fullest rank: results, and params and states placed by this choice.
    pub(super) local_elems: usize,
}

impl std::ops::Add for Score {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            repeated: self.repeated + other.repeated,
            cost: self.cost + other.cost,
            local_elems: self.local_elems + other.local_elems,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AxisRole {
    /// Replicates all operands of the op.
    Whole,
    /// Shards the dims of this letter.
    Letter(u8),
    /// Passes on a partial sum of this operand.
    Pass(usize),
    /// Passes on partial sums of all operands.
    PassAll,
    /// Operands are partial sums, which the op reduces.
    Join,
}
