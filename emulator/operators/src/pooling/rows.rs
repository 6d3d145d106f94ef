//! Rows of pooling over the last two or three dims.

use crate::lane::Lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output, text};
use crate::operator::sets::{BYTES, FLOATING, HALF_OR_SINGLE, INDEXES, WHOLE32};
use crate::operator::{CallPlan, Refusal, ViewIndex};
use crate::pooling::kernels as window;
use crate::pooling::windows::{Divisor, PoolWindow, PoolWindows, WindowRule, per_dim};
use crate::view::StridedView;

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMaxPool2dWithMask",
        parameters: &[
            input(SELF, FLOATING, 3, 4),
            output(OUT, FLOATING, 3, 4),
            output(INDICES, BYTES, 3, 4).contiguous(),
        ],
        limits: "dilation 1; padding at most half a window; per plane, indices has product of kernelSize rows of 32 (1 \
                 + windows / 16, rounded up) bytes; the first bytes hold the positions in the planes as INT32, unless \
                 a window has one element",
        source: "ops-nn pooling/max_pool3d_with_argmax_v2/docs/aclnnMaxPool2dWithMask.md",
        plan: |call| greatest(call, sliding_greatest(call, 2, OUT)?, OUT, IndexLayout::Packed),
    },
    Operator {
        name: "aclnnMaxPool2dWithMaskBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 4),
            input(SELF, FLOATING, 3, 4),
            input(INDICES, BYTES, 3, 4).contiguous(),
            output(GRAD_INPUT, FLOATING, 3, 4),
        ],
        limits: "as aclnnMaxPool2dWithMask, with its indices; gradOutput has the shape of the forward output, \
                 gradInput of self",
        source: "CANN 8.1 aclnn API reference, aclnnMaxPool2dWithMaskBackward",
        plan: |call| greatest_grad(call, sliding_greatest(call, 2, GRAD_OUTPUT)?, IndexLayout::Packed),
    },
    Operator {
        name: "aclnnMaxPool2dWithIndices",
        parameters: &[
            input(SELF, FLOATING, 3, 4),
            output(OUT, FLOATING, 3, 4),
            output(INDICES, INDEXES, 3, 4),
        ],
        limits: "dilation 1; padding at most half a window; indices has the shape of out",
        source: "CANN 8.1 aclnn API reference, aclnnMaxPool2dWithIndices",
        plan: |call| greatest(call, sliding_greatest(call, 2, OUT)?, OUT, IndexLayout::Plain),
    },
    Operator {
        name: "aclnnMaxPool2dWithIndicesBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 4),
            input(SELF, FLOATING, 3, 4),
            input(INDICES, INDEXES, 3, 4),
            output(GRAD_INPUT, FLOATING, 3, 4),
        ],
        limits: "as aclnnMaxPool2dWithIndices, with its indices; gradOutput has the shape of the forward output, \
                 gradInput of self",
        source: "CANN 8.1 aclnn API reference, aclnnMaxPool2dWithIndicesBackward",
        plan: |call| greatest_grad(call, sliding_greatest(call, 2, GRAD_OUTPUT)?, IndexLayout::Plain),
    },
    Operator {
        name: "aclnnAvgPool2d",
        parameters: &[input(SELF, FLOATING, 3, 4), output(OUT, FLOATING, 3, 4)],
        limits: "format NCHW, or NCL for three dims, with channels; padding at most half a window; divisorOverride 0 \
                 means none; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAvgPool2d",
        plan: |call| {
            let plan = mean(call, sliding(call, 2, STRIDES, PADDINGS)?, planes_divisor(call)?)?;
            expect_planes(call, &[SELF, OUT]).map(|()| plan)
        },
    },
    Operator {
        name: "aclnnAvgPool2dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 4),
            input(SELF, FLOATING, 3, 4),
            output(GRAD_INPUT, FLOATING, 3, 4),
        ],
        limits: "as aclnnAvgPool2d; gradOutput has the shape of the forward output, gradInput of self",
        source: "CANN 8.1 aclnn API reference, aclnnAvgPool2dBackward",
        plan: |call| {
            let plan =
                mean_grad(call, GRAD_INPUT, sliding(call, 2, STRIDE, PADDING)?, planes_divisor(call)?)?;
            expect_planes(call, &[GRAD_OUTPUT, SELF, GRAD_INPUT]).map(|()| plan)
        },
    },
    Operator {
        name: "aclnnAdaptiveAvgPool2d",
        parameters: &[input(SELF, FLOATING, 3, 4), output(OUT, FLOATING, 3, 4)],
        limits: "outputSize has the extents of the last two dims; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAdaptiveAvgPool2d",
        plan: |call| mean(call, adaptive(call, 2)?, Divisor::Covered),
    },
    Operator {
        name: "aclnnAdaptiveAvgPool2dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 4),
            input(SELF, FLOATING, 3, 4),
            output(OUT, FLOATING, 3, 4),
        ],
        limits: "gradOutput has the shape of the out of aclnnAdaptiveAvgPool2d, out of self",
        source: "CANN 8.1 aclnn API reference, aclnnAdaptiveAvgPool2dBackward",
        plan: |call| mean_grad(call, OUT, adaptive_as(call, 2, GRAD_OUTPUT)?, Divisor::Covered),
    },
    Operator {
        name: "aclnnMaxPool",
        parameters: &[input(SELF, HALF_OR_SINGLE, 3, 4), output(OUT, HALF_OR_SINGLE, 3, 4)],
        limits: "kernelShape and strides have one or two numbers, no strides means 1; autoPad 0; pads none, one, two, \
                 or top, left, bottom and right; the pads of a dim sum to at most a window, the first is smaller than \
                 a window; dilations 1; planes with channels; out has the type of self",
        source: "ops-nn pooling/max_pool_v3/docs/aclnnMaxPool.md",
        plan: max_pool,
    },
    Operator {
        name: "aclnnAdaptiveMaxPool2d",
        parameters: &[
            input(SELF, FLOATING, 3, 4),
            output(OUTPUT_OUT, FLOATING, 3, 4),
            output(INDICES_OUT, INDEXES, 3, 4),
        ],
        limits: "outputSize has the extents of the last two dims; outputOut has the type of self, indicesOut its \
                 shape, with positions in the planes",
        source: "CANN 8.1 aclnn API reference, aclnnAdaptiveMaxPool2d",
        plan: |call| greatest(call, adaptive(call, 2)?, OUTPUT_OUT, IndexLayout::At(INDICES_OUT)),
    },
    Operator {
        name: "aclnnAdaptiveMaxPool2dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 4),
            input(SELF, FLOATING, 3, 4),
            input(INDICES, INDEXES, 3, 4),
            output(GRAD_INPUT, FLOATING, 3, 4),
        ],
        limits: "as aclnnAdaptiveMaxPool2d, with its indices; gradOutput has the shape of the forward output, \
                 gradInput of self",
        source: "ops-nn pooling/adaptive_max_pool3d_grad/docs/aclnnAdaptiveMaxPool2dBackward.md",
        plan: |call| greatest_grad(call, adaptive_as(call, 2, GRAD_OUTPUT)?, IndexLayout::Plain),
    },
    Operator {
        name: "aclnnAdaptiveMaxPool3d",
        parameters: &[
            input(SELF, FLOATING, 4, 5),
            output(OUTPUT_OUT, FLOATING, 4, 5),
            output(INDICES_OUT, WHOLE32, 4, 5),
        ],
        limits: "outputSize has the extents of the last three dims; outputOut has the type of self, indicesOut its \
                 shape, with positions in the volumes",
        source: "ops-nn pooling/adaptive_max_pool3d/docs/aclnnAdaptiveMaxPool3d.md",
        plan: |call| greatest(call, adaptive(call, 3)?, OUTPUT_OUT, IndexLayout::At(INDICES_OUT)),
    },
    Operator {
        name: "aclnnAdaptiveMaxPool3dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 4, 5),
            input(SELF, FLOATING, 4, 5),
            input(INDICES, WHOLE32, 4, 5),
            output(GRAD_INPUT, FLOATING, 4, 5),
        ],
        limits: "as aclnnAdaptiveMaxPool3d, with its indices; gradOutput has the shape of the forward output, \
                 gradInput of self",
        source: "ops-nn pooling/adaptive_max_pool3d_grad/docs/aclnnAdaptiveMaxPool3dBackward.md",
        plan: |call| greatest_grad(call, adaptive_as(call, 3, GRAD_OUTPUT)?, IndexLayout::Plain),
    },
    Operator {
        name: "aclnnMaxPool3dWithArgmax",
        parameters: &[
            input(SELF, FLOATING, 4, 5),
            output(OUT, FLOATING, 4, 5),
            output(INDICES, WHOLE32, 4, 5),
        ],
        limits: "one number or three; dilation 1; padding at most half a window; indices has the shape of out, with \
                 positions in the volumes",
        source: "ops-nn pooling/max_pool3d_with_argmax_v2/docs/aclnnMaxPool3dWithArgmax.md",
        plan: |call| greatest(call, sliding_greatest(call, 3, OUT)?, OUT, IndexLayout::Plain),
    },
    Operator {
        name: "aclnnMaxPool3dWithArgmaxBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 4, 5),
            input(SELF, FLOATING, 4, 5),
            input(INDICES, WHOLE32, 4, 5),
            output(GRAD_INPUT, FLOATING, 4, 5),
        ],
        limits: "as aclnnMaxPool3dWithArgmax, with its indices; gradOutput has the shape of the forward output, \
                 gradInput of self",
        source: "ops-nn pooling/max_pool3d_grad_with_argmax/docs/aclnnMaxPool3dWithArgmaxBackward.md",
        plan: |call| greatest_grad(call, sliding_greatest(call, 3, GRAD_OUTPUT)?, IndexLayout::Plain),
    },
    Operator {
        name: "aclnnMaxPool3D",
        parameters: &[
            input(X, FLOATING, 5, 5),
            ints(PADS_OPTIONAL).optional(),
            ints(DILATION_OPTIONAL).optional(),
            text(DATA_FORMAT_OPTIONAL),
            output(OUT, FLOATING, 5, 5),
        ],
        limits: "dataFormat NDHWC (NULL) or NCDHW; one number, three, or five with 1 for N and C; padding VALID, SAME, \
                 or CALCULATED by padsOptional: front, back, top, bottom, left, right; the last window must begin \
                 inside x; out has the type of x",
        source: "ops-nn experimental/pooling/max_pool3_d/docs/aclnnMaxPool3D.md (built from its sources alone)",
        plan: max_pool_3d,
    },
    Operator {
        name: "aclnnAvgPool3d",
        parameters: &[input(SELF, FLOATING, 4, 5), output(OUT, FLOATING, 4, 5)],
        limits: "one number or three; padding at most half a window; divisorOverride 0 means none; out has the type of \
                 self",
        source: "CANN 8.1 aclnn API reference, aclnnAvgPool3d",
        plan: |call| mean(call, sliding(call, 3, STRIDE, PADDING)?, divisor(call)?),
    },
    Operator {
        name: "aclnnAvgPool3dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 4, 5),
            input(SELF, FLOATING, 4, 5),
            output(OUTPUT, FLOATING, 4, 5),
        ],
        limits: "as aclnnAvgPool3d; gradOutput has the shape of the forward output, output of self",
        source: "CANN 8.1 aclnn API reference, aclnnAvgPool3dBackward",
        plan: |call| mean_grad(call, OUTPUT, sliding(call, 3, STRIDE, PADDING)?, divisor(call)?),
    },
    Operator {
        name: "aclnnAdaptiveAvgPool3d",
        parameters: &[input(SELF, FLOATING, 4, 5), output(OUT, FLOATING, 4, 5)],
        limits: "outputSize has the extents of the last three dims; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAdaptiveAvgPool3d",
        plan: |call| mean(call, adaptive(call, 3)?, Divisor::Covered),
    },
    Operator {
        name: "aclnnAdaptiveAvgPool3dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 4, 5),
            input(SELF, FLOATING, 4, 5),
            output(OUT, FLOATING, 4, 5),
        ],
        limits: "gradOutput has the shape of the out of aclnnAdaptiveAvgPool3d, out of self",
        source: "CANN 8.1 aclnn API reference, aclnnAdaptiveAvgPool3dBackward",
        plan: |call| mean_grad(call, OUT, adaptive_as(call, 3, GRAD_OUTPUT)?, Divisor::Covered),
    },
];

#[derive(Clone, Copy, Debug)]
enum IndexLayout {
    /// In `indices`, in the shape of the result.
    Plain,
    /// In another tensor of that shape.
    At(Name<CheckedTensor>),
    /// INT32 at the start of a byte tensor sized for a mask.
    Packed,
}

#[derive(Clone, Copy, Debug)]
enum PlacesLayout {
    Numbers(ViewIndex),
    Bytes(ViewIndex),
    /// Not stored: windows have one element, and the mask is too small.
    Implied,
}

/// Windows slide over the last dims of `self`.
fn sliding(
    call: &OperatorCall,
    dims: usize,
    stride: Name<[i64]>,
    padding: Name<[i64]>,
) -> Result<PoolWindows, Refusal> {
    let kernel = per_dim(call, KERNEL_SIZE, dims, 1, 1, None)?;
    let strides = per_dim(call, stride, dims, 1, 1, Some(kernel))?;
    let (paddings, round_up) = (per_dim(call, padding, dims, 0, 0, None)?, call.flag(CEIL_MODE)?);
    let mut pool = PoolWindows::of(&call.tensor(SELF)?.dims, dims);
    for dim in 3 - dims..3 {
        let (extent, window, stride, padding) = (pool.extents[dim], kernel[dim], strides[dim], paddings[dim]);
        let slide = PoolWindow { window, stride, before: padding, after: padding, dilation: 1 };
        let fits = 2 * padding <= window && extent > 0;
        pool.counts[dim] = slide.count(extent, round_up).filter(|_| fits).ok_or_else(|| {
            let text = format!(
                "windows of {window} with a padding of {padding} do not fit into {extent}, or the padding exceeds half \
                 a window"
            );
            call.refuse(KERNEL_SIZE, text)
        })?;
        pool.rules[dim] = WindowRule::Sliding(slide);
    }
    Ok(pool)
}

fn sliding_greatest(
    call: &OperatorCall,
    dims: usize,
    out: Name<CheckedTensor>,
) -> Result<PoolWindows, Refusal> {
    if per_dim(call, DILATION, dims, 1, 1, None)? != [1; 3] {
        return Err(call.refuse(DILATION, format!("expected 1, found {:?}", call.ints(DILATION)?)));
    }
    call.expect_channels_second(&[SELF, out])?;
    sliding(call, dims, STRIDE, PADDING)
}

/// Returns `size` adaptive windows over the last dims of `self`.
fn adaptive_to(call: &OperatorCall, size: &[usize]) -> Result<PoolWindows, Refusal> {
    let mut pool = PoolWindows::of(&call.tensor(SELF)?.dims, size.len());
    pool.counts[3 - size.len()..].copy_from_slice(size);
    if pool.extents.contains(&0) || pool.counts.contains(&0) {
        let extents = &pool.extents[3 - size.len()..];
        return Err(call
            .refuse(SELF, format!("expected planes with elements, found {extents:?} for {size:?} windows")));
    }
    Ok(pool)
}

fn adaptive(call: &OperatorCall, dims: usize) -> Result<PoolWindows, Refusal> {
    let size: Vec<usize> = call.ints(OUTPUT_SIZE)?.iter().map(|&extent| extent.max(0) as usize).collect();
    if size.len() != dims {
        let count = if dims == 2 { "two" } else { "three" };
        return Err(call.refuse(OUTPUT_SIZE, format!("expected {count} extents, found {size:?}")));
    }
    adaptive_to(call, &size)
}

fn adaptive_as(call: &OperatorCall, dims: usize, out: Name<CheckedTensor>) -> Result<PoolWindows, Refusal> {
    let shape = &call.tensor(out)?.dims;
    adaptive_to(call, &shape[shape.len() - dims..])
}

fn divisor(call: &OperatorCall) -> Result<Divisor, Refusal> {
    Ok(match (call.int(DIVISOR_OVERRIDE)?, call.flag(COUNT_INCLUDE_PAD)?) {
        (0, true) => Divisor::Counted,
        (0, false) => Divisor::Covered,
        (given, _) => Divisor::Given(given),
    })
}

fn planes_divisor(call: &OperatorCall) -> Result<Divisor, Refusal> {
    let math = call.int(CUBE_MATH_TYPE)?;
    if !(0..=3).contains(&math) {
        return Err(call.refuse(CUBE_MATH_TYPE, format!("expected 0 to 3, found {math}")));
    }
    divisor(call)
}

fn expect_pooled(call: &OperatorCall, name: Name<CheckedTensor>, pool: &PoolWindows) -> Result<(), Refusal> {
    let x = call.tensor(SELF)?;
    let outer = &x.dims[..x.rank() - pool.dims];
    call.expect_dtype(name, x.dtype, "the type of self")?;
    call.expect_shape(name, &[outer, &pool.counts[3 - pool.dims..]].concat(), "of the windows")
}

/// Accepts channel planes with channels.
fn expect_planes(call: &OperatorCall, names: &[Name<CheckedTensor>]) -> Result<(), Refusal> {
    for &name in names {
        let tensor = call.tensor(name)?;
        let (format, text) = if tensor.rank() == 4 { (0, "NCHW") } else { (47, "NCL") };
        if tensor.format != format {
            return Err(
                call.refuse(name, format!("expected format {text} ({format}), found {}", tensor.format))
            );
        }
        if tensor.dims[tensor.rank() - 3] == 0 {
            return Err(call.refuse(name, format!("expected channels, found {:?}", tensor.dims)));
        }
    }
    Ok(())
}

/// Returns how positions are stored.
fn places_layout(
    call: &OperatorCall,
    pool: &PoolWindows,
    out: Name<CheckedTensor>,
    places: IndexLayout,
) -> Result<PlacesLayout, Refusal> {
    expect_pooled(call, out, pool)?;
    let indices = match places {
        IndexLayout::Plain => INDICES,
        IndexLayout::At(name) => name,
        IndexLayout::Packed => {
            let kernel: usize = per_dim(call, KERNEL_SIZE, 2, 1, 1, None)?.iter().product();
            let row = (pool.counts.iter().product::<usize>().div_ceil(16) + 1) * 32;
            let x = call.tensor(SELF)?;
            let outer = &x.dims[..x.rank() - 2];
            call.expect_shape(INDICES, &[outer, &[kernel, row]].concat(), "of the window mask")?;
            return Ok(if kernel == 1 {
                PlacesLayout::Implied
            } else {
                PlacesLayout::Bytes(call.tensor(INDICES)?.slot)
            });
        }
    };
    call.expect_shape(indices, &call.tensor(out)?.dims, "of the windows")?;
    Ok(PlacesLayout::Numbers(call.tensor(indices)?.slot))
}

fn greatest(
    call: &OperatorCall,
    pool: PoolWindows,
    out: Name<CheckedTensor>,
    places: IndexLayout,
) -> Result<CallPlan, Refusal> {
    let layout = places_layout(call, &pool, out, places)?;
    let (x, out) = (call.tensor(SELF)?.slot, call.tensor(out)?.slot);
    CallPlan::new(move |views, tiles| {
        let (x, out) = (views.of(x), views.of(out));
        if out.is_empty() {
            return Ok(());
        }
        let windows = pool.windows()?;
        match layout {
            PlacesLayout::Implied => window::greatest(tiles, x, &windows, out, |_, _| {}),
            PlacesLayout::Numbers(slot) => {
                let target = views.of(slot).collapsed();
                window::greatest(tiles, x, &windows, out, |start, found| i64::store(&target, start, found));
            }
            PlacesLayout::Bytes(slot) => {
                let target = views.of(slot).collapsed();
                window::greatest(tiles, x, &windows, out, |start, found| {
                    let bytes: Vec<u8> =
                        found.iter().flat_map(|&place| (place as i32).to_le_bytes()).collect();
                    target.write(start * size_of::<i32>(), &bytes);
                });
            }
        }
        Ok(())
    })
}

fn greatest_grad(call: &OperatorCall, pool: PoolWindows, places: IndexLayout) -> Result<CallPlan, Refusal> {
    let layout = places_layout(call, &pool, GRAD_OUTPUT, places)?;
    let (x, grad) = (call.tensor(SELF)?, call.tensor(GRAD_OUTPUT)?);
    call.expect_dtype(GRAD_INPUT, x.dtype, "the type of self")?;
    call.expect_shape(GRAD_INPUT, &x.dims, "of self")?;
    let (count, grad, out) = (grad.len(), grad.slot, call.tensor(GRAD_INPUT)?.slot);
    CallPlan::new(move |views, tiles| {
        if views.of(out).is_empty() {
            return Ok(());
        }
        let windows = pool.windows()?;
        let found = match layout {
            PlacesLayout::Implied => (0..count).map(|at| windows.first(at % windows.len()) as i64).collect(),
            PlacesLayout::Numbers(slot) => {
                let mut found = vec![0i64; count];
                i64::load(&views.of(slot).collapsed(), 0, &mut found);
                found
            }
            PlacesLayout::Bytes(slot) => packed_places(&views.of(slot).collapsed(), count),
        };
        window::greatest_grad(tiles, views.of(grad), &windows, &found, views.of(out))
    })
}

fn packed_places(indices: &StridedView, count: usize) -> Vec<i64> {
    let mut bytes = vec![0u8; count * size_of::<i32>()];
    indices.read(0, &mut bytes);
    bytes.as_chunks().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes))).collect()
}

fn max_pool(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let kernel = per_dim(call, KERNEL_SHAPE, 2, 1, 1, None)?;
    let strides = per_dim(call, STRIDES, 2, 1, 1, Some([1; 3]))?;
    let (auto, round_up) = (call.int(AUTO_PAD)?, call.int(CEIL_MODE_INT)? != 0);
    if auto != 0 {
        return Err(call.refuse(AUTO_PAD, format!("expected 0, found {auto}")));
    }
    let dilations = call.ints(DILATIONS)?;
    if ![0, 1, 2, 4].contains(&dilations.len()) || dilations.iter().any(|&dilation| dilation != 1) {
        return Err(call.refuse(
            DILATIONS,
            format!("expected 1 as none, one, two or four numbers, found {dilations:?}"),
        ));
    }
    let pads = match *call.ints(PADS)? {
        [] => [0; 4],
        [all] => [all; 4],
        [rows, columns] => [rows, columns, rows, columns],
        [above, left, below, right] => [above, left, below, right],
        ref other => {
            return Err(
                call.refuse(PADS, format!("expected none, one, two or four numbers, found {other:?}"))
            );
        }
    };
    let (x, mut pool) = (call.tensor(SELF)?, PoolWindows::of(&call.tensor(SELF)?.dims, 2));
    if x.dims[x.rank() - 3..].contains(&0) {
        return Err(
            call.refuse(SELF, format!("expected channels and planes with elements, found {:?}", x.dims))
        );
    }
    for (dim, ends) in [(1, [pads[0], pads[2]]), (2, [pads[1], pads[3]])] {
        let (window, extent) = (kernel[dim], pool.extents[dim]);
        let legal =
            ends.iter().all(|end| (0..=window as i64).contains(end)) && ends[0] + ends[1] <= window as i64;
        if !legal || ends[0] == window as i64 {
            let text = format!("expected paddings shorter than windows of {window}, found {ends:?}");
            return Err(call.refuse(PADS, text));
        }
        let [before, after] = ends.map(|end| end as usize);
        let slide = PoolWindow { window, stride: strides[dim], before, after, dilation: 1 };
        pool.counts[dim] = slide.count(extent, round_up).ok_or_else(|| {
            call.refuse(KERNEL_SHAPE, format!("windows of {window} do not fit into {extent}"))
        })?;
        pool.rules[dim] = WindowRule::Sliding(slide);
    }
    expect_pooled(call, OUT, &pool)?;
    call.expect_channels_second(&[SELF, OUT])?;
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            window::greatest(tiles, views.of(x), &pool.windows()?, views.of(out), |_, _| {});
        }
        Ok(())
    })
}

/// The array has one, three, or five numbers in layout order; default 1.
fn of_volume(call: &OperatorCall, name: Name<[i64]>, first: usize) -> Result<[usize; 3], Refusal> {
    let values = call.ints_if_given(name)?.unwrap_or(&[1]);
    let spatial = match *values {
        [all] => [all; 3],
        [depth, rows, columns] => [depth, rows, columns],
        [_, _, _, _, _]
            if values.iter().enumerate().all(|(at, &v)| (first..first + 3).contains(&at) || v == 1) =>
        {
            [values[first], values[first + 1], values[first + 2]]
        }
        _ => [0; 3],
    };
    if spatial.iter().any(|value| !(1..=i64::from(i32::MAX)).contains(value)) {
        let text = format!(
            "expected one number, three, or five with 1 for N and C, of at least 1, found {values:?}"
        );
        return Err(call.refuse(name, text));
    }
    Ok(spatial.map(|value| value as usize))
}

/// Returns before and after each dim, for CALCULATED padding.
fn volume_pads(call: &OperatorCall) -> Result<[[usize; 2]; 3], Refusal> {
    let pads = call.ints_if_given(PADS_OPTIONAL)?.unwrap_or(&[0; 6]);
    if pads.len() != 6 || pads.iter().any(|pad| !(0..=i64::from(i32::MAX)).contains(pad)) {
        return Err(call.refuse(PADS_OPTIONAL, format!("expected six numbers of at least 0, found {pads:?}")));
    }
    Ok([0, 2, 4].map(|at| [pads[at] as usize, pads[at + 1] as usize]))
}

fn max_pool_3d(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    let (order, first) = match call.text_if_given(DATA_FORMAT_OPTIONAL)? {
        None | Some("NDHWC") => ([0, 4, 1, 2, 3], 1),
        Some("NCDHW") => ([0, 1, 2, 3, 4], 2),
        Some(other) => {
            return Err(call.refuse(DATA_FORMAT_OPTIONAL, format!("expected NDHWC or NCDHW, found {other}")));
        }
    };
    let kernel = of_volume(call, KSIZE, first)?;
    let (strides, dilations) = (of_volume(call, STRIDES, first)?, of_volume(call, DILATION_OPTIONAL, first)?);
    let padding = call.text(PADDING_TEXT)?;
    let calculated = volume_pads(call)?;
    let shape = order.map(|dim| x.dims[dim]);
    let mut pool = PoolWindows::of(&shape, 3);
    for dim in 0..3 {
        let (extent, window, stride, dilation) =
            (pool.extents[dim], kernel[dim], strides[dim], dilations[dim]);
        let short = (extent.div_ceil(stride).max(1) - 1) * stride + dilation * (window - 1) + 1;
        let [before, after] = match padding {
            "VALID" => [0; 2],
            "SAME" => {
                let all = short.saturating_sub(extent);
                [all / 2, all - all / 2]
            }
            "CALCULATED" => calculated[dim],
            other => {
                return Err(
                    call.refuse(PADDING_TEXT, format!("expected VALID, SAME or CALCULATED, found {other}"))
                );
            }
        };
        let slide = PoolWindow { window, stride, before, after, dilation };
        let count = slide.count(extent, false);
        let rounded = if padding == "CALCULATED" && call.int(CEIL_MODE_INT)? != 0 {
            // Windows beyond all elements are undocumented.
            let room = (extent + before + after).saturating_sub(dilation * (window - 1) + 1);
            slide.count(extent, true).filter(|&count| count == room.div_ceil(stride) + 1)
        } else {
            count
        };
        pool.counts[dim] = rounded.filter(|_| extent > 0).ok_or_else(|| {
            call.refuse(
                KSIZE,
                format!("windows of {window}, {dilation} apart, do not fit into {extent} elements"),
            )
        })?;
        pool.rules[dim] = WindowRule::Sliding(slide);
    }
    let wanted = [shape[0], shape[1], pool.counts[0], pool.counts[1], pool.counts[2]];
    let mut expected = [0; 5];
    order.iter().zip(wanted).for_each(|(&dim, extent)| expected[dim] = extent);
    call.expect_dtype(OUT, x.dtype, "the type of x")?;
    call.expect_shape(OUT, &expected, "of the windows")?;
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            let [x, out] = [x, out].map(|slot| views.of(slot).permute(&order));
            window::greatest(tiles, &x, &pool.windows()?, &out, |_, _| {});
        }
        Ok(())
    })
}

fn mean(call: &OperatorCall, pool: PoolWindows, divisor: Divisor) -> Result<CallPlan, Refusal> {
    expect_pooled(call, OUT, &pool)?;
    let (x, out) = (call.tensor(SELF)?.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            window::mean(tiles, views.of(x), &pool.windows()?, &pool.divisors(divisor), views.of(out));
        }
        Ok(())
    })
}

fn mean_grad(
    call: &OperatorCall,
    out: Name<CheckedTensor>,
    pool: PoolWindows,
    divisor: Divisor,
) -> Result<CallPlan, Refusal> {
    expect_pooled(call, GRAD_OUTPUT, &pool)?;
    let x = call.tensor(SELF)?;
    call.expect_dtype(out, x.dtype, "the type of self")?;
    call.expect_shape(out, &x.dims, "of self")?;
    let (grad, out) = (call.tensor(GRAD_OUTPUT)?.slot, call.tensor(out)?.slot);
    CallPlan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            window::mean_grad(
                tiles,
                views.of(grad),
                &pool.windows()?,
                &pool.divisors(divisor),
                views.of(out),
            );
        }
        Ok(())
    })
}
