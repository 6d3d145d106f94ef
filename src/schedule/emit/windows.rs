//! Places of values inside the buffers of other values, so that they need no copy.
//!
//! Input: a placed program, and which ops are emitted. Output: a window for each value that is
//! exchanged next to others, is padded, is a part of a concatenation, or is overwritten by a sum.
//!
//! Not here: the calls that read and write windows.

use rustc_hash::FxHashSet;

use super::{Emitter, SideParts};
#[cfg(test)]
use crate::base::defect;
use crate::base::{DType, Id as _, Shape};
use crate::call::View;
use crate::placement::Placed;
use crate::program::op::{Join, Kind};
use crate::program::{Einsum, Op, OpId, ValueId};

/// Returns whether an op can write its result to a window without a copy. Products of one
/// activation have one result.
fn writes(op: &Op, window: &View) -> bool {
    let row = op.kind.row();
    let is_alone = match row.join {
        Join::Never => true,
        Join::Product => !op.kind.einsum().is_some_and(Einsum::is_linear_layer),
        _ => false,
    };
    let is_new = row.in_place.is_empty() && row.view.is_none() && !op.kind.is_movement();
    is_alone && is_new && (window.is_contiguous() || row.writes_strided)
}

impl Emitter<'_> {
    /// Allocates shared buffers for values that are exchanged together, and for padding, so that
    /// they need no packing. Considers only the ops that `is_emitted` accepts.
    pub(super) fn lay_out(&mut self, is_emitted: &dyn Fn(OpId) -> bool) {
        let program = &self.placed.program;
        let several = |op: &Op| op.operands.len() > 1 && op.kind.is_collective() && op.kind.is_movement();
        for (id, op) in program.ops.iter().filter(|(id, op)| several(op) && is_emitted(*id)) {
            let sides = [self.side_by_side(&op.operands), self.side_by_side(&op.results)];
            for (operand, window) in op.operands.iter().zip(&sides[0].each) {
                self.windows[operand.index()] = Some(window.clone());
            }
            self.shared.insert(id, sides);
        }
        self.lay_out_parts(is_emitted);
        for (_, op) in program.ops.iter().filter(|(id, _)| is_emitted(*id)) {
            let Kind::Pad { dim, .. } = op.kind else { continue };
            let Some(window) = &self.windows[op.result().index()] else { continue };
            let elems = self.plan.buffers[window.buffer].bytes.0 as usize / window.dtype.size_bytes();
            let all = View::contiguous(window.buffer, window.dtype, [elems].into());
            self.windows[op.operands[0].index()] = Some(self.shard(window, op.result(), op.operands[0], dim));
            if !self.not_zeroed.contains(&all) {
                self.not_zeroed.push(all);
            }
        }
    }

    /// Lets ops write their results to their places in a concatenation, or to the sum that reads
    /// them last. A part can be a concatenation, so later ops come first.
    fn lay_out_parts(&mut self, is_emitted: &dyn Fn(OpId) -> bool) {
        let Placed { program, mesh, layouts } = self.placed;
        let mut makers: Vec<Option<&Op>> = vec![None; program.values.len()];
        let overwritten = self.overwritten();
        for (_, op) in program.ops.iter().filter(|(id, _)| is_emitted(*id)) {
            op.results.iter().for_each(|result| makers[result.index()] = Some(op));
        }
        for (id, op) in program.ops.iter().rev().filter(|(id, _)| is_emitted(*id)) {
            let row = op.kind.row();
            let (parts, dim) = match (row.adds_to, (row.concatenates)(&op.kind)) {
                (Some(sum), _) if overwritten.contains(&id) => (&op.operands[sum..=sum], None),
                (_, Some(dim)) => (&op.operands[..], Some(dim)),
                _ => continue,
            };
            let whole = self.new_view(op.result());
            self.windows[op.result().index()] = Some(whole.clone());
            let mut start = 0;
            for part in parts {
                let window = dim.map_or_else(
                    || whole.clone(),
                    |dim| {
                        let size =
                            layouts[*part].local_shape(mesh, &program.values[*part].shape, self.rank)[dim];
                        start += size;
                        whole.narrow(dim, start - size, size)
                    },
                );
                let is_written = makers[part.index()].is_some_and(|op| writes(op, &window));
                if is_written && self.windows[part.index()].is_none() {
                    self.windows[part.index()] = Some(window);
                }
            }
        }
    }

    /// Returns the sums that may overwrite the operand that they add to: nothing reads it later,
    /// and nothing shows it as another value.
    fn overwritten(&self) -> FxHashSet<OpId> {
        let program = &self.placed.program;
        let mut last_reader: Vec<Option<OpId>> = vec![None; program.values.len()];
        let mut is_shown = vec![false; program.values.len()];
        program.outputs.iter().for_each(|(_, id)| is_shown[id.index()] = true);
        for (id, op) in program.ops.iter() {
            for operand in &op.operands {
                is_shown[operand.index()] |= op.kind.is_movement() || op.kind.row().view.is_some();
                last_reader[operand.index()] = Some(id);
            }
        }
        let overwrites = |(id, op): &(OpId, &Op)| {
            op.kind.row().adds_to.is_some_and(|sum| {
                let sum = op.operands[sum];
                let is_read_once = op.operands.iter().filter(|operand| **operand == sum).count() == 1;
                is_read_once && last_reader[sum.index()] == Some(*id) && !is_shown[sum.index()]
            })
        };
        program.ops.iter().filter(overwrites).map(|(id, _)| id).collect()
    }

    fn side_by_side(&mut self, values: &[ValueId]) -> SideParts {
        let placed = self.placed;
        let local = |id: &ValueId| {
            let value = &placed.program.values[*id];
            (value.dtype, placed.layouts[*id].local_shape(&placed.mesh, &value.shape, self.rank))
        };
        let locals: Vec<(DType, Shape)> = values.iter().map(local).collect();
        let dtype = locals[0].0;
        let all = self.temporary(dtype, [locals.iter().map(|(_, shape)| shape.elems()).sum()].into());
        let mut offset = 0;
        let window = |(dtype, shape): (DType, Shape)| {
            let view = View { offset, ..View::contiguous(all.buffer, dtype, shape) };
            offset += view.elems();
            view
        };
        SideParts { each: locals.into_iter().map(window).collect(), all }
    }

    pub(super) fn shard(&self, view: &View, whole: ValueId, part: ValueId, dim: usize) -> View {
        let Placed { program, mesh, layouts } = self.placed;
        let shape = &program.values[whole].shape;
        let range = |id| layouts[id].ranges(mesh, shape, self.rank)[dim].clone();
        let (whole, part) = (range(whole), range(part));
        let start = part.start.saturating_sub(whole.start);
        #[cfg(test)]
        if part.len() < whole.len() && !part.is_empty() {
            defect!(
                WindowOfNeighbour,
                return view.narrow(dim, if start > 0 { start - 1 } else { 1 }, part.len())
            );
        }
        view.narrow(dim, start, part.len())
    }
}
