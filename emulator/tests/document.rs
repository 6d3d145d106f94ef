//! The operator rules in docs/EMULATOR.md are those the emulator checks.

use std::path::Path;

const START: &str =
    "<!-- operators: written by `UPDATE_GOLDEN=1 cargo test -p ascend-tp-emulator --test document` -->\n";
const END: &str = "<!-- end of operators -->";

#[test]
fn the_table_of_operators_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/EMULATOR.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(START).unwrap();
    let (found, after) = rest.split_once(END).unwrap();
    let expected = format!("\n{}\n", ascend_tp_emulator::operator_table().trim());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, format!("{before}{START}{expected}{END}{after}")).unwrap();
        return;
    }
    assert!(found == expected, "docs/EMULATOR.md lags behind the operators' rules; run the command in its comment");
}
