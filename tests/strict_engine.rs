//! The engine in strict mode: the same numbers and no reports for any seed.

use std::ops::ControlFlow;

use ascend_tp::base::{DType, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::emulator::{Config, Mode};
use ascend_tp::exec::{EngineOptions, Launching};
use ascend_tp::generate::{Request, Session};
use ascend_tp::placement::Residual;
use ascend_tp::program::models::Head;

use crate::common::{machine, shipped};
use crate::parity::shipped_cases;

fn generate(
    mode: Mode,
    cards: usize,
    precision: Precision,
    residual: Residual,
    tokens: usize,
    launching: Launching,
) -> (Vec<Vec<u32>>, Vec<String>) {
    let model = shipped();
    let cases = shipped_cases();
    let prompts: Vec<Vec<u32>> = cases.iter().take(2).map(|case| case.prompt_ids.clone()).collect();
    let (emulator, cann) = machine(Config { mode, ..Config::with_cards(cards) });
    let deployment = Deployment {
        precision,
        residual,
        batch: prompts.len(),
        longest_prompt: prompts.iter().map(Vec::len).max().unwrap(),
        context: prompts.iter().map(Vec::len).max().unwrap() + tokens,
        head: Head::LastToken,
        ..Deployment::of(&model.config, cards)
    };
    let engine = EngineOptions { launching, ..EngineOptions::default() };
    let mut session = Session::builder(&cann, &model).deployment(deployment).engine(engine).start().unwrap();
    let requests: Vec<Request> = prompts.into_iter().map(Request::new).collect();
    let found = session.generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap();
    let ids: Vec<Vec<u32>> = found.sequences.into_iter().map(|sequence| sequence.ids).collect();
    if precision == DType::F32.into() {
        for (case, ids) in cases.iter().zip(&ids) {
            assert_eq!(*ids, case.greedy_ids[..ids.len()]);
        }
    }
    drop(session);
    drop(cann);
    (ids, emulator.reports().iter().map(ToString::to_string).collect())
}

#[test]
fn the_shipped_model_runs_in_any_order() {
    let (exact, quantised) = (DType::F32.into(), Precision::w8a8(DType::BF16));
    let cases =
        [(2, exact, Residual::Replicate), (3, exact, Residual::Seq), (3, quantised, Residual::Replicate)];
    for (cards, precision, residual) in cases {
        let (ids, _) = generate(Mode::Parallel, cards, precision, residual, 4, Launching::Eager);
        for seed in 0..2 {
            let (found, reports) =
                generate(Mode::Strict { seed }, cards, precision, residual, 4, Launching::Eager);
            assert_eq!(reports, Vec::<String>::new(), "{cards} cards, seed {seed}");
            assert_eq!(found, ids, "{cards} cards, seed {seed}");
        }
    }
}

/// The first decode step is eager, the second timed, the third captured; later steps replay.
#[test]
fn captured_steps_give_the_same_tokens_in_any_order() {
    let (eager, _) = generate(Mode::Parallel, 2, DType::F32.into(), Residual::Replicate, 6, Launching::Eager);
    for mode in [Mode::Parallel, Mode::Strict { seed: 0 }, Mode::Strict { seed: 1 }] {
        let (found, reports) =
            generate(mode, 2, DType::F32.into(), Residual::Replicate, 6, Launching::Captured);
        assert_eq!(reports, Vec::<String>::new(), "{mode:?}");
        assert_eq!(found, eager, "{mode:?}");
    }
}
