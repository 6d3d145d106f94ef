//! Writes and reads at indices, positions or masks.

use crate::dtype::AclType;
use crate::elementwise::kernels as elementwise;
use crate::elementwise::pointwise::{Function, numbers, reals};
use crate::indexing::kernels::{self as index, Negative, Update};
use crate::lane::{Arithmetic, Lane, with_lane};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, in_place, input, output};
use crate::operator::sets::{ANY, ARITHMETIC, INDEXES, MASKS, NUMBER};
use crate::operator::{CallPlan, Refusal, StridedViews};

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnScatter",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(INDEX, INDEXES, 0, 8),
            input(SRC, ARITHMETIC, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "index within src and, except along dim, within self; one element type; reduce is 0 (the last value \
                 stays), 1 (add) or 2 (multiply); indices in 0..extent",
        source: "CANN 8.1 aclnn API reference, aclnnScatter",
        plan: |call| scatter(call, Some(call.tensor(SRC)?)),
    },
    Operator {
        name: "aclnnScatterValue",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(INDEX, INDEXES, 0, 8),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "as aclnnScatter, with one value, which is converted to the type of self",
        source: "CANN 8.1 aclnn API reference, aclnnScatterValue",
        plan: |call| scatter(call, None),
    },
    Operator {
        name: "aclnnTake",
        parameters: &[input(SELF, ANY, 0, 8), input(INDEX, INDEXES, 0, 8), output(OUT, ANY, 0, 8)],
        limits: "out has the shape of index and the type of self; positions in the flattened self, from the end if \
                 negative",
        source: "CANN 8.1 aclnn API reference, aclnnTake",
        plan: take,
    },
    Operator {
        name: "aclnnInplacePut",
        parameters: &[
            in_place(SELF_REF, ARITHMETIC, 0, 8),
            input(INDEX, INDEXES, 0, 8),
            input(SOURCE, ARITHMETIC, 0, 8),
        ],
        limits: "source has as many elements as index and the type of selfRef; positions as in aclnnTake; values are \
                 added if accumulate is true, otherwise the last value of a position stays",
        source: "CANN 8.1 aclnn API reference, aclnnInplacePut",
        plan: put,
    },
    Operator {
        name: "aclnnInplaceMaskedScatter",
        parameters: &[in_place(SELF_REF, ANY, 0, 8), input(MASK, MASKS, 0, 8), input(SOURCE, ANY, 0, 8)],
        limits: "mask broadcasts to selfRef; source has its type and at least as many elements as the mask selects",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceMaskedScatter",
        plan: masked_scatter,
    },
    Operator {
        name: "aclnnInplaceMaskedFillTensor",
        parameters: &[
            in_place(SELF_REF, ARITHMETIC, 0, 8),
            input(MASK, MASKS, 0, 8),
            input(VALUE, ARITHMETIC, 0, 1),
        ],
        limits: "mask broadcasts to selfRef; value has one element, which is converted to its type",
        source: "CANN 8.1 aclnn API reference, aclnnInplaceMaskedFillTensor",
        plan: masked_fill,
    },
    Operator {
        name: "aclnnIndexFillTensor",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 8)],
        limits: "out has the shape and type of self; indices in -extent..extent",
        source: "CANN 8.1 aclnn API reference, aclnnIndexFillTensor",
        plan: index_array_fill,
    },
    Operator {
        name: "aclnnIndexFill",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            input(INDEX, INDEXES, 0, 1),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "out has the shape and type of self; indices in -extent..extent",
        source: "ops-nn index/index_fill_d/docs/aclnnIndexFill&aclnnInplaceIndexFill.md",
        plan: index_fill,
    },
    Operator {
        name: "aclnnLinalgCross",
        parameters: &[input(SELF, NUMBER, 1, 8), input(OTHER, NUMBER, 1, 8), output(OUT, NUMBER, 1, 8)],
        limits: "self and other broadcast to out and have one element type and 3 elements along dim",
        source: "CANN 8.1 aclnn API reference, aclnnLinalgCross",
        plan: cross,
    },
    Operator {
        name: "aclnnBincount",
        parameters: &[
            input(SELF, COUNTED, 1, 1),
            input(WEIGHTS, NUMBER, 1, 1).optional(),
            output(OUT, COUNTS, 1, 1),
        ],
        limits: "weights has the shape of self; out has at least minlength elements, and one for each value of self",
        source: "CANN 8.1 aclnn API reference, aclnnBincount",
        plan: count,
    },
    Operator {
        name: "aclnnScatterNd",
        parameters: &[
            input(DATA, PLACED, 1, 8),
            input(INDICES, INDEXES, 1, 8),
            input(UPDATES, PLACED, 1, 8),
            output(OUT, PLACED, 1, 8),
        ],
        limits: "indices [.., n] with n at most the dims of data, from 0 on; updates has the dims of indices without \
                 the last, then the dims of data from n on; out has the shape of data; one element type; the last \
                 value of a position stays",
        source: "ops-nn index/scatter_nd/docs/aclnnScatterNd.md",
        plan: |call| scatter_nd(call, DATA),
    },
    Operator {
        name: "aclnnScatterNdUpdate",
        parameters: &[
            in_place(VAR_REF, PLACED, 1, 8),
            input(INDICES, INDEXES, 1, 8),
            input(UPDATES, PLACED, 1, 8),
        ],
        limits: "as aclnnScatterNd, in place",
        source: "CANN 8.1 aclnn API reference, aclnnScatterNdUpdate",
        plan: |call| scatter_nd(call, VAR_REF),
    },
];

fn expect_like_self(call: &OperatorCall) -> Result<(), Refusal> {
    let x = call.tensor(SELF)?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    call.expect_shape(OUT, &x.dims, "of self")
}

fn scatter(call: &OperatorCall, source: Option<&CheckedTensor>) -> Result<CallPlan, Refusal> {
    let (x, index) = (call.tensor(SELF)?, call.tensor(INDEX)?);
    expect_like_self(call)?;
    let dim = call.dim(DIM, x.rank())?;
    if let Some(source) = source {
        call.expect_dtype(SRC, x.dtype, "the type of self")?;
        if source.rank() != index.rank()
            || source.dims.iter().zip(&index.dims).any(|(own, index)| own < index)
        {
            return Err(call.refuse(INDEX, format!("{:?} is not within src {:?}", index.dims, source.dims)));
        }
    }
    let outside = |at: usize| at != dim && index.dims[at] > x.dims[at];
    if index.rank() != x.rank() || (0..x.rank()).any(outside) {
        let text = format!("{:?} is, except along dim {dim}, not within self {:?}", index.dims, x.dims);
        return Err(call.refuse(INDEX, text));
    }
    let reduce = call.int(REDUCE)?;
    if !(0..=2).contains(&reduce) {
        return Err(call.refuse(REDUCE, format!("expected 0, 1 or 2, found {reduce}")));
    }
    let value = if source.is_none() { Some(call.scalar(VALUE_SCALAR)?.stored_as(x.dtype)) } else { None };
    let (source, index, dtype) = (source.map(|source| source.slot), index.slot, x.dtype);
    let (x, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        elementwise::copy(tiles, views.of(x), views.of(out));
        with_lane!(dtype, L => {
            let value = value.map_or_else(L::default, |value| value.lane::<L>());
            let source = source.map(|slot| views.of(slot)).ok_or(value);
            index::scatter::<L>(views.of(out), dim, views.of(index), source, |held, value| match reduce {
                1 => held.plus(value),
                2 => held.times(value),
                _ => value,
            })
        })
    })
}

fn take(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, index) = (call.tensor(SELF)?, call.tensor(INDEX)?);
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    call.expect_shape(OUT, &index.dims, "of index")?;
    let (extent, x, index, out) = (x.len(), x.slot, index.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let places = index::positions(views.of(index), extent, Negative::FromTheEnd)?;
        index::take_rows(tiles, views.of(x), &places, views.of(out));
        Ok(())
    })
}

fn put(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, index, source) = (call.tensor(SELF_REF)?, call.tensor(INDEX)?, call.tensor(SOURCE)?);
    call.expect_dtype(SOURCE, x.dtype, "the type of selfRef")?;
    if source.len() != index.len() {
        return Err(call.refuse(
            SOURCE,
            format!("expected {} elements as in index, found {:?}", index.len(), source.dims),
        ));
    }
    let update = if call.flag(ACCUMULATE)? { Update::Add } else { Update::Replace };
    if update == Update::Add && !PUT_ADDABLE.contains(&x.dtype) {
        return Err(call.refuse(SELF_REF, format!("{} cannot be added to", x.dtype)));
    }
    let (extent, dtype) = (x.len(), x.dtype);
    let (x, index, source) = (x.slot, index.slot, source.slot);
    CallPlan::new(move |views, _| {
        let places = index::positions(views.of(index), extent, Negative::FromTheEnd)?;
        with_lane!(dtype, L => index::put_rows::<L>(views.of(x), &places, views.of(source), update));
        Ok(())
    })
}

const PLACED: &[AclType] = &[AclType::F32, AclType::F16, AclType::BF16, AclType::Bool];
/// Types of values, and of counts or weight sums.
const COUNTED: &[AclType] = &[AclType::I8, AclType::I16, AclType::I32, AclType::I64, AclType::U8];
const COUNTS: &[AclType] = &[AclType::I32, AclType::I64, AclType::F32, AclType::F64];
const PUT_ADDABLE: &[AclType] = {
    use AclType::{Bool, F16, F32, F64, I8, I16, I32, I64, U8};
    &[F32, F16, F64, I8, I16, I32, I64, U8, Bool]
};

fn expect_mask(call: &OperatorCall) -> Result<(), Refusal> {
    let shape = call.broadcast(SELF_REF, MASK)?;
    call.expect_shape(SELF_REF, &shape, "to which mask must broadcast")
}

fn masked_scatter(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_mask(call)?;
    call.expect_dtype(SOURCE, call.tensor(SELF_REF)?.dtype, "the type of selfRef")?;
    let slot = |name: Name<CheckedTensor>| call.tensor(name).map(|tensor| tensor.slot);
    let [x, mask, source] = [slot(SELF_REF)?, slot(MASK)?, slot(SOURCE)?];
    CallPlan::new(move |views, _| index::fill_from(views.of(x), views.of(mask), views.of(source)))
}

fn masked_fill(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_mask(call)?;
    let (x, value) = (call.tensor(SELF_REF)?, call.tensor(VALUE)?);
    if value.len() != 1 {
        return Err(call.refuse(VALUE, format!("expected one element, found {:?}", value.dims)));
    }
    let (dtype, x, mask, value) = (value.dtype, x.slot, call.tensor(MASK)?.slot, value.slot);
    CallPlan::new(move |views, tiles| {
        // In the type of the value, to convert it once.
        with_lane!(dtype, L => {
            let mut one = [L::default()];
            L::load(&views.of(value).collapsed(), 0, &mut one);
            elementwise::masked_fill(tiles, views.of(x), views.of(mask), one[0]);
        });
        Ok(())
    })
}

fn index_array_fill(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    expect_like_self(call)?;
    let dim = call.dim(DIM, x.rank())?;
    let extent = x.dims.get(dim).copied().unwrap_or(1) as i64;
    let mut places = Vec::new();
    for &value in call.ints(INDEX_ARRAY)? {
        if value < -extent || value >= extent {
            return Err(
                call.refuse(INDEX_ARRAY, format!("expected {} to {}, found {value}", -extent, extent - 1))
            );
        }
        places.push(value.rem_euclid(extent) as usize);
    }
    fill_at(call, dim, move |_| Ok(places.clone()))
}

fn index_fill(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    expect_like_self(call)?;
    let dim = call.dim(DIM, x.rank())?;
    let (extent, index) = (x.dims.get(dim).copied().unwrap_or(1), call.tensor(INDEX)?.slot);
    fill_at(call, dim, move |views| {
        index::positions(views.of(index), extent, Negative::FromTheEnd)
            .map_err(|text| format!("index: {text}"))
    })
}

/// The positions are read when the call runs.
fn fill_at(
    call: &OperatorCall,
    dim: usize,
    places: impl Fn(&StridedViews<'_>) -> Result<Vec<usize>, String> + Send + Sync + 'static,
) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let value = call.scalar(VALUE_SCALAR)?.stored_as(x.dtype);
    let (rank, dtype, x, out) = (x.rank(), x.dtype, x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let out = views.of(out);
        elementwise::copy(tiles, views.of(x), out);
        for place in places(views)? {
            let part = if rank == 0 { out.clone() } else { out.slice(dim, place, 1, 1) };
            with_lane!(dtype, L => elementwise::fill(tiles, &part, value.lane::<L>()));
        }
        Ok(())
    })
}

fn cross(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, y) = (call.tensor(SELF)?, call.tensor(OTHER)?);
    let shape = call.broadcast(SELF, OTHER)?;
    call.expect_shape(OUT, &shape, "to which self and other broadcast")?;
    for name in [OTHER, OUT] {
        call.expect_dtype(name, x.dtype, "the type of self")?;
    }
    let dim = call.dim(DIM, shape.len())?;
    if x.rank() != y.rank() || x.dims[dim] != 3 || y.dims[dim] != 3 {
        let text = format!("expected 3 elements along dim {dim} of {:?} and {:?}", x.dims, y.dims);
        return Err(call.refuse(DIM, text));
    }
    let (dtype, x, y, out) = (x.dtype, x.slot, y.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let function: Function<4> = numbers!(|[a, b, c, d], _| a * b - c * d, |[a, b, c, d], _| a
            .wrapping_mul(b)
            .wrapping_sub(c.wrapping_mul(d)));
        for place in 0..3 {
            let (next, last) = ((place + 1) % 3, (place + 2) % 3);
            let of = |slot, at| views.of(slot).slice(dim, at, 1, 1);
            let operands = [of(x, next), of(y, last), of(x, last), of(y, next)];
            function.run(tiles, operands.each_ref(), &[], dtype, &of(out, place));
        }
        Ok(())
    })
}

fn count(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let (x, out) = (call.tensor(SELF)?, call.tensor(OUT)?);
    let weights = call.tensor_if_given(WEIGHTS)?;
    if weights.is_some() {
        call.expect_shape(WEIGHTS, &x.dims, "of self")?;
    }
    let least = call.int(MIN_LENGTH)?;
    if (out.len() as i64) < least {
        return Err(call.refuse(OUT, format!("expected {least} or more elements, found {:?}", out.dims)));
    }
    if weights.is_some_and(|weights| weights.dtype.is_float()) && !out.dtype.is_float() {
        return Err(call.refuse(OUT, format!("{} cannot hold sums of weights", out.dtype)));
    }
    let (len, x, weights, out) = (out.len(), x.slot, weights.map(|weights| weights.slot), out.slot);
    CallPlan::new(move |views, _| {
        let places = index::positions(views.of(x), len, Negative::Refused)?;
        let mut factors = vec![1f64; places.len()];
        if let Some(weights) = weights {
            f64::load(&views.of(weights).collapsed(), 0, &mut factors);
        }
        let mut sums = vec![0f64; len];
        places.into_iter().zip(factors).for_each(|(place, factor)| sums[place] += factor);
        f64::store(&views.of(out).collapsed(), 0, &sums);
        Ok(())
    })
}

fn scatter_nd(call: &OperatorCall, data: Name<CheckedTensor>) -> Result<CallPlan, Refusal> {
    let target = if call.has(OUT) { OUT } else { data };
    let (data, indices, updates) = (call.tensor(data)?, call.tensor(INDICES)?, call.tensor(UPDATES)?);
    for name in [UPDATES, target] {
        call.expect_dtype(name, data.dtype, "the type of data")?;
    }
    call.expect_shape(target, &data.dims, "of data")?;
    let (outer, depth) = (&indices.dims[..indices.rank() - 1], indices.dims[indices.rank() - 1]);
    if depth > data.rank() {
        let text =
            format!("expected at most {} numbers per index, the rank of data, found {depth}", data.rank());
        return Err(call.refuse(INDICES, text));
    }
    call.expect_shape(UPDATES, &[outer, &data.dims[depth..]].concat(), "dims of indices, then dims of data")?;
    let (extents, data_slot, indices) = (data.dims[..depth].to_vec(), data.slot, indices.slot);
    let (updates, out_slot) = (updates.slot, call.slot(target)?);
    CallPlan::new(move |views, tiles| {
        let (indices, updates, out) = (views.of(indices), views.of(updates), views.of(out_slot));
        // Empty updates store nothing, for any index shape.
        let places = if updates.is_empty() { Vec::new() } else { index::places(indices, &extents)? };
        if out_slot != data_slot {
            elementwise::copy(tiles, views.of(data_slot), out);
        }
        index::put_rows::<i64>(out, &places, updates, Update::Replace);
        Ok(())
    })
}
