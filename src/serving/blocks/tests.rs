//! One test per rule of pools and names of blocks. Random operations are in `tests/`.

use super::*;

const KEY: [u8; 16] = [9; 16];

fn chain(salt: u64, blocks: &[[u32; 2]]) -> Chain {
    let mut chain = Chain::new(KEY, salt);
    for block in blocks {
        chain.push(block, 2);
    }
    chain
}

/// Allocates a block, publishes it and releases it.
fn cache(pool: &mut BlockPool, content: &Arc<Content>) -> BlockId {
    let block = pool.allocate().unwrap();
    assert!(pool.publish(block, content));
    pool.release(block);
    block
}

#[test]
fn the_null_block_is_never_allocated() {
    let mut pool = BlockPool::new(4);
    let mut blocks: Vec<BlockId> = std::iter::from_fn(|| pool.allocate()).collect();
    blocks.sort();
    assert_eq!(blocks, [BlockId(1), BlockId(2), BlockId(3)]);
    assert_eq!(pool.available(), 0);
}

#[test]
fn a_block_without_content_is_free_after_its_last_reference() {
    let mut pool = BlockPool::new(2);
    let block = pool.allocate().unwrap();
    pool.acquire(block);
    pool.release(block);
    assert_eq!(pool.available(), 0);
    pool.release(block);
    assert_eq!((pool.available(), pool.idle()), (1, 0));
}

#[test]
#[should_panic(expected = "released more often than acquired")]
fn a_block_is_not_released_twice() {
    let mut pool = BlockPool::new(2);
    let block = pool.allocate().unwrap();
    pool.release(block);
    pool.release(block);
}

#[test]
#[should_panic(expected = "is free")]
fn a_free_block_is_not_acquired() {
    BlockPool::new(2).acquire(BlockId(1));
}

#[test]
fn idle_blocks_are_evicted_in_the_order_of_release() {
    let mut pool = BlockPool::new(4);
    let contents = chain(0, &[[1, 1], [2, 2], [3, 3]]);
    let blocks: Vec<BlockId> = contents.blocks().iter().map(|content| cache(&mut pool, content)).collect();
    pool.acquire(blocks[0]);
    pool.release(blocks[0]);
    let evicted: Vec<BlockId> = std::iter::from_fn(|| pool.allocate()).collect();
    assert_eq!(evicted, [blocks[1], blocks[2], blocks[0]]);
    assert!(contents.blocks().iter().all(|content| pool.find(content).is_none()));
}

#[test]
fn free_blocks_are_used_before_idle_ones() {
    let mut pool = BlockPool::new(3);
    let contents = chain(0, &[[1, 1]]);
    let cached = cache(&mut pool, &contents.blocks()[0]);
    assert_ne!(pool.allocate(), Some(cached));
    assert_eq!(pool.find(&contents.blocks()[0]), Some(cached));
}

#[test]
fn a_second_block_with_the_same_content_stays_unknown() {
    let mut pool = BlockPool::new(3);
    let contents = chain(0, &[[1, 1]]);
    let first = cache(&mut pool, &contents.blocks()[0]);
    let second = pool.allocate().unwrap();
    assert!(!pool.publish(second, &contents.blocks()[0]));
    pool.release(second);
    assert_eq!(pool.find(&contents.blocks()[0]), Some(first));
    assert_eq!(pool.idle(), 1);
}

#[test]
fn equal_hashes_of_other_tokens_are_no_hit() {
    let mut pool = BlockPool::new(3);
    let stored = chain(0, &[[1, 1]]);
    let content = &stored.blocks()[0];
    cache(&mut pool, content);
    let mut other = chain(0, &[[1, 2]]);
    let forged = Arc::try_unwrap(other.blocks_mut().remove(0)).unwrap().with_hash(content.hash());
    assert_eq!(pool.find(&forged), None);
    assert!(pool.find(content).is_some());
    let block = pool.allocate().unwrap();
    assert!(!pool.publish(block, &Arc::new(forged)), "the first owner keeps the hash");
}

#[test]
fn a_name_depends_on_key_salt_parent_tokens_and_form() {
    let hash = |key, salt, prompt_tokens, blocks: &[[u32; 2]]| {
        let mut chain = Chain::new(key, salt);
        blocks.iter().for_each(|block| chain.push(block, prompt_tokens));
        chain.blocks().last().unwrap().hash()
    };
    let hashes = [
        hash(KEY, 0, 2, &[[1, 1], [2, 2]]),
        hash([8; 16], 0, 2, &[[1, 1], [2, 2]]),
        hash(KEY, 1, 2, &[[1, 1], [2, 2]]),
        hash(KEY, 0, 1, &[[1, 1], [2, 2]]),
        hash(KEY, 0, 2, &[[1, 3], [2, 2]]),
        hash(KEY, 0, 2, &[[1, 1], [2, 3]]),
        hash(KEY, 0, 2, &[[2, 2]]),
    ];
    let different: std::collections::BTreeSet<u128> = hashes.into();
    assert_eq!(different.len(), hashes.len());
    assert_eq!(hash(KEY, 0, 2, &[[1, 1], [2, 2]]), hashes[0]);
}

#[test]
fn the_first_block_of_a_window_is_the_first_that_a_query_reads() {
    let group = |window| Group { pool: BlockPool::new(2), window };
    for window in 1..12_u32 {
        for position in 0..40_u32 {
            let first_key = (position + 1).saturating_sub(window);
            assert_eq!(group(Some(window)).first_block(position, 4), first_key / 4);
            assert_eq!(group(None).first_block(position, 4), 0);
        }
    }
}

#[test]
fn a_block_is_private_until_it_is_shared_or_published() {
    let mut pool = BlockPool::new(3);
    let block = pool.allocate().unwrap();
    assert!(pool.is_private(block));
    pool.acquire(block);
    assert!(!pool.is_private(block));
    pool.release(block);
    assert!(pool.is_private(block));
    pool.publish(block, &chain(0, &[[1, 1]]).blocks()[0]);
    assert!(!pool.is_private(block));
}
