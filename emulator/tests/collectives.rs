//! Every collective with every type, reduction, number of ranks and size.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::common::collective::{addressed, contribution, reduced, value};
use crate::common::*;
use ascend_tp_sys::{
    HcclComm, HcclDataType, HcclReduceOp, HcclRootInfo, HcclSendRecvItem, HcclSendRecvType, Table,
};

/// `matrix` has every number from 1 to 9.
const WORLDS: [usize; 6] = [1, 2, 3, 5, 8, 9];
/// Includes more than one tile of any type.
const SIZES: [usize; 5] = [0, 1, 17, 251, 33_023];

const OPS: [HcclReduceOp; 4] = [
    HcclReduceOp::HCCL_REDUCE_SUM,
    HcclReduceOp::HCCL_REDUCE_PROD,
    HcclReduceOp::HCCL_REDUCE_MAX,
    HcclReduceOp::HCCL_REDUCE_MIN,
];

fn is_offered(op: HcclReduceOp, dtype: HcclDataType) -> bool {
    let lacks_prod =
        [HcclDataType::HCCL_DATA_TYPE_INT16, HcclDataType::HCCL_DATA_TYPE_BFP16].contains(&dtype);
    op != HcclReduceOp::HCCL_REDUCE_PROD || !lacks_prod
}

/// Buffers are freed after each case.
struct World<'a> {
    table: &'a Table,
    cards: Vec<Card<'a>>,
    comms: Vec<HcclComm>,
    buffers: std::cell::RefCell<Vec<*mut c_void>>,
}

impl<'a> World<'a> {
    fn new(table: &'a Table, n: usize) -> Self {
        let (cards, comms) = world(table, n);
        Self { table, cards, comms, buffers: std::cell::RefCell::default() }
    }

    fn size(&self) -> usize {
        self.cards.len()
    }

    fn upload(&self, rank: usize, bytes: &[u8]) -> *mut c_void {
        let address = self.cards[rank].upload(bytes);
        self.buffers.borrow_mut().push(address);
        address
    }

    /// Every rank calls; the received data is compared.
    fn check(
        &self,
        what: &str,
        call: impl Fn(usize, &Card<'_>, HcclComm) -> (ascend_tp_sys::HcclResult, *mut c_void),
        expected: impl Fn(usize) -> Option<Vec<u8>>,
    ) {
        let mut received = Vec::new();
        for (rank, (card, comm)) in self.cards.iter().zip(&self.comms).enumerate() {
            card.enter();
            let (code, address) = call(rank, card, *comm);
            hccl_ok(self.table, code);
            received.push(address);
        }
        for (rank, card) in self.cards.iter().enumerate() {
            card.synchronize();
            if let Some(expected) = expected(rank) {
                let found = card.download(received[rank], expected.len());
                assert!(found == expected, "{what}: rank {rank} of {} received other bytes", self.size());
            }
        }
        for address in self.buffers.take() {
            ok(self.table, call!(self.table, aclrtFree(address)));
        }
    }
}

#[test]
fn all_reduce_and_reduce() {
    for n in WORLDS {
        let (_emulator, table) = machine(n);
        let world = World::new(&table, n);
        for (dtype, size) in REDUCED.iter().flat_map(|dtype| SIZES.map(|size| (*dtype, size))) {
            for op in OPS.into_iter().filter(|op| is_offered(*op, dtype)) {
                let sent = |rank| encode(dtype, (0..size).map(|i| contribution(Some(op), rank, i)));
                let result = || encode(dtype, (0..size).map(|i| reduced(op, n, i)));
                let count = size as u64;
                world.check(
                    "all_reduce",
                    |rank, card, comm| {
                        let send = world.upload(rank, &sent(rank));
                        // In place for odd ranks.
                        let recv = if rank % 2 == 1 {
                            send
                        } else {
                            world.upload(rank, &vec![0xEE; sent(rank).len()])
                        };
                        (call!(table, HcclAllReduce(send, recv, count, dtype, op, comm, card.stream)), recv)
                    },
                    |_| Some(result()),
                );
                let root = n / 2;
                world.check(
                    "reduce",
                    |rank, card, comm| {
                        let send = world.upload(rank, &sent(rank));
                        let recv = if rank == root {
                            world.upload(rank, &vec![0; sent(rank).len()])
                        } else {
                            null_mut()
                        };
                        (
                            call!(
                                table,
                                HcclReduce(send, recv, count, dtype, op, root as u32, comm, card.stream)
                            ),
                            recv,
                        )
                    },
                    |rank| (rank == root).then(result),
                );
            }
        }
    }
}

#[test]
fn reduce_scatter_even_and_uneven() {
    for n in WORLDS {
        let (_emulator, table) = machine(n);
        let world = World::new(&table, n);
        for (dtype, size) in REDUCED.iter().flat_map(|dtype| [0, 1, 13, 8209].map(|size| (*dtype, size))) {
            for op in OPS.into_iter().filter(|op| is_offered(*op, dtype)) {
                let block = |rank: usize| rank * size..(rank + 1) * size;
                world.check(
                    "reduce_scatter",
                    |rank, card, comm| {
                        let bytes = encode(dtype, (0..n * size).map(|i| contribution(Some(op), rank, i)));
                        let send = world.upload(rank, &bytes);
                        // Odd ranks receive into their block of the send buffer.
                        let own = send.wrapping_byte_add(rank * bytes.len() / n);
                        let recv =
                            if rank % 2 == 1 { own } else { world.upload(rank, &vec![0; bytes.len() / n]) };
                        let count = size as u64;
                        (
                            call!(table, HcclReduceScatter(send, recv, count, dtype, op, comm, card.stream)),
                            recv,
                        )
                    },
                    |rank| Some(encode(dtype, block(rank).map(|i| reduced(op, n, i)))),
                );
                let is_v =
                    op != HcclReduceOp::HCCL_REDUCE_PROD && dtype != HcclDataType::HCCL_DATA_TYPE_INT64;
                if !is_v {
                    continue;
                }
                // Rank r receives r + size elements, with a gap of one between blocks.
                let counts: Vec<u64> = (0..n).map(|rank| (rank + size) as u64).collect();
                let displs: Vec<u64> =
                    (0..n).map(|rank| counts[..rank].iter().sum::<u64>() + rank as u64).collect();
                let total = (displs[n - 1] + counts[n - 1]) as usize;
                world.check(
                    "reduce_scatter_v",
                    |rank, card, comm| {
                        let send = world.upload(
                            rank,
                            &encode(dtype, (0..total).map(|i| contribution(Some(op), rank, i))),
                        );
                        let recv = world.upload(rank, &encode(dtype, (0..counts[rank]).map(|_| 0)));
                        let (counts_of, displs_of) = (counts.as_ptr().cast(), displs.as_ptr().cast());
                        let own = counts[rank];
                        let code = call!(
                            table,
                            HcclReduceScatterV(
                                send,
                                counts_of,
                                displs_of,
                                recv,
                                own,
                                dtype,
                                op,
                                comm,
                                card.stream
                            )
                        );
                        (code, recv)
                    },
                    |rank| {
                        let first = displs[rank] as usize;
                        let places = first..first + counts[rank] as usize;
                        Some(encode(dtype, places.map(|i| reduced(op, n, i))))
                    },
                );
            }
        }
    }
}

#[test]
fn all_gather_even_and_uneven() {
    for n in WORLDS {
        let (_emulator, table) = machine(n);
        let world = World::new(&table, n);
        for (dtype, size) in MOVED.iter().flat_map(|dtype| SIZES.map(|size| (*dtype, size))) {
            let all = || encode(dtype, (0..n).flat_map(|rank| (0..size).map(move |i| value(rank, i))));
            world.check(
                "all_gather",
                |rank, card, comm| {
                    let own = encode(dtype, (0..size).map(|i| value(rank, i)));
                    let recv = world.upload(rank, &vec![0; own.len() * n]);
                    // Odd ranks send from their block of the receive buffer.
                    let place = recv.wrapping_byte_add(rank * own.len());
                    let send = if rank % 2 == 1 { place } else { world.upload(rank, &own) };
                    if rank % 2 == 1 {
                        let len = own.len();
                        ok(&table, call!(table, aclrtMemcpy(place, len, own.as_ptr().cast(), len, H2D)));
                    }
                    (call!(table, HcclAllGather(send, recv, size as u64, dtype, comm, card.stream)), recv)
                },
                |_| Some(all()),
            );
            let counts: Vec<u64> = (0..n).map(|rank| (size + n - 1 - rank) as u64).collect();
            let displs: Vec<u64> = (0..n).map(|rank| counts[..rank].iter().sum()).collect();
            world.check(
                "all_gather_v",
                |rank, card, comm| {
                    let send = world
                        .upload(rank, &encode(dtype, (0..counts[rank] as usize).map(|i| value(rank, i))));
                    let recv = world.upload(rank, &encode(dtype, (0..counts.iter().sum()).map(|_: u64| 0)));
                    let (counts_of, displs_of) = (counts.as_ptr().cast(), displs.as_ptr().cast());
                    let own = counts[rank];
                    let code = call!(
                        table,
                        HcclAllGatherV(send, own, recv, counts_of, displs_of, dtype, comm, card.stream)
                    );
                    (code, recv)
                },
                |_| {
                    Some(encode(
                        dtype,
                        (0..n).flat_map(|rank| (0..counts[rank] as usize).map(move |i| value(rank, i))),
                    ))
                },
            );
        }
    }
}

#[test]
fn broadcast_and_scatter() {
    for n in WORLDS {
        let (_emulator, table) = machine(n);
        let world = World::new(&table, n);
        for (dtype, size) in MOVED.iter().flat_map(|dtype| SIZES.map(|size| (*dtype, size))) {
            let (root, count) = (n - 1, size as u64);
            world.check(
                "broadcast",
                |rank, card, comm| {
                    let buffer = world.upload(rank, &encode(dtype, (0..size).map(|i| value(rank, i))));
                    (
                        call!(table, HcclBroadcast(buffer, count, dtype, root as u32, comm, card.stream)),
                        buffer,
                    )
                },
                |_| Some(encode(dtype, (0..size).map(|i| value(root, i)))),
            );
            world.check(
                "scatter",
                |rank, card, comm| {
                    let all = encode(dtype, (0..n * size).map(|i| value(root, i)));
                    let send = if rank == root { world.upload(rank, &all) } else { null_mut() };
                    let recv = world.upload(rank, &vec![0; all.len() / n]);
                    (
                        call!(table, HcclScatter(send, recv, count, dtype, root as u32, comm, card.stream)),
                        recv,
                    )
                },
                |rank| Some(encode(dtype, (rank * size..(rank + 1) * size).map(|i| value(root, i)))),
            );
        }
    }
}

#[test]
fn all_to_all_in_its_three_forms() {
    for n in WORLDS {
        let (_emulator, table) = machine(n);
        let world = World::new(&table, n);
        for (dtype, size) in MOVED.iter().flat_map(|dtype| [0, 1, 19, 4099].map(|size| (*dtype, size))) {
            let blocks = |count: &dyn Fn(usize, usize) -> usize, pairs: Vec<(usize, usize)>| {
                let block = |(from, to)| (0..count(from, to)).map(move |i| addressed(from, to, i));
                encode(dtype, pairs.into_iter().flat_map(block))
            };
            let sent = |count: &dyn Fn(usize, usize) -> usize, rank| {
                blocks(count, (0..n).map(|to| (rank, to)).collect())
            };
            let got = |count: &dyn Fn(usize, usize) -> usize, rank| {
                blocks(count, (0..n).map(|from| (from, rank)).collect())
            };
            let even = |_, _| size;
            world.check(
                "all_to_all",
                |rank, card, comm| {
                    let send = world.upload(rank, &sent(&even, rank));
                    let recv = world.upload(rank, &vec![0; got(&even, rank).len()]);
                    let count = size as u64;
                    (
                        call!(table, HcclAlltoAll(send, count, dtype, recv, count, dtype, comm, card.stream)),
                        recv,
                    )
                },
                |rank| Some(got(&even, rank)),
            );
            let uneven =
                |from: usize, to: usize| if (from + to).is_multiple_of(3) { 0 } else { size + from * 2 + to };
            let prefix =
                |counts: &[u64]| -> Vec<u64> { (0..n).map(|rank| counts[..rank].iter().sum()).collect() };
            world.check(
                "all_to_all_v",
                |rank, card, comm| {
                    let send = world.upload(rank, &sent(&uneven, rank));
                    let recv = world.upload(rank, &vec![0; got(&uneven, rank).len()]);
                    let sends: Vec<u64> = (0..n).map(|to| uneven(rank, to) as u64).collect();
                    let receives: Vec<u64> = (0..n).map(|from| uneven(from, rank) as u64).collect();
                    let (sdispls, rdispls) = (prefix(&sends), prefix(&receives));
                    let code = call!(
                        table,
                        HcclAlltoAllV(
                            send,
                            sends.as_ptr().cast(),
                            sdispls.as_ptr().cast(),
                            dtype,
                            recv,
                            receives.as_ptr().cast(),
                            rdispls.as_ptr().cast(),
                            dtype,
                            comm,
                            card.stream
                        )
                    );
                    (code, recv)
                },
                |rank| Some(got(&uneven, rank)),
            );
            let matrix: Vec<u64> = (0..n * n).map(|i| uneven(i / n, i % n) as u64).collect();
            let all_to_all_vc = table.HcclAlltoAllVC.expect("modelled");
            world.check(
                "all_to_all_vc",
                |rank, card, comm| {
                    let send = world.upload(rank, &sent(&uneven, rank));
                    let recv = world.upload(rank, &vec![0; got(&uneven, rank).len()]);
                    // SAFETY: live buffers and a matrix of n x n counts.
                    let code = unsafe {
                        all_to_all_vc(send, matrix.as_ptr().cast(), dtype, recv, dtype, comm, card.stream)
                    };
                    (code, recv)
                },
                |rank| Some(got(&uneven, rank)),
            );
        }
    }
}

#[test]
fn send_and_receive_around_a_ring_and_batches() {
    let dtype = HcclDataType::HCCL_DATA_TYPE_FP16;
    for n in WORLDS {
        let (_emulator, table) = machine(n);
        let world = World::new(&table, n);
        for size in SIZES {
            let bytes = |rank| encode(dtype, (0..size).map(|i| value(rank, i)));
            let before = |rank: usize| (rank + n - 1) % n;
            if n > 1 {
                // The last of an odd number of ranks first receives from an even rank.
                world.check(
                    "ring",
                    |rank, card, comm| {
                        let send = world.upload(rank, &bytes(rank));
                        let recv = world.upload(rank, &vec![0; bytes(rank).len()]);
                        let (count, to, from) = (size as u64, ((rank + 1) % n) as u32, before(rank) as u32);
                        let sends = || call!(table, HcclSend(send, count, dtype, to, comm, card.stream));
                        let receives = || call!(table, HcclRecv(recv, count, dtype, from, comm, card.stream));
                        let codes = if rank % 2 == 0 { [sends(), receives()] } else { [receives(), sends()] };
                        hccl_ok(&table, codes[0]);
                        (codes[1], recv)
                    },
                    |rank| Some(bytes(before(rank))),
                );
            }
            world.check(
                "batch",
                |rank, card, comm| {
                    let send = world.upload(rank, &bytes(rank));
                    let recv = world.upload(rank, &vec![0; bytes(rank).len()]);
                    let item = |kind, buf, remote: usize| HcclSendRecvItem {
                        sendRecvType: kind,
                        buf,
                        count: size as u64,
                        dataType: dtype,
                        remoteRank: remote as u32,
                    };
                    let mut items = [
                        item(HcclSendRecvType::HCCL_RECV, recv, before(rank)),
                        item(HcclSendRecvType::HCCL_SEND, send, (rank + 1) % n),
                    ];
                    (call!(table, HcclBatchSendRecv(items.as_mut_ptr(), 2, comm, card.stream)), recv)
                },
                |rank| Some(bytes(before(rank))),
            );
        }
    }
}

/// Runs one thread per rank of a communicator from a root info.
fn rank_threads(table: &Table, n: usize, body: impl Fn(usize, &Card<'_>, HcclComm) + Sync) {
    let root = Card::new(table, 0);
    let mut info = HcclRootInfo { internal: [0; 4108] };
    hccl_ok(table, call!(table, HcclGetRootInfo(&raw mut info)));
    ok(table, call!(table, aclrtDestroyContext(root.context)));
    std::thread::scope(|scope| {
        for rank in 0..n {
            let (body, info) = (&body, &info);
            scope.spawn(move || {
                let card = Card::new(table, rank as i32);
                let mut comm = null_mut();
                let code = call!(
                    table,
                    HcclCommInitRootInfo(n as u32, std::ptr::from_ref(info), rank as u32, &raw mut comm)
                );
                hccl_ok(table, code);
                body(rank, &card, comm);
                hccl_ok(table, call!(table, HcclCommDestroy(comm)));
                ok(table, call!(table, aclrtDestroyContext(card.context)));
            });
        }
    });
}

#[test]
fn rank_threads_meet_through_a_root_info() {
    let (emulator, table) = machine(8);
    let dtype = HcclDataType::HCCL_DATA_TYPE_FP32;
    rank_threads(&table, 8, |rank, card, comm| {
        let (mut size, mut id) = (0, 0);
        hccl_ok(&table, call!(table, HcclGetRankSize(comm, &raw mut size)));
        hccl_ok(&table, call!(table, HcclGetRankId(comm, &raw mut id)));
        assert_eq!((size, id), (8, rank as u32));
        let buffer = card.upload(&encode(dtype, [rank as i64 + 1; 5]));
        for round in 0..50 {
            let op = HcclReduceOp::HCCL_REDUCE_SUM;
            hccl_ok(&table, call!(table, HcclAllReduce(buffer, buffer, 5, dtype, op, comm, card.stream)));
            hccl_ok(&table, call!(table, HcclBarrier(comm, card.stream)));
            card.synchronize();
            assert_eq!(card.download(buffer, 20), encode(dtype, [36; 5]), "round {round}");
            let bytes = encode(dtype, [rank as i64 + 1; 5]);
            ok(&table, call!(table, aclrtMemcpy(buffer, 20, bytes.as_ptr().cast(), 20, H2D)));
        }
        ok(&table, call!(table, aclrtFree(buffer)));
    });
    assert!(emulator.usage().iter().all(|card| card.used_bytes == 0));
}

#[test]
fn one_thread_of_the_pool_serves_eight_ranks() {
    let config = ascend_tp_emulator::Config { threads: 1, ..ascend_tp_emulator::Config::with_cards(8) };
    let (_emulator, table) = machine_of(config);
    let dtype = HcclDataType::HCCL_DATA_TYPE_INT64;
    rank_threads(&table, 8, |rank, card, comm| {
        let buffer = card.upload(&encode(dtype, [rank as i64; 3]));
        for _ in 0..20 {
            let op = HcclReduceOp::HCCL_REDUCE_MAX;
            hccl_ok(&table, call!(table, HcclAllReduce(buffer, buffer, 3, dtype, op, comm, card.stream)));
            card.synchronize();
        }
        assert_eq!(card.download(buffer, 24), encode(dtype, [7; 3]));
    });
}

#[test]
fn sub_communicators_reduce_within_their_ranks() {
    let (_emulator, table) = machine(4);
    let dtype = HcclDataType::HCCL_DATA_TYPE_INT32;
    rank_threads(&table, 4, |rank, card, comm| {
        let mut ranks = [(rank % 2) as u32, (rank % 2) as u32 + 2];
        let (mut parent, mut sub) = (comm, null_mut());
        let mut config = ascend_tp_sys::HcclCommConfig {
            // Size 300, magic number, version 5.
            reserved: header(300, 5),
            hcclBufferSize: 1,
            // SAFETY: every field is a number or an array of numbers.
            ..unsafe { std::mem::zeroed() }
        };
        let (id, sub_rank) = ((rank % 2) as u64 + 10, (rank / 2) as u32);
        let (of, list, place) = (&raw mut parent, ranks.as_mut_ptr(), &raw mut sub);
        let code = call!(table, HcclCreateSubCommConfig(of, 2, list, id, sub_rank, &raw mut config, place));
        hccl_ok(&table, code);
        let mut name = [0; 128];
        hccl_ok(&table, call!(table, HcclGetCommName(sub, name.as_mut_ptr())));
        // SAFETY: the library wrote a C string.
        let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        assert!(name.ends_with(&format!("_sub_{id}")), "{name}");
        let buffer = card.upload(&encode(dtype, [1 << rank]));
        let op = HcclReduceOp::HCCL_REDUCE_SUM;
        hccl_ok(&table, call!(table, HcclAllReduce(buffer, buffer, 1, dtype, op, sub, card.stream)));
        card.synchronize();
        assert_eq!(card.download(buffer, 4), encode(dtype, [if rank % 2 == 0 { 5 } else { 10 }]));
        hccl_ok(&table, call!(table, HcclCommDestroy(sub)));
    });
}

fn header(size: u64, version: u32) -> [std::ffi::c_char; 24] {
    let mut bytes = [0_u8; 24];
    bytes[..8].copy_from_slice(&size.to_le_bytes());
    bytes[8..12].copy_from_slice(&0xf0f0_f0f0_u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&version.to_le_bytes());
    bytes.map(|byte| byte as std::ffi::c_char)
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let run = |threads: usize| {
        let config = ascend_tp_emulator::Config { threads, ..ascend_tp_emulator::Config::with_cards(5) };
        let (_emulator, table) = machine_of(config);
        let (cards, comms) = world(&table, 5);
        let dtype = HcclDataType::HCCL_DATA_TYPE_FP32;
        let count = 100_003;
        let buffers: Vec<_> = cards
            .iter()
            .enumerate()
            .map(|(rank, card)| {
                // The sum depends on the order of the ranks.
                let values = (0..count).map(|i| ((i * 37 + rank * 101) % 1009) as f32 * 1e-3_f32 + 1e4);
                card.upload(&values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
            })
            .collect();
        for ((card, comm), buffer) in cards.iter().zip(&comms).zip(&buffers) {
            card.enter();
            let op = HcclReduceOp::HCCL_REDUCE_SUM;
            hccl_ok(
                &table,
                call!(table, HcclAllReduce(*buffer, *buffer, count as u64, dtype, op, *comm, card.stream)),
            );
        }
        cards.iter().zip(&buffers).for_each(|(card, _)| card.synchronize());
        cards[3].download(buffers[3], count * 4)
    };
    let one = run(1);
    assert!(one == run(2) && one == run(7));
}
