//! Weights from nothing: drawn by seed, name and element, so that they are the same on every layout.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use crate::base::Id;
use crate::exec::{FillError, Shards};
use crate::program::{Kind, Program, Role, ValueId};
use crate::schedule::plan::Tensor;

/// What a weight begins as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Normal, of deviation [`DEVIATION`]: what is multiplied or looked up.
    Normal,
    /// What scales: norms.
    Ones,
    /// What is added: biases.
    Zeros,
}

/// Standard deviation of [`Init::Normal`], as GPT-2, Llama and Qwen have it.
pub const DEVIATION: f64 = 0.02;

/// What each param of a program begins as, by what is done with it.
#[must_use]
pub fn inits(program: &Program) -> BTreeMap<String, Init> {
    let mut found: Vec<Option<Init>> = vec![None; program.values.len()];
    let mut origin: Vec<ValueId> = program.values.ids().collect();
    for op in program.ops.values() {
        if let Kind::Cast { .. } = op.kind {
            origin[op.result().index()] = origin[op.operands[0].index()];
        }
        let init = match op.kind {
            Kind::MatMul { .. } | Kind::Embed => Init::Normal,
            Kind::RmsNorm { .. } => Init::Ones,
            _ => continue,
        };
        for operand in &op.operands {
            found[origin[operand.index()].index()] = Some(init);
        }
    }
    let init = |id: ValueId| (program.values[id].name.clone(), found[id.index()].unwrap_or(Init::Zeros));
    program.with_role(Role::Param).map(init).collect()
}

/// Fills the weights of all ranks here.
///
/// # Errors
/// A card refuses.
pub fn fill(shards: &Shards<'_>, inits: &BTreeMap<String, Init>, seed: u64) -> Result<(), FillError> {
    for part in shards.parts() {
        let tensor = part.tensor();
        let init = inits.get(&tensor.name).copied().unwrap_or(Init::Zeros);
        let name = tensor.name.bytes().fold(seed, |state, byte| mixed(state ^ u64::from(byte)));
        let value = |element: u64| match init {
            Init::Ones => 1.0,
            Init::Zeros => 0.0,
            Init::Normal => (normal(name, element) * DEVIATION) as f32,
        };
        let bytes: Vec<u8> = elements(tensor).flat_map(|element| value(element).to_le_bytes()).collect();
        part.write(0, &bytes)?;
    }
    Ok(())
}

/// The numbers of a part's elements in the whole tensor, row-major.
fn elements(tensor: &Tensor) -> impl Iterator<Item = u64> + '_ {
    let strides = tensor.shape.strides();
    let count: usize = tensor.ranges.iter().map(std::ops::Range::len).product();
    (0..count).map(move |mut flat| {
        let mut at = 0;
        for (range, stride) in tensor.ranges.iter().zip(&strides).rev() {
            at += (range.start + flat % range.len()) * stride;
            flat /= range.len();
        }
        at as u64
    })
}

/// One step of `SplitMix64` (Steele, Lea, Flood 2014).
const fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// A normal number (Box and Muller 1958).
fn normal(name: u64, element: u64) -> f64 {
    // In (0, 1]: 53 bits and one more.
    let uniform = |stream: u64| ((mixed(name ^ mixed(2 * element + stream)) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    (-2.0 * uniform(0).ln()).sqrt() * (TAU * uniform(1)).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_normal_and_differ_by_name_and_element() {
        let numbers: Vec<f64> = (0..20_000).map(|element| normal(7, element)).collect();
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / numbers.len() as f64;
        // Four standard errors of 20,000.
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.04, "{mean} {variance}");
        let other: f64 = (0..20_000).map(|element| normal(8, element) * normal(7, element)).sum();
        assert!((other / 20_000.0).abs() < 0.03, "{other}");
    }
}
