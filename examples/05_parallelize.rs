//! Splits a single-card program over six cards, runs it, and compares it with the host interpreter.
//!
//! `cargo run --example 05_parallelize`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use ascend_tp::compiler::{Builder, Kind, exchanges, interpret, print_placed};
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::{
    Cann, CompiledProgram, DType, Engine, EngineOptions, HostTensor, Mesh, NamedTensors, Pins, ProgramId,
    Residual, Target, compile,
};

fn main() -> anyhow::Result<()> {
    // A feed-forward layer, written for a single card.
    let mut build = Builder::new("feed-forward");
    let x = build.input("x", [4, 10], DType::F32);
    let gate = build.param("gate", [21, 10], DType::F32);
    let up = build.param("up", [21, 10], DType::F32);
    let down = build.param("down", [10, 21], DType::F32);
    let (g, u) = (build.matmul("bh,fh->bf", x, gate), build.matmul("bh,fh->bf", x, up));
    let hidden = build.op(Kind::SwiGlu, &[g, u]);
    let y = build.matmul("bf,hf->bh", hidden, down);
    build.output("y", y);
    let program = build.finish()?;

    // Data parallel on one axis, tensor parallel on the other. The sizes need not divide.
    let mesh = Mesh::new(&[("dp", 2), ("tp", 3)])?;
    let pins = Pins::auto(Residual::Replicate).value("x", &[(0, "dp")]);
    let CompiledProgram { split, plans } = compile(&program, &mesh, &pins, Target::ANY)?;
    println!("{}", print_placed(&split.lowered));
    for exchange in exchanges(&split.lowered) {
        println!("{} on {} of {}: {}", exchange.kind, exchange.axes, exchange.bytes, exchange.reason);
    }

    let tensor = |name: &str, elems: usize, shape: &[usize]| {
        let phase = name.len() as f32;
        HostTensor::float(
            shape.to_vec(),
            DType::F32,
            (0..elems).map(|i| (i as f32 * 0.37 + phase).sin()).collect(),
        )
    };
    let given = |name: &str| {
        let value =
            program.values.values().iter().find(|value| value.name == name).expect("a value of the program");
        tensor(name, value.shape.elems(), value.shape.sizes())
    };
    let emulator = Emulator::new(Config::default())?;
    let mut engine = Engine::start(&Cann::new(emulator.table())?, vec![plans], &EngineOptions::default())?;
    engine.fill(&["gate", "up", "down"].map(|name| (name, given(name))).into_iter().collect())?;
    let outputs = engine.run(ProgramId(0), &NamedTensors::new().with("x", given("x")))?;

    let found = outputs.get("y")?;
    let values = interpret(&program, |_, value| given(&value.name));
    let expected = values.last().expect("y is the last value");
    let error = found.floats().iter().zip(expected.floats()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("largest difference from the host: {error:e}");
    anyhow::ensure!(error < 1e-5, "the split changed the result");
    Ok(())
}
