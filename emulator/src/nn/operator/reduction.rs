//! Rows of the reductions, running sums and sorts.

use super::call::{OperatorCall, Tensor};
use super::row::{Operator, attribute, input, ints, output};
use super::sets::{ARITHMETIC, FLOATING, INDEX, INDEX64, NUMBER};
use super::{Plan, Refusal};
use crate::nn::dtype::DType::{self, BF16, Bool, F16, F32, I64};
use crate::nn::lane::{Arithmetic, Lane, with_lane};
use crate::nn::order::{self, Direction};
use crate::nn::reduce;

/// What aclnnMaxDim takes on CANN 8.1.
const MAX_DIM: &[DType] = &[F32, F16, BF16, I64, Bool];

pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnReduceSum",
        parameters: &[
            input("self", ARITHMETIC, 0, 8),
            ints("dims"),
            attribute("keepDims"),
            attribute("dtype"),
            output("out", NUMBER, 0, 8),
        ],
        limits: "no dims means all; out has the type dtype, into which self is converted before it is summed",
        source: "ops-math math/reduce_sum/docs/aclnnReduceSum.md",
        plan: |call| sum(call, "dims", "keepDims", Share::Whole),
    },
    Operator {
        name: "aclnnMean",
        parameters: &[
            input("self", FLOATING, 0, 8),
            ints("dim"),
            attribute("keepDim"),
            attribute("dtype"),
            output("out", FLOATING, 0, 8),
        ],
        limits: "no dims means all; out has the type dtype",
        source: "CANN 8.1 aclnn API reference, aclnnMean",
        plan: |call| sum(call, "dim", "keepDim", Share::OfEach),
    },
    Operator {
        name: "aclnnAmax",
        parameters: &[
            input("self", ARITHMETIC, 0, 8),
            ints("dim"),
            attribute("keepDim"),
            output("out", ARITHMETIC, 0, 8),
        ],
        limits: "no dims means all; the reduced dims are not empty; out has the type of self",
        source: "ops-math math/reduce_max/docs/aclnnAmax.md",
        plan: amax,
    },
    Operator {
        name: "aclnnMax",
        parameters: &[input("self", ARITHMETIC, 0, 8), output("out", ARITHMETIC, 0, 0)],
        limits: "self is not empty; out has no dims and the type of self",
        source: "ops-math math/reduce_max/docs/aclnnMax.md",
        plan: max_all,
    },
    Operator {
        name: "aclnnMaxDim",
        parameters: &[
            input("self", MAX_DIM, 1, 8),
            attribute("dim"),
            attribute("keepdim"),
            output("out", MAX_DIM, 0, 8),
            output("indices", INDEX, 0, 8),
        ],
        limits: "dim is not empty; out has the type of self; of equal maxima the first wins",
        source: "ops-math math/arg_max_with_value/docs/aclnnMaxDim.md (CANN 8.1: no INT32 in self)",
        plan: max_dim,
    },
    Operator {
        name: "aclnnArgMax",
        parameters: &[input("self", NUMBER, 0, 8), attribute("dim"), attribute("keepdim"), output("out", INDEX, 0, 8)],
        limits: "dim is not empty; of equal maxima the first wins",
        source: "ops-math math/arg_max_v2/docs/aclnnArgMax.md",
        plan: arg_max,
    },
    Operator {
        name: "aclnnCumsum",
        parameters: &[input("self", NUMBER, 0, 8), attribute("dim"), attribute("dtype"), output("out", NUMBER, 0, 8)],
        limits: "out has the shape of self and the type dtype",
        source: "CANN 8.1 aclnn API reference, aclnnCumsum",
        plan: cumsum,
    },
    Operator {
        name: "aclnnTopk",
        parameters: &[
            input("self", NUMBER, 1, 8),
            attribute("k"),
            attribute("dim"),
            attribute("largest"),
            attribute("sorted"),
            output("valuesOut", NUMBER, 1, 8),
            output("indicesOut", INDEX64, 1, 8),
        ],
        limits: "0 <= k <= extent of dim; sorted is true; of equal values the lower index comes first",
        source: "CANN 8.1 aclnn API reference, aclnnTopk",
        plan: topk,
    },
    Operator {
        name: "aclnnSort",
        parameters: &[
            input("self", NUMBER, 1, 8),
            attribute("stable"),
            attribute("dim"),
            attribute("descending"),
            output("valuesOut", NUMBER, 1, 8),
            output("indicesOut", INDEX64, 1, 8),
        ],
        limits: "outputs have the shape of self; always stable",
        source: "ops-math math/sort/docs/aclnnSort.md",
        plan: sort,
    },
];

/// The dims an array names, each once, in order; none means all.
fn dims(call: &OperatorCall<'_>, name: &str, rank: usize) -> Result<Vec<usize>, Refusal> {
    let mut dims = Vec::new();
    for &value in call.ints(name)? {
        let dim = call.dim_of(name, value, rank)?;
        if dims.contains(&dim) {
            return Err(call.refuse(name, format!("names dim {dim} twice: {:?}", call.ints(name)?)));
        }
        dims.push(dim);
    }
    if dims.is_empty() || rank == 0 {
        dims = (0..rank).collect();
    }
    dims.sort_unstable();
    Ok(dims)
}

/// The shape of a tensor after reducing `dims`.
fn reduced_shape(x: &[usize], dims: &[usize], keep: bool) -> Vec<usize> {
    let one = |i: usize| if dims.contains(&i) { keep.then_some(1) } else { Some(x[i]) };
    (0..x.len()).filter_map(one).collect()
}

/// Number of elements reduced to one.
fn reduced_len(x: &[usize], dims: &[usize]) -> usize {
    dims.iter().map(|&dim| x[dim]).product()
}

fn refuse_empty(call: &OperatorCall<'_>, x: &Tensor, dims: &[usize]) -> Result<(), Refusal> {
    if reduced_len(&x.dims, dims) == 0 {
        return Err(call.refuse("self", format!("an empty dim has no maximum: {:?} over dims {dims:?}", x.dims)));
    }
    Ok(())
}

/// Whether a sum is divided by the number of its terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Whole,
    OfEach,
}

fn sum(call: &OperatorCall<'_>, dims_name: &str, keep_name: &str, share: Share) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    let dims = dims(call, dims_name, x.rank())?;
    let computed = call.data_type("dtype")?;
    call.expect_dtype("out", computed, "the attribute dtype")?;
    if x.dtype.is_float() && !computed.is_float() {
        return Err(call.refuse("dtype", format!("{computed} cannot hold a sum of {}", x.dtype)));
    }
    call.expect_shape(
        "out",
        &reduced_shape(&x.dims, &dims, call.flag(keep_name)?),
        "of self without the reduced dims",
    )?;
    let count = reduced_len(&x.dims, &dims);
    let (slot, out) = (x.slot, call.tensor("out")?.slot);
    Plan::new(move |views, tiles| {
        let rows = reduce::with_trailing(views.of(slot), &dims);
        with_lane!(computed, L => {
            let divisor = L::from_i64(count as i64);
            let finish = |total: L| if share == Share::OfEach { total.over(divisor) } else { total };
            reduce::sum::<L>(tiles, &rows, count, views.of(out), finish);
        });
        Ok(())
    })
}

fn amax(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    let dims = dims(call, "dim", x.rank())?;
    refuse_empty(call, x, &dims)?;
    call.expect_dtype("out", x.dtype, "that of self")?;
    call.expect_shape(
        "out",
        &reduced_shape(&x.dims, &dims, call.flag("keepDim")?),
        "of self without the reduced dims",
    )?;
    greatest(x, dims, Some("out"), None, call)
}

fn max_all(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    let dims: Vec<usize> = (0..x.rank()).collect();
    refuse_empty(call, x, &dims)?;
    call.expect_dtype("out", x.dtype, "that of self")?;
    greatest(x, dims, Some("out"), None, call)
}

fn max_dim(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    let dims = vec![call.dim("dim", x.rank())?];
    refuse_empty(call, x, &dims)?;
    call.expect_dtype("out", x.dtype, "that of self")?;
    let shape = reduced_shape(&x.dims, &dims, call.flag("keepdim")?);
    for name in ["out", "indices"] {
        call.expect_shape(name, &shape, "of self without dim, or with 1 there if keepdim")?;
    }
    greatest(x, dims, Some("out"), Some("indices"), call)
}

fn arg_max(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", x.rank())?;
    let dims: Vec<usize> = (0..x.rank()).filter(|&i| i == dim).collect();
    refuse_empty(call, x, &dims)?;
    let shape = reduced_shape(&x.dims, &dims, call.flag("keepdim")?);
    call.expect_shape("out", &shape, "of self without dim, or with 1 there if keepdim")?;
    greatest(x, dims, None, Some("out"), call)
}

/// The plan of a maximum over `dims`, once everything is checked.
fn greatest(
    x: &Tensor,
    dims: Vec<usize>,
    values: Option<&str>,
    indices: Option<&str>,
    call: &OperatorCall<'_>,
) -> Result<Plan, Refusal> {
    let slot_of = |name: Option<&str>| name.map(|name| call.tensor(name).map(|tensor| tensor.slot)).transpose();
    let (values, indices) = (slot_of(values)?, slot_of(indices)?);
    let (slot, dtype, count) = (x.slot, x.dtype, reduced_len(&x.dims, &dims));
    Plan::new(move |views, tiles| {
        let rows = reduce::with_trailing(views.of(slot), &dims);
        let (values, indices) = (values.map(|slot| views.of(slot)), indices.map(|slot| views.of(slot)));
        with_lane!(dtype, L => reduce::max::<L>(tiles, &rows, count, values, indices));
        Ok(())
    })
}

fn cumsum(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", x.rank())?;
    let computed = call.data_type("dtype")?;
    call.expect_dtype("out", computed, "the attribute dtype")?;
    if x.dtype.is_float() && !computed.is_float() {
        return Err(call.refuse("dtype", format!("{computed} cannot hold a sum of {}", x.dtype)));
    }
    call.expect_shape("out", &x.dims, "of self")?;
    let (slot, out, rank) = (x.slot, call.tensor("out")?.slot, x.rank());
    let row_len = x.dims.get(dim).copied().unwrap_or(1);
    Plan::new(move |views, tiles| {
        let last = |slot| if rank == 0 { views.of(slot).clone() } else { views.of(slot).with_last(dim) };
        with_lane!(computed, L => reduce::cumulative_sum::<L>(tiles, &last(slot), row_len, &last(out)));
        Ok(())
    })
}

fn topk(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", x.rank())?;
    let k = call.int("k")?;
    if k < 0 || k > x.dims[dim] as i64 {
        return Err(call.refuse("k", format!("expected 0 to {} (extent of dim {dim}), found {k}", x.dims[dim])));
    }
    if !call.flag("sorted")? {
        return Err(call.refuse("sorted", "expected true: the card always sorts"));
    }
    let mut shape = x.dims.clone();
    shape[dim] = k as usize;
    let direction = if call.flag("largest")? { Direction::Descending } else { Direction::Ascending };
    ordered(call, x, dim, &shape, direction)
}

fn sort(call: &OperatorCall<'_>) -> Result<Plan, Refusal> {
    let x = call.tensor("self")?;
    let dim = call.dim("dim", x.rank())?;
    call.flag("stable")?;
    let direction = if call.flag("descending")? { Direction::Descending } else { Direction::Ascending };
    ordered(call, x, dim, &x.dims, direction)
}

fn ordered(
    call: &OperatorCall<'_>,
    x: &Tensor,
    dim: usize,
    shape: &[usize],
    direction: Direction,
) -> Result<Plan, Refusal> {
    for name in ["valuesOut", "indicesOut"] {
        call.expect_shape(name, shape, "of self with the sorted extent")?;
    }
    call.expect_dtype("valuesOut", x.dtype, "that of self")?;
    let (slot, dtype, row_len, k) = (x.slot, x.dtype, x.dims[dim], shape[dim]);
    let (values, indices) = (call.tensor("valuesOut")?.slot, call.tensor("indicesOut")?.slot);
    Plan::new(move |views, tiles| {
        let last = |slot| views.of(slot).with_last(dim);
        with_lane!(dtype, L => {
            order::sort::<L>(tiles, &last(slot), row_len, k, direction, &last(values), &last(indices));
        });
        Ok(())
    })
}
