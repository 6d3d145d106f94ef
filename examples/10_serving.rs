//! Serves requests from several threads with one engine: prompts, samples of one prompt, and a
//! cancelled request.
//!
//! `cargo run --example 10_serving`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use std::path::Path;
use std::thread;

use ascend_tp::Cann;
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::generate::{Model, Request, RequestOutput, SamplingOptions, ServingEngine, Session};

fn main() -> anyhow::Result<()> {
    let model = Model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2"))?;
    let cann = Cann::new(Emulator::new(Config::with_cards(4))?.table())?;
    // Up to eight sequences run at once. Their keys and values share twelve blocks of 128 tokens.
    let session = Session::builder(&cann, &model).cards(4).batch(8).context(200).cache_blocks(12).start()?;
    let engine = ServingEngine::start(session)?;

    thread::scope(|scope| {
        for prompt in ["In the beginning", "And the king said", "The words of"] {
            let engine = &engine;
            scope.spawn(move || -> anyhow::Result<()> {
                let request = Request { max_new_tokens: Some(12), ..Request::new(prompt) };
                for output in engine.submit(request)? {
                    if let RequestOutput::End { sequence, .. } = output? {
                        println!("{prompt}{}", sequence.text);
                    }
                }
                Ok(())
            });
        }
    });

    let sampling = SamplingOptions { temperature: 0.8, seed: 7, ..SamplingOptions::default() };
    let request = Request { max_new_tokens: Some(8), sampling, ..Request::new("And God said") };
    for (sample, sequence) in engine.submit_samples(request, 3)?.wait()?.iter().enumerate() {
        println!("sample {sample}: And God said{}", sequence.text);
    }

    let mut endless = engine.submit(Request { stop_ids: Some(vec![]), ..Request::new("The") })?;
    let first = endless.next().transpose()?;
    // The request ends within one step.
    drop(endless);
    println!("cancelled after the first token: {}", first.is_some());
    Ok(())
}
