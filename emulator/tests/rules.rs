//! HCCL's rules: every type, reduction, placement and named rank is accepted or refused as the row
//! states. A refusal leaves the communicator unchanged.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::c_void;

use crate::common::collective::{Args, invoke};
use crate::common::*;
use ascend_tp_emulator::{CollectiveRule, InPlace, Named, collective_rules};
use ascend_tp_sys::{HcclComm, HcclConfig, HcclConfigValue, HcclDataType, HcclReduceOp, HcclResult};

const NOWHERE: *mut c_void = std::ptr::null_mut();

const COUNT: u64 = 3;
const SUM: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_SUM;
const OK: HcclResult = HcclResult::HCCL_SUCCESS;
const PARA: HcclResult = HcclResult::HCCL_E_PARA;
const NOT_SUPPORT: HcclResult = HcclResult::HCCL_E_NOT_SUPPORT;

/// Each buffer has twice the size of one block of any type.
struct Pair<'a> {
    cards: Vec<Card<'a>>,
    comms: Vec<HcclComm>,
    send: Vec<*mut c_void>,
    recv: Vec<*mut c_void>,
}

impl<'a> Pair<'a> {
    fn new(table: &'a ascend_tp_sys::Table) -> Self {
        let (cards, comms) = world(table, 2);
        let buffers = || cards.iter().map(|card| card.upload(&[0; 256])).collect();
        let (send, recv) = (buffers(), buffers());
        Self { cards, comms, send, recv }
    }

    fn args(&self, rank: usize, dtype: HcclDataType, op: HcclReduceOp) -> Args {
        Args { send: self.send[rank], recv: self.recv[rank], count: COUNT, dtype, op, other: 1 - rank as u32 }
    }

    /// The two ranks call as `rule` requires; a transfer has its counterpart.
    fn call(
        &self,
        rule: &CollectiveRule,
        change: impl Fn(usize, Args) -> Args,
        dtype: HcclDataType,
        op: HcclReduceOp,
    ) -> [HcclResult; 2] {
        let counterpart = match rule.function {
            "HcclSend" => "HcclRecv",
            "HcclRecv" => "HcclSend",
            same => same,
        };
        let make = |rank: usize, function| {
            let mut args = self.args(rank, dtype, op);
            if rule.names == Named::Root {
                args.other = 0;
            }
            invoke(function, &self.cards[rank], self.comms[rank], rank, 2, change(rank, args))
        };
        let first = make(0, rule.function);
        if first == OK { [first, make(1, counterpart)] } else { [first, first] }
    }

    fn synchronize(&self) {
        self.cards.iter().for_each(Card::synchronize);
    }
}

fn accepted(rule: &CollectiveRule) -> (HcclDataType, HcclReduceOp) {
    match rule.reduces.first() {
        Some((op, types)) => (types[0], *op),
        None => (rule.moves.first().copied().unwrap_or(HcclDataType(0)), SUM),
    }
}

#[test]
fn every_type_and_reduction_is_accepted_or_refused_as_the_row_says() {
    let (_emulator, table) = machine(2);
    let pair = Pair::new(&table);
    let (mut taken, mut refused) = (0, 0);
    for rule in collective_rules().iter().filter(|rule| !rule.moves.is_empty()) {
        let ops: &[u32] = if rule.reduces.is_empty() { &[0] } else { &[0, 1, 2, 3, 4] };
        for (dtype, op) in
            (0..18).flat_map(|dtype| ops.iter().map(move |op| (HcclDataType(dtype), HcclReduceOp(*op))))
        {
            let offered = match rule.reduces {
                [] => rule.moves.contains(&dtype),
                reduces => reduces.iter().any(|(offered, types)| *offered == op && types.contains(&dtype)),
            };
            let codes = pair.call(rule, |_, args| args, dtype, op);
            let what = format!("{} {dtype:?} {op:?}", rule.function);
            if offered {
                assert_eq!(codes, [OK; 2], "{what}: {}", message(&table));
                taken += 1;
            } else {
                let no_such_op =
                    op == HcclReduceOp(4) && HcclDataType(12) != dtype && rule.moves.contains(&dtype);
                let expected = if no_such_op { [PARA; 2] } else { codes };
                assert!(codes != [OK; 2] && codes == expected, "{what}");
                assert!(codes[0] == NOT_SUPPORT || op == HcclReduceOp(4), "{what}: {}", codes[0].0);
                refused += 1;
            }
            pair.synchronize();
        }
    }
    assert!(taken > 150 && refused > 200, "{taken} accepted, {refused} refused");
}

#[test]
fn buffers_share_bytes_only_as_the_row_says() {
    let (_emulator, table) = machine(2);
    let pair = Pair::new(&table);
    let (mut shared, mut refused) = (0, 0);
    for rule in collective_rules().iter().filter(|rule| rule.in_place != InPlace::OneBuffer) {
        let (dtype, op) = accepted(rule);
        let block = COUNT as usize * size_of_dtype(dtype);
        let is_of = |names: &[&str]| names.iter().any(|name| rule.function.starts_with(name));
        let send_bytes =
            if is_of(&["HcclReduceScatter", "HcclScatter", "HcclAlltoAll"]) { 2 * block } else { block };
        let recv_bytes = if is_of(&["HcclAllGather", "HcclAlltoAll"]) { 2 * block } else { block };
        for (rank, send_at, recv_at) in [0, block / 3, block, 2 * block]
            .into_iter()
            .flat_map(|at| [(0, at, 0), (0, 0, at), (1, at, 0), (1, 0, at)])
        {
            let overlaps = send_at < recv_at + recv_bytes && recv_at < send_at + send_bytes;
            let is_in_place = match rule.in_place {
                InPlace::SameBuffer => send_at == recv_at,
                InPlace::OwnBlockOfSend => recv_at == send_at + rank * block,
                InPlace::OwnBlockOfReceive => send_at == recv_at + rank * block,
                _ => false,
            };
            let (memory, peer) = (pair.send[rank], 1 - rank);
            let args = Args {
                send: memory.wrapping_byte_add(send_at),
                recv: memory.wrapping_byte_add(recv_at),
                other: rank as u32,
                ..pair.args(rank, dtype, op)
            };
            let code = invoke(rule.function, &pair.cards[rank], pair.comms[rank], rank, 2, args);
            let what = format!("{} rank {rank}: send at {send_at}, receive at {recv_at}", rule.function);
            if overlaps && !is_in_place {
                assert_ne!(code, OK, "{what}");
                let text = hccl_refused(&table, code, PARA);
                assert!(text.ends_with("overlap where they must not"), "{what}: {text}");
                refused += 1;
                continue;
            }
            assert_eq!(code, OK, "{what}: {}", message(&table));
            shared += u32::from(overlaps);
            let args = Args { other: rank as u32, ..pair.args(peer, dtype, op) };
            hccl_ok(&table, invoke(rule.function, &pair.cards[peer], pair.comms[peer], peer, 2, args));
            pair.synchronize();
        }
    }
    assert!(shared > 10 && refused > 40, "{shared} in place, {refused} refused");
}

fn size_of_dtype(dtype: HcclDataType) -> usize {
    encode(dtype, [0]).len()
}

#[test]
fn the_named_rank_is_one_the_row_allows() {
    let (_emulator, table) = machine(2);
    let pair = Pair::new(&table);
    for rule in collective_rules().iter().filter(|rule| rule.names != Named::Nobody) {
        let (dtype, op) = accepted(rule);
        for other in [0, 1, 2, u32::MAX] {
            let args = Args { other, ..pair.args(0, dtype, op) };
            let allowed = match rule.names {
                Named::Peer => other == 1,
                _ => other < 2,
            };
            let code = invoke(rule.function, &pair.cards[0], pair.comms[0], 0, 2, args);
            if !allowed {
                let text = hccl_refused(&table, code, PARA);
                assert!(text.contains(&other.to_string()), "{text}");
                continue;
            }
            hccl_ok(&table, code);
            if rule.names == Named::Anyone && other == 0 {
                continue;
            }
            let counterpart = match rule.function {
                "HcclSend" => "HcclRecv",
                "HcclRecv" => "HcclSend",
                same => same,
            };
            let named = if rule.names == Named::Root { other } else { 0 };
            let args = Args { other: named, ..pair.args(1, dtype, op) };
            hccl_ok(&table, invoke(counterpart, &pair.cards[1], pair.comms[1], 1, 2, args));
        }
        pair.synchronize();
    }
}

#[test]
fn addresses_are_aligned_to_the_element_and_counts_of_0_need_none() {
    let (_emulator, table) = machine(2);
    let pair = Pair::new(&table);
    for rule in collective_rules().iter().filter(|rule| !rule.moves.is_empty()) {
        let dtype = *rule.moves.iter().find(|dtype| size_of_dtype(**dtype) > 1).expect("has one");
        let odd = |_: usize, args: Args| Args {
            send: args.send.wrapping_byte_add(1),
            recv: args.recv.wrapping_byte_add(1),
            ..args
        };
        let codes = pair.call(rule, odd, dtype, SUM);
        assert_eq!(codes[0], PARA, "{}", rule.function);
        let text = message(&table);
        assert!(text.contains("is not aligned to"), "{text}");
        let none = |_: usize, args: Args| Args { send: NOWHERE, recv: NOWHERE, count: 0, ..args };
        assert_eq!(pair.call(rule, none, dtype, SUM), [OK; 2], "{}: {}", rule.function, message(&table));
        let nowhere = |_: usize, args: Args| Args { send: NOWHERE, recv: NOWHERE, ..args };
        assert_eq!(pair.call(rule, nowhere, dtype, SUM)[0], HcclResult::HCCL_E_PTR, "{}", rule.function);
        pair.synchronize();
    }
}

/// The sum shows the order and precision of the additions.
#[test]
fn the_order_of_a_sum_is_that_of_the_ranks_whatever_is_asked_for() {
    let (_emulator, table) = machine(4);
    let (cards, comms) = world(&table, 4);
    let values = [1e8_f32, 3.0, -1e8, 0.125];
    let in_rank_order = values.iter().fold(0.0_f32, |sum, value| sum + value);
    assert_ne!(in_rank_order, values.iter().rev().fold(0.0_f32, |sum, value| sum + value), "the order shows");
    let halves = [2048.0_f32, 1.0, 1.0, 1.0].map(half::f16::from_f32);
    let rounded_once = half::f16::from_f32(2051.0);
    assert_ne!(
        halves.iter().fold(half::f16::ZERO, |sum, value| sum + value),
        rounded_once,
        "the precision shows"
    );
    for asked in [0, 1, 2] {
        let value = HcclConfigValue { value: asked };
        hccl_ok(&table, call!(&table, HcclSetConfig(HcclConfig::HCCL_DETERMINISTIC, value)));
        for (dtype, inputs, expected) in [
            (
                HcclDataType::HCCL_DATA_TYPE_FP32,
                values.map(|x| x.to_le_bytes().to_vec()),
                in_rank_order.to_le_bytes().to_vec(),
            ),
            (
                HcclDataType::HCCL_DATA_TYPE_FP16,
                halves.map(|x| x.to_le_bytes().to_vec()),
                rounded_once.to_le_bytes().to_vec(),
            ),
        ] {
            let buffers: Vec<_> = cards.iter().zip(&inputs).map(|(card, bytes)| card.upload(bytes)).collect();
            // The order of arrival must not matter.
            for rank in (0..4).rev() {
                let (buffer, comm) = (buffers[rank], comms[rank]);
                cards[rank].enter();
                hccl_ok(
                    &table,
                    call!(&table, HcclAllReduce(buffer, buffer, 1, dtype, SUM, comm, cards[rank].stream)),
                );
            }
            for (card, buffer) in cards.iter().zip(buffers) {
                card.synchronize();
                assert_eq!(
                    card.download(buffer, expected.len()),
                    expected,
                    "{dtype:?} with HCCL_DETERMINISTIC {asked}"
                );
            }
        }
    }
}

#[test]
fn blocks_of_the_uneven_forms_are_the_same_on_all_ranks() {
    let (_emulator, table) = machine(2);
    let pair = Pair::new(&table);
    let fp32 = HcclDataType::HCCL_DATA_TYPE_FP32;
    let gather = |rank: usize, displs: [u64; 2]| {
        pair.cards[rank].enter();
        let (send, recv, stream) = (pair.send[rank], pair.recv[rank], pair.cards[rank].stream);
        let (counts, displs) = ([2_u64; 2].as_ptr().cast(), displs.as_ptr().cast());
        call!(&table, HcclAllGatherV(send, 2, recv, counts, displs, fp32, pair.comms[rank], stream))
    };
    hccl_ok(&table, gather(0, [0, 2]));
    let text = hccl_refused(&table, gather(1, [0, 3]), PARA);
    assert!(text.contains("rank 0 called HcclAllGatherV(counts [2, 2] at [0, 2], fp32)"), "{text}");
    assert!(text.contains("rank 1 called HcclAllGatherV(counts [2, 2] at [0, 3], fp32)"), "{text}");
}
