//! The inputs of a cut trial, so that equal situations are tried only once.

use std::hash::{BuildHasher, Hash, Hasher};

use smallvec::SmallVec;

use crate::base::Id;
use crate::program::{Kind, OpId, Program, ValueId};

use super::{KnownLayouts, LOOK_AHEAD, Propagation, WeightUse};

/// Hashed bytes. Equal bytes mean equal situations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Situation(Vec<u8>);

impl Hasher for Situation {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        rustc_hash::FxBuildHasher.hash_one(&self.0)
    }
}

pub(super) fn kinds(program: &Program) -> Vec<usize> {
    let mut known: Vec<&Kind> = Vec::new();
    let number = |kind| {
        known.iter().position(|other| *other == kind).unwrap_or_else(|| {
            known.push(kind);
            known.len() - 1
        })
    };
    program.ops.values().iter().map(|op| &op.kind).map(number).collect()
}

impl Propagation<'_> {
    /// Collects everything that a cut trial depends on: the ops from `id` to the next pinned
    /// result, and the known layouts of their operands.
    pub(super) fn situation(&self, id: OpId, weight: &WeightUse, now: &KnownLayouts) -> Situation {
        let mut hasher = Situation::default();
        (&weight.axes, self.kinds[weight.user.index()]).hash(&mut hasher);
        let mut seen: SmallVec<[ValueId; 64]> = SmallVec::new();
        for id in self.program.ops.ids().skip(id.index()).take(LOOK_AHEAD) {
            let op = &self.program.ops[id];
            (self.kinds[id.index()], op.operands.len(), op.results.len()).hash(&mut hasher);
            for operand in op.operands.iter().chain(&op.results) {
                let known = seen.iter().position(|known| known == operand);
                known.hash(&mut hasher);
                if known.is_none() {
                    seen.push(*operand);
                    let (value, at) = (&self.program.values[*operand], operand.index());
                    (value.dtype, &value.shape, value.role).hash(&mut hasher);
                    (&now.layouts[at], now.copies.get(operand), &self.pinned[at], &self.along[at])
                        .hash(&mut hasher);
                    (self.pins.cut(&value.name), &self.whole[at], &self.storage_axes[at]).hash(&mut hasher);
                }
            }
            if op.results.iter().any(|result| self.pinned[result.index()].is_some()) {
                break;
            }
        }
        hasher
    }
}
