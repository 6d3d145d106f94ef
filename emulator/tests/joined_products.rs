//! Products fused with an exchange: results, refusals, failures and reports.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use ascend_tp_emulator::ReportKind;
use ascend_tp_sys::{HcclComm, HcclDataType, HcclReduceOp, Table, aclDataType};

use crate::common::collective::sum;
use crate::common::operators::{Joined, Sizes, apart, group_name, joined, tensor};
use crate::common::strict::{on_threads, strict, texts};
use crate::common::{Card, D2D, call, encode, hccl_ok, machine, message, ok, world};

const F16: aclDataType = aclDataType::ACL_FLOAT16;
const BF16: aclDataType = aclDataType::ACL_BF16;

fn sizes(world: usize) -> Sizes {
    Sizes { world: world as i64, rows: 24, depth: 256, columns: 40 }
}

/// Sums of products over ranks are small whole numbers, exact in 16 bits.
fn x(rank: i64, row: i64, at: i64) -> i64 {
    i64::from((row * 31 + at * 17 + rank * 7) % 29 == 0) - i64::from((row + at * 5 + rank) % 37 == 0)
}

fn w(rank: i64, column: i64, at: i64) -> i64 {
    (column * 3 + at * 11 + rank * 5) % 5 - 2
}

fn halves(dtype: aclDataType, values: impl IntoIterator<Item = i64>) -> Vec<u8> {
    let moved =
        if dtype == F16 { HcclDataType::HCCL_DATA_TYPE_FP16 } else { HcclDataType::HCCL_DATA_TYPE_BFP16 };
    encode(moved, values)
}

fn product(of: Sizes, rank: i64, left: impl Fn(i64, i64) -> i64, row: i64, column: i64) -> i64 {
    (0..of.depth).map(|at| left(row, at) * w(rank, column, at)).sum()
}

fn expected(which: Joined, of: Sizes, rank: i64) -> Vec<i64> {
    let summed = |row, column| {
        (0..of.world).map(|from| product(of, from, |row, at| x(from, row, at), row, column)).sum()
    };
    let part = of.rows / of.world;
    let gathered = |row: i64, column| product(of, rank, |row, at| x(row / part, row % part, at), row, column);
    let cells =
        |rows: std::ops::Range<i64>| rows.flat_map(|row| (0..of.columns).map(move |column| (row, column)));
    match which {
        Joined::AllReduce => cells(0..of.rows).map(|(row, column)| summed(row, column)).collect(),
        Joined::AllGather => cells(0..of.rows).map(|(row, column)| gathered(row, column)).collect(),
        Joined::ReduceScatter => {
            cells(part * rank..part * (rank + 1)).map(|(row, column)| summed(row, column)).collect()
        }
    }
}

fn operands(card: &Card<'_>, dtype: aclDataType, which: Joined, of: Sizes, rank: i64) -> [*mut c_void; 4] {
    let [left, all, result] = which.rows(of);
    let cells =
        |rows: i64, columns: i64| (0..rows).flat_map(move |row| (0..columns).map(move |at| (row, at)));
    let left = halves(dtype, cells(left, of.depth).map(|(row, at)| x(rank, row, at)));
    let weights = halves(dtype, cells(of.columns, of.depth).map(|(column, at)| w(rank, column, at)));
    let between = all * of.depth.max(of.columns) * 2;
    [
        card.upload(&left),
        card.upload(&weights),
        card.malloc((result * of.columns * 2) as usize),
        card.malloc(between as usize),
    ]
}

#[test]
fn a_joined_call_has_the_bits_of_product_and_collective_and_the_sums_of_whole_numbers() {
    for cards in [2, 4, 8] {
        let (_emulator, table) = machine(cards);
        let (cards, comms) = world(&table, cards);
        let of = sizes(cards.len());
        for (which, dtype) in Joined::ALL.into_iter().flat_map(|which| [(which, F16), (which, BF16)]) {
            let memory: Vec<_> =
                (0..).zip(&cards).map(|(rank, card)| operands(card, dtype, which, of, rank)).collect();
            let bytes = (which.rows(of)[2] * of.columns * 2) as usize;
            let results = |run: &dyn Fn(usize, &Card<'_>)| -> Vec<Vec<u8>> {
                cards.iter().enumerate().for_each(|(rank, card)| run(rank, card));
                cards
                    .iter()
                    .zip(&memory)
                    .map(|(card, [_, _, out, _])| {
                        card.synchronize();
                        card.download(*out, bytes)
                    })
                    .collect()
            };
            let one = results(&|rank, card| {
                joined(card, &group_name(&table, comms[rank]), which, of, dtype, memory[rank])
                    .expect("is taken");
            });
            let two = results(&|rank, card| apart(card, comms[rank], which, of, dtype, memory[rank]));
            for (rank, (one, two)) in one.iter().zip(&two).enumerate() {
                assert_eq!(one, two, "{which:?} of rank {rank} of {}", cards.len());
                assert_eq!(*one, halves(dtype, expected(which, of, rank as i64)), "{which:?} of rank {rank}");
            }
        }
    }
}

#[test]
fn a_bias_is_added_on_every_card() {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let of = sizes(2);
    let memory: Vec<_> =
        (0..).zip(&cards).map(|(rank, card)| operands(card, F16, Joined::AllReduce, of, rank)).collect();
    for ((rank, card), [left, weights, out, _]) in cards.iter().enumerate().zip(&memory) {
        let bias = tensor(&table, F16, card.upload(&halves(F16, 0..of.columns)), &[of.columns]);
        let group = group_name(&table, comms[rank]);
        let turned = card.upload(&{
            let rows =
                (0..of.depth).flat_map(|at| (0..of.columns).map(move |column| w(rank as i64, column, at)));
            halves(F16, rows)
        });
        let _ = weights;
        let left = tensor(&table, F16, *left, &[2, of.rows / 2, of.depth]);
        let (weights, out) = (
            tensor(&table, F16, turned, &[of.depth, of.columns]),
            tensor(&table, F16, *out, &[2, of.rows / 2, of.columns]),
        );
        let (mut bytes, mut executor) = (0, null_mut());
        let (group, sum) = (group.as_ptr(), c"sum".as_ptr());
        card.enter();
        let status = call!(
            table,
            aclnnMatmulAllReduceGetWorkspaceSize(
                left,
                weights,
                bias,
                group,
                sum,
                0,
                1,
                out,
                &raw mut bytes,
                &raw mut executor
            )
        );
        assert_eq!((status, bytes), (0, 0), "{}", message(&table));
        let status = call!(table, aclnnMatmulAllReduce(null_mut(), 0, executor, card.stream));
        assert_eq!(status, 0, "{}", message(&table));
    }
    let sums = expected(Joined::AllReduce, of, 0);
    let wanted = halves(F16, sums.iter().enumerate().map(|(i, sum)| sum + 2 * (i as i64 % of.columns)));
    for (card, [_, _, out, _]) in cards.iter().zip(&memory) {
        card.synchronize();
        assert_eq!(card.download(*out, wanted.len()), wanted);
    }
}

/// Returns the message of the first phase for rank 0.
fn refusal(cards: usize, which: Joined, of: Sizes, group: Option<&CStr>) -> String {
    let (_emulator, table) = machine(cards);
    let (cards, comms) = world(&table, cards);
    let memory = operands(&cards[0], F16, which, of, 0);
    let own = group_name(&table, comms[0]);
    joined(&cards[0], group.unwrap_or(&own), which, of, F16, memory).expect_err("no card does that")
}

#[test]
fn what_is_not_documented_to_work_is_refused_before_anything_runs() {
    for cards in [3, 6] {
        let text = refusal(cards, Joined::AllReduce, sizes(cards), None);
        let wanted = format!(
            "aclnnMatmulAllReduce: group: {cards} cards of the Atlas A2 do not support this operator"
        );
        assert!(text.starts_with("161002") && text.contains(&wanted), "{text}");
    }
    let unknown = refusal(2, Joined::AllGather, sizes(2), Some(c"nobody"));
    assert!(
        unknown.contains("no communicator \"nobody\" of this process is on card 0; there are"),
        "{unknown}"
    );
    let shapes = refusal(2, Joined::ReduceScatter, sizes(4), None);
    assert!(shapes.contains("group: it has 2 cards, but the shapes are for 4"), "{shapes}");
    for which in [Joined::AllGather, Joined::ReduceScatter] {
        let narrow = refusal(2, which, Sizes { depth: 255, ..sizes(2) }, None);
        assert!(narrow.contains("x1: expected 256 to 65534 elements in a row, found 255"), "{narrow}");
    }
}

#[test]
fn attributes_have_one_value() {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let (of, group) = (sizes(2), group_name(&table, comms[0]));
    let [left, right, out, _] = operands(&cards[0], F16, Joined::AllReduce, of, 0);
    let left = tensor(&table, F16, left, &[of.rows, of.depth]);
    let right = tensor(&table, F16, right, &[of.depth, of.columns]);
    let out = tensor(&table, F16, out, &[of.rows, of.columns]);
    for (reduce, turn, mode, text) in [
        (c"max", 0, 1, "reduceOp: expected \"sum\", found \"max\""),
        (c"sum", 2, 1, "commTurn: expected 0, found 2"),
        (c"sum", 0, 0, "streamMode: expected 1, found 0"),
    ] {
        let (mut bytes, mut executor) = (0, null_mut());
        let (bytes, executor) = (&raw mut bytes, &raw mut executor);
        let (group, reduce) = (group.as_ptr(), reduce.as_ptr());
        let first = call!(
            table,
            aclnnMatmulAllReduceGetWorkspaceSize(
                left,
                right,
                null(),
                group,
                reduce,
                turn,
                mode,
                out,
                bytes,
                executor
            )
        );
        assert_eq!(first, 161_002);
        assert!(message(&table).contains(text), "{}", message(&table));
    }
}

/// Returns the outcome of rank 0's stream if rank 1 leaves without its call.
fn abandoned(call: impl Fn(&Table, &Card<'_>, HcclComm, [*mut c_void; 4], Sizes)) -> (i32, String) {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let of = sizes(2);
    call(&table, &cards[0], comms[0], operands(&cards[0], F16, Joined::AllReduce, of, 0), of);
    hccl_ok(&table, call!(table, HcclCommDestroy(comms[1])));
    cards[0].outcome()
}

#[test]
fn a_call_whose_peer_is_gone_ends_as_a_collective_does() {
    let alone = abandoned(|table, card, comm, [_, _, out, _], of| {
        let count = (of.rows * of.columns) as u64;
        hccl_ok(table, sum(card, comm, out, HcclDataType::HCCL_DATA_TYPE_FP16, count));
    });
    let fused = abandoned(|table, card, comm, memory, of| {
        joined(card, &group_name(table, comm), Joined::AllReduce, of, F16, memory).expect("is taken");
    });
    assert_eq!(fused.0, alone.0, "{} / {}", fused.1, alone.1);
    assert!(fused.1.contains("rank 1 has left: it destroyed its communicator"), "{}", fused.1);
}

#[test]
fn ranks_that_do_not_agree_whether_to_join_are_told() {
    let (_emulator, table) = machine(2);
    let (cards, comms) = world(&table, 2);
    let of = sizes(2);
    let memory = operands(&cards[0], F16, Joined::AllReduce, of, 0);
    joined(&cards[0], &group_name(&table, comms[0]), Joined::AllReduce, of, F16, memory).expect("is taken");
    let [_, _, out, _] = operands(&cards[1], F16, Joined::AllReduce, of, 1);
    cards[1].enter();
    let (fp16, add) = (HcclDataType::HCCL_DATA_TYPE_FP16, HcclReduceOp::HCCL_REDUCE_SUM);
    let code = call!(table, HcclAllReduce(out, out, 960, fp16, add, comms[1], cards[1].stream));
    assert_ne!(code.0, 0);
    let both = "rank 0 called aclnnMatmulAllReduce(count 960, fp16, sum), rank 1 called HcclAllReduce(count 960, fp16, sum)";
    assert!(message(&table).contains(both), "{}", message(&table));
    assert!(cards[0].outcome().1.contains(both));
}

#[test]
fn strict_mode_sees_what_joined_calls_touch() {
    for (seed, which) in (0..6).flat_map(|seed| Joined::ALL.map(|which| (seed, which))) {
        let run = |disturb: bool| {
            let (emulator, table) = strict(2, seed);
            let (cards, comms) = world(&table, 2);
            let of = sizes(2);
            let comms: Vec<usize> = comms.into_iter().map(|comm| comm.addr()).collect();
            on_threads(2, |rank| {
                let card = &cards[rank];
                let memory = operands(card, F16, which, of, rank as i64);
                let group = group_name(&table, std::ptr::without_provenance_mut(comms[rank]));
                joined(card, &group, which, of, F16, memory).expect("is taken");
                let other = card.stream();
                if disturb && rank == 1 {
                    ok(&table, call!(table, aclrtMemcpyAsync(memory[3], 64, memory[2], 64, D2D, other)));
                }
                card.synchronize();
                ok(&table, call!(table, aclrtSynchronizeStream(other)));
            });
            let kinds: Vec<ReportKind> = emulator.reports().iter().map(|report| report.kind()).collect();
            (kinds, texts(&emulator))
        };
        let (kinds, told) = run(false);
        assert!(kinds.is_empty(), "{which:?}, seed {seed}: {told:#?}");
        let (kinds, told) = run(true);
        assert!(kinds.contains(&ReportKind::Race), "{which:?}, seed {seed}: {told:#?}");
    }
}
