//! Mixtures of experts: routing, both exchanges and the experts' products.

use ascend_tp_machine::{Element, Exchange};
use serde::Deserialize;

use super::dense::{attention, embedding, head, reduce, residual_rows};
use super::launches::{
    ACTIVATION, Operands, add_rms_norm, elementwise, matmul, projection, quantise, swiglu,
};
use super::{ParallelAxis, ParallelSplit, ProductPrecision, Section, Tokens, WorkloadStep};
use ascend_tp_planner::decoder::Decoder;

/// Sizes of a mixture of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experts {
    /// Number of experts per layer.
    pub count: usize,
    /// Number of experts per token.
    pub chosen: usize,
    /// Width of one expert.
    pub width: usize,
    /// Shared expert's width, or 0.
    pub shared_width: usize,
}

/// Grouped-query attention with a mixture in every layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MixtureDecoder {
    /// Decoder sizes; its feed-forward blocks are ignored.
    pub around: Decoder,
    /// Replace the feed-forward blocks.
    pub experts: Experts,
}

impl MixtureDecoder {
    /// Returns a forward pass with logits of `rows` tokens.
    #[must_use]
    pub fn forward(
        &self,
        tokens: Tokens,
        rows: usize,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<Section> {
        let Decoder { hidden, layers, vocabulary, .. } = self.around;
        let mut layer = attention(&self.around, tokens, split, precision);
        layer.push(add_rms_norm(residual_rows(tokens.new_tokens(), split), hidden));
        layer.extend(self.experts.block(hidden, tokens.new_tokens(), split, precision));
        vec![
            Section {
                name: "embedding",
                repeats: 1,
                steps: embedding(tokens.new_tokens(), vocabulary, hidden, split),
            },
            Section { name: "layer", repeats: layers, steps: layer },
            Section { name: "head", repeats: 1, steps: head(rows, vocabulary, hidden, split) },
        ]
    }
}

impl Experts {
    /// The feed-forward block of `rows` tokens of one attention group.
    ///
    /// With expert parallelism, each card of the tensor axis sends its share of the tokens and
    /// receives as many rows. Otherwise the width of each expert is sharded as in a dense block.
    pub(super) fn block(
        &self,
        hidden: usize,
        rows: usize,
        split: ParallelSplit,
        precision: ProductPrecision,
    ) -> Vec<WorkloadStep> {
        let mut steps = vec![
            matmul(rows, hidden, self.count),
            Operands::new()
                .read(Element::F32, &[rows, self.count])
                .write(Element::F32, &[rows, self.chosen])
                .write(Element::I32, &[rows, self.chosen])
                .of("aclnnMoeGatingTopK"),
        ];
        if split.expert > 1 {
            let sent = rows.div_ceil(split.tensor) * self.chosen;
            let element = if precision == ProductPrecision::Bits16 { ACTIVATION } else { Element::I8 };
            let elements = (sent * hidden) as f64;
            steps.push(permuted(sent, hidden, element));
            steps.push(WorkloadStep::exchange(
                Exchange::AllToAll,
                element.bytes(elements),
                ParallelAxis::Expert,
            ));
            steps.extend(self.products(
                hidden,
                sent,
                self.count.div_ceil(split.expert),
                self.width,
                precision,
            ));
            steps.push(WorkloadStep::exchange(
                Exchange::AllToAll,
                ACTIVATION.bytes(elements),
                ParallelAxis::Expert,
            ));
            steps.push(permuted(sent, hidden, ACTIVATION));
            if split.tensor > 1 {
                let bytes = ACTIVATION.bytes((rows * hidden) as f64);
                steps.push(WorkloadStep::exchange(Exchange::AllGather, bytes, ParallelAxis::Tensor));
            }
            steps.extend(self.shared(hidden, rows.div_ceil(split.tensor), 1, precision));
        } else {
            let sent = rows * self.chosen;
            steps.push(permuted(sent, hidden, ACTIVATION));
            if precision != ProductPrecision::Bits16 {
                steps.push(quantise(sent, hidden));
            }
            steps.extend(self.products(
                hidden,
                sent,
                self.count,
                self.width.div_ceil(split.tensor),
                precision,
            ));
            steps.push(permuted(sent, hidden, ACTIVATION));
            steps.extend(self.shared(hidden, rows, split.tensor, precision));
            steps.extend(reduce(rows, hidden, split));
        }
        steps
    }

    fn products(
        &self,
        hidden: usize,
        rows: usize,
        experts: usize,
        width: usize,
        precision: ProductPrecision,
    ) -> Vec<WorkloadStep> {
        let grouped = |k: usize, n: usize| {
            let (activation, weight) = match precision {
                ProductPrecision::Bits16 => (ACTIVATION, ACTIVATION),
                ProductPrecision::W8A8 | ProductPrecision::W8A8Static => (Element::I8, Element::I8),
                ProductPrecision::W4A8 => (Element::I8, Element::I4),
            };
            Operands::new()
                .read(activation, &[rows, k])
                .read(weight, &[experts, k, n])
                .read(Element::I64, &[experts])
                .write(ACTIVATION, &[rows, n])
                .of("aclnnGroupedMatmulV4")
        };
        let mut steps = vec![grouped(hidden, 2 * width), swiglu(rows, width)];
        if precision != ProductPrecision::Bits16 {
            steps.push(quantise(rows, width));
        }
        steps.push(grouped(width, hidden));
        steps
    }

    fn shared(
        &self,
        hidden: usize,
        rows: usize,
        parts: usize,
        precision: ProductPrecision,
    ) -> Vec<WorkloadStep> {
        if self.shared_width == 0 {
            return Vec::new();
        }
        let width = self.shared_width.div_ceil(parts);
        let mut steps = projection(precision, rows, hidden, 2 * width);
        steps.push(swiglu(rows, width));
        steps.extend(projection(precision, rows, width, hidden));
        steps.push(elementwise("aclnnAdd", ACTIVATION, &[rows, hidden], 2));
        steps
    }
}

/// Sorts rows by expert, or restores their order.
fn permuted(rows: usize, width: usize, element: Element) -> WorkloadStep {
    Operands::new()
        .read(element, &[rows, width])
        .read(Element::I32, &[rows])
        .write(element, &[rows, width])
        .of("aclnnIndexSelect")
}
