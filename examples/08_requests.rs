//! Runs two sessions with shared weights, one thread each. Requests arrive while others run, and
//! one is cancelled.
//!
//! `cargo run --example 08_requests`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use std::ops::ControlFlow;
use std::path::Path;
use std::thread;

use ascend_tp::Cann;
use ascend_tp::emulator::{Config, Emulator};
use ascend_tp::generate::{CancelToken, Model, Request, RequestEvent, Session};

fn main() -> anyhow::Result<()> {
    let model = Model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2"))?;
    let cann = Cann::new(Emulator::new(Config::with_cards(4))?.table())?;
    let mut short = Session::builder(&cann, &model).cards(4).batch(2).context(48).start()?;
    let mut long = Session::builder(&cann, &model).cards(4).context(200).weights_of(&short).start()?;

    let stop = CancelToken::new();
    let endless =
        Request { stop_ids: Some(vec![]), cancel: Some(stop.clone()), ..Request::new("The words of") };
    thread::scope(|scope| {
        let cancelled = scope.spawn(|| long.generate(&[endless], &mut |_| ControlFlow::Continue(())));
        for prompts in [vec!["In the beginning", "And God said"], vec!["The king"]] {
            let requests: Vec<Request> = prompts.iter().map(|prompt| Request::new(*prompt)).collect();
            short.generate(&requests, &mut |event| {
                if let RequestEvent::End { request, finish, .. } = event {
                    println!("\"{}…\" ended: {finish:?}", prompts[request]);
                }
                ControlFlow::Continue(())
            })?;
        }
        stop.cancel();
        let sequence = &cancelled.join().expect("the thread does not panic")?.sequences[0];
        println!("the cancelled request: {:?} after {} tokens", sequence.finish, sequence.ids.len());
        Ok(())
    })
}
