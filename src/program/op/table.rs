//! Definitions of all ops. Each entry defines a variant of [`Kind`], its attributes, its text name
//! and its [`Row`].
//!
//! An entry lists the differences from [`BASE`](super::BASE). A new op needs an entry here, a
//! function in `interpret`, one in `npu`, and one in `grad` if it has a gradient.

use smallvec::smallvec;

use crate::base::{AxisId, DType, Reduce, Shape, WORD};
use crate::program::rule::{Einsum, Rule, any_rank};
use crate::program::tree::Halved;
use crate::program::{grad, interpret as host, npu};

use super::{
    Attribute, BASE, Compression, DTypes, Host, Join, Linear, OperandExchange, Row, Stage, WeightOperands,
    after_first, all_equal, all_float, elementwise, elementwise_results, equal_floats, filtered, first,
    floats_with_index, gate_and_up, letters_with, of_experts, of_matrices, of_one_shape, of_own_tokens,
    over_last, over_pools, packed, reduce_dim, reduce_rows, rotary_rule, scaled_rows, singles, sum, tree_sum,
    with_label, with_numbers,
};

/// Number of indices that f32 holds exactly.
const EXACT_INDICES: usize = 1 << 24;

/// Returns the type of a product with a packed weight.
fn packed_types(kind: &Kind, dtypes: &[DType]) -> Result<DTypes, String> {
    match *dtypes {
        [x, DType::I32, ref params @ ..] if x != DType::F32 => all_float(kind, &[&[x], params].concat()),
        _ => Err(format!("takes 16-bit floats, i32 and 16-bit floats, found {dtypes:?}")),
    }
}

/// Returns the element type of the rows of experts: x, indices, both projections, and cotangents.
fn rows_of_experts_grad(kind: &Kind, dtypes: &[DType]) -> Result<DTypes, String> {
    match *dtypes {
        [x, DType::I64, gate_up, down, dy] => all_float(kind, &[x, gate_up, down, dy]),
        _ => Err(format!("takes x, i64, gate_up, down and cotangents, found {dtypes:?}")),
    }
}

/// Returns the rule of experts with packed weights. The words and the groups of inputs stay whole.
/// The intermediate size is `[f,k]`: `f` groups of the down projections, which can be sharded.
fn packed_experts(shapes: &[&Shape]) -> Result<Rule, String> {
    gate_and_up(shapes[3])?;
    let size = |operand: usize, dim: usize| shapes[operand].get(dim).copied().unwrap_or_default();
    let is_whole = size(3, 4) * WORD == size(0, 2) && size(4, 3) * WORD == size(3, 3);
    if !is_whole || size(5, 1) == 0 || !size(0, 2).is_multiple_of(size(5, 1)) {
        return Err(format!(
            "inputs {} are not words {} and {} in {} equal groups",
            shapes[0],
            shapes[3],
            shapes[4],
            size(5, 1)
        ));
    }
    let offsets = if shapes.len() > 7 { ",eSGfK,efH" } else { "" };
    sum(&format!("bsH,bsJ,bsJ,eGfKW,eHfY,eSGfK,efH{offsets}->bsH"))
}

/// Returns the type of experts with packed weights.
fn packed_expert_types(kind: &Kind, dtypes: &[DType]) -> Result<DTypes, String> {
    match *dtypes {
        [x, DType::I64, DType::F32, DType::I32, DType::I32, ref params @ ..] if x != DType::F32 => {
            all_float(kind, &[&[x], params].concat())
        }
        _ => Err(format!("takes 16-bit floats, i64, f32, two of i32 and 16-bit floats, found {dtypes:?}")),
    }
}

super::ops! {
    /// Table lookup `y[…,h] = table[ids[…], h]`, with ids of any rank and table `[v, h]`.
    Embed = "embed" {
        arity: 2,
        rule: |_, shapes| {
            let ids = any_rank(shapes[0].rank());
            sum(&format!("{ids},yz->{ids}z"))
        },
        leaves_one_part: true,
        linear: Linear::InEach(&[1]),
        dtype: |_, dtypes| floats_with_index(dtypes, 0),
        host: Host::One(host::embed),
        npu: npu::embed,
        grad: Some(grad::embed),
        weights: WeightOperands::Table(1),
    }
    /// A product of two tensors in einsum form, such as `bsi,oi->bso`. Letters that are in both
    /// operands but not in the result are summed.
    MatMul {
        /// The einsum of operands and result.
        spec: Einsum,
    } = "matmul" {
        arity: 2,
        rule: |kind, _| match kind {
            Kind::MatMul { spec } => Ok(spec.rule()),
            _ => Err("not a matmul".to_owned()),
        },
        linear: Linear::InEach(&[0, 1]),
        host: Host::One(host::matmul),
        npu: npu::matmul,
        join: Join::Product,
        grad: Some(grad::matmul),
        // If both operands can be weights, the second one is more likely.
        weights: WeightOperands::Factors(&[1, 0]),
    }
    /// The f32 scale of each row of `x`: `t = max |x| / 127` over its last `dims` dims. If rows are
    /// sharded, the scale of a row is the maximum of the shards' scales.
    RowScale {
        /// Number of trailing dims of `x` that form a row.
        dims: usize,
    } = "row_scale" {
        rule: |kind, shapes| match kind {
            Kind::RowScale { dims } => reduce_rows(shapes[0].rank(), *dims, Reduce::Max),
            _ => Err("not a row_scale".to_owned()),
        },
        dtype: |kind, dtypes| all_float(kind, dtypes).map(|_| smallvec![DType::F32]),
        host: Host::One(host::row_scale),
        npu: npu::row_scale,
        join: Join::RowScale,
    }
    /// The rows of `x` as 8-bit integers with scales `t`: `q = round(x / t)`, ties to even,
    /// saturated. The result is 0 where `t` is 0.
    Quantise {
        /// Number of trailing dims of `x` that form a row.
        dims: usize,
    } = "quantise" {
        arity: 2,
        rule: |kind, shapes| match kind {
            Kind::Quantise { dims } => scaled_rows(shapes[0].rank(), *dims),
            _ => Err("not a quantise".to_owned()),
        },
        dtype: |kind, dtypes| match dtypes {
            [x, DType::F32] => all_float(kind, &[*x]).map(|_| smallvec![DType::I8]),
            _ => Err("its second operand, the scales of the rows, is f32".to_owned()),
        },
        host: Host::One(host::quantise),
        npu: npu::quantise,
        join: Join::Quantise,
    }
    /// A product of 8-bit integers with scales: `y = (Σ q · w) · t · scale`. There is one `t` per
    /// row of `q` and one `scale` per row of `w`. Common dims of `q` and `w` are summed.
    QuantMatMul {
        /// The einsum of `q` and `w`.
        spec: Einsum,
        /// Element type of the result.
        to: DType,
    } = "quant_matmul" {
        arity: 4,
        rule: |kind, _| match kind {
            Kind::QuantMatMul { spec, .. } => spec.scaled_rule(),
            _ => Err("not a quant_matmul".to_owned()),
        },
        dtype: |kind, dtypes| match (kind, dtypes) {
            (Kind::QuantMatMul { to, .. }, [DType::I8, DType::F32, DType::I8, DType::F32]) => all_float(kind, &[*to]),
            (_, found) => Err(format!("takes i8, f32, i8 and f32, found {found:?}")),
        },
        host: Host::One(host::quant_matmul),
        npu: npu::quant_matmul,
        join: Join::Product,
        weights: WeightOperands::Factors(&[2]),
    }
    /// A product of 16-bit floats with a weight in groups of 4-bit integers: `y = Σ x · (q ·
    /// scale)`. Each weight is rounded to the type of `x`. `q` has eight signed integers per i32
    /// word along the last summed dims, the first one in the lowest bits. Its words replace these
    /// dims, and so do the groups of `scale`. The other summed dims come first and can be sharded.
    PackedMatMul {
        /// The einsum of `x` and the unpacked weight. It is a linear layer.
        spec: Einsum,
        /// Number of summed dims that can be sharded.
        sharded: usize,
        /// Number of inputs per scale.
        group: usize,
    } = "packed_matmul" {
        arity: 3,
        rule: packed,
        linear: Linear::InEach(&[0]),
        dtype: packed_types,
        host: Host::One(host::packed_matmul),
        npu: npu::packed_matmul,
        join: Join::Product,
        weights: WeightOperands::Factors(&[1]),
    }
    /// As [`Kind::PackedMatMul`], with an offset for each scale: `y = Σ x · ((q + offset) ·
    /// scale)`.
    OffsetPackedMatMul {
        /// The einsum of `x` and the unpacked weight. It is a linear layer.
        spec: Einsum,
        /// Number of summed dims that can be sharded.
        sharded: usize,
        /// Number of inputs per scale.
        group: usize,
    } = "offset_packed_matmul" {
        arity: 4,
        rule: packed,
        linear: Linear::InEach(&[0]),
        dtype: packed_types,
        host: Host::One(host::packed_matmul),
        npu: npu::packed_matmul,
        join: Join::Product,
        weights: WeightOperands::Factors(&[1]),
    }
    /// The elements of `x` as 8-bit integers with one stored scale and offset: `q = round(x · (1 /
    /// scale) + offset)` in f32, ties to even, saturated. Shapes: scale and offset `[1]`, f32.
    QuantiseStatic = "quantise_static" {
        arity: 3,
        rule: |_, shapes| {
            let x = any_rank(shapes[0].rank());
            sum(&format!("{x},Y,Z->{x}"))
        },
        dtype: |kind, dtypes| match dtypes {
            [x, DType::F32, DType::F32] => all_float(kind, &[*x]).map(|_| smallvec![DType::I8]),
            _ => Err("its scale and its offset are f32".to_owned()),
        },
        host: Host::One(host::quantise_static),
        npu: npu::quantise_static,
    }
    /// A product of 8-bit integers of [`Kind::QuantiseStatic`]: `y = (Σ q · w + bias) · scale`.
    /// There is one `scale` and one i32 `bias` per row of `w`. If summed dims are sharded, the
    /// shard with the first elements adds the bias.
    StaticMatMul {
        /// The einsum of `q` and `w`.
        spec: Einsum,
        /// Element type of the result.
        to: DType,
    } = "static_matmul" {
        arity: 4,
        rule: |kind, _| match kind {
            Kind::StaticMatMul { spec, .. } => spec.biased_rule(),
            _ => Err("not a static_matmul".to_owned()),
        },
        dtype: |kind, dtypes| match (kind, dtypes) {
            (Kind::StaticMatMul { to, .. }, [DType::I8, DType::I8, DType::F32, DType::I32]) => all_float(kind, &[*to]),
            (_, found) => Err(format!("takes i8, i8, f32 and i32, found {found:?}")),
        },
        host: Host::One(host::static_matmul),
        npu: npu::static_matmul,
        weights: WeightOperands::Factors(&[1]),
    }
    /// The sum `x + y`. The second operand broadcasts from the right, or along dims of size 1.
    Add = "add" {
        arity: 2,
        linear: Linear::Jointly,
        dtype: all_equal,
        host: Host::One(host::add),
        npu: npu::add,
        join: Join::Sum,
        grad: Some(grad::add_op),
    }
    /// The product `x · y`, with the broadcasting of [`Kind::Add`].
    Mul = "mul" {
        arity: 2,
        linear: Linear::InEach(&[0, 1]),
        dtype: all_equal,
        host: Host::One(host::mul),
        npu: npu::mul,
        grad: Some(grad::mul),
    }
    /// The elements of `x`, and 0 where `mask` is true, with the broadcasting of [`Kind::Add`]. A
    /// hidden NaN or infinity is 0 too.
    Hide = "hide" {
        arity: 2,
        linear: Linear::InEach(&[0]),
        dtype: |kind, dtypes| match *dtypes {
            [x, DType::Bool] => all_float(kind, &[x]),
            _ => Err(format!("the mask is {}, expected bool", dtypes[1])),
        },
        host: Host::One(host::hide),
        npu: npu::hide,
        adds_to: Some(0),
    }
    /// The difference `x - y`, with the broadcasting of [`Kind::Add`].
    Subtract = "subtract" {
        arity: 2,
        linear: Linear::Jointly,
        dtype: all_equal,
        host: Host::One(host::subtract),
        npu: npu::subtract,
        grad: Some(grad::subtract),
    }
    /// The sum `y + x · w` of a tensor and a product in einsum form. The summed dims stay whole.
    AddMatMul {
        /// The einsum of the product.
        spec: Einsum,
    } = "add_matmul" {
        arity: 3,
        rule: |kind, _| match kind {
            Kind::AddMatMul { spec } => Ok(spec.added_rule()),
            _ => Err("not an add_matmul".to_owned()),
        },
        host: Host::One(host::add_matmul),
        npu: npu::add_matmul,
        adds_to: Some(0),
        grad: Some(grad::add_matmul),
        is_copy: true,
        weights: WeightOperands::Factors(&[1, 2]),
    }
    /// The product of `x` with a constant.
    Scale {
        /// Factor of each element.
        by: f64,
    } = "scale" {
        keeps_one_part: true,
        linear: Linear::InEach(&[0]),
        host: Host::One(host::scale),
        npu: npu::scale,
        grad: Some(grad::scale),
    }
    /// Adds a number: `x + by`.
    Shift {
        /// Number added to each element.
        by: f64,
    } = "shift" {
        host: Host::One(host::shift),
        npu: npu::shift,
        grad: Some(grad::shift),
    }
    /// Reciprocal of a root: `1 / sqrt(by · x + epsilon)`.
    InverseRoot {
        /// Factor of each element.
        by: f64,
        /// Number added under the root.
        epsilon: f64,
    } = "inverse_root" {
        host: Host::One(host::inverse_root),
        npu: npu::inverse_root,
        grad: Some(grad::inverse_root),
    }
    /// Soft limit of the magnitude: `cap · tanh(x / cap)`.
    SoftCap {
        /// Bound of the magnitude of each element.
        cap: f64,
    } = "soft_cap" {
        host: Host::One(host::soft_cap),
        npu: npu::capped::soft_cap,
        grad: Some(grad::soft_cap),
    }
    /// The activation function `silu(x) = x / (1 + exp(-x))`.
    Silu = "silu" {
        host: Host::One(host::silu),
        npu: npu::silu,
        grad: Some(grad::silu),
    }
    /// The gated activation `silu(gate) · up`.
    SwiGlu = "swiglu" {
        arity: 2,
        host: Host::One(host::swiglu),
        npu: npu::swiglu,
        join: Join::Gated,
        grad: Some(grad::swiglu),
    }
    /// `gelu(gate) · up`, with the tanh form of GELU.
    GeluGate = "gelu_gate" {
        arity: 2,
        host: Host::One(host::gelu_gate),
        npu: npu::gelu_gate,
        grad: Some(grad::gelu_gate),
    }
    /// The norm `x / sqrt(mean(x²) + epsilon) · gamma` over the last dim. The second result is `1 /
    /// sqrt(mean(x²) + epsilon)`, f32.
    RmsNorm {
        /// Constant added under the root.
        epsilon: f64,
    } = "rms_norm" {
        arity: 2,
        rule: |_, shapes| match shapes[0].rank().checked_sub(1) {
            Some(lead) => sum(&format!("{0}Z,Z->{0}Z,{0}", any_rank(lead))),
            None => Err("a scalar has no last dim".to_owned()),
        },
        dtype: |kind, dtypes| all_float(kind, dtypes).map(|found| smallvec![found[0], DType::F32]),
        host: Host::Several(host::rms_norm),
        npu: npu::rms_norm,
        join: Join::Norm,
        grad: Some(grad::rms_norm),
    }
    /// Rows of the last dim with another length: `y = scale · x / sqrt(Σ x² + epsilon)`.
    Unit {
        /// Length of a row.
        scale: f64,
        /// Number added to the sum of squares.
        epsilon: f64,
    } = "unit" {
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}Z->{lead}Z")),
        host: Host::One(host::delta::unit),
        npu: npu::delta::unit,
        grad: Some(grad::unit),
    }
    /// Rotary position embedding of `x[b,s,…,d]` by `cos[b,s,d]` and `sin[b,s,d]` in `NeoX` style:
    /// `y = x·cos + (-x[d/2..], x[..d/2])·sin`.
    Rope = "rope" {
        arity: 3,
        rule: |_, shapes| rotary_rule(shapes),
        linear: Linear::InEach(&[0]),
        host: Host::One(host::rope),
        npu: npu::rope,
        join: Join::Rotary,
        grad: Some(grad::rope),
    }
    /// As [`Kind::Rope`], but dims `2i` and `2i + 1` are rotated together, by elements `i` and
    /// `r/2 + i` of `cos` and `sin`.
    RopePairs = "rope_pairs" {
        arity: 3,
        rule: |_, shapes| rotary_rule(shapes),
        linear: Linear::InEach(&[0]),
        host: Host::One(host::rope),
        npu: npu::rope_pairs,
        grad: Some(grad::rope),
    }
    /// Attention `softmax(scale · q kᵀ, mask) v`. Shapes: q `[b,s,k,g,d]`, keys and values
    /// `[b,t,k,d]`, mask `[b,s,t]` (true = hidden). Two further f32 results `[b,k,g,s]` are the
    /// greatest score of each row, and the sum of `exp(score - greatest)`. Each of the `k` key
    /// heads serves `g` query heads. Each mask row must show at least one position.
    Attention {
        /// Factor of the attention scores.
        scale: f64,
    } = "attention" {
        arity: 4,
        rule: |_, _| sum("bskgD,bTkD,bTkD,bsT->bskgD,bkgs,bkgs"),
        dtype: |kind, dtypes| {
            if dtypes[3] != DType::Bool {
                return Err(format!("the mask is {}, expected bool", dtypes[3]));
            }
            all_float(kind, &dtypes[..3]).map(|found| smallvec![found[0], DType::F32, DType::F32])
        },
        host: Host::Several(host::attention),
        npu: npu::attention,
        grad: Some(grad::attention),
    }
    /// As [`Kind::Attention`] with soft caps, `softmax(cap · tanh(scale / cap · q kᵀ), mask) v`,
    /// and without the further results.
    CappedAttention {
        /// Factor of the scores.
        scale: f64,
        /// Bound of the magnitude of scores.
        cap: f64,
    } = "capped_attention" {
        arity: 4,
        rule: |_, _| sum("bskgD,bTkD,bTkD,bsT->bskgD"),
        dtype: |_, dtypes| {
            if dtypes[3] != DType::Bool {
                return Err(format!("the mask is {}, expected bool", dtypes[3]));
            }
            all_float(&Kind::Add, &dtypes[..3])
        },
        host: Host::One(host::capped_attention),
        npu: npu::capped::attention,
        grad: Some(grad::capped_attention),
    }
    /// Cotangents of queries, keys and values, of the operands of [`Kind::CappedAttention`] and the
    /// result's cotangent.
    CappedAttentionGrad {
        /// Factor of the scores.
        scale: f64,
        /// Bound of the magnitude of scores.
        cap: f64,
    } = "capped_attention_grad" {
        arity: 5,
        rule: |_, _| sum("bskgD,bTkD,bTkD,bsT,bskgD->bskgD,bTkD,bTkD"),
        linear: Linear::InEach(&[4]),
        dtype: |kind, dtypes| {
            if dtypes[3] != DType::Bool {
                return Err(format!("the mask is {}, expected bool", dtypes[3]));
            }
            equal_floats(kind, &[&dtypes[..3], &dtypes[4..]].concat(), 3)
        },
        host: Host::Several(host::training::attention_grad),
        npu: npu::capped::attention_grad,
    }
    /// As [`Kind::Attention`], with one more score for each row: the sink of its query head, which
    /// has no value. The last operand is the sinks `[k,g]`, f32. The second result is the greatest
    /// score of a key, and the third result includes the sink. A fourth f32 result `[b,k,g,s]` is
    /// the weight of the sink.
    SinkAttention {
        /// Factor of the attention scores, without the sinks.
        scale: f64,
    } = "sink_attention" {
        arity: 5,
        rule: |_, _| sum("bskgD,bTkD,bTkD,bsT,kg->bskgD,bkgs,bkgs,bkgs"),
        dtype: |_, dtypes| match *dtypes {
            [q, k, v, DType::Bool, DType::F32] => {
                let found = all_float(&Kind::Add, &[q, k, v])?;
                Ok(smallvec![found[0], DType::F32, DType::F32, DType::F32])
            }
            _ => Err(format!("takes q, keys, values, a mask of bool and sinks of f32, found {dtypes:?}")),
        },
        host: Host::Several(host::attention),
        npu: npu::training::sink_attention,
        grad: Some(grad::sink_attention),
    }
    /// Attention over the queries' own tokens, with keys and values `[b,s,k,d]`; see
    /// [`Kind::Attention`]. If tokens are sharded, each rank reads the keys and values of one rank
    /// after the other. Each mask row must show its own token.
    RingAttention {
        /// Mesh axes along which tokens are sharded; set by lowering.
        axes: Vec<AxisId>,
        /// Factor of the attention scores.
        scale: f64,
    } = "ring_attention" {
        arity: 4,
        rule: |_, shapes| of_own_tokens("bskgD,bskD,bskD,bsT->bskgD,bkgs,bkgs", shapes),
        is_collective: true,
        around: Some(OperandExchange { operands: &[1, 2], results: &[], dim: 1 }),
        dtype: |kind, dtypes| (Kind::Attention { scale: 1.0 }.row().dtype)(kind, dtypes),
        host: Host::Several(host::attention),
        npu: npu::attention,
        grad: Some(grad::attention),
    }
    /// Attention over keys and values in the blocks of a cache. Queries are `[b,s,k,g,d]`. Keys and
    /// values `[n,t,k,d]` are `n` blocks of `t` rows. `table[b,w]` has the blocks of each sequence
    /// in the order of the tokens. A token at `positions[b,s]` reads its sequence's rows up to that
    /// position. Positions follow each other, and `lengths[b]` is one more than the last. It is an
    /// input, because operators need it on the host.
    ///
    /// The second result is the logarithm of the sum of `exp(score)`, f32 `[b,k,g,s]`. It requires
    /// an attention without cap.
    ///
    /// With `skipped` 1, tokens behind the first one do not read the first row of their sequence.
    ///
    /// Several pools share sequences and blocks evenly, in order. A table has the numbers of blocks
    /// within the sequence's pool.
    BlockAttention {
        /// Factor of the scores.
        scale: f64,
        /// Bound of the magnitude of scores, as in [`Kind::CappedAttention`].
        cap: Option<f64>,
        /// Number of rows that a token reads, with the own row. `None`: all.
        window: Option<usize>,
        /// Number of first rows that later tokens do not read: 0, or 1 without a window.
        skipped: usize,
        /// Number of pools of the cache.
        pools: usize,
    } = "block_attention" {
        arity: 6,
        rule: |kind, shapes| match kind {
            Kind::BlockAttention { skipped, window, .. } if *skipped > usize::from(window.is_none()) => {
                Err(format!("{skipped} rows cannot be skipped"))
            }
            Kind::BlockAttention { pools, .. } => {
                over_pools("bskgD,~bTkD,~bTkD,bW,bs,b->bskgD,bkgs", *pools, shapes)
            }
            _ => Err("not a block_attention".to_owned()),
        },
        dtype: |_, dtypes| match dtypes {
            [q, keys, values, DType::I32, DType::I64, DType::I64] => {
                all_float(&Kind::Add, &[*q, *keys, *values]).map(|found| smallvec![found[0], DType::F32])
            }
            [.., table, positions, lengths] => {
                Err(format!("table, positions and lengths are {table}, {positions} and {lengths}, expected i32, i64 and i64"))
            }
            _ => Err("takes q, keys, values, a table, positions and lengths".to_owned()),
        },
        host: Host::Several(host::blocks::attention),
        npu: npu::blocks::attention,
    }
    /// As [`Kind::BlockAttention`], over 8-bit keys and values with f32 scales `[n,k,t]` behind
    /// each: a key is `q · scale`, rounded to the type of the queries.
    QuantBlockAttention {
        /// Factor of the scores.
        scale: f64,
        /// Bound of the magnitude of scores, as in [`Kind::CappedAttention`].
        cap: Option<f64>,
        /// Number of rows that a token reads, with the own row. `None`: all.
        window: Option<usize>,
        /// Number of first rows that later tokens do not read: 0, or 1 without a window.
        skipped: usize,
        /// Number of pools of the cache.
        pools: usize,
    } = "quant_block_attention" {
        arity: 8,
        rule: |kind, shapes| match kind {
            Kind::QuantBlockAttention { skipped, window, .. } if *skipped > usize::from(window.is_none()) => {
                Err(format!("{skipped} rows cannot be skipped"))
            }
            Kind::QuantBlockAttention { pools, .. } => {
                over_pools("bskgD,~bTkD,~bkT,~bTkD,~bkT,bW,bs,b->bskgD,bkgs", *pools, shapes)
            }
            _ => Err("not a quant_block_attention".to_owned()),
        },
        dtype: |kind, dtypes| match *dtypes {
            [q, DType::I8, DType::F32, DType::I8, DType::F32, DType::I32, DType::I64, DType::I64] => {
                all_float(kind, &[q]).map(|found| smallvec![found[0], DType::F32])
            }
            _ => Err(format!("takes floats, i8, f32, i8, f32, i32, i64 and i64, found {dtypes:?}")),
        },
        host: Host::Several(host::blocks::attention),
        npu: npu::blocks::attention,
    }
    /// Writes `new[b,s,k,d]` in place into the blocks `cache[n,t,k,d]`. `slots[b,s]` are places in
    /// the pool of the sequence: row `r` of block `i` is place `i·t + r`. Pools are as in
    /// [`Kind::BlockAttention`]. If two rows have one place, either one is written.
    WriteSlots {
        /// Number of pools of the cache.
        pools: usize,
    } = "write_slots" {
        arity: 3,
        rule: |kind, shapes| match kind {
            Kind::WriteSlots { pools } => over_pools("~bTkd,bSkd,bS->~bTkd", *pools, shapes),
            _ => Err("not a write_slots".to_owned()),
        },
        dtype: |_, dtypes| match *dtypes {
            [DType::I8, DType::I8, DType::I64] => Ok(smallvec![DType::I8]),
            _ => floats_with_index(dtypes, 2),
        },
        in_place: &[0],
        host: Host::One(host::blocks::write_slots),
        npu: npu::blocks::write_slots,
        join: Join::CacheRows,
    }
    /// Writes the scales `new[b,s,k]` in place to `scales[n,k,t]`, at the same `slots[b,s]` as
    /// [`Kind::WriteSlots`] writes the rows.
    WriteScales {
        /// Number of pools of the cache.
        pools: usize,
    } = "write_scales" {
        arity: 3,
        rule: |kind, shapes| match kind {
            Kind::WriteScales { pools } => over_pools("~bkT,bSk,bS->~bkT", *pools, shapes),
            _ => Err("not a write_scales".to_owned()),
        },
        dtype: |_, dtypes| floats_with_index(dtypes, 2),
        in_place: &[0],
        host: Host::One(host::blocks::write_scales),
        npu: npu::blocks::write_scales,
    }
    /// The selection `y[b,h] = x[b, index[b], h]` of one row per sequence.
    Take = "take" {
        arity: 2,
        rule: |_, _| sum("bSh,b->bh"),
        linear: Linear::InEach(&[0]),
        dtype: |_, dtypes| floats_with_index(dtypes, 1),
        host: Host::One(host::take),
        npu: npu::take,
        grad: Some(grad::take),
    }
    /// The sum over one dim.
    ReduceSum {
        /// Index of the reduced dim.
        dim: usize,
    } = "reduce_sum" {
        rule: |kind, shapes| match kind {
            Kind::ReduceSum { dim } => reduce_dim(shapes[0].rank(), *dim, Reduce::Sum),
            _ => Err("not a reduce_sum".to_owned()),
        },
        linear: Linear::InEach(&[0]),
        host: Host::One(host::reduce_sum),
        npu: npu::reduce_sum,
        view: Some(npu::views::without_one),
        grad: Some(grad::reduce_sum),
    }
    /// The largest element over one dim.
    ReduceMax {
        /// Index of the reduced dim.
        dim: usize,
    } = "reduce_max" {
        rule: |kind, shapes| match kind {
            Kind::ReduceMax { dim } => reduce_dim(shapes[0].rank(), *dim, Reduce::Max),
            _ => Err("not a reduce_max".to_owned()),
        },
        host: Host::One(host::reduce_max),
        npu: npu::reduce_max,
    }
    /// First index along the last dim at which `x[…,v]` equals `largest[…]`, the
    /// [`Kind::ReduceMax`] of `x` over this dim. The result is the greatest i64 on a shard without
    /// this element, and on all shards if `largest` is NaN or infinite.
    IndexOf = "index_of" {
        arity: 2,
        rule: |_, shapes| match shapes[0].rank().checked_sub(1) {
            Some(lead) => Rule::parse(&format!("{0}z,{0}->{0}", any_rank(lead)), Reduce::Min),
            None => Err("a scalar has no last dim".to_owned()),
        },
        dtype: |kind, dtypes| all_float(kind, dtypes).map(|_| smallvec![DType::I64]),
        host: Host::One(host::index_of),
        npu: npu::index_of,
    }
    /// Conversion to another element type, rounding to nearest even.
    Cast {
        /// The new element type.
        to: DType,
    } = "cast" {
        keeps_one_part: true,
        dtype: |kind, _| match kind {
            Kind::Cast { to } => Ok(smallvec![*to]),
            _ => Err("not a cast".to_owned()),
        },
        host: Host::One(host::cast),
        npu: npu::cast,
        is_copy: true,
        grad: Some(grad::cast),
    }
    /// Exact [`Kind::Cast`] to a type that contains all numbers of the operand's type. Partial sums
    /// can pass and are then added in the wider type.
    Widen {
        /// The new element type.
        to: DType,
    } = "widen" {
        linear: Linear::InEach(&[0]),
        dtype: |kind, dtypes| match (kind, dtypes[0]) {
            (Kind::Widen { to: DType::F32 }, DType::F16 | DType::BF16) => Ok(smallvec![DType::F32]),
            (Kind::Widen { to }, from) => Err(format!("{to} does not hold every number of {from}")),
            _ => Err("not a widen".to_owned()),
        },
        host: Host::One(host::cast),
        npu: npu::cast,
        is_copy: true,
    }
    /// A permutation of dims: dim `i` of the result is dim `dims[i]` of `x`.
    Permute {
        /// Operand dim for each result dim.
        dims: Vec<usize>,
    } = "permute" {
        rule: |kind, shapes| {
            let Kind::Permute { dims } = kind else { return Err("not a permute".to_owned()) };
            let operand = any_rank(shapes[0].rank());
            let mut seen = dims.clone();
            seen.sort_unstable();
            if !seen.iter().copied().eq(0..shapes[0].rank()) {
                return Err(format!("{dims:?} is no permutation of {} dims", shapes[0].rank()));
            }
            let result: String = dims.iter().map(|dim| char::from(operand.as_bytes()[*dim])).collect();
            sum(&format!("{operand}->{result}"))
        },
        linear: Linear::InEach(&[0]),
        dtype: first,
        host: Host::One(host::permute),
        npu: npu::views::copied,
        view: Some(npu::views::permute),
        grad: Some(grad::permute),
    }
    /// The elements `start..start + size` of one dim of `x`.
    Narrow {
        /// Index of the dim.
        dim: usize,
        /// First element.
        start: usize,
        /// Number of elements.
        size: usize,
    } = "narrow" {
        rule: |kind, shapes| match *kind {
            Kind::Narrow { dim, start, size } => match shapes[0].get(dim) {
                Some(whole) if start + size <= *whole => {
                    let [x, y] = [b'Z', b'Y'].map(|letter| letters_with(shapes[0].rank(), dim, letter));
                    sum(&format!("{x}->{y}")).map(|rule| rule.with_size(b'Y', size))
                }
                _ => Err(format!("no elements {start} to {} of dim {dim} of {}", start + size, shapes[0])),
            },
            _ => Err("not a narrow".to_owned()),
        },
        linear: Linear::InEach(&[0]),
        host: Host::One(host::narrow),
        npu: npu::views::copied,
        view: Some(npu::views::narrow),
        grad: Some(grad::narrow),
    }
    /// Cotangent of `x` in [`Kind::Narrow`]. Operands: the cotangent of the result, and `x`, for
    /// its shape only. Other elements are zero.
    NarrowGrad {
        /// Index of the dim.
        dim: usize,
        /// First element.
        start: usize,
    } = "narrow_grad" {
        arity: 2,
        shape_only: &[1],
        rule: |kind, shapes| match *kind {
            Kind::NarrowGrad { dim, .. } => {
                let [x, y] = [b'Z', b'Y'].map(|letter| letters_with(shapes[0].rank(), dim, letter));
                sum(&format!("{y},{x}->{x}"))
            }
            _ => Err("not a narrow_grad".to_owned()),
        },
        linear: Linear::InEach(&[0]),
        host: Host::One(host::training::narrow_grad),
        npu: npu::training::narrow_grad,
    }
    /// The elements of `x`, followed by the elements of `y`, along one dim.
    Concat {
        /// Index of the dim.
        dim: usize,
    } = "concat" {
        arity: 2,
        rule: |kind, shapes| match *kind {
            Kind::Concat { dim } => {
                let [x, y, joined] = [b'Z', b'Y', b'X'].map(|letter| letters_with(shapes[0].rank(), dim, letter));
                let size = shapes.iter().map(|shape| shape.get(dim).copied().unwrap_or_default()).sum();
                sum(&format!("{x},{y}->{joined}")).map(|rule| rule.with_size(b'X', size))
            }
            _ => Err("not a concat".to_owned()),
        },
        linear: Linear::Jointly,
        host: Host::One(host::concat),
        npu: npu::concat,
        concatenates: |kind| match *kind {
            Kind::Concat { dim } => Some(dim),
            _ => None,
        },
        grad: Some(grad::concat),
    }
    /// `x` repeated along its missing dims, to the shape of `like`. The elements of `like` are not
    /// used.
    Expand {
        /// Dims of `x` within the result.
        dims: Vec<usize>,
    } = "expand" {
        arity: 2,
        shape_only: &[1],
        rule: |kind, shapes| {
            let Kind::Expand { dims } = kind else { return Err("not an expand".to_owned()) };
            let whole = any_rank(shapes[1].rank());
            let kept: String = whole.chars().enumerate().filter(|(dim, _)| !dims.contains(dim)).map(|(_, c)| c).collect();
            sum(&format!("{kept},{whole}->{whole}"))
        },
        linear: Linear::InEach(&[0]),
        dtype: first,
        host: Host::One(host::training::expand),
        npu: npu::views::copied,
        view: Some(npu::views::expand),
        grad: Some(grad::expand),
    }
    /// `x` summed to the shape of `like`, which broadcasts to `x` as in [`Kind::Add`]. The elements
    /// of `like` are not used.
    ReduceTo = "reduce_to" {
        arity: 2,
        shape_only: &[1],
        rule: |kind, shapes| {
            let mut rule = elementwise(kind, shapes)?;
            rule.results = smallvec![rule.operands[1].clone()];
            Ok(rule)
        },
        linear: Linear::InEach(&[0]),
        host: Host::One(host::training::reduce_to),
        npu: npu::training::reduce_to,
    }
    /// Cotangent of `x` in `y = silu(x)`. Operands: `x` and the cotangent of `y`.
    SiluGrad = "silu_grad" {
        arity: 2,
        linear: Linear::InEach(&[1]),
        host: Host::One(host::training::silu_grad),
        npu: npu::training::silu_grad,
    }
    /// Cotangents of `gate` and `up` in [`Kind::SwiGlu`]. Operands: `gate`, `up` and the cotangent
    /// of the result.
    SwiGluGrad = "swiglu_grad" {
        arity: 3,
        rule: |kind, shapes| elementwise_results(kind, shapes, 2),
        linear: Linear::InEach(&[2]),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        host: Host::Several(host::training::swiglu_grad),
        npu: npu::training::swiglu_grad,
    }
    /// Cotangents of `gate` and `up`, of `gate`, `up` and the cotangent of [`Kind::GeluGate`].
    GeluGateGrad = "gelu_gate_grad" {
        arity: 3,
        rule: |kind, shapes| elementwise_results(kind, shapes, 2),
        linear: Linear::InEach(&[2]),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        host: Host::Several(host::training::gelu_gate_grad),
        npu: npu::training::gelu_gate_grad,
    }
    /// Cotangents of `x` and `gamma` in [`Kind::RmsNorm`]. Operands: the cotangent of the result,
    /// `x`, the second result, and `gamma`. The cotangent of `gamma` is f32.
    RmsNormGrad = "rms_norm_grad" {
        arity: 4,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}Z,{lead}Z,{lead},Z->{lead}Z,Z")),
        linear: Linear::InEach(&[0]),
        dtype: |kind, dtypes| match dtypes {
            [dy, x, DType::F32, gamma] => all_float(kind, &[*dy, *x, *gamma]).map(|found| smallvec![found[0], DType::F32]),
            _ => Err("its third operand, the second result of rms_norm, is f32".to_owned()),
        },
        host: Host::Several(host::training::rms_norm_grad),
        npu: npu::training::rms_norm_grad,
    }
    /// Cotangents of queries, keys and values in [`Kind::Attention`] and [`Kind::SinkAttention`].
    /// Operands: the first four operands of attention, the cotangent of the first result, and the
    /// first three results. The weights follow from these results, so they include the sinks.
    AttentionGrad {
        /// Factor of the attention scores.
        scale: f64,
    } = "attention_grad" {
        arity: 8,
        rule: |_, _| sum("bskgD,bTkD,bTkD,bsT,bskgD,bskgD,bkgs,bkgs->bskgD,bTkD,bTkD"),
        linear: Linear::InEach(&[4]),
        dtype: |kind, dtypes| {
            if dtypes[3] != DType::Bool {
                return Err(format!("the mask is {}, expected bool", dtypes[3]));
            }
            if dtypes[6..] != [DType::F32, DType::F32] {
                return Err("its last operands, the further results of attention, are f32".to_owned());
            }
            equal_floats(kind, &[&dtypes[..3], &dtypes[4..6]].concat(), 3)
        },
        host: Host::Several(host::training::attention_grad),
        npu: npu::training::attention_grad,
    }
    /// Cotangents of [`Kind::RingAttention`], as in [`Kind::AttentionGrad`]. Ranks send each other
    /// their contributions to the cotangents of remote keys and values.
    RingAttentionGrad {
        /// Mesh axes along which tokens are sharded; set by lowering.
        axes: Vec<AxisId>,
        /// Factor of the attention scores.
        scale: f64,
    } = "ring_attention_grad" {
        arity: 8,
        rule: |_, shapes| {
            of_own_tokens("bskgD,bskD,bskD,bsT,bskgD,bskgD,bkgs,bkgs->bskgD,bskD,bskD", shapes)
        },
        is_collective: true,
        around: Some(OperandExchange { operands: &[1, 2], results: &[1, 2], dim: 1 }),
        dtype: |kind, dtypes| (Kind::AttentionGrad { scale: 1.0 }.row().dtype)(kind, dtypes),
        host: Host::Several(host::training::attention_grad),
        npu: npu::training::attention_grad,
    }
    /// Cotangent of the table in [`Kind::Embed`]. Operands: the ids, the cotangent of the result,
    /// and the table, for its shape only.
    EmbedGrad = "embed_grad" {
        arity: 3,
        shape_only: &[2],
        rule: |_, shapes| {
            let ids = any_rank(shapes[0].rank());
            sum(&format!("{ids},{ids}z,yz->yz"))
        },
        linear: Linear::InEach(&[1]),
        dtype: |kind, dtypes| match dtypes {
            [DType::I64, floats @ ..] => all_float(kind, floats),
            _ => Err(format!("ids are {}, expected i64", dtypes[0])),
        },
        host: Host::One(host::training::embed_grad),
        npu: npu::training::embed_grad,
    }
    /// Cotangent of `x` in [`Kind::Take`]. Operands: the index, the cotangent of the result, and
    /// `x`, for its shape only.
    TakeGrad = "take_grad" {
        arity: 3,
        shape_only: &[2],
        rule: |_, _| sum("b,bh,bSh->bSh"),
        linear: Linear::InEach(&[1]),
        dtype: |kind, dtypes| match dtypes {
            [DType::I64, floats @ ..] => all_float(kind, floats),
            _ => Err(format!("the index is {}, expected i64", dtypes[0])),
        },
        host: Host::One(host::training::take_grad),
        npu: npu::training::take_grad,
    }
    /// The sum `y[…] = Σ exp(x[…,v] - largest[…])` over the last dim.
    SumExp = "sum_exp" {
        arity: 2,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead}->{lead}")),
        host: Host::One(host::training::sum_exp),
        npu: npu::loss::sum_exp,
    }
    /// The log probability of the label: `y[…] = x[…, label[…]] - largest[…] - ln sum[…]`. Here
    /// `largest` is the [`Kind::ReduceMax`] of `x` over the last dim, and `sum` its
    /// [`Kind::SumExp`]. The gradient includes the paths through `largest` and `sum`.
    LogProbability = "log_probability" {
        arity: 4,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead},{lead},{lead}->{lead}")),
        leaves_one_part: true,
        dtype: with_label,
        host: Host::One(host::training::log_probability),
        npu: npu::loss::log_probability,
        grad: Some(grad::log_probability),
    }
    /// Cotangent of `x` in [`Kind::LogProbability`]. Operands: the four operands of this op and the
    /// cotangent of the result.
    LogProbabilityGrad = "log_probability_grad" {
        arity: 5,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead},{lead},{lead},{lead}->{lead}z")),
        linear: Linear::InEach(&[4]),
        dtype: with_label,
        host: Host::One(host::training::log_probability_grad),
        npu: npu::loss::log_probability_grad,
    }
    /// The sum `x + y` of two scalars. Each can be a partial sum; a replicated scalar is counted
    /// once.
    Total = "total" {
        arity: 2,
        linear: Linear::Parts,
        dtype: all_equal,
        host: Host::One(host::add),
        npu: npu::add,
        grad: Some(grad::total),
    }
    /// The norm `sqrt(x)` of a sum of squares `x`, and the factor `min(1, largest / (norm +
    /// 1e-6))`.
    ClipFactor {
        /// The largest norm. With 0, the factor is 1.
        largest: f64,
    } = "clip_factor" {
        rule: |kind, shapes| elementwise_results(kind, shapes, 2),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        host: Host::Several(host::training::clip_factor),
        npu: npu::training::clip_factor,
    }
    /// An `AdamW` step with decoupled weight decay. Operands: `w`, its moments `m` and `v`, its
    /// gradient `g`, a factor of `g`, the rate `lr`, and the number of previous steps, `t - 1`. The
    /// last three are scalars.
    ///
    /// In place: `m = beta1 m + (1 - beta1) g` and `v = beta2 v + (1 - beta2) g²`. The third result
    /// is the new weight: `w (1 - lr decay) - lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) +
    /// epsilon)`.
    AdamW {
        /// Decay rate of the first moment.
        beta1: f64,
        /// Decay rate of the second moment.
        beta2: f64,
        /// Constant added outside the root.
        epsilon: f64,
        /// Weight decay, multiplied by the learning rate.
        decay: f64,
    } = "adamw" {
        arity: 7,
        rule: |kind, shapes| with_numbers(kind, shapes, 4, 3),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 3),
        in_place: &[1, 2],
        host: Host::Several(host::training::adamw),
        npu: npu::training::adamw,
    }
    /// The denominator of `AdamW` with a frozen second moment `v`, and its inverse: `d = sqrt((v +
    /// least) / correction) + epsilon` and `1 / d`. Operands: `v` and the scalar `least`.
    AdamWScale {
        /// Bias correction `1 - beta2^t` after `t` updates.
        correction: f64,
        /// Constant added outside the root.
        epsilon: f64,
    } = "adamw_scale" {
        arity: 2,
        rule: |kind, shapes| with_numbers(kind, shapes, 1, 2),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        host: Host::Several(host::frozen::adamw_scale),
        npu: npu::frozen::adamw_scale,
    }
    /// An [`Kind::AdamW`] step with a frozen second moment. Operands: `w`, `m`, the inverse `r`
    /// from [`Kind::AdamWScale`], the new first moment `s`, and three scalars. The scalars are a
    /// factor of `s`, the rate, and `corrected`, the rate over `1 - beta1^t`.
    ///
    /// In place: `m = factor s`. The second result is `w (1 - rate decay) - corrected · m · r`.
    FrozenAdamW {
        /// Weight decay, multiplied by the learning rate.
        decay: f64,
    } = "frozen_adamw" {
        arity: 7,
        rule: |kind, shapes| with_numbers(kind, shapes, 4, 2),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        in_place: &[1],
        host: Host::Several(host::frozen::adamw),
        npu: npu::frozen::adamw,
    }
    /// Sums the partial sums of `x` with compressed communication. Operands: `x`, the compression
    /// errors of the previous step, and a replicated summand. The first result is the new errors,
    /// in place of the old ones. The second result is the sum.
    ///
    /// Each rank adds an equal share of the summand to its partial sum before compression. A single
    /// rank has no compression error.
    CompressedSum {
        /// Mesh axes on which `x` is a partial sum; set by lowering.
        axes: Vec<AxisId>,
        /// Compression of each partial sum.
        by: Compression,
    } = "compressed_sum" {
        arity: 3,
        rule: |kind, shapes| of_one_shape(kind, shapes, 2),
        linear: Linear::Joins,
        dtype: |kind, dtypes| singles(kind, dtypes, 2),
        is_collective: true,
        in_place: &[1],
        host: Host::Several(host::frozen::compressed_sum),
        npu: npu::frozen::sum_of_one,
    }
    /// The assignment `x = y`, in place.
    Assign = "assign" {
        arity: 2,
        rule: |kind, shapes| of_one_shape(kind, shapes, 1),
        linear: Linear::Jointly,
        dtype: all_equal,
        in_place: &[0],
        host: Host::One(host::training::assign),
        npu: npu::training::assign,
    }
    /// A product as in [`Kind::MatMul`], with the dims [`Einsum::halved`] summed in tree order. One
    /// product computes each block. Sums over sequences are f32, of products in the operands' type.
    TreeMatMul {
        /// The einsum of operands and result.
        spec: Einsum,
    } = "tree_matmul" {
        arity: 2,
        rule: |kind, _| match kind {
            Kind::TreeMatMul { spec } => Ok(spec.tree_rule()),
            _ => Err("not a tree_matmul".to_owned()),
        },
        tree: |kind, shapes| {
            let Kind::TreeMatMul { spec } = kind else { return Vec::new() };
            let letters = spec.halved();
            let size = |letter| spec.x().find(letter).map_or(1, |dim| shapes[0][dim]);
            let sizes: Vec<usize> = letters.chars().map(size).collect();
            let dims = if spec.sums_sequences() { sizes.iter().map(|size| Halved::singly(*size)).collect() } else { Halved::blocks(&sizes) };
            letters.bytes().zip(dims).collect()
        },
        dtype: |kind, dtypes| match kind {
            Kind::TreeMatMul { spec } if spec.sums_sequences() => all_float(kind, dtypes).map(|_| smallvec![DType::F32]),
            _ => all_float(kind, dtypes),
        },
        host: Host::One(host::matmul),
        npu: npu::tree::matmul,
        grad: Some(grad::matmul),
        weights: WeightOperands::Factors(&[1, 0]),
    }
    /// The sum over one dim in tree order.
    TreeSum {
        /// Index of the reduced dim.
        dim: usize,
        /// Number of halvings. The remaining blocks are summed sequentially.
        levels: usize,
    } = "tree_sum" {
        rule: |kind, shapes| match kind {
            Kind::TreeSum { dim, .. } => reduce_dim(shapes[0].rank(), *dim, Reduce::Tree),
            _ => Err("not a tree_sum".to_owned()),
        },
        tree: |kind, shapes| match *kind {
            Kind::TreeSum { dim, levels } => vec![(any_rank(dim + 1).as_bytes()[dim], Halved { size: shapes[0][dim], levels })],
            _ => Vec::new(),
        },
        host: Host::One(host::reduce_sum),
        npu: npu::tree::sum_along,
        view: Some(npu::views::without_one),
        grad: Some(grad::reduce_sum),
    }
    /// The sum of [`Kind::SumExp`] in tree order.
    TreeSumExp = "tree_sum_exp" {
        arity: 2,
        rule: |_, shapes| {
            let mut rule = over_last(shapes[0], |lead| format!("{lead}z,{lead}->{lead}"))?;
            rule.reduce = Reduce::Tree;
            Ok(rule)
        },
        tree: |_, shapes| shapes[0].last().map_or_else(Vec::new, |size| vec![(b'z', Halved::blocks(&[*size])[0])]),
        host: Host::One(host::training::sum_exp),
        npu: npu::tree::sum_exp,
    }
    /// The cotangent of [`Kind::EmbedGrad`], with the first dim of the ids, sequences, summed in
    /// tree order.
    TreeEmbedGrad = "tree_embed_grad" {
        arity: 3,
        shape_only: &[2],
        rule: |_, shapes| {
            let (first, rest) = ("a", any_rank(shapes[0].rank())[1..].to_ascii_uppercase());
            tree_sum(&format!("{first}{rest},{first}{rest}z,yz->yz"))
        },
        tree: |_, shapes| shapes[0].first().map_or_else(Vec::new, |size| vec![(b'a', Halved::singly(*size))]),
        dtype: |kind, dtypes| match dtypes {
            [DType::I64, floats @ ..] => all_float(kind, floats),
            _ => Err(format!("ids are {}, expected i64", dtypes[0])),
        },
        host: Host::One(host::training::embed_grad),
        npu: npu::tree::embed_grad,
    }
    /// The cotangents of [`Kind::AttentionGrad`]. Cotangents of keys and values are given per query
    /// head, `[b,t,k,g,d]`, not summed over the heads that share them.
    AttentionGradByHead {
        /// Factor of the attention scores.
        scale: f64,
    } = "attention_grad_by_head" {
        arity: 8,
        rule: |_, _| sum("bSkgD,bTkD,bTkD,bST,bSkgD,bSkgD,bkgS,bkgS->bSkgD,bTkgD,bTkgD"),
        dtype: |kind, dtypes| (Kind::AttentionGrad { scale: 1.0 }.row().dtype)(kind, dtypes),
        host: Host::Several(host::training::attention_grad),
        npu: npu::training::attention_grad,
    }
    /// The cotangents of [`Kind::CappedAttentionGrad`]. Cotangents of keys and values are given per
    /// query head, as in [`Kind::AttentionGradByHead`].
    CappedAttentionGradByHead {
        /// Factor of the scores.
        scale: f64,
        /// Bound of the magnitude of scores.
        cap: f64,
    } = "capped_attention_grad_by_head" {
        arity: 5,
        rule: |_, _| sum("bSkgD,bTkD,bTkD,bST,bSkgD->bSkgD,bTkgD,bTkgD"),
        dtype: |kind, dtypes| (Kind::CappedAttentionGrad { scale: 1.0, cap: 1.0 }.row().dtype)(kind, dtypes),
        host: Host::Several(host::training::attention_grad),
        npu: npu::capped::attention_grad,
    }
    /// The contribution of each element to the cotangent of `gamma` in [`Kind::RmsNorm`]: the
    /// result's cotangent times `x` times the second result, f32.
    GammaTerms = "gamma_terms" {
        arity: 3,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead}z,{lead}->{lead}z")),
        dtype: |kind, dtypes| singles(kind, dtypes, 1),
        host: Host::One(host::training::gamma_terms),
        npu: npu::training::gamma_terms,
    }
    /// The function `1 / (1 + exp(-x))`.
    Sigmoid = "sigmoid" {
        host: Host::One(host::experts::sigmoid_of),
        npu: npu::routers::sigmoid,
        grad: Some(grad::experts::sigmoid),
    }
    /// The softmax over the last dim.
    Softmax = "softmax" {
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}Z->{lead}Z")),
        host: Host::One(host::experts::softmax),
        npu: npu::routers::softmax,
        grad: Some(grad::experts::softmax),
    }
    /// The logarithm of the sum of `exp(x)` over the last dim.
    LogSumExp = "log_sum_exp" {
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}Z->{lead}")),
        host: Host::One(host::experts::log_sum_exp),
        npu: npu::routers::log_sum_exp,
        grad: Some(grad::experts::log_sum_exp),
    }
    /// The reciprocal `1 / (x + epsilon)`.
    Reciprocal {
        /// Number added to each element.
        epsilon: f64,
    } = "reciprocal" {
        host: Host::One(host::experts::reciprocal),
        npu: npu::routers::reciprocal,
        grad: Some(grad::experts::reciprocal),
    }
    /// The indices of the `chosen` largest elements over the last dim, by falling element. Equal
    /// elements are ordered by index. If there are several groups of equal size, only elements of
    /// the `kept` best ones are chosen. The score of a group is the sum of its `summed` largest
    /// elements.
    Choose {
        /// Number of indices per row.
        chosen: usize,
        /// Number of groups of elements with consecutive indices.
        groups: usize,
        /// Number of groups from which elements are chosen.
        kept: usize,
        /// Number of elements that give the score of a group.
        summed: usize,
    } = "choose" {
        rule: |kind, shapes| match *kind {
            Kind::Choose { chosen, groups, kept, summed } => {
                let size = shapes[0].last().copied().unwrap_or_default();
                if groups == 0 || !size.is_multiple_of(groups) {
                    return Err(format!("{size} elements cannot be shared by {groups} equal groups"));
                }
                let of_group = size / groups;
                if kept > groups || summed > of_group || chosen > kept * of_group {
                    return Err(format!(
                        "cannot choose {chosen} of {kept} groups by {summed} elements each: {groups} groups have \
                         {of_group} elements each"
                    ));
                }
                over_last(shapes[0], |lead| format!("{lead}Z->{lead}J")).map(|rule| rule.with_size(b'J', chosen))
            }
            _ => Err("not a choose".to_owned()),
        },
        dtype: |kind, dtypes| all_float(kind, dtypes).map(|_| smallvec![DType::I64]),
        host: Host::One(host::experts::choose),
        npu: npu::routers::choose,
    }
    /// The largest elements of `x[…,v]`, f32, in each of several equal parts of the last dim. The
    /// result is f32 `[…, parts, 2·count + 1]`: the `count` largest elements of a part, falling,
    /// then their indices within the part, then the logarithm of the sum of `exp(x)` over the part.
    /// Equal elements are ordered by index.
    Candidates {
        /// Number of elements per part.
        count: usize,
        /// Number of parts.
        parts: usize,
    } = "candidates" {
        rule: |kind, shapes| match *kind {
            Kind::Candidates { count, parts } => {
                let size = shapes[0].last().copied().unwrap_or_default();
                if parts == 0 || !size.is_multiple_of(parts) {
                    return Err(format!("{size} elements cannot be dealt to {parts} equal parts"));
                }
                let of_part = size / parts;
                if count == 0 || count > of_part || of_part > EXACT_INDICES {
                    return Err(format!(
                        "cannot select {count} of {of_part} elements, expected 1 to {of_part} of at most {EXACT_INDICES}"
                    ));
                }
                let rule = over_last(shapes[0], |lead| format!("{lead}~z->{lead}zJ"))?;
                Ok(Rule { pools: parts, ..rule.with_size(b'z', parts).with_size(b'J', 2 * count + 1) })
            }
            _ => Err("not a candidates".to_owned()),
        },
        dtype: |_, dtypes| match dtypes {
            [DType::F32] => Ok(smallvec![DType::F32]),
            _ => Err(format!("x is {}, expected f32", dtypes[0])),
        },
        host: Host::One(host::candidates::candidates),
        npu: npu::candidates::candidates,
    }
    /// The elements `y[…,j] = x[…, index[…,j]]` of the last dim.
    Pick = "pick" {
        arity: 2,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}Z,{lead}J->{lead}J")),
        dtype: |_, dtypes| floats_with_index(dtypes, 1),
        host: Host::One(host::experts::pick),
        npu: npu::routers::pick,
        grad: Some(grad::experts::pick),
    }
    /// Cotangent of `x` in [`Kind::Pick`]. Operands: the index, the cotangent of the result, and
    /// `x`, for its shape only.
    PickGrad = "pick_grad" {
        arity: 3,
        shape_only: &[2],
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}J,{lead}J,{lead}Z->{lead}Z")),
        linear: Linear::InEach(&[1]),
        dtype: |kind, dtypes| match dtypes {
            [DType::I64, floats @ ..] => all_float(kind, floats),
            _ => Err(format!("the index is {}, expected i64", dtypes[0])),
        },
        host: Host::One(host::experts::pick_grad),
        npu: npu::routers::pick_grad,
    }
    /// A mixture of gated blocks, the experts: `y[b,s] = Σⱼ weights[b,s,j] · down[e] (silu(gate) ·
    /// up)`. Here `e` is `experts[b,s,j]`, `gate` is `gate_up[e,0] x[b,s]`, and `up` is
    /// `gate_up[e,1] x[b,s]`. Shapes: x `[b,s,h]`, experts and weights `[b,s,j]`, `gate_up`
    /// `[e,2,f,h]`, `down` `[e,h,f]`. The weights are f32.
    ///
    /// If experts are sharded, each rank computes the summands of its experts. If `f` is sharded,
    /// each rank has a part of each expert. Both make the result a partial sum.
    Experts = "experts" {
        arity: 5,
        rule: |_, shapes| gate_and_up(shapes[3]).and_then(|()| sum("bsH,bsJ,bsJ,eGfH,eHf->bsH")),
        dtype: |kind, dtypes| of_experts(kind, dtypes).map(|dtype| smallvec![dtype]),
        host: Host::One(host::experts::experts),
        npu: npu::experts::experts,
        grad: Some(grad::experts::experts),
        weights: WeightOperands::Factors(&[4, 3]),
        experts: Some(3),
    }
    /// The result of each chosen expert, `y[b,s,j] = down[e] (silu(gate) · up)`, without weights.
    /// See [`Kind::Experts`]; operands are its operands without the weights. If experts are
    /// sharded, a result is nonzero on one rank alone, so the order of a sum over ranks has no
    /// effect.
    ExpertRows = "expert_rows" {
        arity: 4,
        rule: |_, shapes| gate_and_up(shapes[2]).and_then(|()| sum("bsH,bsJ,eGFH,eHF->bsJH")),
        leaves_one_part: true,
        dtype: |kind, dtypes| match *dtypes {
            [x, DType::I64, gate_up, down] => all_float(kind, &[x, gate_up, down]),
            _ => Err(format!("takes x, i64, gate_up and down, found {dtypes:?}")),
        },
        host: Host::One(host::experts::expert_rows),
        npu: npu::experts::expert_rows,
        grad: Some(grad::experts::expert_rows),
        weights: WeightOperands::Factors(&[3, 2]),
        experts: Some(2),
    }
    /// As [`Kind::Experts`], with biases of all projections and with the gated rows `(clip(up,
    /// ±limit) + 1) · g · sigmoid(slope · g)`, `g = min(gate, limit)`. The last operands are the
    /// biases of `gate_up` `[e,2,f]` and of `down` `[e,h]`.
    ClippedExperts {
        /// Limit of gate and up projection.
        limit: f64,
        /// Slope of the sigmoid.
        slope: f64,
    } = "clipped_experts" {
        arity: 7,
        rule: |_, shapes| gate_and_up(shapes[3]).and_then(|()| sum("bsH,bsJ,bsJ,eGfH,eHf,eGf,eH->bsH")),
        dtype: |kind, dtypes| {
            let dtype = of_experts(kind, &dtypes[..5])?;
            all_float(kind, &[dtype, dtypes[5], dtypes[6]])
        },
        host: Host::One(host::experts::experts),
        npu: npu::experts::experts,
        grad: Some(grad::experts::clipped_experts),
        weights: WeightOperands::Factors(&[4, 3]),
        experts: Some(3),
    }
    /// As [`Kind::Experts`], with weights of 8-bit integers. Each row of tokens and each gated row
    /// is quantised with its own scale, as in [`Kind::RowScale`] and [`Kind::Quantise`]. The last
    /// operands are the scales of the rows of `gate_up` `[e,2,f]` and of `down` `[e,h]`, f32. A
    /// gated row has one scale, so its dim stays whole.
    QuantExperts = "quant_experts" {
        arity: 7,
        rule: |_, shapes| gate_and_up(shapes[3]).and_then(|()| sum("bsH,bsJ,bsJ,eGFH,eHF,eGF,eH->bsH")),
        dtype: |kind, dtypes| match *dtypes {
            [x, DType::I64, DType::F32, DType::I8, DType::I8, DType::F32, DType::F32] => all_float(kind, &[x]),
            _ => Err(format!("takes x, i64, f32, two of i8 and two of f32, found {dtypes:?}")),
        },
        host: Host::One(host::experts::quant_experts),
        npu: npu::experts::quant_experts,
        weights: WeightOperands::Factors(&[4, 3]),
        experts: Some(3),
    }
    /// As [`Kind::Experts`], in 16 bits, with weights in groups of 4-bit integers. Each weight is
    /// `q · scale`, rounded to the type of `x`. The intermediate size is `[f,k]`: `f` groups of `k`
    /// inputs of `down`. Words as in [`Kind::PackedMatMul`]: `gate_up` `[e,2,f,k,h/8]` and `down`
    /// `[e,h,f,k/8]`. The last operands are the scales of equal groups: `[e,groups,2,f,k]` and
    /// `[e,f,h]`.
    PackedExperts = "packed_experts" {
        arity: 7,
        rule: |_, shapes| packed_experts(shapes),
        dtype: packed_expert_types,
        host: Host::One(host::experts::packed_experts),
        npu: npu::experts::packed_experts,
        weights: WeightOperands::Factors(&[4, 3]),
        experts: Some(3),
    }
    /// As [`Kind::PackedExperts`], with an offset for each scale: a weight is `(q + offset) ·
    /// scale`. The offsets are the last operands.
    OffsetPackedExperts = "offset_packed_experts" {
        arity: 9,
        rule: |_, shapes| packed_experts(shapes),
        dtype: packed_expert_types,
        host: Host::One(host::experts::packed_experts),
        npu: npu::experts::packed_experts,
        weights: WeightOperands::Factors(&[4, 3]),
        experts: Some(3),
    }
    /// Cotangents of `x`, `weights`, `gate_up` and `down` in [`Kind::Experts`]. Operands: its
    /// operands and the cotangent of the result.
    ExpertsGrad = "experts_grad" {
        arity: 6,
        rule: |_, shapes| {
            gate_and_up(shapes[3]).and_then(|()| sum("bsH,bsJ,bsJ,eGfH,eHf,bsH->bsH,bsJ,eGfH,eHf"))
        },
        linear: Linear::InEach(&[5]),
        dtype: |kind, dtypes| {
            let dtype = of_experts(kind, &dtypes[..5])?;
            all_float(kind, &[dtype, dtypes[5]]).map(|_| smallvec![dtype, DType::F32, dtype, dtype])
        },
        host: Host::Several(host::experts::experts_grad),
        npu: npu::experts::experts_grad,
    }
    /// Cotangents of `x`, `weights`, `gate_up`, `down` and both biases in [`Kind::ClippedExperts`].
    /// Operands: its operands and the cotangent of the result. The derivative of a clipped number
    /// is 0 beyond the limits, and 1 at the limits.
    ClippedExpertsGrad {
        /// Limit of gate and up projection.
        limit: f64,
        /// Slope of the sigmoid.
        slope: f64,
    } = "clipped_experts_grad" {
        arity: 8,
        rule: |_, shapes| {
            gate_and_up(shapes[3])
                .and_then(|()| sum("bsH,bsJ,bsJ,eGfH,eHf,eGf,eH,bsH->bsH,bsJ,eGfH,eHf,eGf,eH"))
        },
        linear: Linear::InEach(&[7]),
        dtype: |kind, dtypes| {
            let dtype = of_experts(kind, &dtypes[..5])?;
            all_float(kind, &[dtype, dtypes[5], dtypes[6], dtypes[7]])?;
            Ok(smallvec![dtype, DType::F32, dtype, dtype, dtype, dtype])
        },
        host: Host::Several(host::experts::experts_grad),
        npu: npu::experts::experts_grad,
    }
    /// Cotangents of the copies of `x` in [`Kind::ExpertRows`], `[b,s,j,h]`: one for each chosen
    /// expert. Operands: its operands and the cotangent of the result. If experts are sharded, a
    /// row is nonzero on one rank alone.
    ExpertRowsGrad = "expert_rows_grad" {
        arity: 5,
        rule: |_, shapes| gate_and_up(shapes[2]).and_then(|()| sum("bsH,bsJ,eGFH,eHF,bsJH->bsJH")),
        leaves_one_part: true,
        dtype: rows_of_experts_grad,
        host: Host::One(host::experts::expert_rows_grad),
        npu: npu::experts::expert_rows_grad,
    }
    /// Cotangents of `gate_up` and `down` in [`Kind::ExpertRows`], f32, with sequences summed in
    /// tree order. Operands as in [`Kind::ExpertRowsGrad`]. The products of a sequence are in the
    /// type of the operands.
    TreeExpertsGrad = "tree_experts_grad" {
        arity: 5,
        rule: |_, shapes| {
            gate_and_up(shapes[2]).and_then(|()| tree_sum("bSH,bSJ,eGfH,eHf,bSJH->eGfH,eHf"))
        },
        tree: |_, shapes| shapes[0].first().map_or_else(Vec::new, |size| vec![(b'b', Halved::singly(*size))]),
        dtype: |kind, dtypes| rows_of_experts_grad(kind, dtypes).map(|_| smallvec![DType::F32; 2]),
        host: Host::Several(host::experts::tree_experts_grad),
        npu: npu::experts::tree_experts_grad,
    }
    /// The function `e^x`.
    Exp = "exp" {
        host: Host::One(host::delta::exp),
        npu: npu::delta::exp,
        grad: Some(grad::exp),
    }
    /// The function `ln(1 + e^x)`. Above 20 it is `x`.
    Softplus = "softplus" {
        host: Host::One(host::delta::softplus),
        npu: npu::delta::softplus,
        grad: Some(grad::softplus),
    }
    /// Copies of `x` along a new dim.
    Repeat {
        /// Index of the new dim in the result.
        dim: usize,
        /// Number of copies.
        size: usize,
    } = "repeat" {
        rule: |kind, shapes| match *kind {
            Kind::Repeat { dim, size } if dim <= shapes[0].rank() => {
                let x = any_rank(shapes[0].rank());
                let (before, after) = x.split_at(dim);
                sum(&format!("{x}->{before}Z{after}")).map(|rule| rule.with_size(b'Z', size))
            }
            _ => Err(format!("no dim can be inserted there in {}", shapes[0])),
        },
        linear: Linear::InEach(&[0]),
        dtype: first,
        host: Host::One(host::delta::repeat),
        npu: npu::views::copied,
        view: Some(npu::views::repeat),
        grad: Some(grad::repeat),
    }
    /// Splits one dim in two. The second one has `size` elements.
    SplitDim {
        /// Index of the dim.
        dim: usize,
        /// Size of the second new dim.
        size: usize,
    } = "split_dim" {
        rule: |kind, shapes| match *kind {
            Kind::SplitDim { dim, size } => match shapes[0].get(dim) {
                Some(whole) if size > 0 && whole.is_multiple_of(size) => {
                    let whole = whole / size;
                    let x = letters_with(shapes[0].rank(), dim, b'Z');
                    let y = x.replace('Z', "XY");
                    sum(&format!("{x}->{y}")).map(|rule| rule.with_size(b'X', whole).with_size(b'Y', size))
                }
                _ => Err(format!("dim {dim} of {} is no multiple of {size}", shapes[0])),
            },
            _ => Err("not a split_dim".to_owned()),
        },
        linear: Linear::InEach(&[0]),
        dtype: first,
        host: Host::One(host::delta::reshaped),
        npu: npu::views::copied,
        view: Some(npu::views::reshaped),
        grad: Some(grad::split_dim),
    }
    /// Merges one dim with the next one.
    MergeDims {
        /// Index of the first dim.
        dim: usize,
    } = "merge_dims" {
        rule: |kind, shapes| match *kind {
            Kind::MergeDims { dim } if dim + 1 < shapes[0].rank() => {
                let size = shapes[0][dim] * shapes[0][dim + 1];
                let y = letters_with(shapes[0].rank() - 1, dim, b'Z');
                let x = y.replace('Z', "XY");
                sum(&format!("{x}->{y}")).map(|rule| rule.with_size(b'Z', size))
            }
            _ => Err(format!("no two dims to merge in {}", shapes[0])),
        },
        linear: Linear::InEach(&[0]),
        dtype: first,
        host: Host::One(host::delta::reshaped),
        npu: npu::views::copied,
        view: Some(npu::views::reshaped),
        grad: Some(grad::merge_dims),
    }
    /// The sum of each element and all earlier ones along a dim.
    CumSum {
        /// Index of the dim.
        dim: usize,
    } = "cum_sum" {
        rule: |kind, shapes| match *kind {
            Kind::CumSum { dim } => {
                let x = letters_with(shapes[0].rank(), dim, b'Z');
                sum(&format!("{x}->{x}"))
            }
            _ => Err("not a cum_sum".to_owned()),
        },
        linear: Linear::InEach(&[0]),
        host: Host::One(host::delta::cum_sum),
        npu: npu::delta::cum_sum,
        grad: Some(grad::cum_sum),
    }
    /// Cotangent of `x` in [`Kind::CumSum`]: the sum of each element and all later ones.
    CumSumGrad {
        /// Index of the dim.
        dim: usize,
    } = "cum_sum_grad" {
        rule: |kind, shapes| match *kind {
            Kind::CumSumGrad { dim } => (Kind::CumSum { dim }.row().rule)(&Kind::CumSum { dim }, shapes),
            _ => Err("not a cum_sum_grad".to_owned()),
        },
        linear: Linear::InEach(&[0]),
        host: Host::One(host::delta::cum_sum),
        npu: npu::delta::cum_sum,
    }
    /// The elements of the matrices `x[…,t,s]` with `s ≤ t - below`. Other elements are zero.
    Lower {
        /// Number of diagonals below which elements are kept. 0 keeps the main diagonal.
        below: usize,
    } = "lower" {
        rule: |_, shapes| of_matrices(shapes[0]),
        linear: Linear::InEach(&[0]),
        host: Host::One(host::delta::lower),
        npu: npu::delta::lower,
        grad: Some(grad::lower),
    }
    /// The inverses of the matrices `1 + x[…,t,s]`. Only the elements of `x` below the main
    /// diagonal are used.
    UnitLowerInverse = "unit_lower_inverse" {
        rule: |_, shapes| of_matrices(shapes[0]),
        dtype: |kind, dtypes| singles(kind, dtypes, 1),
        host: Host::One(host::delta::unit_lower_inverse),
        npu: npu::delta::unit_lower_inverse,
        grad: Some(grad::unit_lower_inverse),
    }
    /// A causal convolution of each channel over tokens: `y[b,s,…] = Σⱼ filter[…,j] · x[b,s+j,…]`.
    /// `x` has `padded` more tokens at its start, which are zero.
    CausalConvolution {
        /// Number of zeros before the first token.
        padded: usize,
    } = "causal_convolution" {
        arity: 2,
        rule: |kind, shapes| match *kind {
            Kind::CausalConvolution { padded } => {
                let (channels, tokens) = filtered(padded, shapes)?;
                sum(&format!("aZ{channels},{channels}Y->aX{channels}")).map(|rule| rule.with_size(b'X', tokens))
            }
            _ => Err("not a causal_convolution".to_owned()),
        },
        linear: Linear::InEach(&[0, 1]),
        host: Host::One(host::delta::convolution),
        npu: npu::delta::convolution,
        writes_strided: true,
        grad: Some(grad::convolution),
        weights: WeightOperands::Filter(1),
    }
    /// Cotangents of `x` and `filter` in [`Kind::CausalConvolution`]. Operands: its operands and
    /// the cotangent of the result.
    CausalConvolutionGrad {
        /// Number of zeros before the first token.
        padded: usize,
    } = "causal_convolution_grad" {
        arity: 3,
        rule: |kind, shapes| match *kind {
            Kind::CausalConvolutionGrad { padded } => {
                let (channels, _) = filtered(padded, shapes)?;
                sum(&format!("aZ{channels},{channels}Y,aX{channels}->aZ{channels},{channels}Y"))
            }
            _ => Err("not a causal_convolution_grad".to_owned()),
        },
        linear: Linear::InEach(&[2]),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        host: Host::Several(host::delta::convolution_grad),
        npu: npu::delta::convolution_grad,
    }
    /// The tokens `y[b,j,…] = x[b, index[b,j], …]` of each sequence.
    SelectTokens = "select_tokens" {
        arity: 2,
        rule: |_, shapes| match shapes[0].rank().checked_sub(2) {
            Some(rest) => {
                let rest = &any_rank(rest + 2)[2..];
                sum(&format!("aZ{rest},aY->aY{rest}"))
            }
            None => Err(format!("{} has no sequences of tokens", shapes[0])),
        },
        dtype: |_, dtypes| floats_with_index(dtypes, 1),
        host: Host::One(host::delta::select_tokens),
        npu: npu::delta::select_tokens,
    }
    /// The states `y[b,…] = states[index[b],…]` of sequences. An index counts the states of the
    /// sequence's pool. Pools are as in [`Kind::BlockAttention`].
    ReadStates {
        /// Number of pools of the states.
        pools: usize,
    } = "read_states" {
        arity: 2,
        rule: |kind, shapes| match kind {
            Kind::ReadStates { pools } => {
                let rest = after_first(shapes[0])?;
                over_pools(&format!("~b{rest},b->b{rest}"), *pools, shapes)
            }
            _ => Err("not a read_states".to_owned()),
        },
        dtype: |_, dtypes| floats_with_index(dtypes, 1),
        host: Host::One(host::blocks::read_states),
        npu: npu::blocks::read_states,
    }
    /// Writes `new[b,…]` in place to the places `index[b]` of `states`. See [`Kind::ReadStates`].
    /// If two sequences have one place, either one is written.
    WriteStates {
        /// Number of pools of the states.
        pools: usize,
    } = "write_states" {
        arity: 3,
        rule: |kind, shapes| match kind {
            Kind::WriteStates { pools } => {
                let rest = after_first(shapes[0])?;
                over_pools(&format!("~b{rest},b{rest},b->~b{rest}"), *pools, shapes)
            }
            _ => Err("not a write_states".to_owned()),
        },
        dtype: |_, dtypes| floats_with_index(dtypes, 2),
        in_place: &[0],
        host: Host::One(host::blocks::write_states),
        npu: npu::blocks::write_states,
    }
    /// A change of layout of the same value. Placement inserts this op and `collective::lower`
    /// replaces it.
    Reshard = "reshard" {
        stage: Stage::Placed,
        dtype: all_equal,
    }
    /// Partial sum → replicated on `axes`.
    AllReduce {
        /// Mesh axes of the group.
        axes: Vec<AxisId>,
        /// Reduction of the partial values.
        reduce: Reduce,
    } = "all_reduce" {
        variadic: true,
        stage: Stage::Lowered,
        dtype: all_equal,
        is_collective: true,
    }
    /// Sharded → replicated on `axes`, the minor-most axes of `dim`.
    AllGather {
        /// Mesh axes of the group.
        axes: Vec<AxisId>,
        /// Index of the gathered dim.
        dim: usize,
    } = "all_gather" {
        stage: Stage::Lowered,
        dtype: all_equal,
        is_collective: true,
    }
    /// Partial sum → sharded on `axes`, the new minor-most axes of `dim`.
    ReduceScatter {
        /// Mesh axes of the group.
        axes: Vec<AxisId>,
        /// Index of the sharded dim.
        dim: usize,
        /// Reduction of the partial values.
        reduce: Reduce,
    } = "reduce_scatter" {
        stage: Stage::Lowered,
        dtype: all_equal,
        is_collective: true,
    }
    /// Moves `axes` from the minor-most position of dim `from` to the minor-most position of dim
    /// `to`.
    AllToAll {
        /// Mesh axes of the group.
        axes: Vec<AxisId>,
        /// The dim that grows.
        from: usize,
        /// The dim that shrinks.
        to: usize,
    } = "all_to_all" {
        stage: Stage::Lowered,
        dtype: all_equal,
        is_collective: true,
    }
    /// Replicated → sharded on `axes`, the new minor-most axes of `dim`, without communication.
    Slice {
        /// Mesh axes of the group.
        axes: Vec<AxisId>,
        /// Index of the sharded dim.
        dim: usize,
    } = "slice" {
        stage: Stage::Lowered,
        dtype: all_equal,
    }
    /// Replicated → partial sum on `axes`, without communication. The first rank of the group keeps
    /// the value, and the other ranks have zeros.
    Leader {
        /// Mesh axes of the group.
        axes: Vec<AxisId>,
    } = "leader" {
        stage: Stage::Lowered,
        dtype: all_equal,
    }
    /// Sharded on `axes`, the minor-most axes of `dim` → partial sum, without communication. Each
    /// rank pads its shard with zeros.
    Pad {
        /// Mesh axes of the group.
        axes: Vec<AxisId>,
        /// Index of the padded dim.
        dim: usize,
    } = "pad" {
        stage: Stage::Lowered,
        dtype: all_equal,
    }
}
