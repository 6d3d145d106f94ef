//! Nearest elements, interpolation, and gradients.

use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, output};
use crate::operator::sets::FLOATING;
use crate::operator::{CallPlan, Refusal};
use crate::resampling::kernels::{ResamplingGrid, Taps, resample, resample_grad};
use crate::shape::arrangement::{Selection, picked, picked_grad};

/// `ACL_FORMAT_NHWC`, with channels last.
const CHANNELS_LAST: i32 = 1;

/// Enlargement of an antialiased grid.
const MOST_TIMES: usize = 50;

/// Nearest element by rounding down or by the middle of the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nearest {
    Floor,
    Middle,
}

/// From two or four elements per dim. The area forms include all covered elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blend {
    Linear,
    Cubic,
    LinearArea,
    CubicArea,
}

macro_rules! nearest {
    ($name:literal, $rank:literal, [$($scale:ident),*], $way:expr) => {
        Operator {
            name: $name,
            parameters: &[
                input(SELF, FLOATING, $rank, $rank),
                output(OUT, FLOATING, $rank, $rank),
            ],
            limits: "outputSize has the extents after the channels; a scale of 0 means none, and so do scales of 1 with another size; out has the type of self",
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| picked(call, SELF, places(call, [SELF, OUT], &[$($scale),*], $way)?),
        }
    };
    ($name:literal, $rank:literal, $grad:ident, [$($scale:ident),*] -> $out:ident, $way:expr) => {
        Operator {
            name: $name,
            parameters: &[
                input($grad, FLOATING, $rank, $rank),
                output($out, FLOATING, $rank, $rank),
            ],
            limits: "the output has the shape inputSize and the type of the gradient; a scale of 0 means none, and so do scales of 1 with another size",
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| {
                expect_input_size(call, $out)?;
                picked_grad(call, $grad, $out, places(call, [$out, $grad], &[$($scale),*], $way)?)
            },
        }
    };
}

macro_rules! blended {
    ($name:literal, $rank:literal, $x:ident, [$($scale:ident),*], $way:expr, $limits:literal) => {
        Operator {
            name: $name,
            parameters: &[
                input($x, FLOATING, $rank, $rank),
                output(OUT, FLOATING, $rank, $rank),
            ],
            limits: concat!("outputSize has the extents after the channels; a scale of 0 means none, and so do scales of 1 with another size", $limits, "; out has the type of ", "the input"),
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| blended(call, [$x, OUT], &[$($scale),*], $way),
        }
    };
    ($name:literal, $rank:literal, $grad:ident, [$($scale:ident),*] -> $out:ident, $way:expr, $limits:literal) => {
        Operator {
            name: $name,
            parameters: &[
                input($grad, FLOATING, $rank, $rank),
                output($out, FLOATING, $rank, $rank),
            ],
            limits: concat!("the output has the shape inputSize and the type of the gradient; a scale of 0 means none, and so do scales of 1 with another size", $limits),
            source: concat!("CANN 8.1 aclnn API reference, ", $name),
            plan: |call| blended_grad(call, [$out, $grad], &[$($scale),*], $way),
        }
    };
}

pub(crate) const OPERATORS: &[Operator] = &[
    nearest!("aclnnUpsampleNearest1d", 3, [], Nearest::Floor),
    nearest!("aclnnUpsampleNearest1dV2", 3, [SCALE_L], Nearest::Floor),
    nearest!("aclnnUpsampleNearest1dBackward", 3, GRAD_OUT, [SCALES_FLOAT] -> OUT, Nearest::Floor),
    nearest!("aclnnUpsampleNearest2d", 4, [], Nearest::Floor),
    nearest!("aclnnUpsampleNearest2dV2", 4, [SCALES_H, SCALES_W], Nearest::Floor),
    nearest!("aclnnUpsampleNearest2dBackward", 4, GRAD_OUT, [SCALES_H, SCALES_W] -> GRAD_INPUT, Nearest::Floor),
    nearest!("aclnnUpsampleNearest3d", 5, [SCALES_D, SCALES_H, SCALES_W], Nearest::Floor),
    nearest!("aclnnUpsampleNearest3dBackward", 5, GRAD_OUT, [SCALES_D, SCALES_H, SCALES_W] -> GRAD_INPUT, Nearest::Floor),
    nearest!("aclnnUpsampleNearestExact1d", 3, [SCALES_FLOAT], Nearest::Middle),
    nearest!("aclnnUpsampleNearestExact1dBackward", 3, GRAD_OUTPUT, [SCALES_FLOAT] -> OUT, Nearest::Middle),
    nearest!("aclnnUpsampleNearestExact2d", 4, [SCALES_H, SCALES_W], Nearest::Middle),
    nearest!("aclnnUpsampleNearestExact2dBackward", 4, GRAD_OUTPUT, [SCALES_H, SCALES_W] -> OUT, Nearest::Middle),
    nearest!("aclnnUpsampleNearestExact3d", 5, [SCALES_D, SCALES_H, SCALES_W], Nearest::Middle),
    nearest!("aclnnUpsampleNearestExact3dBackward", 5, GRAD_OUT, [SCALES_D, SCALES_H, SCALES_W] -> GRAD_INPUT, Nearest::Middle),
    blended!("aclnnUpsampleLinear1d", 3, SELF, [SCALES_FLOAT], Blend::Linear, ""),
    blended!("aclnnUpsampleLinear1dBackward", 3, GRAD_OUT, [SCALES_FLOAT] -> OUT, Blend::Linear, ""),
    blended!("aclnnUpsampleBilinear2d", 4, SELF, [SCALES_H, SCALES_W], Blend::Linear, ""),
    blended!("aclnnUpsampleBilinear2dBackward", 4, GRAD_OUT, [SCALES_H, SCALES_W] -> OUT, Blend::Linear, ""),
    blended!("aclnnUpsampleBilinear2dBackwardV2", 4, GRAD_OUT, [SCALES_H, SCALES_W] -> OUT, Blend::Linear, ""),
    blended!("aclnnUpsampleTrilinear3d", 5, SELF, [SCALES_D, SCALES_H, SCALES_W], Blend::Linear, ""),
    blended!("aclnnUpsampleTrilinear3dBackward", 5, GRAD_OUT, [SCALES_D, SCALES_H, SCALES_W] -> GRAD_INPUT, Blend::Linear, ""),
    blended!("aclnnUpsampleBicubic2d", 4, SELF, [SCALES_H, SCALES_W], Blend::Cubic, ""),
    blended!("aclnnUpsampleBicubic2dBackward", 4, GRAD_OUT, [SCALES_H, SCALES_W] -> GRAD_INPUT, Blend::Cubic, ""),
    blended!(
        "aclnnUpsampleBilinear2dAA",
        4,
        INPUT,
        [SCALES_H, SCALES_W],
        Blend::LinearArea,
        "; alignCorners is false; at most 50 times the extent, and the extent by the scales"
    ),
    blended!(
        "aclnnUpsampleBilinear2dAABackward", 4, GRAD_OUTPUT, [SCALES_H, SCALES_W] -> OUT, Blend::LinearArea,
        "; alignCorners is false; at most 50 times the extent, and the extent by the scales"
    ),
    blended!(
        "aclnnUpsampleBicubic2dAA",
        4,
        X,
        [SCALES_H, SCALES_W],
        Blend::CubicArea,
        "; alignCorners is false; at most 50 times the extent, and the extent by the scales"
    ),
    blended!(
        "aclnnUpsampleBicubic2dAAGrad", 4, GRAD_OUTPUT, [SCALES_H, SCALES_W] -> OUT, Blend::CubicArea,
        "; alignCorners is false; at most 50 times the extent, and the extent by the scales"
    ),
];

fn expect_input_size(call: &OperatorCall, out: Name<CheckedTensor>) -> Result<(), Refusal> {
    let shape: Vec<usize> = call.ints(INPUT_SIZE)?.iter().map(|&extent| extent.max(0) as usize).collect();
    call.expect_shape(out, &shape, "inputSize")
}

/// Index, input extent, output extent, and scale; 0 means that the extents give it.
struct ResizedDim {
    dim: usize,
    own: usize,
    extent: usize,
    scale: f64,
}

/// Deviation from 1 up to which a scale counts as 1, as in CANN's host code.
const UNIT_TOLERANCE: f64 = 1e-9;

/// The two tensors have the same format.
fn sides(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; 2],
    scales: &[Name<f64>],
) -> Result<Vec<ResizedDim>, Refusal> {
    let (x, size) = (call.tensor(names[0])?, call.ints(OUTPUT_SIZE)?);
    let formats = [x.format, call.tensor(names[1])?.format];
    let first = if formats == [CHANNELS_LAST; 2] { 1 } else { 2 };
    if first == 2 {
        call.expect_channels_second(&names)?;
    }
    let count = x.rank() - 2;
    if size.len() != count
        || size.iter().any(|&extent| extent < 1)
        || x.dims[first..first + count].contains(&0)
    {
        let text = format!("expected {count} extents of at least 1 for dims {:?}, found {size:?}", x.dims);
        return Err(call.refuse(OUTPUT_SIZE, text));
    }
    let side = |(at, &extent): (usize, &i64)| {
        let scale = scales.get(at).map_or(Ok(0.0), |&name| call.float(name))?;
        Ok(ResizedDim { dim: first + at, own: x.dims[first + at], extent: extent as usize, scale })
    };
    let mut sides: Vec<ResizedDim> = size.iter().enumerate().map(side).collect::<Result<_, _>>()?;
    // A caller without scales passes 1 for each: CANN then resizes by the sizes.
    let are_units = sides.iter().all(|side| (side.scale - 1.0).abs() < UNIT_TOLERANCE);
    if are_units && sides.iter().any(|side| side.own != side.extent) {
        sides.iter_mut().for_each(|side| side.scale = 0.0);
    }
    Ok(sides)
}

/// Selects one nearest element per grid position.
fn places(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; 2],
    scales: &[Name<f64>],
    nearest: Nearest,
) -> Result<Selection, Refusal> {
    let mut picks = Selection::all_of(&call.tensor(names[0])?.dims);
    for ResizedDim { dim, own, extent, scale } in sides(call, names, scales)? {
        let step = if scale > 0.0 { (1.0 / scale) as f32 } else { own as f32 / extent as f32 };
        let shift = if nearest == Nearest::Middle { 0.5 } else { 0.0 };
        picks.pick(dim, extent, move |at| (((at as f32 + shift) * step) as usize).min(own - 1));
    }
    Ok(picks)
}

/// Extents, step, and whether corners are aligned.
#[derive(Clone, Copy, Debug)]
struct GridDim {
    own: usize,
    extent: usize,
    step: f64,
    aligned: bool,
    blend: Blend,
}

impl GridDim {
    fn taps(&self) -> Taps {
        (0..self.extent).map(|at| self.parts(at)).collect()
    }

    fn parts(&self, at: usize) -> Vec<(usize, f32)> {
        let source = if self.aligned { self.step * at as f64 } else { self.step * (at as f64 + 0.5) - 0.5 };
        match self.blend {
            Blend::Linear => {
                let source = source.max(0.0);
                let low = (source as usize).min(self.own - 1);
                let share = (source - low as f64).clamp(0.0, 1.0);
                vec![(low, (1.0 - share) as f32), ((low + 1).min(self.own - 1), share as f32)]
            }
            Blend::Cubic => {
                let low = source.floor();
                let near = |shift: i64| (low as i64 + shift).clamp(0, self.own as i64 - 1) as usize;
                (-1..3).map(|shift| (near(shift), cubic(low + shift as f64 - source, -0.75) as f32)).collect()
            }
            Blend::LinearArea => self.covered(source + 0.5, 1.0, |x| (1.0 - x.abs()).max(0.0)),
            Blend::CubicArea => self.covered(source + 0.5, 2.0, |x| cubic(x, -0.5)),
        }
    }

    /// Returns the elements within `reach` of `center`; the reach grows with the step.
    fn covered(&self, center: f64, reach: f64, filter: impl Fn(f64) -> f64) -> Vec<(usize, f32)> {
        let width = self.step.max(1.0);
        let support = reach * width;
        let low = ((center - support + 0.5) as i64).max(0) as usize;
        let high = ((center + support + 0.5) as usize).min(self.own);
        let weights: Vec<f64> = (low..high).map(|at| filter((at as f64 - center + 0.5) / width)).collect();
        let total: f64 = weights.iter().sum();
        (low..high).zip(weights).map(|(at, weight)| (at, (weight / total) as f32)).collect()
    }
}

/// See Keys, "Cubic convolution interpolation for digital image processing", 1981.
fn cubic(distance: f64, a: f64) -> f64 {
    let x = distance.abs();
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

fn alongs(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; 2],
    scales: &[Name<f64>],
    blend: Blend,
) -> Result<Vec<GridDim>, Refusal> {
    let aligned = call.flag(ALIGN_CORNERS)?;
    let is_area = matches!(blend, Blend::LinearArea | Blend::CubicArea);
    if is_area && aligned {
        return Err(call.refuse(ALIGN_CORNERS, "expected false, found true"));
    }
    let along = |ResizedDim { own, extent, scale, .. }: ResizedDim| {
        if is_area && extent > own.saturating_mul(MOST_TIMES) {
            let text = format!("expected at most {MOST_TIMES} times {own}, found {extent}");
            return Err(call.refuse(OUTPUT_SIZE, text));
        }
        if is_area && scale > 0.0 && extent != (own as f64 * scale) as usize {
            let text = format!("expected {own} times the scale {scale}, found {extent}");
            return Err(call.refuse(OUTPUT_SIZE, text));
        }
        let step = match (aligned, scale > 0.0) {
            (true, _) if extent > 1 => (own - 1) as f64 / (extent - 1) as f64,
            (true, _) => 0.0,
            (false, true) => 1.0 / scale,
            (false, false) => own as f64 / extent as f64,
        };
        Ok(GridDim { own, extent, step, aligned, blend })
    };
    sides(call, names, scales)?.into_iter().map(along).collect()
}

/// Builds the grid when a call runs.
fn grid(alongs: &[GridDim]) -> ResamplingGrid {
    let (mut extents, mut taps) = ([1; 3], [None, None, None]);
    let first = 3 - alongs.len();
    for (at, along) in alongs.iter().enumerate() {
        extents[first + at] = along.own;
        taps[first + at] = Some(along.taps());
    }
    ResamplingGrid { extents, taps }
}

/// Returns the interpolation of each dim, and the dim order with channels before the grid.
fn prepared(
    call: &OperatorCall,
    [x, out]: [Name<CheckedTensor>; 2],
    scales: &[Name<f64>],
    blend: Blend,
) -> Result<(Vec<GridDim>, Vec<usize>), Refusal> {
    let (tensor, alongs) = (call.tensor(x)?, alongs(call, [x, out], scales, blend)?);
    let last = tensor.format == CHANNELS_LAST && tensor.rank() == 4;
    let mut expected = tensor.dims.clone();
    let first = if last { 1 } else { 2 };
    alongs.iter().enumerate().for_each(|(at, along)| expected[first + at] = along.extent);
    call.expect_dtype(out, tensor.dtype, "the type of the input")?;
    call.expect_shape(out, &expected, "of the grid")?;
    Ok((alongs, if last { vec![0, 3, 1, 2] } else { (0..tensor.rank()).collect() }))
}

fn blended(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; 2],
    scales: &[Name<f64>],
    blend: Blend,
) -> Result<CallPlan, Refusal> {
    let (alongs, order) = prepared(call, names, scales, blend)?;
    let [x, out] = names.map(|name| call.tensor(name).map(|tensor| tensor.slot));
    let (x, out) = (x?, out?);
    CallPlan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            resample(tiles, &views.of(x).permute(&order), &grid(&alongs), &views.of(out).permute(&order));
        }
        Ok(())
    })
}

fn blended_grad(
    call: &OperatorCall,
    names: [Name<CheckedTensor>; 2],
    scales: &[Name<f64>],
    blend: Blend,
) -> Result<CallPlan, Refusal> {
    expect_input_size(call, names[0])?;
    let (alongs, order) = prepared(call, names, scales, blend)?;
    let [out, grad] = names.map(|name| call.tensor(name).map(|tensor| tensor.slot));
    let (out, grad) = (out?, grad?);
    CallPlan::new(move |views, tiles| {
        if !views.of(out).is_empty() {
            resample_grad(
                tiles,
                &views.of(grad).permute(&order),
                &grid(&alongs),
                &views.of(out).permute(&order),
            );
        }
        Ok(())
    })
}
