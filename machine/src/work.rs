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
        // Either operand may be stored transposed, which a launch does not say: the sizes are those of the result.
        if launch.operator == "aclnnQuantMatmulV4"
            && let (Some(a), Some(out)) = (launch.operands.first(), launch.operands.last())
            && let [m, n] = out.dims[..]
        {
            let k = a.len() as f64 / m.max(1) as f64;
            work.products.push(Gemm { batch: 1.0, m: m as f64, n: n as f64, k });
            // Two scales an element of the result.
            work.vector_operations = 2.0 * out.len() as f64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantised_product_has_the_sizes_of_its_result_however_it_is_stored() {
        for weight in [[7, 5], [5, 7]] {
            let operands = vec![
                Operand::dense(Element::I8, [3, 5], Access::Read),
                Operand::dense(Element::I8, weight, Access::Read),
                Operand::dense(Element::F32, [7], Access::Read),
                Operand::dense(Element::F32, [3], Access::Read),
                Operand::dense(Element::Bf16, [3, 7], Access::Write),
            ];
            let work = Work::of(&Launch { operator: "aclnnQuantMatmulV4", operands });
            assert_eq!(work.products, [Gemm { batch: 1.0, m: 3.0, n: 7.0, k: 5.0 }]);
            assert_eq!(work.element, Element::I8);
            // A byte each of both matrices, four of each scale; two of each element of the result.
            assert_eq!((work.read_bytes, work.written_bytes), (15.0 + 35.0 + 28.0 + 12.0, 42.0));
        }
    }
}
