//! Random initialization of weights. A number depends only on the seed, the name and the element,
//! so every layout has the same weights.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use rayon::prelude::*;

use crate::base::{Id, Shape};
use crate::config::PEFT_PREFIX;
use crate::exec::{Error, Shards};
use crate::program::models::COPY;
use crate::program::{HostTensor, Kind, Program, Role, ValueId};
use crate::schedule::plan::Tensor;
use crate::train::random::mixed;
use crate::weights::{Checkpoint, fill_from};

/// Initial distribution of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Normal numbers, for weights of products, lookups, experts and filters.
    Normal,
    /// Ones, for the scales of norms.
    Ones,
    /// Zeros, for biases and outer adapter factors.
    Zeros,
    /// Uniform numbers up to one over the root of the row length, for inner adapter factors.
    Uniform,
}

/// Standard deviation of [`Init::Normal`], as in GPT-2, Llama and Qwen.
const DEVIATION: f64 = 0.02;

/// Returns the initialization of each param, from the ops that read it.
#[must_use]
pub fn inits(program: &Program) -> BTreeMap<String, Init> {
    let mut inits: Vec<Option<Init>> = vec![None; program.values.len()];
    let mut origin: Vec<ValueId> = program.values.ids().collect();
    for op in program.ops.values() {
        if op.kind.row().is_copy {
            origin[op.result().index()] = origin[op.operands[0].index()];
        }
        for operand in op.kind.row().weights.operands() {
            inits[origin[op.operands[*operand].index()].index()] = Some(Init::Normal);
        }
        // The norm over all heads multiplies by its weight.
        if let Kind::RmsNorm { .. } | Kind::Mul = op.kind {
            for operand in &op.operands {
                inits[origin[operand.index()].index()] = Some(Init::Ones);
            }
        }
    }
    let init = |id: ValueId| {
        let name = program.values[id].name.clone();
        let init = match () {
            () if name.ends_with(".lora_A.weight") => Init::Uniform,
            () if name.ends_with(".lora_B.weight") => Init::Zeros,
            () => inits[id.index()].unwrap_or(Init::Zeros),
        };
        (name, init)
    };
    program.with_role(Role::Param).map(init).collect()
}

/// Fills the weights in `inits` on all ranks of this process.
///
/// # Errors
/// A device call fails.
pub fn fill(shards: &Shards<'_>, inits: &BTreeMap<String, Init>, seed: u64) -> Result<(), Error> {
    for part in shards.parts() {
        let tensor = part.tensor();
        let Some(init) = inits.get(&tensor.name) else { continue };
        let stack = tensor.source.as_ref().and_then(|source| source.stack(&tensor.shape).ok());
        // Each tensor of a stack is a matrix.
        let row: usize = tensor.shape.iter().skip(stack.map_or(0, |stack| stack.dims) + 1).product();
        let drawn = tensor.name.strip_prefix(COPY).unwrap_or(&tensor.name);
        let name = drawn.bytes().fold(seed, |state, byte| mixed(state ^ u64::from(byte)));
        let value = |element: u64| match init {
            Init::Ones => 1.0,
            Init::Zeros => 0.0,
            Init::Normal => normal(name, element) * DEVIATION,
            Init::Uniform => (2.0 * uniform(name, element, 0) - 1.0) / (row as f64).sqrt(),
        };
        let numbers = elements(tensor).map(|element| value(element) as f32).collect();
        let shape: Shape = tensor.ranges.iter().map(ExactSizeIterator::len).collect();
        part.write(0, &HostTensor::float(shape, tensor.dtype, numbers).to_bytes())?;
    }
    Ok(())
}

/// Fills weights from a checkpoint and adapters from `seed`, on all ranks of this process.
///
/// # Errors
/// The checkpoint lacks a weight, or a device call fails.
pub fn fill_beside(
    checkpoint: &Checkpoint,
    shards: &Shards<'_>,
    inits: &BTreeMap<String, Init>,
    seed: u64,
) -> Result<(), Error> {
    let is_adapter =
        |tensor: &Tensor| tensor.source.as_ref().is_some_and(|source| source.tensor.starts_with(PEFT_PREFIX));
    fill_from(checkpoint, &shards.only(|tensor| !is_adapter(tensor)), &|_| ())?;
    fill(&shards.only(is_adapter), inits, seed)
}

/// Returns flat indices in the whole tensor, row-major.
fn elements(tensor: &Tensor) -> impl IndexedParallelIterator<Item = u64> + '_ {
    let strides = tensor.shape.strides();
    let count: usize = tensor.ranges.iter().map(std::ops::Range::len).product();
    (0..count).into_par_iter().map(move |mut flat| {
        let mut at = 0;
        for (range, stride) in tensor.ranges.iter().zip(&strides).rev() {
            at += (range.start + flat % range.len()) * stride;
            flat /= range.len();
        }
        at as u64
    })
}

/// Returns a uniform number in (0, 1] of 53 random bits. `stream` is 0 or 1.
fn uniform(name: u64, element: u64, stream: u64) -> f64 {
    ((mixed(name ^ mixed(2 * element + stream)) >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// Returns a normal number (Box and Muller 1958).
fn normal(name: u64, element: u64) -> f64 {
    (-2.0 * uniform(name, element, 0).ln()).sqrt() * (TAU * uniform(name, element, 1)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_normal_and_differ_by_name_and_element() {
        let numbers: Vec<f64> = (0..20_000).map(|element| normal(7, element)).collect();
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / numbers.len() as f64;
        // Bound of four standard errors.
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
        let other: f64 = (0..20_000).map(|element| normal(8, element) * normal(7, element)).sum();
        assert!((other / 20_000.0).abs() < 0.03, "{other}");
    }
}
