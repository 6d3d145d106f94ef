//! Trains a custom model on four cards: a hidden layer learns sums and products of two numbers.
//!
//! `cargo run --example 09_train`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use ascend_tp::compiler::{Builder, Kind};
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::train::Optimizer;
use ascend_tp::{Cann, DType, Engine, EngineOptions, Mesh, NamedTensors, Pins, ProgramId, Target, compile};

fn main() -> anyhow::Result<()> {
    // 1. The program of a step, independent of cards.
    let mut build = Builder::new("mlp");
    let [x, target] = ["x", "target"].map(|name| build.input(name, [62, 2], DType::F32));
    let params =
        [("first", [32, 2]), ("second", [2, 32])].map(|(name, shape)| build.param(name, shape, DType::F32));
    let hidden = build.matmul("bi,hi->bh", x, params[0]);
    let hidden = build.op(Kind::Silu, &[hidden]);
    let y = build.matmul("bh,oh->bo", hidden, params[1]);
    let wrong = build.op(Kind::Scale { by: -1.0 }, &[target]);
    let off = build.add(y, wrong);
    let loss = build.matmul("bo,bo->", off, off);
    let optimizer = Optimizer::Adamw { betas: [0.9, 0.99], eps: 1e-8, weight_decay: 0.0 };
    optimizer.minimize(&mut build, loss, &params, 1.0);
    build.output("loss", loss);
    // 2. Four cards share the 62 rows of a batch.
    let rows = Pins::default().value("x", &[(0, "dp")]).value("target", &[(0, "dp")]);
    let plans = compile(&build.finish()?, &Mesh::new(&[("dp", 4)])?, &rows, Target::ANY)?.plans;
    let emulator = Emulator::new(Config::with_cards(4))?;
    let mut engine = Engine::start(&Cann::new(emulator.table())?, vec![plans], &EngineOptions::default())?;
    let weights = || (0..64).map(|at| ((at * 7919 % 101) as f32 / 101.0 - 0.5) * 0.8).collect::<Vec<f32>>();
    engine.fill(&NamedTensors::new().with("first", weights()).with("second", weights()))?;
    // 3. The training steps.
    let mut loss = 1.0;
    for step in 0..400 {
        let at = |row: usize, by: f32| ((step * 62 + row) as f32 * by).fract() - 0.5;
        let points = (0..62).map(|row| [at(row, 0.618), at(row, 0.414)]);
        let targets: Vec<f32> = points.clone().flat_map(|[a, b]| [a + b, a * b]).collect();
        let inputs = optimizer.inputs(step, 0.02).with("x", points.flatten().collect::<Vec<f32>>());
        loss = engine.run(ProgramId(0), &inputs.with("target", targets))?.number("loss")? / 62.0;
    }
    println!("loss after 400 steps: {loss:.5}");
    anyhow::ensure!(loss < 1e-3, "the loss did not fall below 0.001");
    Ok(())
}
