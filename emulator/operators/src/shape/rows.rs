//! Operators that move elements, or compute them from positions.

use crate::dtype::AclType::{self, BF16, Bool, C64, F16, F32, F64, I8, I16, I32, I64, U8};
use crate::elementwise::kernels as elementwise;
use crate::lane::{Lane, with_lane};
use crate::operator::argument::Scalar;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, inputs, output};
use crate::operator::sets::{ANY, ARITHMETIC, COMMON, RANGE};
use crate::operator::{CallPlan, Refusal, ViewIndex};
use crate::view::StridedView;

const PADDED: &[AclType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, Bool, C64];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnCat",
        parameters: &[inputs(TENSORS, ARITHMETIC, 1, 8), output(OUT, ARITHMETIC, 1, 8)],
        limits: "at least one tensor; equal extents except along dim; out can store the common type",
        source: "ops-math conversion/concat_d/docs/aclnnCat.md",
        plan: cat,
    },
    Operator {
        name: "aclnnPermute",
        parameters: &[input(SELF, ANY, 0, 8), output(OUT, ANY, 0, 8)],
        limits: "dims is a permutation; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnPermute",
        plan: permute,
    },
    Operator {
        name: "aclnnSlice",
        parameters: &[input(SELF, COMMON, 1, 8), output(OUT, COMMON, 1, 8)],
        limits: "step above 0; negative start and end count from the end, and both are clamped to the dim; out has the \
                 type of self",
        source: "CANN 8.1 aclnn API reference, aclnnSlice",
        plan: slice,
    },
    Operator {
        name: "aclnnRepeat",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "at least one repeat per dim, more add leading dims; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnRepeat",
        plan: repeat,
    },
    Operator {
        name: "aclnnExpand",
        parameters: &[input(SELF, COMMON, 0, 8), output(OUT, COMMON, 0, 8)],
        limits: "self broadcasts to size, where -1 keeps an extent; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnExpand",
        plan: expand,
    },
    Operator {
        name: "aclnnConstantPadNd",
        parameters: &[input(SELF, PADDED, 1, 8), output(OUT, PADDED, 1, 8)],
        limits: "pairs (before, after) from the last dim on; a negative pad crops; no extent below 0; out has the type \
                 of self; the value of COMPLEX64 is real",
        source: "CANN 8.1 aclnn API reference, aclnnConstantPadNd",
        plan: pad,
    },
    Operator {
        name: "aclnnArange",
        parameters: &[output(OUT, RANGE, 1, 8)],
        limits: "step is not 0 and leads towards end; out has ceil((end - start) / step) elements in any dims",
        source: "CANN 8.1 aclnn API reference, aclnnArange",
        plan: arange,
    },
    Operator {
        name: "aclnnTriu",
        parameters: &[input(SELF, ARITHMETIC, 2, 8), output(OUT, ARITHMETIC, 2, 8)],
        limits: "out has shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnTriu",
        plan: |call| triangle(call, DiagonalSide::Upper),
    },
    Operator {
        name: "aclnnTril",
        parameters: &[input(SELF, ARITHMETIC, 2, 8), output(OUT, ARITHMETIC, 2, 8)],
        limits: "out has shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnTril",
        plan: |call| triangle(call, DiagonalSide::Lower),
    },
];

fn copied(
    call: &OperatorCall,
    source: impl Fn(&StridedView) -> StridedView + Send + Sync + 'static,
    target: impl Fn(&StridedView) -> StridedView + Send + Sync + 'static,
) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            elementwise::copy(tiles, &source(views.of(x)), &target(views.of(out)));
        }
        Ok(())
    })
}

fn cat(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let tensors = call.tensors(TENSORS)?;
    let Some(first) = tensors.first() else {
        return Err(call.refuse(TENSORS, "expected at least one tensor, found an empty list"));
    };
    let dim = call.dim(DIM, first.rank())?;
    let (mut expected, mut common) = (first.dims.clone(), first.dtype);
    expected[dim] = 0;
    let mut parts: Vec<(ViewIndex, usize)> = Vec::with_capacity(tensors.len());
    for (i, tensor) in tensors.iter().enumerate() {
        let matches = tensor.rank() == first.rank()
            && (0..first.rank()).all(|d| d == dim || tensor.dims[d] == first.dims[d]);
        if !matches {
            let text = format!(
                "tensor {i} is {:?}, tensor 0 is {:?}: only dim {dim} may differ",
                tensor.dims, first.dims
            );
            return Err(call.refuse(TENSORS, text));
        }
        common = common.promote(tensor.dtype).ok_or_else(|| {
            call.refuse(
                TENSORS,
                format!("tensor {i} of type {} has no common type with {common}", tensor.dtype),
            )
        })?;
        expected[dim] += tensor.dims[dim];
        parts.push((tensor.slot, tensor.dims[dim]));
    }
    call.expect_shape(OUT, &expected, "of the tensors, concatenated along dim")?;
    call.expect_cast(OUT, common)?;
    let out = call.tensor(OUT)?.slot;
    CallPlan::new(move |views, tiles| {
        let mut start = 0;
        for &(slot, len) in &parts {
            elementwise::copy(tiles, views.of(slot), &views.of(out).slice(dim, start, len, 1));
            start += len;
        }
        Ok(())
    })
}

fn permute(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let order = call.ints(DIMS)?;
    let mut dims = Vec::with_capacity(order.len());
    for &value in order {
        dims.push(call.dim_of(DIMS, value, x.rank())?);
    }
    if dims.len() != x.rank() || (0..x.rank()).any(|dim| !dims.contains(&dim)) {
        return Err(
            call.refuse(DIMS, format!("expected a permutation of {} dims, found {order:?}", x.rank()))
        );
    }
    let expected: Vec<usize> = dims.iter().map(|&dim| x.dims[dim]).collect();
    call.expect_shape(OUT, &expected, "of self in the order of dims")?;
    copied(call, move |x| x.permute(&dims), StridedView::clone)
}

fn slice(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dim = call.dim(DIM, x.rank())?;
    let extent = x.dims[dim] as i64;
    let step = call.int(STEP_INT)?;
    if step <= 0 {
        return Err(call.refuse(STEP, format!("expected a step above 0, found {step}")));
    }
    let bound = |value: i64| if value < 0 { value.saturating_add(extent) } else { value }.clamp(0, extent);
    let start = bound(call.int(START)?);
    let end = bound(call.int(END_INT)?).max(start);
    let count = ((end - start) as usize).div_ceil(step as usize);
    let mut expected = x.dims.clone();
    expected[dim] = count;
    call.expect_shape(OUT, &expected, "of self with the elements of the slice along dim")?;
    copied(call, move |x| x.slice(dim, start as usize, count, step as usize), StridedView::clone)
}

fn repeat(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let repeats = call.ints(REPEATS)?;
    if repeats.len() < x.rank() || repeats.len() > 8 || repeats.iter().any(|&times| times < 0) {
        let text = format!("expected {} to 8 numbers of at least 0, found {repeats:?}", x.rank());
        return Err(call.refuse(REPEATS, text));
    }
    let missing = repeats.len() - x.rank();
    let dims: Vec<usize> = std::iter::repeat_n(1, missing).chain(x.dims.iter().copied()).collect();
    let times: Vec<usize> = repeats.iter().map(|&times| times as usize).collect();
    let expected: Vec<usize> = dims.iter().zip(&times).map(|(dim, times)| dim * times).collect();
    call.expect_shape(OUT, &expected, "of self times repeats")?;
    // Output dims become [times, extent]; the input repeats along the first.
    let mut lifted = Vec::with_capacity(2 * dims.len());
    for (&times, &dim) in times.iter().zip(&dims) {
        lifted.extend([times, dim]);
    }
    let rank = x.rank();
    copied(
        call,
        move |x| {
            let mut view = x.clone();
            for dim in (0..rank).rev() {
                view = view.unsqueeze(dim);
            }
            view.broadcast_to(&lifted)
        },
        move |out| {
            (0..dims.len()).rev().fold(out.clone(), |view, dim| view.split(dim, times[dim], dims[dim]))
        },
    )
}

fn expand(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let size = call.ints(SIZE)?;
    let refuse = || call.refuse(SIZE, format!("self {:?} does not expand to {size:?}", x.dims));
    let missing = size.len().checked_sub(x.rank()).ok_or_else(refuse)?;
    let mut expected = Vec::with_capacity(size.len());
    for (i, &value) in size.iter().enumerate() {
        let own = i.checked_sub(missing).map(|i| x.dims[i]);
        expected.push(match (value, own) {
            (-1, Some(own)) => own,
            (value, None | Some(1)) if value >= 0 => value as usize,
            (value, Some(own)) if value == own as i64 => own,
            _ => return Err(refuse()),
        });
    }
    call.expect_shape(OUT, &expected, "the attribute size")?;
    copied(call, StridedView::clone, StridedView::clone)
}

fn pad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let value = call.scalar(VALUE_SCALAR)?.stored_as(x.dtype);
    let pads = call.ints(PAD)?;
    if !pads.len().is_multiple_of(2) || pads.len() > 2 * x.rank() {
        return Err(call.refuse(PAD, format!("expected up to {} pairs, found {pads:?}", x.rank())));
    }
    let mut expected = x.dims.clone();
    // Per dim: first source, first target, count.
    let mut windows: Vec<(usize, usize, usize)> = x.dims.iter().map(|&dim| (0, 0, dim)).collect();
    for (pair, bounds) in pads.chunks(2).enumerate() {
        let dim = x.rank() - 1 - pair;
        let (before, after, extent) = (bounds[0], bounds[1], x.dims[dim] as i64);
        let total = before.saturating_add(after).saturating_add(extent);
        expected[dim] = usize::try_from(total)
            .map_err(|_| call.refuse(PAD, format!("dim {dim} of extent {extent} would become {total}")))?;
        let taken = (extent + before.min(0) + after.min(0)).max(0);
        windows[dim] = ((-before).max(0) as usize, before.max(0) as usize, taken as usize);
    }
    call.expect_shape(OUT, &expected, "of self with the pads added")?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    let (x, out, dtype) = (x.slot, call.tensor(OUT)?.slot, x.dtype);
    CallPlan::new(move |views, tiles| {
        if dtype == C64 {
            elementwise::fill_complex(tiles, views.of(out), value.as_f64());
        } else {
            with_lane!(dtype, L => elementwise::fill(tiles, views.of(out), value.lane::<L>()));
        }
        let (mut source, mut target) = (views.of(x).clone(), views.of(out).clone());
        for (dim, &(from, to, len)) in windows.iter().enumerate() {
            source = source.slice(dim, from, len, 1);
            target = target.slice(dim, to, len, 1);
        }
        elementwise::copy(tiles, &source, &target);
        Ok(())
    })
}

fn arange(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (start, end, step) =
        (call.scalar(START_SCALAR)?, call.scalar(END_SCALAR)?, call.scalar(STEP_SCALAR)?);
    let whole = [start, end, step].iter().all(|value| matches!(value, Scalar::Int(..)));
    let distance = end.as_f64() - start.as_f64();
    if step.as_f64() == 0.0 || distance / step.as_f64() < 0.0 {
        let text = format!("{} does not lead from {} to {}", step.as_f64(), start.as_f64(), end.as_f64());
        return Err(call.refuse(STEP, text));
    }
    let count = (distance / step.as_f64()).ceil() as usize;
    let tensor = call.tensor(OUT)?;
    if tensor.len() != count {
        let text = format!("expected ceil((end - start) / step) elements, {count}, found {:?}", tensor.dims);
        return Err(call.refuse(OUT, text));
    }
    if !whole && !tensor.dtype.is_float() {
        return Err(call.refuse(OUT, format!("{} cannot hold a range of fractions", tensor.dtype)));
    }
    let out = tensor.slot;
    CallPlan::new(move |views, tiles| {
        let out = views.of(out);
        let target = out.collapsed();
        elementwise::blocks(tiles, out.len(), &|first, len| {
            // From the position, so that each element is rounded once.
            if whole {
                let value = |i: usize| start.as_i64() + (first + i) as i64 * step.as_i64();
                i64::store(&target, first, &(0..len).map(value).collect::<Vec<_>>());
            } else {
                let value = |i: usize| start.as_f64() + (first + i) as f64 * step.as_f64();
                f64::store(&target, first, &(0..len).map(value).collect::<Vec<_>>());
            }
        });
        Ok(())
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiagonalSide {
    Upper,
    Lower,
}

fn triangle(call: &OperatorCall, part: DiagonalSide) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let diagonal = call.int(DIAGONAL)?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    let (rows, cols) = (x.dims[x.rank() - 2], x.dims[x.rank() - 1]);
    let (slot, out, dtype): (ViewIndex, ViewIndex, AclType) = (x.slot, call.tensor(OUT)?.slot, x.dtype);
    CallPlan::new(move |views, tiles| {
        let (x, out) = (views.of(slot).collapsed(), views.of(out).collapsed());
        let count = x.len().checked_div(cols).unwrap_or(0);
        with_lane!(dtype, L => crate::reduction::kernels::rows(tiles, count, cols, &|row| {
            let mut line = vec![L::default(); cols];
            L::load(&x, row * cols, &mut line);
            // Diagonal j - i.
            let kept = (row % rows) as i64;
            for (j, value) in line.iter_mut().enumerate() {
                let place = (j as i64).saturating_sub(kept);
                let keep = if part == DiagonalSide::Upper { place >= diagonal } else { place <= diagonal };
                *value = if keep { *value } else { L::default() };
            }
            L::store(&out, row * cols, &line);
        }));
        Ok(())
    })
}
