//! Adapters that requests choose: each request gets the numbers of weights with its adapter.

use std::ops::ControlFlow;

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::generate::{Model, Request, Sequence, Session};
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::program::tree::SumOrder;

use crate::common::{cann, fixture, open};
use crate::lora::{Adapter, adapter_of_rank, scaled_adapter};

const TOKENS: usize = 12;

/// Bound of the difference of log-probabilities in f32. Merged weights are rounded once more than
/// the two products, each time by 2⁻²⁴ of a number, over sums of up to 100 numbers in 4 layers.
const BOUND: f32 = 1e-4;

fn deployment(model: &Model, cards: usize) -> Deployment {
    Deployment {
        precision: DType::F32.into(),
        batch: 4,
        longest_prompt: 20,
        context: 48,
        block_tokens: 16,
        ..Deployment::of(&model.config, cards)
    }
}

/// Returns the answers to one prompt, with each of the adapters.
fn answers(model: &Model, deployment: Deployment, adapters: &[Option<&str>]) -> Vec<Sequence> {
    let mut session =
        Session::builder(&cann(deployment.cards), model).deployment(deployment).start().unwrap();
    let request = |adapter: &Option<&str>| Request {
        adapter: adapter.map(str::to_owned),
        max_new_tokens: Some(TOKENS),
        stop_ids: Some(Vec::new()),
        log_probabilities: Some(3),
        ..Request::new((0..20).map(|at| (at * at * 7 + 11) % 90 + 3).collect::<Vec<u32>>())
    };
    let requests: Vec<Request> = adapters.iter().map(request).collect();
    session.generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap().sequences
}

fn are_close(found: &Sequence, expected: &Sequence, what: &str) {
    assert_eq!(found.ids, expected.ids, "{what}");
    let numbers = |sequence: &Sequence| -> Vec<f32> {
        let found = sequence.log_probabilities.iter();
        found.flat_map(|at| at.likeliest.iter().map(|(_, number)| *number)).collect()
    };
    for (found, expected) in numbers(found).into_iter().zip(numbers(expected)) {
        assert!((found - expected).abs() <= BOUND, "{what}: {found} instead of {expected}");
    }
}

/// Adapters of different layers and ranks.
fn adapters(model: &Model, few: &[&str]) -> [Adapter; 2] {
    [adapter_of_rank(model, few, 2), adapter_of_rank(model, &["all-linear"], 5)]
}

#[test]
fn each_request_of_a_batch_gets_its_own_adapter() {
    let layouts = |deployment: Deployment| {
        let Deployment { cards: _, .. } = deployment;
        [
            Deployment { cards: 1, ..deployment },
            Deployment { cards: 3, residual: Residual::Seq, ..deployment },
            Deployment { cards: 2, stages: 2, ..deployment },
            Deployment { cards: 4, grid: Grid { rows: 2, depth: 1 }, ..deployment },
            Deployment { cards: 2, order: SumOrder::Tree, ..deployment },
        ]
    };
    // The second model has its queries, keys and values in one tensor.
    for (name, few) in [("qwen2-gqa", ["q_proj", "down_proj"]), ("qwen-v1-mha", ["c_attn", "w1"])] {
        let whole = open(&fixture(name));
        let [few, all] = adapters(&whole, &few);
        let merged = |adapter: &Adapter| {
            let model = open(&fixture(name)).with_adapter(adapter.path()).unwrap();
            answers(&model, deployment(&model, 1), &[None]).remove(0)
        };
        let expected = [merged(&few), merged(&all)];
        assert_ne!(expected[0].ids, expected[1].ids, "{name}: the adapters differ");
        let model = open(&fixture(name)).with_adapters(&[("few", few.path()), ("all", all.path())]).unwrap();
        for layout in layouts(deployment(&model, 1)) {
            let alone = answers(&whole, layout, &[None]).remove(0);
            let found = answers(&model, layout, &[Some("all"), None, Some("few"), Some("all")]);
            let what = format!("{name} on {layout:?}");
            if layout.cards == 1 || layout.order == SumOrder::Tree {
                assert_eq!(found[1], alone, "{what}: a request without adapter has the bits of the weights");
            }
            are_close(&found[1], &alone, &what);
            assert_eq!(found[0].ids, found[3].ids, "{what}");
            are_close(&found[0], &expected[1], &what);
            are_close(&found[2], &expected[0], &what);
        }
    }
}

#[test]
fn adapters_stand_next_to_quantised_weights() {
    let model = open(&fixture("qwen2-gqa"));
    let [few, all] = adapters(&model, &["q_proj"]);
    let model = model.with_adapters(&[("few", few.path()), ("all", all.path())]).unwrap();
    let deployment = Deployment { precision: Precision::w8a8(DType::BF16), ..deployment(&model, 2) };
    let found = answers(&model, deployment, &[None, Some("few"), Some("all")]);
    assert!(found[0].ids != found[2].ids && found[1].ids != found[2].ids, "{found:?}");
}

#[test]
fn what_cannot_be_chosen_is_refused() {
    let model = open(&fixture("qwen2-gqa"));
    let [few, _] = adapters(&model, &["q_proj"]);
    let twice = open(&fixture("qwen2-gqa")).with_adapters(&[("a", few.path()), ("a", few.path())]);
    assert!(twice.unwrap_err().to_string().contains("adapter a: two adapters have this name"));
    let nowhere = open(&fixture("qwen2-gqa")).with_adapters(&[("a", "no/such/folder".as_ref())]);
    assert!(nowhere.unwrap_err().to_string().contains("adapter a: no/such/folder/adapter_config.json"));
    let model = model.with_adapters(&[("few", few.path())]).unwrap();
    let mut session = Session::builder(&cann(1), &model).deployment(deployment(&model, 1)).start().unwrap();
    let request = Request { adapter: Some("other".to_owned()), ..Request::new([5, 6].as_slice()) };
    let refused = session.enqueue(&request, 1).unwrap_err().to_string();
    assert!(refused.contains("expected few, found other"), "{refused}");
}

#[test]
fn an_adapter_of_experts_is_refused_by_the_names_of_its_layers() {
    let model = open(&fixture("qwen3-moe"));
    let adapter = adapter_of_rank(&model, &["q_proj", "gate_proj"], 2);
    let model = model.with_adapters(&[("experts", adapter.path())]).unwrap();
    let refused = deployment(&model, 1).compile_serving(&model.config).unwrap_err().to_string();
    assert!(refused.contains("experts.0.gate_proj: an adapter of this layer cannot be chosen"), "{refused}");
}

#[test]
fn products_of_an_adapter_beyond_the_range_of_f16_change_no_other_request() {
    // The second model has its queries, keys and values in one tensor.
    for (name, few) in [("qwen2-gqa", ["q_proj", "down_proj"]), ("qwen-v1-mha", ["c_attn", "w1"])] {
        let whole = open(&fixture(name));
        let fitting = adapter_of_rank(&whole, &few, 2);
        // The factors are finite numbers of f16, but their products with activations are not.
        let huge = scaled_adapter(&whole, &["all-linear"], 3, 6e5);
        let with = |huge: &Adapter| {
            open(&fixture(name)).with_adapters(&[("huge", huge.path()), ("few", fitting.path())]).unwrap()
        };
        let model = with(&huge);
        let sizes = Deployment { precision: DType::F16.into(), ..deployment(&model, 1) };
        for cards in [1, 2] {
            let layout = Deployment { cards, ..sizes };
            let found = answers(&model, layout, &[None, Some("few")]);
            let harmless = with(&adapter_of_rank(&whole, &["all-linear"], 3));
            let expected = answers(&harmless, layout, &[None, Some("few")]);
            assert_eq!(found, expected, "{name} on {cards} cards");
        }
        // The request that chooses the adapter ends with an error.
        let mut session = Session::builder(&cann(1), &model).deployment(sizes).start().unwrap();
        let request = Request { adapter: Some("huge".to_owned()), ..Request::new([5, 6].as_slice()) };
        let ended = session.generate(&[request], &mut |_| ControlFlow::Continue(()));
        let message = ended.unwrap_err().to_string();
        assert!(message.contains("not finite") || message.contains("NaN"), "{message}");
    }
}
