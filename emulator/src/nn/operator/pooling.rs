//! Rows of the pools over the last two dims.

use std::ops::Range;

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
                 plane / 16, rounded up) bytes a plane, of which the first hold the places in the planes as INT32, except those of \
                 windows of one element",
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
        limits: "format NCHW, or NCL of three dims, with channels; padding at most half a window; a divisorOverride of 0 is none; out has \
                 the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnAvgPool2d",
        plan: |call| {
            let plan = mean(call, pool(call, STRIDES, PADDINGS)?, divisor(call)?)?;
            expect_planes(call, &[SELF, OUT]).map(|()| plan)
        },
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
        plan: |call| {
            let plan = mean_grad(call, GRAD_INPUT, pool(call, STRIDE, PADDING)?, divisor(call)?)?;
            expect_planes(call, &[GRAD_OUTPUT, SELF, GRAD_INPUT]).map(|()| plan)
        },
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
            mean(call, adaptive(call, [height, width])?, Divisor::Covered)
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
            mean_grad(call, OUT, adaptive(call, [height, width])?, Divisor::Covered)
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
    /// Not at all: each is the one element of its window.
    Implied,
}

/// How windows lie along a dim of a plane.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// As many elements each, so far apart, from so many elements before the plane on.
    Sliding { window: usize, stride: usize, padding: usize },
    /// As equal parts as there are, which cover the plane.
    Adaptive,
}

/// The windows of a pool, a rule a dim: they are listed when a call runs, when the memory of as many numbers is known to be
/// there.
#[derive(Clone, Copy, Debug)]
struct Pool {
    plane: [usize; 2],
    counts: [usize; 2],
    rules: [Rule; 2],
}

impl Pool {
    /// The elements of the plane that a window covers, and how many it has with those of the padding.
    fn window(&self, dim: usize, at: usize) -> (Range<usize>, usize) {
        let (extent, count) = (self.plane[dim], self.counts[dim]);
        match self.rules[dim] {
            Rule::Sliding { window, stride, padding } => {
                let (start, end) = (at * stride, (at * stride + window).min(extent + 2 * padding));
                (start.max(padding) - padding..end.saturating_sub(padding).min(extent), end - start)
            }
            Rule::Adaptive => {
                // In 128 bits, as the product of two extents may have more than 64.
                let border = |at: usize| at as u128 * extent as u128;
                let (start, end) = (border(at) / count as u128, border(at + 1).div_ceil(count as u128));
                (start as usize..end as usize, (end - start) as usize)
            }
        }
    }

    fn windows(&self) -> Windows {
        let [rows, columns] = [0, 1].map(|dim| (0..self.counts[dim]).map(|at| self.window(dim, at).0).collect());
        Windows { rows, columns, plane: self.plane }
    }

    /// What the sum of each window is divided by.
    fn divisors(&self, divisor: Divisor) -> Vec<f32> {
        let number = |dim: usize, at: usize| {
            let (covered, counted) = self.window(dim, at);
            if divisor == Divisor::Counted { counted } else { covered.len() }
        };
        let [rows, columns] = [0, 1].map(|dim| (0..self.counts[dim]).map(|at| number(dim, at)).collect::<Vec<_>>());
        let product = |row: usize, column: usize| match divisor {
            Divisor::Given(divisor) => divisor as f32,
            _ => (row * column) as f32,
        };
        rows.iter().flat_map(|&row| columns.iter().map(move |&column| product(row, column))).collect()
    }
}

/// What the sum of a window is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Divisor {
    /// How many elements it has with those of the padding.
    Counted,
    /// How many elements of the plane it covers.
    Covered,
    Given(i64),
}

/// Two numbers of an array of one or two, or those of another where it is empty.
fn pair(
    call: &OperatorCall,
    name: Name<[i64]>,
    least: i64,
    otherwise: Option<[usize; 2]>,
) -> Result<[usize; 2], Refusal> {
    let legal = least..=i64::from(i32::MAX);
    match (call.ints(name)?, otherwise) {
        ([], Some(otherwise)) => Ok(otherwise),
        (&[one], _) if legal.contains(&one) => Ok([one as usize; 2]),
        (&[first, second], _) if legal.contains(&first) && legal.contains(&second) => {
            Ok([first as usize, second as usize])
        }
        (other, _) => {
            let text = format!("expected one or two numbers of {least} to {}, found {other:?}", i32::MAX);
            Err(call.refuse(name, text))
        }
    }
}

/// The windows of a pool over `self`.
fn pool(call: &OperatorCall, stride: Name<[i64]>, padding: Name<[i64]>) -> Result<Pool, Refusal> {
    let x = call.tensor(SELF)?;
    let kernel = pair(call, KERNEL_SIZE, 1, None)?;
    let (strides, paddings) = (pair(call, stride, 1, Some(kernel))?, pair(call, padding, 0, None)?);
    let round_up = call.flag(CEIL_MODE)?;
    let plane = [x.dims[x.rank() - 2], x.dims[x.rank() - 1]];
    let mut pool = Pool { plane, counts: [0; 2], rules: [Rule::Adaptive; 2] };
    for dim in 0..2 {
        let (extent, window, stride, padding) = (plane[dim], kernel[dim], strides[dim], paddings[dim]);
        if 2 * padding > window || extent == 0 || extent + 2 * padding < window {
            let text = format!(
                "windows of {window} with a padding of {padding}, at most half of them, do not fit into {extent}"
            );
            return Err(call.refuse(KERNEL_SIZE, text));
        }
        let room = extent + 2 * padding - window;
        let mut count = room / stride + 1;
        // A window more, if it begins before the padding behind the plane.
        if round_up && !room.is_multiple_of(stride) && count * stride < extent + padding {
            count += 1;
        }
        (pool.counts[dim], pool.rules[dim]) = (count, Rule::Sliding { window, stride, padding });
    }
    Ok(pool)
}

/// The windows of a pool to `size`, which cover the plane.
fn adaptive(call: &OperatorCall, size: [usize; 2]) -> Result<Pool, Refusal> {
    let x = call.tensor(SELF)?;
    let plane = [x.dims[x.rank() - 2], x.dims[x.rank() - 1]];
    if plane.contains(&0) || size.contains(&0) {
        return Err(call.refuse(SELF, format!("expected planes with elements, found {plane:?} for {size:?} windows")));
    }
    Ok(Pool { plane, counts: size, rules: [Rule::Adaptive; 2] })
}

/// The divisor that a call wants.
fn divisor(call: &OperatorCall) -> Result<Divisor, Refusal> {
    let math = call.int(CUBE_MATH_TYPE)?;
    if !(0..=3).contains(&math) {
        return Err(call.refuse(CUBE_MATH_TYPE, format!("expected 0 to 3, found {math}")));
    }
    Ok(match (call.int(DIVISOR_OVERRIDE)?, call.flag(COUNT_INCLUDE_PAD)?) {
        (0, true) => Divisor::Counted,
        (0, false) => Divisor::Covered,
        (given, _) => Divisor::Given(given),
    })
}

/// Refuses a tensor that is not as what a pool of `self` writes.
fn expect_pooled(call: &OperatorCall, name: Name<Tensor>, pool: &Pool) -> Result<(), Refusal> {
    let x = call.tensor(SELF)?;
    let outer = &x.dims[..x.rank() - 2];
    call.expect_dtype(name, x.dtype, "that of self")?;
    call.expect_shape(name, &[outer, &pool.counts].concat(), "of the windows")
}

/// Refuses tensors that are not described as planes of channels, or have no channels.
fn expect_planes(call: &OperatorCall, names: &[Name<Tensor>]) -> Result<(), Refusal> {
    for &name in names {
        let tensor = call.tensor(name)?;
        let (format, text) = if tensor.rank() == 4 { (0, "NCHW") } else { (47, "NCL") };
        if tensor.format != format {
            return Err(call.refuse(name, format!("expected format {text} ({format}), found {}", tensor.format)));
        }
        if tensor.dims[tensor.rank() - 3] == 0 {
            return Err(call.refuse(name, format!("expected channels, found {:?}", tensor.dims)));
        }
    }
    Ok(())
}

/// The windows of a pool of the greatest elements, and where their places lie.
fn greatest_windows(call: &OperatorCall, out: Name<Tensor>, places: Places) -> Result<(Pool, ViewIndex), Refusal> {
    let pool = pool(call, STRIDE, PADDING)?;
    if pair(call, DILATION, 1, None)? != [1, 1] {
        return Err(call.refuse(DILATION, format!("expected 1, found {:?}", call.ints(DILATION)?)));
    }
    call.expect_channels_second(&[SELF, out])?;
    expect_pooled(call, out, &pool)?;
    let (x, indices) = (call.tensor(SELF)?, call.tensor(INDICES)?);
    if places == Places::Plain {
        call.expect_shape(INDICES, &call.tensor(out)?.dims, "of the windows")?;
        return Ok((pool, indices.slot));
    }
    let kernel = pair(call, KERNEL_SIZE, 1, None)?;
    let row = ((pool.counts[0] * pool.counts[1]).div_ceil(16) + 1) * 32;
    let outer = &x.dims[..x.rank() - 2];
    call.expect_shape(INDICES, &[outer, &[kernel[0] * kernel[1], row]].concat(), "of a mask of the windows")?;
    Ok((pool, indices.slot))
}

/// How the places of a call lie: those of windows of one element need no room, and the mask of them is too small for numbers.
fn layout(call: &OperatorCall, places: Places) -> Result<Places, Refusal> {
    let is_single = pair(call, KERNEL_SIZE, 1, None)? == [1, 1];
    Ok(if places == Places::Packed && is_single { Places::Implied } else { places })
}

fn greatest(call: &OperatorCall, places: Places) -> Result<Plan, Refusal> {
    let (pool, indices) = greatest_windows(call, OUT, places)?;
    let places = layout(call, places)?;
    let (x, out) = (call.tensor(SELF)?.slot, call.tensor(OUT)?.slot);
    Plan::new(move |views, tiles| {
        if views.of(out).is_empty() {
            return Ok(());
        }
        let target = views.of(indices).collapsed();
        window::greatest(tiles, views.of(x), &pool.windows(), views.of(out), |start, found| match places {
            Places::Plain => i64::store(&target, start, found),
            Places::Implied => {}
            Places::Packed => {
                let bytes: Vec<u8> = found.iter().flat_map(|&place| (place as i32).to_le_bytes()).collect();
                target.write(start * size_of::<i32>(), &bytes);
            }
        });
        Ok(())
    })
}

fn greatest_grad(call: &OperatorCall, places: Places) -> Result<Plan, Refusal> {
    let (pool, indices) = greatest_windows(call, GRAD_OUTPUT, places)?;
    let places = layout(call, places)?;
    let (x, grad) = (call.tensor(SELF)?, call.tensor(GRAD_OUTPUT)?);
    call.expect_dtype(GRAD_INPUT, x.dtype, "that of self")?;
    call.expect_shape(GRAD_INPUT, &x.dims, "of self")?;
    let (count, grad, out) = (grad.len(), grad.slot, call.tensor(GRAD_INPUT)?.slot);
    Plan::new(move |views, tiles| {
        if views.of(out).is_empty() {
            return Ok(());
        }
        let windows = pool.windows();
        let found = read_places(&views.of(indices).collapsed(), count, places, &windows);
        window::greatest_grad(tiles, views.of(grad), windows.len(), &found, views.of(out))
    })
}

/// The places that [`greatest`] wrote.
fn read_places(indices: &View, count: usize, places: Places, windows: &Windows) -> Vec<i64> {
    let mut found = vec![0i64; count];
    match places {
        Places::Plain => i64::load(indices, 0, &mut found),
        Places::Implied => {
            for (at, place) in found.iter_mut().enumerate() {
                *place = windows.first(at % windows.len()) as i64;
            }
        }
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

fn mean(call: &OperatorCall, pool: Pool, divisor: Divisor) -> Result<Plan, Refusal> {
    expect_pooled(call, OUT, &pool)?;
    let (x, out) = (call.tensor(SELF)?.slot, call.tensor(OUT)?.slot);
    Plan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            window::mean(tiles, views.of(x), &pool.windows(), &pool.divisors(divisor), views.of(out));
        }
        Ok(())
    })
}

fn mean_grad(call: &OperatorCall, out: Name<Tensor>, pool: Pool, divisor: Divisor) -> Result<Plan, Refusal> {
    expect_pooled(call, GRAD_OUTPUT, &pool)?;
    let x = call.tensor(SELF)?;
    call.expect_dtype(out, x.dtype, "that of self")?;
    call.expect_shape(out, &x.dims, "of self")?;
    let (grad, out) = (call.tensor(GRAD_OUTPUT)?.slot, call.tensor(out)?.slot);
    Plan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            window::mean_grad(tiles, views.of(grad), &pool.windows(), &pool.divisors(divisor), views.of(out));
        }
        Ok(())
    })
}
