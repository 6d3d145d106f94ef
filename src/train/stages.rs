//! Assignment of the ops of a training step to pipeline stages.
//!
//! An adjoint belongs to the model part of the forward op. The update of a weight belongs to the
//! part of the weight.

use std::collections::BTreeMap;
use std::ops::Range;

use super::layouts::param_of;
use crate::base::Id;
use crate::program::{Kind, Op, OpId, Program, Role, ValueId};
use crate::schedule::parts::PartMarks;
use crate::schedule::{OpPhase, OpPlace};

/// Name of the mesh axis of the pipeline stages.
pub const PIPELINE: &str = "pp";

impl PartMarks {
    /// Returns marks of params by name, without ops.
    pub(super) fn of_params(program: &Program, parts: &BTreeMap<String, usize>) -> Self {
        let mut marks = Self::default();
        marks.grow(program);
        for id in program.with_role(Role::Param) {
            marks.parts[id.index()] = parts.get(&program.values[id].name).copied();
        }
        marks
    }

    /// Marks the adjoints after `forward` ops. Adjoints that an earlier part waits for have phase
    /// `InputGrad`, others `WeightGrad`.
    pub(super) fn adjoints(&mut self, program: &Program, forward: usize, adjoint_of: &[OpId]) {
        self.grow(program);
        let ops =
            || adjoint_of.iter().zip(forward..).map(|(of, at)| (*of, &program.ops[OpId::from_index(at)]));
        let mut own: Vec<Option<usize>> = Vec::with_capacity(adjoint_of.len());
        let is_input = |id: &ValueId| program.values[*id].role == Role::Input;
        let mut is_free: Vec<bool> = program.values.ids().map(|id| is_input(&id)).collect();
        for (of, op) in ops() {
            let part = self.parts[program.ops[of].result().index()];
            let free = op.operands.iter().all(|operand| is_free[operand.index()]);
            op.results.iter().for_each(|result| is_free[result.index()] = free);
            own.push(part.filter(|_| !free));
        }
        // Earliest part that waits for each value.
        let mut reaches = vec![usize::MAX; program.values.len()];
        let all: Vec<&Op> = ops().map(|(_, op)| op).collect();
        for (op, part) in all.iter().zip(&own).rev() {
            let Some(part) = *part else { continue };
            let waits = op.results.iter().map(|result| reaches[result.index()]).min().unwrap_or(usize::MAX);
            for operand in &op.operands {
                let reached = &mut reaches[operand.index()];
                *reached = (*reached).min(part).min(waits);
            }
            let when = if waits < part { OpPhase::InputGrad } else { OpPhase::WeightGrad };
            self.mark(program, op, OpPlace { part, when });
        }
    }

    /// Marks later ops by the part of their first operand, or the last operand of a `Total`.
    pub(super) fn behind(&mut self, program: &Program, ops: Range<usize>, when: OpPhase) {
        self.grow(program);
        let parts: BTreeMap<&str, Option<usize>> = program
            .with_role(Role::Param)
            .map(|id| (program.values[id].name.as_str(), self.parts[id.index()]))
            .collect();
        for id in program.with_role(Role::State) {
            let name = program.values[id].name.as_str();
            self.parts[id.index()] = param_of(name).and_then(|param| parts.get(param).copied().flatten());
        }
        for at in ops {
            let op = &program.ops[OpId::from_index(at)];
            let mut found = op.operands.iter().filter_map(|operand| self.parts[operand.index()]);
            let part = if op.kind == Kind::Total { found.next_back() } else { found.next() };
            if let Some(part) = part {
                self.mark(program, op, OpPlace { part, when });
            }
        }
    }
}
