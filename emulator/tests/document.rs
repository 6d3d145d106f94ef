//! Checks that the generated tables in docs/EMULATOR.md match the code.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

const COMMAND: &str = "`UPDATE_GOLDEN=1 cargo test -p ascend-tp-emulator document`";

/// Compares the part of the document between the marks of `name` with `expected`, or writes it.
fn check(name: &str, expected: &str) {
    // Runs one test at a time, because each may rewrite the whole file.
    static DOCUMENT: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = DOCUMENT.lock().unwrap();
    let (start, end) = (format!("<!-- {name}: written by {COMMAND} -->\n"), format!("<!-- end of {name} -->"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/EMULATOR.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(&start).unwrap();
    let (found, after) = rest.split_once(&end).unwrap();
    let expected = format!("\n{}\n", expected.trim());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, format!("{before}{start}{expected}{end}{after}")).unwrap();
        return;
    }
    assert!(found == expected, "docs/EMULATOR.md lags behind the {name}; run the command in its comment");
}

#[test]
fn the_table_of_operators_is_current() {
    check("operators", &ascend_tp_emulator::operator_table());
}

#[test]
fn the_table_of_collectives_is_current() {
    check("collectives", &ascend_tp_emulator::collective_table());
}

#[test]
fn the_table_of_refused_functions_is_current() {
    check("refused functions", &ascend_tp_emulator::refused_table());
}
