//! Operator calls as any caller of the C ABI can describe them.

/// Element type of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Element {
    /// 64-bit float, or two 32-bit floats.
    F64,
    /// 32-bit float: 8 bits exponent, 23 bits fraction.
    F32,
    /// 16-bit float: 5 bits exponent, 10 bits fraction.
    F16,
    /// 16-bit float with the exponent of a 32-bit float.
    Bf16,
    /// 64-bit integer, signed or unsigned.
    I64,
    /// 32-bit integer, signed or unsigned.
    I32,
    /// 16-bit integer, signed or unsigned.
    I16,
    /// 8-bit integer or boolean.
    I8,
    /// 4-bit integer, two in a byte.
    I4,
}

impl Element {
    /// Returns the bytes of `count` elements.
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

/// Access to a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// The operator only reads the tensor.
    Read,
    /// The operator only writes the tensor.
    Write,
    /// The operator reads and writes the tensor in place.
    Update,
}

/// One tensor of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaunchOperand {
    /// Type of the elements.
    pub element: Element,
    /// Sizes of the dims, outermost first.
    pub dims: Vec<usize>,
    /// Distinct accessed elements: fewer than the product of `dims` if a stride is 0 or the call
    /// reads only a part.
    pub distinct: usize,
    /// Memory layout of the elements.
    pub layout: OperandLayout,
    /// Access to the tensor.
    pub access: Access,
}

/// Memory layout of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperandLayout {
    /// Row-major order without gaps.
    Dense,
    /// Dense with the last two dims swapped.
    Transposed,
    /// A kernel cannot stream through it.
    Strided,
}

impl LaunchOperand {
    /// Creates a dense tensor.
    #[must_use]
    pub fn dense(element: Element, dims: impl Into<Vec<usize>>, access: Access) -> Self {
        let dims = dims.into();
        Self { element, distinct: dims.iter().product(), dims, layout: OperandLayout::Dense, access }
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts the distinct accessed bytes.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.element.bytes(self.distinct as f64)
    }
}

/// One call of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Launch {
    /// C function without `GetWorkspaceSize`, such as `aclnnMatmul`.
    pub operator: &'static str,
    /// Present tensors in parameter order.
    pub operands: Vec<LaunchOperand>,
}
