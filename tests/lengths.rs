//! Attention over blocks reads as many rows as the host says, in graphs too.

use std::ops::ControlFlow;

use ascend_tp::base::DType;
use ascend_tp::exec::{EngineOptions, Launching};
use ascend_tp::generate::{Request, RequestEvent, Session};
use ascend_tp::program::models::CacheBlocks;

use crate::common::{cann, shipped};

/// Returns the logits of two sequences: the longer one goes on in a second block, the shorter one
/// ends before. `context` is the cache capacity.
fn logits(context: usize, launching: Launching) -> Vec<(usize, Vec<f32>)> {
    let (model, cann) = (shipped(), cann(2));
    let engine = EngineOptions { launching, ..EngineOptions::default() };
    let builder = Session::builder(&cann, &model).cards(2).batch(2).precision(DType::BF16).engine(engine);
    let mut session = builder.context(context).longest_prompt(CacheBlocks::ROWS).start().unwrap();
    let request = |tokens: usize, new: usize| {
        let ids: Vec<u32> = (0..tokens).map(|at| (at * 37 % 4000) as u32 + 3).collect();
        Request { stop_ids: Some(Vec::new()), max_new_tokens: Some(new), logits: true, ..Request::new(ids) }
    };
    let mut found = Vec::new();
    session
        .generate(&[request(CacheBlocks::ROWS - 6, 12), request(11, 5)], &mut |event| {
            if let RequestEvent::Token(token) = event {
                found.push((token.request, token.logits.unwrap().to_vec()));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(found.len(), 17);
    found
}

#[test]
fn more_blocks_change_no_bit_and_neither_does_a_graph() {
    let all = logits(CacheBlocks::ROWS + 10, Launching::Eager);
    for launching in [Launching::Eager, Launching::Captured] {
        assert_eq!(logits(5 * CacheBlocks::ROWS, launching), all, "{launching:?}");
    }
}

/// Returns the logits of the first token after a prompt, in a batch of `batch` equal prompts.
fn first_logits(tokens: usize, batch: usize) -> Vec<Vec<f32>> {
    let (model, cann) = (shipped(), cann(2));
    let builder = Session::builder(&cann, &model).cards(2).batch(batch).precision(DType::BF16);
    let mut session = builder.context(tokens + 1).start().unwrap();
    let ids: Vec<u32> = (0..tokens).map(|at| (at * 37 % 4000) as u32 + 3).collect();
    let request =
        Request { stop_ids: Some(Vec::new()), max_new_tokens: Some(1), logits: true, ..Request::new(ids) };
    let mut found = Vec::new();
    session
        .generate(&vec![request; batch], &mut |event| {
            if let RequestEvent::Token(token) = event {
                found.push(token.logits.unwrap().to_vec());
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

#[test]
fn a_triangle_of_all_tokens_gives_the_bits_of_a_mask() {
    // 5 · 1000 · 1024 cells are more than a triangle of 2048 tokens has, and a fifth of them are
    // fewer.
    let alone = first_logits(1000, 1).swap_remove(0);
    assert!(first_logits(1000, 5).into_iter().all(|logits| logits == alone));
}
