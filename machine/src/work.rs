//! Computation and memory traffic of a call.
//!
//! Unlisted operators count as one pass over their tensors with one operation per element.

mod others;

use crate::launch::{Access, Element, Launch, LaunchOperand, OperandLayout};

/// A matrix product, `batch` times `[m, k] × [k, n]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gemm {
    /// Products of this size.
    pub batch: f64,
    /// Rows of the result.
    pub m: f64,
    /// Columns of the result.
    pub n: f64,
    /// Number of summands per element of the result.
    pub k: f64,
}

impl Gemm {
    /// Counts the operations of all products.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * self.batch * self.m * self.n * self.k
    }
}

/// Each kind has its own coefficients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// Products of one size.
    Product,
    /// Each row uses the weight of a randomly drawn group.
    Grouped,
    /// Equally large groups of the contracted dim.
    GroupedSums,
    /// Fused attention over this many key heads.
    Attention {
        /// Key heads; with several, the rows of a head are not contiguous.
        key_heads: usize,
        /// More than 16 queries of each sequence.
        is_prompt: bool,
    },
    /// Passes of the vector cores.
    Vector,
}

/// Largest number of queries of a sequence in the kernel of decode steps
/// (`aclnnFusedInferAttentionScore`).
const DECODE_QUERIES: f64 = 16.0;

/// Query rows of a head that a core processes at a time.
const QUERY_BLOCK: f64 = 128.0;

/// Keys that a core multiplies at a time. A mask skips whole blocks.
const KEY_BLOCK: f64 = 512.0;

/// Computation and traffic of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Products on the cube units; attention has two.
    pub products: Vec<Gemm>,
    /// Operations of the cube units in attention, with the scores of whole blocks of queries and
    /// keys.
    pub cube_flops: f64,
    /// Element type of the products.
    pub element: Element,
    /// Operations on 32-bit lanes.
    pub vector_operations: f64,
    /// Distinct bytes from memory.
    pub read_bytes: f64,
    /// Bytes written to memory.
    pub written_bytes: f64,
    /// Kind of kernel that does the work.
    pub kind: WorkKind,
    /// Right side's element size, which may be smaller than the left's.
    pub weight_bytes: f64,
    /// Tasks distributed to the cores: in attention, a key head of a sequence with a block of
    /// queries; in a vector kernel, a row if rows are processed as a whole, otherwise a piece.
    pub tasks: f64,
    /// Query rows of all tasks of attention, in whole blocks.
    pub query_rows: f64,
    /// Activations among the bytes, which neighbouring operators may share through the cache.
    /// Weights, caches and tables always come from memory.
    pub passing_bytes: f64,
    /// Weights, caches and tables that are cached nevertheless; see [`Self::repeated`].
    pub cached_bytes: f64,
}

/// Operations per element refer to a 32-bit lane: 16-bit floats are computed in 32 bits, and an
/// exponential or a division counts as about 4.
#[derive(Debug, Clone, Copy, PartialEq)]
enum OperatorClass {
    /// `[.., m, k] × [.., k, n]`, starting at this tensor.
    Product(usize),
    /// Rows distributed to experts: `[rows, k] × [experts, k, n]`.
    Grouped,
    /// `[k, m]` and `[k, n]`, added to `[groups, m, n]`.
    GroupedSums,
    /// Queries, keys, values, optional mask.
    Attention,
    AttentionGrad,
    /// `[n, c, ..] × [channels, c of a group, ..]`, or with the channels exchanged.
    Convolution,
    /// Two products, by input and by weight.
    ConvolutionGrad,
    /// Reads, computes this many operations per element, writes.
    Pass(f64),
    /// Like `Pass`, but each row of the last dim as a whole.
    Rows(f64),
    /// Like `Rows`, with operations per row if the result has 8 bits: the scale of a row waits for
    /// its maximum. The kernel for 4 bits works on several rows at once.
    Quantisation(f64, f64),
    /// Like `Pass`, on a single core.
    OneCore(f64),
    /// Like `Pass`, with this many passes.
    Passes(f64, f64),
    /// The first tensor is the table.
    ReadRows,
    WriteRows,
}

/// Sorts make log₂ n passes. About 8 passes leave the core.
const CLASSES: &[(&str, OperatorClass)] = &[
    ("cache_write", OperatorClass::WriteRows),
    ("aclnnMatmul", OperatorClass::Product(0)),
    ("aclnnMm", OperatorClass::Product(0)),
    ("aclnnBatchMatMul", OperatorClass::Product(0)),
    ("aclnnQuantMatmulV3", OperatorClass::Product(0)),
    ("aclnnQuantMatmulV4", OperatorClass::Product(0)),
    ("aclnnQuantMatmulV5", OperatorClass::Product(0)),
    ("aclnnWeightQuantBatchMatmulV2", OperatorClass::Product(0)),
    ("aclnnWeightQuantBatchMatmulV3", OperatorClass::Product(0)),
    ("aclnnMatmulWeightNz", OperatorClass::Product(0)),
    ("aclnnBatchMatMulWeightNz", OperatorClass::Product(0)),
    ("aclnnQuantMatmulWeightNz", OperatorClass::Product(0)),
    ("aclnnAddmm", OperatorClass::Product(1)),
    ("aclnnInplaceAddmm", OperatorClass::Product(1)),
    ("aclnnAddmmWeightNz", OperatorClass::Product(1)),
    ("aclnnBaddbmm", OperatorClass::Product(1)),
    ("aclnnInplaceBaddbmm", OperatorClass::Product(1)),
    ("aclnnAddbmm", OperatorClass::Product(1)),
    ("aclnnInplaceAddbmm", OperatorClass::Product(1)),
    ("aclnnMv", OperatorClass::Pass(20.0)),
    ("aclnnMean", OperatorClass::Pass(6.0)),
    ("aclnnArgMax", OperatorClass::OneCore(7.0)),
    ("aclnnDot", OperatorClass::Pass(2.0)),
    ("aclnnConvolution", OperatorClass::Convolution),
    ("aclnnConvolutionBackward", OperatorClass::ConvolutionGrad),
    // The cost of the product; `CollectiveCost::beside` adds the exchange.
    ("aclnnMatmulAllReduce", OperatorClass::Product(0)),
    ("aclnnAllGatherMatmul", OperatorClass::Product(0)),
    ("aclnnMatmulReduceScatter", OperatorClass::Product(0)),
    ("aclnnGroupedMatmulV4", OperatorClass::Grouped),
    ("aclnnGroupedMatmulV5", OperatorClass::Grouped),
    ("aclnnGroupedMatmulAdd", OperatorClass::GroupedSums),
    ("aclnnFusedInferAttentionScoreV2", OperatorClass::Attention),
    ("aclnnFusedInferAttentionScoreV3", OperatorClass::Attention),
    ("aclnnPromptFlashAttentionV3", OperatorClass::Attention),
    ("aclnnIncreFlashAttentionV4", OperatorClass::Attention),
    ("aclnnFlashAttentionScore", OperatorClass::Attention),
    ("aclnnFlashAttentionScoreGrad", OperatorClass::AttentionGrad),
    // Two products and one sum per element. The exponentials concern only a few numbers per row.
    ("aclnnRingAttentionUpdate", OperatorClass::Pass(3.0)),
    ("aclnnEmbedding", OperatorClass::ReadRows),
    ("aclnnIndexSelect", OperatorClass::ReadRows),
    ("aclnnGatherV2", OperatorClass::ReadRows),
    ("aclnnGather", OperatorClass::ReadRows),
    ("aclnnInplaceIndexCopy", OperatorClass::WriteRows),
    ("aclnnInplaceScatterUpdate", OperatorClass::WriteRows),
    ("aclnnScatterPaKvCache", OperatorClass::WriteRows),
    ("aclnnScatterAdd", OperatorClass::WriteRows),
    ("aclnnIndexAdd", OperatorClass::WriteRows),
    ("aclnnEmbeddingDenseBackward", OperatorClass::WriteRows),
    ("aclnnExp", OperatorClass::Pass(4.0)),
    ("aclnnLog", OperatorClass::Pass(4.0)),
    ("aclnnSqrt", OperatorClass::Pass(4.0)),
    ("aclnnRsqrt", OperatorClass::Pass(4.0)),
    ("aclnnReciprocal", OperatorClass::Pass(4.0)),
    ("aclnnDiv", OperatorClass::Pass(4.0)),
    ("aclnnDivs", OperatorClass::Pass(4.0)),
    ("aclnnInplaceDiv", OperatorClass::Pass(4.0)),
    ("aclnnInplaceDivs", OperatorClass::Pass(4.0)),
    ("aclnnAddcmul", OperatorClass::Pass(3.0)),
    ("aclnnInplaceAddcmul", OperatorClass::Pass(3.0)),
    ("aclnnAddcdiv", OperatorClass::Pass(6.0)),
    ("aclnnInplaceAddcdiv", OperatorClass::Pass(6.0)),
    ("aclnnLerp", OperatorClass::Pass(3.0)),
    ("aclnnInplaceLerp", OperatorClass::Pass(3.0)),
    ("aclnnLerps", OperatorClass::Pass(3.0)),
    ("aclnnInplaceLerps", OperatorClass::Pass(3.0)),
    ("aclnnTanh", OperatorClass::Pass(10.0)),
    ("aclnnSigmoid", OperatorClass::Pass(9.0)),
    ("aclnnSilu", OperatorClass::Pass(10.0)),
    ("aclnnSiluBackward", OperatorClass::Pass(14.0)),
    ("aclnnGelu", OperatorClass::Pass(14.0)),
    ("aclnnGeluBackward", OperatorClass::Pass(20.0)),
    ("aclnnSwiGlu", OperatorClass::Rows(6.0)),
    ("aclnnSwiGluGrad", OperatorClass::Rows(8.0)),
    ("aclnnPowTensorScalar", OperatorClass::Pass(8.0)),
    ("aclnnDynamicQuant", OperatorClass::Quantisation(7.0, 18_000.0)),
    ("aclnnRmsNorm", OperatorClass::Rows(9.0)),
    ("aclnnAddRmsNorm", OperatorClass::Rows(25.0)),
    ("aclnnAddRmsNormDynamicQuant", OperatorClass::Rows(30.0)),
    ("aclnnRmsNormGrad", OperatorClass::Rows(8.0)),
    ("aclnnLayerNorm", OperatorClass::Rows(6.0)),
    ("aclnnSoftmax", OperatorClass::Rows(8.0)),
    ("aclnnLogSoftmax", OperatorClass::Rows(8.0)),
    ("aclnnSoftmaxBackward", OperatorClass::Rows(4.0)),
    ("aclnnCrossEntropyLoss", OperatorClass::Rows(8.0)),
    ("aclnnCrossEntropyLossGrad", OperatorClass::Rows(6.0)),
    ("aclnnRotaryPositionEmbedding", OperatorClass::Pass(4.0)),
    ("aclnnRotaryPositionEmbeddingGrad", OperatorClass::Pass(4.0)),
    ("aclnnApplyRotaryPosEmb", OperatorClass::Pass(4.0)),
    // A root, two divisions, and 12 further operations.
    ("aclnnApplyAdamWV2", OperatorClass::Pass(24.0)),
    ("aclnnInplaceCopy", OperatorClass::Pass(0.0)),
    ("aclnnInplaceZero", OperatorClass::Pass(0.0)),
    ("aclnnInplaceOne", OperatorClass::Pass(0.0)),
    ("aclnnInplaceFillScalar", OperatorClass::Pass(0.0)),
    ("aclnnCat", OperatorClass::Pass(0.0)),
    ("aclnnPermute", OperatorClass::Pass(0.0)),
    ("aclnnSlice", OperatorClass::Pass(0.0)),
    ("aclnnRepeat", OperatorClass::Pass(0.0)),
    ("aclnnExpand", OperatorClass::Pass(0.0)),
    ("aclnnConstantPadNd", OperatorClass::Pass(0.0)),
    ("aclnnTopk", OperatorClass::Rows(12.0)),
    ("aclnnCumsum", OperatorClass::Rows(2.0)),
    ("aclnnSort", OperatorClass::Passes(8.0, 20.0)),
    ("aclnnArgsort", OperatorClass::Passes(8.0, 20.0)),
    ("aclnnKthvalue", OperatorClass::Passes(8.0, 20.0)),
    ("aclnnMedian", OperatorClass::Passes(8.0, 20.0)),
    ("aclnnMedianDim", OperatorClass::Passes(8.0, 20.0)),
];

/// Per score: scale, running maximum, difference, exponential, sum, and the cast to 16 bits.
const SOFTMAX_OPERATIONS: f64 = 9.0;

/// Per element of a quantised product: load of a 32-bit sum, conversion, two scales, and a cast.
/// The vector cores write 67 million elements of a product with 256 summands in 320 us.
const DEQUANTISATION: f64 = 14.0;

/// Per weight of a product of 16-bit rows and integers: two casts, the offset and the scale.
/// Operations on 16 bits process twice the elements. An estimate; nothing is measured.
const DEQUANTISATION_OF_WEIGHTS: f64 = 2.0;

/// Elements per piece of a tensor that is not processed by rows: 8 KiB at 32 bits.
const PIECE: f64 = 2048.0;

/// Cache fraction for weights, caches and tables, in addition to activations.
const CACHE_KEPT: f64 = 0.8;

/// Represents causal attention (`sparseMode` 2 to 4).
const COMPRESSED_MASK: usize = 2048;

impl Work {
    /// Returns the work of a call.
    #[must_use]
    pub fn of(launch: &Launch) -> Self {
        let class = CLASSES
            .iter()
            .find(|(name, _)| *name == launch.operator)
            .map(|(_, class)| *class)
            .or_else(|| others::class(launch.operator))
            .unwrap_or(OperatorClass::Pass(1.0));
        let mut work = Self::pass(&launch.operands);
        match class {
            OperatorClass::Product(first) => work.product(&launch.operands, first),
            OperatorClass::Grouped => work.grouped(&launch.operands),
            OperatorClass::GroupedSums => work.grouped_sums(&launch.operands),
            OperatorClass::Attention => work.attention(&launch.operands, 1.0),
            OperatorClass::AttentionGrad => work.attention(&launch.operands, 2.5),
            OperatorClass::Convolution => {
                if let [x, weight, ..] = &launch.operands[..] {
                    let out = launch.operands.iter().find(|operand| operand.access != Access::Read);
                    out.into_iter().for_each(|out| work.convolution([x, weight, out], 1));
                }
            }
            OperatorClass::ConvolutionGrad => {
                if let [grad, x, weight, rest @ ..] = &launch.operands[..] {
                    let wanted = rest.iter().filter(|operand| operand.dims.len() > 1).count();
                    work.convolution([x, weight, grad], wanted);
                }
            }
            OperatorClass::Pass(operations) => work.vector_operations *= operations,
            OperatorClass::Rows(operations) => {
                work.vector_operations *= operations;
                work.tasks = rows(launch.operands.iter().max_by_key(|operand| operand.len()));
            }
            OperatorClass::Quantisation(operations, of_row) => {
                work.tasks = rows(launch.operands.first());
                let is_8bit = launch.operands.iter().any(|operand| operand.element == Element::I8);
                let of_rows = if is_8bit { of_row * work.tasks } else { 0.0 };
                work.vector_operations = operations * work.vector_operations + of_rows;
            }
            OperatorClass::OneCore(operations) => {
                work.vector_operations *= operations;
                work.tasks = 1.0;
            }
            OperatorClass::Passes(passes, operations) => {
                work.vector_operations *= operations;
                for bytes in [&mut work.read_bytes, &mut work.written_bytes, &mut work.passing_bytes] {
                    *bytes *= passes;
                }
            }
            OperatorClass::ReadRows => work.read_rows(&launch.operands),
            OperatorClass::WriteRows => work.write_rows(&launch.operands),
        }
        work
    }

    /// Returns the work of calls that a card executes as one: attention over sequences of unequal
    /// lengths. An empty list has none.
    #[must_use]
    pub fn of_all(launches: &[Launch]) -> Self {
        launches.iter().map(Self::of).reduce(Self::with).unwrap_or_else(|| Self::pass(&[]))
    }

    fn with(mut self, other: Self) -> Self {
        self.products.extend(other.products);
        self.vector_operations += other.vector_operations;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.tasks += other.tasks;
        self.query_rows += other.query_rows;
        self.cube_flops += other.cube_flops;
        self.passing_bytes += other.passing_bytes;
        self.cached_bytes += other.cached_bytes;
        self
    }

    /// Counts each tensor once, plus a copy if the operator cannot read the layout.
    fn pass(operands: &[LaunchOperand]) -> Self {
        let elements = operands.iter().map(LaunchOperand::len).max().unwrap_or(0) as f64;
        let mut work = Self {
            products: Vec::new(),
            cube_flops: 0.0,
            element: operands.first().map_or(Element::Bf16, |operand| operand.element),
            vector_operations: elements,
            read_bytes: 0.0,
            written_bytes: 0.0,
            passing_bytes: 0.0,
            kind: WorkKind::Vector,
            weight_bytes: 0.0,
            tasks: elements / PIECE,
            query_rows: 0.0,
            cached_bytes: 0.0,
        };
        for operand in operands {
            let bytes = operand.bytes();
            if operand.access != Access::Write {
                work.read_bytes += bytes;
            }
            if operand.access != Access::Read {
                work.written_bytes += bytes;
            }
        }
        work.passing_bytes = work.bytes();
        work
    }

    fn stays(&mut self, operand: &LaunchOperand) {
        self.passing_bytes -= operand.bytes();
    }

    fn product(&mut self, operands: &[LaunchOperand], first: usize) {
        self.vector_operations = 0.0;
        let [a, b, ..] = operands.get(first..).unwrap_or(&[]) else { return };
        let Some(out) = operands.iter().find(|operand| operand.access != Access::Read) else { return };
        // A quantised product's sides may be transposed; the result's sizes are reliable.
        let ([.., x, y], [outer @ .., m, n], [b_outer @ .., _, _]) =
            (a.dims.as_slice(), out.dims.as_slice(), b.dims.as_slice())
        else {
            return;
        };
        let k = (x * y) as f64 / (*m).max(1) as f64;
        // The result of a sum over the batch has no batch dims.
        let whole = if outer.len() < b_outer.len() { b_outer } else { outer };
        let batch = whole.iter().product::<usize>() as f64;
        (self.element, self.kind) = (a.element, WorkKind::Product);
        self.weight_bytes = b.element.bytes(1.0);
        // A shared weight makes one product with more rows.
        let shared = b_outer.iter().product::<usize>() == 1;
        let (batch, m) = if shared { (1.0, batch * *m as f64) } else { (batch, *m as f64) };
        self.products.push(Gemm { batch, m, n: *n as f64, k });
        if a.element == Element::I8 {
            self.vector_operations = DEQUANTISATION * out.len() as f64;
        } else if matches!(b.element, Element::I8 | Element::I4 | Element::I32) {
            // Words have several weights.
            let weights = k * *n as f64;
            self.weight_bytes = b.bytes() / weights.max(1.0);
            self.vector_operations = DEQUANTISATION_OF_WEIGHTS * weights;
        }
        self.stays(b);
        self.copy_strided(&operands[first..first + 2]);
    }

    /// Each element of the result sums over a window of the channels of a group. In a transposed
    /// convolution, the weight stores the input channels first and each element of the input
    /// contributes to a window.
    fn convolution(&mut self, [x, weight, out]: [&LaunchOperand; 3], products: usize) {
        self.vector_operations = 0.0;
        // The channel dim precedes the dims of the window.
        let dim = (out.dims.len() + 1).saturating_sub(weight.dims.len());
        let first = weight.dims.first().copied().unwrap_or(1).max(1);
        let side = if out.dims.get(dim) == Some(&first) { out } else { x };
        (self.element, self.kind) = (x.element, WorkKind::Product);
        self.weight_bytes = weight.element.bytes(1.0);
        let [m, n, k] = [side.len() / first, first, weight.len() / first].map(|extent| extent as f64);
        self.products.extend((0..products).map(|_| Gemm { batch: 1.0, m, n, k }));
        self.stays(weight);
    }

    fn copy_strided(&mut self, operands: &[LaunchOperand]) {
        for operand in operands.iter().filter(|operand| operand.layout == OperandLayout::Strided) {
            let bytes = operand.element.bytes(operand.len() as f64);
            self.read_bytes += bytes;
            self.written_bytes += bytes;
            self.passing_bytes += 2.0 * bytes;
        }
    }

    /// Each row goes to a random expert: r rows touch E (1 - (1 - 1/E)ʳ) of E experts.
    fn grouped(&mut self, operands: &[LaunchOperand]) {
        self.vector_operations = 0.0;
        let [x, weight, ..] = operands else { return };
        let ([.., rows, k], [experts, .., n]) = (x.dims.as_slice(), weight.dims.as_slice()) else { return };
        let (rows, all, k, mut n) = (*rows as f64, *experts as f64, *k as f64, *n as f64);
        let touched = touched(all, rows);
        let untouched = 1.0 - touched / all.max(1.0);
        (self.element, self.kind) = (x.element, WorkKind::Grouped);
        self.weight_bytes = weight.element.bytes(1.0);
        self.stays(weight);
        self.read_bytes -= weight.bytes() * untouched;
        if weight.element == Element::I32 {
            // Words have several weights. Scales and offsets `[experts, groups, n]` follow.
            let out = operands.iter().find(|operand| operand.access != Access::Read);
            n = out.and_then(|out| out.dims.last()).map_or(n, |n| *n as f64);
            self.weight_bytes = weight.bytes() / (all * k * n).max(1.0);
            self.vector_operations = DEQUANTISATION_OF_WEIGHTS * touched * k * n;
            let params = || operands[2..].iter().filter(|operand| operand.dims.len() == 3);
            self.read_bytes -= params().map(LaunchOperand::bytes).sum::<f64>() * untouched;
            self.copy_strided(&operands[2..]);
        }
        self.products.push(Gemm { batch: touched, m: rows / touched.max(1.0), n, k });
    }

    fn grouped_sums(&mut self, operands: &[LaunchOperand]) {
        self.vector_operations = 0.0;
        let [x, weight, groups, ..] = operands else { return };
        let ([k, m], [_, n]) = (x.dims.as_slice(), weight.dims.as_slice()) else { return };
        let groups = groups.len().max(1) as f64;
        (self.element, self.kind) = (x.element, WorkKind::GroupedSums);
        self.weight_bytes = weight.element.bytes(1.0);
        self.products.push(Gemm { batch: groups, m: *m as f64, n: *n as f64, k: *k as f64 / groups });
        self.copy_strided(&operands[..2]);
    }

    /// Queries `[b, s, n, d]`, keys `[b, t, h, d]`, values `[b, t, h, e]`. The accessed elements of
    /// the keys determine the read positions. `times` multiplies the two products and the softmax.
    fn attention(&mut self, operands: &[LaunchOperand], times: f64) {
        self.vector_operations = 0.0;
        let [q, k, v, rest @ ..] = operands else { return };
        let (&[b, s, n, d], &[own, _, h, _], Some(e)) = (q.dims.as_slice(), k.dims.as_slice(), v.dims.last())
        else {
            return;
        };
        let t = k.distinct as f64 / (own * h * d).max(1) as f64;
        let sees_past = s > 1
            && rest
                .iter()
                .any(|operand| operand.access == Access::Read && operand.dims == [COMPRESSED_MASK; 2]);
        let (b, s, n, d, h, e) = (b as f64, s as f64, n as f64, d as f64, h.max(1) as f64, *e as f64);
        // Each query attends to one position less than the next.
        let seen = if sees_past { t - (s - 1.0) / 2.0 } else { t }.max(1.0);
        let is_prompt = s > DECODE_QUERIES;
        (self.element, self.kind) = (q.element, WorkKind::Attention { key_heads: h as usize, is_prompt });
        let rows = s * n / h;
        self.tasks = b * h * (rows / QUERY_BLOCK).ceil() * times;
        // The last task of a head takes as long as a whole one.
        self.query_rows = self.tasks * rows.min(QUERY_BLOCK);
        for (n_out, inner) in [(seen, d), (e, seen)] {
            self.products.push(Gemm { batch: b * h * times, m: s * n / h, n: n_out, k: inner });
        }
        // Half a block of keys is hidden on average, and half a block of queries sees it.
        let computed = if sees_past { (seen + (QUERY_BLOCK.min(s) + KEY_BLOCK) / 2.0).min(t) } else { t };
        let scores = self.query_rows * computed;
        self.cube_flops = 2.0 * scores * (d + e);
        self.vector_operations = scores * SOFTMAX_OPERATIONS;
        self.stays(k);
        self.stays(v);
        self.copy_strided(&operands[..3]);
    }

    fn read_rows(&mut self, operands: &[LaunchOperand]) {
        self.vector_operations = 0.0;
        let Some(table) = operands.first() else { return };
        let written = operands.iter().filter(|operand| operand.access == Access::Write);
        self.tasks = rows(written.clone().next());
        let moved: f64 = written.map(LaunchOperand::bytes).sum();
        self.stays(table);
        self.read_bytes += moved.min(table.bytes()) - table.bytes();
    }

    fn write_rows(&mut self, operands: &[LaunchOperand]) {
        self.vector_operations = 0.0;
        let source = operands
            .iter()
            .filter(|operand| operand.access == Access::Read)
            .max_by(|a, b| a.bytes().total_cmp(&b.bytes()));
        self.tasks = rows(source);
        for table in operands.iter().filter(|operand| operand.access != Access::Read) {
            let moved = source.map_or(0.0, LaunchOperand::bytes).min(table.bytes());
            if table.access == Access::Update {
                self.read_bytes -= table.bytes();
                self.passing_bytes -= table.bytes();
            }
            self.passing_bytes -= table.bytes();
            self.written_bytes += moved - table.bytes();
        }
    }

    /// Returns the work of a call that is repeated on `copies` sets of weights, caches and tables
    /// in turn. A cache of `bytes` holds a fraction of the sets.
    #[must_use]
    pub fn repeated(mut self, copies: f64, bytes: f64) -> Self {
        let stays = (self.bytes() - self.passing_bytes).max(0.0);
        self.cached_bytes = stays * found(stays * copies / (bytes * CACHE_KEPT));
        self
    }

    /// Counts the cube operations.
    #[must_use]
    pub fn flops(&self) -> f64 {
        // An empty `sum` would be -0.
        self.products.iter().map(Gemm::flops).fold(0.0, std::ops::Add::add)
    }

    /// Counts the moved bytes.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.read_bytes + self.written_bytes
    }
}

/// Fraction of cyclically used data that a cache with random replacement still holds; the data fill
/// the cache `ratio` times. Until a line is used again, x · ratio missing lines replace others, so
/// the line is missing with probability x = 1 - e^(-x · ratio).
fn found(ratio: f64) -> f64 {
    const TIMES: usize = 64;
    if ratio <= 1.0 {
        return 1.0;
    }
    1.0 - (0..TIMES).fold(1.0, |missing: f64, _| 1.0 - (-missing * ratio).exp())
}

fn rows(operand: Option<&LaunchOperand>) -> f64 {
    operand.and_then(|operand| operand.dims.split_last()).map_or(1, |(_, outer)| outer.iter().product())
        as f64
}

/// Expected number of `all` experts that receive at least one of `rows` rows.
fn touched(all: f64, rows: f64) -> f64 {
    // A fraction of a row touches the same fraction of an expert.
    if rows < 1.0 { rows.min(all) } else { all * (1.0 - (1.0 - 1.0 / all.max(1.0)).powf(rows)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_multiplies_nothing_makes_no_operations() {
        let operands = vec![
            LaunchOperand::dense(Element::Bf16, [4], Access::Read),
            LaunchOperand::dense(Element::Bf16, [4], Access::Write),
        ];
        let flops = Work::of(&Launch { operator: "aclnnSilu", operands }).flops();
        assert!(flops == 0.0 && flops.is_sign_positive(), "{flops:?}");
    }

    /// With random replacement, 20 % of the lines are missing if the data are 1.116 times the
    /// cache: 1 - e^(-0.2 · 1.1157) = 0.2.
    #[test]
    fn a_cache_has_less_of_what_is_larger_than_it() {
        assert!(found(0.5) == 1.0 && found(1.0) == 1.0);
        assert!((found(-f64::ln(0.8) / 0.2) - 0.8).abs() < 1e-3);
        assert!((found(-f64::ln(0.1) / 0.9) - 0.1).abs() < 1e-9);
        assert!(found(30.0) < 1e-12 && found(f64::INFINITY) == 0.0);
    }

    #[test]
    fn sums_of_groups_are_read_and_written() {
        let operands = vec![
            LaunchOperand::dense(Element::Bf16, [12, 3], Access::Read),
            LaunchOperand::dense(Element::Bf16, [12, 5], Access::Read),
            LaunchOperand::dense(Element::I64, [2], Access::Read),
            LaunchOperand::dense(Element::F32, [6, 5], Access::Update),
        ];
        let work = Work::of(&Launch { operator: "aclnnGroupedMatmulAdd", operands });
        assert_eq!(work.products, [Gemm { batch: 2.0, m: 3.0, n: 5.0, k: 6.0 }]);
        assert_eq!((work.read_bytes, work.written_bytes), (72.0 + 120.0 + 16.0 + 120.0, 120.0));
    }

    #[test]
    fn calls_that_are_one_have_the_work_of_all() {
        let operand = |access| LaunchOperand::dense(Element::Bf16, [3, 7], access);
        let launch = |operands| Launch { operator: "aclnnExp", operands };
        let one = launch(vec![operand(Access::Read), operand(Access::Write)]);
        let both = Work::of_all(&[one.clone(), one.clone()]);
        assert_eq!((both.read_bytes, both.written_bytes, both.vector_operations), (84.0, 84.0, 168.0));
        assert_eq!(Work::of_all(std::slice::from_ref(&one)), Work::of(&one));
        assert_eq!(Work::of_all(&[]).bytes(), 0.0);
    }

    #[test]
    fn an_optimizer_reads_and_writes_its_state() {
        let state = || LaunchOperand::dense(Element::F32, [7, 100], Access::Update);
        let mut operands = vec![state(), state(), state()];
        operands.push(LaunchOperand::dense(Element::F32, [7, 100], Access::Read));
        operands.push(LaunchOperand::dense(Element::I64, [1], Access::Read));
        let work = Work::of(&Launch { operator: "aclnnApplyAdamWV2", operands });
        assert_eq!((work.read_bytes, work.written_bytes), (4.0 * 2800.0 + 8.0, 3.0 * 2800.0));
        assert_eq!(work.vector_operations, 24.0 * 700.0);
    }

    #[test]
    fn packed_weights_are_read_as_half_bytes() {
        let dense = |element, dims: [usize; 2], access| LaunchOperand::dense(element, dims, access);
        let of = |weight| {
            let operands = vec![
                dense(Element::Bf16, [4, 256], Access::Read),
                weight,
                dense(Element::Bf16, [2, 64], Access::Read),
                dense(Element::Bf16, [4, 64], Access::Write),
            ];
            Work::of(&Launch { operator: "aclnnWeightQuantBatchMatmulV2", operands })
        };
        let words = of(dense(Element::I32, [32, 64], Access::Read));
        let bytes = of(dense(Element::I8, [256, 64], Access::Read));
        assert_eq!((words.weight_bytes, bytes.weight_bytes), (0.5, 1.0));
        assert_eq!(bytes.read_bytes - words.read_bytes, 256.0 * 64.0 / 2.0);
        assert_eq!((words.products.clone(), words.flops()), (bytes.products.clone(), bytes.flops()));
        assert_eq!(words.vector_operations, DEQUANTISATION_OF_WEIGHTS * 256.0 * 64.0);
    }

    #[test]
    fn packed_experts_are_read_as_half_bytes() {
        let dense = |element, dims: &[usize], access| LaunchOperand::dense(element, dims.to_vec(), access);
        // Rows of 64 tokens touch all four experts, of 256 inputs in two groups and 96 outputs.
        let scale = || dense(Element::Bf16, &[4, 2, 96], Access::Read);
        let of = |weight: &[usize], offset: LaunchOperand| {
            let operands = vec![
                dense(Element::Bf16, &[4096, 256], Access::Read),
                dense(Element::I32, weight, Access::Read),
                scale(),
                offset,
                dense(Element::I64, &[4], Access::Read),
                dense(Element::Bf16, &[4096, 96], Access::Update),
            ];
            Work::of(&Launch { operator: "aclnnGroupedMatmulV4", operands })
        };
        let [by_depth, by_columns] = [[4, 32, 96], [4, 256, 12]].map(|weight| of(&weight, scale()));
        assert_eq!(by_depth.products, [Gemm { batch: 4.0, m: 1024.0, n: 96.0, k: 256.0 }]);
        assert_eq!(by_depth.vector_operations, DEQUANTISATION_OF_WEIGHTS * 4.0 * 256.0 * 96.0);
        assert_eq!(by_depth.weight_bytes, 0.5);
        assert_eq!(
            (by_depth.products, by_depth.weight_bytes),
            (by_columns.products, by_columns.weight_bytes)
        );
        // A repeated zero is copied.
        let zero = LaunchOperand { distinct: 1, layout: OperandLayout::Strided, ..scale() };
        let copied = of(&[4, 32, 96], zero);
        assert_eq!(copied.read_bytes - by_columns.read_bytes, 2.0);
    }

    #[test]
    fn a_quantised_product_has_the_sizes_of_its_result_however_it_is_stored() {
        for weight in [[7, 5], [5, 7]] {
            let operands = vec![
                LaunchOperand::dense(Element::I8, [3, 5], Access::Read),
                LaunchOperand::dense(Element::I8, weight, Access::Read),
                LaunchOperand::dense(Element::F32, [7], Access::Read),
                LaunchOperand::dense(Element::F32, [3], Access::Read),
                LaunchOperand::dense(Element::Bf16, [3, 7], Access::Write),
            ];
            let work = Work::of(&Launch { operator: "aclnnQuantMatmulV4", operands });
            assert_eq!(work.products, [Gemm { batch: 1.0, m: 3.0, n: 7.0, k: 5.0 }]);
            assert_eq!(work.element, Element::I8);
            assert_eq!((work.read_bytes, work.written_bytes), (15.0 + 35.0 + 28.0 + 12.0, 42.0));
        }
    }

    fn products(operator: &'static str, dims: &[&[usize]], read: usize) -> Vec<Gemm> {
        let access = |at| if at < read { Access::Read } else { Access::Write };
        let operand =
            |(at, dims): (usize, &&[usize])| LaunchOperand::dense(Element::Bf16, dims.to_vec(), access(at));
        Work::of(&Launch { operator, operands: dims.iter().enumerate().map(operand).collect() }).products
    }

    #[test]
    fn a_convolution_multiplies_each_result_with_a_window() {
        // 2 images, 6 channels of 9 x 9, 3 groups; result: 12 channels of 7 x 7.
        let (x, weight, out) = ([2, 6, 9, 9], [12, 2, 3, 3], [2, 12, 7, 7]);
        let expected = Gemm { batch: 1.0, m: 98.0, n: 12.0, k: 18.0 };
        assert_eq!(products("aclnnConvolution", &[&x, &weight, &[12], &out], 3), [expected]);
        let grads: [&[usize]; 6] = [&out, &x, &weight, &x, &weight, &[12]];
        assert_eq!(products("aclnnConvolutionBackward", &grads, 3), [expected, expected]);
        assert_eq!(products("aclnnConvolutionBackward", &grads[..4], 3), [expected]);
        let (x, weight, out) = ([2, 12, 7, 7], [12, 2, 3, 3], [2, 6, 9, 9]);
        assert_eq!(products("aclnnConvolution", &[&x, &weight, &out], 2), [expected]);
    }

    #[test]
    fn what_is_added_to_a_product_is_not_multiplied() {
        let expected = Gemm { batch: 4.0, m: 3.0, n: 7.0, k: 5.0 };
        let (a, b) = ([4, 3, 5], [4, 5, 7]);
        assert_eq!(products("aclnnBaddbmm", &[&[7], &a, &b, &[4, 3, 7]], 3), [expected]);
        assert_eq!(products("aclnnAddbmm", &[&[3, 7], &a, &b, &[3, 7]], 3), [expected]);
        let operands = [(&[3usize, 7][..], Access::Update), (&[3, 5], Access::Read), (&[5, 7], Access::Read)];
        let operand =
            |(dims, access): (&[usize], Access)| LaunchOperand::dense(Element::F32, dims.to_vec(), access);
        let launch = Launch { operator: "aclnnInplaceAddmm", operands: operands.map(operand).to_vec() };
        assert_eq!(Work::of(&launch).products, [Gemm { batch: 1.0, m: 3.0, n: 7.0, k: 5.0 }]);
    }
}
