//! The ops and their attributes, and how attributes stand in texts. What an op is beyond that stands in its row in `op`.

use crate::base::{AxisId, DType, Id};

use super::rule::Reduce;

/// Which op, with its attributes.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `y[…,h] = table[ids[…], h]`: ids of any rank, table `[v, h]`.
    Embed,
    /// A product of two tensors in einsum form, such as `bsi,oi->bso`. Letters that both operands have and the result
    /// lacks are summed.
    MatMul {
        /// The einsum.
        spec: String,
    },
    /// A product of 16-bit floats with 8-bit integers `w` that stand for `w · scale`, `scale` with the dims of `w` that
    /// are not summed: `y = (Σ q · w) · t · scale`, where a row of `x`, over all that is summed, is quantised as the sum
    /// needs it: `t = max |x| / 127`, `q = round(x / t)`, ties to even. What `w` and `x` share is summed.
    ///
    /// A part of a row is a row: where what is summed is split, each part has its own `t`, none larger than the whole
    /// row's. The sum of the parts is another rounding of the same product: each is within half a step `t` of `x`, so they
    /// are at most `t Σ|w| scale` apart.
    QuantMatMul {
        /// The einsum of `x` and `w`.
        spec: String,
    },
    /// `x + y`; the second operand broadcasts from the right, or along dims of size 1.
    Add,
    /// `x · y`; broadcasts as [`Kind::Add`].
    Mul,
    /// `by · x`.
    Scale {
        /// The factor.
        by: f64,
    },
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `silu(gate) · up`.
    SwiGlu,
    /// `x / sqrt(mean(x²) + epsilon) · gamma` over the last dim.
    RmsNorm {
        /// Added under the root.
        epsilon: f64,
    },
    /// Rotary position embedding of `x[b,s,…,d]` by `cos[b,s,d]` and `sin[b,s,d]`, halves rotated (`NeoX` style):
    /// `y = x·cos + (-x[d/2..], x[..d/2])·sin`.
    Rope,
    /// `softmax(scale · q kᵀ, mask) v` for q `[b,s,k,g,d]`, keys and values `[b,t,k,d]`, mask `[b,s,t]` (true = hidden), and of
    /// each row, f32 `[b,k,g,s]`, the greatest score and the sum of the exponentials of what scores are below it. Each of the
    /// `k` key heads serves `g` query heads. A row of the mask shows at least one position.
    Attention {
        /// Factor of the scores.
        scale: f64,
    },
    /// Writes `new[b,s,k,d]` over rows `positions[b,s]` of `cache[b,t,k,d]`; in place.
    CacheWrite,
    /// `y[b,h] = x[b, index[b], h]`.
    Take,
    /// Sum over one dim.
    ReduceSum {
        /// The dim that goes.
        dim: usize,
    },
    /// Largest element over one dim.
    ReduceMax {
        /// The dim that goes.
        dim: usize,
    },
    /// First index along the last dim at which `x[…,v]` equals `largest[…]`, which must be the [`Kind::ReduceMax`] of `x`
    /// over that dim; the greatest i64 on a shard that does not hold it, and on all where it is NaN or infinite.
    IndexOf,
    /// Conversion of the element type, rounding to nearest even.
    Cast {
        /// The new type.
        to: DType,
    },
    /// As [`Kind::Cast`], to a type that holds every number of the operand's. It is exact, so parts of a sum may pass, and are
    /// added in the wider type.
    Widen {
        /// The new type.
        to: DType,
    },
    /// `y`'s dim `i` is `x`'s dim `dims[i]`.
    Permute {
        /// For each dim of the result, the operand's.
        dims: Vec<usize>,
    },
    /// `x` repeated along the dims that it lacks: those of `like`, of which nothing but the shape counts.
    Expand {
        /// Dims of the result.
        dims: Vec<usize>,
    },
    /// `x` summed to the shape of `like`, which broadcasts to `x` as the second operand of [`Kind::Add`]; nothing but the
    /// shape of `like` counts.
    ReduceTo,
    /// Cotangent of `x` in `y = silu(x)`, of `x` and the cotangent of `y`.
    SiluGrad,
    /// Cotangents of `gate` and `up`, of `gate`, `up` and the cotangent of [`Kind::SwiGlu`].
    SwiGluGrad,
    /// Cotangents of `x` and `gamma`, of the cotangent of [`Kind::RmsNorm`], `x`, its second result and `gamma`. That of `gamma`
    /// is f32.
    RmsNormGrad,
    /// Cotangents of queries, keys and values, of the operands of [`Kind::Attention`], the cotangent of its first result, and
    /// its results.
    AttentionGrad {
        /// Factor of the scores.
        scale: f64,
    },
    /// Cotangent of the table of [`Kind::Embed`], of ids, the cotangent of its result and the table, of which nothing but the
    /// shape counts.
    EmbedGrad,
    /// Cotangent of `x` in [`Kind::Take`], of the index, the cotangent of its result and `x`, of which nothing but the shape
    /// counts.
    TakeGrad,
    /// `y[…] = Σ exp(x[…,v] - largest[…])` over the last dim.
    SumExp,
    /// `y[…] = x[…, label[…]] - largest[…] - ln sum[…]`, where `largest` is the [`Kind::ReduceMax`] of `x` over the last dim
    /// and `sum` its [`Kind::SumExp`]: the logarithm of the label's probability. Its gradient is that of the whole, through
    /// `largest` and `sum` too.
    LogProbability,
    /// Cotangent of `x` in [`Kind::LogProbability`], of its operands and the cotangent of its result.
    LogProbabilityGrad,
    /// `x + y` of two numbers of which each may be a part of a sum: what is whole counts once.
    Total,
    /// `norm = sqrt(x)` and `factor = min(1, largest / (norm + 1e-6))`, of a sum of squares.
    ClipFactor {
        /// The largest norm; 0: none, the factor is 1.
        largest: f64,
    },
    /// One step of `AdamW` with decoupled decay, of `w`, its moments `m` and `v`, its gradient `g`, and three numbers: a
    /// factor of the gradient, the rate `lr` and the steps before, `t - 1`: `m = beta1 m + (1 - beta1) g`,
    /// `v = beta2 v + (1 - beta2) g²`, both in place, and
    /// `w (1 - lr decay) - lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) + epsilon)`.
    AdamW {
        /// Share of the old first moment.
        beta1: f64,
        /// Share of the old second moment.
        beta2: f64,
        /// Added outside the root.
        epsilon: f64,
        /// Share of the weight that goes, times the rate.
        decay: f64,
    },
    /// `x = y`, in place.
    Assign,
    /// The same value in another layout; placement inserts it, `collective::lower` replaces it.
    Reshard,
    /// Partial → whole on `axes`.
    AllReduce {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
        /// How the parts combine.
        reduce: Reduce,
    },
    /// Sharded → whole on `axes`, the minor-most of `dim`.
    AllGather {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
        /// The dim that grows.
        dim: usize,
    },
    /// Partial → sharded on `axes`, which become the minor-most of `dim`.
    ReduceScatter {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
        /// The dim that shrinks.
        dim: usize,
        /// How the parts combine.
        reduce: Reduce,
    },
    /// Moves `axes` from the minor-most of dim `from` to the minor-most of dim `to`.
    AllToAll {
        /// Over the joint group of these axes.
        axes: Vec<AxisId>,
        /// The dim that grows.
        from: usize,
        /// The dim that shrinks.
        to: usize,
    },
    /// Whole → sharded on `axes`, the new minor-most of `dim`. Local.
    Slice {
        /// The axes.
        axes: Vec<AxisId>,
        /// The dim that shrinks.
        dim: usize,
    },
    /// Whole → partial sum on `axes`: the first rank of the group keeps the value, the others hold zeros. Local.
    Leader {
        /// The axes.
        axes: Vec<AxisId>,
    },
    /// Sharded on `axes`, the minor-most of `dim` → partial sum: each rank holds its shard among zeros. Local.
    Pad {
        /// The axes.
        axes: Vec<AxisId>,
        /// The dim that grows.
        dim: usize,
    },
}

impl Kind {
    /// The mesh axes a lowered op works over; none for the others.
    #[must_use]
    pub fn axes(&self) -> &[AxisId] {
        match self {
            Self::AllReduce { axes, .. }
            | Self::AllGather { axes, .. }
            | Self::ReduceScatter { axes, .. }
            | Self::AllToAll { axes, .. }
            | Self::Slice { axes, .. }
            | Self::Pad { axes, .. }
            | Self::Leader { axes } => axes,
            _ => &[],
        }
    }

    /// Whether ranks exchange data.
    #[must_use]
    pub const fn is_collective(&self) -> bool {
        matches!(
            self,
            Self::AllReduce { .. } | Self::AllGather { .. } | Self::ReduceScatter { .. } | Self::AllToAll { .. }
        )
    }

    /// The attributes as texts, in the order they print.
    #[must_use]
    pub fn attributes(&self, axis_names: &[String]) -> Vec<(&'static str, String)> {
        let names =
            |axes: &[AxisId]| axes.iter().map(|axis| axis_names[axis.index()].clone()).collect::<Vec<_>>().join("*");
        match self {
            Self::MatMul { spec } | Self::QuantMatMul { spec } => vec![("spec", spec.clone())],
            Self::Scale { by } => vec![("by", format!("{by:?}"))],
            Self::RmsNorm { epsilon } => vec![("epsilon", format!("{epsilon:?}"))],
            Self::Attention { scale } => vec![("scale", format!("{scale:?}"))],
            Self::AttentionGrad { scale } => vec![("scale", format!("{scale:?}"))],
            Self::ClipFactor { largest } => vec![("largest", format!("{largest:?}"))],
            Self::AdamW { beta1, beta2, epsilon, decay } => {
                let numbers = [("beta1", beta1), ("beta2", beta2), ("epsilon", epsilon), ("decay", decay)];
                numbers.map(|(key, number)| (key, format!("{number:?}"))).to_vec()
            }
            Self::ReduceSum { dim } | Self::ReduceMax { dim } => vec![("dim", dim.to_string())],
            Self::Cast { to } | Self::Widen { to } => vec![("to", to.to_string())],
            Self::Permute { dims } | Self::Expand { dims } => {
                vec![("dims", dims.iter().map(ToString::to_string).collect::<Vec<_>>().join("*"))]
            }
            Self::AllReduce { axes, reduce } => vec![("axes", names(axes)), ("reduce", reduce.to_string())],
            Self::AllGather { axes, dim } | Self::Slice { axes, dim } | Self::Pad { axes, dim } => {
                vec![("axes", names(axes)), ("dim", dim.to_string())]
            }
            Self::ReduceScatter { axes, dim, reduce } => {
                vec![("axes", names(axes)), ("dim", dim.to_string()), ("reduce", reduce.to_string())]
            }
            Self::AllToAll { axes, from, to } => {
                vec![("axes", names(axes)), ("from", from.to_string()), ("to", to.to_string())]
            }
            Self::Leader { axes } => vec![("axes", names(axes))],
            Self::Embed
            | Self::Add
            | Self::Mul
            | Self::Silu
            | Self::SwiGlu
            | Self::Rope
            | Self::CacheWrite
            | Self::Take
            | Self::IndexOf
            | Self::ReduceTo
            | Self::SiluGrad
            | Self::SwiGluGrad
            | Self::RmsNormGrad
            | Self::EmbedGrad
            | Self::TakeGrad
            | Self::SumExp
            | Self::LogProbability
            | Self::LogProbabilityGrad
            | Self::Total
            | Self::Assign
            | Self::Reshard => Vec::new(),
        }
    }

    /// The op of that name and attributes; the inverse of [`Kind::attributes`].
    ///
    /// # Errors
    /// A sentence naming an unknown op, or an attribute that is missing or no value of its type.
    pub fn from_attributes(
        name: &str,
        attribute: &dyn Fn(&'static str) -> Result<String, String>,
        axis_names: &[String],
    ) -> Result<Self, String> {
        fn parse<T: std::str::FromStr>(key: &'static str, text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("`{text}` is no value of `{key}`"))
        }
        let number = |key| attribute(key).and_then(|text| parse::<usize>(key, &text));
        let real = |key| attribute(key).and_then(|text| parse::<f64>(key, &text));
        let axes = || -> Result<Vec<AxisId>, String> {
            attribute("axes")?
                .split('*')
                .map(|axis| {
                    let index = axis_names.iter().position(|known| known == axis);
                    index.map(AxisId::from_index).ok_or_else(|| format!("the mesh has no axis `{axis}`"))
                })
                .collect()
        };
        let dims =
            || -> Result<Vec<usize>, String> { attribute("dims")?.split('*').map(|dim| parse("dims", dim)).collect() };
        let reduce = || {
            let text = attribute("reduce")?;
            Reduce::named(&text).ok_or_else(|| format!("`{text}` is no reduction"))
        };
        Ok(match name {
            "embed" => Self::Embed,
            "matmul" => Self::MatMul { spec: attribute("spec")? },
            "quant_matmul" => Self::QuantMatMul { spec: attribute("spec")? },
            "add" => Self::Add,
            "mul" => Self::Mul,
            "scale" => Self::Scale { by: real("by")? },
            "silu" => Self::Silu,
            "swiglu" => Self::SwiGlu,
            "rms_norm" => Self::RmsNorm { epsilon: real("epsilon")? },
            "rope" => Self::Rope,
            "attention" => Self::Attention { scale: real("scale")? },
            "cache_write" => Self::CacheWrite,
            "take" => Self::Take,
            "reduce_sum" => Self::ReduceSum { dim: number("dim")? },
            "reduce_max" => Self::ReduceMax { dim: number("dim")? },
            "index_of" => Self::IndexOf,
            "cast" => Self::Cast { to: attribute("to")?.parse().map_err(|e| format!("{e}"))? },
            "widen" => Self::Widen { to: attribute("to")?.parse().map_err(|e| format!("{e}"))? },
            "permute" => Self::Permute { dims: dims()? },
            "expand" => Self::Expand { dims: dims()? },
            "reduce_to" => Self::ReduceTo,
            "silu_grad" => Self::SiluGrad,
            "swiglu_grad" => Self::SwiGluGrad,
            "rms_norm_grad" => Self::RmsNormGrad,
            "attention_grad" => Self::AttentionGrad { scale: real("scale")? },
            "embed_grad" => Self::EmbedGrad,
            "take_grad" => Self::TakeGrad,
            "sum_exp" => Self::SumExp,
            "log_probability" => Self::LogProbability,
            "log_probability_grad" => Self::LogProbabilityGrad,
            "total" => Self::Total,
            "clip_factor" => Self::ClipFactor { largest: real("largest")? },
            "adamw" => Self::AdamW {
                beta1: real("beta1")?,
                beta2: real("beta2")?,
                epsilon: real("epsilon")?,
                decay: real("decay")?,
            },
            "assign" => Self::Assign,
            "reshard" => Self::Reshard,
            "all_reduce" => Self::AllReduce { axes: axes()?, reduce: reduce()? },
            "all_gather" => Self::AllGather { axes: axes()?, dim: number("dim")? },
            "reduce_scatter" => Self::ReduceScatter { axes: axes()?, dim: number("dim")?, reduce: reduce()? },
            "all_to_all" => Self::AllToAll { axes: axes()?, from: number("from")?, to: number("to")? },
            "slice" => Self::Slice { axes: axes()?, dim: number("dim")? },
            "leader" => Self::Leader { axes: axes()? },
            "pad" => Self::Pad { axes: axes()?, dim: number("dim")? },
            other => return Err(format!("`{other}` is no op")),
        })
    }
}
