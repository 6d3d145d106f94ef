//! Constraints of each HCCL function, identical on Atlas A2 and A3.
//!
//! Invariants: every row names its source. An ambiguous source is read in the strictest way.

use std::fmt::Write;

use ascend_tp_machine::Soc;
use ascend_tp_sys::{HcclDataType, HcclReduceOp};

use super::{CombineOp, DataType, parse_reduce_op};
use crate::base::failure::{Failure, code};

/// Permitted overlap of the send and the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InPlace {
    /// The buffers may be identical. Any other overlap is refused.
    SameBuffer,
    /// The receive buffer may be the rank's block of the send buffer.
    OwnBlockOfSend,
    /// The send buffer may be the rank's block of the receive buffer.
    OwnBlockOfReceive,
    /// The buffers may not overlap.
    Never,
    /// The function has one buffer or none.
    OneBuffer,
}

/// The other rank that a call names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Named {
    /// The call names no rank.
    Nobody,
    /// A root: any rank of the communicator.
    Root,
    /// A peer: any rank except the caller.
    Peer,
    /// Any rank of the communicator, including the caller.
    Anyone,
}

/// The constraints of one function.
#[derive(Debug)]
#[non_exhaustive]
pub struct CollectiveRule {
    /// Name of the C function.
    pub function: &'static str,
    /// Element types that the function transfers.
    pub moves: &'static [HcclDataType],
    /// Reductions, each with its element types. Empty if the function does not reduce.
    pub reduces: &'static [(HcclReduceOp, &'static [HcclDataType])],
    /// Permitted overlap of the buffers.
    pub in_place: InPlace,
    /// The rank that a call names.
    pub names: Named,
    /// Parameters that must be equal on all ranks.
    pub agree: &'static str,
    /// Other constraints, as text.
    pub limits: &'static str,
    /// Page of the HCCL API reference of CANN 8.1.
    pub source: &'static str,
}

use HcclDataType as T;
use HcclReduceOp as Op;

const MOVED: &[HcclDataType] = &[
    T::HCCL_DATA_TYPE_INT8,
    T::HCCL_DATA_TYPE_INT16,
    T::HCCL_DATA_TYPE_INT32,
    T::HCCL_DATA_TYPE_INT64,
    T::HCCL_DATA_TYPE_UINT8,
    T::HCCL_DATA_TYPE_UINT16,
    T::HCCL_DATA_TYPE_UINT32,
    T::HCCL_DATA_TYPE_UINT64,
    T::HCCL_DATA_TYPE_FP16,
    T::HCCL_DATA_TYPE_FP32,
    T::HCCL_DATA_TYPE_FP64,
    T::HCCL_DATA_TYPE_BFP16,
];

const REDUCED: &[HcclDataType] = &[
    T::HCCL_DATA_TYPE_INT8,
    T::HCCL_DATA_TYPE_INT16,
    T::HCCL_DATA_TYPE_INT32,
    T::HCCL_DATA_TYPE_INT64,
    T::HCCL_DATA_TYPE_FP16,
    T::HCCL_DATA_TYPE_FP32,
    T::HCCL_DATA_TYPE_BFP16,
];

const MULTIPLIED: &[HcclDataType] = &[
    T::HCCL_DATA_TYPE_INT8,
    T::HCCL_DATA_TYPE_INT32,
    T::HCCL_DATA_TYPE_INT64,
    T::HCCL_DATA_TYPE_FP16,
    T::HCCL_DATA_TYPE_FP32,
];

const REDUCED_UNEVENLY: &[HcclDataType] = &[
    T::HCCL_DATA_TYPE_INT8,
    T::HCCL_DATA_TYPE_INT16,
    T::HCCL_DATA_TYPE_INT32,
    T::HCCL_DATA_TYPE_FP16,
    T::HCCL_DATA_TYPE_FP32,
    T::HCCL_DATA_TYPE_BFP16,
];

const REDUCTIONS: &[(HcclReduceOp, &[HcclDataType])] = &[
    (Op::HCCL_REDUCE_SUM, REDUCED),
    (Op::HCCL_REDUCE_PROD, MULTIPLIED),
    (Op::HCCL_REDUCE_MAX, REDUCED),
    (Op::HCCL_REDUCE_MIN, REDUCED),
];

const UNEVEN_REDUCTIONS: &[(HcclReduceOp, &[HcclDataType])] = &[
    (Op::HCCL_REDUCE_SUM, REDUCED_UNEVENLY),
    (Op::HCCL_REDUCE_MAX, REDUCED_UNEVENLY),
    (Op::HCCL_REDUCE_MIN, REDUCED_UNEVENLY),
];

/// Declares a function that transfers all of `MOVED` and names no rank.
const fn row(
    function: &'static str,
    in_place: InPlace,
    agree: &'static str,
    source: &'static str,
) -> CollectiveRule {
    let (moves, reduces, names, limits) = (MOVED, &[] as &[_], Named::Nobody, "");
    CollectiveRule { function, moves, reduces, in_place, names, agree, limits, source }
}

/// In the order of hccl.h.
pub(crate) const RULES: &[CollectiveRule] = &[
    CollectiveRule {
        moves: REDUCED,
        reduces: REDUCTIONS,
        ..row("HcclAllReduce", InPlace::SameBuffer, "count, data type, op", "HcclAllReduce")
    },
    CollectiveRule {
        names: Named::Root,
        limits: "buf is sent by the root and received by the other ranks",
        ..row("HcclBroadcast", InPlace::OneBuffer, "count, data type, root", "HcclBroadcast, hcclcpp_07_0022")
    },
    CollectiveRule {
        moves: REDUCED,
        reduces: REDUCTIONS,
        limits: "send_buf holds recv_count elements per rank",
        ..row(
            "HcclReduceScatter",
            InPlace::OwnBlockOfSend,
            "recv_count, data type, op",
            "HcclReduceScatter, hcclcpp_07_0024",
        )
    },
    CollectiveRule {
        moves: REDUCED_UNEVENLY,
        reduces: UNEVEN_REDUCTIONS,
        limits: "recv_count is send_counts[own rank]; displacements count elements; one server",
        ..row(
            "HcclReduceScatterV",
            InPlace::Never,
            "send_counts, send_displs, data type, op",
            "HcclReduceScatterV, hcclcpp_07_0051",
        )
    },
    CollectiveRule {
        names: Named::Root,
        limits: "send_buf holds recv_count elements per rank on the root and is unused on other ranks",
        ..row(
            "HcclScatter",
            InPlace::OwnBlockOfSend,
            "recv_count, data type, root",
            "HcclScatter, hcclcpp_07_0029",
        )
    },
    CollectiveRule {
        limits: "recv_buf holds send_count elements per rank",
        ..row(
            "HcclAllGather",
            InPlace::OwnBlockOfReceive,
            "send_count, data type",
            "HcclAllGather, hcclcpp_07_0023",
        )
    },
    CollectiveRule {
        limits: "send_count is recv_counts[own rank]; displacements count elements; one server",
        ..row(
            "HcclAllGatherV",
            InPlace::Never,
            "recv_counts, recv_displs, data type",
            "HcclAllGatherV, hcclcpp_07_0050",
        )
    },
    CollectiveRule {
        names: Named::Peer,
        limits: "matched by one HcclRecv of the peer with the same count and type",
        ..row("HcclSend", InPlace::OneBuffer, "", "HcclSend, hcclcpp_07_0030")
    },
    CollectiveRule {
        names: Named::Peer,
        limits: "matched by one HcclSend of the peer with the same count and type",
        ..row("HcclRecv", InPlace::OneBuffer, "", "HcclRecv, hcclcpp_07_0032")
    },
    CollectiveRule {
        limits: "send_count equals recv_count, send_type equals recv_type",
        ..row("HcclAlltoAll", InPlace::Never, "counts, data type", "HcclAlltoAll")
    },
    CollectiveRule {
        limits: "send_counts[r] here is recv_counts[own rank] on rank r; send_type equals recv_type; displacements count \
                 elements",
        ..row("HcclAlltoAllV", InPlace::Never, "data type", "HcclAlltoAllV, hcclcpp_07_0027")
    },
    CollectiveRule {
        limits: "send_count_matrix[i][j] elements go from rank i to rank j, packed in rank order, and both ranks pass \
                 the same count; send_type equals recv_type",
        ..row("HcclAlltoAllVC", InPlace::Never, "data type", "HcclAlltoAllVC, hcclcpp_07_0059")
    },
    CollectiveRule {
        moves: REDUCED,
        reduces: REDUCTIONS,
        names: Named::Root,
        limits: "recv_buf is used on the root only",
        ..row("HcclReduce", InPlace::SameBuffer, "count, data type, op, root", "HcclReduce, hcclcpp_07_0025")
    },
    CollectiveRule { moves: &[], ..row("HcclBarrier", InPlace::OneBuffer, "", "HcclBarrier") },
    CollectiveRule {
        names: Named::Anyone,
        limits: "at least one item; no two items of one direction name the same rank; each item matches an item in the \
                 batch of the peer with as many bytes, in strict mode with its count and type",
        ..row("HcclBatchSendRecv", InPlace::OneBuffer, "", "HcclBatchSendRecv, hcclcpp_07_0033")
    },
];

/// # Panics
///
/// The function has no row, which a test rules out.
pub(crate) fn rule_of(function: &str) -> &'static CollectiveRule {
    let found = RULES.iter().find(|rule| rule.function == function);
    found.unwrap_or_else(|| unreachable!("{function} has no row in the rules of HCCL"))
}

impl CollectiveRule {
    pub(crate) fn data_type(&self, value: HcclDataType, soc: Soc) -> Result<DataType, Failure> {
        let dtype = DataType::parse(value)?;
        // For a reduction, the types depend on the operation. Barriers transfer no data.
        if self.moves.contains(&value) || !self.reduces.is_empty() || self.moves.is_empty() {
            return Ok(dtype);
        }
        let what = format!("{dtype} is not offered by {} on the {}", self.function, soc.series());
        Err(Failure::new(code::HCCL_NOT_SUPPORT, what))
    }

    /// Fails if the function does not offer the operation for this type.
    pub(crate) fn reduction(
        &self,
        op: HcclReduceOp,
        value: HcclDataType,
        soc: Soc,
    ) -> Result<CombineOp, Failure> {
        let parsed = parse_reduce_op(op)?;
        if self.reduces.iter().any(|(offered, types)| *offered == op && types.contains(&value)) {
            return Ok(parsed);
        }
        let dtype = DataType::parse(value)?;
        let what = format!("{parsed} of {dtype} is not offered by {} on the {}", self.function, soc.series());
        Err(Failure::new(code::HCCL_NOT_SUPPORT, what))
    }
}

/// Returns a value of `HcclSetConfig`.
pub(crate) fn deterministic_from(variable: Option<&str>) -> Result<i32, Failure> {
    match variable.map(|text| text.trim().to_ascii_lowercase()).as_deref() {
        None | Some("" | "false") => Ok(0),
        Some("true") => Ok(1),
        Some("strict") => Ok(2),
        Some(other) => {
            let what = format!(
                "the environment variable HCCL_DETERMINISTIC is {other:?}; it must be false, true or strict"
            );
            Err(Failure::new(code::HCCL_PARA, what))
        }
    }
}

pub(crate) fn check_deterministic(value: i64) -> Result<(), Failure> {
    if (0..=2).contains(&value) {
        return Ok(());
    }
    Err(Failure::new(code::HCCL_PARA, format!("HCCL_DETERMINISTIC is {value}; it must be 0, 1 or 2")))
}

fn names(types: &[HcclDataType]) -> String {
    let name = |value: &HcclDataType| {
        DataType::parse(*value).map_or_else(|_| value.0.to_string(), |t| t.to_string())
    };
    types.iter().map(name).collect::<Vec<String>>().join(", ")
}

pub(crate) fn markdown() -> String {
    let mut text =
        String::from("| function | types | in place | names | equal on all ranks | limits | source |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for rule in RULES {
        let types = match rule.reduces {
            [] if rule.moves.is_empty() => String::new(),
            [] if rule.moves == MOVED => "all that are moved".to_owned(),
            [] => names(rule.moves),
            reduces => {
                let one = |(op, types): &(HcclReduceOp, &[HcclDataType])| {
                    let op = parse_reduce_op(*op).map_or_else(|_| op.0.to_string(), |op| op.to_string());
                    format!("{op}: {}", names(types))
                };
                reduces.iter().map(one).collect::<Vec<String>>().join("; ")
            }
        };
        let in_place = match rule.in_place {
            InPlace::SameBuffer => "the same buffer",
            InPlace::OwnBlockOfSend => "recv_buf is the own block of send_buf",
            InPlace::OwnBlockOfReceive => "send_buf is the own block of recv_buf",
            InPlace::Never => "no",
            InPlace::OneBuffer => "",
        };
        let named = match rule.names {
            Named::Nobody => "",
            Named::Root => "a root",
            Named::Peer => "another rank",
            Named::Anyone => "any rank, itself too",
        };
        let (function, agree, limits, source) = (rule.function, rule.agree, rule.limits, rule.source);
        let _ =
            writeln!(text, "| {function} | {types} | {in_place} | {named} | {agree} | {limits} | {source} |");
    }
    let _ = writeln!(text, "\nMoved are {}.", names(MOVED));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_the_abi_with_a_data_type_has_one_row() {
        for (position, rule) in RULES.iter().enumerate() {
            assert!(ascend_tp_sys::Table::SYMBOLS.iter().any(|(symbol, _, _)| *symbol == rule.function));
            assert!(
                RULES[..position].iter().all(|other| other.function != rule.function),
                "{}",
                rule.function
            );
            assert!(rule.source.starts_with(rule.function));
            let reduced = rule.reduces.iter().flat_map(|(_, types)| types.iter());
            assert!(reduced.clone().all(|dtype| rule.moves.contains(dtype)), "{}", rule.function);
        }
    }

    #[test]
    fn determinism_is_asked_for_in_words() {
        let asked = |text| deterministic_from(text).map_err(|failure| failure.message);
        assert_eq!([asked(None), asked(Some("TRUE")), asked(Some("strict"))], [Ok(0), Ok(1), Ok(2)]);
        let refused =
            "the environment variable HCCL_DETERMINISTIC is \"1\"; it must be false, true or strict";
        assert_eq!(asked(Some("1")), Err(refused.into()));
    }

    #[test]
    fn reductions_are_those_of_the_chip() {
        let all_reduce = rule_of("HcclAllReduce");
        let offers = |op, dtype| all_reduce.reduction(op, dtype, Soc::default()).is_ok();
        assert!(offers(Op::HCCL_REDUCE_PROD, T::HCCL_DATA_TYPE_FP16));
        assert!(!offers(Op::HCCL_REDUCE_PROD, T::HCCL_DATA_TYPE_BFP16));
        assert!(offers(Op::HCCL_REDUCE_SUM, T::HCCL_DATA_TYPE_INT64));
        assert!(!offers(Op::HCCL_REDUCE_SUM, T::HCCL_DATA_TYPE_FP64));
        let uneven = rule_of("HcclReduceScatterV");
        assert!(uneven.reduction(Op::HCCL_REDUCE_SUM, T::HCCL_DATA_TYPE_INT64, Soc::default()).is_err());
        for (soc, series) in [(Soc::Ascend910B3, "Atlas A2"), (Soc::Ascend910_9391, "Atlas A3")] {
            let refused =
                uneven.reduction(Op::HCCL_REDUCE_PROD, T::HCCL_DATA_TYPE_FP32, soc).expect_err("not offered");
            assert_eq!(
                refused.message,
                format!("prod of fp32 is not offered by HcclReduceScatterV on the {series}")
            );
        }
        assert_eq!(
            all_reduce
                .reduction(HcclReduceOp(7), T::HCCL_DATA_TYPE_FP32, Soc::default())
                .expect_err("none")
                .code,
            code::HCCL_PARA
        );
    }
}
