//! A fixed list of collectives, for one process or many.
//!
//! Each rank prints a hash per collective. Sums depend on the order of the ranks.

use std::ffi::c_void;

use ascend_tp_sys::{
    HcclComm, HcclDataType, HcclReduceOp, HcclResult, HcclSendRecvItem, HcclSendRecvType, Table,
};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

use crate::common::*;

const FP32: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP32;
const FP16: HcclDataType = HcclDataType::HCCL_DATA_TYPE_FP16;
const BF16: HcclDataType = HcclDataType::HCCL_DATA_TYPE_BFP16;
const INT64: HcclDataType = HcclDataType::HCCL_DATA_TYPE_INT64;
const SUM: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_SUM;
const MAX: HcclReduceOp = HcclReduceOp::HCCL_REDUCE_MAX;

fn size_of(dtype: HcclDataType) -> usize {
    match dtype {
        FP32 => 4,
        INT64 => 8,
        _ => 2,
    }
}

/// Returns every magnitude, so that a sum depends on its order.
fn numbers(dtype: HcclDataType, rank: u32, count: usize) -> Vec<u8> {
    let mut random = SplitMix64::seed_from_u64(rank.into());
    let mut next = || {
        let bits = random.next_u64();
        let scale = 2_f64.powi((bits >> 60) as i32 - 8);
        (bits as u32 as f64 / f64::from(u32::MAX) - 0.5) * scale
    };
    let mut bytes = Vec::with_capacity(count * size_of(dtype));
    for _ in 0..count {
        let value = next();
        match dtype {
            FP32 => bytes.extend((value as f32).to_le_bytes()),
            FP16 => bytes.extend(half::f16::from_f64(value).to_le_bytes()),
            BF16 => bytes.extend(half::bf16::from_f64(value).to_le_bytes()),
            _ => bytes.extend(((value * 1e15) as i64).to_le_bytes()),
        }
    }
    bytes
}

fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

pub(crate) struct Rank<'a> {
    pub(crate) rank: u32,
    pub(crate) card: Card<'a>,
    pub(crate) comm: HcclComm,
}

struct Buffers {
    send: *mut c_void,
    recv: *mut c_void,
}

fn uneven(world: u32, count: usize) -> (Vec<u64>, Vec<u64>, usize) {
    let counts: Vec<u64> =
        (0..u64::from(world)).map(|rank| (count as u64 * (rank + 1)) / 2 + rank % 2).collect();
    let mut displacements = Vec::new();
    let mut end = 1;
    for count in &counts {
        displacements.push(end);
        end += count + 2;
    }
    (counts, displacements, end as usize)
}

type Collective<'a> = dyn Fn(&Rank<'_>, &Buffers) -> HcclResult + 'a;

struct Step<'a> {
    name: &'static str,
    send: usize,
    recv: usize,
    call: Box<Collective<'a>>,
}

fn reductions_and_gathers<'a>(
    table: &'a Table,
    dtype: HcclDataType,
    count: usize,
    world: u32,
) -> Vec<Step<'a>> {
    let (n, all) = (count as u64, count * world as usize);
    let last = world - 1;
    let (counts, displacements, extent) = uneven(world, count);
    let (counts_s, displacements_s) = (counts.clone(), displacements.clone());
    let step = |name, send, recv, call| Step { name, send, recv, call };
    vec![
        step(
            "all_reduce sum",
            count,
            count,
            Box::new(move |r, b| {
                call!(table, HcclAllReduce(b.send, b.recv, n, dtype, SUM, r.comm, r.card.stream))
            }),
        ),
        step(
            "all_reduce max in place",
            count,
            count,
            Box::new(move |r, b| {
                call!(table, HcclAllReduce(b.recv, b.recv, n, dtype, MAX, r.comm, r.card.stream))
            }),
        ),
        step(
            "reduce",
            count,
            count,
            Box::new(move |r, b| {
                call!(table, HcclReduce(b.send, b.recv, n, dtype, SUM, last, r.comm, r.card.stream))
            }),
        ),
        step(
            "reduce_scatter",
            all,
            count,
            Box::new(move |r, b| {
                call!(table, HcclReduceScatter(b.send, b.recv, n, dtype, SUM, r.comm, r.card.stream))
            }),
        ),
        step(
            "all_gather",
            count,
            all,
            Box::new(move |r, b| {
                call!(table, HcclAllGather(b.send, b.recv, n, dtype, r.comm, r.card.stream))
            }),
        ),
        step(
            "all_gather_v",
            extent,
            extent,
            Box::new(move |r, b| {
                let own = counts[r.rank as usize];
                let (counts, displs) = (counts.as_ptr().cast(), displacements.as_ptr().cast());
                call!(
                    table,
                    HcclAllGatherV(b.send, own, b.recv, counts, displs, dtype, r.comm, r.card.stream)
                )
            }),
        ),
        step(
            "reduce_scatter_v",
            extent,
            extent,
            Box::new(move |r, b| {
                let own = counts_s[r.rank as usize];
                let (counts, displs) = (counts_s.as_ptr().cast(), displacements_s.as_ptr().cast());
                let dtype = if dtype == INT64 { HcclDataType::HCCL_DATA_TYPE_INT32 } else { dtype };
                call!(
                    table,
                    HcclReduceScatterV(
                        b.send,
                        counts,
                        displs,
                        b.recv,
                        own,
                        dtype,
                        SUM,
                        r.comm,
                        r.card.stream
                    )
                )
            }),
        ),
    ]
}

fn steps<'a>(table: &'a Table, dtype: HcclDataType, count: usize, world: u32) -> Vec<Step<'a>> {
    let (n, all) = (count as u64, count * world as usize);
    let last = world - 1;
    let matrix: Vec<u64> =
        (0..u64::from(world * world)).map(|cell| (n * (cell % 3)) / 2 + cell % 2).collect();
    let rows = matrix.clone();
    let row = move |rank: u32| rows[(rank * world) as usize..][..world as usize].iter().sum::<u64>() as usize;
    let most = (0..world).map(row).max().unwrap_or(0) * world as usize + 1;
    let step = |name, send, recv, call| Step { name, send, recv, call };
    let mut steps = reductions_and_gathers(table, dtype, count, world);
    steps.extend([
        step(
            "broadcast",
            count,
            count,
            Box::new(move |r, b| call!(table, HcclBroadcast(b.send, n, dtype, last, r.comm, r.card.stream))),
        ),
        step(
            "scatter",
            all,
            count,
            Box::new(move |r, b| {
                call!(table, HcclScatter(b.send, b.recv, n, dtype, 0, r.comm, r.card.stream))
            }),
        ),
        step(
            "all_to_all",
            all,
            all,
            Box::new(move |r, b| {
                call!(table, HcclAlltoAll(b.send, n, dtype, b.recv, n, dtype, r.comm, r.card.stream))
            }),
        ),
        step(
            "all_to_all_vc",
            most,
            most,
            Box::new(move |r, b| {
                let matrix = matrix.as_ptr().cast();
                let function = table.HcclAlltoAllVC.expect("modelled");
                // SAFETY: live buffers of this table and a matrix of world x world counts.
                unsafe { function(b.send, matrix, dtype, b.recv, dtype, r.comm, r.card.stream) }
            }),
        ),
        step(
            "ring",
            count,
            count,
            Box::new(move |r, b| {
                let item = |kind, buf, remote| HcclSendRecvItem {
                    sendRecvType: kind,
                    buf,
                    count: n,
                    dataType: dtype,
                    remoteRank: remote,
                };
                let mut items = [
                    item(HcclSendRecvType::HCCL_SEND, b.send, (r.rank + 1) % world),
                    item(HcclSendRecvType::HCCL_RECV, b.recv, (r.rank + last) % world),
                ];
                call!(table, HcclBatchSendRecv(items.as_mut_ptr(), 2, r.comm, r.card.stream))
            }),
        ),
        step(
            "send and receive",
            count,
            count,
            Box::new(move |r, b| match r.rank {
                0 => call!(table, HcclSend(b.send, n, dtype, last, r.comm, r.card.stream)),
                rank if rank == last => call!(table, HcclRecv(b.recv, n, dtype, 0, r.comm, r.card.stream)),
                _ => HcclResult::HCCL_SUCCESS,
            }),
        ),
        step("barrier", 1, 1, Box::new(move |r, _| call!(table, HcclBarrier(r.comm, r.card.stream)))),
    ]);
    steps
}

/// Returns what `HcclCommConfigInit` of CANN 8.1 writes.
pub(crate) fn default_config() -> Box<ascend_tp_sys::HcclCommConfig> {
    let mut header = [0_u8; 24];
    header[..8].copy_from_slice(&300_u64.to_le_bytes());
    header[8..12].copy_from_slice(&0xf0f0_f0f0_u32.to_le_bytes());
    header[12..16].copy_from_slice(&5_u32.to_le_bytes());
    Box::new(ascend_tp_sys::HcclCommConfig {
        reserved: header.map(|byte| byte as std::ffi::c_char),
        hcclBufferSize: 1,
        // SAFETY: every field is a number or an array of numbers.
        ..unsafe { std::mem::zeroed() }
    })
}

pub(crate) fn run(table: &Table, ranks: &[Rank<'_>], world: u32) -> Vec<String> {
    let small = [(FP32, 0), (FP32, 1), (FP16, 7), (BF16, 1021), (INT64, 5000)];
    let large = [(FP32, 20_011), (FP16, 100_003), (FP32, 1_100_003)];
    run_sizes(table, ranks, world, &[&small[..], &large[..]].concat())
}

pub(crate) fn run_short(table: &Table, ranks: &[Rank<'_>], world: u32) -> Vec<String> {
    run_sizes(table, ranks, world, &[(BF16, 1021)])
}

fn run_sizes(table: &Table, ranks: &[Rank<'_>], world: u32, sizes: &[(HcclDataType, usize)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (dtype, count) in sizes.iter().copied() {
        for step in steps(table, dtype, count, world) {
            let is_long = count > 1_000_000;
            if is_long && !["all_reduce sum", "reduce", "ring"].contains(&step.name) {
                continue;
            }
            let element = size_of(dtype);
            let buffers: Vec<Buffers> = ranks
                .iter()
                .map(|rank| Buffers {
                    send: rank.card.upload(&numbers(dtype, rank.rank, step.send)),
                    recv: rank.card.upload(&numbers(dtype, rank.rank + 100, step.recv)),
                })
                .collect();
            for (rank, buffers) in ranks.iter().zip(&buffers) {
                rank.card.enter();
                hccl_ok(table, (step.call)(rank, buffers));
            }
            for (rank, buffers) in ranks.iter().zip(&buffers) {
                rank.card.synchronize();
                let mut bytes = rank.card.download(buffers.recv, step.recv * element);
                bytes.extend(rank.card.download(buffers.send, step.send * element));
                lines.push(format!(
                    "{} {dtype:?} x {count} rank {}: {:016x}",
                    step.name,
                    rank.rank,
                    hash(&bytes)
                ));
                for buffer in [buffers.send, buffers.recv] {
                    ok(table, call!(table, aclrtFree(buffer)));
                }
            }
        }
    }
    lines
}

pub(crate) fn until_it_fails(table: &Table, rank: &Rank<'_>, world: u32, mut done: impl FnMut()) -> String {
    let steps = steps(table, FP16, 50_021, world);
    let most = steps.iter().map(|step| step.send.max(step.recv)).max().expect("steps");
    let numbers = numbers(FP16, rank.rank, most);
    let buffers = Buffers { send: rank.card.upload(&numbers), recv: rank.card.upload(&numbers) };
    loop {
        for step in &steps {
            rank.card.enter();
            if (step.call)(rank, &buffers) != HcclResult::HCCL_SUCCESS {
                return message(table);
            }
            let (code, text) = rank.card.outcome();
            if code != 0 {
                return text;
            }
            done();
        }
    }
}

pub(crate) fn sum(table: &Table, rank: &Rank<'_>, count: usize) -> Result<(), String> {
    start_sum(table, rank, count).and_then(|()| end_sum(rank))
}

pub(crate) fn start_sum(table: &Table, rank: &Rank<'_>, count: usize) -> Result<(), String> {
    let buffer = rank.card.upload(&numbers(FP32, rank.rank, count));
    let code =
        call!(table, HcclAllReduce(buffer, buffer, count as u64, FP32, SUM, rank.comm, rank.card.stream));
    if code == HcclResult::HCCL_SUCCESS { Ok(()) } else { Err(message(table)) }
}

pub(crate) fn end_sum(rank: &Rank<'_>) -> Result<(), String> {
    let (code, text) = rank.card.outcome();
    if code == 0 { Ok(()) } else { Err(text) }
}

/// Enqueues `times` in-place sums of one number per rank before the first wait; returns the final
/// numbers.
pub(crate) fn queued_sums(table: &Table, ranks: &[Rank<'_>], times: usize) -> Vec<i64> {
    let number = |rank: &Rank<'_>| rank.card.upload(&(i64::from(rank.rank) + 1).to_le_bytes());
    let buffers: Vec<_> = ranks.iter().map(number).collect();
    for _ in 0..times {
        for (rank, buffer) in ranks.iter().zip(&buffers) {
            rank.card.enter();
            hccl_ok(
                table,
                call!(table, HcclAllReduce(*buffer, *buffer, 1, INT64, SUM, rank.comm, rank.card.stream)),
            );
        }
    }
    let result = |(rank, buffer): (&Rank<'_>, &*mut c_void)| {
        rank.card.synchronize();
        let bytes = rank.card.download(*buffer, size_of(INT64));
        i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    };
    ranks.iter().zip(&buffers).map(result).collect()
}
