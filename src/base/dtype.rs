//! Element types of tensors.

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
    /// Signed 32-bit integer type.
    I32,
    /// Signed 64-bit integer, for token ids and positions.
    I64,
    /// Signed 8-bit integer, for quantised weights and activations.
    I8,
    /// Unsigned 8-bit integer, for packed signs or raw bytes.
    U8,
    /// 8-bit float with 4 bits of exponent and no infinity (E4M3). Stored weights only.
    F8E4M3,
    /// One byte that is 0 or 1.
    Bool,
}

impl DType {
    /// Types of values in programs, in the order of the enum.
    #[doc(hidden)]
    pub const ALL: [Self; 8] =
        [Self::F32, Self::F16, Self::BF16, Self::I32, Self::I64, Self::I8, Self::U8, Self::Bool];

    /// Returns the size of one element, in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::I64 => 8,
            Self::I8 | Self::U8 | Self::F8E4M3 | Self::Bool => 1,
        }
    }

    /// Returns whether the type is a floating-point type.
    #[must_use]
    #[doc(hidden)]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }

    /// Returns the name in program texts and on the command line.
    #[must_use]
    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::F8E4M3 => "f8e4m3",
            Self::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text does not name an element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an element type; expected one of f32, f16, bf16, i32, i64, i8, u8, bool")]
pub struct UnknownDType(pub String);

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(text: &str) -> Result<Self, UnknownDType> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| UnknownDType(text.to_owned()))
    }
}

/// Representation of the weights of linear layers. Embedding, norms, biases and the head are always
/// floats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Weights {
    /// Floats of the activations' type. Weights that the checkpoint stores in 4-bit groups stay
    /// packed, if the activations have 16 bits and the cards support the weight.
    #[default]
    Float,
    /// As [`Self::Float`], without packed weights: 4-bit groups become floats.
    Unpacked,
    /// 8-bit integers with one scale per output channel. Activations are quantised at run time with
    /// one scale per token, like `W8A8_DYNAMIC` of vllm-ascend.
    W8A8,
    /// As [`Self::W8A8`], for the weights that the checkpoint stores in fp8 blocks. Other weights
    /// are floats.
    Fp8AsInt8,
}

/// Representation of keys and values in KV caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Floats of the activations' type.
    #[default]
    Activations,
    /// 8-bit integers with one f32 scale per token and key head. They are quantised when they are
    /// written, and attention reads products with the scales, rounded to the activations' type.
    Int8,
}

/// Precision of a model: the type of activations, and the representation of weights and of KV
/// caches.
///
/// ```
/// use ascend_tp::{DType, Precision};
///
/// let float: Precision = DType::BF16.into();
/// let quantised = Precision::w8a8(DType::BF16);
/// assert_eq!(float.activations, quantised.activations);
/// assert_ne!(float.weights, quantised.weights);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Precision {
    /// Element type of activations and of all weights outside linear layers.
    pub activations: DType,
    /// Representation of the weights of linear layers.
    pub weights: Weights,
    /// Representation of KV caches.
    pub kv: KvType,
}

impl Precision {
    /// Returns quantised linear layers for a checkpoint of type `own`. Activations are f16 if `own`
    /// is f16, otherwise bf16, because cards quantise 16-bit floats only.
    #[must_use]
    pub const fn w8a8(own: DType) -> Self {
        let activations = match own {
            DType::F16 => DType::F16,
            _ => DType::BF16,
        };
        Self { activations, weights: Weights::W8A8, kv: KvType::Activations }
    }

    /// Returns weights in fp8 blocks as 8-bit integers, for a checkpoint of type `own`.
    #[must_use]
    pub const fn fp8_as_int8(own: DType) -> Self {
        Self { weights: Weights::Fp8AsInt8, ..Self::w8a8(own) }
    }

    /// Returns the precision with KV caches in this representation.
    #[must_use]
    pub const fn with_kv(self, kv: KvType) -> Self {
        Self { kv, ..self }
    }

    /// Returns the name of the type of KV caches, if it is not that of activations.
    #[must_use]
    #[doc(hidden)]
    pub const fn kv_name(self) -> Option<&'static str> {
        match self.kv {
            KvType::Activations => None,
            KvType::Int8 => Some("int8"),
        }
    }

    /// Returns the bytes of the keys of a token in one head of size `head_size`, with their scale.
    #[must_use]
    #[doc(hidden)]
    pub const fn key_bytes(self, head_size: usize) -> usize {
        match self.kv {
            KvType::Activations => head_size * self.activations.size_bytes(),
            KvType::Int8 => head_size * DType::I8.size_bytes() + DType::F32.size_bytes(),
        }
    }

    /// Returns the name on the command line and in reports.
    #[must_use]
    #[doc(hidden)]
    pub const fn name(self) -> &'static str {
        match self.weights {
            Weights::Float | Weights::Unpacked => self.activations.name(),
            Weights::W8A8 => "w8a8",
            Weights::Fp8AsInt8 => "fp8 as int8",
        }
    }
}

impl From<DType> for Precision {
    fn from(activations: DType) -> Self {
        Self { activations, weights: Weights::Float, kv: KvType::Activations }
    }
}

impl fmt::Display for Precision {
    /// Formats as `bf16`, `w8a8 with bf16 activations` or `bf16 with int8 caches`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_floats = matches!(self.weights, Weights::Float | Weights::Unpacked);
        match (has_floats, self.kv) {
            (true, KvType::Activations) => write!(f, "{}", self.activations),
            (true, KvType::Int8) => write!(f, "{} with int8 caches", self.activations),
            (false, KvType::Activations) => {
                write!(f, "{} with {} activations", self.name(), self.activations)
            }
            (false, KvType::Int8) => {
                write!(f, "{} with {} activations and int8 caches", self.name(), self.activations)
            }
        }
    }
}
