//! Reference implementations of routers and experts. They compute in f64 and round once.

use crate::base::{DType, HostTensor};
use crate::program::graph::{Form, Value};
use crate::program::op::Kind;

use super::training::{doubles, like, made, sigmoid, silu_slope};
use super::{map, number_of_words, rows_of};

pub(in crate::program) fn sigmoid_of(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    map(operands, result, |x| sigmoid(f64::from(x)) as f32)
}

pub(in crate::program) fn softmax(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let rows = rows_of(operands[0], 1).flat_map(|row| {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|x| (f64::from(*x) - f64::from(largest)).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(move |power| power / sum)
    });
    made(result, rows)
}

pub(in crate::program) fn log_sum_exp(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let rows = rows_of(operands[0], 1).map(|row| {
        let largest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        largest + row.iter().map(|x| (f64::from(*x) - largest).exp()).sum::<f64>().ln()
    });
    made(result, rows)
}

pub(in crate::program) fn reciprocal(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Reciprocal { epsilon } = kind else { unreachable!("reciprocal's kind") };
    map(operands, result, |x| (f64::from(x) + epsilon).recip() as f32)
}

/// Returns the indices of the largest elements, by falling element and then by index.
pub(super) fn largest(row: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    order.truncate(count);
    order
}

pub(in crate::program) fn choose(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let Kind::Choose { chosen, groups, kept, summed } = *kind else { unreachable!("choose's kind") };
    let rows = rows_of(operands[0], 1).flat_map(|row| {
        let mut row: Vec<f64> = row.iter().map(|x| f64::from(*x)).collect();
        if groups > 1 {
            let size = row.len() / groups;
            let scores: Vec<f64> = row
                .chunks(size)
                .map(|group| largest(group, summed).into_iter().map(|at| group[at]).sum())
                .collect();
            let best = largest(&scores, kept);
            let hidden = (0..groups).filter(|group| !best.contains(group));
            hidden.for_each(|group| row[group * size..(group + 1) * size].fill(f64::NEG_INFINITY));
        }
        largest(&row, chosen)
    });
    HostTensor::int(result.shape.clone(), DType::I64, rows.map(|at| at as i64).collect())
}

/// Returns the position in the row of an index.
fn at(index: i64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

pub(in crate::program) fn pick(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [x, index] = operands else { unreachable!("pick takes x and an index") };
    let chosen = index.shape.last().copied().unwrap_or_default().max(1);
    let rows = rows_of(x, 1).zip(index.ints().chunks(chosen));
    made(result, rows.flat_map(|(row, index)| index.iter().map(|index| f64::from(row[at(*index)]))))
}

pub(in crate::program) fn pick_grad(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let [index, dy, _] = operands else { unreachable!("pick_grad takes an index, a cotangent and x") };
    let chosen = index.shape.last().copied().unwrap_or_default().max(1);
    let width = result.shape.last().copied().unwrap_or_default();
    let mut dx = vec![0.0; result.shape.elems()];
    for (place, (index, dy)) in index.ints().iter().zip(doubles(dy)).enumerate() {
        dx[place / chosen * width + at(*index)] += dy;
    }
    made(result, dx)
}

/// Sizes of a mixture, and its tensors as f64.
struct MixtureTensors {
    chosen: usize,
    width: usize,
    inner: usize,
    x: Vec<f64>,
    weights: Vec<f64>,
    gate_up: Vec<f64>,
    down: Vec<f64>,
    clipping: Option<Clipping>,
}

/// Gates of [`Kind::ClippedExperts`], and the biases of both projections.
struct Clipping {
    limit: f64,
    slope: f64,
    gate_up_bias: Vec<f64>,
    down_bias: Vec<f64>,
}

impl MixtureTensors {
    fn of([x, experts, weights, gate_up, down]: [&HostTensor; 5]) -> Self {
        let [x_data, weights, gate_up_data, down_data] =
            [x, weights, gate_up, down].map(|tensor| doubles(tensor).collect());
        let (chosen, width, inner) = (experts.shape[2], x.shape[2], gate_up.shape[2]);
        Self {
            chosen,
            width,
            inner,
            x: x_data,
            weights,
            gate_up: gate_up_data,
            down: down_data,
            clipping: None,
        }
    }

    /// Adds the gates and the biases of an op of clipped experts.
    fn with_clipping(self, kind: &Kind, biases: &[&HostTensor]) -> Self {
        let clipping = match (kind, biases) {
            (
                &Kind::ClippedExperts { limit, slope } | &Kind::ClippedExpertsGrad { limit, slope },
                [gate_up, down],
            ) => {
                let [gate_up_bias, down_bias] = [gate_up, down].map(|bias| doubles(bias).collect());
                Some(Clipping { limit, slope, gate_up_bias, down_bias })
            }
            _ => None,
        };
        Self { clipping, ..self }
    }

    fn token(&self, place: usize) -> &[f64] {
        &self.x[place / self.chosen * self.width..][..self.width]
    }

    /// Returns row `row` of the gate (part 0) or the up projection (part 1) of an expert.
    fn projection(&self, expert: usize, part: usize, row: usize) -> &[f64] {
        &self.gate_up[((expert * 2 + part) * self.inner + row) * self.width..][..self.width]
    }

    /// Returns the gates and the up projections of the token at a place.
    fn hidden(&self, place: usize, expert: usize) -> [Vec<f64>; 2] {
        let x = self.token(place);
        let bias = |part: usize, row: usize| {
            let at = (expert * 2 + part) * self.inner + row;
            self.clipping.as_ref().map_or(0.0, |clipping| clipping.gate_up_bias[at])
        };
        [0, 1].map(|part| {
            let row = |row| dot(x, self.projection(expert, part, row)) + bias(part, row);
            (0..self.inner).map(row).collect()
        })
    }

    fn gated(&self, hidden: &[Vec<f64>; 2]) -> Vec<f64> {
        self.clipping.as_ref().map_or_else(|| gated(hidden), |clipping| clipping.gated(hidden))
    }

    /// Returns the derivatives of a gated number by its gate and its up projection.
    fn slopes(&self, gate: f64, up: f64) -> [f64; 2] {
        let Some(Clipping { limit, slope, .. }) = self.clipping else {
            return [up * silu_slope(gate), gate * sigmoid(gate)];
        };
        let within = |x: f64, is_within: bool| if is_within { x } else { 0.0 };
        let (g, factor) = (gate.min(limit), up.clamp(-limit, limit) + 1.0);
        let share = sigmoid(slope * g);
        let of_gate = factor * share * (1.0 + slope * g * (1.0 - share));
        [within(of_gate, gate <= limit), within(g * share, up.abs() <= limit)]
    }

    /// Returns an element of the result of an expert, from its gated row.
    fn result(&self, expert: usize, row: usize, gated: &[f64]) -> f64 {
        let bias =
            self.clipping.as_ref().map_or(0.0, |clipping| clipping.down_bias[expert * self.width + row]);
        dot(self.down(expert, row), gated) + bias
    }

    fn down(&self, expert: usize, row: usize) -> &[f64] {
        &self.down[(expert * self.width + row) * self.inner..][..self.inner]
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(into: &mut [f64], factor: f64, x: &[f64]) {
    into.iter_mut().zip(x).for_each(|(sum, x)| *sum += factor * x);
}

fn gated(hidden: &[Vec<f64>; 2]) -> Vec<f64> {
    hidden[0].iter().zip(&hidden[1]).map(|(gate, up)| gate * sigmoid(*gate) * up).collect()
}

impl Clipping {
    fn gated(&self, hidden: &[Vec<f64>; 2]) -> Vec<f64> {
        let row = |(gate, up): (&f64, &f64)| {
            let gate = gate.min(self.limit);
            (up.clamp(-self.limit, self.limit) + 1.0) * gate * sigmoid(self.slope * gate)
        };
        hidden[0].iter().zip(&hidden[1]).map(row).collect()
    }
}

pub(in crate::program) fn expert_rows(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let &[x, index, gate_up, down] = operands else { unreachable!("expert_rows takes four operands") };
    let mixture = MixtureTensors::of([x, index, x, gate_up, down]);
    let places = index.ints().iter().map(|expert| at(*expert)).enumerate();
    let rows = places.flat_map(|(place, expert)| {
        let h = gated(&mixture.hidden(place, expert));
        (0..mixture.width).map(|row| dot(mixture.down(expert, row), &h)).collect::<Vec<f64>>()
    });
    made(result, rows)
}

pub(in crate::program) fn experts(kind: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let &[x, index, weights, gate_up, down, ref biases @ ..] = operands else {
        unreachable!("experts takes at least five operands")
    };
    let mixture = MixtureTensors::of([x, index, weights, gate_up, down]).with_clipping(kind, biases);
    let mut y = vec![0.0; result.shape.elems()];
    for (place, expert) in index.ints().iter().map(|expert| at(*expert)).enumerate() {
        let h = mixture.gated(&mixture.hidden(place, expert));
        let out = &mut y[place / mixture.chosen * mixture.width..][..mixture.width];
        for (row, y) in out.iter_mut().enumerate() {
            *y += mixture.weights[place] * mixture.result(expert, row, &h);
        }
    }
    made(result, y)
}

/// Returns the weights `[e,outputs,inputs]` of words, with the scales and offsets
/// `[e,groups,outputs]` of equal groups of inputs.
fn unpacked(
    words: &HostTensor,
    params: [Option<&HostTensor>; 2],
    x: &HostTensor,
    dims: &[usize],
) -> HostTensor {
    let [scale, offset] = params.map(|tensor| tensor.map(|tensor| tensor.floats()));
    let (inputs, scale) = (dims[dims.len() - 1], scale.unwrap_or_default());
    let outputs = dims[1..dims.len() - 1].iter().product::<usize>();
    let groups = scale.len() / (dims[0] * outputs).max(1);
    let weight = |at: usize| {
        let (row, group) = (at / inputs, at % inputs * groups / inputs);
        let of_group = (row / outputs * groups + group) * outputs + row % outputs;
        (number_of_words(words, at) + offset.map_or(0.0, |offset| offset[of_group])) * scale[of_group]
    };
    let weights = (0..dims.iter().product()).map(weight).collect();
    HostTensor::float(dims, x.dtype, weights)
}

pub(in crate::program) fn packed_experts(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let &[x, index, weights, gate_up, down, ref params @ ..] = operands else {
        unreachable!("packed_experts takes seven or nine operands")
    };
    let (count, inner, width) = (gate_up.shape[0], gate_up.shape[2] * gate_up.shape[3], x.shape[2]);
    let of = |at: usize| [at, at + 2].map(|at| params.get(at).copied());
    let gate_up = unpacked(gate_up, of(0), x, &[count, 2, inner, width]);
    let down = unpacked(down, of(1), x, &[count, width, inner]);
    experts(&Kind::Experts, &[x, index, weights, &gate_up, &down], result)
}

pub(in crate::program) fn quant_experts(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let &[x, index, weights, gate_up, down, gate_up_scale, down_scale] = operands else {
        unreachable!("quant_experts takes seven operands")
    };
    let mixture = MixtureTensors::of([x, index, weights, gate_up, down]);
    let [gate_up_scale, down_scale]: [Vec<f64>; 2] =
        [gate_up_scale, down_scale].map(|scales| doubles(scales).collect());
    let (width, inner) = (mixture.width, mixture.inner);
    let mut y = vec![0.0; result.shape.elems()];
    for (place, expert) in index.ints().iter().map(|expert| at(*expert)).enumerate() {
        let (integers, scale) = quantised(mixture.token(place));
        let hidden = [0, 1].map(|part| {
            let row = |row: usize| {
                let scales = gate_up_scale[(expert * 2 + part) * inner + row] * scale;
                dot(&integers, mixture.projection(expert, part, row)) * scales
            };
            (0..inner).map(row).collect::<Vec<f64>>()
        });
        let (integers, scale) = quantised(&gated(&hidden));
        let out = &mut y[place / mixture.chosen * width..][..width];
        for (row, y) in out.iter_mut().enumerate() {
            let product =
                dot(&integers, mixture.down(expert, row)) * down_scale[expert * width + row] * scale;
            *y += mixture.weights[place] * product;
        }
    }
    made(result, y)
}

/// Returns the integers of a row and its scale, which is in f32.
fn quantised(row: &[f64]) -> (Vec<f64>, f64) {
    let largest = row.iter().fold(0.0_f32, |largest, x| largest.max(x.abs() as f32));
    let scale = largest / Form::LARGEST;
    let integer = |x: &f64| match scale > 0.0 {
        true => f64::from((*x as f32 / scale).round_ties_even().clamp(-128.0, 127.0)),
        false => 0.0,
    };
    (row.iter().map(integer).collect(), f64::from(scale))
}

/// Gated row of a chosen expert, and the cotangents of its gate and up projections.
struct RowCotangents {
    gated: Vec<f64>,
    of_hidden: [Vec<f64>; 2],
}

impl MixtureTensors {
    /// Returns the cotangents of the row of a place from the cotangent of its result.
    fn cotangents(&self, place: usize, expert: usize, dy: &[f64]) -> RowCotangents {
        let hidden = self.hidden(place, expert);
        let mut of_gated = vec![0.0; self.inner];
        dy.iter().enumerate().for_each(|(row, dy)| add(&mut of_gated, *dy, self.down(expert, row)));
        let rows = hidden[0].iter().zip(&hidden[1]).zip(&of_gated);
        let of_rows = rows.map(|((gate, up), given)| self.slopes(*gate, *up).map(|slope| given * slope));
        let of_rows: Vec<[f64; 2]> = of_rows.collect();
        let of_hidden = [0, 1].map(|part| of_rows.iter().map(|slopes| slopes[part]).collect());
        RowCotangents { gated: self.gated(&hidden), of_hidden }
    }

    /// Adds the cotangent of a token.
    fn add_of_token(&self, expert: usize, found: &RowCotangents, dx: &mut [f64]) {
        for (part, slopes) in found.of_hidden.iter().enumerate() {
            let rows = slopes.iter().enumerate();
            rows.for_each(|(row, slope)| add(dx, *slope, self.projection(expert, part, row)));
        }
    }

    /// Adds the cotangents of gate and up projections.
    fn add_of_gate_up(&self, place: usize, expert: usize, found: &RowCotangents, dgate_up: &mut [f64]) {
        for (part, slopes) in found.of_hidden.iter().enumerate() {
            for (row, slope) in slopes.iter().enumerate() {
                let start = ((expert * 2 + part) * self.inner + row) * self.width;
                add(&mut dgate_up[start..start + self.width], *slope, self.token(place));
            }
        }
    }

    /// Adds the cotangents of down projections.
    fn add_of_down(&self, expert: usize, dy: &[f64], found: &RowCotangents, ddown: &mut [f64]) {
        for (row, dy) in dy.iter().enumerate() {
            add(&mut ddown[(expert * self.width + row) * self.inner..][..self.inner], *dy, &found.gated);
        }
    }
}

pub(in crate::program) fn experts_grad(kind: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let &[x, index, weights, gate_up, down, ref biases @ .., dy] = operands else {
        unreachable!("experts_grad takes at least six operands")
    };
    let mixture = MixtureTensors::of([x, index, weights, gate_up, down]).with_clipping(kind, biases);
    let width = mixture.width;
    let dy: Vec<f64> = doubles(dy).collect();
    let [mut dx, mut dweights, mut dgate_up, mut ddown] =
        [x, weights, gate_up, down].map(|tensor| vec![0.0; tensor.shape.elems()]);
    let mut dbiases: Vec<Vec<f64>> = biases.iter().map(|bias| vec![0.0; bias.shape.elems()]).collect();
    for (place, expert) in index.ints().iter().map(|expert| at(*expert)).enumerate() {
        let token = place / mixture.chosen;
        let (unweighted, weight) = (&dy[token * width..][..width], mixture.weights[place]);
        let dy: Vec<f64> = unweighted.iter().map(|dy| weight * dy).collect();
        let found = mixture.cotangents(place, expert, &dy);
        let results = unweighted.iter().enumerate();
        dweights[place] +=
            results.map(|(row, dy)| dy * mixture.result(expert, row, &found.gated)).sum::<f64>();
        mixture.add_of_token(expert, &found, &mut dx[token * width..][..width]);
        mixture.add_of_gate_up(place, expert, &found, &mut dgate_up);
        mixture.add_of_down(expert, &dy, &found, &mut ddown);
        let of_results = [&found.of_hidden.concat()[..], &dy];
        for (sums, rows) in dbiases.iter_mut().zip(of_results) {
            add(&mut sums[expert * rows.len()..][..rows.len()], 1.0, rows);
        }
    }
    let biases = biases.iter().zip(dbiases).map(|(bias, sums)| like(bias, sums));
    [like(x, dx), like(weights, dweights), like(gate_up, dgate_up), like(down, ddown)]
        .into_iter()
        .chain(biases)
        .collect()
}

/// Calls `add` for each chosen expert: its place, its number, the cotangent of its result, and the
/// cotangents of its row.
fn each_row(
    operands: &[&HostTensor],
    mut add: impl FnMut(&MixtureTensors, usize, usize, &[f64], &RowCotangents),
) {
    let &[x, index, gate_up, down, dy] = operands else {
        unreachable!("the gradients of rows take five operands")
    };
    let mixture = MixtureTensors::of([x, index, x, gate_up, down]);
    let dy: Vec<f64> = doubles(dy).collect();
    for (place, expert) in index.ints().iter().map(|expert| at(*expert)).enumerate() {
        let dy = &dy[place * mixture.width..][..mixture.width];
        add(&mixture, place, expert, dy, &mixture.cotangents(place, expert, dy));
    }
}

pub(in crate::program) fn expert_rows_grad(_: &Kind, operands: &[&HostTensor], result: &Value) -> HostTensor {
    let mut dx = vec![0.0; result.shape.elems()];
    each_row(operands, |mixture, place, expert, _, found| {
        mixture.add_of_token(expert, found, &mut dx[place * mixture.width..][..mixture.width]);
    });
    made(result, dx)
}

pub(in crate::program) fn tree_experts_grad(_: &Kind, operands: &[&HostTensor]) -> Vec<HostTensor> {
    let [mut dgate_up, mut ddown] = [2, 3].map(|operand: usize| vec![0.0; operands[operand].shape.elems()]);
    each_row(operands, |mixture, place, expert, dy, found| {
        mixture.add_of_gate_up(place, expert, found, &mut dgate_up);
        mixture.add_of_down(expert, dy, found, &mut ddown);
    });
    let wide = |operand: usize, sums: Vec<f64>| {
        let data = sums.into_iter().map(|sum| sum as f32).collect();
        HostTensor::float(operands[operand].shape.clone(), DType::F32, data)
    };
    vec![wide(2, dgate_up), wide(3, ddown)]
}
