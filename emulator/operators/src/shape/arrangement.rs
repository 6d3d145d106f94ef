//! Selections by position (rolls, flips, padding, repeats), and ranges.

use crate::dtype::AclType;
use crate::elementwise::kernels as elementwise;
use crate::indexing::kernels as index;
use crate::lane::{Arithmetic, Lane, with_lane};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output, outputs};
use crate::operator::sets::{ANY, ARITHMETIC, FLOATING, INDEX64, NUMBER};
use crate::operator::{CallPlan, Refusal, ViewIndex};
use crate::reduction::kernels as reduce;
use crate::shape::remap::{SourcePositions, remap, remap_grad};
use crate::view::StridedView;

/// Pads the last dims.
macro_rules! padded {
    ($name:literal, $types:ident, $border:expr, $dims:literal) => {
        Operator {
            name: $name,
            parameters: &[input(SELF, $types, 2, 5), output(OUT, $types, 2, 5)],
            limits: "padding holds the widths before and after each dim, last dim first; out has the type of self",
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| picked(call, SELF, borders(call, SELF, $border, $dims)?),
        }
    };
}

macro_rules! padded_grad {
    ($name:literal, $border:expr, $dims:literal) => {
        Operator {
            name: $name,
            parameters: &[
                input(GRAD_OUTPUT, FLOATING, 2, 5),
                input(SELF, FLOATING, 2, 5),
                output(GRAD_INPUT, FLOATING, 2, 5),
            ],
            limits: "padding as in the forward operator; gradInput has the shape and type of self",
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| picked_grad(call, GRAD_OUTPUT, GRAD_INPUT, borders(call, SELF, $border, $dims)?),
        }
    };
}

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnChannelShuffle",
        parameters: &[input(SELF, ANY, 3, 7), output(OUT, ANY, 3, 7)],
        limits: "self [N, C, ..], groups above 0 and a divisor of C; channel i of out is channel i / groups of group i % \
                 groups; out has the type and shape of self",
        source: "CANN 8.1 aclnn API reference, aclnnChannelShuffle",
        plan: channel_shuffle,
    },
    Operator {
        name: "aclnnFlip",
        parameters: &[input(SELF, ANY, 0, 8), output(OUT, ANY, 0, 8)],
        limits: "out has the shape and type of self",
        source: "CANN 8.1 aclnn API reference, aclnnFlip",
        plan: flip,
    },
    Operator {
        name: "aclnnRoll",
        parameters: &[input(X, ANY, 0, 8), output(OUT, ANY, 0, 8)],
        limits: "one shift per dim, or without dims one shift of the flattened tensor; out has the shape and type of x",
        source: "CANN 8.1 aclnn API reference, aclnnRoll",
        plan: roll,
    },
    padded!("aclnnReflectionPad1d", ARITHMETIC, Border::Mirror, 1),
    padded!("aclnnReflectionPad2d", ARITHMETIC, Border::Mirror, 2),
    padded!("aclnnReflectionPad3d", ARITHMETIC, Border::Mirror, 3),
    padded!("aclnnReplicationPad1d", ARITHMETIC, Border::Edge, 1),
    padded!("aclnnReplicationPad2d", ARITHMETIC, Border::Edge, 2),
    padded!("aclnnReplicationPad3d", ARITHMETIC, Border::Edge, 3),
    padded_grad!("aclnnReflectionPad1dBackward", Border::Mirror, 1),
    padded_grad!("aclnnReflectionPad2dBackward", Border::Mirror, 2),
    padded_grad!("aclnnReflectionPad3dBackward", Border::Mirror, 3),
    padded_grad!("aclnnReplicationPad1dBackward", Border::Edge, 1),
    padded_grad!("aclnnReplicationPad2dBackward", Border::Edge, 2),
    padded_grad!("aclnnReplicationPad3dBackward", Border::Edge, 3),
    Operator {
        name: "aclnnRepeatInterleaveIntWithDim",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 1, 8)],
        limits: "out has the type of self; its extent along dim is outputSize, repeats times the extent in self",
        source: "CANN 8.1 aclnn API reference, aclnnRepeatInterleaveIntWithDim",
        plan: repeat_along,
    },
    Operator {
        name: "aclnnRepeatInterleaveInt",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 1, 1)],
        limits: "out has the type of self and outputSize elements, repeats times the elements of self",
        source: "CANN 8.1 aclnn API reference, aclnnRepeatInterleaveInt",
        plan: repeat_all,
    },
    Operator {
        name: "aclnnRepeatInterleave",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(REPEATS_TENSOR, INDEX64, 0, 1),
            output(OUT, ARITHMETIC, 1, 1),
        ],
        limits: "repeats has one element, or one per element of self; out has the type of self and outputSize \
                 elements, the sum of all repeats",
        source: "CANN 8.1 aclnn API reference, aclnnRepeatInterleave",
        plan: |call| repeated(call, None),
    },
    Operator {
        name: "aclnnRepeatInterleaveWithDim",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(REPEATS_TENSOR, INDEX64, 0, 1),
            output(OUT, ARITHMETIC, 1, 8),
        ],
        limits: "repeats has one element, or one per index of dim; out has the type of self; its extent along dim is \
                 outputSize, the sum of all repeats",
        source: "CANN 8.1 aclnn API reference, aclnnRepeatInterleaveWithDim",
        plan: |call| repeated(call, Some(call.dim(DIM, call.tensor(SELF)?.rank())?)),
    },
    Operator {
        name: "aclnnRepeatInterleaveTensor",
        parameters: &[input(REPEATS_TENSOR, INDEX64, 1, 1), output(OUT, INDEX64, 1, 1)],
        limits: "out has outputSize elements: each index i occurs repeats[i] times",
        source: "CANN 8.1 aclnn API reference, aclnnRepeatInterleaveTensor",
        plan: repeated_places,
    },
    Operator {
        name: "aclnnSplitWithSize",
        parameters: &[input(SELF, ARITHMETIC, 1, 8), outputs(OUT_LIST, ARITHMETIC, 1, 8)],
        limits: "splitSize lists the extents of the outputs along dim; their sum is the extent of self; the outputs \
                 have the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnSplitWithSize",
        plan: |call| {
            let sizes: Vec<usize> = call.ints(SPLIT_SIZE)?.iter().map(|&size| size.max(0) as usize).collect();
            split(call, &sizes)
        },
    },
    Operator {
        name: "aclnnSplitTensor",
        parameters: &[input(SELF, ANY, 1, 8), outputs(OUT_LIST, ANY, 1, 8)],
        limits: "each output has the extent splitSections along dim, the last one the remainder; the outputs have the \
                 type of self",
        source: "CANN 8.1 aclnn API reference, aclnnSplitTensor",
        plan: |call| {
            let (x, part) = (call.tensor(SELF)?, call.int(SPLIT_SECTIONS)?);
            let extent = x.dims[call.dim(DIM, x.rank())?];
            if part < 1 {
                return Err(call.refuse(SPLIT_SECTIONS, format!("expected at least 1, found {part}")));
            }
            let part = part as usize;
            let count = extent.div_ceil(part).max(1);
            if count != call.tensors(OUT_LIST)?.len() {
                let found = call.tensors(OUT_LIST)?.len();
                return Err(call.refuse(
                    OUT_LIST,
                    format!("expected {count} tensors for {extent} elements, found {found}"),
                ));
            }
            split(call, &(0..count).map(|i| part.min(extent - i * part)).collect::<Vec<_>>())
        },
    },
    Operator {
        name: "aclnnLinspace",
        parameters: &[output(OUT, NUMBER, 1, 1)],
        limits: "out has steps elements",
        source: "CANN 8.1 aclnn API reference, aclnnLinspace",
        plan: linspace,
    },
    Operator {
        name: "aclnnRange",
        parameters: &[output(OUT, NUMBER, 1, 1)],
        limits: "step is not 0 and leads from start to end; end is included if it is reached",
        source: "CANN 8.1 aclnn API reference, aclnnRange",
        plan: range,
    },
    Operator {
        name: "aclnnEye",
        parameters: &[output(OUT, ARITHMETIC, 2, 2)],
        limits: "out is [n, m]",
        source: "CANN 8.1 aclnn API reference, aclnnEye",
        plan: eye,
    },
    Operator {
        name: "aclnnTrace",
        parameters: &[input(SELF, ARITHMETIC, 2, 2), output(OUT, NUMBER, 0, 1)],
        limits: "out has one element, INT64 for integers, else of the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnTrace",
        plan: trace,
    },
];

/// Source position along a dim.
type PickedPosition = Box<dyn Fn(usize) -> usize + Send + Sync>;

/// Positions by rule along named dims, all positions elsewhere. Rules are evaluated when the call
/// runs and memory of that size exists.
pub(crate) struct Selection {
    dims: Vec<usize>,
    along: Vec<(usize, usize, PickedPosition)>,
}

impl Selection {
    pub(crate) fn all_of(dims: &[usize]) -> Self {
        Self { dims: dims.to_vec(), along: Vec::new() }
    }

    /// Returns `count` positions along `dim` of the current selection.
    pub(crate) fn pick(
        &mut self,
        dim: usize,
        count: usize,
        place: impl Fn(usize) -> usize + Send + Sync + 'static,
    ) {
        self.along.push((dim, count, Box::new(place)));
    }

    fn shape(&self) -> Vec<usize> {
        let mut shape = self.dims.clone();
        self.along.iter().for_each(|&(dim, count, _)| shape[dim] = count);
        shape
    }

    fn positions(&self) -> SourcePositions {
        let mut positions: SourcePositions = self.dims.iter().map(|&extent| (0..extent).collect()).collect();
        for (dim, count, place) in &self.along {
            positions[*dim] = (0..*count).map(|at| positions[*dim][place(at)]).collect();
        }
        positions
    }
}

pub(crate) fn picked(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    picks: Selection,
) -> Result<CallPlan, Refusal> {
    let x = call.tensor(name)?;
    call.expect_dtype(OUT, x.dtype, "the type of the input")?;
    call.expect_shape(OUT, &picks.shape(), "of the places")?;
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            remap(tiles, views.of(x), &picks.positions(), views.of(out));
        }
        Ok(())
    })
}

pub(crate) fn picked_grad(
    call: &OperatorCall,
    grad: Name<CheckedTensor>,
    out: Name<CheckedTensor>,
    picks: Selection,
) -> Result<CallPlan, Refusal> {
    let g = call.tensor(grad)?;
    call.expect_dtype(out, g.dtype, "the type of the gradient")?;
    call.expect_shape(grad, &picks.shape(), "of the places")?;
    let (g, out) = (g.slot, call.tensor(out)?.slot);
    CallPlan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            remap_grad(tiles, views.of(g), &picks.positions(), views.of(out));
        }
        Ok(())
    })
}

fn flip(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let mut picks = Selection::all_of(&x.dims);
    for &value in call.ints(DIMS)? {
        let dim = call.dim_of(DIMS, value, x.rank())?;
        if let Some(&extent) = x.dims.get(dim) {
            picks.pick(dim, extent, move |place| extent - 1 - place);
        }
    }
    picked(call, SELF, picks)
}

/// Returns the source position before a shift.
fn rolled(extent: usize, shift: i64) -> impl Fn(usize) -> usize + Send + Sync + 'static {
    let back = extent - shift.checked_rem_euclid(extent as i64).unwrap_or_default() as usize;
    move |place| if place < extent - back { place + back } else { place + back - extent }
}

fn roll(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, shifts, dims) = (call.tensor(X)?, call.ints(SHIFTS)?, call.ints(DIMS)?);
    if dims.is_empty() && shifts.len() == 1 {
        call.expect_shape(OUT, &x.dims, "of x")?;
        call.expect_dtype(OUT, x.dtype, "the type of x")?;
        let (count, place) = (x.len(), rolled(x.len(), shifts[0]));
        let (x, out) = (x.slot, call.tensor(OUT)?.slot);
        return CallPlan::new(move |views, tiles| {
            let places: Vec<usize> = (0..count).map(&place).collect();
            index::take_rows(tiles, views.of(x), &places, views.of(out));
            Ok(())
        });
    }
    if shifts.len() != dims.len() {
        return Err(
            call.refuse(SHIFTS, format!("expected one a dim, {}, found {}", dims.len(), shifts.len()))
        );
    }
    let mut picks = Selection::all_of(&x.dims);
    for (&dim, &shift) in dims.iter().zip(shifts) {
        let dim = call.dim_of(DIMS, dim, x.rank())?;
        if let Some(&extent) = x.dims.get(dim) {
            picks.pick(dim, extent, rolled(extent, shift));
        }
    }
    picked(call, X, picks)
}

#[derive(Clone, Copy, Debug)]
enum Border {
    /// Mirror image, without the edge element.
    Mirror,
    /// The edge element, repeated.
    Edge,
}

fn borders(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    border: Border,
    count: usize,
) -> Result<Selection, Refusal> {
    let (x, padding) = (call.tensor(name)?, call.ints(PADDING)?);
    if padding.len() != 2 * count || x.rank() < count + 1 || x.rank() > count + 2 {
        let text = format!(
            "expected {} numbers for {count} dims after one or two leading dims of {:?}, found {padding:?}",
            2 * count,
            x.dims
        );
        return Err(call.refuse(PADDING, text));
    }
    let mut picks = Selection::all_of(&x.dims);
    for (i, pair) in padding.chunks_exact(2).enumerate() {
        let (dim, before) = (x.rank() - 1 - i, pair[0]);
        let extent = x.dims[dim] as i64;
        let most = match border {
            Border::Mirror => extent - 1,
            Border::Edge => i64::MAX,
        };
        if extent == 0 || pair.iter().any(|&width| width < 0 || width > most) {
            let text = format!("expected borders of 0 to {most} for an extent of {extent}, found {pair:?}");
            return Err(call.refuse(PADDING, text));
        }
        let Some(count) = extent.checked_add(before).and_then(|count| count.checked_add(pair[1])) else {
            return Err(call.refuse(PADDING, format!("{extent} elements with borders of {pair:?} overflow")));
        };
        picks.pick(dim, count as usize, move |place| {
            let at = place as i64 - before;
            let at = match border {
                Border::Edge => at.clamp(0, extent - 1),
                Border::Mirror if at >= extent => 2 * (extent - 1) - at,
                Border::Mirror => at.abs(),
            };
            at as usize
        });
    }
    Ok(picks)
}

fn repeat_along(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, repeats) = (call.tensor(SELF)?, call.int(REPEATS_INT)?);
    if repeats < 0 {
        return Err(call.refuse(REPEATS_INT, format!("expected at least 0, found {repeats}")));
    }
    let dim = call.dim(DIM, x.rank())?;
    let mut picks = Selection::all_of(if x.rank() == 0 { &[1] } else { &x.dims });
    let (extent, size) = (picks.dims[dim], call.int(OUTPUT_SIZE_INT)?);
    if (extent as i64).checked_mul(repeats) != Some(size) {
        let text = format!("expected {extent} elements times {repeats}, found {size}");
        return Err(call.refuse(OUTPUT_SIZE_INT, text));
    }
    let repeats = repeats as usize;
    picks.pick(dim, size as usize, move |place| place / repeats);
    picked(call, SELF, picks)
}

fn repeat_all(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, repeats, size) = (call.tensor(SELF)?, call.int(REPEATS_INT)?, call.int(OUTPUT_SIZE_INT)?);
    if repeats < 0 || (x.len() as i64).checked_mul(repeats) != Some(size) {
        let text = format!("expected {} elements times {repeats}, at least 0, found {size}", x.len());
        return Err(call.refuse(OUTPUT_SIZE_INT, text));
    }
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    call.expect_shape(OUT, &[size as usize], "outputSize")?;
    let (x, out, size, repeats) = (x.slot, call.tensor(OUT)?.slot, size as usize, repeats as usize);
    CallPlan::new(move |views, tiles| {
        let places: Vec<usize> = (0..size).map(|at| at / repeats).collect();
        index::take_rows(tiles, views.of(x), &places, views.of(out));
        Ok(())
    })
}

/// Returns the `count` positions, each repeated as `repeats` says, `size` in total.
fn told_places(repeats: &StridedView, count: usize, size: usize) -> Result<Vec<usize>, String> {
    let mut told = vec![0i64; repeats.len()];
    i64::load(&repeats.collapsed(), 0, &mut told);
    if told.len() == 1 {
        told = vec![told[0]; count];
    }
    let total = told.iter().try_fold(0i64, |sum, &times| sum.checked_add(times).filter(|_| times >= 0));
    if total != Some(size as i64) {
        return Err(format!("repeats: expected numbers of at least 0 with sum {size}, found {told:?}"));
    }
    Ok(told.iter().enumerate().flat_map(|(at, &times)| std::iter::repeat_n(at, times as usize)).collect())
}

/// Repeats by a tensor of counts.
fn repeated(call: &OperatorCall, dim: Option<usize>) -> Result<CallPlan, Refusal> {
    let (x, repeats, size) = (call.tensor(SELF)?, call.tensor(REPEATS_TENSOR)?, call.int(OUTPUT_SIZE_INT)?);
    let mut expected = if dim.is_none() || x.rank() == 0 { vec![x.len()] } else { x.dims.clone() };
    let count = expected[dim.unwrap_or(0)];
    if ![1, count].contains(&repeats.len()) {
        return Err(
            call.refuse(REPEATS_TENSOR, format!("expected 1 or {count} elements, found {:?}", repeats.dims))
        );
    }
    let size = usize::try_from(size)
        .map_err(|_| call.refuse(OUTPUT_SIZE_INT, format!("expected at least 0, found {size}")))?;
    expected[dim.unwrap_or(0)] = size;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    call.expect_shape(OUT, &expected, "outputSize places")?;
    let (dims, x, repeats, out) = (x.dims.clone(), x.slot, repeats.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let places = told_places(views.of(repeats), count, size)?;
        if views.of(out).is_empty() {
            return Ok(());
        }
        match dim.filter(|_| !dims.is_empty()) {
            None => index::take_rows(tiles, views.of(x), &places, views.of(out)),
            Some(dim) => {
                let mut positions: SourcePositions =
                    dims.iter().map(|&extent| (0..extent).collect()).collect();
                positions[dim] = places;
                remap(tiles, views.of(x), &positions, views.of(out));
            }
        }
        Ok(())
    })
}

fn repeated_places(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (repeats, out, size) = (call.tensor(REPEATS_TENSOR)?, call.tensor(OUT)?, call.int(OUTPUT_SIZE_INT)?);
    if out.len() as i64 != size {
        return Err(call.refuse(OUT, format!("expected outputSize {size} elements, found {:?}", out.dims)));
    }
    let (count, size, repeats, out) = (repeats.len(), out.len(), repeats.slot, out.slot);
    CallPlan::new(move |views, _| {
        let places = told_places(views.of(repeats), count, size)?;
        i64::store(
            &views.of(out).collapsed(),
            0,
            &places.iter().map(|&place| place as i64).collect::<Vec<_>>(),
        );
        Ok(())
    })
}

fn split(call: &OperatorCall, sizes: &[usize]) -> Result<CallPlan, Refusal> {
    let (x, outputs) = (call.tensor(SELF)?, call.tensors(OUT_LIST)?);
    let dim = call.dim(DIM, x.rank())?;
    let total = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
    if total != Some(x.dims[dim]) || sizes.len() != outputs.len() {
        let text = format!(
            "expected extents {sizes:?} along dim {dim} of {:?}, found {} tensors",
            x.dims,
            outputs.len()
        );
        return Err(call.refuse(OUT_LIST, text));
    }
    let mut parts: Vec<(usize, usize, ViewIndex)> = Vec::new();
    let mut start = 0;
    for (i, (&size, out)) in sizes.iter().zip(outputs).enumerate() {
        let mut expected = x.dims.clone();
        expected[dim] = size;
        if out.dims != expected || out.dtype != x.dtype {
            let text =
                format!("tensor {i}: expected {} {expected:?}, found {} {:?}", x.dtype, out.dtype, out.dims);
            return Err(call.refuse(OUT_LIST, text));
        }
        parts.push((start, size, out.slot));
        start += size;
    }
    let x = x.slot;
    CallPlan::new(move |views, tiles| {
        for &(start, size, out) in &parts {
            elementwise::copy(tiles, &views.of(x).slice(dim, start, size, 1), views.of(out));
        }
        Ok(())
    })
}

fn linspace(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (start, end, steps) =
        (call.scalar(START_SCALAR)?.as_f64(), call.scalar(END_SCALAR)?.as_f64(), call.int(STEPS)?);
    let out = call.tensor(OUT)?;
    if steps < 0 || out.dims != [steps as usize] {
        return Err(call.refuse(OUT, format!("expected [{steps}], found {:?}", out.dims)));
    }
    let out = out.slot;
    CallPlan::new(move |views, _| {
        let apart = (steps - 1).max(1) as f64;
        // From the nearer end, so that both ends are exact.
        let value = |i: i64| {
            let step = (end - start) / apart;
            if i < steps / 2 { start + i as f64 * step } else { end - (steps - 1 - i) as f64 * step }
        };
        let values: Vec<f64> = (0..steps).map(|i| if steps == 1 { start } else { value(i) }).collect();
        f64::store(&views.of(out).collapsed(), 0, &values);
        Ok(())
    })
}

fn range(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (start, end, step) =
        (call.scalar(START_SCALAR)?, call.scalar(END_SCALAR)?, call.scalar(STEP_SCALAR)?);
    let all_whole = [start, end, step].iter().all(|scalar| !scalar.dtype().is_float());
    // 64-bit integers exceed f64.
    let steps = if all_whole && step.as_i64() != 0 {
        let apart = i128::from(end.as_i64()) - i128::from(start.as_i64());
        if apart != 0 && (apart < 0) != (step.as_i64() < 0) { -1 } else { apart / i128::from(step.as_i64()) }
    } else {
        let steps = (end.as_f64() - start.as_f64()) / step.as_f64();
        if steps >= 0.0 { steps as i128 } else { -1 }
    };
    if !(0..i128::from(i64::MAX)).contains(&steps) {
        let text = format!("{} does not lead from {} to {}", step.as_f64(), start.as_f64(), end.as_f64());
        return Err(call.refuse(STEP_SCALAR, text));
    }
    let (out, count) = (call.tensor(OUT)?, steps as usize + 1);
    if out.dims != [count] {
        return Err(call.refuse(OUT, format!("expected [{count}], found {:?}", out.dims)));
    }
    let out = out.slot;
    CallPlan::new(move |views, _| {
        let out = views.of(out).collapsed();
        if all_whole {
            let value = |i: i64| start.as_i64().wrapping_add(i.wrapping_mul(step.as_i64()));
            i64::store(&out, 0, &(0..count as i64).map(value).collect::<Vec<_>>());
        } else {
            let value = |i: usize| start.as_f64() + i as f64 * step.as_f64();
            f64::store(&out, 0, &(0..count).map(value).collect::<Vec<_>>());
        }
        Ok(())
    })
}

fn eye(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (n, m) = (call.int(N_INT)?.max(0) as usize, call.int(M_INT)?.max(0) as usize);
    call.expect_shape(OUT, &[n, m], "n and m")?;
    let out = call.tensor(OUT)?.slot;
    CallPlan::new(move |views, _| {
        let out = views.of(out).collapsed();
        let values: Vec<i64> = (0..n * m).map(|at| i64::from(at / m == at % m)).collect();
        i64::store(&out, 0, &values);
        Ok(())
    })
}

fn trace(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, out) = (call.tensor(SELF)?, call.tensor(OUT)?);
    let computed = if x.dtype.is_float() { x.dtype } else { AclType::I64 };
    call.expect_dtype(OUT, computed, "of a sum of self")?;
    if out.len() != 1 {
        return Err(call.refuse(OUT, format!("expected one element, found {:?}", out.dims)));
    }
    let (columns, count) = (x.dims[1], x.dims[0].min(x.dims[1]));
    let (x, out) = (x.slot, out.slot);
    CallPlan::new(move |views, tiles| {
        with_lane!(computed, L => {
            let x = views.of(x);
            reduce::each_row::<L>(tiles, x, x.len(), views.of(out), |values| {
                (0..count).fold(L::default(), |sum, i| sum.plus(values[i * columns + i]))
            });
        });
        Ok(())
    })
}

fn channel_shuffle(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_type_of(SELF, &[OUT])?;
    call.expect_shape(OUT, &x.dims, "of self")?;
    let (groups, channels) = (call.int_in(GROUPS, 1..=i64::MAX)? as usize, x.dims[1]);
    call.expect_that(channels.is_multiple_of(groups), GROUPS, &format!("a divisor of {channels}"), groups)?;
    let [x, out] = call.slots_of([SELF, OUT])?;
    CallPlan::new(move |views, tiles| {
        let grouped = views.of(x).split(1, groups, channels / groups);
        let mut order: Vec<usize> = (0..grouped.rank()).collect();
        order.swap(1, 2);
        elementwise::copy(
            tiles,
            &grouped.permute(&order),
            &views.of(out).split(1, channels / groups, groups),
        );
        Ok(())
    })
}
