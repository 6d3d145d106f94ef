//! `bench serve`: many requests at once in this process, alternating with llama.cpp if `PATH` has
//! its `llama-batched-bench`.

use std::ffi::OsString;

use crate::measure::serve::{self, ServeRound, Throughput};
use crate::measure::{Bench, MeasuredTable};
use ascend_tp::base::Diagnostics;

use super::peers::{LIMIT, LlamaModel, LlamaVocabulary, on_path, words};
use crate::children::{ChildJob, ChildOutput};
use crate::failure::Failure;
use crate::note;

/// Measures all numbers of streams.
pub(super) fn run(bench: &Bench) -> Result<Vec<MeasuredTable>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let peer = match on_path("llama-batched-bench") {
        Some(program) => match LlamaModel::new(threads, LIMIT, LlamaVocabulary::None)? {
            Ok(model) => Some((program, model)),
            Err(what) => {
                note(&format!("llama.cpp is not measured: {what}"));
                None
            }
        },
        None => {
            note("llama.cpp is not measured: no llama-batched-bench on PATH");
            None
        }
    };
    let rounds = serve::rounds(bench.effort);
    let mut measured: Vec<ServeRound> = Vec::new();
    for round in 1..=rounds {
        note(&format!("round {round} of {rounds}"));
        let theirs = peer.as_ref().map(|(program, model)| -> Result<Vec<Throughput>, Failure> {
            let mut command = words(program, &["-m"]);
            command.push(model.path().into());
            command.extend(serve::llama_arguments(threads).into_iter().map(OsString::from));
            let job = ChildJob {
                name: "llama.cpp".to_owned(),
                command,
                processes: 1,
                cards: None,
                prints: ChildOutput::OutputAndErrors,
            };
            let printed = job.start()?.finish(Some(LIMIT))?;
            serve::read_llama(&printed).map_err(|problem| Failure::Run(Diagnostics::from(problem).into()))
        });
        let theirs = theirs.transpose()?;
        let ours = serve::STREAMS.into_iter().map(|streams| serve::ours(bench, streams));
        measured.push((ours.collect::<Result<Vec<_>, _>>()?, theirs));
    }
    Ok(vec![serve::table(&measured)])
}
