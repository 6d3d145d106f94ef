//! Serving over pipeline stages: the tokens of one card, any order of the ranks, and refusals.

use std::ops::ControlFlow;

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::emulator::{Config, Mode};
use ascend_tp::exec::{EngineOptions, Launching};
use ascend_tp::generate::verify::{Reference, verify_on};
use ascend_tp::generate::{Model, Request, Session};
use ascend_tp::placement::Residual;
use ascend_tp::program::models::Head;
use ascend_tp::schedule::plan::Region;

use crate::common::{cann, machine, open, path, shipped};

/// Stages and cards of one card.
const ONE: (usize, usize) = (1, 1);

fn deployment(model: &Model, stages: usize, cards: usize, precision: Precision, head: Head) -> Deployment {
    let of = Deployment::of(&model.config, cards);
    Deployment { stages, precision, head, batch: 2, longest_prompt: 40, context: 48, ..of }
}

/// Returns the ids after two prompts of different lengths, and the reports of the emulator.
pub(crate) fn generate(
    mode: Mode,
    model: &Model,
    deployment: Deployment,
    launching: Launching,
) -> (Vec<Vec<u32>>, Vec<String>) {
    let (emulator, cann) = machine(Config { mode, ..Config::with_cards(deployment.cards) });
    let engine = EngineOptions { launching, ..EngineOptions::default() };
    let mut session = Session::builder(&cann, model).deployment(deployment).engine(engine).start().unwrap();
    let request = |ids: Vec<u32>| {
        let (stop_ids, max_new_tokens) = (Some(Vec::new()), Some(6));
        Request { stop_ids, max_new_tokens, ..Request::new(ids) }
    };
    let short = [vec![7, 5], vec![9]].map(|ids| Request { max_new_tokens: Some(1), ..request(ids) });
    let before = session.generate(&short, &mut |_| ControlFlow::Continue(())).unwrap();
    let requests = [vec![5, 9, 3, 11, 7], (3..36).collect()].map(request);
    let found = session.generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap();
    let sequences = before.sequences.into_iter().chain(found.sequences);
    let ids = sequences.map(|sequence| sequence.ids).collect();
    drop((session, cann));
    (ids, emulator.reports().iter().map(ToString::to_string).collect())
}

#[test]
fn tokens_over_stages_are_one_cards() {
    for place in ["models/kjv-qwen2", "tests/fixtures/qwen2-tied-uneven"] {
        let model = open(&path(place));
        let f32 = DType::F32.into();
        let run = |(stages, cards), precision, head, launching| {
            let deployment = deployment(&model, stages, cards, precision, head);
            generate(Mode::Parallel, &model, deployment, launching).0
        };
        let expected = run(ONE, f32, Head::LastToken, Launching::Eager);
        for cards in [(2, 2), (2, 4), (model.config.layers, model.config.layers)] {
            for head in [Head::LastToken, Head::LastLogits] {
                assert_eq!(run(cards, f32, head, Launching::Eager), expected, "{place}, {cards:?}, {head:?}");
            }
        }
        assert_eq!(run((2, 4), f32, Head::LastToken, Launching::Captured), expected, "{place}: replayed");
        let layers = model.config.layers;
        for precision in [DType::BF16.into(), Precision::w8a8(DType::BF16)] {
            let [two, most] = [(2, 4), (layers, 2 * layers)]
                .map(|cards| run(cards, precision, Head::LastLogits, Launching::Eager));
            assert_eq!(two, most, "{place}, {precision}");
        }
    }
}

#[test]
fn stages_serve_in_any_order() {
    let model = shipped();
    let deployment = Deployment {
        residual: Residual::Seq,
        ..deployment(&model, 2, 4, DType::F32.into(), Head::LastToken)
    };
    let (expected, _) = generate(Mode::Parallel, &model, deployment, Launching::Eager);
    for seed in 0..2 {
        let (found, reports) = generate(Mode::Strict { seed }, &model, deployment, Launching::Eager);
        assert_eq!(reports, Vec::<String>::new(), "seed {seed}");
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn stages_are_verified_against_one_card() {
    for place in ["models/kjv-qwen2", "tests/fixtures/qwen2-tied-uneven"] {
        let model = open(&path(place));
        let cann = cann(4);
        let reference = Reference::without(model.config.vocab_size);
        let values = |deployment: Deployment| {
            let found = verify_on(&cann, &model, &deployment, &reference, &EngineOptions::default())
                .unwrap()
                .unwrap();
            assert!(found.passed(), "{place}: {found:?}");
            found.values
        };
        for (precision, residual) in [(DType::F32, Residual::Replicate), (DType::BF16, Residual::Seq)] {
            let of = Deployment { precision: precision.into(), residual, ..Deployment::of(&model.config, 4) };
            assert_eq!(values(Deployment { stages: 2, ..of }), values(of), "{place} in {precision}");
        }
    }
}

/// A stage holds only its layers' weights and caches, which together have the bytes of one card.
#[test]
fn a_stage_holds_its_own_layers() {
    let model = shipped();
    let bytes = |(stages, cards), region| {
        let deployment = deployment(&model, stages, cards, DType::F32.into(), Head::LastToken);
        let programs = deployment.compile(&model.config).unwrap();
        programs.decode.iter().map(|plan| plan.region_bytes(region).0).collect::<Vec<u64>>()
    };
    for region in [Region::Weights, Region::States] {
        let (one, two) = (bytes(ONE, region)[0], bytes((2, 2), region));
        println!("{region:?}: {one} bytes on one card, {two:?} in two stages");
        let all: u64 = two.iter().sum();
        assert!(all.abs_diff(one) < one / 50, "{region:?}: {one}, {two:?}");
        assert!(two.iter().all(|own| *own < one * 3 / 4), "{region:?}: {one}, {two:?}");
    }
}

#[test]
fn stages_that_cannot_be_are_said_before_anything_runs() {
    let model = shipped();
    let said = |stages, cards| {
        let deployment = deployment(&model, stages, cards, DType::F32.into(), Head::LastToken);
        deployment.compile(&model.config).unwrap_err().to_string()
    };
    let layers = model.config.layers;
    assert!(
        said(layers + 1, layers + 1)
            .contains(&format!("stages: need one layer each: expected at most {layers}"))
    );
    assert!(
        said(2, 3).contains("stages: need equal numbers of cards: expected a divisor of 3 cards, found 2")
    );
    assert!(said(0, 2).contains("stages: nothing to do: expected at least 1, found 0"));
}
