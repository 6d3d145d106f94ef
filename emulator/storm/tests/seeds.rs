//! A fixed set of programs that must run without findings: every flavour, every kind of step and of ending.
//!
//! Does not: look for what is rare; `cargo xtask storm --minutes N` does, with other seeds.

use std::path::PathBuf;

use ascend_tp_emulator_storm::generate::Flavour;
use ascend_tp_emulator_storm::shrink::Cut;
use ascend_tp_emulator_storm::supervise::Supervisor;

fn run(flavour: Flavour, seeds: &[u64]) {
    let supervisor = Supervisor { binary: PathBuf::from(env!("CARGO_BIN_EXE_storm")) };
    for seed in seeds.iter().copied() {
        assert_eq!(Flavour::of(seed), flavour, "seed {seed}");
        let findings = supervisor.run(&Cut::whole(seed)).expect("processes start");
        let texts: Vec<String> = findings.iter().map(|finding| format!("{}: {}", finding.kind, finding.what)).collect();
        assert!(texts.is_empty(), "cargo xtask storm --program {seed}\n{}", texts.join("\n"));
    }
}

#[test]
fn bytes_are_right() {
    run(Flavour::Bytes, &[]);
}
