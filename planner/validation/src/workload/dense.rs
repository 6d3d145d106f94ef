//! Dense decoders.

use ascend_tp_machine::{Element, Exchange};

use super::launches::{
    ACTIVATION, AttentionLaunch, Operands, SeenPositions, add_rms_norm, cache_write, elementwise, matmul,
    projection, rms_norm, rotary, swiglu,
};
use super::{ParallelAxis, ParallelSplit, ProductPrecision, Section, Tokens, WorkloadStep};
use ascend_tp::placement::Residual;
use ascend_tp_planner::decoder::{Decoder, FeedForward};

/// Returns one layer on one card.
pub(super) fn layer(
    decoder: &Decoder,
    tokens: Tokens,
    split: ParallelSplit,
    precision: ProductPrecision,
) -> Vec<WorkloadStep> {
    let mut steps = attention(decoder, tokens, split, precision);
    steps.extend(feed_forward(decoder, tokens, split, precision));
    steps
}

/// Returns the attention half, with the reduction.
pub(super) fn attention(
    decoder: &Decoder,
    tokens: Tokens,
    split: ParallelSplit,
    precision: ProductPrecision,
) -> Vec<WorkloadStep> {
    let query = tokens.query.div_ceil(split.context);
    let rows = tokens.batch * query;
    let (heads, kv_heads) = (decoder.heads.div_ceil(split.tensor), decoder.kv_heads.div_ceil(split.tensor));
    let width = decoder.head_dim;
    let mut steps = vec![add_rms_norm(residual_rows(rows, split), decoder.hidden)];
    steps.extend(gather(rows, decoder.hidden, split));
    steps.extend(projection(precision, rows, decoder.hidden, (heads + 2 * kv_heads) * width));
    if decoder.has_head_norms {
        steps.extend([rms_norm(rows * heads, width), rms_norm(rows * kv_heads, width)]);
    }
    steps.extend([
        rotary(tokens.batch, query, heads, width),
        rotary(tokens.batch, query, kv_heads, width),
        cache_write(tokens.batch * tokens.positions(), rows, 2 * kv_heads * width, ACTIVATION),
    ]);
    steps.extend(attention_core(decoder, tokens, split));
    steps.extend(projection(precision, rows, heads * width, decoder.hidden));
    steps.extend(reduce(rows, decoder.hidden, split));
    steps
}

/// With a context axis, keys and values pass around a ring; cards compute equal shares of the
/// pairs.
fn attention_core(decoder: &Decoder, tokens: Tokens, split: ParallelSplit) -> Vec<WorkloadStep> {
    let (heads, kv_heads) = (decoder.heads.div_ceil(split.tensor), decoder.kv_heads.div_ceil(split.tensor));
    let attention = AttentionLaunch {
        batch: tokens.batch,
        query: tokens.query.div_ceil(split.context),
        positions: tokens.positions(),
        heads,
        kv_heads,
        key_dim: decoder.head_dim,
        value_dim: decoder.head_dim,
        sight: SeenPositions::Past,
    };
    if split.context == 1 {
        return vec![attention.step()];
    }
    // With s tokens on c balanced cards, each of the s/c tokens of a card sees s/2 on average.
    let shared = AttentionLaunch {
        positions: tokens.context + (tokens.query + attention.query) / 2,
        sight: SeenPositions::Everything,
        ..attention
    };
    let part = tokens.batch * attention.query * 2 * kv_heads * decoder.head_dim;
    let mut around =
        WorkloadStep::exchange(Exchange::SendRecv, ACTIVATION.bytes(part as f64), ParallelAxis::Context);
    around.times = split.context - 1;
    vec![around, shared.step()]
}

/// Returns the feed-forward half.
pub(super) fn feed_forward(
    decoder: &Decoder,
    tokens: Tokens,
    split: ParallelSplit,
    precision: ProductPrecision,
) -> Vec<WorkloadStep> {
    let rows = tokens.batch * tokens.query.div_ceil(split.context);
    let width = decoder.intermediate.div_ceil(split.tensor);
    let mut steps = vec![add_rms_norm(residual_rows(rows, split), decoder.hidden)];
    steps.extend(gather(rows, decoder.hidden, split));
    match decoder.feed_forward {
        FeedForward::Gated => {
            steps.extend(projection(precision, rows, decoder.hidden, 2 * width));
            steps.push(swiglu(rows, width));
        }
        FeedForward::Plain => {
            steps.extend(projection(precision, rows, decoder.hidden, width));
            steps.push(elementwise("aclnnGelu", ACTIVATION, &[rows, width], 1));
        }
    }
    steps.extend(projection(precision, rows, width, decoder.hidden));
    steps.extend(reduce(rows, decoder.hidden, split));
    steps
}

/// Returns a forward pass with logits of `rows` tokens.
pub(crate) fn forward(
    decoder: &Decoder,
    tokens: Tokens,
    rows: usize,
    split: ParallelSplit,
    precision: ProductPrecision,
) -> Vec<Section> {
    vec![
        Section {
            name: "embedding",
            repeats: 1,
            steps: embedding(
                tokens.batch * tokens.query.div_ceil(split.context),
                decoder.vocabulary,
                decoder.hidden,
                split,
            ),
        },
        Section { name: "layer", repeats: decoder.layers, steps: layer(decoder, tokens, split, precision) },
        Section { name: "head", repeats: 1, steps: head(rows, decoder.vocabulary, decoder.hidden, split) },
    ]
}

pub(super) const fn residual_rows(rows: usize, split: ParallelSplit) -> usize {
    match split.residual {
        Residual::Replicate => rows,
        Residual::Seq => rows.div_ceil(split.tensor),
    }
}

fn exchange(exchange: Exchange, rows: usize, width: usize) -> WorkloadStep {
    WorkloadStep::exchange(exchange, ACTIVATION.bytes((rows * width) as f64), ParallelAxis::Tensor)
}

pub(super) fn gather(rows: usize, width: usize, split: ParallelSplit) -> Option<WorkloadStep> {
    (split.tensor > 1 && split.residual == Residual::Seq).then(|| exchange(Exchange::AllGather, rows, width))
}

pub(super) fn reduce(rows: usize, width: usize, split: ParallelSplit) -> Option<WorkloadStep> {
    let kind = match split.residual {
        Residual::Replicate => Exchange::AllReduce,
        Residual::Seq => Exchange::ReduceScatter,
    };
    (split.tensor > 1).then(|| exchange(kind, rows, width))
}

pub(super) fn embedding(rows: usize, vocab: usize, hidden: usize, split: ParallelSplit) -> Vec<WorkloadStep> {
    let lookup = Operands::new()
        .read(ACTIVATION, &[vocab.div_ceil(split.tensor), hidden])
        .read(Element::I64, &[rows])
        .write(ACTIVATION, &[rows, hidden])
        .of("aclnnEmbedding");
    std::iter::once(lookup).chain(reduce(rows, hidden, split)).collect()
}

pub(super) fn head(rows: usize, vocab: usize, hidden: usize, split: ParallelSplit) -> Vec<WorkloadStep> {
    let mut steps = vec![rms_norm(rows, hidden), matmul(rows, hidden, vocab.div_ceil(split.tensor))];
    if split.tensor > 1 {
        steps.push(exchange(Exchange::AllGather, rows, vocab));
    }
    steps
}
