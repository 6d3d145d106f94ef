//! `bench train`: measures training steps, alternating with `PyTorch` if `PATH` contains a Python
//! with torch.
//!
//! Both sides run in each round, so that other load on the machine affects both. A quick run
//! measures no peer.

use crate::measure::train::{self, CASES, PEER, Round};
use crate::measure::{Bench, Effort, MeasuredTable, Samples};
use ascend_tp::base::Diagnostics;

use super::peers::{LIMIT, python, words};
use crate::children::{ChildJob, ChildOutput};
use crate::failure::Failure;
use crate::note;

const TORCH: &str = include_str!("../../peers/train_torch.py");

/// Measures all cases. Peers are measured only for emulated cards.
pub(super) fn run(bench: &Bench, is_emulated: bool) -> Result<Vec<MeasuredTable>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (rounds, has_peer) = match bench.effort {
        Effort::Quick => (1, false),
        Effort::Full => (3, is_emulated),
    };
    let python = match has_peer.then(|| python(&[PEER])) {
        Some(Ok(python)) => Some(python),
        Some(Err(what)) => {
            note(&format!("{PEER} is not measured: {what}; pip install torch"));
            None
        }
        None => None,
    };
    let mut measured_rounds: Vec<Round> = Vec::new();
    for round in 1..=rounds {
        note(&format!("round {round} of {rounds}"));
        let ours =
            CASES.into_iter().map(|case| train::ours(bench, case)).collect::<Result<Vec<Samples>, _>>()?;
        let theirs = python.as_ref().map(|python| {
            let command = words(python, &["-c", TORCH, &train::argument(threads)?.to_string()]);
            let job = ChildJob {
                name: PEER.to_owned(),
                command,
                processes: 1,
                cards: None,
                prints: ChildOutput::OutputAndErrors,
            };
            let printed = job.start()?.finish(Some(LIMIT))?;
            train::read(&printed).map_err(|problem| Failure::Run(Diagnostics::from(problem).into()))
        });
        measured_rounds.push((ours, theirs.transpose()?));
    }
    Ok(vec![train::table(bench, &measured_rounds, threads)?])
}
