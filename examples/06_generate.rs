//! Runs a checkpoint on eight cards: two concurrent requests with different sampling, streamed.
//!
//! `cargo run --example 06_generate`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use std::ops::ControlFlow;
use std::path::Path;

use ascend_tp::Cann;
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::generate::{Model, Request, RequestEvent, SamplingOptions, Session};

fn main() -> anyhow::Result<()> {
    let model = Model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2"))?;
    let emulator = Emulator::new(Config::default())?;
    let cann = Cann::new(emulator.table())?;
    let mut session = Session::builder(&cann, &model).cards(8).batch(2).context(64).start()?;

    let warm = SamplingOptions {
        temperature: 0.7,
        top_k: Some(50),
        top_p: Some(0.95),
        seed: 7,
        ..Default::default()
    };
    let requests = [
        Request { max_new_tokens: Some(24), ..Request::new("In the beginning") },
        Request { max_new_tokens: Some(24), sampling: warm, ..Request::new("And the king said unto") },
    ];
    let found = session.generate(&requests, &mut |event| {
        match event {
            RequestEvent::Token(token) if token.request == 0 => print!("{}", token.text),
            RequestEvent::End { request: 0, text, .. } => println!("{text}"),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    println!("And the king said unto{}", found.sequences[1].text);
    let tokens_per_second = found.summary.decode_tokens as f64 / found.summary.decode_seconds;
    println!("{tokens_per_second:.0} tokens/s on 8 emulated cards");
    Ok(())
}
