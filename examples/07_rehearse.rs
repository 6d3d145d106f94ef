//! Predicts Qwen2.5-72B on two to eight emulated cards: whether it fits and how fast it is. Needs
//! no weights and no card.
//!
//! `cargo run --release --example 07_rehearse`
#![expect(clippy::print_stdout, reason = "examples print their results")]

use anyhow::Context;
use ascend_tp::device::KernelSource;
use ascend_tp::machine::{Profile, Soc, Topology};
use ascend_tp::{DType, ExpertShards, Launching, ModelConfig, Residual};
use ascend_tp_planner::rehearse::{Error, Rehearsal, Setting, Site};

fn main() -> anyhow::Result<()> {
    for cards in [2, 4, 8] {
        let setting = Setting {
            name: "qwen2.5-72b".to_owned(),
            model: ModelConfig::preset("qwen2.5-72b").context("a preset")?,
            site: Site {
                cards,
                servers: None,
                profile: Profile::of(Soc::Ascend910B3),
                topology: Topology::atlas_a2(1),
                kernels: KernelSource::None,
            },
            stages: 1,
            batch: 4,
            input: 1024,
            output: 8,
            precision: DType::BF16.into(),
            residual: Residual::Replicate,
            experts: ExpertShards::Whole,
            launching: Launching::Captured,
        };
        match Rehearsal::run(&setting) {
            Ok(rehearsal) => {
                let report = rehearsal.report();
                let (first_ms, token_ms) = (report.first_token_us / 1e3, report.token_us.mean / 1e3);
                println!(
                    "{cards} cards: first token after {first_ms:.0} ms, then {token_ms:.1} ms per token"
                );
            }
            // A model that does not fit is refused before anything runs, with a setting that fits.
            Err(Error::Refused(problems)) => println!("{cards} cards: {problems}"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
