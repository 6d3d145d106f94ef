//! Runs tests on every instruction set.

use std::process::Command;

use ascend_tp_emulator::{ISA_VARIABLE, Isa, isa};

/// Returns whether this is a process of [`run_under_each`].
pub(crate) fn is_other_instruction_set() -> bool {
    std::env::var_os(ISA_VARIABLE).is_some_and(|asked| !asked.is_empty())
}

/// Repeats the tests of a module in one process per other instruction set. `but` names excluded
/// tests, including the caller.
pub(crate) fn run_under_each(module: &str, but: &[&str]) {
    if is_other_instruction_set() {
        return;
    }
    for other in Isa::ALL.into_iter().filter(|other| other.is_available() && *other != isa()) {
        let tests = std::env::current_exe().unwrap();
        let mut command = Command::new(tests);
        command.env(ISA_VARIABLE, other.name());
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
