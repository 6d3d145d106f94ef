//! Circular borders, diagonals, and slices along several dims.

use crate::elementwise::kernels as elementwise;
use crate::lane::with_lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, ints, output};
use crate::operator::sets::{ANY, ARITHMETIC, COMMON, FLOATING};
use crate::operator::{CallPlan, Refusal};
use crate::shape::arrangement::{Selection, picked, picked_grad};
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnCircularPad2d",
        parameters: &[input(SELF, ARITHMETIC, 3, 4), output(OUT, ARITHMETIC, 3, 4)],
        limits: "pairs (before, after) from the last dim on, 0 to the extent; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnCircularPad2d",
        plan: |call| picked(call, SELF, circular(call, SELF, 2)?),
    },
    Operator {
        name: "aclnnCircularPad2dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 4),
            input(SELF, FLOATING, 3, 4),
            output(GRAD_INPUT, FLOATING, 3, 4),
        ],
        limits: "as aclnnCircularPad2d; gradInput has the shape of self; one element type",
        source: "CANN 8.1 aclnn API reference, aclnnCircularPad2dBackward",
        plan: |call| circular_grad(call, 2),
    },
    Operator {
        name: "aclnnCircularPad3dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 4, 5),
            input(SELF, FLOATING, 4, 5),
            output(GRAD_INPUT, FLOATING, 4, 5),
        ],
        limits: "as aclnnCircularPad2dBackward with three dims",
        source: "CANN 8.1 aclnn API reference, aclnnCircularPad3dBackward",
        plan: |call| circular_grad(call, 3),
    },
    Operator {
        name: "aclnnDiag",
        parameters: &[input(SELF, ANY, 1, 2), output(OUT, ANY, 1, 2)],
        limits: "self [n]: out is the square matrix with self on its diagonal, else 0; self [m, n]: out is its diagonal; out has \
                 the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnDiag",
        plan: |call| diagonal(call, call.tensor(SELF)?.rank() == 1),
    },
    Operator {
        name: "aclnnDiagFlat",
        parameters: &[input(SELF, ANY, 0, 8), output(OUT, ANY, 2, 2)],
        limits: "as aclnnDiag for the elements of self in one dim",
        source: "CANN 8.1 aclnn API reference, aclnnDiagFlat",
        plan: |call| diagonal(call, true),
    },
    Operator {
        name: "aclnnFlatten",
        parameters: &[input(SELF, ANY, 1, 8), output(OUT, ANY, 2, 2)],
        limits: "out has two dims: those of self before axis, and the others; axis from -rank to rank - 1; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnFlatten",
        plan: flatten,
    },
    Operator {
        name: "aclnnSliceV2",
        parameters: &[
            input(SELF, COMMON, 1, 8),
            ints(AXES).optional(),
            ints(STEPS_ARRAY).optional(),
            output(OUT, COMMON, 1, 8),
        ],
        limits: "one start, end and step for each axis; steps of at least 1, without steps 1, without axes the first dims; negative starts and \
                 ends count from the end, and both are clamped to the dim; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnSliceV2",
        plan: |call| {
            let (x, out) = (call.tensor(SELF)?, call.tensor(OUT)?);
            let slices = Slices::of(call, SELF, [STARTS, ENDS, AXES, STEPS_ARRAY])?;
            call.expect_type_of(SELF, &[OUT])?;
            call.expect_shape(OUT, &slices.shape(&x.dims), "of the slices")?;
            let (x, out) = (x.slot, out.slot);
            CallPlan::new(move |views, tiles| {
                if !views.of(out).is_empty() {
                    elementwise::copy(tiles, &slices.view(views.of(x)), views.of(out));
                }
                Ok(())
            })
        },
    },
    Operator {
        name: "aclnnStridedSliceAssignV2",
        parameters: &[
            in_place(VAR_REF, COMMON, 1, 8),
            input(INPUT_VALUE, COMMON, 0, 8),
            ints(AXES_OPTIONAL).optional(),
        ],
        limits: "as aclnnSliceV2 for the slices of varRef, which become inputValue; inputValue has their shape and the type of varRef",
        source: "CANN 8.1 aclnn API reference, aclnnStridedSliceAssignV2",
        plan: |call| {
            let target = call.tensor(VAR_REF)?;
            let slices = Slices::of(call, VAR_REF, [BEGIN, END_ARRAY, AXES_OPTIONAL, STRIDES])?;
            call.expect_type_of(VAR_REF, &[INPUT_VALUE])?;
            call.expect_shape(INPUT_VALUE, &slices.shape(&target.dims), "of the slices")?;
            let (target, value) = (target.slot, call.slot(INPUT_VALUE)?);
            CallPlan::new(move |views, tiles| {
                if !views.of(value).is_empty() {
                    elementwise::copy(tiles, views.of(value), &slices.view(views.of(target)));
                }
                Ok(())
            })
        },
    },
];

fn circular(call: &OperatorCall, name: Name<CheckedTensor>, count: usize) -> Result<Selection, Refusal> {
    let (x, padding) = (call.tensor(name)?, call.ints(PADDING)?);
    call.expect_that(padding.len() == 2 * count, PADDING, &format!("{} numbers", 2 * count), padding)?;
    let mut picks = Selection::all_of(&x.dims);
    for (i, pair) in padding.chunks_exact(2).enumerate() {
        let dim = x.rank() - 1 - i;
        let (extent, before) = (x.dims[dim] as i64, pair[0]);
        let fits = extent > 0 && pair.iter().all(|width| (0..=extent).contains(width));
        call.expect_that(fits, PADDING, &format!("borders of 0 to {extent}"), pair)?;
        picks.pick(dim, (extent + before + pair[1]) as usize, move |place| {
            (place as i64 - before).rem_euclid(extent) as usize
        });
    }
    Ok(picks)
}

fn circular_grad(call: &OperatorCall, count: usize) -> Result<CallPlan, Refusal> {
    call.expect_type_of(SELF, &[GRAD_OUTPUT])?;
    call.expect_shape(GRAD_INPUT, &call.tensor(SELF)?.dims, "of self")?;
    picked_grad(call, GRAD_OUTPUT, GRAD_INPUT, circular(call, SELF, count)?)
}

fn diagonal(call: &OperatorCall, is_written: bool) -> Result<CallPlan, Refusal> {
    call.expect_type_of(SELF, &[OUT])?;
    let (x, offset) = (call.tensor(SELF)?, call.int_in(DIAGONAL, -(1 << 31)..=1 << 31)?);
    let [down, right] = [(-offset).max(0) as usize, offset.max(0) as usize];
    let (count, width) = if is_written {
        let side = x.len() + down + right;
        call.expect_shape(OUT, &[side, side], "a row and a column per element, and those of the diagonal")?;
        (x.len(), side)
    } else {
        let count = x.dims[0].saturating_sub(down).min(x.dims[1].saturating_sub(right));
        call.expect_shape(OUT, &[count], "of the diagonal")?;
        (count, x.dims[1])
    };
    let (dtype, [x, out]) = (x.dtype, call.slots_of([SELF, OUT])?);
    CallPlan::new(move |views, _| {
        with_lane!(dtype, L => {
            let values = views.read::<L>(x);
            let place = |i: usize| (i + down) * width + i + right;
            if is_written {
                let mut matrix = vec![L::default(); width * width];
                values.iter().enumerate().for_each(|(i, value)| matrix[place(i)] = *value);
                views.write(out, &matrix);
            } else {
                views.write(out, &(0..count).map(|i| values[place(i)]).collect::<Vec<L>>());
            }
        });
        Ok(())
    })
}

fn flatten(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(SELF, &[OUT])?;
    let dims = &call.tensor(SELF)?.dims;
    let axis = call.dim(AXIS, dims.len())?;
    let (before, after) = dims.split_at(axis);
    call.expect_shape(
        OUT,
        &[before.iter().product(), after.iter().product()],
        "dims before and from axis on",
    )?;
    let (dtype, [x, out]) = (call.tensor(SELF)?.dtype, call.slots_of([SELF, OUT])?);
    CallPlan::new(move |views, _| {
        with_lane!(dtype, L => views.write(out, &views.read::<L>(x)));
        Ok(())
    })
}

/// Evenly spaced positions of some dims.
#[derive(Clone, Debug)]
struct Slices(Vec<DimSlice>);

#[derive(Clone, Copy, Debug)]
struct DimSlice {
    dim: usize,
    start: usize,
    count: usize,
    step: usize,
}

impl Slices {
    /// Names of the starts, ends, axes and steps.
    fn of(call: &OperatorCall, x: Name<CheckedTensor>, names: [Name<[i64]>; 4]) -> Result<Self, Refusal> {
        let dims = &call.tensor(x)?.dims;
        let [starts, ends] = [call.ints(names[0])?, call.ints(names[1])?];
        let first: Vec<i64> = (0..starts.len() as i64).collect();
        let axes = call.ints_if_given(names[2])?.filter(|axes| !axes.is_empty()).unwrap_or(&first);
        let ones = vec![1; starts.len()];
        let steps = call.ints_if_given(names[3])?.filter(|steps| !steps.is_empty()).unwrap_or(&ones);
        for (name, list) in [(names[1], ends), (names[2], axes), (names[3], steps)] {
            call.expect_that(list.len() == starts.len(), name, &format!("{} numbers", starts.len()), list)?;
        }
        let mut slices: Vec<DimSlice> = Vec::new();
        for (at, &axis) in axes.iter().enumerate() {
            let dim = call.dim_of(names[2], axis, dims.len())?;
            let is_new = slices.iter().all(|slice| slice.dim != dim);
            call.expect_that(
                is_new && steps[at] >= 1,
                names[3],
                "steps of at least 1, each dim once",
                steps,
            )?;
            let extent = dims[dim] as i64;
            let within = |end: i64| (if end < 0 { end.saturating_add(extent) } else { end }).clamp(0, extent);
            let [start, end] = [within(starts[at]), within(ends[at])];
            let count = ((end - start).max(0) as usize).div_ceil(steps[at] as usize);
            slices.push(DimSlice { dim, start: start as usize, count, step: steps[at] as usize });
        }
        Ok(Self(slices))
    }

    fn shape(&self, dims: &[usize]) -> Vec<usize> {
        let mut shape = dims.to_vec();
        self.0.iter().for_each(|slice| shape[slice.dim] = slice.count);
        shape
    }

    fn view(&self, view: &StridedView) -> StridedView {
        let slice = |view: StridedView, of: &DimSlice| view.slice(of.dim, of.start, of.count, of.step);
        self.0.iter().fold(view.clone(), slice)
    }
}
