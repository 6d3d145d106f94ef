//! Programs that must run without findings: every flavour, most kinds of steps, every ending.
//! `cargo xtask storm --minutes N` runs other seeds.

use std::path::PathBuf;

use ascend_tp_emulator_storm::generate::Flavour;
use ascend_tp_emulator_storm::shrink::Excerpt;
use ascend_tp_emulator_storm::supervise::Supervisor;

fn run(flavour: Flavour, seeds: &[u64]) {
    let supervisor = Supervisor { binary: PathBuf::from(env!("CARGO_BIN_EXE_storm")) };
    for seed in seeds.iter().copied() {
        assert_eq!(Flavour::of(seed), flavour, "seed {seed}");
        let findings = supervisor.run(&Excerpt::whole(seed)).expect("processes start");
        let texts: Vec<String> =
            findings.iter().map(|finding| format!("{}: {}", finding.kind, finding.what)).collect();
        assert!(texts.is_empty(), "cargo xtask soak storm --program {seed}\n{}", texts.join("\n"));
    }
}

#[test]
fn bytes_are_those_of_the_oracle() {
    run(Flavour::Bytes, &[66, 127, 112, 15, 154, 36, 64, 7, 147]);
}

#[test]
fn strict_mode_reports_nothing_and_ends() {
    run(Flavour::Strict, &[18, 54, 42, 156, 178, 62, 23]);
}

#[test]
fn waits_end_as_documented() {
    run(Flavour::Waits, &[4, 56, 70, 16]);
}

#[test]
fn an_absent_rank_is_waited_for_until_the_limit() {
    run(Flavour::Absent, &[53, 131]);
}

#[test]
fn the_end_of_a_process_is_heard_of() {
    run(Flavour::Gone, &[41, 19, 96, 139, 26, 37, 177]);
}
