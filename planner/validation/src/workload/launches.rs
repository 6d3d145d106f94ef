//! Operators with the operands that their C functions take.

use ascend_tp_machine::launch::{Access, OperandLayout};
use ascend_tp_machine::{Element, Launch, LaunchOperand};

use super::{ProductPrecision, WorkloadStep};

pub(super) const ACTIVATION: Element = Element::Bf16;

/// Side of the compressed causal mask (`sparseMode` 2 to 4 of aclnnFusedInferAttentionScore and
/// aclnnFlashAttentionScore).
pub(super) const COMPRESSED_MASK: usize = 2048;

pub(super) struct Operands(Vec<LaunchOperand>);

impl Operands {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    fn with(mut self, element: Element, dims: &[usize], access: Access) -> Self {
        self.0.push(LaunchOperand::dense(element, dims, access));
        self
    }

    pub(super) fn read(self, element: Element, dims: &[usize]) -> Self {
        self.with(element, dims, Access::Read)
    }

    pub(super) fn write(self, element: Element, dims: &[usize]) -> Self {
        self.with(element, dims, Access::Write)
    }

    pub(super) fn update(self, element: Element, dims: &[usize]) -> Self {
        self.with(element, dims, Access::Update)
    }

    /// Swaps the last two dims of the last operand.
    pub(super) fn transposed(mut self) -> Self {
        if let Some(last) = self.0.last_mut() {
            last.layout = OperandLayout::Transposed;
        }
        self
    }

    pub(super) fn of(self, operator: &'static str) -> WorkloadStep {
        WorkloadStep::launch(Launch { operator, operands: self.0 })
    }
}

/// `[m, k] × [k, n]` in 16 bits; the weight is stored as `[n, k]`.
pub(super) fn matmul(m: usize, k: usize, n: usize) -> WorkloadStep {
    Operands::new()
        .read(ACTIVATION, &[m, k])
        .read(ACTIVATION, &[k, n])
        .transposed()
        .write(ACTIVATION, &[m, n])
        .of("aclnnMatmul")
}

/// Uses one scale per token.
pub(super) fn quantise(m: usize, k: usize) -> WorkloadStep {
    Operands::new()
        .read(ACTIVATION, &[m, k])
        .write(Element::I8, &[m, k])
        .write(Element::F32, &[m])
        .of("aclnnDynamicQuant")
}

/// Uses a fixed scale.
fn scale(m: usize, k: usize) -> WorkloadStep {
    Operands::new().read(ACTIVATION, &[m, k]).write(Element::I8, &[m, k]).of("aclnnAscendQuantV3")
}

/// Includes the quantisation of the precision.
pub(super) fn projection(precision: ProductPrecision, m: usize, k: usize, n: usize) -> Vec<WorkloadStep> {
    match precision {
        ProductPrecision::Bits16 => vec![matmul(m, k, n)],
        ProductPrecision::W8A8 | ProductPrecision::W8A8Static | ProductPrecision::W4A8 => {
            let product = Operands::new()
                .read(Element::I8, &[m, k])
                .read(Element::I8, &[k, n])
                .read(Element::F32, &[n])
                .read(Element::F32, &[m])
                .write(ACTIVATION, &[m, n])
                .of("aclnnQuantMatmulV4");
            let quantised =
                if precision == ProductPrecision::W8A8Static { scale(m, k) } else { quantise(m, k) };
            vec![quantised, product]
        }
    }
}

pub(super) fn add_rms_norm(tokens: usize, width: usize) -> WorkloadStep {
    let dims = [tokens, width];
    Operands::new()
        .read(ACTIVATION, &dims)
        .read(ACTIVATION, &dims)
        .read(ACTIVATION, &[width])
        .write(ACTIVATION, &dims)
        .write(Element::F32, &[tokens, 1])
        .write(ACTIVATION, &dims)
        .of("aclnnAddRmsNorm")
}

pub(super) fn rms_norm(rows: usize, width: usize) -> WorkloadStep {
    Operands::new()
        .read(ACTIVATION, &[rows, width])
        .read(ACTIVATION, &[width])
        .write(ACTIVATION, &[rows, width])
        .write(Element::F32, &[rows, 1])
        .of("aclnnRmsNorm")
}

pub(super) fn rotary(batch: usize, query: usize, heads: usize, width: usize) -> WorkloadStep {
    let (x, angles) = ([batch, query, heads, width], [batch, query, 1, width]);
    Operands::new()
        .read(ACTIVATION, &x)
        .read(ACTIVATION, &angles)
        .read(ACTIVATION, &angles)
        .write(ACTIVATION, &x)
        .of("aclnnRotaryPositionEmbedding")
}

/// Writes `rows` rows into a cache of `positions` rows.
pub(super) fn cache_write(positions: usize, rows: usize, width: usize, element: Element) -> WorkloadStep {
    Operands::new()
        .update(element, &[positions.max(rows), width])
        .read(Element::I64, &[rows])
        .read(element, &[rows, width])
        .of("aclnnInplaceIndexCopy")
}

#[derive(Clone, Copy)]
pub(super) struct AttentionLaunch {
    pub(super) batch: usize,
    pub(super) query: usize,
    pub(super) positions: usize,
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
    pub(super) sight: SeenPositions,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SeenPositions {
    /// Every given position, without a mask.
    Everything,
    /// The token itself and earlier positions.
    Past,
}

impl AttentionLaunch {
    pub(super) fn step(self) -> WorkloadStep {
        let q = [self.batch, self.query, self.heads, self.key_dim];
        let k = [self.batch, self.positions, self.kv_heads, self.key_dim];
        let v = [self.batch, self.positions, self.kv_heads, self.value_dim];
        let mut operands = Operands::new().read(ACTIVATION, &q).read(ACTIVATION, &k).read(ACTIVATION, &v);
        if self.sight == SeenPositions::Past && self.query > 1 {
            operands = operands.read(Element::I8, &[COMPRESSED_MASK, COMPRESSED_MASK]);
        }
        operands
            .write(ACTIVATION, &[self.batch, self.query, self.heads, self.value_dim])
            .of("aclnnFusedInferAttentionScoreV2")
    }
}

/// Reads `read` tensors and writes one.
pub(super) fn elementwise(
    operator: &'static str,
    element: Element,
    dims: &[usize],
    read: usize,
) -> WorkloadStep {
    (0..read)
        .fold(Operands::new(), |operands, _| operands.read(element, dims))
        .write(element, dims)
        .of(operator)
}

/// `silu(gate) · up` of the halves of the last dim.
pub(super) fn swiglu(tokens: usize, width: usize) -> WorkloadStep {
    Operands::new()
        .read(ACTIVATION, &[tokens, 2 * width])
        .write(ACTIVATION, &[tokens, width])
        .of("aclnnSwiGlu")
}
