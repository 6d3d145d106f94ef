//! Generated tables of docs/EMULATOR.md and docs/OPERATORS.md match the code.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

const COMMAND: &str = "`UPDATE_GOLDEN=1 cargo test -p ascend-tp-emulator document`";

/// Compares or writes the part of `page` between the marks of `name`.
fn check(page: &str, name: &str, expected: &str) {
    // Only one test rewrites the file at a time.
    static DOCUMENT: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = DOCUMENT.lock().unwrap();
    let (start, end) =
        (format!("<!-- {name}: written by {COMMAND} -->\n"), format!("<!-- end of {name} -->"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(&start).unwrap();
    let (found, after) = rest.split_once(&end).unwrap();
    let expected = format!("\n{}\n", expected.trim());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, format!("{before}{start}{expected}{end}{after}")).unwrap();
        return;
    }
    assert!(found == expected, "docs/{page} is older than the {name}: run the command in its comment");
}

#[test]
fn the_table_of_operators_is_current() {
    check("OPERATORS.md", "operators", &ascend_tp_emulator::operator_table());
}

#[test]
fn the_table_of_collectives_is_current() {
    check("EMULATOR.md", "collectives", &ascend_tp_emulator::collective_table());
}

#[test]
fn the_table_of_refused_functions_is_current() {
    check("EMULATOR.md", "refused functions", &ascend_tp_emulator::refused_table());
}
