//! Sampling at points of a grid, and grids of affine maps.
//!
//! Computed in f64 and rounded once. Gradients of clipped coordinates are 0, as in PyTorch.

use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::{FLOATING, REAL};
use crate::operator::sizes::Sizes;
use crate::operator::{CallPlan, Refusal};
use crate::resampling::grid_kernels::{GridSampler, Interpolation, Padding};

const SAMPLED: &str = "one element type; interpolationMode 0 (linear), 1 (nearest), for 4 dims also 2 (cubic); paddingMode 0 \
                       (zeros), 1 (border), 2 (reflection); input [N, C, ..], grid [N, .., dims], out [N, C, ..]; input has \
                       elements";

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnAffineGrid",
        parameters: &[input(THETA, FLOATING, 3, 3), output(OUT, FLOATING, 4, 5)],
        limits: "size [N, C, H, W] with theta [N, 2, 3] and out [N, H, W, 2], or [N, C, D, H, W] with theta [N, 3, 4] and \
                 out [N, D, H, W, 3]; theta has elements and the type of out",
        source: "ops-math math/affine_grid, aclnnAffineGrid (host code)",
        plan: affine,
    },
    Operator {
        name: "aclnnGridSampler2D",
        parameters: &[input(INPUT, REAL, 4, 4), input(GRID, REAL, 4, 4), output(OUT, REAL, 4, 4)],
        limits: SAMPLED,
        source: "CANN 8.1 aclnn API reference, aclnnGridSampler2D",
        plan: sample,
    },
    Operator {
        name: "aclnnGridSampler3D",
        parameters: &[input(INPUT, REAL, 5, 5), input(GRID, REAL, 5, 5), output(OUT, REAL, 5, 5)],
        limits: SAMPLED,
        source: "CANN 8.1 aclnn API reference, aclnnGridSampler3D",
        plan: sample,
    },
    Operator {
        name: "aclnnGridSampler2DBackward",
        parameters: &[
            input(GRAD_OUTPUT, REAL, 4, 4),
            input(INPUT, REAL, 4, 4),
            input(GRID, REAL, 4, 4),
            output(INPUT_GRAD, REAL, 4, 4).optional(),
            output(GRID_GRAD, REAL, 4, 4).optional(),
        ],
        limits: SAMPLED_GRAD,
        source: "CANN 8.1 aclnn API reference, aclnnGridSampler2DBackward",
        plan: sample_grad,
    },
    Operator {
        name: "aclnnGridSampler3DBackward",
        parameters: &[
            input(GRAD_OUTPUT, REAL, 5, 5),
            input(INPUT, REAL, 5, 5),
            input(GRID, REAL, 5, 5),
            output(INPUT_GRAD, REAL, 5, 5).optional(),
            output(GRID_GRAD, REAL, 5, 5).optional(),
        ],
        limits: SAMPLED_GRAD,
        source: "CANN 8.1 aclnn API reference, aclnnGridSampler3DBackward",
        plan: sample_grad,
    },
];

const SAMPLED_GRAD: &str = "as the forward pass; gradOutput has the shape of its out; outputMask has two values, for inputGrad and \
                            gridGrad, which have the shapes of input and grid and may be NULL if not wanted";

fn affine(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(THETA, &[OUT])?;
    call.expect_elements(&[THETA])?;
    let size = call.ints(SIZE)?;
    let extents: Option<Vec<usize>> = size.iter().map(|&extent| usize::try_from(extent).ok()).collect();
    let Some(extents) = extents.filter(|extents| matches!(extents.len(), 4 | 5)) else {
        return Err(call.refuse(SIZE, format!("expected 4 or 5 extents of at least 0, found {size:?}")));
    };
    let spatial = extents[2..].to_vec();
    let dims = spatial.len();
    call.expect_shape(THETA, &[extents[0], dims, dims + 1], "an affine map per image of size")?;
    call.expect_shape(
        OUT,
        &[&extents[..1], &spatial, &[dims]].concat(),
        "N, the places and the dims of size",
    )?;
    let is_aligned = call.flag(ALIGN_CORNERS)?;
    let [theta, out] = call.slots_of([THETA, OUT])?;
    CallPlan::new(move |views, _| {
        let maps = views.read::<f64>(theta);
        let mut points = Vec::new();
        for map in maps.chunks_exact(dims * (dims + 1)) {
            for place in 0..spatial.iter().product() {
                let point = position(place, &spatial, is_aligned);
                points.extend(map.chunks_exact(dims + 1).map(|row| {
                    row[..dims].iter().zip(&point).map(|(factor, x)| factor * x).sum::<f64>() + row[dims]
                }));
            }
        }
        views.write(out, &points);
        Ok(())
    })
}

/// Returns the coordinates of a place from -1 to 1, the last dim first.
fn position(mut place: usize, extents: &[usize], is_aligned: bool) -> Vec<f64> {
    let mut point = Vec::with_capacity(extents.len());
    for &extent in extents.iter().rev() {
        let (at, steps) = ((place % extent) as f64, extent as f64);
        place /= extent;
        point.push(match (is_aligned, extent) {
            (true, 1) => 0.0,
            (true, _) => 2.0 * at / (steps - 1.0) - 1.0,
            (false, _) => (2.0 * at + 1.0) / steps - 1.0,
        });
    }
    point
}

fn sampler(call: &OperatorCall, results: &[Name<CheckedTensor>]) -> Result<GridSampler, Refusal> {
    let x = call.tensor(INPUT)?;
    call.expect_type_of(INPUT, &[GRID])?;
    call.expect_type_of(INPUT, results)?;
    call.expect_elements(&[INPUT])?;
    let dims = x.rank() - 2;
    let shapes: [&'static str; 3] =
        if dims == 2 { ["nchw", "nyx2", "ncyx"] } else { ["ncdhw", "nzyx3", "nczyx"] };
    let mut wanted = vec![INPUT.of(shapes[0]), GRID.of(shapes[1])];
    wanted.extend(results.iter().map(|result| result.of(shapes[2])));
    Sizes::default().read(call, &wanted)?;
    let interpolation = match call.int_in(INTERPOLATION_MODE, 0..=if dims == 2 { 2 } else { 1 })? {
        0 => Interpolation::Linear,
        1 => Interpolation::Nearest,
        _ => Interpolation::Cubic,
    };
    let padding = match call.int_in(PADDING_MODE, 0..=2)? {
        0 => Padding::Zeros,
        1 => Padding::Border,
        _ => Padding::Reflection,
    };
    let is_aligned = call.flag(ALIGN_CORNERS)?;
    Ok(GridSampler {
        images: x.dims[0],
        channels: x.dims[1],
        extents: x.dims[2..].to_vec(),
        interpolation,
        padding,
        is_aligned,
    })
}

fn sample(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sampler = sampler(call, &[OUT])?;
    let [x, grid, out] = call.slots_of([INPUT, GRID, OUT])?;
    CallPlan::new(move |views, _| {
        views.write(out, &sampler.sample(&views.read(x), &views.read(grid)));
        Ok(())
    })
}

fn sample_grad(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let sampler = sampler(call, &[GRAD_OUTPUT])?;
    let &[of_input, of_grid] = call.flags(OUTPUT_MASK)? else {
        return Err(call.refuse(OUTPUT_MASK, "expected two values, for inputGrad and gridGrad"));
    };
    for (is_wanted, name, model) in [(of_input, INPUT_GRAD, INPUT), (of_grid, GRID_GRAD, GRID)] {
        if is_wanted {
            call.expect_dtype(name, call.tensor(INPUT)?.dtype, "the type of input")?;
            call.expect_shape(name, &call.tensor(model)?.dims, &format!("of {model}"))?;
        }
    }
    let [grad, x, grid] = call.slots_of([GRAD_OUTPUT, INPUT, GRID])?;
    let [input_grad, grid_grad] = [call.slot_if_given(INPUT_GRAD)?, call.slot_if_given(GRID_GRAD)?];
    let unwanted = [(of_input, input_grad), (of_grid, grid_grad)];
    let unwritten = unwanted.into_iter().filter(|(wanted, _)| !wanted).filter_map(|(_, slot)| slot).collect();
    let plan = CallPlan::new(move |views, _| {
        let grads = sampler.grad(&views.read(grad), &views.read(x), &views.read(grid));
        views.write_given(input_grad.filter(|_| of_input), &grads.input);
        views.write_given(grid_grad.filter(|_| of_grid), &grads.grid);
        Ok(())
    })?;
    Ok(plan.leaving(unwritten))
}
