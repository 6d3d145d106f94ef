//! Every collective, type and reduction with 1 to 9 ranks, in place and not, from 0 to about 1 MiB.
//! Results equal a closed form bit for bit. Inputs must not change, and nothing is written beyond
//! the end.
//!
//! `collectives` tests uneven forms, transfers and batches, `rules` the order of reductions.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::c_void;

use crate::common::collective::{Args, contribution, invoke, reduced, value};
use crate::common::*;
use ascend_tp_emulator::{CollectiveRule, InPlace, Named, collective_rules};
use ascend_tp_sys::{HcclComm, HcclDataType, HcclReduceOp, Table};

const MIB: usize = 1 << 20;
const BUFFER_BYTES: usize = 2 * MIB;
/// Must not change after a result.
const GUARD: [u8; 16] = [0xA5; 16];
/// Every pattern repeats: 11 for values, 5 for factors.
const PERIOD: usize = 55;

/// Repeats every [`PERIOD`] elements.
fn pattern(dtype: HcclDataType, count: usize, element: impl Fn(usize) -> i64) -> Vec<u8> {
    let mut bytes = encode(dtype, (0..PERIOD.min(count)).map(element));
    let size = encode(dtype, [0]).len();
    while bytes.len() < count * size {
        // Whole periods, so the start continues the pattern.
        let more = (count * size - bytes.len()).min(bytes.len());
        bytes.extend_from_within(..more);
    }
    bytes
}

struct Case<'a> {
    rule: &'a CollectiveRule,
    dtype: HcclDataType,
    op: Option<HcclReduceOp>,
    world: usize,
    count: usize,
    root: usize,
}

impl Case<'_> {
    fn is_one_of(&self, functions: &[&str]) -> bool {
        functions.contains(&self.rule.function)
    }

    fn send_blocks(&self) -> usize {
        let cuts = ["HcclReduceScatter", "HcclReduceScatterV", "HcclScatter"];
        let exchanges = ["HcclAlltoAll", "HcclAlltoAllV", "HcclAlltoAllVC"];
        if self.is_one_of(&cuts) || self.is_one_of(&exchanges) { self.world } else { 1 }
    }

    fn sent(&self, rank: usize) -> Vec<u8> {
        let count = self.count * self.send_blocks();
        pattern(self.dtype, count, |j| contribution(self.op, rank, j))
    }

    fn received(&self, rank: usize) -> Option<Vec<u8>> {
        let (world, count, dtype) = (self.world, self.count, self.dtype);
        let of_all = |block: &dyn Fn(usize, usize) -> i64| {
            (0..world).flat_map(|from| pattern(dtype, count, |i| block(from, i))).collect()
        };
        let own = rank * count;
        Some(match (self.rule.function, self.op) {
            ("HcclAllReduce", Some(op)) => pattern(dtype, count, |i| reduced(op, world, i)),
            ("HcclReduce", Some(op)) if rank == self.root => pattern(dtype, count, |i| reduced(op, world, i)),
            ("HcclReduceScatter" | "HcclReduceScatterV", Some(op)) => {
                pattern(dtype, count, |i| reduced(op, world, own + i))
            }
            ("HcclAllGather" | "HcclAllGatherV", _) => of_all(&value),
            ("HcclAlltoAll" | "HcclAlltoAllV" | "HcclAlltoAllVC", _) => {
                of_all(&|from, i| value(from, own + i))
            }
            ("HcclScatter", _) => pattern(dtype, count, |i| value(self.root, own + i)),
            ("HcclBroadcast", _) if rank != self.root => pattern(dtype, count, |i| value(self.root, i)),
            _ => return None,
        })
    }
}

struct World<'a> {
    table: &'a Table,
    cards: Vec<Card<'a>>,
    comms: Vec<HcclComm>,
    buffers: Vec<[*mut c_void; 2]>,
}

impl World<'_> {
    fn write(&self, at: *mut c_void, bytes: &[u8]) {
        let len = bytes.len();
        ok(self.table, call!(self.table, aclrtMemcpy(at, len, bytes.as_ptr().cast(), len, H2D)));
    }

    fn run(&self, case: &Case<'_>, in_place: bool) {
        let (rule, block) = (case.rule, case.count * encode(case.dtype, [0]).len());
        let mut places = Vec::new();
        for (rank, (card, comm)) in self.cards.iter().zip(&self.comms).enumerate() {
            card.enter();
            let [first, second] = self.buffers[rank];
            let (send, recv) = match rule.in_place {
                InPlace::SameBuffer if in_place => (first, first),
                InPlace::OwnBlockOfSend if in_place => (first, first.wrapping_byte_add(rank * block)),
                InPlace::OwnBlockOfReceive if in_place => (first.wrapping_byte_add(rank * block), first),
                InPlace::OneBuffer => (first, first),
                _ => (first, second),
            };
            if send != recv && !in_place {
                let expected = case.received(rank).map_or(0, |bytes| bytes.len());
                self.write(recv, &vec![0xEE; expected]);
                self.write(recv.wrapping_byte_add(expected), &GUARD);
            }
            self.write(send, &case.sent(rank));
            let (count, dtype, other) = (case.count as u64, case.dtype, case.root as u32);
            let op = case.op.unwrap_or(HcclReduceOp::HCCL_REDUCE_SUM);
            let args = Args { send, recv, count, dtype, op, other };
            hccl_ok(self.table, invoke(rule.function, card, *comm, rank, case.world, args));
            places.push((send, recv));
        }
        for (rank, (card, (send, recv))) in self.cards.iter().zip(places).enumerate() {
            card.synchronize();
            let what =
                || format!("{} {:?} {:?} rank {rank} of {}", rule.function, case.dtype, case.op, case.world);
            if let Some(expected) = case.received(rank) {
                let found = card.download(recv, expected.len());
                assert!(found == expected, "{}, {} elements, in place: {in_place}", what(), case.count);
                if send != recv && !in_place {
                    let behind = card.download(recv.wrapping_byte_add(expected.len()), GUARD.len());
                    assert!(behind == GUARD, "{}: wrote past its end", what());
                }
            }
            if send != recv && !in_place {
                let sent = case.sent(rank);
                assert!(card.download(send, sent.len()) == sent, "{}: changed what it sends", what());
            }
        }
    }
}

#[test]
fn every_collective_type_reduction_world_and_size() {
    let mut cases = 0_usize;
    for world in 1..=9 {
        let (_emulator, table) = machine(world);
        let (cards, comms) = crate::common::world(&table, world);
        let buffers =
            cards.iter().map(|card| [card.malloc(BUFFER_BYTES), card.malloc(BUFFER_BYTES)]).collect();
        let machine = World { table: &table, cards, comms, buffers };
        for rule in
            collective_rules().iter().filter(|rule| !matches!(rule.names, Named::Peer | Named::Anyone))
        {
            let plain = rule.moves.iter().filter(|_| rule.reduces.is_empty()).map(|dtype| (*dtype, None));
            let reductions =
                rule.reduces.iter().flat_map(|(op, types)| types.iter().map(|dtype| (*dtype, Some(*op))));
            for (number, (dtype, op)) in plain.chain(reductions).enumerate() {
                let case = |count| Case { rule, dtype, op, world, count, root: (number + count) % world };
                // 1 MiB per rank, one element less, or one more, alternating over the numbers of
                // ranks.
                let blocks = if case(1).received(0).is_some_and(|all| all.len() > encode(dtype, [0]).len()) {
                    world
                } else {
                    case(1).send_blocks()
                };
                let mib = MIB / encode(dtype, [0]).len() / blocks;
                let large = (number + world).is_multiple_of(4).then_some(mib + (number / 4 + world) % 3 - 1);
                for count in [0, 1, 17, 251].into_iter().chain(large) {
                    for in_place in [false, true] {
                        let has_both = !matches!(rule.in_place, InPlace::Never | InPlace::OneBuffer);
                        if has_both || !in_place {
                            machine.run(&case(count), in_place);
                            cases += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(cases > 10_000, "{cases} cases");
}
