//! The most likely tokens of each row, as aclnn calls.

use crate::base::DType;
use crate::call::{Call, View};
use crate::program::op::Kind;

use super::Emit;
use super::loss::exponentials;

pub(in crate::program) fn candidates(kind: &Kind, emit: &mut Emit<'_>) {
    let Kind::Candidates { count, .. } = *kind else { return };
    let (x, out) = (emit.view(0), emit.out());
    let columns = 2 * count + 1;
    let rows = out.elems() / columns;
    let size = x.elems() / rows;
    let x = emit.shaped(x, [rows, size]);
    emit.write_shaped(out, [rows, columns], |emit, out| {
        let [values, indices, logarithms] =
            [(0, count), (count, count), (2 * count, 1)].map(|(start, size)| out.narrow(1, start, size));
        let [selected, places] = [x.dtype, DType::I64].map(|dtype| emit.temporary(dtype, [rows, count]));
        emit.calls.extend([
            Call::Topk { x: x.clone(), values: selected.clone(), indices: places.clone(), dim: 1 },
            Call::Copy { from: selected.clone(), into: values },
            Call::Cast { x: places, out: indices },
        ]);
        // The first selected element is the largest.
        let largest = emit.shaped(selected.narrow(1, 0, 1), [rows]);
        let powers = emit.temporary(x.dtype, [rows, size]);
        exponentials(emit, x, &largest, powers.clone());
        let sum = emit.sum_in_two_steps(&powers);
        let logarithms = emit.shaped(logarithms, [rows]);
        emit.calls.extend([
            Call::Log { x: sum.clone(), out: sum.clone() },
            Call::Add { a: sum, b: largest, out: logarithms },
        ]);
    });
}

impl Emit<'_> {
    /// Returns the sums `[rows]` of `x[rows,size]`. Sums of about `√size` elements are added, so
    /// the rounding error is that of `2·√size` additions in any order.
    fn sum_in_two_steps(&mut self, x: &View) -> View {
        let [rows, size] = [x.shape[0], x.shape[1]];
        let width = size.isqrt().max(1);
        let (groups, rest) = (size / width, size % width);
        let partial = self.temporary(x.dtype, [rows, groups + usize::from(rest > 0)]);
        let whole = self.shaped(x.narrow(1, 0, groups * width), [rows, groups, width]);
        self.calls.push(Call::ReduceSum { x: whole, out: partial.narrow(1, 0, groups), dim: 2 });
        if rest > 0 {
            let out = self.shaped(partial.narrow(1, groups, 1), [rows]);
            self.calls.push(Call::ReduceSum { x: x.narrow(1, groups * width, rest), out, dim: 1 });
        }
        let sum = self.temporary(x.dtype, [rows]);
        self.calls.push(Call::ReduceSum { x: partial, out: sum.clone(), dim: 1 });
        sum
    }
}
