//! Rows of the pools over the last two dims.

use super::argument::Tensor;
use super::call::OperatorCall;
use super::names::{
    CEIL_MODE, COUNT_INCLUDE_PAD, CUBE_MATH_TYPE, DILATION, DIVISOR_OVERRIDE, GRAD_INPUT, GRAD_OUTPUT, INDICES,
    KERNEL_SIZE, Name, OUT, OUTPUT_SIZE, PADDING, PADDINGS, SELF, STRIDE, STRIDES,
};
use super::row::{Operator, attribute, input, ints, output};
use super::sets::{BYTES, FLOATING, INDEXES};
use super::{Plan, Refusal, ViewIndex};
use crate::nn::lane::Lane;
use crate::nn::view::View;
use crate::nn::window::{self, Windows};

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMaxPool2dWithMask",
        parameters: &[
            input(SELF, FLOATING, 3, 4),
            ints(KERNEL_SIZE),
            ints(STRIDE),
            ints(PADDING),
            ints(DILATION),
            attribute(CEIL_MODE),
            output(OUT, FLOATING, 3, 4),
            output(INDICES, BYTES, 3, 4).contiguous(),
        ],
        limits: "dilation 1; padding at most half a window; indices has kernelSize's product rows of 32 (1 + the windows of a \
                 plane / 16, rounded up) bytes a plane, of which the first hold the places in the planes as INT32",
        source: "ops-nn pooling/max_pool3d_with_argmax_v2/docs/aclnnMaxPool2dWithMask.md",
        plan: |call| greatest(call, Places::Packed),
    },
    Operator {
        name: "aclnnMaxPool2dWithMaskBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 4),
            input(SELF, FLOATING, 3, 4),
            input(INDICES, BYTES, 3, 4).contiguous(),
            ints(KERNEL_SIZE),
            ints(STRIDE),
            ints(PADDING),
            ints(DILATION),
            attribute(CEIL_MODE),
            output(GRAD_INPUT, FLOATING, 3, 4),
        ],
        limits: "as aclnnMaxPool2dWithMask, whose indices they are; gradOutput is as its out, gradInput as self",
        source: "CANN 8.1 aclnn API reference, aclnnMaxPool2dWithMaskBackward",
        plan: |call| greatest_grad(call, Places::Packed),
    },
    Operator {
        name: "aclnnMaxPool2dWithIndices",
        parameters: &[
            input(SELF, FLOATING, 3, 4),
            ints(KERNEL_SIZE),
            ints(STRIDE),
            ints(PADDING),
            ints(DILATION),
            attribute(CEIL_MODE),
            output(OUT, FLOATING, 3, 4),
            output(INDICES, INDEXES, 3, 4),
        ],
        limits: "dilation 1; padding at most half a window; indices has the shape of out",
        source: "CANN 8.1 aclnn API reference, aclnnMaxPool2dWithIndices",
        plan: |call| greatest(call, Places::Plain),
    },
    Operator {
        name: "aclnnMaxPool2dWithIndicesBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 4),
            input(SELF, FLOATING, 3, 4),
            input(INDICES, INDEXES, 3, 4),
            ints(KERNEL_SIZE),
            ints(STRIDE),
            ints(PADDING),
            ints(DILATION),
            attribute(CEIL_MODE),
            output(GRAD_INPUT, FLOATING, 3, 4),
        ],
        limits: "as aclnnMaxPool2dWithIndices, whose indices they are; gradOutput is as its out, gradInput as self",
        source: "CANN 8.1 aclnn API reference, aclnnMaxPool2dWithIndicesBackward",
        plan: |call| greatest_grad(call, Places::Plain),
    },
    Operator {
        name: "aclnnAvgPool2d",
        parameters: &[
            input(SELF, FLOATING, 3, 4),
            ints(KERNEL_SIZE),
            ints(STRIDES),
            ints(PADDINGS),
            attribute(CEIL_MODE),
            attribute(COUNT_INCLUDE_PAD),
            attribute(DIVISOR_OVERRIDE),
            attribute(CUBE_MATH_TYPE),
            output(OUT, FLOATING, 3, 4),
        ],
        limits: "padding at most half a window; a divisorOverride of 0 is none; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAvgPool2d",
        plan: |call| mean(call, divided(call, pool(call, STRIDES, PADDINGS)?)?),
    },
    Operator {
        name: "aclnnAvgPool2dBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 4),
            input(SELF, FLOATING, 3, 4),
            ints(KERNEL_SIZE),
            ints(STRIDE),
            ints(PADDING),
            attribute(CEIL_MODE),
            attribute(COUNT_INCLUDE_PAD),
            attribute(DIVISOR_OVERRIDE),
            attribute(CUBE_MATH_TYPE),
            output(GRAD_INPUT, FLOATING, 3, 4),
        ],
        limits: "as aclnnAvgPool2d; gradOutput is as its out, gradInput as self",
        source: "CANN 8.1 aclnn API reference, aclnnAvgPool2dBackward",
        plan: |call| mean_grad(call, GRAD_INPUT, divided(call, pool(call, STRIDE, PADDING)?)?),
    },
    Operator {
        name: "aclnnAdaptiveAvgPool2d",
        parameters: &[input(SELF, FLOATING, 3, 4), ints(OUTPUT_SIZE), output(OUT, FLOATING, 3, 4)],
        limits: "outputSize has the extents of the last two dims; out has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAdaptiveAvgPool2d",
        plan: |call| {
            let size: Vec<usize> = call.ints(OUTPUT_SIZE)?.iter().map(|&extent| extent.max(0) as usize).collect();
            let &[height, width] = &size[..] else {
                return Err(call.refuse(OUTPUT_SIZE, format!("expected two extents, found {size:?}")));
            };
            mean(call, adaptive(call, [height, width])?)
        },
    },
    Operator {
        name: "aclnnAdaptiveAvgPool2dBackward",
        parameters: &[input(GRAD_OUTPUT, FLOATING, 3, 4), input(SELF, FLOATING, 3, 4), output(OUT, FLOATING, 3, 4)],
        limits: "gradOutput is as the out of aclnnAdaptiveAvgPool2d, out as self",
        source: "CANN 8.1 aclnn API reference, aclnnAdaptiveAvgPool2dBackward",
        plan: |call| {
            let dims = &call.tensor(GRAD_OUTPUT)?.dims;
            let [height, width] = [dims[dims.len() - 2], dims[dims.len() - 1]];
            mean_grad(call, OUT, adaptive(call, [height, width])?)
        },
    },
];

/// How the places of the greatest elements lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Places {
    /// As numbers of a tensor of the shape of the result.
    Plain,
    /// As INT32 at the beginning of a tensor of bytes, which was made for a mask.
    Packed,
}

/// Windows and what their sums are divided by.
type Pool = (Windows, Vec<f32>);

/// Two numbers of an array of one or two, or those of another where it is empty.
fn pair(
    call: &OperatorCall,
    name: Name<[i64]>,
    least: i64,
    otherwise: Option<[usize; 2]>,
) -> Result<[usize; 2], Refusal> {
    match (call.ints(name)?, otherwise) {
        ([], Some(otherwise)) => Ok(otherwise),
        (&[one], _) if one >= least => Ok([one as usize; 2]),
        (&[first, second], _) if first >= least && second >= least => Ok([first as usize, second as usize]),
        (other, _) => {
            let text = format!("expected one or two numbers of at least {least}, found {other:?}");
            Err(call.refuse(name, text))
        }
    }
}

/// The windows of a pool over `self`, and how many elements each counts, those of the padding too if it is counted.
fn pool(call: &OperatorCall, stride: Name<[i64]>, padding: Name<[i64]>) -> Result<Pool, Refusal> {
    let x = call.tensor(SELF)?;
    let kernel = pair(call, KERNEL_SIZE, 1, None)?;
    let (strides, paddings) = (pair(call, stride, 1, Some(kernel))?, pair(call, padding, 0, None)?);
    let round_up = call.flag(CEIL_MODE)?;
    let plane = [x.dims[x.rank() - 2], x.dims[x.rank() - 1]];
    let mut lists = [Vec::new(), Vec::new()];
    let mut counted = [Vec::new(), Vec::new()];
    for dim in 0..2 {
        let (extent, window, stride, pad) = (plane[dim], kernel[dim], strides[dim], paddings[dim]);
        if 2 * pad > window || extent == 0 || extent + 2 * pad < window {
            let text =
                format!("windows of {window} with a padding of {pad}, at most half of them, do not fit into {extent}");
            return Err(call.refuse(KERNEL_SIZE, text));
        }
        let room = extent + 2 * pad - window;
        let mut count = room / stride + 1;
        // A window more, if it begins before the padding behind the plane.
        if round_up && !room.is_multiple_of(stride) && count * stride < extent + pad {
            count += 1;
        }
        for place in 0..count {
            let (start, end) = (place * stride, (place * stride + window).min(extent + 2 * pad));
            lists[dim].push((start.max(pad) - pad..end.saturating_sub(pad).min(extent)).collect::<Vec<_>>());
            counted[dim].push(end - start);
        }
    }
    let [rows, columns] = lists;
    Ok((Windows { rows, columns, plane }, products(&counted)))
}

/// The product of each number of the first list with each of the second.
fn products([rows, columns]: &[Vec<usize>; 2]) -> Vec<f32> {
    rows.iter().flat_map(|row| columns.iter().map(move |column| (row * column) as f32)).collect()
}

/// The windows of a pool to `size`, which cover the plane.
fn adaptive(call: &OperatorCall, size: [usize; 2]) -> Result<Pool, Refusal> {
    let x = call.tensor(SELF)?;
    let plane = [x.dims[x.rank() - 2], x.dims[x.rank() - 1]];
    if plane.contains(&0) || size.contains(&0) {
        return Err(call.refuse(SELF, format!("expected planes with elements, found {plane:?} for {size:?} windows")));
    }
    let lists = [0, 1].map(|dim| -> Vec<Vec<usize>> {
        let (extent, count) = (plane[dim], size[dim]);
        (0..count).map(|at| (at * extent / count..((at + 1) * extent).div_ceil(count)).collect()).collect()
    });
    let counted = lists.each_ref().map(|list| list.iter().map(Vec::len).collect());
    let [rows, columns] = lists;
    Ok((Windows { rows, columns, plane }, products(&counted)))
}

/// The same windows with the divisor that a call wants: one for all, or the elements counted, or those of the plane.
fn divided(call: &OperatorCall, (windows, counted): Pool) -> Result<Pool, Refusal> {
    let given = call.int(DIVISOR_OVERRIDE)?;
    let divisors = if given != 0 {
        vec![given as f32; windows.len()]
    } else if call.flag(COUNT_INCLUDE_PAD)? {
        counted
    } else {
        products(&[&windows.rows, &windows.columns].map(|lists| lists.iter().map(Vec::len).collect()))
    };
    Ok((windows, divisors))
}

/// Refuses a tensor that is not as what a pool of `self` writes.
fn expect_pooled(call: &OperatorCall, name: Name<Tensor>, windows: &Windows) -> Result<(), Refusal> {
    let x = call.tensor(SELF)?;
    let outer = &x.dims[..x.rank() - 2];
    call.expect_dtype(name, x.dtype, "that of self")?;
    call.expect_shape(name, &[outer, &[windows.rows.len(), windows.columns.len()]].concat(), "of the windows")
}

/// The windows of a pool of the greatest elements, and where their places lie.
fn greatest_windows(call: &OperatorCall, out: Name<Tensor>, places: Places) -> Result<(Windows, ViewIndex), Refusal> {
    let (windows, _) = pool(call, STRIDE, PADDING)?;
    if pair(call, DILATION, 1, None)? != [1, 1] {
        return Err(call.refuse(DILATION, format!("expected 1, found {:?}", call.ints(DILATION)?)));
    }
    expect_pooled(call, out, &windows)?;
    let (x, indices) = (call.tensor(SELF)?, call.tensor(INDICES)?);
    if places == Places::Plain {
        call.expect_shape(INDICES, &call.tensor(out)?.dims, "of the windows")?;
        return Ok((windows, indices.slot));
    }
    let kernel = pair(call, KERNEL_SIZE, 1, None)?;
    let row = (windows.len().div_ceil(16) + 1) * 32;
    let outer = &x.dims[..x.rank() - 2];
    call.expect_shape(INDICES, &[outer, &[kernel[0] * kernel[1], row]].concat(), "of a mask of the windows")?;
    let needed = call.tensor(out)?.len() * size_of::<i32>();
    if indices.len() < needed {
        return Err(call.refuse(INDICES, format!("{} bytes do not hold {needed} of places", indices.len())));
    }
    Ok((windows, indices.slot))
}

fn greatest(call: &OperatorCall, places: Places) -> Result<Plan, Refusal> {
    let (windows, indices) = greatest_windows(call, OUT, places)?;
    let (x, out) = (call.tensor(SELF)?.slot, call.tensor(OUT)?.slot);
    Plan::new(move |views, tiles| {
        let target = views.of(indices).collapsed();
        window::greatest(tiles, views.of(x), &windows, views.of(out), |start, found| match places {
            Places::Plain => i64::store(&target, start, found),
            Places::Packed => {
                let bytes: Vec<u8> = found.iter().flat_map(|&place| (place as i32).to_le_bytes()).collect();
                target.write(start * size_of::<i32>(), &bytes);
            }
        });
        Ok(())
    })
}

fn greatest_grad(call: &OperatorCall, places: Places) -> Result<Plan, Refusal> {
    let (windows, indices) = greatest_windows(call, GRAD_OUTPUT, places)?;
    let (x, grad) = (call.tensor(SELF)?, call.tensor(GRAD_OUTPUT)?);
    call.expect_dtype(GRAD_INPUT, x.dtype, "that of self")?;
    call.expect_shape(GRAD_INPUT, &x.dims, "of self")?;
    let (count, grad, out) = (grad.len(), grad.slot, call.tensor(GRAD_INPUT)?.slot);
    Plan::new(move |views, tiles| {
        let found = read_places(&views.of(indices).collapsed(), count, places);
        window::greatest_grad(tiles, views.of(grad), windows.len(), &found, views.of(out))
    })
}

/// The places that [`greatest`] wrote.
fn read_places(indices: &View, count: usize, places: Places) -> Vec<i64> {
    let mut found = vec![0i64; count];
    match places {
        Places::Plain => i64::load(indices, 0, &mut found),
        Places::Packed => {
            let mut bytes = vec![0u8; count * size_of::<i32>()];
            indices.read(0, &mut bytes);
            for (place, bytes) in found.iter_mut().zip(bytes.as_chunks().0) {
                *place = i64::from(i32::from_le_bytes(*bytes));
            }
        }
    }
    found
}

fn mean(call: &OperatorCall, (windows, divisors): Pool) -> Result<Plan, Refusal> {
    expect_pooled(call, OUT, &windows)?;
    let (x, out) = (call.tensor(SELF)?.slot, call.tensor(OUT)?.slot);
    Plan::new(move |views, tiles| {
        window::mean(tiles, views.of(x), &windows, &divisors, views.of(out));
        Ok(())
    })
}

fn mean_grad(call: &OperatorCall, out: Name<Tensor>, (windows, divisors): Pool) -> Result<Plan, Refusal> {
    expect_pooled(call, GRAD_OUTPUT, &windows)?;
    let x = call.tensor(SELF)?;
    call.expect_dtype(out, x.dtype, "that of self")?;
    call.expect_shape(out, &x.dims, "of self")?;
    let (grad, out) = (call.tensor(GRAD_OUTPUT)?.slot, call.tensor(out)?.slot);
    Plan::new(move |views, tiles| {
        window::mean_grad(tiles, views.of(grad), &windows, &divisors, views.of(out));
        Ok(())
    })
}
