//! Reductions of ONNX: extrema of lists, sums with options, logarithms, pools of whole planes.
//!
//! Computed in f64 and rounded once.

use crate::dtype::AclType::{self, BF16, F16, F32, F64, I8, I32, I64, U8};
use crate::lane::Lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::{OperatorCall, broadcast};
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, inputs, ints, output};
use crate::operator::sets::{FLOATING, NUMBER, WHOLE32};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};
use crate::reduction::kernels::with_trailing;
use crate::reduction::rows::{dims, reduced_len, reduced_shape, refuse_empty};

const COMPARED: &[AclType] = &[F32, F16, BF16, F64, I32, I64, I8, U8];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMaxN",
        parameters: &[inputs(TENSORS, COMPARED, 0, 8), output(OUT, COMPARED, 0, 8)],
        limits: "tensors of one type, which broadcast to out; NaN is the largest",
        source: "CANN 8.1 aclnn API reference, aclnnMaxN",
        plan: |call| extremum(call, |a, b| if a.is_nan() || a > b { a } else { b }),
    },
    Operator {
        name: "aclnnMinN",
        parameters: &[inputs(TENSORS, COMPARED, 0, 8), output(OUT, COMPARED, 0, 8)],
        limits: "tensors of one type, which broadcast to out; NaN is the smallest",
        source: "CANN 8.1 aclnn API reference, aclnnMinN",
        plan: |call| extremum(call, |a, b| if a.is_nan() || a < b { a } else { b }),
    },
    Operator {
        name: "aclnnMaxV2",
        parameters: &[input(SELF, COMPARED, 0, 8), output(OUT, COMPARED, 0, 8)],
        limits: "without dims all, or with noopWithEmptyDims none; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnMaxV2",
        plan: |call| {
            refuse_empty(call, call.tensor(SELF)?, &dims(call, DIMS, call.tensor(SELF)?.rank())?)?;
            let of = Reduced { x: SELF, dims: DIMS, keep: KEEP_DIMS, noop: NOOP_WITH_EMPTY_DIMS, out: OUT };
            of.plan(call, |row| {
                row.iter().copied().fold(f64::NEG_INFINITY, |a, b| if a.is_nan() || a > b { a } else { b })
            })
        },
    },
    Operator {
        name: "aclnnMeanV2",
        parameters: &[input(SELF, FLOATING, 0, 8), ints(DIM_ARRAY).optional(), output(OUT, FLOATING, 0, 8)],
        limits: "without dim all, or with noopWithEmptyAxes none; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnMeanV2",
        plan: |call| {
            let of =
                Reduced { x: SELF, dims: DIM_ARRAY, keep: KEEP_DIM, noop: NOOP_WITH_EMPTY_AXES, out: OUT };
            of.plan(call, |row| row.iter().sum::<f64>() / row.len() as f64)
        },
    },
    Operator {
        name: "aclnnReduceLogSum",
        parameters: &[
            input(DATA, FLOATING, 0, 8),
            ints(AXES).optional(),
            output(REDUCE_TENSOR, FLOATING, 0, 8),
        ],
        limits: "the logarithm of the sum; without axes of all, or with noopWithEmptyAxes of each element; reduce has the type of data",
        source: "CANN 8.1 aclnn API reference, aclnnReduceLogSum",
        plan: |call| {
            let of = Reduced {
                x: DATA,
                dims: AXES,
                keep: KEEP_DIMS,
                noop: NOOP_WITH_EMPTY_AXES,
                out: REDUCE_TENSOR,
            };
            of.plan(call, |row| row.iter().sum::<f64>().ln())
        },
    },
    Operator {
        name: "aclnnCumsumV2",
        parameters: &[input(SELF, NUMBER, 0, 8), output(OUT, NUMBER, 0, 8)],
        limits: "exclusive sums what is before an element, reverse from the end; out has the shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnCumsumV2",
        plan: |call| {
            call.expect_type_of(SELF, &[OUT])?;
            let (is_exclusive, is_reverse) = (call.flag(EXCLUSIVE)?, call.flag(REVERSE)?);
            let dim = call.dim(DIM, call.tensor(SELF)?.rank())?;
            running(call, [SELF, OUT], dim, move |row| {
                let mut total = 0.0;
                let mut step = |x: &mut f64| {
                    let before = total;
                    total += *x;
                    *x = if is_exclusive { before } else { total };
                };
                if is_reverse {
                    row.iter_mut().rev().for_each(&mut step);
                } else {
                    row.iter_mut().for_each(step);
                }
            })
        },
    },
    Operator {
        name: "aclnnInplaceCumprod",
        parameters: &[in_place(INPUT, NUMBER, 0, 8)],
        limits: "input becomes its products along dim",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceCumprod",
        plan: |call| {
            let dim =
                call.dim_of(DIM_SCALAR, call.scalar(DIM_SCALAR)?.as_i64(), call.tensor(INPUT)?.rank())?;
            running(call, [INPUT, INPUT], dim, |row| {
                let mut product = 1.0;
                row.iter_mut().for_each(|x| {
                    product *= *x;
                    *x = product;
                });
            })
        },
    },
    Operator {
        name: "aclnnGlobalAveragePool",
        parameters: &[input(SELF, FLOATING, 3, 8), output(OUT, FLOATING, 3, 8)],
        limits: "self [N, C, ..], out [N, C, 1, ..] of the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnGlobalAveragePool",
        plan: |call| pooled(call, |plane| plane.iter().sum::<f64>() / plane.len() as f64),
    },
    Operator {
        name: "aclnnGlobalMaxPool",
        parameters: &[input(SELF, FLOATING, 3, 8), output(OUT, FLOATING, 3, 8)],
        limits: "self [N, C, ..], out [N, C, 1, ..] of the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnGlobalMaxPool",
        plan: |call| pooled(call, |plane| plane.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    },
    Operator {
        name: "aclnnGroupedBiasAddGrad",
        parameters: &[
            input(GRAD_Y, FLOATING, 2, 3),
            input(GROUP_IDX_OPTIONAL, WHOLE32, 1, 1).optional(),
            output(OUT, FLOATING, 2, 2),
        ],
        limits: "out [G, H] of the type of gradY; gradY [G, C, H], or [rows, H] with groupIdxOptional [G], the ends of the groups",
        source: "CANN 8.1 aclnn API reference, aclnnGroupedBiasAddGrad",
        plan: bias_grad,
    },
];

/// Values of a tensor that broadcasts to another one.
fn spread(views: &StridedViews<'_>, slot: ViewIndex, target: ViewIndex) -> Vec<f64> {
    let view = views.of(slot).broadcast_to(views.of(target).dims());
    let mut values = vec![0f64; view.len()];
    f64::load(&view, 0, &mut values);
    values
}

fn extremum(call: &OperatorCall, better: fn(f64, f64) -> f64) -> Result<CallPlan, Refusal> {
    let (tensors, out) = (call.tensors(TENSORS)?, call.tensor(OUT)?);
    call.expect_that(!tensors.is_empty(), TENSORS, "at least one tensor", 0)?;
    let mut shape = Vec::new();
    for tensor in tensors {
        call.expect_that(tensor.dtype == out.dtype, TENSORS, &format!("{} as out", out.dtype), tensor.dtype)?;
        shape = broadcast(&shape, &tensor.dims).ok_or_else(|| {
            call.refuse(TENSORS, format!("{:?} does not broadcast with {shape:?}", tensor.dims))
        })?;
    }
    call.expect_shape(OUT, &shape, "to which the tensors broadcast")?;
    let (slots, out) = (tensors.iter().map(|tensor| tensor.slot).collect::<Vec<_>>(), out.slot);
    CallPlan::new(move |views, _| {
        let mut found = spread(views, slots[0], out);
        for &slot in &slots[1..] {
            found.iter_mut().zip(spread(views, slot, out)).for_each(|(found, x)| *found = better(*found, x));
        }
        views.write(out, &found);
        Ok(())
    })
}

/// Parameters of a reduction.
struct Reduced {
    x: Name<CheckedTensor>,
    dims: Name<[i64]>,
    keep: Name<bool>,
    noop: Name<bool>,
    out: Name<CheckedTensor>,
}

impl Reduced {
    fn plan(
        self,
        call: &OperatorCall,
        reduce: impl Fn(&[f64]) -> f64 + Send + Sync + 'static,
    ) -> Result<CallPlan, Refusal> {
        call.expect_type_of(self.x, &[self.out])?;
        let x = call.tensor(self.x)?;
        let is_empty = call.ints_if_given(self.dims)?.unwrap_or_default().is_empty();
        let over =
            if is_empty && call.flag(self.noop)? { Vec::new() } else { dims(call, self.dims, x.rank())? };
        let shape = reduced_shape(&x.dims, &over, call.flag(self.keep)?);
        call.expect_shape_or_one(self.out, &shape, "without the reduced dims")?;
        let (count, [x, out]) = (reduced_len(&x.dims, &over), call.slots_of([self.x, self.out])?);
        CallPlan::new(move |views, _| {
            let view = with_trailing(views.of(x), &over);
            let mut values = vec![0f64; view.len()];
            f64::load(&view, 0, &mut values);
            let results = if count == 0 {
                vec![reduce(&[]); views.of(out).len()]
            } else {
                values.chunks_exact(count).map(&reduce).collect()
            };
            views.write(out, &results);
            Ok(())
        })
    }
}

/// Changes each row along a dim.
fn running(
    call: &OperatorCall,
    [x, out]: [Name<CheckedTensor>; 2],
    dim: usize,
    change: impl Fn(&mut [f64]) + Send + Sync + 'static,
) -> Result<CallPlan, Refusal> {
    let dims = &call.tensor(x)?.dims;
    call.expect_shape(out, dims, &format!("of {x}"))?;
    let (len, inner) = (dims.get(dim).copied().unwrap_or(1), dims.iter().skip(dim + 1).product::<usize>());
    let [x, out] = call.slots_of([x, out])?;
    CallPlan::new(move |views, _| {
        let mut values = views.read::<f64>(x);
        for block in values.chunks_exact_mut((len * inner).max(1)) {
            for i in 0..inner {
                let mut row: Vec<f64> = block.iter().skip(i).step_by(inner).copied().collect();
                change(&mut row);
                block.iter_mut().skip(i).step_by(inner).zip(row).for_each(|(x, new)| *x = new);
            }
        }
        views.write(out, &values);
        Ok(())
    })
}

fn pooled(
    call: &OperatorCall,
    pool: impl Fn(&[f64]) -> f64 + Send + Sync + 'static,
) -> Result<CallPlan, Refusal> {
    call.expect_type_of(SELF, &[OUT])?;
    call.expect_elements(&[SELF])?;
    let dims = &call.tensor(SELF)?.dims;
    let ones = vec![1; dims.len() - 2];
    call.expect_shape(OUT, &[&dims[..2], &ones].concat(), "of self with 1 for the pooled dims")?;
    let (plane, [x, out]) = (dims[2..].iter().product(), call.slots_of([SELF, OUT])?);
    CallPlan::new(move |views, _| {
        views.write(out, &views.read::<f64>(x).chunks_exact(plane).map(&pool).collect::<Vec<f64>>());
        Ok(())
    })
}

fn bias_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(GRAD_Y, &[OUT])?;
    let ends = call.slot_if_given(GROUP_IDX_OPTIONAL)?;
    let shape = GRAD_Y.of(if ends.is_some() { "rh" } else { "gch" });
    let sizes = call.sizes(&[shape, OUT.of("gh"), GROUP_IDX_OPTIONAL.of("g")])?;
    let [groups, width] = sizes.all(['g', 'h']);
    let rows = if ends.is_some() { sizes.of('r') } else { groups * sizes.of('c') };
    let [grad, out] = call.slots_of([GRAD_Y, OUT])?;
    CallPlan::new(move |views, _| {
        let grad = views.read::<f64>(grad);
        let even = || (1..=groups).map(|group| (group * rows / groups) as i64).collect();
        let ends = views.read_given::<i64>(ends).unwrap_or_else(even);
        let is_legal = ends.is_sorted() && ends.iter().all(|&end| 0 <= end && end <= rows as i64);
        if !is_legal {
            return Err(format!("groupIdxOptional: expected ends that ascend to {rows}, found {ends:?}"));
        }
        let mut sums = vec![0f64; groups * width];
        let mut start = 0;
        for (sum, &end) in sums.chunks_exact_mut(width.max(1)).zip(&ends) {
            for row in grad[start * width..end as usize * width].chunks_exact(width.max(1)) {
                sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
            start = end as usize;
        }
        views.write(out, &sums);
        Ok(())
    })
}
