//! Products that the operator adds over the cards, with an addend or 8-bit factors.
//!
//! Computed in f64 and rounded once, before the exchange.

use crate::dtype::AclType::{self, BF16, F16, F32, I8, I64, U64};
use crate::matmul::collective_rows::{expect_sum, joined};
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, Parameter, input, output};
use crate::operator::sets::{BYTES, HALVES, SINGLE, WHOLE32};
use crate::operator::{CallPlan, JoinedExchange, Refusal, StridedViews, ViewIndex};
use crate::quantization::kernels::unpack;

const SCALES: &[AclType] = &[U64, I64, BF16, F32];

const OF_BYTES: [Parameter; 3] =
    [input(X1, BYTES, 2, 3).contiguous(), input(X2, BYTES, 2, 2), output(OUTPUT, HALVES, 2, 3).contiguous()];

const QUANTISED: &str = "output = all_reduce((x1 @ x2 + bias) dequantScale + x3) with x1 [.., k] and x2 [k, n] of INT8, bias [n] of INT32; dequantScale [1], \
                         [n] or [1, n]: UINT64 or INT64 of aclnnTransQuantParam, or BFLOAT16 for output of BFLOAT16; x3 as output; the rest as \
                         aclnnMatmulAllReduce";

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMatmulAllReduceV2",
        parameters: &[
            input(X1, HALVES, 2, 3).contiguous(),
            input(X2, HALVES, 2, 2),
            input(BIAS, HALVES, 1, 1).optional(),
            input(X3, HALVES, 2, 3).optional(),
            output(OUTPUT, HALVES, 2, 3).contiguous(),
        ],
        limits: "output = all_reduce(x1 @ x2 + bias + x3); x3 as output; the rest as aclnnMatmulAllReduce",
        source: "ops-transformer mc2/matmul_all_reduce/docs/aclnnMatmulAllReduceV2.md",
        plan: |call| reduced(call, BIAS, X3, |_, _| Ok(Factors::default())),
    },
    Operator {
        name: "aclnnQuantMatmulAllReduce",
        parameters: &OF_COLUMNS,
        limits: QUANTISED,
        source: "ops-transformer mc2/matmul_all_reduce/docs/aclnnQuantMatmulAllReduce.md",
        plan: |call| reduced(call, BIAS, X3, |call, n| Factors::scaled(call, n, false)),
    },
    Operator {
        name: "aclnnQuantMatmulAllReduceV2",
        parameters: &TOKENS,
        limits: OF_TOKENS,
        source: "ops-transformer mc2/matmul_all_reduce/docs/aclnnQuantMatmulAllReduceV2.md",
        plan: |call| reduced(call, BIAS_OPTIONAL, X3_OPTIONAL, |call, n| Factors::scaled(call, n, true)),
    },
    Operator {
        name: "aclnnQuantMatmulAllReduceV3",
        parameters: &TOKENS,
        limits: "as aclnnQuantMatmulAllReduceV2; commQuantScale1Optional and commQuantScale2Optional NULL",
        source: "ops-transformer mc2/matmul_all_reduce/docs/aclnnQuantMatmulAllReduceV3.md",
        plan: |call| reduced(call, BIAS_OPTIONAL, X3_OPTIONAL, |call, n| Factors::scaled(call, n, true)),
    },
    Operator {
        name: "aclnnWeightQuantMatmulAllReduce",
        parameters: &[
            input(X1, HALVES, 2, 3).contiguous(),
            input(X2, BYTES, 2, 2),
            input(BIAS, HALVES, 1, 1).optional(),
            input(ANTIQUANT_SCALE, HALVES, 1, 2),
            input(ANTIQUANT_OFFSET, HALVES, 1, 2).optional(),
            input(X3, HALVES, 2, 3).optional(),
            output(OUTPUT, HALVES, 2, 3).contiguous(),
        ],
        limits: "output = all_reduce(x1 @ ((x2 + antiquantOffset) antiquantScale) + bias + x3); x2 [k, n] of INT8; antiquantScale and \
                 antiquantOffset [1], [n], [1, n], or [k / antiquantGroupSize rounded up, n] for a size above 0, a multiple of 32 below k; \
                 the rest as aclnnMatmulAllReduceV2",
        source: "ops-transformer mc2/matmul_all_reduce/docs/aclnnWeightQuantMatmulAllReduce.md",
        plan: |call| reduced(call, BIAS, X3, Factors::of_weights),
    },
];

const OF_COLUMNS: [Parameter; 6] = {
    let [x1, x2, out] = OF_BYTES;
    let (bias, x3) = (input(BIAS, WHOLE32, 1, 1).optional(), input(X3, HALVES, 2, 3).optional());
    [x1, x2, bias, x3, input(DEQUANT_SCALE, SCALES, 1, 2), out]
};

const TOKENS: [Parameter; 7] = {
    let [x1, x2, out] = OF_BYTES;
    let bias = input(BIAS_OPTIONAL, WHOLE32, 1, 1).optional();
    let x3 = input(X3_OPTIONAL, HALVES, 2, 3).optional();
    let tokens = input(PERTOKEN_SCALE_OPTIONAL, SINGLE, 1, 1).optional();
    [x1, x2, bias, x3, input(DEQUANT_SCALE, SCALES, 1, 2), tokens, out]
};

const OF_TOKENS: &str = "as aclnnQuantMatmulAllReduce; with pertokenScaleOptional, one number per row of x1, rows are multiplied by it, and dequantScale is \
                         FLOAT for output of FLOAT16, BFLOAT16 for BFLOAT16";

/// Factors of a product, by column, by row, and of weights.
#[derive(Clone, Copy, Debug, Default)]
struct Factors {
    columns: Option<ViewIndex>,
    rows: Option<ViewIndex>,
    weights: Option<Weights>,
}

#[derive(Clone, Copy, Debug)]
struct Weights {
    scale: ViewIndex,
    offset: Option<ViewIndex>,
    /// Rows of x2 with one scale.
    group: usize,
}

fn expect_columns(call: &OperatorCall, name: Name<CheckedTensor>, n: usize) -> Result<(), Refusal> {
    let dims = &call.tensor(name)?.dims;
    let fits = [&[1][..], &[n], &[1, n]].contains(&&dims[..]);
    call.expect_that(fits, name, &format!("[1], [{n}] or [1, {n}]"), dims)
}

impl Factors {
    fn scaled(call: &OperatorCall, n: usize, by_token: bool) -> Result<Self, Refusal> {
        expect_columns(call, DEQUANT_SCALE, n)?;
        let rows = if by_token { call.tensor_if_given(PERTOKEN_SCALE_OPTIONAL)? } else { None };
        let count = call.tensor(OUTPUT)?.len() / n.max(1);
        if rows.is_some() {
            call.expect_shape(PERTOKEN_SCALE_OPTIONAL, &[count], "a number per row")?;
        }
        let found = call.tensor(DEQUANT_SCALE)?.dtype;
        let is_known = match (call.tensor(OUTPUT)?.dtype, found) {
            (BF16, BF16) => true,
            (F16, F32) => rows.is_some(),
            (_, U64 | I64) => rows.is_none(),
            _ => false,
        };
        call.expect_that(is_known, DEQUANT_SCALE, "the type for output and pertokenScaleOptional", found)?;
        let columns = Some(call.slot(DEQUANT_SCALE)?);
        Ok(Self { columns, rows: rows.map(|rows| rows.slot), weights: None })
    }

    fn of_weights(call: &OperatorCall, n: usize) -> Result<Self, Refusal> {
        call.expect_type_of(X1, &[ANTIQUANT_SCALE, ANTIQUANT_OFFSET])?;
        let depth = call.tensor(X2)?.dims[0];
        let size = call.int_in(ANTIQUANT_GROUP_SIZE, 0..=depth.saturating_sub(1) as i64)? as usize;
        call.expect_that(size.is_multiple_of(32), ANTIQUANT_GROUP_SIZE, "a multiple of 32", size)?;
        if size == 0 {
            expect_columns(call, ANTIQUANT_SCALE, n)?;
        } else {
            call.expect_shape(ANTIQUANT_SCALE, &[depth.div_ceil(size), n], "a row per group")?;
        }
        let offset = call.slot_if_given(ANTIQUANT_OFFSET)?;
        if offset.is_some() {
            call.expect_shape(ANTIQUANT_OFFSET, &call.tensor(ANTIQUANT_SCALE)?.dims, "of antiquantScale")?;
        }
        let group = if size == 0 { depth.max(1) } else { size };
        let weights = Some(Weights { scale: call.slot(ANTIQUANT_SCALE)?, offset, group });
        Ok(Self { weights, ..Self::default() })
    }
}

/// Scales of columns, which may be packed.
fn scales(views: &StridedViews<'_>, slot: ViewIndex) -> Vec<f64> {
    match views.of(slot).dtype() {
        U64 | I64 => {
            let packed = views.read::<i64>(slot).into_iter();
            packed.map(|packed| f64::from(unpack(packed.cast_unsigned()).0)).collect()
        }
        _ => views.read(slot),
    }
}

fn reduced(
    call: &OperatorCall,
    bias: Name<CheckedTensor>,
    addend: Name<CheckedTensor>,
    factors: fn(&OperatorCall, usize) -> Result<Factors, Refusal>,
) -> Result<CallPlan, Refusal> {
    expect_sum(call)?;
    call.int_in(COMM_TURN, 0..=0)?;
    call.int_in(STREAM_MODE, 1..=1)?;
    call.expect_elements(&[X1, X2])?;
    let sizes = call.sizes(&[X1.of("*k"), X2.of("kn"), OUTPUT.of("*n"), bias.of("n"), addend.of("*n")])?;
    let [depth, n] = sizes.all(['k', 'n']);
    call.expect_type_of(OUTPUT, &[addend])?;
    if call.tensor(X1)?.dtype != I8 {
        call.expect_type_of(X1, &[bias, OUTPUT])?;
    }
    let x2 = call.tensor(X2)?;
    let is_legal = x2.is_contiguous() || x2.is_transposed();
    call.expect_that(is_legal, X2, "a dense or a transposed matrix", &x2.strides)?;
    let Factors { columns, rows, weights } = factors(call, n)?;
    let [x1, x2, out] = call.slots_of([X1, X2, OUTPUT])?;
    let (bias, addend) = (call.slot_if_given(bias)?, call.slot_if_given(addend)?);
    let plan = CallPlan::new(move |views, _| {
        let (x1, mut x2) = (views.read::<f64>(x1), views.read::<f64>(x2));
        if let Some(Weights { scale, offset, group }) = weights {
            let (scale, offset) = (views.read::<f64>(scale), views.read_given::<f64>(offset));
            for (i, weight) in x2.iter_mut().enumerate() {
                let at = (i / n / group * n + i % n) % scale.len();
                *weight = (*weight + offset.as_ref().map_or(0.0, |offset| offset[at])) * scale[at];
            }
        }
        let columns = columns.map(|slot| scales(views, slot));
        let [rows, bias, addend] = [rows, bias, addend].map(|slot| views.read_given::<f64>(slot));
        let mut results = Vec::with_capacity(x1.len() / depth * n);
        for (row, own) in x1.chunks_exact(depth).enumerate() {
            for column in 0..n {
                let sum: f64 = own.iter().enumerate().map(|(i, x)| x * x2[i * n + column]).sum();
                let sum = sum + bias.as_ref().map_or(0.0, |bias| bias[column]);
                let scale = columns.as_ref().map_or(1.0, |scales| scales[column % scales.len()]);
                let scale = scale * rows.as_ref().map_or(1.0, |rows| rows[row]);
                results.push(sum * scale + addend.as_ref().map_or(0.0, |addend| addend[row * n + column]));
            }
        }
        views.write(out, &results);
        Ok(())
    })?;
    Ok(plan.joined(joined(call, JoinedExchange::AllReduce(out))?))
}
