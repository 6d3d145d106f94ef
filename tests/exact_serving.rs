//! Exact sum order in serving: the same bits of every logit for any number of cards and any batch.

use std::ops::ControlFlow;

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::generate::{Model, Request, RequestEvent, Session};
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::program::models::Head;
use ascend_tp::program::tree::SumOrder;

use crate::common::{cann, fixture, open, shipped};

fn deployment(model: &Model, cards: usize, batch: usize, precision: impl Into<Precision>) -> Deployment {
    let precision = precision.into();
    let head = Head::LastLogits;
    let of = Deployment::of(&model.config, cards);
    let (longest_prompt, context) = (39 + batch, 45 + 3 * batch);
    Deployment { precision, batch, longest_prompt, context, head, order: SumOrder::Tree, ..of }
}

/// Returns the logit bits of each token after four prompts of different lengths.
fn logits(model: &Model, deployment: Deployment) -> Vec<Vec<u32>> {
    let cann = cann(deployment.cards);
    let mut session = Session::builder(&cann, model).deployment(deployment).start().unwrap();
    let requests: Vec<Request> = [5, 40, 1, 17]
        .map(|tokens: u32| {
            let ids: Vec<u32> =
                (0..tokens).map(|at| (at * 37 + tokens) % (model.config.vocab_size as u32 - 3) + 3).collect();
            Request { stop_ids: Some(Vec::new()), max_new_tokens: Some(4), logits: true, ..Request::new(ids) }
        })
        .into();
    let mut found = vec![Vec::new(); requests.len()];
    for (at, together) in requests.chunks(deployment.batch).enumerate() {
        let mut note = |event: RequestEvent<'_>| {
            if let RequestEvent::Token(token) = event {
                let bits = token.logits.unwrap().iter().map(|logit| logit.to_bits());
                found[at * deployment.batch + token.request].extend(bits);
            }
            ControlFlow::Continue(())
        };
        session.generate(together, &mut note).unwrap();
    }
    assert!(found.iter().all(|logits| logits.len() == 4 * model.config.vocab_size));
    found
}

#[test]
fn logits_have_the_same_bits_on_any_number_of_cards_and_in_any_batch() {
    let model = shipped();
    for dtype in [DType::F32, DType::BF16] {
        let of = |cards, batch| deployment(&model, cards, batch, dtype);
        let expected = logits(&model, of(1, 1));
        let others = [
            of(1, 4),
            of(2, 1),
            of(2, 4),
            of(4, 4),
            of(8, 1),
            of(8, 4),
            Deployment { stages: 2, ..of(4, 1) },
            Deployment { stages: 2, ..of(4, 4) },
            Deployment { residual: Residual::Seq, ..of(4, 4) },
        ];
        for other in others {
            assert!(logits(&model, other) == expected, "{other:?}");
        }
    }
}

#[test]
fn sizes_that_do_not_divide_have_the_same_bits() {
    let uneven = open(&fixture("qwen2-tied-uneven"));
    let of = |cards, batch| deployment(&uneven, cards, batch, DType::F32);
    let expected = logits(&uneven, of(1, 1));
    for other in [of(2, 1), of(2, 4)] {
        assert!(logits(&uneven, other) == expected, "{other:?}");
    }
}

/// Embeddings that are scaled before the cards add their parts, and one key head for all queries.
#[test]
fn scaled_embeddings_and_one_key_head_have_the_same_bits() {
    for (name, cards) in [("gemma2", vec![2]), ("gemma3", vec![2, 4])] {
        let model = open(&fixture(name));
        let of = |cards| deployment(&model, cards, 1, DType::F32);
        let expected = logits(&model, of(1));
        for cards in cards {
            assert!(logits(&model, of(cards)) == expected, "{name} on {cards} cards");
        }
        let stages = Deployment { stages: 2, ..of(4) };
        assert!(logits(&model, stages) == expected, "{name} in two stages");
    }
}

#[test]
fn without_one_order_cards_have_other_bits() {
    let model = shipped();
    let of = |cards| {
        let deployment = deployment(&model, cards, 1, DType::F32);
        logits(&model, Deployment { order: SumOrder::AsTheyCome, ..deployment })
    };
    assert!(of(1) != of(4));
}

#[test]
fn what_has_no_one_order_is_said_before_anything_runs() {
    let said =
        |model: &Model, deployment: Deployment| deployment.compile(&model.config).unwrap_err().to_string();
    let (shipped, uneven) = (shipped(), open(&fixture("qwen2-tied-uneven")));
    let f32 = DType::F32;
    for (model, deployment, parts) in [
        (&shipped, deployment(&shipped, 3, 1, f32), ["tp does not divide the 16 blocks", "found tp=3"]),
        (
            &shipped,
            deployment(&shipped, 2, 1, Precision::w8a8(DType::BF16)),
            ["are rounded on each card", "expected f32, f16 or bf16, found w8a8"],
        ),
        (
            &shipped,
            Deployment { grid: Grid { rows: 2, depth: 1 }, ..deployment(&shipped, 4, 1, f32) },
            ["sums over two axes", "found tp_row=2, tp_depth=1"],
        ),
        (
            &uneven,
            deployment(&uneven, 4, 1, f32),
            ["tree_matmul", "cut a dim of 3 elements, so that one has none"],
        ),
    ] {
        let text = said(model, deployment);
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}
