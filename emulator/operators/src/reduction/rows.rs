//! Rows of reductions, running sums and sorts.

use crate::dtype::AclType::{self, BF16, Bool, F16, F32, I64};
use crate::lane::{Arithmetic, Lane, with_lane};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output};
use crate::operator::sets::{ARITHMETIC, FLOATING, INDEX64, INDEXES, NUMBER, REAL};
use crate::operator::{CallPlan, Refusal};
use crate::reduction::kernels as reduce;
use crate::reduction::order::{self as order, Direction};

const MAX_DIM: &[AclType] = &[F32, F16, BF16, I64, Bool];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnReduceSum",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), ints(DIMS).optional(), output(OUT, NUMBER, 0, 8)],
        limits: "no dims means all; out has the type dtype; self is converted to dtype before the sum",
        source: "ops-math math/reduce_sum/docs/aclnnReduceSum.md",
        plan: |call| sum(call, DIMS, KEEP_DIMS, Averaging::Whole),
    },
    Operator {
        name: "aclnnReduceNansum",
        parameters: &[input(SELF, REAL, 0, 8), ints(DIM_ARRAY).optional(), output(OUT, REAL, 0, 8)],
        limits: "no dims means all; NaN counts as 0; out has the type dtype; summed in DOUBLE and rounded once",
        source: "CANN 8.1 aclnn API reference, aclnnReduceNansum",
        plan: nan_sum,
    },
    Operator {
        name: "aclnnMean",
        parameters: &[input(SELF, FLOATING, 0, 8), ints(DIM_ARRAY).optional(), output(OUT, FLOATING, 0, 8)],
        limits: "no dims means all; out has the type dtype",
        source: "CANN 8.1 aclnn API reference, aclnnMean",
        plan: |call| sum(call, DIM_ARRAY, KEEP_DIM, Averaging::OfEach),
    },
    Operator {
        name: "aclnnAmax",
        parameters: &[
            input(SELF, ARITHMETIC, 0, 8),
            ints(DIM_ARRAY).optional(),
            output(OUT, ARITHMETIC, 0, 8),
        ],
        limits: "no dims means all; the reduced dims are not empty; out has the type of self",
        source: "ops-math math/reduce_max/docs/aclnnAmax.md",
        plan: amax,
    },
    Operator {
        name: "aclnnMax",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, ARITHMETIC, 0, 1)],
        limits: "self is not empty; out has one element and the type of self",
        source: "ops-math math/reduce_max/docs/aclnnMax.md",
        plan: max_all,
    },
    Operator {
        name: "aclnnMaxDim",
        parameters: &[
            input(SELF, MAX_DIM, 1, 8).or_scalar(),
            output(OUT, MAX_DIM, 0, 8),
            output(INDICES, INDEXES, 0, 8),
        ],
        limits: "dim is not empty; out has the type of self; the first of equal maxima wins",
        source: "ops-math math/arg_max_with_value/docs/aclnnMaxDim.md (CANN 8.1: no INT32 in self)",
        plan: max_dim,
    },
    Operator {
        name: "aclnnArgMax",
        parameters: &[input(SELF, NUMBER, 0, 8), output(OUT, INDEXES, 0, 8)],
        limits: "dim is not empty; the first of equal maxima wins",
        source: "ops-math math/arg_max_v2/docs/aclnnArgMax.md",
        plan: arg_max,
    },
    Operator {
        name: "aclnnCumsum",
        parameters: &[input(SELF, ARITHMETIC, 0, 8), output(OUT, NUMBER, 0, 8)],
        limits: "out has the shape of self and the type dtype",
        source: "CANN 8.1 aclnn API reference, aclnnCumsum",
        plan: cumsum,
    },
    Operator {
        name: "aclnnTopk",
        parameters: &[
            input(SELF, NUMBER, 1, 8).or_scalar(),
            output(VALUES_OUT, NUMBER, 1, 8).or_scalar(),
            output(INDICES_OUT, INDEX64, 1, 8).or_scalar(),
        ],
        limits: "0 <= k <= extent of dim; the values are always sorted; the lower index of equal values comes first",
        source: "CANN 8.1 aclnn API reference, aclnnTopk",
        plan: topk,
    },
    Operator {
        name: "aclnnSort",
        parameters: &[
            input(SELF, NUMBER, 1, 8),
            output(VALUES_OUT, NUMBER, 1, 8),
            output(INDICES_OUT, INDEX64, 1, 8),
        ],
        limits: "outputs have the shape of self; always stable",
        source: "ops-math math/sort/docs/aclnnSort.md",
        plan: sort,
    },
];

/// Returns distinct sorted dims; an empty array means all.
pub(crate) fn dims(call: &OperatorCall, name: Name<[i64]>, rank: usize) -> Result<Vec<usize>, Refusal> {
    let mut dims = Vec::new();
    // NULL may be an empty array.
    let values = call.ints_if_given(name)?.unwrap_or_default();
    for &value in values {
        let dim = call.dim_of(name, value, rank)?;
        if dims.contains(&dim) {
            return Err(call.refuse(name, format!("names dim {dim} twice: {values:?}")));
        }
        dims.push(dim);
    }
    if dims.is_empty() || rank == 0 {
        dims = (0..rank).collect();
    }
    dims.sort_unstable();
    Ok(dims)
}

pub(crate) fn reduced_shape(x: &[usize], dims: &[usize], keep: bool) -> Vec<usize> {
    let one = |i: usize| if dims.contains(&i) { keep.then_some(1) } else { Some(x[i]) };
    (0..x.len()).filter_map(one).collect()
}

/// Returns the elements per reduced value.
pub(crate) fn reduced_len(x: &[usize], dims: &[usize]) -> usize {
    dims.iter().map(|&dim| x[dim]).product()
}

pub(crate) fn refuse_empty(call: &OperatorCall, x: &CheckedTensor, dims: &[usize]) -> Result<(), Refusal> {
    if reduced_len(&x.dims, dims) == 0 {
        return Err(
            call.refuse(SELF, format!("an empty dim has no maximum: {:?} over dims {dims:?}", x.dims))
        );
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Averaging {
    Whole,
    OfEach,
}

fn sum(
    call: &OperatorCall,
    dims_name: Name<[i64]>,
    keep_name: Name<bool>,
    share: Averaging,
) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dims = dims(call, dims_name, x.rank())?;
    let computed = call.data_type(DTYPE)?;
    call.expect_dtype(OUT, computed, "the attribute dtype")?;
    if x.dtype.is_float() && !computed.is_float() {
        return Err(call.refuse(DTYPE, format!("{computed} cannot hold a sum of {}", x.dtype)));
    }
    call.expect_shape_or_one(
        OUT,
        &reduced_shape(&x.dims, &dims, call.flag(keep_name)?),
        "of self without the reduced dims",
    )?;
    let count = reduced_len(&x.dims, &dims);
    let (slot, out) = (x.slot, call.tensor(OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let rows = reduce::with_trailing(views.of(slot), &dims);
        with_lane!(computed, L => {
            let divisor = L::from_i64(count as i64);
            let finish = |total: L| if share == Averaging::OfEach { total.over(divisor) } else { total };
            reduce::sum::<L>(tiles, &rows, count, views.of(out), finish);
        });
        Ok(())
    })
}

fn nan_sum(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dims = dims(call, DIM_ARRAY, x.rank())?;
    call.expect_dtype(OUT, call.data_type(DTYPE)?, "the attribute dtype")?;
    let shape = reduced_shape(&x.dims, &dims, call.flag(KEEP_DIM)?);
    call.expect_shape_or_one(OUT, &shape, "of self without the reduced dims")?;
    let (count, [x, out]) = (reduced_len(&x.dims, &dims), call.slots_of([SELF, OUT])?);
    CallPlan::new(move |views, tiles| {
        let rows = reduce::with_trailing(views.of(x), &dims);
        reduce::each_row::<f64>(tiles, &rows, count, views.of(out), |row| {
            row.iter().filter(|value| !value.is_nan()).sum()
        });
        Ok(())
    })
}

fn amax(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dims = dims(call, DIM_ARRAY, x.rank())?;
    refuse_empty(call, x, &dims)?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    call.expect_shape(
        OUT,
        &reduced_shape(&x.dims, &dims, call.flag(KEEP_DIM)?),
        "of self without the reduced dims",
    )?;
    greatest(x, dims, Some(OUT), None, call)
}

fn max_all(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dims: Vec<usize> = (0..x.rank()).collect();
    refuse_empty(call, x, &dims)?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    if call.tensor(OUT)?.len() != 1 {
        return Err(call.refuse(OUT, format!("expected one element, found {:?}", call.tensor(OUT)?.dims)));
    }
    greatest(x, dims, Some(OUT), None, call)
}

fn max_dim(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dims = vec![call.dim(DIM, x.rank())?];
    refuse_empty(call, x, &dims)?;
    call.expect_dtype(OUT, x.dtype, "the type of self")?;
    let shape = reduced_shape(&x.dims, &dims, call.flag(KEEPDIM)?);
    for name in [OUT, INDICES] {
        call.expect_shape_or_one(name, &shape, "of self without dim, or with 1 there if keepdim")?;
    }
    greatest(x, dims, Some(OUT), Some(INDICES), call)
}

fn arg_max(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dim = call.dim(DIM, x.rank())?;
    let dims: Vec<usize> = (0..x.rank()).filter(|&i| i == dim).collect();
    refuse_empty(call, x, &dims)?;
    let shape = reduced_shape(&x.dims, &dims, call.flag(KEEPDIM)?);
    call.expect_shape(OUT, &shape, "of self without dim, or with 1 there if keepdim")?;
    greatest(x, dims, None, Some(OUT), call)
}

fn greatest(
    x: &CheckedTensor,
    dims: Vec<usize>,
    values: Option<Name<CheckedTensor>>,
    indices: Option<Name<CheckedTensor>>,
    call: &OperatorCall,
) -> Result<CallPlan, Refusal> {
    let slot_of = |name: Option<Name<CheckedTensor>>| {
        name.map(|name| call.tensor(name).map(|tensor| tensor.slot)).transpose()
    };
    let (values, indices) = (slot_of(values)?, slot_of(indices)?);
    let (slot, dtype, count) = (x.slot, x.dtype, reduced_len(&x.dims, &dims));
    CallPlan::new(move |views, tiles| {
        let rows = reduce::with_trailing(views.of(slot), &dims);
        let (values, indices) = (values.map(|slot| views.of(slot)), indices.map(|slot| views.of(slot)));
        with_lane!(dtype, L => reduce::max::<L>(tiles, &rows, count, values, indices));
        Ok(())
    })
}

fn cumsum(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dim = call.dim(DIM, x.rank())?;
    let computed = call.data_type(DTYPE)?;
    call.expect_dtype(OUT, computed, "the attribute dtype")?;
    if x.dtype.is_float() && !computed.is_float() {
        return Err(call.refuse(DTYPE, format!("{computed} cannot hold a sum of {}", x.dtype)));
    }
    call.expect_shape(OUT, &x.dims, "of self")?;
    let (slot, out, rank) = (x.slot, call.tensor(OUT)?.slot, x.rank());
    let row_len = x.dims.get(dim).copied().unwrap_or(1);
    CallPlan::new(move |views, tiles| {
        let last = |slot| if rank == 0 { views.of(slot).clone() } else { views.of(slot).with_last(dim) };
        with_lane!(computed, L => reduce::cumulative_sum::<L>(tiles, &last(slot), row_len, &last(out)));
        Ok(())
    })
}

fn topk(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dim = call.dim(DIM, x.rank())?;
    let k = call.int(K)?;
    if k < 0 || k > x.dims[dim] as i64 {
        return Err(call.refuse(K, format!("expected 0 to {} (extent of dim {dim}), found {k}", x.dims[dim])));
    }
    let mut shape = x.dims.clone();
    shape[dim] = k as usize;
    let direction = if call.flag(LARGEST)? { Direction::Descending } else { Direction::Ascending };
    ordered(call, x, dim, &shape, direction)
}

fn sort(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let x = call.tensor(SELF)?;
    let dim = call.dim(DIM, x.rank())?;
    call.flag(STABLE)?;
    let direction = if call.flag(DESCENDING)? { Direction::Descending } else { Direction::Ascending };
    ordered(call, x, dim, &x.dims, direction)
}

fn ordered(
    call: &OperatorCall,
    x: &CheckedTensor,
    dim: usize,
    shape: &[usize],
    direction: Direction,
) -> Result<CallPlan, Refusal> {
    for name in [VALUES_OUT, INDICES_OUT] {
        call.expect_shape(name, shape, "of self with the sorted extent")?;
    }
    call.expect_dtype(VALUES_OUT, x.dtype, "the type of self")?;
    let (slot, dtype, row_len, k) = (x.slot, x.dtype, x.dims[dim], shape[dim]);
    let (values, indices) = (call.tensor(VALUES_OUT)?.slot, call.tensor(INDICES_OUT)?.slot);
    CallPlan::new(move |views, tiles| {
        let last = |slot| views.of(slot).with_last(dim);
        with_lane!(dtype, L => {
            order::sort::<L>(tiles, &last(slot), row_len, k, direction, &last(values), &last(indices));
        });
        Ok(())
    })
}
