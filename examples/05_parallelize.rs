//! Splits a single-card program over six cards, runs it, and compares it with the host interpreter.
//!
//! `cargo run --example 05_parallelize`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use ascend_tp::base::DType;
use ascend_tp::compile::{CompiledProgram, compile};
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::exec::{self, EngineOptions, ProgramId};
use ascend_tp::placement::{self, Residual};
use ascend_tp::program::{Builder, HostTensor, Kind, Role, interpret};
use ascend_tp::schedule::Target;
use ascend_tp::{Cann, Engine, Mesh, Pins, collective};

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
    println!("{}", placement::print(&split.lowered));
    for exchange in collective::exchanges(&split.lowered) {
        println!("{} on {} of {}: {}", exchange.kind, exchange.axes, exchange.bytes, exchange.reason);
    }

    let tensor = |name: &str, elems: usize, shape: &[usize]| {
        let phase = name.len() as f32;
        HostTensor::float(shape.to_vec(), DType::F32, (0..elems).map(|i| (i as f32 * 0.37 + phase).sin()).collect())
    };
    let given = |name: &str| {
        let value = program.values.values().iter().find(|value| value.name == name).expect("a value of the program");
        tensor(name, value.shape.elems(), value.shape.sizes())
    };
    let emulator = Emulator::new(Config::default())?;
    let mut engine = Engine::start(&Cann::new(emulator.table())?, vec![plans], &EngineOptions::default())?;
    let weights: Vec<(String, Vec<u8>)> = program
        .with_role(Role::Param)
        .map(|id| program.values[id].name.clone())
        .map(|name| (name.clone(), given(&name).to_bytes()))
        .collect();
    engine.load(|shards| {
        shards.parts().try_for_each(|part| {
            let tensor = part.tensor();
            let (_, whole) = weights
                .iter()
                .find(|(name, _)| *name == tensor.name)
                .ok_or_else(|| exec::Error::fill("no such weight"))?;
            part.write(0, &tensor.cut(whole))
        })
    })?;
    let outputs = engine.run(ProgramId(0), vec![("x".to_owned(), Arc::new(given("x").to_bytes()))])?;

    let found = HostTensor::from_bytes([4, 10], DType::F32, &outputs[0].1);
    let values = interpret(&program, |_, value| given(&value.name));
    let expected = &values[ascend_tp::base::Id::index(y.id())];
    let error = found.floats().iter().zip(expected.floats()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("largest difference from the host: {error:e}");
    anyhow::ensure!(error < 1e-5, "the split changed the result");
    Ok(())
}
