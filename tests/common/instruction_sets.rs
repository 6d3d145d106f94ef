//! Runs tests on every instruction set.

use std::process::Command;

use ascend_tp_emulator::{ISA_VARIABLE, Isa, isa};

/// Repeats the tests of a module in one process per other instruction set. `but` names excluded
/// tests, including the caller. `variables` are set for the processes.
pub(crate) fn run_under_each(module: &str, but: &[&str], variables: &[(&str, &str)]) {
    if std::env::var_os(ISA_VARIABLE).is_some_and(|asked| !asked.is_empty()) {
        // This is already such a process.
        return;
    }
    for other in Isa::ALL.into_iter().filter(|other| other.is_available() && *other != isa()) {
        let tests = std::env::current_exe().unwrap();
        let mut command = Command::new(tests);
        command.env(ISA_VARIABLE, other.name()).envs(variables.iter().copied());
        let run = command
            .arg(format!("{module}::"))
            .args(but.iter().flat_map(|test| ["--skip", test]))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success(), "{other}: {text}{}", String::from_utf8_lossy(&run.stderr));
        assert!(!text.contains(" 0 passed"), "{other} ran nothing: {text}");
    }
}
