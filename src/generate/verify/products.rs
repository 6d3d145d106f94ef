//! Each quantised product on the operands that the cards had, computed once more by one card.
//!
//! Input → output: a program with quantised products and its values on many cards → a program of these products alone, whose inputs are
//! their operands; and how its results differ. Invariant: scales and integers have to be equal. A result may differ by the roundings of
//! the parts that the cards add.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bound::{Roundings, magnitude, relative, unit};
use super::values::{WholeValues, keep_worse, worst};
use super::{Difference, QuantisedProducts};
use crate::base::{DType, Diagnostics, Id, Precision, Weights};
use crate::exec::{Inputs, Outputs};
use crate::program::text::op_text;
use crate::program::{Builder, HostTensor, Kind, Op, Operand, Program, Role, ValueId};

/// Two roundings of f32 for each scale, relative to the result.
const SCALED: f64 = 4.0 / (1_u64 << 24) as f64;

/// The products of a program, each on operands that are given.
pub(super) struct ProductsAlone {
    pub(super) program: Program,
    /// The value of the whole program that each input is.
    inputs: Vec<ValueId>,
}

const fn is_quantised(kind: &Kind) -> bool {
    matches!(kind, Kind::RowScale { .. } | Kind::Quantise { .. } | Kind::QuantMatMul { .. })
}

/// The ops of a program that quantise, or multiply what is quantised.
fn quantised(program: &Program) -> impl Iterator<Item = &Op> {
    program.ops.values().iter().filter(|op| is_quantised(&op.kind))
}

fn name(id: ValueId) -> String {
    format!("of {}", id.index())
}

impl ProductsAlone {
    /// The products of `program`.
    ///
    /// # Errors
    /// What a program's verifier finds; of a valid program nothing.
    pub(super) fn of(program: &Program) -> Result<Self, Diagnostics> {
        let mut build = Builder::new(format!("quantised products of {}", program.name));
        let mut known: BTreeMap<ValueId, Operand> = BTreeMap::new();
        let mut inputs = Vec::new();
        for op in quantised(program) {
            for id in &op.operands {
                if !known.contains_key(id) {
                    let value = &program.values[*id];
                    let shape = value.shape.clone();
                    let operand = match (value.role, &value.source) {
                        (Role::Param, Some(source)) => {
                            build.param_from(&value.name, shape, value.dtype, source.clone())
                        }
                        _ => {
                            inputs.push(*id);
                            build.input(&name(*id), shape, value.dtype)
                        }
                    };
                    known.insert(*id, operand);
                }
            }
            let operands: Vec<Operand> = op.operands.iter().map(|id| known[id]).collect();
            let made = build.op(op.kind.clone(), &operands);
            build.output(&name(op.result()), made);
            known.insert(op.result(), made);
        }
        Ok(Self { program: build.finish()?, inputs })
    }

    /// The operands as the cards had them.
    pub(super) fn inputs(&self, many: &WholeValues) -> Inputs {
        let given = |id: &ValueId| (name(*id), Arc::new(many.whole(*id).map_or_else(Vec::new, HostTensor::to_bytes)));
        self.inputs.iter().map(given).collect()
    }

    /// How the results of one card differ from those of many.
    pub(super) fn compare(program: &Program, one: &Outputs, many: &WholeValues) -> QuantisedProducts {
        let mut found = QuantisedProducts { products: 0, integers: 0, closest: None };
        for op in quantised(program) {
            let id = op.result();
            let value = &program.values[id];
            let bytes = one.iter().find(|(of, _)| *of == name(id)).map(|(_, bytes)| bytes);
            let (Some(bytes), Some(tensor)) = (bytes, many.whole(id)) else { continue };
            let expected = HostTensor::from_bytes(value.shape.clone(), value.dtype, bytes);
            let mut bound = 0.0;
            match op.kind {
                Kind::QuantMatMul { .. } => {
                    found.products += 1;
                    let parts = many.magnitude_of_parts(id) + magnitude(expected.floats());
                    bound = (unit(value.dtype) + SCALED) * parts;
                }
                Kind::Quantise { .. } => found.integers += value.shape.elems(),
                _ => {}
            }
            let difference = worst(&op_text(program, op), &numbers(tensor), numbers(&expected).floats(), bound);
            difference.into_iter().for_each(|difference| keep_worse(&mut found.closest, difference));
        }
        found
    }
}

/// The elements as f32, which holds every integer of 8 bits.
fn numbers(tensor: &HostTensor) -> HostTensor {
    match tensor.ints() {
        [] => tensor.clone(),
        ints => {
            HostTensor::float(tensor.shape.clone(), DType::F32, ints.iter().map(|integer| *integer as f32).collect())
        }
    }
}

/// Quantised products with f32 around them.
pub(super) const AROUND: Precision = Precision { activations: DType::F32, weights: Weights::W8A8 };

/// How the logits of many cards differ from those of one, with f32 around the products. Integers may differ only where the value of one
/// card is within its float error of a rounding edge; the first that differs elsewhere is what is given.
pub(super) fn around(
    program: &Program,
    [one, many]: [&WholeValues; 2],
    [expected, found]: [&HostTensor; 2],
) -> Option<Difference> {
    let mut roundings = Roundings::default();
    let mut errors: BTreeMap<ValueId, f64> = BTreeMap::new();
    for (index, op) in program.ops.values().iter().enumerate() {
        roundings.ops = index + 1;
        match op.kind {
            Kind::Quantise { dims } => {
                let error = relative(program, AROUND, roundings);
                match differing(op, dims, error, [one, many]) {
                    Ok(square) => drop(errors.insert(op.result(), square)),
                    Err(difference) => return Some(Difference { place: op_text(program, op), ..difference }),
                }
            }
            Kind::QuantMatMul { .. } => roundings.integers += errors.get(&op.operands[0]).copied().unwrap_or_default(),
            _ => {}
        }
    }
    let bound = relative(program, AROUND, roundings) * magnitude(expected.floats());
    worst("logits with f32 around the products", found, expected.floats(), bound)
}

/// The largest error of a row of integers, squared, relative to its length. Values are off by `error` of the largest.
///
/// # Errors
/// An integer that differs although its value is further from the edge.
fn differing(op: &Op, dims: usize, error: f64, [one, many]: [&WholeValues; 2]) -> Result<f64, Difference> {
    let [x, scales] = [0, 1].map(|at| one.whole(op.operands[at]));
    let [of_one, of_many] = [one, many].map(|values| values.whole(op.result()));
    let (Some(x), Some(scales), Some(of_one), Some(of_many)) = (x, scales, of_one, of_many) else { return Ok(0.0) };
    let row: usize = x.shape[x.shape.rank() - dims..].iter().product();
    let largest = magnitude(x.floats());
    let (a, b) = (of_one.ints(), of_many.ints());
    let mut most: f64 = 0.0;
    for (at, scale) in scales.floats().iter().copied().map(f64::from).enumerate() {
        // The value and the scale are both off.
        let width = 2.0 * error * largest / scale.max(f64::from(f32::MIN_POSITIVE));
        let (mut differing, mut squares) = (0, 0);
        for element in at * row..(at + 1) * row {
            squares += a[element] * a[element];
            if a[element] == b[element] {
                continue;
            }
            // Beyond this edge a value rounds to the integer of many cards.
            let edge = b[element] as f64 + (a[element] - b[element]).signum() as f64 / 2.0;
            let quotient = f64::from(x.floats()[element]) / scale;
            if (quotient - edge).abs() > width {
                let (expected, found) = (a[element] as f64, b[element] as f64);
                return Err(Difference { place: String::new(), index: vec![element], expected, found, bound: 0.0 });
            }
            differing += (a[element] - b[element]).pow(2);
        }
        most = most.max(differing as f64 / squares.max(1) as f64);
    }
    Ok(most)
}
