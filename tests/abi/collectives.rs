//! HCCL: all communicators and collectives, also with sizes that differ by rank.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;

use ascend_tp_sys::{
    HcclComm, HcclDataType, HcclReduceOp, HcclResult, HcclRootInfo, HcclSendRecvItem, HcclSendRecvType, Table,
};

use super::common::collective::{addressed, value};
use super::common::{Card, call, encode, hccl_ok, ok, world};
use super::runtime::leave;

const DTYPE: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP32;
const SUM: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_SUM;

fn ranks(cards: usize) -> usize {
    cards.min(4)
}

pub(crate) fn communicators(table: &Table, cards: usize) {
    let n = ranks(cards);
    let (places, comms) = world(table, n);
    for (rank, comm) in comms.iter().enumerate() {
        let (mut size, mut own) = (0, u32::MAX);
        hccl_ok(table, call!(table, HcclGetRankSize(*comm, &raw mut size)));
        hccl_ok(table, call!(table, HcclGetRankId(*comm, &raw mut own)));
        assert_eq!((size as usize, own as usize), (n, rank));
        let mut state = HcclResult::HCCL_E_INTERNAL;
        hccl_ok(table, call!(table, HcclGetCommAsyncError(*comm, &raw mut state)));
        assert_eq!(state, HcclResult::HCCL_SUCCESS);
        let mut name = [0; 128];
        hccl_ok(table, call!(table, HcclGetCommName(*comm, name.as_mut_ptr())));
        assert_ne!(name[0], 0, "a communicator has a name");
    }
    let text = call!(table, HcclGetErrorString(HcclResult::HCCL_E_PARA));
    assert!(!text.is_null());
    // SAFETY: a C string of the library, valid as long as the library is loaded.
    assert!(!unsafe { CStr::from_ptr(text) }.is_empty());
    let count = call!(table, HcclGetRankSize(null_mut(), null_mut()));
    assert_ne!(count, HcclResult::HCCL_SUCCESS);
    part(table, &places, &comms);
}

fn part(table: &Table, cards: &[Card<'_>], comms: &[HcclComm]) {
    for (card, comm) in cards.iter().zip(comms) {
        card.enter();
        hccl_ok(table, call!(table, HcclCommDestroy(*comm)));
    }
    cards.iter().for_each(leave);
}

struct World<'a> {
    table: &'a Table,
    cards: Vec<Card<'a>>,
    comms: Vec<HcclComm>,
    allocated: Mutex<Vec<(usize, usize)>>,
}

impl World<'_> {
    fn upload(&self, rank: usize, values: impl IntoIterator<Item = i64>) -> *mut c_void {
        let address = self.cards[rank].upload(&encode(DTYPE, values));
        self.allocated.lock().expect("no panic").push((rank, address.expose_provenance()));
        address
    }

    fn check(
        &self,
        what: &str,
        enqueue: impl Fn(usize, HcclComm, &Card<'_>) -> (HcclResult, *mut c_void),
        expected: impl Fn(usize) -> Option<Vec<i64>>,
    ) {
        let mut results = Vec::new();
        for (rank, (card, comm)) in self.cards.iter().zip(&self.comms).enumerate() {
            card.enter();
            let (code, result) = enqueue(rank, *comm, card);
            hccl_ok(self.table, code);
            results.push(result);
        }
        for (rank, card) in self.cards.iter().enumerate() {
            card.synchronize();
            if let Some(expected) = expected(rank) {
                let expected = encode(DTYPE, expected);
                assert!(card.download(results[rank], expected.len()) == expected, "{what}: rank {rank}");
            }
        }
        for (rank, address) in self.allocated.lock().expect("no panic").drain(..) {
            self.cards[rank].enter();
            ok(self.table, call!(self.table, aclrtFree(std::ptr::with_exposed_provenance_mut(address))));
        }
    }
}

pub(crate) fn every_collective(table: &Table, cards: usize) {
    let n = ranks(cards);
    let (cards, comms) = world(table, n);
    let world = World { table, cards, comms, allocated: Mutex::default() };
    reductions(&world, n);
    one_to_all_and_back(&world, n);
    all_to_all(&world, n);
    pairs(&world, n);
    world.check(
        "barrier",
        |_, comm, card| (call!(table, HcclBarrier(comm, card.stream)), null_mut()),
        |_| None,
    );
    part(table, &world.cards, &world.comms);
}

const SIZE: usize = 1021;

fn reductions(world: &World<'_>, n: usize) {
    let table = world.table;
    let sum = |i: usize| (0..n).map(|rank| value(rank, i)).sum::<i64>();
    let count = SIZE as u64;
    world.check(
        "all_reduce",
        |rank, comm, card| {
            let send = world.upload(rank, (0..SIZE).map(|i| value(rank, i)));
            let recv = world.upload(rank, vec![0; SIZE]);
            (call!(table, HcclAllReduce(send, recv, count, DTYPE, SUM, comm, card.stream)), recv)
        },
        |_| Some((0..SIZE).map(sum).collect()),
    );
    let max = HcclReduceOp::HCCL_REDUCE_MAX;
    world.check(
        "all_reduce in place",
        |rank, comm, card| {
            let both = world.upload(rank, (0..SIZE).map(|i| value(rank, i)));
            (call!(table, HcclAllReduce(both, both, count, DTYPE, max, comm, card.stream)), both)
        },
        |_| Some((0..SIZE).map(|i| (0..n).map(|rank| value(rank, i)).max().unwrap_or_default()).collect()),
    );
    let root = n - 1;
    world.check(
        "reduce",
        |rank, comm, card| {
            let send = world.upload(rank, (0..SIZE).map(|i| value(rank, i)));
            let recv = world.upload(rank, vec![0; SIZE]);
            (call!(table, HcclReduce(send, recv, count, DTYPE, SUM, root as u32, comm, card.stream)), recv)
        },
        |rank| (rank == root).then(|| (0..SIZE).map(sum).collect()),
    );
    world.check(
        "reduce_scatter",
        |rank, comm, card| {
            let send = world.upload(rank, (0..n * SIZE).map(|i| value(rank, i)));
            let recv = world.upload(rank, vec![0; SIZE]);
            (call!(table, HcclReduceScatter(send, recv, count, DTYPE, SUM, comm, card.stream)), recv)
        },
        |rank| Some((rank * SIZE..(rank + 1) * SIZE).map(sum).collect()),
    );
    let counts: Vec<u64> = (0..n).map(|rank| (rank + 3) as u64).collect();
    let displs: Vec<u64> = (0..n).map(|rank| counts[..rank].iter().sum()).collect();
    let total = counts.iter().sum::<u64>() as usize;
    world.check(
        "reduce_scatter_v",
        |rank, comm, card| {
            let send = world.upload(rank, (0..total).map(|i| value(rank, i)));
            let recv = world.upload(rank, vec![0; counts[rank] as usize]);
            let (of, at, own) = (counts.as_ptr().cast(), displs.as_ptr().cast(), counts[rank]);
            (call!(table, HcclReduceScatterV(send, of, at, recv, own, DTYPE, SUM, comm, card.stream)), recv)
        },
        |rank| Some((displs[rank] as usize..(displs[rank] + counts[rank]) as usize).map(sum).collect()),
    );
}

fn one_to_all_and_back(world: &World<'_>, n: usize) {
    let (table, count, root) = (world.table, SIZE as u64, n - 1);
    world.check(
        "broadcast",
        |rank, comm, card| {
            let buffer = world.upload(rank, (0..SIZE).map(|i| value(rank, i)));
            (call!(table, HcclBroadcast(buffer, count, DTYPE, root as u32, comm, card.stream)), buffer)
        },
        |_| Some((0..SIZE).map(|i| value(root, i)).collect()),
    );
    world.check(
        "scatter",
        |rank, comm, card| {
            let send = if rank == root {
                world.upload(rank, (0..n * SIZE).map(|i| value(root, i)))
            } else {
                null_mut()
            };
            let recv = world.upload(rank, vec![0; SIZE]);
            (call!(table, HcclScatter(send, recv, count, DTYPE, root as u32, comm, card.stream)), recv)
        },
        |rank| Some((rank * SIZE..(rank + 1) * SIZE).map(|i| value(root, i)).collect()),
    );
    world.check(
        "all_gather",
        |rank, comm, card| {
            let send = world.upload(rank, (0..SIZE).map(|i| value(rank, i)));
            let recv = world.upload(rank, vec![0; n * SIZE]);
            (call!(table, HcclAllGather(send, recv, count, DTYPE, comm, card.stream)), recv)
        },
        |_| Some((0..n).flat_map(|rank| (0..SIZE).map(move |i| value(rank, i))).collect()),
    );
    let counts: Vec<u64> = (0..n).map(|rank| (rank + 2) as u64).collect();
    let displs: Vec<u64> = (0..n).map(|rank| counts[..rank].iter().sum()).collect();
    world.check(
        "all_gather_v",
        |rank, comm, card| {
            let send = world.upload(rank, (0..counts[rank] as usize).map(|i| value(rank, i)));
            let recv = world.upload(rank, vec![0; counts.iter().sum::<u64>() as usize]);
            let (of, at, own) = (counts.as_ptr().cast(), displs.as_ptr().cast(), counts[rank]);
            (call!(table, HcclAllGatherV(send, own, recv, of, at, DTYPE, comm, card.stream)), recv)
        },
        |_| Some((0..n).flat_map(|rank| (0..rank + 2).map(move |i| value(rank, i))).collect()),
    );
}

fn all_to_all(world: &World<'_>, n: usize) {
    let table = world.table;
    let sent = |rank: usize, count: &dyn Fn(usize, usize) -> usize| -> Vec<i64> {
        (0..n).flat_map(|to| (0..count(rank, to)).map(move |i| addressed(rank, to, i))).collect()
    };
    let got = |rank: usize, count: &dyn Fn(usize, usize) -> usize| -> Vec<i64> {
        (0..n).flat_map(|from| (0..count(from, rank)).map(move |i| addressed(from, rank, i))).collect()
    };
    let even = |_: usize, _: usize| 17;
    world.check(
        "all_to_all",
        |rank, comm, card| {
            let send = world.upload(rank, sent(rank, &even));
            let recv = world.upload(rank, vec![0; n * 17]);
            (call!(table, HcclAlltoAll(send, 17, DTYPE, recv, 17, DTYPE, comm, card.stream)), recv)
        },
        |rank| Some(got(rank, &even)),
    );
    let uneven = |from: usize, to: usize| 1 + from * 2 + to;
    let prefix = |counts: &[u64]| -> Vec<u64> { (0..n).map(|rank| counts[..rank].iter().sum()).collect() };
    world.check(
        "all_to_all_v",
        |rank, comm, card| {
            let send = world.upload(rank, sent(rank, &uneven));
            let recv = world.upload(rank, vec![0; got(rank, &uneven).len()]);
            let sends: Vec<u64> = (0..n).map(|to| uneven(rank, to) as u64).collect();
            let receives: Vec<u64> = (0..n).map(|from| uneven(from, rank) as u64).collect();
            let (sdispls, rdispls) = (prefix(&sends), prefix(&receives));
            let (s, sd, r, rd) = (
                sends.as_ptr().cast(),
                sdispls.as_ptr().cast(),
                receives.as_ptr().cast(),
                rdispls.as_ptr().cast(),
            );
            (call!(table, HcclAlltoAllV(send, s, sd, DTYPE, recv, r, rd, DTYPE, comm, card.stream)), recv)
        },
        |rank| Some(got(rank, &uneven)),
    );
    let Some(all_to_all_vc) = table.HcclAlltoAllVC else { return };
    let matrix: Vec<u64> = (0..n * n).map(|i| uneven(i / n, i % n) as u64).collect();
    world.check(
        "all_to_all_vc",
        |rank, comm, card| {
            let send = world.upload(rank, sent(rank, &uneven));
            let recv = world.upload(rank, vec![0; got(rank, &uneven).len()]);
            // SAFETY: live buffers and a matrix of n x n counts.
            (
                unsafe { all_to_all_vc(send, matrix.as_ptr().cast(), DTYPE, recv, DTYPE, comm, card.stream) },
                recv,
            )
        },
        |rank| Some(got(rank, &uneven)),
    );
}

fn pairs(world: &World<'_>, n: usize) {
    let (table, count) = (world.table, SIZE as u64);
    if n < 2 {
        return;
    }
    world.check(
        "send and receive",
        |rank, comm, card| match rank {
            0 => {
                let send = world.upload(0, (0..SIZE).map(|i| value(0, i)));
                (call!(table, HcclSend(send, count, DTYPE, 1, comm, card.stream)), null_mut())
            }
            1 => {
                let recv = world.upload(1, vec![0; SIZE]);
                (call!(table, HcclRecv(recv, count, DTYPE, 0, comm, card.stream)), recv)
            }
            _ => (HcclResult::HCCL_SUCCESS, null_mut()),
        },
        |rank| (rank == 1).then(|| (0..SIZE).map(|i| value(0, i)).collect()),
    );
    let before = |rank: usize| (rank + n - 1) % n;
    world.check(
        "batch",
        |rank, comm, card| {
            let send = world.upload(rank, (0..SIZE).map(|i| value(rank, i)));
            let recv = world.upload(rank, vec![0; SIZE]);
            let item = |kind, buf, remote: usize| HcclSendRecvItem {
                sendRecvType: kind,
                buf,
                count,
                dataType: DTYPE,
                remoteRank: remote as u32,
            };
            let mut items = [
                item(HcclSendRecvType::HCCL_RECV, recv, before(rank)),
                item(HcclSendRecvType::HCCL_SEND, send, (rank + 1) % n),
            ];
            (call!(table, HcclBatchSendRecv(items.as_mut_ptr(), 2, comm, card.stream)), recv)
        },
        |rank| Some((0..SIZE).map(|i| value(before(rank), i)).collect()),
    );
}

pub(crate) fn rank_threads(table: &Table, cards: usize) {
    let n = ranks(cards);
    let root = Card::new(table, 0);
    let mut info = HcclRootInfo { internal: [0; 4108] };
    hccl_ok(table, call!(table, HcclGetRootInfo(&raw mut info)));
    leave(&root);
    std::thread::scope(|scope| {
        for rank in 0..n {
            let info = &info;
            scope.spawn(move || {
                let card = Card::new(table, rank as i32);
                let mut comm = null_mut();
                hccl_ok(
                    table,
                    call!(table, HcclCommInitRootInfo(n as u32, info, rank as u32, &raw mut comm)),
                );
                let both = card.upload(&encode(DTYPE, [rank as i64 + 1]));
                hccl_ok(table, call!(table, HcclAllReduce(both, both, 1, DTYPE, SUM, comm, card.stream)));
                card.synchronize();
                let expected = (1..=n as i64).sum::<i64>();
                assert_eq!(card.download(both, 4), encode(DTYPE, [expected]), "rank {rank}");
                ok(table, call!(table, aclrtFree(both)));
                hccl_ok(table, call!(table, HcclCommDestroy(comm)));
                leave(&card);
            });
        }
    });
}
