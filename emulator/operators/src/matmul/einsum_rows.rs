//! Sums of products by equation, depthwise and time-major convolutions, and gated grouped products.
//!
//! Computed in f64 and rounded once.

use crate::attention::training_rows::expect_unused;
use crate::dtype::AclType::{self, F16, F32, I16, I32, I64};
use crate::matmul::grouped_rows::group_parts;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, Parameter, input, inputs, output};
use crate::operator::sets::{BYTES, FLOATING, INDEX64, SINGLE};
use crate::operator::{CallPlan, Refusal};
use crate::quantization::dynamic_rows::symmetric;

const MULTIPLIED: &[AclType] = &[F32, F16, I16, I32, I64];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnEinsum",
        parameters: &[inputs(TENSORS, MULTIPLIED, 0, 8), output(OUTPUT, MULTIPLIED, 0, 8)],
        limits: "one or two tensors of one type; equation \"ab,bc->ac\" in letters, each once in a tensor, with an arrow; output has the type of \
                 the tensors",
        source: "CANN 8.1 aclnn API reference, aclnnEinsum",
        plan: einsum,
    },
    Operator {
        name: "aclnnConvDepthwise2d",
        parameters: &[
            input(SELF, FLOATING, 4, 4),
            input(WEIGHT, FLOATING, 4, 4),
            input(BIAS, FLOATING, 1, 1).optional(),
            output(OUT, FLOATING, 4, 4),
        ],
        limits: "self [N, C, H, W], weight [a multiple of C, 1, kernelSize], bias per output channel; stride, padding and dilation of two numbers; one \
                 element type; cubeMathType 0 to 3",
        source: "CANN 8.1 aclnn API reference, aclnnConvDepthwise2d",
        plan: depthwise,
    },
    Operator {
        name: "aclnnConvTbc",
        parameters: &[
            input(SELF, FLOATING, 3, 3),
            input(WEIGHT, FLOATING, 3, 3),
            input(BIAS, FLOATING, 1, 1),
            output(OUTPUT, FLOATING, 3, 3),
        ],
        limits: "self [T, B, C], weight [K, C, O], bias [O], output [T + 2 pad - K + 1, B, O]; one element type; cubeMathType 0 to 3",
        source: "CANN 8.1 aclnn API reference, aclnnConvTbc",
        plan: time_major,
    },
    Operator {
        name: "aclnnConvTbcBackward",
        parameters: &[
            input(SELF, FLOATING, 3, 3),
            input(INPUT, FLOATING, 3, 3),
            input(WEIGHT, FLOATING, 3, 3),
            input(BIAS, FLOATING, 1, 1),
            output(GRAD_INPUT, FLOATING, 3, 3),
            output(GRAD_WEIGHT, FLOATING, 3, 3),
            output(GRAD_BIAS, FLOATING, 1, 1),
        ],
        limits: "gradients of aclnnConvTbc, where self is that of its output; one element type; cubeMathType 0 to 3",
        source: "CANN 8.1 aclnn API reference, aclnnConvTbcBackward",
        plan: time_major_grad,
    },
    Operator {
        name: "aclnnGroupedMatmulSwigluQuant",
        parameters: GATED,
        limits: GATED_LIMITS,
        source: "ops-transformer gmm/grouped_matmul_swiglu_quant/docs/aclnnGroupedMatmulSwigluQuant.md",
        plan: gated,
    },
    Operator {
        name: "aclnnGroupedMatmulSwigluQuantWeightNZ",
        parameters: GATED,
        limits: "as aclnnGroupedMatmulSwigluQuant",
        source: "ops-transformer gmm/grouped_matmul_swiglu_quant/docs/aclnnGroupedMatmulSwigluQuantWeightNZ.md",
        plan: gated,
    },
];

const GATED: &[Parameter] = &[
    input(X, BYTES, 2, 2),
    input(WEIGHT, BYTES, 3, 3).or_blocked(),
    input(WEIGHT_SCALE, FLOATING, 2, 2),
    input(X_SCALE, SINGLE, 1, 1),
    input(GROUP_LIST, INDEX64, 1, 1),
    output(OUTPUT, BYTES, 2, 2),
    output(OUTPUT_SCALE, SINGLE, 1, 1),
    output(OUTPUT_OFFSET, SINGLE, 1, 1).optional(),
];

const GATED_LIMITS: &str = "x [M, K] and weight [E, K, N] of INT8, weight also in FRACTAL_NZ, weightScale [E, N], xScale [M], groupList [E], the ends of the groups; the \
                            products times both scales are gated: silu of the first half of N times the second; output [M, N / 2] is that \
                            divided by outputScale [M], the largest magnitude of the row over 127, to nearest; rows behind the last group are not \
                            written; bias and offset NULL, outputOffset NULL or without elements";

struct Equation {
    inputs: Vec<Vec<char>>,
    output: Vec<char>,
}

fn parsed(call: &OperatorCall) -> Result<Equation, Refusal> {
    let written: String = call.text(EQUATION)?.chars().filter(|letter| !letter.is_whitespace()).collect();
    let wrong = || call.refuse(EQUATION, format!("expected letters as in \"ab,bc->ac\", found {written:?}"));
    let (from, to) = written.split_once("->").ok_or_else(wrong)?;
    let is_word = |word: &str| {
        word.chars().enumerate().all(|(i, letter)| {
            letter.is_ascii_alphabetic() && word.chars().position(|other| other == letter) == Some(i)
        })
    };
    let words: Vec<&str> = from.split(',').collect();
    if !words.iter().all(|word| is_word(word))
        || !is_word(to)
        || to.chars().any(|letter| !from.contains(letter))
    {
        return Err(wrong());
    }
    Ok(Equation {
        inputs: words.iter().map(|word| word.chars().collect()).collect(),
        output: to.chars().collect(),
    })
}

fn einsum(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (tensors, out) = (call.tensors(TENSORS)?, call.tensor(OUTPUT)?);
    let Equation { inputs, output } = parsed(call)?;
    let fits = inputs.len() == tensors.len() && tensors.len() <= 2;
    call.expect_that(fits, TENSORS, &format!("{} tensors, 1 or 2", inputs.len()), tensors.len())?;
    let mut extents: Vec<(char, usize)> = Vec::new();
    for (tensor, letters) in tensors.iter().zip(&inputs) {
        call.expect_that(
            tensor.dtype == out.dtype,
            TENSORS,
            &format!("{} as output", out.dtype),
            tensor.dtype,
        )?;
        call.expect_that(
            tensor.rank() == letters.len(),
            TENSORS,
            &format!("dims {letters:?}"),
            &tensor.dims,
        )?;
        for (&letter, &extent) in letters.iter().zip(&tensor.dims) {
            match extents.iter().find(|(known, _)| *known == letter) {
                Some((_, known)) => {
                    call.expect_that(*known == extent, TENSORS, &format!("{letter} of {known}"), extent)?;
                }
                None => extents.push((letter, extent)),
            }
        }
    }
    // The letters of the output come first, so that an element of the output is a contiguous range.
    extents.sort_by_key(|(letter, _)| output.iter().position(|known| known == letter).unwrap_or(usize::MAX));
    let shape: Vec<usize> = extents[..output.len()].iter().map(|(_, extent)| *extent).collect();
    call.expect_shape(OUTPUT, &shape, "by equation")?;
    let steps = |letters: &[char]| -> Vec<usize> {
        let of = |letter: char| {
            let behind = letters.iter().skip_while(|known| **known != letter);
            let extent =
                |letter: &char| extents.iter().find(|(known, _)| known == letter).map_or(1, |found| found.1);
            if letters.contains(&letter) { behind.skip(1).map(extent).product() } else { 0 }
        };
        extents.iter().map(|(letter, _)| of(*letter)).collect()
    };
    let (steps, slots): (Vec<Vec<usize>>, Vec<_>) =
        inputs.iter().zip(tensors).map(|(letters, tensor)| (steps(letters), tensor.slot)).unzip();
    let sizes: Vec<usize> = extents.iter().map(|(_, extent)| *extent).collect();
    let (summed, out) = (sizes[output.len()..].iter().product::<usize>(), out.slot);
    CallPlan::new(move |views, _| {
        let values: Vec<Vec<f64>> = slots.iter().map(|slot| views.read(*slot)).collect();
        let term = |at: usize| -> f64 {
            let mut rest = at;
            let mut places = vec![0; values.len()];
            for (dim, size) in sizes.iter().enumerate().rev() {
                places.iter_mut().zip(&steps).for_each(|(place, steps)| *place += rest % size * steps[dim]);
                rest /= size;
            }
            places.iter().zip(&values).map(|(place, values)| values[*place]).product()
        };
        let sum = |at: usize| (at * summed..(at + 1) * summed).map(term).sum::<f64>();
        views.write(out, &(0..views.of(out).len()).map(sum).collect::<Vec<f64>>());
        Ok(())
    })
}

fn two(call: &OperatorCall, name: Name<[i64]>, least: i64) -> Result<[usize; 2], Refusal> {
    match call.ints(name)? {
        &[a, b] if a >= least && b >= least && a.max(b) <= 1 << 20 => Ok([a as usize, b as usize]),
        other => Err(call.refuse(name, format!("expected two numbers of at least {least}, found {other:?}"))),
    }
}

fn depthwise(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(SELF, &[WEIGHT, BIAS, OUT])?;
    call.int_in(CUBE_MATH_TYPE, 0..=3)?;
    call.expect_elements(&[SELF, WEIGHT])?;
    let sizes = call.sizes(&[SELF.of("nchw"), WEIGHT.of("o1kl"), BIAS.of("o"), OUT.of("noyx")])?;
    let [batch, channels, height, width] = sizes.all(['n', 'c', 'h', 'w']);
    let [outputs, rows, columns, out_rows, out_columns] = sizes.all(['o', 'k', 'l', 'y', 'x']);
    call.expect_that(
        outputs.is_multiple_of(channels),
        WEIGHT,
        &format!("a multiple of {channels}"),
        outputs,
    )?;
    let (stride, padding, dilation) =
        (two(call, STRIDE, 1)?, two(call, PADDING, 0)?, two(call, DILATION, 1)?);
    let kernel = two(call, KERNEL_SIZE, 1)?;
    call.expect_that(kernel == [rows, columns], KERNEL_SIZE, &format!("{:?}", [rows, columns]), kernel)?;
    let extent = |dim: usize, input: usize| {
        let room = (input + 2 * padding[dim]).checked_sub(dilation[dim] * (kernel[dim] - 1) + 1)?;
        Some(room / stride[dim] + 1)
    };
    let expected = [extent(0, height), extent(1, width)];
    let found = [Some(out_rows), Some(out_columns)];
    call.expect_that(expected == found, OUT, &format!("{expected:?} places"), [out_rows, out_columns])?;
    let ([x, weight, out], bias) = (call.slots_of([SELF, WEIGHT, OUT])?, call.slot_if_given(BIAS)?);
    let place = move |dim: usize, at: usize, step: usize, limit: usize| {
        (at * stride[dim] + step * dilation[dim]).checked_sub(padding[dim]).filter(|place| *place < limit)
    };
    CallPlan::new(move |views, _| {
        let (x, weight, bias) =
            (views.read::<f64>(x), views.read::<f64>(weight), views.read_given::<f64>(bias));
        let mut results = Vec::with_capacity(batch * outputs * out_rows * out_columns);
        for plane in 0..batch * outputs {
            let (sample, output) = (plane / outputs, plane % outputs);
            let from = (sample * channels + output / (outputs / channels)) * height * width;
            for at in 0..out_rows * out_columns {
                let mut sum = bias.as_ref().map_or(0.0, |bias| bias[output]);
                for step in 0..rows * columns {
                    let row = place(0, at / out_columns, step / columns, height);
                    let column = place(1, at % out_columns, step % columns, width);
                    if let (Some(row), Some(column)) = (row, column) {
                        sum += x[from + row * width + column] * weight[output * rows * columns + step];
                    }
                }
                results.push(sum);
            }
        }
        views.write(out, &results);
        Ok(())
    })
}

/// Extents of a time-major convolution.
#[derive(Clone, Copy, Debug)]
struct TimeMajor {
    steps: usize,
    batch: usize,
    channels: usize,
    window: usize,
    outputs: usize,
    results: usize,
    pad: usize,
}

impl TimeMajor {
    /// Calls `body(output, input, weight)` for the indices of all products.
    fn each(self, mut body: impl FnMut(usize, usize, usize)) {
        for (time, step) in (0..self.results).flat_map(|time| (0..self.window).map(move |step| (time, step)))
        {
            let Some(from) = (time + step).checked_sub(self.pad).filter(|from| *from < self.steps) else {
                continue;
            };
            for sample in 0..self.batch {
                for (channel, output) in (0..self.channels)
                    .flat_map(|channel| (0..self.outputs).map(move |output| (channel, output)))
                {
                    body(
                        (time * self.batch + sample) * self.outputs + output,
                        (from * self.batch + sample) * self.channels + channel,
                        (step * self.channels + channel) * self.outputs + output,
                    );
                }
            }
        }
    }

    fn of(call: &OperatorCall, [x, out]: [Name<CheckedTensor>; 2]) -> Result<Self, Refusal> {
        call.expect_type_of(x, &[WEIGHT, BIAS, out])?;
        call.int_in(CUBE_MATH_TYPE, 0..=3)?;
        let sizes = call.sizes(&[x.of("tbc"), WEIGHT.of("kco"), BIAS.of("o"), out.of("rbo")])?;
        let [steps, batch, channels, window, outputs, results] = sizes.all(['t', 'b', 'c', 'k', 'o', 'r']);
        let pad = call.int_in(PAD_INT, 0..=1 << 20)? as usize;
        let expected = (steps + 2 * pad + 1).checked_sub(window);
        call.expect_that(expected == Some(results), out, &format!("{expected:?} steps"), results)?;
        Ok(Self { steps, batch, channels, window, outputs, results, pad })
    }
}

fn time_major(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let of = TimeMajor::of(call, [SELF, OUTPUT])?;
    let [x, weight, bias, out] = call.slots_of([SELF, WEIGHT, BIAS, OUTPUT])?;
    CallPlan::new(move |views, _| {
        let [x, weight, bias] = [x, weight, bias].map(|slot| views.read::<f64>(slot));
        let mut sums: Vec<f64> = bias.iter().copied().cycle().take(views.of(out).len()).collect();
        of.each(|to, from, at| sums[to] += x[from] * weight[at]);
        views.write(out, &sums);
        Ok(())
    })
}

fn time_major_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let of = TimeMajor::of(call, [INPUT, SELF])?;
    call.expect_type_of(SELF, &[GRAD_INPUT, GRAD_WEIGHT, GRAD_BIAS])?;
    for (grad, name) in [(GRAD_INPUT, INPUT), (GRAD_WEIGHT, WEIGHT), (GRAD_BIAS, BIAS)] {
        call.expect_shape(grad, &call.tensor(name)?.dims, &format!("of {name}"))?;
    }
    let [grad, x, weight] = call.slots_of([SELF, INPUT, WEIGHT])?;
    let outs = call.slots_of([GRAD_INPUT, GRAD_WEIGHT, GRAD_BIAS])?;
    CallPlan::new(move |views, _| {
        let [grad, x, weight] = [grad, x, weight].map(|slot| views.read::<f64>(slot));
        let mut sums = outs.map(|slot| vec![0f64; views.of(slot).len()]);
        of.each(|to, from, at| {
            sums[0][from] += grad[to] * weight[at];
            sums[1][at] += grad[to] * x[from];
        });
        grad.iter().enumerate().for_each(|(i, grad)| sums[2][i % of.outputs] += grad);
        outs.iter().zip(&sums).for_each(|(slot, sums)| views.write(*slot, sums));
        Ok(())
    })
}

fn gated(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sizes = call.sizes(&[
        X.of("mk"),
        WEIGHT.of("ekn"),
        WEIGHT_SCALE.of("en"),
        X_SCALE.of("m"),
        GROUP_LIST.of("e"),
        OUTPUT.of("mh"),
        OUTPUT_SCALE.of("m"),
    ])?;
    let [rows, depth, width, half] = sizes.all(['m', 'k', 'n', 'h']);
    call.expect_that(width == 2 * half, OUTPUT, &format!("{} columns", width / 2), half)?;
    expect_unused(call, OUTPUT_OFFSET)?;
    let [x, weight, scales, tokens, groups] =
        call.slots_of([X, WEIGHT, WEIGHT_SCALE, X_SCALE, GROUP_LIST])?;
    let [out, scales_out] = call.slots_of([OUTPUT, OUTPUT_SCALE])?;
    CallPlan::new(move |views, _| {
        let [x, weight, scales, tokens] = [x, weight, scales, tokens].map(|slot| views.read::<f64>(slot));
        let (mut levels, mut found) = (views.read::<f64>(out), views.read::<f64>(scales_out));
        for (group, part) in
            group_parts("groupList", &views.read::<i64>(groups), rows)?.into_iter().enumerate()
        {
            for row in part {
                let product = |column: usize| {
                    let own = &x[row * depth..(row + 1) * depth];
                    let term = |(i, x): (usize, &f64)| x * weight[(group * depth + i) * width + column];
                    own.iter().enumerate().map(term).sum::<f64>()
                        * tokens[row]
                        * scales[group * width + column]
                };
                let value = |i: usize| {
                    let gate = product(i);
                    gate / (1.0 + (-gate).exp()) * product(half + i)
                };
                let mut values: Vec<f64> = (0..half).map(value).collect();
                found[row] = symmetric(&mut values);
                levels[row * half..(row + 1) * half].copy_from_slice(&values);
            }
        }
        views.write(out, &levels);
        views.write(scales_out, &found);
        Ok(())
    })
}
