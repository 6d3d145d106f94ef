//! Element types of tensors: their sizes and their names in texts.

use std::fmt;
use std::str::FromStr;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE binary32: 24 bits of precision.
    F32,
    /// IEEE binary16: 11 bits of precision, at most 65,504.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer: token ids, positions.
    I64,
    /// Signed 8-bit integer: quantised weights and activations.
    I8,
    /// Unsigned 8-bit integer: eight signs, or bytes that are only moved.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every type, in the order of the enum.
    pub const ALL: [Self; 8] = [Self::F32, Self::F16, Self::BF16, Self::I32, Self::I64, Self::I8, Self::U8, Self::Bool];

    /// Bytes of one element.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I64 => 8,
            Self::I8 | Self::U8 | Self::Bool => 1,
        }
    }

    /// Whether the type holds floating-point numbers.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// The name in program texts and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text is no element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no element type; known are f32, f16, bf16, i32, i64, i8, u8, bool")]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<Self, UnknownDType> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| UnknownDType(text.to_owned()))
    }
}

/// How the weights of linear layers are held and multiplied. Embedding, norms, biases and the head are floats in either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weights {
    /// Floats of the activations' type.
    #[default]
    Float,
    /// 8-bit integers with one scale an output channel, multiplied with activations that are quantised at run time, one
    /// scale a token: the `W8A8_DYNAMIC` of vllm-ascend.
    W8A8,
}

/// In what a model computes: the element type of activations and KV cache, and how weights are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Precision {
    /// Element type of activations, KV cache and all weights but those of linear layers.
    pub activations: DType,
    /// The weights of linear layers.
    pub weights: Weights,
}

impl Precision {
    /// Quantised linear layers, for a checkpoint of element type `own`: activations keep it, or are bf16 where it is f32,
    /// because cards quantise 16-bit floats only.
    #[must_use]
    pub const fn w8a8(own: DType) -> Self {
        let activations = match own {
            DType::F16 => DType::F16,
            _ => DType::BF16,
        };
        Self { activations, weights: Weights::W8A8 }
    }

    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.weights {
            Weights::Float => self.activations.name(),
            Weights::W8A8 => "w8a8",
        }
    }
}

impl From<DType> for Precision {
    fn from(activations: DType) -> Self {
        Self { activations, weights: Weights::Float }
    }
}

impl fmt::Display for Precision {
    /// `bf16`, or `w8a8 with bf16 activations`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.weights {
            Weights::Float => write!(f, "{}", self.activations),
            Weights::W8A8 => write!(f, "{} with {} activations", self.name(), self.activations),
        }
    }
}
