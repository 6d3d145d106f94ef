//! A checkpoint on eight cards: a batch of prompts, sampled with a seed, streamed.
//!
//! `cargo run --example 06_generate`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::ops::ControlFlow;
use std::path::Path;

use ascend_tp::Cann;
use ascend_tp::base::DType;
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::generate::sampling::SamplingOptions;
use ascend_tp::generate::tokenizer::Tokenizer;
use ascend_tp::generate::{Model, Session, SessionOptions};
use ascend_tp::placement::Residual;

fn main() -> anyhow::Result<()> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2");
    let model = Model::open(&dir)?;
    let tokenizer = Tokenizer::open(&dir, model.config.vocab_size)?;
    let prompts = ["In the beginning", "And the king said unto"];
    let ids = prompts.iter().map(|prompt| tokenizer.encode(prompt)).collect::<Result<Vec<_>, _>>()?;

    let emulator = Emulator::new(Config::default())?;
    let options = SessionOptions {
        cards: 8,
        precision: DType::BF16.into(),
        residual: Residual::Replicate,
        batch: prompts.len(),
        longest_prompt: ids.iter().map(Vec::len).max().unwrap_or(1),
        max_new_tokens: 24,
        stop_ids: model.generation.eos_ids.clone(),
        sampling: SamplingOptions { temperature: 0.7, top_k: Some(50), top_p: Some(0.95), seed: 7 },
    };
    let mut session = Session::start(&Cann::new(emulator.table())?, &model, &options, &|_, _| ())?;
    let found = session.generate(&ids, &mut |sequence, token| {
        if sequence == 0 {
            print!("{} ", tokenizer.decode(&[token]).unwrap_or_default().trim());
        }
        ControlFlow::Continue(())
    })?;
    println!();
    for (prompt, new) in ids.iter().zip(&found.ids) {
        println!("{}", tokenizer.decode(&[&prompt[..], new].concat())?);
    }
    let tokens_per_second = found.summary.decode_tokens as f64 / found.summary.decode_seconds;
    println!("{tokens_per_second:.0} tokens/s on 8 emulated cards");
    Ok(())
}
