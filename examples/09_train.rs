//! Trains a custom model on four cards: a program, its gradients, an optimizer, a mesh, an engine,
//! steps.
//!
//! A hidden layer learns to add and multiply two numbers. The program does not mention cards: the
//! batch is pinned to the axis `dp`, and the gradient collectives follow.
//!
//! `cargo run --example 09_train`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use anyhow::Context;
use ascend_tp::base::DType;
use ascend_tp::compile::compile;
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::exec::{EngineOptions, Inputs, Part, ProgramId};
use ascend_tp::program::grad::gradients;
use ascend_tp::program::{Builder, HostTensor, Kind};
use ascend_tp::schedule::Target;
use ascend_tp::train::optimizer::Optimizer;
use ascend_tp::{Cann, Engine, Mesh, Pins};

const BATCH: usize = 62;
const HIDDEN: usize = 32;

fn main() -> anyhow::Result<()> {
    // 1. Build the program of a step: loss, gradients, parameter updates.
    let mut build = Builder::new("mlp");
    let x = build.input("x", [BATCH, 2], DType::F32);
    let target = build.input("target", [BATCH, 2], DType::F32);
    let one = build.input("one", [], DType::F32);
    let first = build.param("first", [HIDDEN, 2], DType::F32);
    let bias = build.param("bias", [HIDDEN], DType::F32);
    let second = build.param("second", [2, HIDDEN], DType::F32);
    let y = build.matmul("bi,hi->bh", x, first);
    let y = build.add(y, bias);
    let y = build.op(Kind::Silu, &[y]);
    let y = build.matmul("bh,oh->bo", y, second);
    let wrong = build.op(Kind::Scale { by: -1.0 }, &[target]);
    let off = build.add(y, wrong);
    let loss = build.matmul("bo,bo->", off, off);
    let loss = build.op(Kind::Scale { by: 1.0 / BATCH as f64 }, &[loss]);

    let params = [first, bias, second];
    let optimizer = Optimizer::Adamw { betas: [0.9, 0.99], eps: 1e-8, weight_decay: 0.0 };
    let found: Option<Vec<_>> = gradients(&mut build, &[(loss, one)], &params).into_iter().collect();
    let found = found.context("the loss depends on every param")?;
    let states = optimizer.declare(&mut build, &params);
    let (norm, _) = optimizer.update(&mut build, &params, &found, &states, 1.0).context("there are gradients")?;
    build.output("loss", loss);
    build.output("norm", norm);
    let program = build.finish()?;

    // 2. Shard the batch of 62 rows over four cards. The size need not divide.
    let mesh = Mesh::new(&[("dp", 4)])?;
    let pins = ["x", "target"].into_iter().fold(Pins::default(), |pins, name| pins.value(name, &[(0, "dp")]));
    let pins = ["first", "bias", "second"].into_iter().fold(pins, |pins, name| pins.value(name, &[]));
    let plans = compile(&program, &mesh, &pins, Target::ANY)?.plans;
    let emulator = Emulator::new(Config::with_cards(4))?;
    let mut engine = Engine::start(&Cann::new(emulator.table())?, vec![plans], &EngineOptions::default())?;
    engine.load(|shards| {
        let value = |at: usize| ((at * 7919 % 101) as f32 / 101.0 - 0.5) * 0.8;
        let numbers = |count| (0..count).flat_map(|at| value(at).to_le_bytes()).collect::<Vec<u8>>();
        shards.parts().try_for_each(|part: &Part<'_>| part.write(0, &numbers(part.tensor().shape.elems())))
    })?;

    // 3. Run the steps.
    let mut last = f32::INFINITY;
    for step in 0..400 {
        let point = |row: usize| {
            let at = (step * BATCH + row) as f32;
            ((at * 0.618).fract() - 0.5, (at * 0.414).fract() - 0.5)
        };
        let points = || (0..BATCH).map(point);
        let rows = |numbers: Vec<f32>| Arc::new(HostTensor::float([BATCH, 2], DType::F32, numbers).to_bytes());
        let number = |number: f64| Arc::new((number as f32).to_le_bytes().to_vec());
        let mut inputs: Inputs = vec![
            ("x".to_owned(), rows(points().flat_map(|(a, b)| [a, b]).collect())),
            ("target".to_owned(), rows(points().flat_map(|(a, b)| [a + b, a * b]).collect())),
            ("one".to_owned(), number(1.0)),
        ];
        inputs.extend(optimizer.inputs(step, 0.02).into_iter().map(|(name, value)| (name.to_owned(), number(value))));
        let outputs = engine.run(ProgramId(0), inputs)?;
        let bytes = outputs[0].1.first_chunk().copied().unwrap_or_default();
        last = f32::from_le_bytes(bytes);
        if step % 100 == 0 {
            println!("step {step:>3}: loss {last:.5}");
        }
    }
    println!("in the end: loss {last:.5}");
    anyhow::ensure!(last < 1e-3, "it did not learn");
    Ok(())
}
