//! Matrix products fused with collectives.
//!
//! A plan has the product and describes the exchange, which `abi` runs. The results have the bits
//! of aclnnMatmul and a separate collective.

use ascend_tp_machine::Soc;

use crate::matmul::kernels::{self as matmul, OperandRounding, SumScales};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::plan::WorkspaceTensor;
use crate::operator::row::{Operator, Parameter, input, output};
use crate::operator::sets::HALVES;
use crate::operator::{CallPlan, Joined, JoinedExchange, Refusal, ViewIndex};
use crate::view::contiguous_strides;

const fn matrix(name: Name<CheckedTensor>) -> Parameter {
    input(name, HALVES, 2, 2)
}

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMatmulAllReduce",
        parameters: &[
            input(X1, HALVES, 2, 3).contiguous(),
            matrix(X2),
            input(BIAS, HALVES, 1, 1).optional(),
            output(OUTPUT, HALVES, 2, 3).contiguous(),
        ],
        limits: "output = all_reduce(x1 @ x2 + bias) over the communicator named group; one element type; x2 dense or \
                 transposed; reduceOp \"sum\", commTurn 0, streamMode 1; 2, 4 or 8 cards of an Atlas A2, none of an \
                 Atlas A3; no empty tensors; captured from CANN 8.5 on, as collectives are",
        source: "ops-transformer mc2/matmul_all_reduce/docs/aclnnMatmulAllReduce.md",
        plan: matmul_all_reduce,
    },
    Operator {
        name: "aclnnAllGatherMatmul",
        parameters: &[
            matrix(X1).contiguous(),
            matrix(X2),
            input(BIAS, HALVES, 1, 1).optional(),
            output(OUTPUT, HALVES, 2, 2).contiguous(),
            output(GATHER_OUT, HALVES, 2, 2).contiguous(),
        ],
        limits: "gatherOut = all_gather(x1), output = gatherOut @ x2; one element type; x2 dense or transposed; 256 to \
                 65534 elements contracted; bias NULL, because only a bias of 0 is documented; gatherIndex 0, commTurn \
                 0, streamMode 1; 2, 4 or 8 cards (Atlas A3: also 16 and 32); no empty tensors; captured from CANN 8.5 \
                 on",
        source: "ops-transformer mc2/all_gather_matmul/docs/aclnnAllGatherMatmul.md",
        plan: all_gather_matmul,
    },
    Operator {
        name: "aclnnMatmulReduceScatter",
        parameters: &[
            matrix(X1).contiguous(),
            matrix(X2),
            input(BIAS, HALVES, 1, 1).optional(),
            output(OUTPUT, HALVES, 2, 2).contiguous(),
        ],
        limits: "output = reduce_scatter(x1 @ x2) by rows; rows of x1 a multiple of the cards; the rest as aclnnAllGatherMatmul, \
                 reduceOp \"sum\"",
        source: "ops-transformer mc2/matmul_reduce_scatter/docs/aclnnMatmulReduceScatter.md",
        plan: matmul_reduce_scatter,
    },
];

/// Returns the contracted extent and the columns.
fn expect_product(call: &OperatorCall) -> Result<[usize; 2], Refusal> {
    let (x1, x2) = (call.tensor(X1)?, call.tensor(X2)?);
    for name in [X2, OUTPUT] {
        call.expect_dtype(name, x1.dtype, "the type of x1")?;
    }
    for (name, expected) in [(COMM_TURN, 0), (STREAM_MODE, 1)] {
        let found = call.int(name)?;
        if found != expected {
            return Err(call.refuse(name, format!("expected {expected}, found {found}")));
        }
    }
    if !x2.is_contiguous() && !x2.is_transposed() {
        let text = format!(
            "expected a dense or a transposed matrix, found {:?} with strides {:?}",
            x2.dims, x2.strides
        );
        return Err(call.refuse(X2, text));
    }
    let depth = x1.dims[x1.rank() - 1];
    if x2.dims[0] != depth {
        let text = format!("expected {depth} rows, the last dim of x1 {:?}, found {:?}", x1.dims, x2.dims);
        return Err(call.refuse(X2, text));
    }
    for (name, tensor) in [(X1, x1), (X2, x2)] {
        if tensor.is_empty() {
            return Err(
                call.refuse(name, format!("expected a tensor with elements, found {:?}", tensor.dims))
            );
        }
    }
    Ok([depth, x2.dims[1]])
}

/// Checks the two operators that shard rows.
fn expect_rows(call: &OperatorCall, depth: usize) -> Result<(), Refusal> {
    let (first, last) = (Soc::FUSED_ROWS.start(), Soc::FUSED_ROWS.end());
    if !Soc::FUSED_ROWS.contains(&depth) {
        let text = format!("expected {first} to {last} elements in a row, found {depth}");
        return Err(call.refuse(X1, text));
    }
    match call.tensor_if_given(BIAS)? {
        Some(_) => Err(call.refuse(BIAS, "expected NULL: only a bias of 0 is documented")),
        None => Ok(()),
    }
}

pub(crate) fn expect_sum(call: &OperatorCall) -> Result<(), Refusal> {
    match call.text(REDUCE_OP)? {
        "sum" => Ok(()),
        other => Err(call.refuse(REDUCE_OP, format!("expected \"sum\", found {other:?}"))),
    }
}

/// Returns `whole / part`, which must be exact.
fn times(
    call: &OperatorCall,
    name: Name<CheckedTensor>,
    whole: usize,
    part: usize,
) -> Result<usize, Refusal> {
    let times = whole.checked_div(part).filter(|times| times * part == whole && whole > 0);
    times.ok_or_else(|| call.refuse(name, format!("expected a multiple of {part} rows, found {whole}")))
}

pub(crate) fn joined(call: &OperatorCall, exchange: JoinedExchange) -> Result<Joined, Refusal> {
    let group = call.text(GROUP_NAME)?.to_owned();
    Ok(Joined { group, exchange, tensors: Vec::new(), behind: None, check: None })
}

fn product(
    x: ViewIndex,
    x2: ViewIndex,
    bias: Option<ViewIndex>,
    out: ViewIndex,
) -> Result<CallPlan, Refusal> {
    let plan = CallPlan::new(move |views, tiles| {
        let (x, x2, out) = (views.of(x), views.of(x2), views.of(out));
        match bias {
            Some(bias) => {
                matmul::addmm(tiles, views.of(bias), x, x2, SumScales::ONE, OperandRounding::Keep, out);
            }
            None => matmul::matmul(tiles, x, x2, OperandRounding::Keep, out),
        }
        Ok(())
    });
    plan.map(CallPlan::reading_transposed)
}

fn matmul_all_reduce(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_sum(call)?;
    let [_, columns] = expect_product(call)?;
    let (x1, x2, out) = (call.tensor(X1)?, call.tensor(X2)?, call.tensor(OUTPUT)?);
    let mut expected = x1.dims.clone();
    expected[x1.rank() - 1] = columns;
    call.expect_shape(OUTPUT, &expected, "of x1 @ x2")?;
    let bias = call.tensor_if_given(BIAS)?;
    if bias.is_some() {
        call.expect_dtype(BIAS, x1.dtype, "the type of x1")?;
        call.expect_shape(BIAS, &[columns], "the columns of x2")?;
    }
    let plan = product(x1.slot, x2.slot, bias.map(|bias| bias.slot), out.slot)?;
    Ok(plan.joined(joined(call, JoinedExchange::AllReduce(out.slot))?))
}

fn all_gather_matmul(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    let index = call.int(GATHER_INDEX)?;
    if index != 0 {
        return Err(call.refuse(GATHER_INDEX, format!("expected 0 (x1 is gathered), found {index}")));
    }
    let [depth, columns] = expect_product(call)?;
    expect_rows(call, depth)?;
    call.expect_dtype(GATHER_OUT, call.tensor(X1)?.dtype, "the type of x1")?;
    let (x1, x2, out, gathered) =
        (call.tensor(X1)?, call.tensor(X2)?, call.tensor(OUTPUT)?, call.tensor(GATHER_OUT)?);
    let cards = times(call, OUTPUT, out.dims[0], x1.dims[0])?;
    call.expect_shape(OUTPUT, &[out.dims[0], columns], "the columns of x2")?;
    call.expect_shape(GATHER_OUT, &[out.dims[0], depth], "the rows of output and the columns of x1")?;
    let exchange = JoinedExchange::AllGather([x1.slot, gathered.slot], cards);
    Ok(product(gathered.slot, x2.slot, None, out.slot)?.joined(joined(call, exchange)?))
}

fn matmul_reduce_scatter(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    expect_sum(call)?;
    let [depth, columns] = expect_product(call)?;
    expect_rows(call, depth)?;
    let (x1, x2, out) = (call.tensor(X1)?, call.tensor(X2)?, call.tensor(OUTPUT)?);
    let cards = times(call, X1, x1.dims[0], out.dims[0])?;
    call.expect_shape(OUTPUT, &[out.dims[0], columns], "the columns of x2")?;
    let made = ViewIndex(call.slots().count());
    let plan = product(x1.slot, x2.slot, None, made)?;
    let (dims, bytes) = (vec![x1.dims[0], columns], x1.dims[0] * columns * out.dtype.size());
    let product = WorkspaceTensor { dtype: out.dtype, strides: contiguous_strides(&dims), dims, offset: 0 };
    let joined = joined(call, JoinedExchange::ReduceScatter(out.slot, cards))?;
    Ok(plan.with_workspace(bytes).joined(Joined { tensors: vec![product], ..joined }))
}
