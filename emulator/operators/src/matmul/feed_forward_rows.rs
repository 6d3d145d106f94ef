//! Feed-forward networks of one or several experts, low-rank adapters, and rotated quantisation.
//!
//! Computed in f64. Numbers between two products are rounded to the type of `x`.

use crate::dtype::AclType::{self, BF16, F16, F32};
use crate::lane::Lane;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::row::{Operator, input, ints, output};
use crate::operator::sets::{HALVES, INDEX64, SINGLE, WHOLE32};
use crate::operator::{CallPlan, Refusal, StridedViews, ViewIndex};

const BIASES: &[AclType] = &[F16, F32];
const HALF: &[AclType] = &[F16];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnFFNV2",
        parameters: &[
            input(X, HALVES, 2, 8),
            input(WEIGHT1, HALVES, 2, 3),
            input(WEIGHT2, HALVES, 2, 3),
            ints(EXPERT_TOKENS_ARRAY).optional(),
            input(BIAS1, BIASES, 1, 2).optional(),
            input(BIAS2, BIASES, 1, 2).optional(),
            output(Y, HALVES, 2, 8),
        ],
        limits: FEED_FORWARD,
        source: "ops-transformer ffn/ffn/docs/aclnnFFNV2.md",
        plan: |call| {
            let told = call.ints_if_given(EXPERT_TOKENS_ARRAY)?.filter(|told| !told.is_empty());
            feed_forward(call, [BIAS1, BIAS2], told.map(|told| Groups::Told(told.to_vec())))
        },
    },
    Operator {
        name: "aclnnFFNV3",
        parameters: &[
            input(X, HALVES, 2, 8),
            input(WEIGHT1, HALVES, 2, 3),
            input(WEIGHT2, HALVES, 2, 3),
            input(EXPERT_TOKENS_OPTIONAL, INDEX64, 1, 1).optional(),
            input(BIAS1_OPTIONAL, BIASES, 1, 2).optional(),
            input(BIAS2_OPTIONAL, BIASES, 1, 2).optional(),
            output(Y, HALVES, 2, 8),
        ],
        limits: "as aclnnFFNV2 with expertTokensOptional as a tensor",
        source: "ops-transformer ffn/ffn/docs/aclnnFFNV3.md",
        plan: |call| {
            let groups = call.slot_if_given(EXPERT_TOKENS_OPTIONAL)?.map(Groups::Stored);
            feed_forward(call, [BIAS1_OPTIONAL, BIAS2_OPTIONAL], groups)
        },
    },
    Operator {
        name: "aclnnAddLora",
        parameters: &[
            input(Y, HALF, 2, 2),
            input(X, HALF, 2, 2),
            input(WEIGHT_B, HALF, 4, 4),
            input(INDICES, WHOLE32, 1, 1),
            input(WEIGHT_A_OPTIONAL, HALF, 4, 4).optional(),
            output(OUT, HALF, 2, 2),
        ],
        limits: "y and out [B, H3], x [B, H1], weightAOptional [W, L, R, H1], weightB [W, L, H2, R], indices [B] within W; without \
                 weightAOptional x is [B, R]; out is y, and in its columns from yOffset on, as many as ySliceSize H2, scale weightB \
                 weightA x is added; layerIdx within L; H1, H2, H3 and R multiples of 16, H2 and H3 up to 131072, R up to 128, W and L up to 32",
        source: "ops-math math/add_lora/docs/aclnnAddLora.md",
        plan: add_lora,
    },
    Operator {
        name: "aclnnFlatQuant",
        parameters: &[
            input(X, HALVES, 3, 3),
            input(KRONECKER_P1, HALVES, 2, 2),
            input(KRONECKER_P2, HALVES, 2, 2),
            output(OUT, WHOLE32, 3, 3),
            output(QUANT_SCALE, SINGLE, 1, 1),
        ],
        limits: "x [K, M, N] with N a multiple of 8, K up to 262144, M and N up to 256, kroneckerP1 [M, M], kroneckerP2 [N, N]; quantScale [K] is the largest magnitude of \
                 kroneckerP1 @ x @ kroneckerP2 times clipRatio over 7, clipRatio above 0 and up to 1; out [K, M, N / 8] has eight integers of \
                 4 bits per word, the first lowest, to nearest; one element type",
        source: "ops-nn quant/flat_quant/docs/aclnnFlatQuant.md",
        plan: flat_quant,
    },
];

const FEED_FORWARD: &str = "x [.., K1], weight1 [K1, N1], weight2 [K2 = N1 or, for activations with a gate, N1 / 2, K1], y [.., K1]; K1 and K2 below 65536; biases [N1] and [K1]; with \
                            expertTokens of E experts, up to 256, weights and biases have E as first dim, x two dims, and expertTokens the numbers of all rows or, with \
                            tokensIndexFlag, the ends; activation gelu, relu, fastgelu, silu, and without experts, for FLOAT16 and innerPrecise 1, geglu, swiglu, reglu; one element type, \
                            biases FLOAT16, FLOAT for BFLOAT16; scales and offsets NULL; innerPrecise 0, or 1 for FLOAT16";

/// Numbers of rows of the experts.
#[derive(Clone, Debug)]
enum Groups {
    Told(Vec<i64>),
    Stored(ViewIndex),
}

type Activation = fn(f64) -> f64;

fn activation(call: &OperatorCall) -> Result<(Activation, bool), Refusal> {
    let gelu: Activation = |x| {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
        0.5 * x * (1.0 + inner.tanh())
    };
    let fast: Activation = |x| x / (1.0 + (-1.702 * x.abs()).exp()) * (0.851 * (x - x.abs())).exp();
    let silu: Activation = |x| x / (1.0 + (-x).exp());
    let relu: Activation = |x| x.max(0.0);
    match call.text(ACTIVATION)?.to_ascii_lowercase().as_str() {
        "gelu" => Ok((gelu, false)),
        "fastgelu" => Ok((fast, false)),
        "silu" => Ok((silu, false)),
        "relu" => Ok((relu, false)),
        "geglu" => Ok((gelu, true)),
        "swiglu" => Ok((silu, true)),
        "reglu" => Ok((relu, true)),
        other => Err(call.refuse(
            ACTIVATION,
            format!("expected gelu, relu, fastgelu, silu, geglu, swiglu or reglu, found {other}"),
        )),
    }
}

/// Returns `x @ weight + bias` for rows of one expert.
fn product(x: &[f64], depth: usize, weight: &[f64], bias: Option<&[f64]>) -> Vec<f64> {
    let width = weight.len() / depth.max(1);
    let value = |row: &[f64], column: usize| {
        let sum: f64 = row.iter().enumerate().map(|(i, x)| x * weight[i * width + column]).sum();
        sum + bias.map_or(0.0, |bias| bias[column])
    };
    x.chunks_exact(depth.max(1)).flat_map(|row| (0..width).map(move |column| value(row, column))).collect()
}

/// Gates and the form of the computation exclude types and experts.
fn expect_form(call: &OperatorCall, is_gated: bool, has_experts: bool) -> Result<(), Refusal> {
    let of = call.tensor(X)?.dtype;
    let is_fast = call.int_in(INNER_PRECISE, 0..=1)? == 1;
    call.expect_that(of == F16 || !is_fast, INNER_PRECISE, "0 for BFLOAT16", 1)?;
    let is_known = !is_gated || !has_experts && is_fast;
    let expected = "gelu, relu, fastgelu or silu, or no experts and FLOAT16 with innerPrecise 1";
    call.expect_that(is_known, ACTIVATION, expected, "a gate")
}

fn feed_forward(
    call: &OperatorCall,
    biases: [Name<CheckedTensor>; 2],
    groups: Option<Groups>,
) -> Result<CallPlan, Refusal> {
    call.expect_type_of(X, &[WEIGHT1, WEIGHT2, Y])?;
    call.expect_elements(&[X, WEIGHT1, WEIGHT2])?;
    let of_bias = if call.tensor(X)?.dtype == BF16 { F32 } else { F16 };
    for name in biases {
        if call.tensor_if_given(name)?.is_some() {
            call.expect_dtype(name, of_bias, "by the type of x")?;
        }
    }
    let (activation, is_gated) = activation(call)?;
    let has_experts = groups.is_some();
    expect_form(call, is_gated, has_experts)?;
    let [first, second, of_first, of_second] =
        if has_experts { ["ekn", "ehm", "en", "em"] } else { ["kn", "hm", "n", "m"] };
    let sizes = call.sizes(&[
        X.of(if has_experts { "tk" } else { "*k" }),
        WEIGHT1.of(first),
        WEIGHT2.of(second),
        biases[0].of(of_first),
        biases[1].of(of_second),
        Y.of(if has_experts { "tm" } else { "*m" }),
    ])?;
    let [depth, width, hidden, last] = sizes.all(['k', 'n', 'h', 'm']);
    let expected = if is_gated { width / 2 } else { width };
    call.expect_that(hidden == expected, WEIGHT2, &format!("{expected} rows"), hidden)?;
    call.expect_that(last == depth, WEIGHT2, &format!("{depth} columns, as x has"), last)?;
    call.expect_that(depth.max(hidden) < 65_536, WEIGHT1, "K1 and K2 below 65536", [depth, hidden])?;
    let experts = if has_experts { sizes.of('e') } else { 1 };
    call.expect_that(experts <= 256, WEIGHT1, "up to 256 experts", experts)?;
    if let Some(Groups::Told(told)) = &groups {
        call.expect_that(told.len() == experts, EXPERT_TOKENS_ARRAY, &format!("{experts} numbers"), told)?;
    }
    let are_ends = call.flag(TOKENS_INDEX_FLAG)?;
    let rows = call.tensor(X)?.len() / depth;
    let [x, first, second, y] = call.slots_of([X, WEIGHT1, WEIGHT2, Y])?;
    let biases = [call.slot_if_given(biases[0])?, call.slot_if_given(biases[1])?];
    CallPlan::new(move |views, _| {
        let dtype = views.of(x).dtype();
        let [x, first, second] = [x, first, second].map(|slot| views.read::<f64>(slot));
        let biases = biases.map(|slot| views.read_given::<f64>(slot));
        let mut results = views.read::<f64>(y);
        for (expert, range) in parts(views, groups.as_ref(), are_ends, rows)?.into_iter().enumerate() {
            let bias = |which: usize, width: usize| {
                biases[which].as_ref().map(|bias| &bias[expert * width..(expert + 1) * width])
            };
            let own = &first[expert * depth * width..(expert + 1) * depth * width];
            let inner = product(&x[range.start * depth..range.end * depth], depth, own, bias(0, width));
            let gated = |row: &[f64]| -> Vec<f64> {
                let (gate, other) = row.split_at(hidden);
                let value = |(i, x): (usize, &f64)| activation(*x) * if is_gated { other[i] } else { 1.0 };
                gate.iter().enumerate().map(|pair| value(pair).rounded(dtype)).collect()
            };
            let inner: Vec<f64> = inner.chunks_exact(width).flat_map(gated).collect();
            let own = &second[expert * hidden * last..(expert + 1) * hidden * last];
            results[range.start * last..range.end * last].copy_from_slice(&product(
                &inner,
                hidden,
                own,
                bias(1, last),
            ));
        }
        views.write(y, &results);
        Ok(())
    })
}

fn parts(
    views: &StridedViews<'_>,
    groups: Option<&Groups>,
    are_ends: bool,
    rows: usize,
) -> Result<Vec<std::ops::Range<usize>>, String> {
    let mut ends = match groups {
        None => vec![rows as i64],
        Some(Groups::Told(told)) => told.clone(),
        Some(Groups::Stored(slot)) => views.read::<i64>(*slot),
    };
    if groups.is_some() && !are_ends {
        let negative = ends.iter().any(|&count| count < 0);
        (1..ends.len()).for_each(|at| ends[at] = ends[at].saturating_add(ends[at - 1]));
        if negative {
            return Err(format!("expertTokens: expected numbers of at least 0, found ends {ends:?}"));
        }
    }
    if ends.last() != Some(&(rows as i64)) {
        return Err(format!("expertTokens: expected all {rows} rows, found the ends {ends:?}"));
    }
    crate::matmul::grouped_rows::group_parts("expertTokens", &ends, rows)
}

fn add_lora(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(Y, &[X, WEIGHT_B, WEIGHT_A_OPTIONAL, OUT])?;
    let has_first = call.tensor_if_given(WEIGHT_A_OPTIONAL)?.is_some();
    let sizes = call.sizes(&[
        Y.of("bo"),
        X.of(if has_first { "bi" } else { "br" }),
        WEIGHT_B.of("wlhr"),
        INDICES.of("b"),
        WEIGHT_A_OPTIONAL.of("wlri"),
        OUT.of("bo"),
    ])?;
    let [columns, adapters, layers, height, rank] = sizes.all(['o', 'w', 'l', 'h', 'r']);
    call.expect_elements(&[Y, X, WEIGHT_B])?;
    let depth = if has_first { sizes.of('i') } else { rank };
    for (name, size, most) in [(Y, columns, 131_072), (WEIGHT_B, height, 131_072), (WEIGHT_B, rank, 128)] {
        let fits = size.is_multiple_of(16) && size <= most;
        call.expect_that(fits, name, &format!("a multiple of 16 up to {most}"), size)?;
    }
    call.expect_that(depth.is_multiple_of(16), X, "a multiple of 16", depth)?;
    call.expect_that(adapters.max(layers) <= 32, WEIGHT_B, "W and L up to 32", [adapters, layers])?;
    let layer = call.int_in(LAYER_IDX, 0..=layers as i64 - 1)? as usize;
    let first = call.int_in(Y_OFFSET, 0..=columns as i64 - 1)? as usize;
    let size = call.int_in(Y_SLICE_SIZE, height as i64..=height as i64)? as usize;
    call.expect_that(
        first + size <= columns,
        Y_OFFSET,
        &format!("at most {}", columns.saturating_sub(size)),
        first,
    )?;
    let scale = call.float(SCALE_FLOAT)?;
    let [y, x, second, indices, out] = call.slots_of([Y, X, WEIGHT_B, INDICES, OUT])?;
    let down = call.slot_if_given(WEIGHT_A_OPTIONAL)?;
    CallPlan::new(move |views, _| {
        let dtype = views.of(y).dtype();
        let (mut results, x, second) =
            (views.read::<f64>(y), views.read::<f64>(x), views.read::<f64>(second));
        let down = views.read_given::<f64>(down);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for (row, &index) in views.read::<i64>(indices).iter().enumerate() {
            let adapter = usize::try_from(index).ok().filter(|&adapter| adapter < adapters);
            let adapter =
                adapter.ok_or_else(|| format!("indices: expected 0 to {}, found {index}", adapters - 1))?;
            let at = adapter * layers + layer;
            let own = &x[row * depth..(row + 1) * depth];
            let inner: Vec<f64> = match &down {
                Some(down) => down[at * rank * depth..(at + 1) * rank * depth]
                    .chunks_exact(depth)
                    .map(|line| dot(line, own).rounded(dtype))
                    .collect(),
                None => own.to_vec(),
            };
            for (i, line) in
                second[at * height * rank..(at + 1) * height * rank].chunks_exact(rank).enumerate()
            {
                results[row * columns + first + i] += dot(line, &inner) * scale;
            }
        }
        views.write(out, &results);
        Ok(())
    })
}

fn flat_quant(call: &OperatorCall) -> Result<CallPlan, Refusal> {
    call.expect_type_of(X, &[KRONECKER_P1, KRONECKER_P2])?;
    call.expect_elements(&[X])?;
    let sizes = call.sizes(&[
        X.of("kmn"),
        KRONECKER_P1.of("mm"),
        KRONECKER_P2.of("nn"),
        OUT.of("kmw"),
        QUANT_SCALE.of("k"),
    ])?;
    let [rows, columns, words] = sizes.all(['m', 'n', 'w']);
    let count = sizes.of('k');
    call.expect_that(count <= 262_144, X, "up to 262144 matrices", count)?;
    call.expect_that(rows.max(columns) <= 256, X, "up to 256 rows and columns", [rows, columns])?;
    call.expect_that(columns == 8 * words, OUT, &format!("{} words", columns / 8), words)?;
    let ratio = call.float(CLIP_RATIO)?;
    call.expect_that(ratio > 0.0 && ratio <= 1.0, CLIP_RATIO, "more than 0 and at most 1", ratio)?;
    let [x, left, right, out, scales] = call.slots_of([X, KRONECKER_P1, KRONECKER_P2, OUT, QUANT_SCALE])?;
    CallPlan::new(move |views, _| {
        let dtype = views.of(x).dtype();
        let [x, left, right] = [x, left, right].map(|slot| views.read::<f64>(slot));
        let (mut packed, mut found) = (Vec::new(), Vec::new());
        for matrix in x.chunks_exact(rows * columns) {
            let inner: Vec<f64> =
                product(matrix, columns, &right, None).into_iter().map(|x| x.rounded(dtype)).collect();
            let turned = product(&left, rows, &inner, None);
            let scale = turned.iter().fold(0f64, |most, x| most.max(x.abs())) * ratio / 7.0;
            found.push(scale);
            let level = |x: &f64| {
                let level = if scale > 0.0 { (x / scale).round_ties_even().clamp(-8.0, 7.0) } else { 0.0 };
                level as i64 & 15
            };
            let word = |eight: &[f64]| {
                let word = eight.iter().enumerate().fold(0i64, |word, (i, x)| word | level(x) << (4 * i));
                i64::from(word as i32)
            };
            packed.extend(turned.chunks_exact(8).map(word));
        }
        views.write(out, &packed);
        views.write(scales, &found);
        Ok(())
    })
}
