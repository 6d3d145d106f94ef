//! The ops: an entry each, which gives its variant of [`Kind`] with the attributes, its name in
//! texts and its [`Row`].
//!
//! Below the name stands what differs from [`BASE`](super::BASE). To add an op is an entry here, a
//! function in `interpret` and one in `npu`, and one in `grad` if it has a gradient.

use smallvec::smallvec;

use crate::base::{AxisId, DType, Reduce};
use crate::program::rule::{Einsum, Rule, any_rank};
use crate::program::tree::Halved;
use crate::program::{grad, interpret as host, npu};

use super::{
    Attribute, BASE, Compression, Host, Join, Linear, OperandExchange, Row, Stage, WeightOperands, all_equal,
    all_float, elementwise, elementwise_results, equal_floats, first, floats_with_index, of_one_shape,
    of_own_tokens, over_last, reduce_dim, reduce_rows, scaled_rows, singles, sum, tree_sum, with_label,
    with_numbers,
};

super::ops! {
    /// `y[…,h] = table[ids[…], h]`: ids of any rank, table `[v, h]`.
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
    /// A product of two tensors in einsum form, such as `bsi,oi->bso`. Letters that both operands
    /// have and the result lacks are summed.
    MatMul {
        /// Which dims of both operands are summed, and those of the result.
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
        // A weight stands second if there is a choice.
        weights: WeightOperands::Factors(&[1, 0]),
    }
    /// The scale of each row of `x`, f32: `t = max |x| / 127` over its last `dims` dims. A card
    /// that holds a shard of a row has the scale of its shard. The largest of them is the row's.
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
    /// The rows of `x` as 8-bit integers, by their scales `t`: `q = round(x / t)`, ties to even,
    /// saturated; 0 where `t` is 0.
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
    /// A product of 8-bit integers `q` and `w` with a scale `t` for each row of `q` and one,
    /// `scale`, for each row of `w`: `y = (Σ q · w) · t · scale`. What `q` and `w` share is summed.
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
    /// `x + y`; the second operand broadcasts from the right, or along dims of size 1.
    Add = "add" {
        arity: 2,
        linear: Linear::Jointly,
        dtype: all_equal,
        host: Host::One(host::add),
        npu: npu::add,
        join: Join::Sum,
        grad: Some(grad::add_op),
    }
    /// `x · y`; broadcasts as [`Kind::Add`].
    Mul = "mul" {
        arity: 2,
        linear: Linear::InEach(&[0, 1]),
        dtype: all_equal,
        host: Host::One(host::mul),
        npu: npu::mul,
        grad: Some(grad::mul),
    }
    /// `by · x`.
    Scale {
        /// What each element is multiplied with.
        by: f64,
    } = "scale" {
        linear: Linear::InEach(&[0]),
        host: Host::One(host::scale),
        npu: npu::scale,
        grad: Some(grad::scale),
    }
    /// `x / (1 + exp(-x))`.
    Silu = "silu" {
        host: Host::One(host::silu),
        npu: npu::silu,
        grad: Some(grad::silu),
    }
    /// `silu(gate) · up`.
    SwiGlu = "swiglu" {
        arity: 2,
        host: Host::One(host::swiglu),
        npu: npu::swiglu,
        join: Join::Gated,
        grad: Some(grad::swiglu),
    }
    /// `x / sqrt(mean(x²) + epsilon) · gamma` over the last dim.
    RmsNorm {
        /// Added under the root.
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
    /// Rotary position embedding of `x[b,s,…,d]` by `cos[b,s,d]` and `sin[b,s,d]`, halves rotated
    /// (`NeoX` style): `y = x·cos + (-x[d/2..], x[..d/2])·sin`.
    Rope = "rope" {
        arity: 3,
        rule: |_, shapes| match shapes[0].rank().checked_sub(3) {
            Some(heads) => {
                let heads = &any_rank(heads + 2)[2..];
                sum(&format!("ab{heads}Z,abZ,abZ->ab{heads}Z"))
            }
            None => Err(format!("x has {} dims, expected batch, sequence, heads and head size", shapes[0].rank())),
        },
        linear: Linear::InEach(&[0]),
        host: Host::One(host::rope),
        npu: npu::rope,
        join: Join::Rotary,
        grad: Some(grad::rope),
    }
    /// `softmax(scale · q kᵀ, mask) v` for q `[b,s,k,g,d]`, keys and values `[b,t,k,d]`, mask
    /// `[b,s,t]` (true = hidden), and of each row, f32 `[b,k,g,s]`, the greatest score and the sum
    /// of the exponentials of what scores are below it. Each of the `k` key heads serves `g` query
    /// heads. A row of the mask shows at least one position.
    Attention {
        /// Factor of the scores.
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
    /// As [`Kind::Attention`], of keys and values of the queries' own tokens, `[b,s,k,d]`: where
    /// cards have parts of them, the queries of each see one card's keys and values after the
    /// other. A row of the mask shows the token itself.
    RingAttention {
        /// Those along which tokens are cut, which lowering writes here.
        axes: Vec<AxisId>,
        /// Factor of the scores.
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
    /// Writes `new[b,s,k,d]` over rows `start[b]` and those that follow of `cache[b,t,k,d]`, which
    /// has that many; in place.
    CacheWrite = "cache_write" {
        arity: 3,
        rule: |_, _| sum("bTkd,bSkd,b->bTkd"),
        dtype: |_, dtypes| floats_with_index(dtypes, 2),
        in_place: &[0],
        host: Host::One(host::cache_write),
        npu: npu::cache_write,
        join: Join::CacheRows,
    }
    /// `y[b,h] = x[b, index[b], h]`.
    Take = "take" {
        arity: 2,
        rule: |_, _| sum("bSh,b->bh"),
        linear: Linear::InEach(&[0]),
        dtype: |_, dtypes| floats_with_index(dtypes, 1),
        host: Host::One(host::take),
        npu: npu::take,
        grad: Some(grad::take),
    }
    /// Sum over one dim.
    ReduceSum {
        /// The dim that goes.
        dim: usize,
    } = "reduce_sum" {
        rule: |kind, shapes| match kind {
            Kind::ReduceSum { dim } => reduce_dim(shapes[0].rank(), *dim, Reduce::Sum),
            _ => Err("not a reduce_sum".to_owned()),
        },
        linear: Linear::InEach(&[0]),
        host: Host::One(host::reduce_sum),
        npu: npu::reduce_sum,
        grad: Some(grad::reduce_sum),
    }
    /// Largest element over one dim.
    ReduceMax {
        /// The dim that goes.
        dim: usize,
    } = "reduce_max" {
        rule: |kind, shapes| match kind {
            Kind::ReduceMax { dim } => reduce_dim(shapes[0].rank(), *dim, Reduce::Max),
            _ => Err("not a reduce_max".to_owned()),
        },
        host: Host::One(host::reduce_max),
        npu: npu::reduce_max,
    }
    /// First index along the last dim at which `x[…,v]` equals `largest[…]`, which must be the
    /// [`Kind::ReduceMax`] of `x` over that dim; the greatest i64 on a shard that does not hold it,
    /// and on all where it is NaN or infinite.
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
    /// Conversion of the element type, rounding to nearest even.
    Cast {
        /// The new type.
        to: DType,
    } = "cast" {
        dtype: |kind, _| match kind {
            Kind::Cast { to } => Ok(smallvec![*to]),
            _ => Err("not a cast".to_owned()),
        },
        host: Host::One(host::cast),
        npu: npu::cast,
        is_copy: true,
        grad: Some(grad::cast),
    }
    /// As [`Kind::Cast`], to a type that holds every number of the operand's. It is exact, so parts
    /// of a sum may pass, and are added in the wider type.
    Widen {
        /// The new type.
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
    /// `y`'s dim `i` is `x`'s dim `dims[i]`.
    Permute {
        /// For each dim of the result, the operand's.
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
        npu: npu::permute,
        grad: Some(grad::permute),
    }
    /// `x` repeated along the dims that it lacks: those of `like`, of which nothing but the shape
    /// counts.
    Expand {
        /// Dims of the result.
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
        npu: npu::training::expand,
        grad: Some(grad::expand),
    }
    /// `x` summed to the shape of `like`, which broadcasts to `x` as the second operand of
    /// [`Kind::Add`]; nothing but the shape of `like` counts.
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
    /// Cotangent of `x` in `y = silu(x)`, of `x` and the cotangent of `y`.
    SiluGrad = "silu_grad" {
        arity: 2,
        linear: Linear::InEach(&[1]),
        host: Host::One(host::training::silu_grad),
        npu: npu::training::silu_grad,
    }
    /// Cotangents of `gate` and `up`, of `gate`, `up` and the cotangent of [`Kind::SwiGlu`].
    SwiGluGrad = "swiglu_grad" {
        arity: 3,
        rule: |kind, shapes| elementwise_results(kind, shapes, 2),
        linear: Linear::InEach(&[2]),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        host: Host::Several(host::training::swiglu_grad),
        npu: npu::training::swiglu_grad,
    }
    /// Cotangents of `x` and `gamma`, of the cotangent of [`Kind::RmsNorm`], `x`, its second result
    /// and `gamma`. That of `gamma` is f32.
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
    /// Cotangents of queries, keys and values, of the operands of [`Kind::Attention`], the
    /// cotangent of its first result, and its results.
    AttentionGrad {
        /// Factor of the scores.
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
    /// As [`Kind::AttentionGrad`], of [`Kind::RingAttention`]: what a card adds to the cotangents
    /// of others' keys and values goes to them.
    RingAttentionGrad {
        /// Those along which tokens are cut, which lowering writes here.
        axes: Vec<AxisId>,
        /// Factor of the scores.
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
    /// Cotangent of the table of [`Kind::Embed`], of ids, the cotangent of its result and the
    /// table, of which nothing but the shape counts.
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
    /// Cotangent of `x` in [`Kind::Take`], of the index, the cotangent of its result and `x`, of
    /// which nothing but the shape counts.
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
    /// `y[…] = Σ exp(x[…,v] - largest[…])` over the last dim.
    SumExp = "sum_exp" {
        arity: 2,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead}->{lead}")),
        host: Host::One(host::training::sum_exp),
        npu: npu::loss::sum_exp,
    }
    /// `y[…] = x[…, label[…]] - largest[…] - ln sum[…]`, where `largest` is the [`Kind::ReduceMax`]
    /// of `x` over the last dim and `sum` its [`Kind::SumExp`]: the logarithm of the label's
    /// probability. Its gradient is that of the whole, through `largest` and `sum` too.
    LogProbability = "log_probability" {
        arity: 4,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead},{lead},{lead}->{lead}")),
        leaves_one_part: true,
        dtype: with_label,
        host: Host::One(host::training::log_probability),
        npu: npu::loss::log_probability,
        grad: Some(grad::log_probability),
    }
    /// Cotangent of `x` in [`Kind::LogProbability`], of its operands and the cotangent of its
    /// result.
    LogProbabilityGrad = "log_probability_grad" {
        arity: 5,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead},{lead},{lead},{lead}->{lead}z")),
        linear: Linear::InEach(&[4]),
        dtype: with_label,
        host: Host::One(host::training::log_probability_grad),
        npu: npu::loss::log_probability_grad,
    }
    /// `x + y` of two numbers of which each may be a part of a sum: what is whole counts once.
    Total = "total" {
        arity: 2,
        linear: Linear::Parts,
        dtype: all_equal,
        host: Host::One(host::add),
        npu: npu::add,
        grad: Some(grad::total),
    }
    /// `norm = sqrt(x)` and `factor = min(1, largest / (norm + 1e-6))`, of a sum of squares.
    ClipFactor {
        /// The largest norm; 0: none, the factor is 1.
        largest: f64,
    } = "clip_factor" {
        rule: |kind, shapes| elementwise_results(kind, shapes, 2),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        host: Host::Several(host::training::clip_factor),
        npu: npu::training::clip_factor,
    }
    /// One step of `AdamW` with decoupled decay, of `w`, its moments `m` and `v`, its gradient `g`,
    /// and three numbers: a factor of the gradient, the rate `lr` and the steps before, `t - 1`: `m
    /// = beta1 m + (1 - beta1) g`, `v = beta2 v + (1 - beta2) g²`, both in place, and `w (1 - lr
    /// decay) - lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) + epsilon)`.
    AdamW {
        /// Share of the old first moment.
        beta1: f64,
        /// Share of the old second moment.
        beta2: f64,
        /// Added outside the root.
        epsilon: f64,
        /// Share of the weight that goes, times the rate.
        decay: f64,
    } = "adamw" {
        arity: 7,
        rule: |kind, shapes| with_numbers(kind, shapes, 4, 3),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 3),
        in_place: &[1, 2],
        host: Host::Several(host::training::adamw),
        npu: npu::training::adamw,
    }
    /// What a gradient of `AdamW` is divided by once its second moment `v` stays, and the inverse;
    /// of `v` and a number `least` that is added: `d = sqrt((v + least) / correction) + epsilon`
    /// and `1 / d`.
    AdamWScale {
        /// `1 - beta2^t` after `t` updates.
        correction: f64,
        /// Added outside the root.
        epsilon: f64,
    } = "adamw_scale" {
        arity: 2,
        rule: |kind, shapes| with_numbers(kind, shapes, 1, 2),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        host: Host::Several(host::frozen::adamw_scale),
        npu: npu::frozen::adamw_scale,
    }
    /// [`Kind::AdamW`] whose second moment stays, of `w`, `m`, the inverse `r` of its
    /// [`Kind::AdamWScale`], the first moment `s` that is to take the place of `m`, and a factor of
    /// it, the rate, and that over `1 - beta1^t`: `m = factor s` in place, `w (1 - rate decay) -
    /// corrected · m · r`.
    FrozenAdamW {
        /// Share of the weight that goes.
        decay: f64,
    } = "frozen_adamw" {
        arity: 7,
        rule: |kind, shapes| with_numbers(kind, shapes, 4, 2),
        dtype: |kind, dtypes| equal_floats(kind, dtypes, 2),
        in_place: &[1],
        host: Host::Several(host::frozen::adamw),
        npu: npu::frozen::adamw,
    }
    /// Joins the parts of `x` with fewer bytes than it has: `x`, what was kept back of it before,
    /// and a summand that all cards have whole are what is kept back now, the first result, in
    /// place of the second operand, and the second. Each card adds an equal share of the summand to
    /// its part before it says anything. One card alone keeps nothing back.
    CompressedSum {
        /// Those on which `x` is a part, which lowering writes here.
        axes: Vec<AxisId>,
        /// What is said of a part.
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
    /// `x = y`, in place.
    Assign = "assign" {
        arity: 2,
        rule: |kind, shapes| of_one_shape(kind, shapes, 1),
        linear: Linear::Jointly,
        dtype: all_equal,
        in_place: &[0],
        host: Host::One(host::training::assign),
        npu: npu::training::assign,
    }
    /// As [`Kind::MatMul`], of which [`Einsum::halved`] are summed as a tree, all of one block by
    /// one product. Sums over sequences are f32, of products in the operands' own type.
    TreeMatMul {
        /// Which dims of both operands are summed, and those of the result.
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
    /// Sum over one dim as a tree.
    TreeSum {
        /// The dim that goes.
        dim: usize,
        /// How often it is halved; what is left is added one after the other.
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
    }
    /// As [`Kind::SumExp`], as a tree.
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
    /// As [`Kind::EmbedGrad`], in which the first dim of the ids, sequences, is summed as a tree.
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
    /// As [`Kind::AttentionGrad`], but the cotangents of keys and values are those by query head,
    /// `[b,t,k,g,d]`, not summed over the heads that share them.
    AttentionGradByHead {
        /// Factor of the scores.
        scale: f64,
    } = "attention_grad_by_head" {
        arity: 8,
        rule: |_, _| sum("bSkgD,bTkD,bTkD,bST,bSkgD,bSkgD,bkgS,bkgS->bSkgD,bTkgD,bTkgD"),
        dtype: |kind, dtypes| (Kind::AttentionGrad { scale: 1.0 }.row().dtype)(kind, dtypes),
        host: Host::Several(host::training::attention_grad),
        npu: npu::training::attention_grad,
    }
    /// What each element adds to the cotangent of `gamma` in [`Kind::RmsNorm`]: the cotangent of
    /// its result times `x` times its second result, f32.
    GammaTerms = "gamma_terms" {
        arity: 3,
        rule: |_, shapes| over_last(shapes[0], |lead| format!("{lead}z,{lead}z,{lead}->{lead}z")),
        dtype: |kind, dtypes| singles(kind, dtypes, 1),
        host: Host::One(host::training::gamma_terms),
        npu: npu::training::gamma_terms,
    }
    /// The same value in another layout; placement inserts it, `collective::lower` replaces it.
    Reshard = "reshard" {
        stage: Stage::Placed,
        dtype: all_equal,
    }
    /// Partial → whole on `axes`.
    AllReduce {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
        /// How the parts combine.
        reduce: Reduce,
    } = "all_reduce" {
        variadic: true,
        stage: Stage::Lowered,
        dtype: all_equal,
        is_collective: true,
    }
    /// Sharded → whole on `axes`, the minor-most of `dim`.
    AllGather {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
        /// The dim that grows.
        dim: usize,
    } = "all_gather" {
        stage: Stage::Lowered,
        dtype: all_equal,
        is_collective: true,
    }
    /// Partial → sharded on `axes`, which become the minor-most of `dim`.
    ReduceScatter {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
        /// The dim that shrinks.
        dim: usize,
        /// How the parts combine.
        reduce: Reduce,
    } = "reduce_scatter" {
        stage: Stage::Lowered,
        dtype: all_equal,
        is_collective: true,
    }
    /// Moves `axes` from the minor-most of dim `from` to the minor-most of dim `to`.
    AllToAll {
        /// Over the joint group of these axes.
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
    /// Whole → sharded on `axes`, the new minor-most of `dim`. Local.
    Slice {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
        /// The dim that shrinks.
        dim: usize,
    } = "slice" {
        stage: Stage::Lowered,
        dtype: all_equal,
    }
    /// Whole → partial sum on `axes`: the first rank of the group keeps the value, the others hold
    /// zeros. Local.
    Leader {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
    } = "leader" {
        stage: Stage::Lowered,
        dtype: all_equal,
    }
    /// Sharded on `axes`, the minor-most of `dim` → partial sum: each rank holds its shard among
    /// zeros. Local.
    Pad {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
        /// The dim that grows.
        dim: usize,
    } = "pad" {
        stage: Stage::Lowered,
        dtype: all_equal,
    }
}
