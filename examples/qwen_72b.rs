//! Runs Qwen-72B on eight cards.
//!
//! `cargo run --release --example qwen_72b -- FOLDER [PROMPT]` runs a Qwen-72B, Qwen1.5-72B,
//! Qwen2-72B or Qwen2.5-72B checkpoint, on NPUs if a CANN toolkit is installed. Without a folder,
//! the example explains the plan for 72B and runs the small model of this repository with the same
//! code.
#![expect(clippy::print_stdout, reason = "examples print their results")]

use std::ops::ControlFlow;
use std::path::PathBuf;

use ascend_tp::compiler::{Head, Region, RunShape, decoder, exchanges};
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::generate::{Model, Request, Session};
use ascend_tp::{Bytes, Cann, CompiledProgram, DType, Mesh, ModelConfig, Pins, Residual, Target, compile};

const CARDS: usize = 8;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map(PathBuf::from);
    let prompt = arguments.next().unwrap_or_else(|| "In the beginning".to_owned());
    let folder = match folder {
        Some(folder) => folder,
        None => {
            println!("No checkpoint folder given; this is the plan for Qwen-72B on {CARDS} cards:");
            explain("qwen-72b")?;
            println!("\nThe same code on the model that ships with the project:");
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2")
        }
    };
    run(&folder, &prompt)
}

/// Prints the plan of one decode step. Needs no weights and no card.
fn explain(preset: &str) -> anyhow::Result<()> {
    let Some(config) = ModelConfig::preset(preset) else { anyhow::bail!("unknown preset {preset}") };
    let run = RunShape::new(1, 1, 4096);
    let program = decoder(&config, run, DType::BF16, Head::LastToken)?;
    let mesh = Mesh::tensor_parallel(CARDS, config.kv_heads, config.heads_per_kv_head())?;
    let CompiledProgram { split, plans } =
        compile(&program, &mesh, &Pins::auto(Residual::Replicate), Target::ANY)?;
    for kind in ["all_reduce", "all_gather"] {
        let all = exchanges(&split.lowered).into_iter().filter(|exchange| exchange.kind == kind);
        let (count, bytes) =
            all.fold((0, Bytes(0)), |(count, bytes), exchange| (count + 1, bytes + exchange.bytes));
        println!("  {count} × {kind}, {bytes} per token");
    }
    let plan = &plans[0];
    for region in [Region::Weights, Region::States, Region::Arena] {
        println!("  {} {} per card", plan.region_bytes(region), region.name());
    }
    println!("  {} steps per token and card", plan.steps.len());
    Ok(())
}

/// Splits a checkpoint over the cards, loads it and continues a prompt.
fn run(folder: &std::path::Path, prompt: &str) -> anyhow::Result<()> {
    let model = Model::open(folder)?;
    // Uses NPUs if a toolkit is installed, otherwise eight emulated cards through the same C ABI.
    let cann = match Cann::load(None) {
        Ok(cann) => cann,
        Err(_) => Cann::new(Emulator::new(Config::default())?.table())?,
    };
    let mut session =
        Session::builder(&cann, &model).cards(CARDS).context(128).head(Head::LastToken).start()?;
    let request = Request { max_new_tokens: Some(48), ..Request::new(prompt) };
    let found = session.generate(&[request], &mut |_| ControlFlow::Continue(()))?;
    println!("{prompt}{}", found.sequences[0].text);
    for (kind, bytes) in &found.summary.memory[0] {
        println!("  card 0: {bytes} of {kind}");
    }
    Ok(())
}
