//! Shifts, scales and angles, series, diagonals, and gradients of windows and repeats.

use crate::dtype::AclType::{self, BF16, Bool, F16, F32, I8, I16, I32, I64, U8};
use crate::lane::{Lane, with_lane};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{FLOATING, INDEXES, NUMBER, SHIFTABLE};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};

const ANGLED: &[AclType] = &[F32, F16, BF16, Bool, U8, I8, I16, I32, I64];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnLeftShift",
        parameters: &[
            input(SELF, SHIFTABLE, 0, 8),
            input(SHIFT_BITS, SHIFTABLE, 0, 8),
            output(OUT, SHIFTABLE, 0, 8),
        ],
        limits: "self and shiftBits broadcast to out; one element type; a shift by less than 0 or all bits gives 0",
        source: "ops-math math/left_shift, aclnnLeftShift (host code)",
        plan: |call| {
            call.expect_type_of(SELF, &[SHIFT_BITS, OUT])?;
            call.expect_shape(
                OUT,
                &call.broadcast(SELF, SHIFT_BITS)?,
                "to which self and shiftBits broadcast",
            )?;
            let [x, bits, out] = call.slots_of([SELF, SHIFT_BITS, OUT])?;
            CallPlan::new(move |views, _| {
                let (values, bits) = (spread::<i64>(views, x, out), spread::<i64>(views, bits, out));
                let width = 8 * views.of(out).dtype().size() as i64;
                let shifted: Vec<i64> =
                    values.iter().zip(&bits).map(|(x, bits)| shifted(*x, *bits, width)).collect();
                views.write(out, &shifted);
                Ok(())
            })
        },
    },
    Operator {
        name: "aclnnLeftShifts",
        parameters: &[input(SELF, SHIFTABLE, 0, 8), output(OUT, SHIFTABLE, 0, 8)],
        limits: "out has the shape and type of self; a shift by less than 0 or all bits gives 0",
        source: "ops-math math/left_shift, aclnnLeftShifts (host code)",
        plan: |call| {
            let bits = call.scalar(SHIFT_BITS_SCALAR)?.as_i64();
            mapped::<i64>(call, SELF, OUT, move |x, dtype| shifted(x, bits, 8 * dtype.size() as i64))
        },
    },
    Operator {
        name: "aclnnHardswishBackwardV2",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 0, 8),
            input(SELF, FLOATING, 0, 8),
            output(OUT, FLOATING, 0, 8),
        ],
        limits: "one element type and shape; the slope is 0 up to -3, 1 from 3 on, and x / 3 + 1/2 between",
        source: "ops-nn activation/hard_swish_grad_v2, aclnnHardswishBackwardV2 (host code)",
        plan: |call| {
            call.expect_type_of(GRAD_OUTPUT, &[SELF, OUT])?;
            for name in [SELF, OUT] {
                call.expect_shape(name, &call.tensor(GRAD_OUTPUT)?.dims, "of gradOutput")?;
            }
            let [grad, x, out] = call.slots_of([GRAD_OUTPUT, SELF, OUT])?;
            CallPlan::new(move |views, _| {
                let slope = |x: f64| match x {
                    x if x <= -3.0 => 0.0,
                    x if x >= 3.0 => 1.0,
                    x => x / 3.0 + 0.5,
                };
                let (grads, values) = (views.read::<f64>(grad), views.read::<f64>(x));
                views.write(
                    out,
                    &grads.iter().zip(values).map(|(grad, x)| grad * slope(x)).collect::<Vec<_>>(),
                );
                Ok(())
            })
        },
    },
    Operator {
        name: "aclnnMaskedScale",
        parameters: &[
            input(SELF, FLOATING, 0, 8),
            input(MASK, &[U8, I8, F16, F32, BF16], 0, 8),
            output(Y, FLOATING, 0, 8),
        ],
        limits: "y is self times mask times scale; mask and y have the shape of self, y its type",
        source: "ops-nn activation/masked_scale/docs/aclnnMaskedScale.md",
        plan: |call| {
            call.expect_type_of(SELF, &[Y])?;
            for name in [MASK, Y] {
                call.expect_shape(name, &call.tensor(SELF)?.dims, "of self")?;
            }
            let ([x, mask, y], scale) = (call.slots_of([SELF, MASK, Y])?, call.float(SCALE_FLOAT)?);
            CallPlan::new(move |views, _| {
                let (values, mask) = (views.read::<f64>(x), views.read::<f64>(mask));
                views
                    .write(y, &values.iter().zip(mask).map(|(x, mask)| x * mask * scale).collect::<Vec<_>>());
                Ok(())
            })
        },
    },
    Operator {
        name: "aclnnAngleV2",
        parameters: &[input(X, ANGLED, 0, 8), output(OUT, FLOATING, 0, 8)],
        limits: "real numbers: pi for negative ones, otherwise 0, NaN stays; out has the shape of x, and its type, or FLOAT for \
                 integers",
        source: "ops-math math/angle_v2, aclnnAngleV2 (host code)",
        plan: |call| {
            let x = call.tensor(X)?;
            call.expect_dtype(
                OUT,
                if x.dtype.is_float() { x.dtype } else { F32 },
                "the type of x, or FLOAT for integers",
            )?;
            mapped_to::<f64>(call, X, OUT, |x, _| {
                if x.is_nan() {
                    x
                } else if x < 0.0 {
                    std::f64::consts::PI
                } else {
                    0.0
                }
            })
        },
    },
    Operator {
        name: "aclnnLogSpace",
        parameters: &[output(RESULT, FLOATING, 1, 1)],
        limits: "result [steps] is base to the powers of steps numbers from start to end, in equal distances; steps at least 0, base \
                 more than 0",
        source: "ops-math math/log_space/docs/aclnnLogSpace.md",
        plan: log_space,
    },
    Operator {
        name: "aclnnInplaceFillDiagonal",
        parameters: &[in_place(SELF_REF, NUMBER, 2, 8)],
        limits: "dims of one extent if there are more than two; wrap continues the diagonal of a matrix with more rows than columns \
                 after an empty row",
        source: "ops-math math/fill_diagonal_v2, aclnnInplaceFillDiagonal (host code)",
        plan: fill_diagonal,
    },
    Operator {
        name: "aclnnUnfoldGrad",
        parameters: &[input(GRAD_OUT, FLOATING, 1, 8), output(GRAD_IN, FLOATING, 0, 8)],
        limits: "gradOut has the dims of gradIn (inputSizes, which may have none), with the windows along dim, and size at the end; dim counts from the \
                 first; size and step above 0; one element type",
        source: "ops-math conversion/unfold_grad, aclnnUnfoldGrad (host code)",
        plan: unfold_grad,
    },
    Operator {
        name: "aclnnRepeatInterleaveGrad",
        parameters: &[
            input(Y_GRAD, FLOATING, 1, 8),
            input(REPEATS_TENSOR, INDEXES, 0, 1),
            output(OUT, FLOATING, 1, 8),
        ],
        limits: "repeats has one number, or one for each index of axis of out; yGrad has the sum of repeats along axis; one element \
                 type",
        source: "ops-nn index/repeat_interleave_grad/docs/aclnnRepeatInterleaveGrad.md",
        plan: repeat_grad,
    },
];

const fn shifted(x: i64, bits: i64, width: i64) -> i64 {
    if bits < 0 || bits >= width { 0 } else { x.wrapping_shl(bits as u32) }
}

/// Reads a tensor, broadcast to the shape of another.
fn spread<L: Lane>(views: &StridedViews<'_>, slot: ViewIndex, target: ViewIndex) -> Vec<L> {
    let mut values = vec![L::default(); views.of(target).len()];
    L::load(&views.of(slot).broadcast_to(views.of(target).dims()).collapsed(), 0, &mut values);
    values
}

fn mapped<L: Lane>(
    call: &OperatorCall,
    x: Name<CheckedTensor>,
    out: Name<CheckedTensor>,
    f: impl Fn(L, AclType) -> L + Send + Sync + 'static,
) -> Result<CallPlan, Refusal> {
    call.expect_type_of(x, &[out])?;
    mapped_to(call, x, out, f)
}

/// The output may have another type.
fn mapped_to<L: Lane>(
    call: &OperatorCall,
    x: Name<CheckedTensor>,
    out: Name<CheckedTensor>,
    f: impl Fn(L, AclType) -> L + Send + Sync + 'static,
) -> Result<CallPlan, Refusal> {
    call.expect_shape(out, &call.tensor(x)?.dims, &format!("of {x}"))?;
    let ([x, out], dtype) = (call.slots_of([x, out])?, call.tensor(x)?.dtype);
    CallPlan::new(move |views, _| {
        views.write(out, &views.read::<L>(x).into_iter().map(|x| f(x, dtype)).collect::<Vec<L>>());
        Ok(())
    })
}

fn log_space(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (start, end) = (call.scalar(START_SCALAR)?.as_f64(), call.scalar(END_SCALAR)?.as_f64());
    let (steps, base) = (call.int_in(STEPS, 0..=i64::MAX)? as usize, call.float(BASE)?);
    call.expect_that(base > 0.0, BASE, "more than 0", base)?;
    call.expect_shape(RESULT, &[steps], "steps elements")?;
    let result = call.slot(RESULT)?;
    CallPlan::new(move |views, _| {
        let distance = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
        let power =
            |at: usize| base.powf(if at > 0 && at + 1 == steps { end } else { start + distance * at as f64 });
        views.write(result, &(0..steps).map(power).collect::<Vec<f64>>());
        Ok(())
    })
}

fn fill_diagonal(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF_REF)?;
    let is_cube = x.rank() == 2 || x.dims.iter().all(|&dim| dim == x.dims[0]);
    call.expect_that(is_cube, SELF_REF, "dims of one extent", &x.dims)?;
    let (value, wraps) = (call.scalar(FILL_VALUE)?, call.flag(WRAP)?);
    let (dims, dtype, slot) = (x.dims.clone(), x.dtype, x.slot);
    CallPlan::new(move |views, _| {
        let columns = dims[dims.len() - 1];
        let step = dims
            .iter()
            .rev()
            .scan(1, |stride, dim| {
                let own = *stride;
                *stride *= dim;
                Some(own)
            })
            .sum::<usize>();
        let length = dims.iter().copied().min().unwrap_or(0);
        let goes_on = wraps && dims.len() == 2 && dims[0] > columns;
        with_lane!(dtype, L => {
            let mut values = views.read::<L>(slot);
            let count = if goes_on { values.len().div_ceil(step) } else { length };
            values.iter_mut().step_by(step).take(count).for_each(|x| *x = value.lane());
            views.write(slot, &values);
        });
        Ok(())
    })
}

/// A number has one window of itself.
fn unfolded_number(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.int_in(DIM, 0..=0)?;
    call.int_in(SIZE_INT, 1..=1)?;
    call.expect_shape(GRAD_OUT, &[1], "one window of one element")?;
    let [grad, out] = call.slots_of([GRAD_OUT, GRAD_IN])?;
    CallPlan::new(move |views, _| {
        views.write(out, &views.read::<f64>(grad));
        Ok(())
    })
}

fn unfold_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(GRAD_OUT, &[GRAD_IN])?;
    let sizes = call.ints(INPUT_SIZES)?;
    let found = &call.tensor(GRAD_IN)?.dims;
    let fits = found.iter().map(|&dim| dim as i64).eq(sizes.iter().copied());
    call.expect_that(fits, INPUT_SIZES, &format!("{found:?} as gradIn has"), sizes)?;
    if found.is_empty() {
        return unfolded_number(call);
    }
    let dim = call.int_in(DIM, 0..=found.len() as i64 - 1)? as usize;
    let [size, step] =
        [call.int_in(SIZE_INT, 1..=i64::MAX)? as usize, call.int_in(STEP_INT, 1..=i64::MAX)? as usize];
    let extent = found[dim];
    call.expect_that(size <= extent, SIZE_INT, &format!("at most {extent}"), size)?;
    let windows = (extent - size) / step + 1;
    let mut expected = found.clone();
    expected[dim] = windows;
    let [outer, inner] = [found[..dim].iter().product::<usize>(), found[dim + 1..].iter().product::<usize>()];
    call.expect_shape(GRAD_OUT, &[&expected[..], &[size]].concat(), "of gradIn with the windows, then size")?;
    let [grad, out] = call.slots_of([GRAD_OUT, GRAD_IN])?;
    CallPlan::new(move |views, _| {
        let grads = views.read::<f64>(grad);
        let mut sums = vec![0f64; views.of(out).len()];
        for (at, grad) in grads.iter().enumerate() {
            let (place, rest) = (at % size, at / size);
            let (behind, window, before) = (rest % inner, rest / inner % windows, rest / inner / windows);
            sums[(before * extent + window * step + place) * inner + behind] += grad;
        }
        debug_assert!(sums.len() == outer * extent * inner);
        views.write(out, &sums);
        Ok(())
    })
}

fn repeat_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(Y_GRAD, &[OUT])?;
    let (grad, out, repeats) = (call.tensor(Y_GRAD)?, call.tensor(OUT)?, call.tensor(REPEATS_TENSOR)?);
    let axis = call.dim(AXIS, out.rank())?;
    let extent = out.dims[axis];
    let mut expected = out.dims.clone();
    expected[axis] = grad.dims.get(axis).copied().unwrap_or(0);
    call.expect_shape(Y_GRAD, &expected, "of out but for axis")?;
    call.expect_that(
        [1, extent].contains(&repeats.len()),
        REPEATS_TENSOR,
        &format!("1 or {extent} numbers"),
        &repeats.dims,
    )?;
    let (total, inner) = (expected[axis], out.dims[axis + 1..].iter().product::<usize>());
    let [grad, repeats, out] = call.slots_of([Y_GRAD, REPEATS_TENSOR, OUT])?;
    CallPlan::new(move |views, _| {
        let counts: Vec<i64> = views.read(repeats);
        let of = |at: usize| counts[if counts.len() == 1 { 0 } else { at }];
        let sources: Vec<usize> = (0..extent).flat_map(|at| vec![at; of(at).max(0) as usize]).collect();
        if sources.len() != total || counts.iter().any(|&count| count < 0) {
            return Err(format!(
                "repeats: expected numbers of at least 0 with the sum {total}, found {counts:?}"
            ));
        }
        let mut sums = vec![0f64; views.of(out).len()];
        for (at, grad) in views.read::<f64>(grad).iter().enumerate() {
            let (behind, place, before) = (at % inner, at / inner % total, at / inner / total);
            sums[(before * extent + sources[place]) * inner + behind] += grad;
        }
        views.write(out, &sums);
        Ok(())
    })
}
