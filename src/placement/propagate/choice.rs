//! How an op may run, and what choices are compared by.

use smallvec::SmallVec;

use super::super::layout::Layout;
use super::super::transition::Cost;

/// How one op runs.
pub(super) struct OpChoice {
    pub(super) operands: Vec<Layout>,
    pub(super) produced: SmallVec<[Layout; 1]>,
    pub(super) stored: SmallVec<[Layout; 1]>,
    /// What the op itself makes the cards exchange.
    pub(super) paid: Score,
    /// What its users will have to, because a result is partial.
    pub(super) due: Cost,
}

impl OpChoice {
    /// What choices are compared by.
    pub(super) fn score(&self) -> Score {
        Score { cost: self.paid.cost + self.due, ..self.paid }
    }
}

/// Less is better, field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score {
    /// Axes over which work is dealt, and on which it is done by all; see [`Pins::dealt_on`](super::super::Pins::dealt_on).
    pub(super) repeated: usize,
    pub(super) cost: Cost,
    /// Elements on the fullest card: of the results, and of params and states placed by this choice.
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

/// What one mesh axis does in an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AxisRole {
    /// Every operand is whole on it.
    Whole,
    /// It shards the dim of this letter.
    Letter(u8),
    /// It carries a partial sum of this operand through.
    Pass(usize),
    /// It carries partial sums of all operands through.
    PassAll,
    /// Operands carry partial sums, which the op joins.
    Join,
}
