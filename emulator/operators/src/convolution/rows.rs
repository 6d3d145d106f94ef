//! Rows of the convolutions.

use crate::convolution::deformable::{self as deformable, Deformed};
use crate::convolution::kernels::{self as kernel, Geometry};
use crate::dtype::AclType;
use crate::matmul::kernels::OperandRounding;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output, unmodelled};
use crate::operator::sets::{BYTES, FLOATING, HALVES, SINGLE};
use crate::operator::{CallPlan, Refusal};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnConvolution",
        parameters: &[
            input(INPUT, FLOATING, 3, 5),
            input(WEIGHT, FLOATING, 3, 5),
            input(BIAS, FLOATING, 1, 1).optional(),
            output(OUTPUT, FLOATING, 3, 5),
        ],
        limits: "input [N, C, ..], weight [O, C / groups, ..], or [C, O / groups, ..] if transposed, output [N, O, \
                 ..], in ND, NCL, NCHW or NCDHW, no dim above 1000000; the arrays have one number per dim, padding for \
                 one or two dims also two per dim (before, after); groups at most 65535; one element type; \
                 cubeMathType 0 to 3 (as 0 for 16 bits), not 2 for BFLOAT16",
        source: "ops-nn conv/convolution_forward/docs/aclnnConvolution.md",
        plan: forward,
    },
    Operator {
        name: "aclnnConvolutionBackward",
        parameters: &[
            input(GRAD_OUTPUT, FLOATING, 3, 5),
            input(INPUT, FLOATING, 3, 5),
            input(WEIGHT, FLOATING, 3, 5),
            ints(BIAS_SIZES).optional(),
            output(GRAD_INPUT, FLOATING, 3, 5).optional(),
            output(GRAD_WEIGHT, FLOATING, 3, 5).optional(),
            output(GRAD_BIAS, FLOATING, 1, 1).optional(),
        ],
        limits: "as aclnnConvolution, with gradOutput as its output; outputMask selects the written outputs",
        source: "ops-nn conv/convolution_backward/docs/aclnnConvolutionBackward.md",
        plan: backward,
    },
    Operator {
        name: "aclnnQuantConvolution",
        parameters: &[
            input(INPUT, BYTES, 5, 5),
            input(WEIGHT, BYTES, 5, 5),
            input(BIAS, FLOATING, 1, 1).optional(),
            input(SCALE, SINGLE, 1, 1),
            unmodelled(OUTPUT_PADDING),
            unmodelled(ROUND_MODE),
            output(OUTPUT, HALVES, 5, 5),
        ],
        limits: "as aclnnConvolution, not transposed, of three dims in NCDHW; scale and bias have one element per \
                 output channel; groups 1, offsetx 0; no empty tensor",
        source: "ops-nn conv/convolution_forward/docs/aclnnQuantConvolution.md",
        plan: quantised,
    },
    Operator {
        name: "aclnnDeformableConv2d",
        parameters: &[
            input(X, FLOATING, 4, 4),
            input(WEIGHT, FLOATING, 4, 4),
            input(OFFSET, FLOATING, 4, 4),
            input(BIAS_OPTIONAL, FLOATING, 1, 1).optional(),
            output(OUT, FLOATING, 4, 4),
            output(DEFORM_OUT_OPTIONAL, FLOATING, 4, 4).optional(),
        ],
        limits: "x [N, C, H, W], weight [O, C / groups, kernelSize], out [N, O, H', W'], in ND or NCHW; offset [N, 3 * \
                 deformableGroups * window size, H', W'] holds offsets to the right, offsets down, and factors; stride \
                 and dilation have four numbers, 1 for N and C; padding has top, bottom, left, right; a window has at \
                 most 2048 elements, 65535 over its channels; groups and deformableGroups divide C; modulated true; \
                 deformOutOptional [N, C, H' * window rows, W' * window columns]; one element type; no empty tensor",
        source: "ops-nn conv/deformable_conv2d/docs/aclnnDeformableConv2d.md",
        plan: deformable,
    },
    Operator {
        name: "aclnnIm2col",
        parameters: &[input(SELF, FLOATING, 3, 4), output(OUT, FLOATING, 2, 3)],
        limits: "self [N, C, H, W] or [C, H, W]; out [N, C * product of kernelSize, windows], without N for three \
                 dims, has the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnIm2col",
        plan: |call| {
            let (x, out) = (call.tensor(SELF)?, call.tensor(OUT)?);
            let of = windows(call, &x.dims)?;
            expect_columns(call, OUT, x, &of)?;
            let (x, out) = (x.slot, out.slot);
            CallPlan::new(move |views, tiles| {
                kernel::columns(tiles, &of, views.of(x), views.of(out));
                Ok(())
            })
        },
    },
    Operator {
        name: "aclnnIm2colBackward",
        parameters: &[input(GRAD_OUTPUT, FLOATING, 2, 3), output(OUT, FLOATING, 3, 4)],
        limits: "gradOutput has the shape of the out of aclnnIm2col, out of self, with inputSize as its last extents; \
                 one element type",
        source: "CANN 8.1 aclnn API reference, aclnnIm2colBackward",
        plan: |call| {
            let (grad, out) = (call.tensor(GRAD_OUTPUT)?, call.tensor(OUT)?);
            let plane = numbers(call, INPUT_SIZE, &[2], 2, 0, |_| i64::MAX)?;
            if out.dims[out.rank() - 2..] != plane[..] {
                return Err(call.refuse(OUT, format!("expected planes of {plane:?}, found {:?}", out.dims)));
            }
            let of = windows(call, &out.dims)?;
            expect_columns(call, GRAD_OUTPUT, out, &of)?;
            let (grad, out) = (grad.slot, out.slot);
            CallPlan::new(move |views, tiles| {
                kernel::columns_grad(tiles, &of, views.of(grad), views.of(out));
                Ok(())
            })
        },
    },
];

fn windows(call: &OperatorCall, dims: &[usize]) -> Result<Geometry, Refusal> {
    let outer = dims.len() - 3;
    let input = dims[outer + 1..].to_vec();
    let numbers = |name, least| numbers(call, name, &[1, 2], 2, least, |_| MOST);
    let (kernel, stride) = (numbers(KERNEL_SIZE, 1)?, numbers(STRIDE, 1)?);
    let (padding, dilation) = (numbers(PADDING, 0)?, numbers(DILATION, 1)?);
    // No overflow: extents have 63 bits, attribute products 62.
    let extent = |dim: usize| {
        let reach = dilation[dim] * (kernel[dim] - 1) + 1;
        Some((input[dim] + 2 * padding[dim]).checked_sub(reach)? / stride[dim] + 1)
    };
    let output: Option<Vec<usize>> = (0..2).map(extent).collect();
    let Some(output) = output else {
        return Err(call.refuse(KERNEL_SIZE, format!("a window of {kernel:?} does not fit into {input:?}")));
    };
    let (batch, channels, precision) = (dims[..outer].iter().product(), dims[outer], OperandRounding::Keep);
    Ok(Geometry {
        batch,
        groups: 1,
        channels,
        outputs: 1,
        input,
        output,
        kernel,
        stride,
        padding,
        dilation,
        precision,
    })
}

/// The shape has the columns of the windows of `x`.
fn expect_columns(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    x: &CheckedTensor,
    of: &Geometry,
) -> Result<(), Refusal> {
    let column = of.kernel.iter().try_fold(of.channels, |product, &extent| product.checked_mul(extent));
    let places = of.output.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
    let (Some(column), Some(places)) = (column, places) else {
        let text =
            format!("windows of {:?} over {:?} in {} channels overflow", of.kernel, of.input, of.channels);
        return Err(call.refuse(KERNEL_SIZE, text));
    };
    let shape = [&x.dims[..x.rank() - 3], &[column, places]].concat();
    call.expect_dtype(name, x.dtype, "the type of the planes")?;
    call.expect_shape(name, &shape, "of the columns")
}

const NCDHW: i32 = 30;

/// Kernels count in INT32.
const MOST: i64 = i32::MAX as i64;

/// The array has one of `lengths`, and values in `least..=most(dim)`.
fn numbers(
    call: &OperatorCall,
    name: Name<[i64]>,
    lengths: &[usize],
    dims: usize,
    least: i64,
    most: impl Fn(usize) -> i64,
) -> Result<Vec<usize>, Refusal> {
    let values = call.ints(name)?;
    if !lengths.contains(&values.len()) {
        let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
        return Err(call.refuse(name, format!("expected {} numbers, found {values:?}", lengths.join(" or "))));
    }
    for (i, &value) in values.iter().enumerate() {
        let most = most(i * dims / values.len());
        if value < least || value > most {
            return Err(call.refuse(
                name,
                format!("expected numbers of {least} to {most}, found {value} in {values:?}"),
            ));
        }
    }
    Ok(values.iter().cycle().take(dims.max(values.len())).map(|&value| value as usize).collect())
}

/// Returns the maximum stride, padding and dilation.
fn limits(is_transposed: bool, is_gradient: bool, dims: usize, dim: usize) -> [i64; 3] {
    let in_plane = dims == 3 && dim > 0;
    [
        if in_plane { 63 } else { MOST },
        if in_plane || dims < 3 && !is_transposed { 255 } else { MOST },
        if in_plane || is_transposed || is_gradient { 255 } else { MOST },
    ]
}

/// Unlike matrix products, convolutions have no mode 4.
fn precision(call: &OperatorCall, dtype: AclType) -> Result<OperandRounding, Refusal> {
    match (call.int(CUBE_MATH_TYPE)?, dtype) {
        (2, AclType::BF16) => Err(call.refuse(CUBE_MATH_TYPE, "2 (USE_FP16) is not legal for BFLOAT16")),
        (1 | 3, AclType::F32) => Ok(OperandRounding::HalfFloat32),
        (2, AclType::F32) => Ok(OperandRounding::Half),
        (0..=3, _) => Ok(OperandRounding::Keep),
        (other, _) => {
            let text = "expected 0 (keep), 1 (allow lower precision), 2 (FLOAT16) or 3 (HFLOAT32)";
            Err(call.refuse(CUBE_MATH_TYPE, format!("{text}, found {other}")))
        }
    }
}

struct WindowGeometry {
    stride: Vec<usize>,
    padding: Vec<usize>,
    behind: Vec<usize>,
    dilation: Vec<usize>,
}

impl WindowGeometry {
    /// Returns the number of windows per dim; `None` if none fits.
    fn count(&self, input: &[usize], kernel: &[usize]) -> Option<Vec<usize>> {
        let extent = |dim: usize| {
            let reach = self.dilation[dim] * kernel[dim].saturating_sub(1) + 1;
            Some(
                (input[dim] + self.padding[dim] + self.behind[dim]).checked_sub(reach)? / self.stride[dim]
                    + 1,
            )
        };
        (0..input.len()).map(extent).collect()
    }
}

fn expect_elements(call: &OperatorCall, names: &[Name<CheckedTensor>]) -> Result<(), Refusal> {
    for &name in names {
        if let Some(empty) = call.tensor_if_given(name)?.filter(|tensor| tensor.is_empty()) {
            return Err(call.refuse(name, format!("expected a tensor with elements, found {:?}", empty.dims)));
        }
    }
    Ok(())
}

fn quantised(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, weight, out) = (call.tensor(INPUT)?, call.tensor(WEIGHT)?, call.tensor(OUTPUT)?);
    for name in [INPUT, WEIGHT, OUTPUT] {
        let found = call.tensor(name)?.format;
        if found != NCDHW {
            return Err(call.refuse(name, format!("expected format NCDHW ({NCDHW}), found {found}")));
        }
    }
    expect_elements(call, &[INPUT, WEIGHT, OUTPUT])?;
    if call.flag(TRANSPOSED)? {
        return Err(call.refuse(TRANSPOSED, "expected false, found true"));
    }
    for (name, expected) in [(GROUPS, 1), (OFFSET_X, 0)] {
        let found = call.int(name)?;
        if found != expected {
            return Err(call.refuse(name, format!("expected {expected}, found {found}")));
        }
    }
    for (name, tensor) in [(INPUT, x), (WEIGHT, weight)] {
        if tensor.dims.iter().any(|&dim| dim >= 1_000_000) {
            return Err(call.refuse(name, format!("expected dims below 1000000, found {:?}", tensor.dims)));
        }
    }
    if weight.dims[1] != x.dims[1] {
        return Err(
            call.refuse(WEIGHT, format!("{:?} has no weights for {} channels", weight.dims, x.dims[1]))
        );
    }
    let most = |at: usize| move |dim: usize| limits(false, false, 3, dim)[at];
    let padding = numbers(call, PADDING, &[3], 3, 0, most(1))?;
    let (stride, dilation) =
        (numbers(call, STRIDE, &[3], 3, 1, most(0))?, numbers(call, DILATION, &[3], 3, 1, most(2))?);
    let lying = WindowGeometry { stride, behind: padding.clone(), padding, dilation };
    let (input, kernel) = (x.dims[2..].to_vec(), weight.dims[2..].to_vec());
    let Some(output) = lying.count(&input, &kernel) else {
        return Err(call.refuse(WEIGHT, format!("a window of {kernel:?} does not fit into {:?}", x.dims)));
    };
    call.expect_shape(OUTPUT, &[&[x.dims[0], weight.dims[0]], &output[..]].concat(), "of the convolution")?;
    call.expect_shape(SCALE, &weight.dims[..1], "one element per output channel")?;
    let bias = call.tensor_if_given(BIAS)?.map(|bias| bias.slot);
    if bias.is_some() {
        call.expect_shape(BIAS, &weight.dims[..1], "one element per output channel")?;
    }
    let WindowGeometry { stride, padding, dilation, .. } = lying;
    let (batch, channels, outputs, precision) = (x.dims[0], x.dims[1], weight.dims[0], OperandRounding::Keep);
    let of = Geometry {
        batch,
        groups: 1,
        channels,
        outputs,
        input,
        output,
        kernel,
        stride,
        padding,
        dilation,
        precision,
    };
    let (x, weight, scale, out) = (x.slot, weight.slot, call.tensor(SCALE)?.slot, out.slot);
    CallPlan::new(move |views, tiles| {
        let operands = [views.of(x), views.of(weight)];
        kernel::quantised(
            tiles,
            &of,
            operands,
            views.of(scale),
            bias.map(|slot| views.of(slot)),
            views.of(out),
        );
        Ok(())
    })
}

/// Returns one number for each of N, C, H and W; the first two must be 1.
fn of_planes(call: &OperatorCall, name: Name<[i64]>) -> Result<Vec<usize>, Refusal> {
    let values = numbers(call, name, &[4], 4, 1, |_| MOST)?;
    if values[..2] == [1, 1] {
        return Ok(values[2..].to_vec());
    }
    Err(call.refuse(name, format!("expected 1 for N and C, found {values:?}")))
}

fn deformed(call: &OperatorCall) -> Result<Deformed, Refusal> {
    let (x, weight) = (call.tensor(X)?, call.tensor(WEIGHT)?);
    let ends = numbers(call, PADDING, &[4], 4, 0, |_| MOST)?;
    let lying = WindowGeometry {
        stride: of_planes(call, STRIDE)?,
        dilation: of_planes(call, DILATION)?,
        padding: vec![ends[0], ends[2]],
        behind: vec![ends[1], ends[3]],
    };
    let kernel = numbers(call, KERNEL_SIZE, &[2], 2, 1, |_| 2048)?;
    let (groups, parts) = (call.int(GROUPS)?, call.int(DEFORMABLE_GROUPS)?);
    let divides =
        |number: i64, of: usize| usize::try_from(number).is_ok_and(|by| by > 0 && of.is_multiple_of(by));
    if !divides(groups, x.dims[1]) || !divides(groups, weight.dims[0]) {
        let text = format!("expected a divisor of {} and of {}, found {groups}", x.dims[1], weight.dims[0]);
        return Err(call.refuse(GROUPS, text));
    }
    if !divides(parts, x.dims[1]) {
        return Err(
            call.refuse(DEFORMABLE_GROUPS, format!("expected a divisor of {}, found {parts}", x.dims[1]))
        );
    }
    let [groups, parts] = [groups, parts].map(|number| number as usize);
    let (channels, outputs, window) = (x.dims[1] / groups, weight.dims[0] / groups, kernel[0] * kernel[1]);
    if window > 2048 || window * channels > 65_535 {
        let text = format!(
            "expected at most 2048 elements, 65535 with channels, found {window} of {channels} channels"
        );
        return Err(call.refuse(KERNEL_SIZE, text));
    }
    call.expect_shape(
        WEIGHT,
        &[weight.dims[0], channels, kernel[0], kernel[1]],
        "of x, groups and kernelSize",
    )?;
    let input = x.dims[2..].to_vec();
    let Some(output) = lying.count(&input, &kernel) else {
        return Err(
            call.refuse(KERNEL_SIZE, format!("a window of {kernel:?} does not fit into {:?}", x.dims))
        );
    };
    let WindowGeometry { stride, padding, dilation, .. } = lying;
    let (batch, precision) = (x.dims[0], OperandRounding::Keep);
    let of = Geometry {
        batch,
        groups,
        channels,
        outputs,
        input,
        output,
        kernel,
        stride,
        padding,
        dilation,
        precision,
    };
    Ok(Deformed { of, parts, dtype: x.dtype })
}

fn deformable(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    let tensors = [X, WEIGHT, OFFSET, OUT, DEFORM_OUT_OPTIONAL];
    expect_elements(call, &[&tensors[..], &[BIAS_OPTIONAL]].concat())?;
    call.expect_channels_second(&tensors)?;
    if !call.flag(MODULATED)? {
        return Err(call.refuse(MODULATED, "expected true, found false"));
    }
    let by = deformed(call)?;
    let Geometry { batch, groups, outputs, ref output, ref kernel, .. } = by.of;
    let plane = |channels: usize| [batch, channels, output[0], output[1]];
    call.expect_shape(
        OFFSET,
        &plane(3 * by.parts * kernel[0] * kernel[1]),
        "three numbers per window element and group",
    )?;
    call.expect_shape(OUT, &plane(groups * outputs), "of the convolution")?;
    let mut optional = [None; 2];
    let read = [batch, x.dims[1], output[0] * kernel[0], output[1] * kernel[1]];
    for ((name, shape), slot) in [(BIAS_OPTIONAL, &[groups * outputs][..]), (DEFORM_OUT_OPTIONAL, &read)]
        .into_iter()
        .zip(&mut optional)
    {
        if let Some(tensor) = call.tensor_if_given(name)? {
            call.expect_shape(name, shape, "by out, or by x and its windows")?;
            call.expect_dtype(name, x.dtype, "the type of x")?;
            *slot = Some(tensor.slot);
        }
    }
    for name in [WEIGHT, OFFSET, OUT] {
        call.expect_dtype(name, x.dtype, "the type of x")?;
    }
    let slot = |name| call.tensor(name).map(|tensor: &CheckedTensor| tensor.slot);
    let ([x, weight, offset, out], [bias, read]) =
        ([x.slot, slot(WEIGHT)?, slot(OFFSET)?, slot(OUT)?], optional);
    CallPlan::new(move |views, tiles| {
        let operands = [x, weight, offset].map(|slot| views.of(slot));
        deformable::forward(tiles, &by, operands, bias.map(|slot| views.of(slot)), views.of(out));
        if let Some(read) = read {
            deformable::sampled(tiles, &by, [views.of(x), views.of(offset)], views.of(read));
        }
        Ok(())
    })
}

/// A transposed convolution is the input gradient of the described convolution.
fn geometry(call: &OperatorCall, out: Name<CheckedTensor>) -> Result<Geometry, Refusal> {
    let (x, weight, written) = (call.tensor(INPUT)?, call.tensor(WEIGHT)?, call.tensor(out)?);
    let (dims, is_transposed, groups) = (x.rank() - 2, call.flag(TRANSPOSED)?, call.int(GROUPS)?);
    call.expect_channels_second(&[INPUT, WEIGHT, out])?;
    for name in [WEIGHT, out] {
        call.expect_dtype(name, x.dtype, "the type of input")?;
        if call.tensor(name)?.rank() != x.rank() {
            let text =
                format!("expected {} dims as input has, found {:?}", x.rank(), call.tensor(name)?.dims);
            return Err(call.refuse(name, text));
        }
    }
    for (name, tensor) in [(INPUT, x), (WEIGHT, weight)] {
        if tensor.dims.iter().any(|&dim| dim > 1_000_000) {
            return Err(
                call.refuse(name, format!("expected dims of at most 1000000, found {:?}", tensor.dims))
            );
        }
    }
    let divides = |dim: usize| dim.is_multiple_of(groups as usize);
    if !(1..=65535).contains(&groups) || !divides(x.dims[1]) || !divides(weight.dims[0]) {
        let text = format!(
            "expected a divisor of {} and of {}, at most 65535, found {groups}",
            x.dims[1], weight.dims[0]
        );
        return Err(call.refuse(GROUPS, text));
    }
    let groups = groups as usize;
    let of_group = if is_transposed { weight.dims[0] } else { weight.dims[1] * groups };
    if of_group != x.dims[1] {
        let text = format!("{:?} has no weights for {} channels in {groups} groups", weight.dims, x.dims[1]);
        return Err(call.refuse(WEIGHT, text));
    }
    let is_gradient = out.text() == GRAD_OUTPUT.text();
    let most = |at: usize| move |dim: usize| limits(is_transposed, is_gradient, dims, dim)[at];
    let stride = numbers(call, STRIDE, &[dims], dims, 1, most(0))?;
    // Two dims have padding at both ends, one dim only where documented.
    let has_ends = dims == 2 || dims == 1 && !is_transposed && !is_gradient;
    let lengths = if has_ends { &[dims, 2 * dims][..] } else { &[dims] };
    let ends = numbers(call, PADDING, lengths, dims, 0, most(1))?;
    let [padding, behind]: [Vec<usize>; 2] = [0, 1].map(|end| {
        (0..dims).map(|dim| ends[dim * ends.len() / dims + end * (ends.len() / dims - 1)]).collect()
    });
    let dilation = numbers(call, DILATION, &[dims], dims, 1, most(2))?;
    let kernel = weight.dims[2..].to_vec();
    let reach = |dim: usize| dilation[dim] * kernel[dim].saturating_sub(1) + 1;
    let expected: Option<Vec<usize>> = if is_transposed {
        let below = |dim: usize| stride[dim].max(dilation[dim]) as i64 - 1;
        let more = numbers(call, OUTPUT_PADDING, &[dims], dims, 0, below)?;
        let extent = |dim: usize| {
            let last = x.dims[2 + dim].checked_sub(1)? * stride[dim];
            (last + reach(dim) + more[dim]).checked_sub(padding[dim] + behind[dim])
        };
        (0..dims).map(extent).collect()
    } else {
        let extent = |dim: usize| {
            let room = (x.dims[2 + dim] + padding[dim] + behind[dim]).checked_sub(reach(dim))?;
            Some(room / stride[dim] + 1)
        };
        (0..dims).map(extent).collect()
    };
    let outputs = if is_transposed { weight.dims[1] * groups } else { weight.dims[0] };
    let Some(expected) = expected else {
        return Err(call.refuse(WEIGHT, format!("a window of {kernel:?} does not fit into {:?}", x.dims)));
    };
    call.expect_shape(out, &[&[x.dims[0], outputs], &expected[..]].concat(), "of the convolution")?;
    let (input, output) = (x.dims[2..].to_vec(), written.dims[2..].to_vec());
    let (channels, outputs) = (x.dims[1] / groups, outputs / groups);
    let (input, output, channels, outputs) =
        if is_transposed { (output, input, outputs, channels) } else { (input, output, channels, outputs) };
    let precision = precision(call, x.dtype)?;
    let batch = x.dims[0];
    Ok(Geometry {
        batch,
        groups,
        channels,
        outputs,
        input,
        output,
        kernel,
        stride,
        padding,
        dilation,
        precision,
    })
}

fn forward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let of = geometry(call, OUTPUT)?;
    let x = call.tensor(INPUT)?;
    let out = call.tensor(OUTPUT)?;
    let bias = call.tensor_if_given(BIAS)?;
    if bias.is_some() {
        call.expect_shape(BIAS, &[out.dims[1]], "one element per output channel")?;
        call.expect_dtype(BIAS, x.dtype, "the type of input")?;
    }
    let is_transposed = call.flag(TRANSPOSED)?;
    let (x, weight, bias, out) = (x.slot, call.tensor(WEIGHT)?.slot, bias.map(|bias| bias.slot), out.slot);
    CallPlan::new(move |views, tiles| {
        let bias = bias.map(|slot| views.of(slot));
        let run = if is_transposed { kernel::input_grad } else { kernel::forward };
        run(tiles, &of, views.of(x), views.of(weight), bias, views.of(out));
        Ok(())
    })
}

fn backward(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let of = geometry(call, GRAD_OUTPUT)?;
    let mask = call.flags(OUTPUT_MASK)?;
    if mask.len() != 3 {
        return Err(call.refuse(OUTPUT_MASK, format!("expected 3 truth values, found {}", mask.len())));
    }
    let (x, weight, grad) = (call.tensor(INPUT)?, call.tensor(WEIGHT)?, call.tensor(GRAD_OUTPUT)?);
    let wanted =
        [(GRAD_INPUT, x.dims.clone()), (GRAD_WEIGHT, weight.dims.clone()), (GRAD_BIAS, vec![grad.dims[1]])];
    let mut slots = [None; 3];
    for (((name, shape), &is_wanted), slot) in wanted.iter().zip(mask).zip(&mut slots) {
        if !is_wanted {
            continue;
        }
        if call.tensor_if_given(*name)?.is_none() {
            return Err(call.refuse(*name, "is NULL, but outputMask asks for it"));
        }
        call.expect_shape(*name, shape, "of the differentiated tensor")?;
        *slot = Some(call.tensor(*name)?.slot);
    }
    let is_transposed = call.flag(TRANSPOSED)?;
    let (x, weight, grad) = (x.slot, weight.slot, grad.slot);
    CallPlan::new(move |views, tiles| {
        let [grad_input, grad_weight, grad_bias] = slots.map(|slot| slot.map(|slot| views.of(slot)));
        let (x, weight, grad) = (views.of(x), views.of(weight), views.of(grad));
        if let Some(out) = grad_input {
            let run = if is_transposed { kernel::forward } else { kernel::input_grad };
            run(tiles, &of, grad, weight, None, out);
        }
        if let Some(out) = grad_weight {
            let (read, written) = if is_transposed { (grad, x) } else { (x, grad) };
            kernel::weight_grad(tiles, &of, read, written, out);
        }
        if let Some(out) = grad_bias {
            kernel::bias_grad(tiles, grad, out);
        }
        Ok(())
    })
}
