//! Expected contents of memory: the steps, executed sequentially on the host.
//!
//! The oracle shares no code with the emulator. Streams, processes and transports are irrelevant,
//! because a program has no races.

use std::collections::BTreeMap;

use crate::element::StormElement;
use crate::order::{ROW_GAP, buffers};
use crate::program::{BufferPlace, StormOperator, StormProgram, StormStep, note_comm};
use crate::random::scramble;

pub(crate) const BLOCK_BYTES: usize = 1 << 14;

#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) rank: u32,
    /// Numbers after the last step are the final read of each allocation.
    pub(crate) step: usize,
    pub(crate) hashes: Vec<u64>,
    /// Last step that wrote to each block.
    pub(crate) writers: Vec<Option<usize>>,
}

#[must_use]
pub(crate) fn noise(salt: u64, bytes: u64) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8)).flat_map(|word| scramble(salt ^ word.rotate_left(32)).to_le_bytes());
    let mut noise: Vec<u8> = words.collect();
    noise.truncate(bytes as usize);
    noise
}

/// Returns the salt of the initial content of an allocation.
#[must_use]
pub(crate) fn first_salt(seed: u64, rank: u32, pool: u8) -> u64 {
    scramble(seed ^ (rank as u64) << 8 ^ pool as u64)
}

/// Returns the salt of a rank's input of small numbers.
#[must_use]
pub(crate) fn small_salt(seed: u64, step: usize, rank: u32, input: u8) -> u64 {
    scramble(seed ^ (step as u64) << 20 ^ (rank as u64) << 4 ^ input as u64)
}

#[must_use]
pub(crate) fn hashes(bytes: &[u8]) -> Vec<u64> {
    let hash = |block: &[u8]| {
        let (words, rest) = block.as_chunks::<8>();
        let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
        let hash = words.iter().fold(block.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
    };
    bytes.chunks(BLOCK_BYTES).map(hash).collect()
}

struct RankPool {
    bytes: Vec<u8>,
    writers: Vec<Option<usize>>,
}

struct OracleMemory {
    pools: Vec<Vec<RankPool>>,
    step: usize,
}

impl OracleMemory {
    fn read(&self, rank: u32, at: BufferPlace, bytes: u64) -> &[u8] {
        let pool = &self.pools[rank as usize][usize::from(at.pool)];
        &pool.bytes[at.offset as usize..(at.offset + bytes) as usize]
    }

    fn write(&mut self, rank: u32, at: BufferPlace, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let pool = &mut self.pools[rank as usize][usize::from(at.pool)];
        let (first, end) = (at.offset as usize, at.offset as usize + bytes.len());
        pool.bytes[first..end].copy_from_slice(bytes);
        pool.writers[first / BLOCK_BYTES..=(end - 1) / BLOCK_BYTES].fill(Some(self.step));
    }

    fn expected(&self, rank: u32, step: usize, at: BufferPlace, bytes: u64) -> Expected {
        let pool = &self.pools[rank as usize][usize::from(at.pool)];
        let writer = |block: usize| pool.writers[(at.offset as usize + block * BLOCK_BYTES) / BLOCK_BYTES];
        let hashes = hashes(self.read(rank, at, bytes));
        let writers = (0..hashes.len()).map(writer).collect();
        Expected { rank, step, hashes, writers }
    }
}

#[must_use]
pub(crate) fn interpret(program: &StormProgram) -> Vec<Expected> {
    let setup = &program.setup;
    let pool = |rank: u32, pool: u8| RankPool {
        bytes: noise(first_salt(program.seed, rank, pool), setup.pool_bytes),
        writers: vec![None; (setup.pool_bytes as usize).div_ceil(BLOCK_BYTES)],
    };
    let of_rank = |rank| (0..setup.pools).map(|number| pool(rank, number)).collect();
    let mut memory = OracleMemory { pools: (0..program.world()).map(of_rank).collect(), step: 0 };
    let mut comms = BTreeMap::new();
    let mut expected = Vec::new();
    for (number, step) in program.steps.iter().enumerate() {
        memory.step = number;
        note_comm(&mut comms, step);
        match step {
            StormStep::Fill { rank, at, bytes, value, .. } => {
                memory.write(*rank, *at, &vec![*value; *bytes as usize]);
            }
            StormStep::Load { rank, at, bytes, salt, .. } => memory.write(*rank, *at, &noise(*salt, *bytes)),
            StormStep::Copy { rank, from, to, width, rows, .. } => {
                let source = memory.read(*rank, *from, width * rows).to_vec();
                for (row, bytes) in source.chunks(*width as usize).enumerate() {
                    memory.write(*rank, to.plus(row as u64 * (width + ROW_GAP)), bytes);
                }
            }
            StormStep::Compute { rank, operator, from, to, .. } => {
                compute(&mut memory, program.seed, *rank, *operator, *from, *to);
            }
            StormStep::Read { rank, at, bytes } => expected.push(memory.expected(*rank, number, *at, *bytes)),
            StormStep::Share { rank, at, bytes, reader: Some(reader) } => {
                let read = memory.expected(*rank, number, *at, *bytes);
                expected.push(Expected { rank: *reader, ..read });
            }
            StormStep::Collective { comm, call, send, recv, times } => {
                let Some(ranks) = comms.get(comm) else { continue };
                for _ in 0..*times {
                    collective(&mut memory, program.seed, ranks, call, *send, *recv);
                }
            }
            StormStep::Share { .. }
            | StormStep::Wait { .. }
            | StormStep::Renew { .. }
            | StormStep::Join { .. }
            | StormStep::Part { .. }
            | StormStep::Probe { .. }
            | StormStep::Stall { .. }
            | StormStep::Absent { .. } => {}
        }
    }
    for rank in 0..program.world() {
        for pool in 0..setup.pools {
            let step = program.steps.len() + usize::from(pool);
            expected.push(memory.expected(rank, step, BufferPlace { pool, offset: 0 }, setup.pool_bytes));
        }
    }
    expected
}

fn int32(bytes: &[u8]) -> Vec<i32> {
    bytes.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word)).collect()
}

fn compute(
    memory: &mut OracleMemory,
    seed: u64,
    rank: u32,
    operator: StormOperator,
    from: [BufferPlace; 2],
    to: BufferPlace,
) {
    let bytes: Vec<u8> = match operator {
        StormOperator::Add { count } | StormOperator::ReduceAsync { count } => {
            let (x, y) =
                (int32(memory.read(rank, from[0], 4 * count)), int32(memory.read(rank, to, 4 * count)));
            x.iter().zip(&y).flat_map(|(x, y)| x.wrapping_add(*y).to_le_bytes()).collect()
        }
        StormOperator::Cast { count } => {
            let x = int32(memory.read(rank, from[0], 4 * count));
            x.iter().flat_map(|x| i64::from(*x).to_le_bytes()).collect()
        }
        StormOperator::Matmul { dims: [m, k, n] } => {
            let step = memory.step;
            let mut input = |number: u8, count: u64| {
                let bytes = StormElement::F32.small(small_salt(seed, step, rank, number), count);
                memory.write(rank, from[usize::from(number)], &bytes);
                bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect::<Vec<f32>>()
            };
            let (x, y) = (input(0, m * k), input(1, k * n));
            let (m, k, n) = (m as usize, k as usize, n as usize);
            let mut out = vec![0.0_f32; m * n];
            for row in 0..m {
                for at in 0..k {
                    let factor = x[row * k + at];
                    let cells = out[row * n..][..n].iter_mut().zip(&y[at * n..][..n]);
                    cells.for_each(|(cell, other)| *cell += factor * other);
                }
            }
            out.iter().flat_map(|cell| cell.to_le_bytes()).collect()
        }
    };
    memory.write(rank, to, &bytes);
}

fn collective(
    memory: &mut OracleMemory,
    seed: u64,
    ranks: &[u32],
    call: &crate::collective::StormCall,
    send: BufferPlace,
    recv: BufferPlace,
) {
    let (world, size) = (ranks.len(), call.element.bytes());
    let mut sent = Vec::with_capacity(world);
    for (member, rank) in ranks.iter().enumerate() {
        let (from, _) = buffers(call, member, send, recv);
        let count = call.sends(world, member);
        if call.needs_small() {
            let bytes = call.element.small(small_salt(seed, memory.step, *rank, 0), count);
            memory.write(*rank, from, &bytes);
        }
        sent.push(memory.read(*rank, from, count * size).to_vec());
    }
    for (member, pieces) in call.results(&sent).into_iter().enumerate() {
        let (_, into) = buffers(call, member, send, recv);
        for (offset, bytes) in pieces {
            memory.write(ranks[member], into.plus(offset), &bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{StormCall, StormCollective};
    use crate::element::Reduction;
    use crate::program::{Ending, Setup};

    fn program(steps: Vec<StormStep>) -> StormProgram {
        let setup = Setup {
            processes: vec![vec![0], vec![1]],
            by_tcp: false,
            strict: None,
            busy: 0,
            threads: 1,
            streams: 1,
            pools: 1,
            pool_bytes: 64,
            exec_limit_s: 60,
        };
        StormProgram { seed: 1, setup, steps, ending: Ending::InOrder }
    }

    const fn at(offset: u64) -> BufferPlace {
        BufferPlace { pool: 0, offset }
    }

    #[test]
    fn bytes_are_those_of_the_last_writer() {
        let fill =
            |rank, offset, value| StormStep::Fill { rank, stream: 0, at: at(offset), bytes: 32, value };
        let call = StormCall {
            kind: StormCollective::AllReduce(Reduction::Sum),
            element: StormElement::I32,
            count: 8,
            root: 0,
            in_place: false,
            salt: 0,
        };
        let steps = vec![
            StormStep::Join { comm: 0, ranks: vec![0, 1], parent: None },
            fill(0, 0, 1),
            fill(1, 0, 2),
            StormStep::Collective { comm: 0, call, send: at(0), recv: at(32), times: 1 },
            StormStep::Read { rank: 0, at: at(32), bytes: 32 },
            StormStep::Copy { rank: 1, stream: 0, from: at(32), to: at(0), width: 32, rows: 1 },
        ];
        let expected = interpret(&program(steps));
        assert_eq!(expected.len(), 3, "one read, and each rank's allocation at the end");
        assert_eq!((expected[0].rank, expected[0].step, &expected[0].hashes), (0, 4, &hashes(&[3; 32])));
        assert_eq!(expected[0].writers, [Some(3)]);
        assert_eq!(expected[1].hashes, hashes(&[[1_u8; 32], [3; 32]].concat()));
        assert_eq!((&expected[2].hashes, &expected[2].writers), (&hashes(&[3; 64]), &vec![Some(5)]));
    }

    #[test]
    fn operators_compute_what_they_say() {
        let load = |offset, salt| StormStep::Load {
            rank: 0,
            stream: 0,
            at: at(offset),
            bytes: 8,
            salt,
            is_pinned: false,
        };
        let compute = |operator, from: [u64; 2], to| StormStep::Compute {
            rank: 0,
            stream: 0,
            operator,
            from: from.map(at),
            to: at(to),
        };
        let steps = vec![
            load(0, 3),
            StormStep::Fill { rank: 0, stream: 0, at: at(8), bytes: 8, value: 0 },
            compute(StormOperator::Add { count: 2 }, [0, 0], 8),
            compute(StormOperator::Cast { count: 2 }, [8, 8], 16),
            compute(StormOperator::Matmul { dims: [1, 2, 1] }, [32, 40], 48),
            StormStep::Read { rank: 0, at: at(8), bytes: 24 },
            StormStep::Read { rank: 0, at: at(32), bytes: 20 },
        ];
        let expected = interpret(&program(steps));
        let loaded = noise(3, 8);
        let wide: Vec<u8> = int32(&loaded).iter().flat_map(|x| i64::from(*x).to_le_bytes()).collect();
        assert_eq!(expected[0].hashes, hashes(&[loaded, wide].concat()));
        let (x, y) = (
            StormElement::F32.small(small_salt(1, 4, 0, 0), 2),
            StormElement::F32.small(small_salt(1, 4, 0, 1), 2),
        );
        let float =
            |bytes: &[u8], at: usize| f32::from_le_bytes(bytes[4 * at..][..4].try_into().expect("4 bytes"));
        let product = float(&x, 0) * float(&y, 0) + float(&x, 1) * float(&y, 1);
        assert_eq!(expected[1].hashes, hashes(&[x, y, product.to_le_bytes().to_vec()].concat()));
    }
}
