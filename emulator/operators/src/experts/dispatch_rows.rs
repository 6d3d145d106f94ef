//! Token dispatch to expert cards, and the combine step.
//!
//! A plan packs the data to send into its workspace and unpacks received data. `abi` runs the
//! exchange and checks chip and communicator. Not supported: shared experts, tensor-parallel
//! groups, products quantised for the exchange.

use std::sync::Arc;

use crate::dtype::AclType::{self, F32, I8, I32};
use crate::experts::dispatch_kernels::{
    self as dispatch, ASSIST, Assist, Deal, OwnTokens, Received, Returned,
};
use crate::normalization::kernels as norm;
use crate::operator::argument::CheckedTensor;
use crate::operator::call::OperatorCall;
use crate::operator::names::*;
use crate::operator::plan::{CallPlace, WorkspaceTensor};
use crate::operator::row::{Operator, attribute, input, output, text};
use crate::operator::sets::{BOOL, HALVES, INDEX64, SINGLE, WHOLE32};
use crate::operator::{CallPlan, Joined, JoinedExchange, OperatorKernel, Refusal, ViewIndex};

const SENT: &[AclType] = &[AclType::F16, AclType::BF16, I8];

pub(crate) const OPERATORS: &[Operator] = &[
    Operator {
        name: "aclnnMoeDistributeDispatch",
        parameters: &[
            input(X, HALVES, 2, 2),
            input(EXPERT_IDS, WHOLE32, 2, 2),
            input(SCALES, SINGLE, 2, 2).optional(),
            input(EXPERT_SCALES, SINGLE, 2, 2).optional(),
            text(GROUP_TP),
            attribute(GLOBAL_BS),
            output(EXPAND_X, SENT, 2, 2).contiguous(),
            output(DYNAMIC_SCALES, SINGLE, 1, 2).optional(),
            output(EXPAND_IDX, WHOLE32, 1, 1),
            output(EXPERT_TOKEN_NUMS, INDEX64, 1, 1),
            output(EP_RECV_COUNTS, WHOLE32, 1, 1),
            output(TP_RECV_COUNTS, WHOLE32, 0, 1).optional(),
            output(EXPAND_SCALES, SINGLE, 0, 1).optional(),
        ],
        limits: "as aclnnMoeDistributeDispatchV2, without a mask; expandIdx [BS K]; moeExpertNum at most 512; 16, 32 or 64 cards of an \
                 Atlas A2, 8 to 288 cards of an Atlas A3 as listed, with H 7168 and K at most 8",
        source: "ops-transformer mc2/moe_distribute_dispatch/docs/aclnnMoeDistributeDispatch.md",
        plan: |call| dispatch_plan(call, &FIRST),
    },
    Operator {
        name: "aclnnMoeDistributeDispatchV2",
        parameters: &[
            input(X, HALVES, 2, 2),
            input(EXPERT_IDS, WHOLE32, 2, 2),
            input(SCALES_OPTIONAL, SINGLE, 2, 2).optional(),
            input(X_ACTIVE_MASK_OPTIONAL, BOOL, 1, 2).optional(),
            input(EXPERT_SCALES_OPTIONAL, SINGLE, 2, 2).optional(),
            text(GROUP_TP),
            attribute(GLOBAL_BS),
            text(COMM_ALG),
            output(EXPAND_X_OUT, SENT, 2, 2).contiguous(),
            output(DYNAMIC_SCALES_OUT, SINGLE, 1, 2).optional(),
            output(ASSIST_INFO_FOR_COMBINE_OUT, WHOLE32, 1, 1),
            output(EXPERT_TOKEN_NUMS_OUT, INDEX64, 1, 1),
            output(EP_RECV_COUNTS_OUT, WHOLE32, 1, 1),
            output(TP_RECV_COUNTS_OUT, WHOLE32, 0, 1).optional(),
            output(EXPAND_SCALES_OUT, SINGLE, 0, 1).optional(),
        ],
        limits: "x [BS, H], expertIds [BS, K] in 0..moeExpertNum; moeExpertNum a multiple of epWorldSize, at most \
                 1024; BS at most 256 (Atlas A3: 512); H a multiple of 32, at most 10240 (Atlas A3: 1024 to 8192); K \
                 at most 16; globalBS 0 or epWorldSize times the largest BS of a card; expandX [A, H] with A at least \
                 epWorldSize * largest BS * min(moeExpertNum / epWorldSize, K), of the type of x for quantMode 0, INT8 \
                 for 2 with dynamicScales [A] and scales NULL or [moeExpertNum, H]; xActiveMask [BS] or (Atlas A3) \
                 [BS, K]; assistInfoForCombine [128 A]; expertTokenNums [moeExpertNum / epWorldSize]; epRecvCounts has \
                 at least moeExpertNum elements; expertScales [BS, K] give expandScales [A] (Atlas A2 only); no shared \
                 experts, no tensor parallel group; commAlg NULL, \"\" or (Atlas A2) \"fullmesh\"; 2 to 8, 16, 32, 64, \
                 128, 192, 256 or 384 cards of an Atlas A2, 2 to 768 of an Atlas A3; tokens of an expert are ordered \
                 by card, then by position; captured from CANN 8.5 on",
        source: "ops-transformer mc2/moe_distribute_dispatch_v2/docs/aclnnMoeDistributeDispatchV2.md",
        plan: |call| dispatch_plan(call, &SECOND),
    },
    Operator {
        name: "aclnnMoeDistributeCombine",
        parameters: &[
            input(EXPAND_X, HALVES, 2, 2),
            input(EXPERT_IDS, WHOLE32, 2, 2),
            input(EXPAND_IDX, WHOLE32, 1, 1),
            input(EP_SEND_COUNTS, WHOLE32, 1, 1),
            input(EXPERT_SCALES, SINGLE, 2, 2),
            input(EXPAND_SCALES, SINGLE, 0, 1).optional(),
            text(GROUP_TP),
            attribute(GLOBAL_BS),
            output(X, HALVES, 2, 2).contiguous(),
        ],
        limits: "as aclnnMoeDistributeCombineV2, without a mask, for the outputs of aclnnMoeDistributeDispatch, with \
                 its cards and extents",
        source: "ops-transformer mc2/moe_distribute_combine/docs/aclnnMoeDistributeCombine.md",
        plan: |call| combine_plan(call, Version::First, RowOrigin::Choices(EXPAND_IDX), None, X, None),
    },
    Operator {
        name: "aclnnMoeDistributeCombineV2",
        parameters: &[
            input(EXPAND_X, HALVES, 2, 2),
            input(EXPERT_IDS, WHOLE32, 2, 2),
            input(ASSIST_INFO_FOR_COMBINE, WHOLE32, 1, 1),
            input(EP_SEND_COUNTS, WHOLE32, 1, 1),
            input(EXPERT_SCALES, SINGLE, 2, 2),
            input(X_ACTIVE_MASK_OPTIONAL, BOOL, 1, 2).optional(),
            input(EXPAND_SCALES_OPTIONAL, SINGLE, 0, 1).optional(),
            text(GROUP_TP),
            attribute(GLOBAL_BS),
            text(COMM_ALG),
            output(X_OUT, HALVES, 2, 2).contiguous(),
        ],
        limits: "xOut [BS, H] is the sum over the experts of a token of expertScales times their outputs, in FLOAT; \
                 expandX [A, H], expertIds and expertScales [BS, K]; assistInfoForCombine, epSendCounts, mask and \
                 attributes as in aclnnMoeDistributeDispatchV2; a masked token gets zeros; outDtype, commQuantMode and \
                 groupListType 0",
        source: "ops-transformer mc2/moe_distribute_combine_v2/docs/aclnnMoeDistributeCombineV2.md",
        plan: |call| {
            let origin = RowOrigin::Rows(ASSIST_INFO_FOR_COMBINE);
            combine_plan(call, Version::Second, origin, Some(X_ACTIVE_MASK_OPTIONAL), X_OUT, None)
        },
    },
    Operator {
        name: "aclnnMoeDistributeCombineAddRmsNorm",
        parameters: &[
            input(EXPAND_X, &[AclType::BF16], 2, 2),
            input(EXPERT_IDS, WHOLE32, 2, 2),
            input(ASSIST_INFO_FOR_COMBINE, WHOLE32, 1, 1),
            input(EP_SEND_COUNTS, WHOLE32, 1, 1),
            input(EXPERT_SCALES, SINGLE, 2, 2),
            input(RESIDUAL_X, &[AclType::BF16], 3, 3).contiguous(),
            input(GAMMA, &[AclType::BF16], 1, 1),
            input(X_ACTIVE_MASK_OPTIONAL, BOOL, 1, 2).optional(),
            text(GROUP_TP),
            attribute(GLOBAL_BS),
            text(COMM_ALG),
            output(Y_OUT, &[AclType::BF16], 3, 3).contiguous(),
            output(RSTD_OUT, SINGLE, 3, 3).contiguous(),
            output(X_OUT, &[AclType::BF16], 3, 3).contiguous(),
        ],
        limits: "Atlas A3 only; xOut [BS, 1, H] is the sum of aclnnMoeDistributeCombineV2 plus residualX, yOut its \
                 norm as of aclnnRmsNorm with gamma [H], rstdOut [BS, 1, 1]",
        source: "ops-transformer mc2/moe_distribute_combine_add_rms_norm/docs/aclnnMoeDistributeCombineAddRmsNorm.md",
        plan: |call| {
            let (origin, mask) = (RowOrigin::Rows(ASSIST_INFO_FOR_COMBINE), Some(X_ACTIVE_MASK_OPTIONAL));
            combine_plan(call, Version::Normed, origin, mask, X_OUT, Some(normed(call)?))
        },
    },
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    First,
    Second,
    Normed,
}

struct Dispatch {
    version: Version,
    scales: Name<CheckedTensor>,
    mask: Option<Name<CheckedTensor>>,
    factors: Name<CheckedTensor>,
    x: Name<CheckedTensor>,
    row_scales: Name<CheckedTensor>,
    assist: RowOrigin,
    counts: Name<CheckedTensor>,
    ends: Name<CheckedTensor>,
    unused: Name<CheckedTensor>,
    row_factors: Name<CheckedTensor>,
}

/// Assist data per row, or per choice.
#[derive(Clone, Copy)]
enum RowOrigin {
    Rows(Name<CheckedTensor>),
    Choices(Name<CheckedTensor>),
}

const FIRST: Dispatch = Dispatch {
    version: Version::First,
    scales: SCALES,
    mask: None,
    factors: EXPERT_SCALES,
    x: EXPAND_X,
    row_scales: DYNAMIC_SCALES,
    assist: RowOrigin::Choices(EXPAND_IDX),
    counts: EXPERT_TOKEN_NUMS,
    ends: EP_RECV_COUNTS,
    unused: TP_RECV_COUNTS,
    row_factors: EXPAND_SCALES,
};

const SECOND: Dispatch = Dispatch {
    version: Version::Second,
    scales: SCALES_OPTIONAL,
    mask: Some(X_ACTIVE_MASK_OPTIONAL),
    factors: EXPERT_SCALES_OPTIONAL,
    x: EXPAND_X_OUT,
    row_scales: DYNAMIC_SCALES_OUT,
    assist: RowOrigin::Rows(ASSIST_INFO_FOR_COMBINE_OUT),
    counts: EXPERT_TOKEN_NUMS_OUT,
    ends: EP_RECV_COUNTS_OUT,
    unused: TP_RECV_COUNTS_OUT,
    row_factors: EXPAND_SCALES_OUT,
};

/// Inclusive ranges per version, on Atlas A2 and Atlas A3.
const CARDS: [[&[(usize, usize)]; 2]; 3] = [
    [
        &[(16, 16), (32, 32), (64, 64)],
        &[(8, 8), (16, 16), (32, 32), (64, 64), (128, 128), (144, 144), (256, 256), (288, 288)],
    ],
    [&[(2, 8), (16, 16), (32, 32), (64, 64), (128, 128), (192, 192), (256, 256), (384, 384)], &[(2, 768)]],
    [&[], &[(2, 768)]],
];

/// These rules depend on chip and communicator.
fn expect_place(
    of: Deal,
    own: usize,
    version: Version,
    by_choice: bool,
    place: CallPlace,
) -> Result<(), String> {
    let CallPlace { is_a2, cards, rank } = place;
    let runs_on = CARDS[version as usize][usize::from(!is_a2)];
    let series = if is_a2 { "Atlas A2" } else { "Atlas A3" };
    if !runs_on.iter().any(|(from, to)| (*from..=*to).contains(&cards)) {
        return Err(format!("groupEp: {cards} cards of the {series} have no such operator"));
    }
    if of.card != rank {
        return Err(format!(
            "epRankId: expected {rank}, the rank of this card in the group, found {}",
            of.card
        ));
    }
    let widths = match (version, is_a2) {
        (Version::First, true) => (32, 7168),
        (Version::First, false) => (7168, 7168),
        (_, true) => (32, 10_240),
        (_, false) => (1024, 8192),
    };
    if of.width < widths.0 || of.width > widths.1 || is_a2 && !of.width.is_multiple_of(32) {
        let step = if is_a2 { " in steps of 32" } else { "" };
        return Err(format!("x: expected H of {} to {}{step}, found {}", widths.0, widths.1, of.width));
    }
    let most = if is_a2 { 256 } else { 512 };
    if own > most {
        return Err(format!("x: expected at most {most} tokens, found {own}"));
    }
    let choices = if version == Version::First && !is_a2 { 8 } else { 16 };
    if of.choices > choices {
        return Err(format!("expertIds: expected at most {choices} experts per token, found {}", of.choices));
    }
    if is_a2 && by_choice {
        return Err("xActiveMask: expected [BS], because an Atlas A2 has no mask of choices".to_owned());
    }
    Ok(())
}

/// Returns for tokens of `width` numbers; returns also this card's token count.
fn deal(call: &OperatorCall, version: Version, width: usize) -> Result<(Deal, usize), Refusal> {
    let ids = call.tensor(EXPERT_IDS)?;
    let [own, choices] = [ids.dims[0], ids.dims[1]];
    for (name, most) in [(TP_WORLD_SIZE, 1), (TP_RANK_ID, 0), (EXPERT_SHARD_TYPE, 0), (SHARED_EXPERT_NUM, 1)]
    {
        let found = call.int(name)?;
        if !(0..=most).contains(&found) {
            return Err(call
                .refuse(name, format!("expected 0{}, found {found}", if most == 1 { " or 1" } else { "" })));
        }
    }
    let shared = call.int(SHARED_EXPERT_RANK_NUM)?;
    if shared != 0 {
        return Err(call.refuse(
            SHARED_EXPERT_RANK_NUM,
            format!("expected 0, because shared experts are not modelled, found {shared}"),
        ));
    }
    let (cards, card, experts) = (call.int(EP_WORLD_SIZE)?, call.int(EP_RANK_ID)?, call.int(MOE_EXPERT_NUM)?);
    if cards < 2 {
        return Err(call.refuse(EP_WORLD_SIZE, format!("expected 2 or more, found {cards}")));
    }
    if !(0..cards).contains(&card) {
        return Err(call.refuse(EP_RANK_ID, format!("expected 0 to {}, found {card}", cards - 1)));
    }
    let most = if version == Version::First { 512 } else { 1024 };
    if !(1..=most).contains(&experts) || experts % cards != 0 {
        return Err(call.refuse(
            MOE_EXPERT_NUM,
            format!("expected a multiple of {cards} of at most {most}, found {experts}"),
        ));
    }
    if own == 0 || choices == 0 || choices as i64 > experts {
        return Err(call
            .refuse(EXPERT_IDS, format!("expected tokens of 1 to {experts} experts, found {:?}", ids.dims)));
    }
    let global = call.int(GLOBAL_BS)?;
    let (per_card, rest) = (global / cards, global % cards);
    if global != 0 && (rest != 0 || per_card < own as i64) {
        let text =
            format!("expected 0 or a multiple of {cards} of at least {}, found {global}", own as i64 * cards);
        return Err(call.refuse(GLOBAL_BS, text));
    }
    if per_card > 512 {
        return Err(call.refuse(GLOBAL_BS, format!("expected at most 512 tokens a card, found {per_card}")));
    }
    let tokens = if global == 0 { own } else { per_card as usize };
    let [cards, card, experts] = [cards, card, experts].map(|number| number as usize);
    Ok((Deal { cards, card, experts, local: experts / cards, tokens, choices, width }, own))
}

/// The flag is true for a mask per choice.
fn mask(
    call: &OperatorCall,
    name: Option<Name<CheckedTensor>>,
    own: usize,
    choices: usize,
) -> Result<(Option<ViewIndex>, bool), Refusal> {
    let Some((name, mask)) =
        name.map(|name| call.tensor_if_given(name).map(|mask| (name, mask))).transpose()?
    else {
        return Ok((None, false));
    };
    let Some(mask) = mask else { return Ok((None, false)) };
    let is_by_choice = mask.rank() == 2;
    call.expect_shape(name, &[own, choices][..mask.rank()], "one truth value per token")?;
    Ok((Some(mask.slot), is_by_choice))
}

/// Returns true if the call requests fullmesh.
fn expect_way(call: &OperatorCall, version: Version) -> Result<bool, Refusal> {
    if version == Version::First {
        return Ok(false);
    }
    match call.text_if_given(COMM_ALG)? {
        None | Some("") => Ok(false),
        Some("fullmesh") => Ok(true),
        Some(other) => {
            Err(call.refuse(COMM_ALG, format!("expected NULL, \"\" or \"fullmesh\", found {other:?}")))
        }
    }
}

struct PartBlocks {
    bytes: usize,
    starts: Vec<usize>,
}

impl PartBlocks {
    fn of(parts: &[usize]) -> Self {
        let (mut bytes, mut starts) = (0usize, Vec::new());
        for part in parts {
            starts.push(bytes);
            bytes = (bytes + part).next_multiple_of(32);
        }
        Self { bytes, starts }
    }

    /// Returns a part of `count` consecutive blocks from byte `first` on.
    fn tensor(
        &self,
        part: usize,
        first: usize,
        count: usize,
        dtype: AclType,
        dims: &[usize],
    ) -> WorkspaceTensor {
        let size = dtype.size();
        let strides = std::iter::once(self.bytes / size)
            .chain((0..dims.len()).map(|dim| dims[dim + 1..].iter().product()))
            .map(|stride: usize| stride as isize)
            .collect();
        let dims = std::iter::once(count).chain(dims.iter().copied()).collect();
        WorkspaceTensor { dtype, dims, strides, offset: ((first + self.starts[part]) / size) as isize }
    }
}

/// Outputs other than the tokens.
struct DispatchOutputs {
    row_scales: Option<ViewIndex>,
    factors: Option<ViewIndex>,
    assist: ViewIndex,
    by_row: bool,
    unwritten: Vec<ViewIndex>,
}

fn written(call: &OperatorCall, names: &Dispatch, of: Deal, own: usize) -> Result<DispatchOutputs, Refusal> {
    let (least, out) = (of.cards * of.most_rows(), call.tensor(names.x)?);
    if out.dims[0] < least || out.dims[1] != of.width {
        let text = format!("expected at least {least} rows of {} numbers, found {:?}", of.width, out.dims);
        return Err(call.refuse(names.x, text));
    }
    let (rows, row_scales) = (out.dims[0], call.tensor_if_given(names.row_scales)?);
    let is_quantised = match call.int(QUANT_MODE)? {
        0 => false,
        2 => true,
        other => return Err(call.refuse(QUANT_MODE, format!("expected 0 or 2, found {other}"))),
    };
    call.expect_dtype(names.x, if is_quantised { I8 } else { call.tensor(X)?.dtype }, "by quantMode")?;
    if is_quantised {
        if row_scales.is_none() {
            return Err(call.refuse(names.row_scales, "is NULL and must be given with quantMode 2"));
        }
        call.expect_shape(names.row_scales, &[rows], "a number for each row")?;
    }
    if call.tensor_if_given(names.scales)?.is_some() {
        if !is_quantised {
            return Err(call.refuse(names.scales, "expected NULL with quantMode 0"));
        }
        call.expect_shape(names.scales, &[of.experts, of.width], "factors for each expert")?;
    }
    let (assist, shape, by_row) = match names.assist {
        RowOrigin::Rows(name) => (name, rows * ASSIST, true),
        RowOrigin::Choices(name) => (name, own * of.choices, false),
    };
    call.expect_shape(assist, &[shape], if by_row { "128 numbers a row" } else { "a number a choice" })?;
    call.expect_shape(names.counts, &[of.local], "one number per expert of this card")?;
    expect_ends(call, names.ends, of)?;
    let (has_factors, told) =
        (call.tensor_if_given(names.factors)?.is_some(), call.tensor_if_given(names.row_factors)?);
    let factors = told.filter(|told| has_factors && told.len() >= rows);
    let unwritten = [
        call.tensor_if_given(names.unused)?,
        told.filter(|_| factors.is_none()),
        row_scales.filter(|_| !is_quantised),
    ];
    Ok(DispatchOutputs {
        row_scales: row_scales.filter(|_| is_quantised).map(|scales| scales.slot),
        factors: factors.map(|factors| factors.slot),
        assist: call.tensor(assist)?.slot,
        by_row,
        unwritten: unwritten.into_iter().flatten().map(|tensor| tensor.slot).collect(),
    })
}

fn expect_ends(call: &OperatorCall, name: Name<CheckedTensor>, of: Deal) -> Result<(), Refusal> {
    let found = call.tensor(name)?;
    if found.len() >= of.experts {
        return Ok(());
    }
    Err(call.refuse(name, format!("expected {} elements at least, found {:?}", of.experts, found.dims)))
}

fn dispatch_plan(call: &OperatorCall, names: &Dispatch) -> Result<CallPlan, Refusal> {
    let x = call.tensor(X)?;
    let (version, (of, own)) = (names.version, deal(call, names.version, x.dims[1])?);
    call.expect_shape(EXPERT_IDS, &[x.dims[0], of.choices], "of the tokens of x")?;
    let (is_meshed, (mask, by_choice)) =
        (expect_way(call, version)?, mask(call, names.mask, own, of.choices)?);
    let factors = call.tensor_if_given(names.factors)?;
    if factors.is_some() {
        call.expect_shape(names.factors, &[own, of.choices], "of expertIds")?;
    }
    let written = written(call, names, of, own)?;
    let is_running = match call.int(EXPERT_TOKEN_NUMS_TYPE)? {
        0 => true,
        1 => false,
        other => return Err(call.refuse(EXPERT_TOKEN_NUMS_TYPE, format!("expected 0 or 1, found {other}"))),
    };
    let (choices, token) = ([of.tokens, of.choices], [of.tokens, of.width]);
    let parts = [(I32, choices), (F32, choices), (x.dtype, token)];
    let block = PartBlocks::of(&parts.map(|(dtype, dims)| dtype.size() * dims[0] * dims[1]));
    let tensors = [(0, 1), (block.bytes, of.cards)].into_iter().flat_map(|place| {
        parts
            .iter()
            .enumerate()
            .map(move |(part, (dtype, dims))| (part, place, *dtype, *dims))
            .collect::<Vec<_>>()
    });
    let tensors = tensors
        .map(|(part, (first, count), dtype, dims)| block.tensor(part, first, count, dtype, &dims))
        .collect();
    let first = call.slots().count();
    let [given, gathered] = [first, first + 3].map(|first| [first, first + 1, first + 2].map(ViewIndex));
    let (has_factors, with) = (factors.is_some(), factors.map(|factors| factors.slot));
    let (x, ids, smooth) =
        (x.slot, call.tensor(EXPERT_IDS)?.slot, call.tensor_if_given(names.scales)?.map(|it| it.slot));
    let plan = CallPlan::new(move |views, tiles| {
        let own = OwnTokens {
            x: views.of(x),
            ids: views.of(ids),
            mask: mask.map(|mask| views.of(mask)),
            factors: with.map(|with| views.of(with)),
        };
        let given = given.map(|slot| views.of(slot).at(0, 0));
        dispatch::offer(tiles, of, &own, given.each_ref())
    })?;
    let plan = plan.leaving(written.unwritten);
    let slot = |name| call.tensor(name).map(|tensor: &CheckedTensor| tensor.slot);
    let (out, counts, ends) = (slot(names.x)?, slot(names.counts)?, slot(names.ends)?);
    let (row_scales, row_factors, assist, by_row) =
        (written.row_scales, written.factors, written.assist, written.by_row);
    let take: OperatorKernel = Arc::new(move |views, tiles| {
        let given = |slot: Option<ViewIndex>| slot.map(|slot| views.of(slot));
        let assist = if by_row { Assist::Rows(views.of(assist)) } else { Assist::Choices(views.of(assist)) };
        let (x, counts, ends) = (views.of(out), views.of(counts), views.of(ends));
        let out = Received {
            x,
            scales: given(row_scales),
            counts,
            is_running,
            ends,
            assist,
            factors: given(row_factors),
        };
        dispatch::take(tiles, of, gathered.map(|slot| views.of(slot)), given(smooth), &out)
    });
    let check = move |place: CallPlace| match (place.is_a2, has_factors, is_meshed) {
        (false, true, _) => Err("expertScales: of an Atlas A3 expected NULL".to_owned()),
        (false, _, true) => Err("commAlg: of an Atlas A3 expected NULL".to_owned()),
        _ => expect_place(of, own, version, by_choice, place),
    };
    let (group, exchange) =
        (call.text(GROUP_EP)?.to_owned(), JoinedExchange::Gathered { block: block.bytes, cards: of.cards });
    let joined = Joined { group, exchange, tensors, behind: Some(take), check: Some(Arc::new(check)) };
    Ok(plan.with_workspace(block.bytes * (1 + of.cards)).joined(joined))
}

/// Residual addition and normalisation.
struct Normed {
    residual: ViewIndex,
    gamma: ViewIndex,
    epsilon: f32,
    y: ViewIndex,
    rstd: ViewIndex,
}

fn normed(call: &OperatorCall) -> Result<Normed, Refusal> {
    let (tokens, width) = (call.tensor(EXPERT_IDS)?.dims[0], call.tensor(EXPAND_X)?.dims[1]);
    for name in [RESIDUAL_X, Y_OUT, X_OUT] {
        call.expect_shape(name, &[tokens, 1, width], "the tokens of expertIds, of the width of expandX")?;
    }
    call.expect_shape(GAMMA, &[width], "the width of expandX")?;
    call.expect_shape(RSTD_OUT, &[tokens, 1, 1], "a number for each token")?;
    let slot = |name| call.tensor(name).map(|tensor: &CheckedTensor| tensor.slot);
    let epsilon = call.float(NORM_EPS)? as f32;
    Ok(Normed {
        residual: slot(RESIDUAL_X)?,
        gamma: slot(GAMMA)?,
        epsilon,
        y: slot(Y_OUT)?,
        rstd: slot(RSTD_OUT)?,
    })
}

fn expect_zeros(call: &OperatorCall, names: &[Name<i64>]) -> Result<(), Refusal> {
    for name in names {
        let found = call.int(*name)?;
        if found != 0 {
            return Err(call.refuse(*name, format!("expected 0, found {found}")));
        }
    }
    Ok(())
}

fn combine_plan(
    call: &OperatorCall,
    version: Version,
    origin: RowOrigin,
    mask_name: Option<Name<CheckedTensor>>,
    out: Name<CheckedTensor>,
    normed: Option<Normed>,
) -> Result<CallPlan, Refusal> {
    let x = call.tensor(EXPAND_X)?;
    let (of, own) = deal(call, version, x.dims[1])?;
    let (is_meshed, (mask, by_choice)) =
        (expect_way(call, version)?, mask(call, mask_name, own, of.choices)?);
    let rows = of.cards * of.most_rows();
    if x.dims[0] < rows {
        return Err(call.refuse(EXPAND_X, format!("expected at least {rows} rows, found {:?}", x.dims)));
    }
    call.expect_shape(EXPERT_SCALES, &[own, of.choices], "of expertIds")?;
    expect_ends(call, EP_SEND_COUNTS, of)?;
    let (by_row, by_place) = match origin {
        RowOrigin::Rows(name) => {
            call.expect_shape(name, &[x.dims[0] * ASSIST], "128 numbers a row")?;
            (Some(call.tensor(name)?.slot), None)
        }
        RowOrigin::Choices(name) => {
            call.expect_shape(name, &[own * of.choices], "a number a choice")?;
            (None, Some(call.tensor(name)?.slot))
        }
    };
    call.expect_dtype(out, x.dtype, "the type of expandX")?;
    if normed.is_none() {
        call.expect_shape(out, &[own, of.width], "the tokens of expertIds, of the width of expandX")?;
    }
    expect_zeros(call, &[OUT_DTYPE, COMM_QUANT_MODE, GROUP_LIST_TYPE])?;
    let counts = [of.local];
    let given = [of.most_rows(), of.width];
    let block = PartBlocks::of(&[4 * of.local, x.dtype.size() * given[0] * given[1]]);
    let half = block.bytes * of.cards;
    let tensors = [0, half].into_iter().flat_map(|first| {
        [block.tensor(0, first, of.cards, I32, &counts), block.tensor(1, first, of.cards, x.dtype, &given)]
    });
    let tensors = tensors.collect();
    let behind = call.slots().count();
    let (sent, came) = ([behind, behind + 1].map(ViewIndex), [behind + 2, behind + 3].map(ViewIndex));
    let (x, ends, ids) = (x.slot, call.tensor(EP_SEND_COUNTS)?.slot, call.tensor(EXPERT_IDS)?.slot);
    let (factors, out) = (call.tensor(EXPERT_SCALES)?.slot, call.tensor(out)?.slot);
    let plan = CallPlan::new(move |views, tiles| {
        let assist = by_row.map(|slot| views.of(slot));
        dispatch::give_back(tiles, of, views.of(x), views.of(ends), assist, sent.map(|slot| views.of(slot)))
    })?;
    let join: OperatorKernel = Arc::new(move |views, tiles| {
        let [counts, x] = came.map(|slot| views.of(slot));
        let returned = Returned {
            ids: views.of(ids),
            mask: mask.map(|slot| views.of(slot)),
            factors: views.of(factors),
            assist: by_place.map(|slot| views.of(slot)),
            counts,
            x,
        };
        let Some(normed) = &normed else {
            return dispatch::join(tiles, of, &returned, None, views.of(out));
        };
        let sum = views.of(out).at(1, 0);
        dispatch::join(tiles, of, &returned, Some(views.of(normed.residual)), &sum)?;
        let (gamma, y, rstd) = (views.of(normed.gamma), views.of(normed.y), views.of(normed.rstd));
        norm::rms_norm(tiles, &sum, gamma, normed.epsilon, y, rstd);
        Ok(())
    });
    let check = Arc::new(move |place: CallPlace| {
        if is_meshed && !place.is_a2 {
            return Err("commAlg: of an Atlas A3 expected NULL".to_owned());
        }
        expect_place(of, own, version, by_choice, place)
    });
    let exchange = JoinedExchange::Dealt { block: block.bytes, cards: of.cards };
    let joined = Joined {
        group: call.text(GROUP_EP)?.to_owned(),
        exchange,
        tensors,
        behind: Some(join),
        check: Some(check),
    };
    Ok(plan.with_workspace(2 * half).joined(joined))
}
