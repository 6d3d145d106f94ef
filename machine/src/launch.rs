//! An operator's call as any caller of the C ABI can describe it: its name, and the element types and sizes of its tensors.

/// An element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Element {
    /// 64-bit float or complex numbers of 32 bits.
    F64,
    /// Float of 32 bits: 8 of exponent, 23 of fraction.
    F32,
    /// Float of 16 bits: 5 of exponent, 10 of fraction.
    F16,
    /// 16-bit float with the exponent of 32.
    Bf16,
    /// Integer of 64 bits, with or without a sign.
    I64,
    /// Integer of 32 bits, with or without a sign.
    I32,
    /// Integer of 16 bits, with or without a sign.
    I16,
    /// 8-bit integer or truth value.
    I8,
    /// Integer of 4 bits, two in a byte.
    I4,
}

impl Element {
    /// Bytes of `count` elements.
    #[must_use]
    pub const fn bytes(self, count: f64) -> f64 {
        match self {
            Self::F64 | Self::I64 => count * 8.0,
            Self::F32 | Self::I32 => count * 4.0,
            Self::F16 | Self::Bf16 | Self::I16 => count * 2.0,
            Self::I8 => count,
            Self::I4 => count / 2.0,
        }
    }
}

/// What a call does with a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The operator reads it alone.
    Read,
    /// The operator writes it alone.
    Write,
    /// Reads and writes it in place.
    Update,
}

/// One tensor of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaunchOperand {
    /// Type of its elements.
    pub element: Element,
    /// Sizes of its dims, the outermost first.
    pub dims: Vec<usize>,
    /// Elements that are touched, each once: fewer than the product of `dims` where a stride is 0, or where the call says that it
    /// reads a part.
    pub distinct: usize,
    /// Whether the elements lie row-major without gaps, maybe with the last two dims swapped.
    pub layout: OperandLayout,
    /// What happens to it.
    pub access: Access,
}

/// How a tensor's elements lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperandLayout {
    /// Row-major without gaps.
    Dense,
    /// The same with the last two dims swapped.
    Transposed,
    /// In no order that a kernel streams through.
    Strided,
}

impl LaunchOperand {
    /// A dense tensor.
    #[must_use]
    pub fn dense(element: Element, dims: impl Into<Vec<usize>>, access: Access) -> Self {
        let dims = dims.into();
        Self { element, distinct: dims.iter().product(), dims, layout: OperandLayout::Dense, access }
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that are touched, each once.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.element.bytes(self.distinct as f64)
    }
}

/// One call of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Launch {
    /// The C function without its `GetWorkspaceSize`: `aclnnMatmul`.
    pub operator: &'static str,
    /// The tensors in the order of the C function's parameters; those that are not given are left out.
    pub operands: Vec<LaunchOperand>,
}
