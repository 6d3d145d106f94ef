//! Random operations on the block pool and on prefix hits, against naive models.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ascend_tp::serving::{BlockId, BlockPool, Chain, Content, Group, States};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::common::cases::cases;

const KEY: [u8; 16] = [3; 16];
const BLOCK: usize = 2;

fn settings(few: usize) -> ProptestConfig {
    ProptestConfig {
        cases: u32::try_from(cases(few)).unwrap(),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// An operation. Numbers select a sequence or a text, modulo their count.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Starts a sequence with the longest hit for a text of few letters.
    Start(u64),
    /// Adds a token to a sequence, and publishes its block if the block is full.
    Grow { sequence: usize, token: u32 },
    /// Adds a token to a sequence, and does not publish its block.
    GrowSecretly { sequence: usize, token: u32 },
    /// Releases the blocks of a sequence.
    End(usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![
        2 => any::<u64>().prop_map(Operation::Start),
        8 => (any::<usize>(), 0_u32..2).prop_map(|(sequence, token)| Operation::Grow { sequence, token }),
        1 => (any::<usize>(), 0_u32..2).prop_map(|(sequence, token)| Operation::GrowSecretly { sequence, token }),
        2 => any::<usize>().prop_map(Operation::End),
    ];
    prop::collection::vec(operation, 1_000)
}

struct Sequence {
    tokens: Vec<u32>,
    chain: Chain,
    blocks: Vec<BlockId>,
}

/// The expected pool: every block with its references and the whole prefix that it holds.
#[derive(Default)]
struct Model {
    references: BTreeMap<BlockId, u32>,
    contents: BTreeMap<BlockId, Vec<u32>>,
    /// Idle blocks, the one that was released first at the front.
    idle: VecDeque<BlockId>,
}

#[derive(Debug, Default)]
struct Seen {
    operations: usize,
    hits: usize,
    evictions: usize,
    refusals: usize,
    duplicates: usize,
}

struct Run<'a> {
    pool: BlockPool,
    model: Model,
    sequences: Vec<Sequence>,
    seen: &'a mut Seen,
}

impl Run<'_> {
    fn apply(&mut self, operation: Operation) {
        self.seen.operations += 1;
        match operation {
            Operation::Start(text) => self.start(text),
            Operation::Grow { .. } | Operation::GrowSecretly { .. } | Operation::End(_)
                if self.sequences.is_empty() => {}
            Operation::Grow { sequence, token } => self.grow(sequence % self.sequences.len(), token, true),
            Operation::GrowSecretly { sequence, token } => {
                self.grow(sequence % self.sequences.len(), token, false);
            }
            Operation::End(sequence) => {
                let ended = self.sequences.swap_remove(sequence % self.sequences.len());
                for &block in ended.blocks.iter().rev() {
                    self.pool.release(block);
                    let references = self.model.references.get_mut(&block).unwrap();
                    *references -= 1;
                    if *references == 0 {
                        self.model.references.remove(&block);
                        if self.model.contents.contains_key(&block) {
                            self.model.idle.push_back(block);
                        }
                    }
                }
            }
        }
        let capacity = self.pool.capacity();
        assert_eq!(self.pool.available() + self.model.references.len(), capacity, "a leak or a double use");
        assert_eq!(self.pool.idle(), self.model.idle.len());
        for (&block, &references) in &self.model.references {
            let is_private = references == 1 && !self.model.contents.contains_key(&block);
            assert_eq!(self.pool.is_private(block), is_private);
        }
    }

    fn start(&mut self, text: u64) {
        let tokens: Vec<u32> = (0..12).map(|at| u32::try_from(text >> at & 1).unwrap()).collect();
        let mut sequence = Sequence { tokens: Vec::new(), chain: Chain::new(KEY, 0), blocks: Vec::new() };
        for block in tokens.chunks_exact(BLOCK) {
            let mut chain = sequence.chain.clone();
            chain.push(block, 0);
            let prefix = [sequence.tokens.as_slice(), block].concat();
            let held =
                self.model.contents.iter().find(|(_, content)| **content == prefix).map(|(block, _)| *block);
            let found = self.pool.find(chain.blocks().last().unwrap());
            assert_eq!(found, held, "a hit with other tokens, or no hit");
            let Some(block) = found else { break };
            self.seen.hits += 1;
            assert_eq!(self.pool.is_idle(block), self.model.idle.contains(&block));
            self.pool.acquire(block);
            self.model.idle.retain(|&idle| idle != block);
            *self.model.references.entry(block).or_default() += 1;
            (sequence.tokens, sequence.chain) = (prefix, chain);
            sequence.blocks.push(block);
        }
        self.sequences.push(sequence);
    }

    fn grow(&mut self, sequence: usize, token: u32, is_published: bool) {
        let sequence = &mut self.sequences[sequence];
        if sequence.tokens.len().is_multiple_of(BLOCK) {
            let is_full = self.model.references.len() == self.pool.capacity();
            let is_free = self.model.references.len() + self.model.idle.len() < self.pool.capacity();
            let Some(block) = self.pool.allocate() else {
                assert!(is_full, "a block is refused");
                self.seen.refusals += 1;
                return;
            };
            assert!(
                block != BlockId::NULL && !self.model.references.contains_key(&block),
                "{block} is in use"
            );
            if is_free {
                assert!(
                    !self.model.contents.contains_key(&block),
                    "{block} is evicted while others are free"
                );
            } else {
                assert_eq!(self.model.idle.pop_front(), Some(block), "another block is older");
                self.model.contents.remove(&block);
                self.seen.evictions += 1;
            }
            self.model.references.insert(block, 1);
            sequence.blocks.push(block);
        }
        sequence.tokens.push(token);
        if sequence.tokens.len().is_multiple_of(BLOCK) {
            sequence.chain.push(&sequence.tokens[sequence.tokens.len() - BLOCK..], 0);
            let (block, content) =
                (*sequence.blocks.last().unwrap(), sequence.chain.blocks().last().unwrap());
            let is_known = self.model.contents.values().any(|known| *known == sequence.tokens);
            if is_published {
                assert_eq!(self.pool.publish(block, content), !is_known);
                self.seen.duplicates += usize::from(is_known);
                if !is_known {
                    self.model.contents.insert(block, sequence.tokens.clone());
                }
            }
        }
    }
}

#[test]
fn the_pool_agrees_with_a_naive_model() {
    let seen = RefCell::new(Seen::default());
    TestRunner::new(settings(50))
        .run(&(2_u32..24, operations()), |(blocks, operations)| {
            let (pool, mut seen) = (BlockPool::new(blocks), seen.borrow_mut());
            let mut run = Run { pool, model: Model::default(), sequences: Vec::new(), seen: &mut seen };
            for operation in operations {
                run.apply(operation);
            }
            while !run.sequences.is_empty() {
                run.apply(Operation::End(0));
            }
            assert_eq!(run.pool.available(), run.pool.capacity(), "a leak");
            Ok(())
        })
        .unwrap();
    let seen = seen.into_inner();
    assert!(seen.operations >= 50_000 && seen.hits > 0 && seen.evictions > 0, "{seen:?}");
    assert!(seen.refusals > 0 && seen.duplicates > 0, "{seen:?}");
}

/// Publishes the blocks of `chain` that are flagged.
fn publish(pool: &mut BlockPool, chain: &[Arc<Content>], flags: &[bool]) {
    let held: Vec<BlockId> = chain.iter().map(|_| pool.allocate().unwrap()).collect();
    for ((&block, content), _) in held.iter().zip(chain).zip(flags).filter(|(_, flag)| **flag) {
        assert!(pool.publish(block, content));
    }
    held.into_iter().for_each(|block| pool.release(block));
}

#[test]
fn the_longest_hit_is_the_longest_that_all_states_serve() {
    const LENGTH: usize = 8;
    let flags = || prop::collection::vec(prop::bool::weighted(0.8), LENGTH);
    let groups = prop::collection::vec((prop::option::of(1_u32..12), flags()), 0..4);
    let recurrent = prop::option::of(flags());
    let case = (1_u32..5, groups, recurrent, 0..LENGTH + 2);
    let lengths = RefCell::new([0; LENGTH + 1]);
    TestRunner::new(settings(2_000))
        .run(&case, |(block_size, groups, recurrent, limit)| {
            let mut chain = Chain::new(KEY, 1);
            for number in 0..LENGTH {
                chain.push(&vec![u32::try_from(number).unwrap(); block_size as usize], block_size);
            }
            let mut states = States { block_size, groups: Vec::new(), recurrent: None };
            for (window, flags) in &groups {
                let mut group = Group { pool: BlockPool::new(20), window: *window };
                publish(&mut group.pool, chain.blocks(), flags);
                states.groups.push(group);
            }
            if let Some(flags) = &recurrent {
                publish(states.recurrent.insert(BlockPool::new(20)), chain.blocks(), flags);
            }
            // The query after the hit reads the keys of the window's positions before it.
            let is_served = |&blocks: &usize| {
                let position = blocks * block_size as usize;
                let reads =
                    |window: Option<u32>| window.map_or(0, |it| (position + 1).saturating_sub(it as usize));
                let is_held = |(window, flags): &(Option<u32>, Vec<bool>)| {
                    (reads(*window)..position).all(|at| flags[at / block_size as usize])
                };
                groups.iter().all(is_held) && recurrent.as_ref().is_none_or(|flags| flags[blocks - 1])
            };
            let expected = (1..=limit.min(LENGTH)).rev().find(is_served).unwrap_or(0);
            let found = states.longest_hit(chain.blocks(), limit);
            lengths.borrow_mut()[found] += 1;
            prop_assert_eq!(found, expected);
            Ok(())
        })
        .unwrap();
    assert!(lengths.borrow().iter().all(|&count| count > 0), "{lengths:?}");
}
