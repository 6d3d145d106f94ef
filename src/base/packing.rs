//! Published layouts of weights in less than 16 bits that are read as floats.
//!
//! Input: the layout, and the sizes of a matrix `[outputs, inputs]`. Output: the stored tensors of
//! the matrix.
//!
//! Invariants: a word has eight numbers of 4 bits, the first one in the lowest bits. A group is a
//! range of inputs with one scale per output. The last group or block can be partial.
//!
//! Not here: reading (`weights/packed.rs`), and the files that describe a checkpoint (`config`).

use std::fmt;

use super::{DType, Shape};

/// Number of 4-bit numbers in a word.
pub(crate) const WORD: usize = 8;

/// Number of consecutive inputs with one scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScaleGroup {
    /// All inputs of an output.
    Row,
    /// This number of inputs.
    Of(usize),
}

impl ScaleGroup {
    /// Returns the number of inputs per group of a matrix with `inputs` inputs, at least 1.
    #[must_use]
    pub(crate) const fn size(self, inputs: usize) -> usize {
        match self {
            Self::Of(size) if size > 0 => size,
            _ if inputs == 0 => 1,
            _ => inputs,
        }
    }

    pub(crate) const fn count(self, inputs: usize) -> usize {
        inputs.div_ceil(self.size(inputs))
    }
}

/// A layout of packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Packing {
    /// `pack-quantized` of compressed-tensors: words along the inputs, and scales `[outputs,
    /// groups]`. A weight is `(number - 8) · scale`, or `(number - zero) · scale`.
    Rows {
        /// Inputs per scale.
        group: ScaleGroup,
        /// Zero points are stored, in words along the outputs.
        has_zeros: bool,
        /// The group of each input is stored.
        has_order: bool,
    },
    /// GPTQ: words along the inputs, `[inputs / 8, outputs]`, and scales `[groups, outputs]`. The
    /// group of each input is stored. A weight is `(number - zero - added) · scale`.
    Gptq {
        /// Inputs per scale.
        group: ScaleGroup,
        /// Number that is added to the stored zero points: 1, or 0 in version 2.
        added: u8,
    },
    /// AWQ: words along the outputs, `[inputs, outputs / 8]`, and scales `[groups, outputs]`. A
    /// word has outputs 0, 2, 4, 6, 1, 3, 5, 7. A weight is `(number - zero) · scale`.
    Awq {
        /// Inputs per scale.
        group: ScaleGroup,
    },
    /// Numbers of 8 bits (E4M3) with one scale per block of outputs and inputs.
    Fp8 {
        /// Outputs and inputs of a block.
        block: [usize; 2],
    },
}

/// A stored tensor of a packed matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedTensor {
    /// Last part of the name, after the name of the layer.
    pub suffix: &'static str,
    /// Sizes of the stored tensor.
    pub shape: Shape,
    /// Element types that the tensor can have.
    pub dtypes: &'static [DType],
}

/// Types of floats in checkpoints.
pub(crate) const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
const WORDS: &[DType] = &[DType::I32];
const FP8: &[DType] = &[DType::F8E4M3];

impl Packing {
    /// Returns the stored tensors of a matrix `[outputs, inputs]`: the numbers, the scales, the
    /// zero points, and the group of each input.
    #[must_use]
    pub fn tensors(self, [outputs, inputs]: [usize; 2]) -> Vec<PackedTensor> {
        let tensor = |suffix, sizes: &[usize], dtypes| PackedTensor { suffix, shape: sizes.into(), dtypes };
        match self {
            Self::Rows { group, has_zeros, has_order } => {
                let groups = group.count(inputs);
                let zeros = tensor("weight_zero_point", &[outputs.div_ceil(WORD), groups], WORDS);
                let order = tensor("weight_g_idx", &[inputs], WORDS);
                [tensor("weight_packed", &[outputs, inputs.div_ceil(WORD)], WORDS)]
                    .into_iter()
                    .chain([tensor("weight_scale", &[outputs, groups], FLOATS)])
                    .chain(has_zeros.then_some(zeros))
                    .chain(has_order.then_some(order))
                    .collect()
            }
            Self::Gptq { group, .. } => {
                let groups = group.count(inputs);
                vec![
                    tensor("qweight", &[inputs.div_ceil(WORD), outputs], WORDS),
                    tensor("scales", &[groups, outputs], FLOATS),
                    tensor("qzeros", &[groups, outputs.div_ceil(WORD)], WORDS),
                    tensor("g_idx", &[inputs], WORDS),
                ]
            }
            Self::Awq { group } => {
                let groups = group.count(inputs);
                vec![
                    tensor("qweight", &[inputs, outputs.div_ceil(WORD)], WORDS),
                    tensor("scales", &[groups, outputs], FLOATS),
                    tensor("qzeros", &[groups, outputs.div_ceil(WORD)], WORDS),
                ]
            }
            Self::Fp8 { block: [rows, columns] } => vec![
                tensor("weight", &[outputs, inputs], FP8),
                tensor("weight_scale_inv", &[outputs.div_ceil(rows), inputs.div_ceil(columns)], FLOATS),
            ],
        }
    }

    /// Returns the sizes that outputs and inputs must be multiples of.
    #[must_use]
    pub const fn multiples(self) -> [usize; 2] {
        match self {
            Self::Rows { .. } | Self::Fp8 { .. } => [1, 1],
            Self::Gptq { .. } => [WORD, WORD],
            Self::Awq { .. } => [WORD, 1],
        }
    }

    /// Returns whether the outputs of an input are stored together.
    pub(crate) const fn is_transposed(self) -> bool {
        matches!(self, Self::Gptq { .. } | Self::Awq { .. })
    }

    /// Parses a packing such as `rows:32:zeros` or `gptq:row:1`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let positive = |text: &str| text.parse().ok().filter(|number: &usize| *number > 0);
        let group = |text: &str| match text {
            "row" => Some(ScaleGroup::Row),
            _ => positive(text).map(ScaleGroup::Of),
        };
        let rows = |size: &str, has_zeros, has_order| {
            group(size).map(|group| Self::Rows { group, has_zeros, has_order })
        };
        match parts[..] {
            ["rows", size] => rows(size, false, false),
            ["rows", size, "zeros"] => rows(size, true, false),
            ["rows", size, "order"] => rows(size, false, true),
            ["rows", size, "zeros", "order"] => rows(size, true, true),
            ["gptq", size, "0"] => group(size).map(|group| Self::Gptq { group, added: 0 }),
            ["gptq", size, "1"] => group(size).map(|group| Self::Gptq { group, added: 1 }),
            ["awq", size] => group(size).map(|group| Self::Awq { group }),
            ["fp8", rows, columns] => Some(Self::Fp8 { block: [positive(rows)?, positive(columns)?] }),
            _ => None,
        }
    }
}

impl fmt::Display for ScaleGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row => f.write_str("row"),
            Self::Of(size) => write!(f, "{size}"),
        }
    }
}

impl fmt::Display for Packing {
    /// Prints `rows:32:zeros`, `gptq:128:1`, `awq:128` or `fp8:128:128`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { group, has_zeros, has_order } => {
                let zeros = if *has_zeros { ":zeros" } else { "" };
                let order = if *has_order { ":order" } else { "" };
                write!(f, "rows:{group}{zeros}{order}")
            }
            Self::Gptq { group, added } => write!(f, "gptq:{group}:{added}"),
            Self::Awq { group } => write!(f, "awq:{group}"),
            Self::Fp8 { block: [rows, columns] } => write!(f, "fp8:{rows}:{columns}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packings_survive_their_text() {
        for text in [
            "rows:32",
            "rows:row:zeros",
            "rows:128:order",
            "rows:32:zeros:order",
            "gptq:128:1",
            "gptq:row:0",
            "awq:64",
            "fp8:128:128",
        ] {
            assert_eq!(Packing::parse(text).unwrap().to_string(), text);
        }
        for text in
            ["", "rows", "rows:0", "rows:32:order:zeros", "gptq:32", "gptq:32:2", "awq:x", "fp8:128:0"]
        {
            assert_eq!(Packing::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_last_group_and_the_last_block_can_be_partial() {
        let shapes = |text: &str, matrix| -> Vec<String> {
            let tensors = Packing::parse(text).unwrap().tensors(matrix);
            tensors.iter().map(|tensor| format!("{}{}", tensor.suffix, tensor.shape)).collect()
        };
        assert_eq!(shapes("fp8:128:128", [160, 64]), ["weight[160,64]", "weight_scale_inv[2,1]"]);
        assert_eq!(
            shapes("rows:32:zeros", [12, 40]),
            ["weight_packed[12,5]", "weight_scale[12,2]", "weight_zero_point[2,2]"]
        );
        assert_eq!(
            shapes("gptq:row:1", [16, 40]),
            ["qweight[5,16]", "scales[1,16]", "qzeros[1,2]", "g_idx[40]"]
        );
    }
}
