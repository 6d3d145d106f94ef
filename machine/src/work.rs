//! What a call has to compute and to move.
//!
//! Input: a [`Launch`]. Output: its [`Work`]. One table, by operator; what is not in it is a pass over its tensors.

use crate::launch::{Access, Element, Launch, Operand};

/// A product of matrices, `batch` times `[m, k] × [k, n]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm {
    /// Products.
    pub batch: f64,
    /// Rows of the result.
    pub m: f64,
    /// Columns of the result.
    pub n: f64,
    /// Elements of each sum.
    pub k: f64,
}

impl Gemm {
    /// Floating-point operations.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * self.batch * self.m * self.n * self.k
    }
}

/// What a call computes and moves.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// What the cube units multiply; attention has two products.
    pub products: Vec<Gemm>,
    /// The element type they multiply.
    pub element: Element,
    /// Operations of the vector units.
    pub vector_operations: f64,
    /// Bytes read from memory, each once.
    pub read_bytes: f64,
    /// Bytes written to memory.
    pub written_bytes: f64,
}

impl Work {
    /// What a call has to do.
    #[must_use]
    pub fn of(launch: &Launch) -> Self {
        let bytes = |wanted: fn(Access) -> bool| -> f64 {
            launch.operands.iter().filter(|operand| wanted(operand.access)).map(Operand::bytes).sum()
        };
        let mut work = Self {
            products: Vec::new(),
            element: launch.operands.first().map_or(Element::Bf16, |operand| operand.element),
            vector_operations: launch.operands.iter().map(Operand::len).max().unwrap_or(0) as f64,
            read_bytes: bytes(|access| access != Access::Write),
            written_bytes: bytes(|access| access != Access::Read),
        };
        if launch.operator == "aclnnMatmul"
            && let [a, b, ..] = launch.operands.as_slice()
            && let ([batch @ .., m, k], [.., n]) = (a.dims.as_slice(), b.dims.as_slice())
        {
            let batch = batch.iter().product::<usize>() as f64;
            work.products.push(Gemm { batch, m: *m as f64, n: *n as f64, k: *k as f64 });
            work.vector_operations = 0.0;
        }
        work
    }

    /// Operations of the cube units.
    #[must_use]
    pub fn flops(&self) -> f64 {
        self.products.iter().map(Gemm::flops).sum()
    }

    /// Bytes to and from memory.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }
}
