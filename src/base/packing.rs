//! Published layouts of weights in less than 16 bits.
//!
//! Input: the layout, and the sizes of a matrix `[outputs, inputs]`. Output: the stored tensors of
//! the matrix, and the size of its groups on a card.
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
        /// Groups are not consecutive inputs.
        has_order: bool,
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

/// The reason why a card does not multiply a packed matrix in its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Unpacked {
    /// The numbers are 8-bit floats.
    #[error("the cards have no products of 8-bit floats")]
    Fp8,
    /// The groups are not consecutive inputs.
    #[error("the groups of inputs are not consecutive (act order)")]
    Order,
    /// Groups of this number of inputs are not supported.
    #[error("groups of {0} inputs are not a multiple of 32 inputs")]
    Group(usize),
    /// Shards do not have whole words of inputs.
    #[error("the shards have no whole words of eight inputs")]
    Word,
    /// A shard of the inputs would end in a group.
    #[error("the last group of inputs is partial")]
    PartialGroup,
    /// The inputs are not the last dims of the weight.
    #[error("the product is no linear layer")]
    Product,
    /// Experts with clipped gates are multiplied as floats.
    #[error("experts with clipped gates are multiplied as floats")]
    Experts,
    /// The deployment has floats.
    #[error("sums in a fixed order and grids of cards have float weights")]
    Deployment,
}

/// Groups of a card have a multiple of this number of inputs.
const CARD_GROUP: usize = 32;

/// Returns the greatest common divisor.
pub(crate) const fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
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

    /// Returns the number of inputs per scale of a matrix that a card multiplies in 4-bit groups.
    /// Shards have multiples of `whole` inputs, which is a divisor of `inputs`.
    ///
    /// The groups on the card do not cross a border of `whole` inputs. They can be smaller than the
    /// stored groups, and then several groups have the scale of one stored group.
    ///
    /// # Errors
    /// The reason why the card does not support the matrix.
    pub(crate) fn card_group(self, inputs: usize, whole: usize) -> Result<usize, Unpacked> {
        match self {
            Self::Fp8 { .. } => return Err(Unpacked::Fp8),
            Self::Rows { has_order: true, .. } | Self::Gptq { has_order: true, .. } => {
                return Err(Unpacked::Order);
            }
            _ => {}
        }
        let group = self.stored_group(inputs);
        let group = if whole == inputs { group.min(inputs) } else { common_divisor(group, whole) };
        if !whole.is_multiple_of(WORD) {
            return Err(Unpacked::Word);
        }
        // A single group can have any size.
        if group < inputs && !group.is_multiple_of(CARD_GROUP) {
            return Err(Unpacked::Group(group));
        }
        Ok(group)
    }

    /// Returns the number of inputs per stored scale.
    pub(crate) const fn stored_group(self, inputs: usize) -> usize {
        match self {
            Self::Rows { group, .. } | Self::Gptq { group, .. } | Self::Awq { group } => group.size(inputs),
            Self::Fp8 { block } => block[1],
        }
    }

    /// Returns whether zero points are stored.
    pub(crate) const fn has_zeros(self) -> bool {
        match self {
            Self::Rows { has_zeros, .. } => has_zeros,
            Self::Gptq { .. } | Self::Awq { .. } => true,
            Self::Fp8 { .. } => false,
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
        let gptq = |size: &str, added: &str, has_order| {
            group(size).map(|group| Self::Gptq { group, added: u8::from(added == "1"), has_order })
        };
        match parts[..] {
            ["rows", size] => rows(size, false, false),
            ["rows", size, "zeros"] => rows(size, true, false),
            ["rows", size, "order"] => rows(size, false, true),
            ["rows", size, "zeros", "order"] => rows(size, true, true),
            ["gptq", size, added @ ("0" | "1")] => gptq(size, added, false),
            ["gptq", size, added @ ("0" | "1"), "order"] => gptq(size, added, true),
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
        let order = |has_order: &bool| if *has_order { ":order" } else { "" };
        match self {
            Self::Rows { group, has_zeros, has_order } => {
                let zeros = if *has_zeros { ":zeros" } else { "" };
                write!(f, "rows:{group}{zeros}{}", order(has_order))
            }
            Self::Gptq { group, added, has_order } => write!(f, "gptq:{group}:{added}{}", order(has_order)),
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
            "gptq:128:1:order",
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
    fn groups_of_a_card_stay_within_the_inputs_of_a_shard() {
        let group = |text: &str, inputs, whole| Packing::parse(text).unwrap().card_group(inputs, whole);
        assert_eq!(group("rows:128", 8192, 8192), Ok(128));
        assert_eq!(group("awq:128", 8192, 64), Ok(64), "two heads of a stored group");
        assert_eq!(group("awq:32", 8192, 128), Ok(32));
        assert_eq!(group("gptq:128:1", 200, 200), Ok(128), "the last group is partial");
        assert_eq!(group("gptq:row:1", 200, 200), Ok(200));
        assert_eq!(group("rows:row", 1024, 128), Ok(128));
        assert_eq!(group("rows:16", 64, 64), Err(Unpacked::Group(16)));
        assert_eq!(group("rows:32", 64, 16), Err(Unpacked::Group(16)));
        assert_eq!(group("rows:32", 36, 36), Err(Unpacked::Word));
        assert_eq!(group("gptq:32:1:order", 64, 64), Err(Unpacked::Order));
        assert_eq!(group("rows:32:order", 64, 64), Err(Unpacked::Order));
        assert_eq!(group("fp8:128:128", 256, 256), Err(Unpacked::Fp8));
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
