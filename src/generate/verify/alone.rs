//! Recomputes each op on one card, with the operands of many cards.
//!
//! - Input: a program and its values on many cards.
//! - Output: a program of the same ops with operands as inputs, and the differences.
//! - Invariants: results differ by the roundings of one op, so the bound does not depend on depth.
//!   Scales and integers of quantised rows must be equal. Operands that a fused launch does not
//!   store are recomputed.
//! - Not here: values that are written in place.

use std::collections::BTreeMap;

use super::bound::{Roundings, magnitude, relative};
use super::values::{WholeValues, keep_worse, worst};
use super::{Difference, SameOperands};
use crate::base::{DType, Diagnostics, Id, Precision};
use crate::exec::NamedTensors;
use crate::program::text::op_text;
use crate::program::{Builder, HostTensor, Kind, Op, Operand, Program, Role, ValueId};

/// A program of separate ops, with their operands as inputs.
pub(super) struct OpsAlone {
    pub(super) program: Program,
    /// Results of the original program that are inputs here.
    given: Vec<ValueId>,
    /// Compared ops, each with the number of recomputed ops.
    ops: Vec<(usize, usize)>,
}

fn name(id: ValueId) -> String {
    format!("of {}", id.index())
}

impl OpsAlone {
    /// Creates a program of the ops in `program`, with the operands in `many`.
    ///
    /// # Errors
    /// Returns the errors of the program verifier; a valid program has none.
    pub(super) fn of(program: &Program, many: &WholeValues) -> Result<Self, Diagnostics> {
        let mut build = Builder::new(format!("ops of {}", program.name));
        // Each value's operand, and the number of ops since the last stored value.
        let mut known: BTreeMap<ValueId, (Operand, usize)> = BTreeMap::new();
        let (mut given, mut ops) = (Vec::new(), Vec::new());
        for (index, op) in program.ops.values().iter().enumerate() {
            if !op.kind.row().in_place.is_empty() {
                continue;
            }
            for id in &op.operands {
                let is_shown = many.whole(*id).is_some();
                // States before a run are not stored.
                let is_made = matches!(program.values[*id].role, Role::Result | Role::State);
                if known.contains_key(id) || is_made && !is_shown {
                    continue;
                }
                let value = &program.values[*id];
                let shape = value.shape.clone();
                let operand = match (value.role, &value.source) {
                    (Role::Param, Some(source)) => {
                        build.param_from(&value.name, shape, value.dtype, source.clone())
                    }
                    (Role::Input, _) => build.input(&value.name, shape, value.dtype),
                    _ => {
                        given.push(*id);
                        build.input(&name(*id), shape, value.dtype)
                    }
                };
                known.insert(*id, (operand, 0));
            }
            let operands: Option<Vec<(Operand, usize)>> =
                op.operands.iter().map(|id| known.get(id).copied()).collect();
            let Some(operands) = operands else { continue };
            let depth = 1 + operands.iter().map(|(_, depth)| depth).sum::<usize>();
            let operands: Vec<Operand> = operands.into_iter().map(|(operand, _)| operand).collect();
            let made = build.op(op.kind.clone(), &operands);
            if many.whole(op.result()).is_some() {
                build.output(&name(op.result()), made);
                ops.push((index, depth));
            } else {
                known.insert(op.result(), (made, depth));
            }
        }
        Ok(Self { program: build.finish()?, given, ops })
    }

    pub(super) fn inputs(&self, whole: &NamedTensors, many: &WholeValues) -> NamedTensors {
        let is_read =
            |name: &str| self.program.with_role(Role::Input).any(|id| self.program.values[id].name == name);
        let read =
            whole.iter().filter(|(name, _)| is_read(name)).map(|(name, tensor)| (name.to_owned(), tensor));
        let given = self.given.iter().filter_map(|id| Some((name(*id), many.whole(*id)?.clone())));
        read.chain(given).collect()
    }

    pub(super) fn compare(
        &self,
        program: &Program,
        precision: Precision,
        one: &NamedTensors,
        many: &WholeValues,
    ) -> SameOperands {
        let mut same_operands = SameOperands::default();
        for (index, depth) in &self.ops {
            let op = &program.ops.values()[*index];
            let id = op.result();
            let (Ok(expected), Some(tensor)) = (one.get(&name(id)), many.whole(id)) else { continue };
            let bound = match op.kind {
                Kind::RowScale { .. } | Kind::Quantise { .. } | Kind::QuantiseStatic => 0.0,
                _ => {
                    let sums =
                        op.results.iter().chain(&op.operands).map(|id| many.roundings_of_sum(*id)).sum();
                    let own = Roundings { ops: *depth, sums, ..Roundings::default() };
                    relative(program, precision, many.behind(program, op, own)) * magnitude(expected.floats())
                }
            };
            same_operands.values += 1;
            same_operands.integers += numbers_of(&op.kind, &expected);
            let difference =
                worst(&op_text(program, op), &numbers(tensor), numbers(&expected).floats(), bound);
            difference.into_iter().for_each(|difference| keep_worse(&mut same_operands.closest, difference));
        }
        same_operands
    }
}

fn numbers_of(kind: &Kind, result: &HostTensor) -> usize {
    match kind {
        Kind::Quantise { .. } | Kind::QuantiseStatic => result.shape.elems(),
        _ => 0,
    }
}

/// Converts to f32, which is exact for 8-bit integers.
fn numbers(tensor: &HostTensor) -> HostTensor {
    match tensor.ints() {
        [] => tensor.clone(),
        ints => HostTensor::float(
            tensor.shape.clone(),
            DType::F32,
            ints.iter().map(|integer| *integer as f32).collect(),
        ),
    }
}

/// Compares the logits of one card and many, with f32 activations. Integers may differ only if the
/// value on one card is within its float error of a rounding edge. Another difference is returned
/// instead of the logits.
pub(super) fn around(
    program: &Program,
    precision: Precision,
    [one, many]: [&WholeValues; 2],
    [expected, found]: [&HostTensor; 2],
) -> Option<Difference> {
    let mut roundings = Roundings::default();
    let mut errors: BTreeMap<ValueId, f64> = BTreeMap::new();
    for (index, op) in program.ops.values().iter().enumerate() {
        roundings.ops = index + 1;
        match op.kind {
            Kind::Quantise { .. } | Kind::QuantiseStatic => {
                let error = relative(program, precision, roundings);
                let found = match op.kind {
                    Kind::QuantiseStatic => differing_by_one(op, [one, many]),
                    _ => differing(op, error, [one, many]),
                };
                match found {
                    Ok(square) => drop(errors.insert(op.result(), square)),
                    Err(difference) => return Some(Difference { place: op_text(program, op), ..difference }),
                }
            }
            // The integers between both products are not values of the program.
            Kind::QuantExperts => {
                roundings.integers = roundings.after(program, precision, index + 1).integers;
            }
            Kind::QuantBlockAttention { .. } => roundings = one.behind(program, op, roundings),
            Kind::QuantMatMul { .. } | Kind::StaticMatMul { .. } => {
                roundings.integers += errors.get(&op.operands[0]).copied().unwrap_or_default();
            }
            _ => {}
        }
    }
    let bound = relative(program, precision, roundings) * magnitude(expected.floats());
    worst("logits with f32 around the products", found, expected.floats(), bound)
}

/// Returns the largest squared error of a row of integers with a stored scale, relative to its
/// squared length. The scale is a weight, so the distance from an edge is not known.
///
/// # Errors
/// Returns an integer that differs by more than 1.
fn differing_by_one(op: &Op, [one, many]: [&WholeValues; 2]) -> Result<f64, Difference> {
    let (Some(one), Some(many)) = (one.whole(op.result()), many.whole(op.result())) else { return Ok(0.0) };
    let row = one.shape.last().copied().unwrap_or(1).max(1);
    let mut most: f64 = 0.0;
    for (index, (a, b)) in one.ints().chunks(row).zip(many.ints().chunks(row)).enumerate() {
        let pairs = || a.iter().zip(b);
        if let Some(at) = pairs().position(|(a, b)| (a - b).abs() > 1) {
            let (expected, found) = (a[at] as f64, b[at] as f64);
            let index = vec![index * row + at];
            return Err(Difference { place: String::new(), index, expected, found, bound: 1.0 });
        }
        let differing = pairs().filter(|(a, b)| a != b).count() as f64;
        let squares: i64 = a.iter().map(|a| a * a).sum();
        most = most.max(differing / squares.max(1) as f64);
    }
    Ok(most)
}

/// Returns the largest squared error of a row of integers, relative to its squared length. `error`
/// applies to the values, relative to the largest.
///
/// # Errors
/// Returns an integer that differs although its value is further from the edge.
fn differing(op: &Op, error: f64, [one, many]: [&WholeValues; 2]) -> Result<f64, Difference> {
    let [x, scales] = [0, 1].map(|at| one.whole(op.operands[at]));
    let [of_one, of_many] = [one, many].map(|values| values.whole(op.result()));
    let (Some(x), Some(scales), Some(of_one), Some(of_many)) = (x, scales, of_one, of_many) else {
        return Ok(0.0);
    };
    let row = x.shape.elems() / scales.shape.elems().max(1);
    let largest = magnitude(x.floats());
    let (a, b) = (of_one.ints(), of_many.ints());
    let mut most: f64 = 0.0;
    for (at, scale) in scales.floats().iter().copied().map(f64::from).enumerate() {
        // Both the value and the scale have an error.
        let width = 2.0 * error * largest / scale.max(f64::from(f32::MIN_POSITIVE));
        let (mut differing, mut squares) = (0, 0);
        for element in at * row..(at + 1) * row {
            squares += a[element] * a[element];
            if a[element] == b[element] {
                continue;
            }
            // The edge on the side of the integer from one card.
            let edge = b[element] as f64 + (a[element] - b[element]).signum() as f64 / 2.0;
            let quotient = f64::from(x.floats()[element]) / scale;
            if (quotient - edge).abs() > width {
                let (expected, found) = (a[element] as f64, b[element] as f64);
                return Err(Difference {
                    place: String::new(),
                    index: vec![element],
                    expected,
                    found,
                    bound: 0.0,
                });
            }
            differing += (a[element] - b[element]).pow(2);
        }
        most = most.max(differing as f64 / squares.max(1) as f64);
    }
    Ok(most)
}
