//! Checks docs/COSTS.md against the code.

use std::fs;

use ascend_tp_planner::validate::{Class, Validation};

const BEGIN: &str = "<!-- inference: begin -->\n```text\n";
const END: &str = "```\n<!-- inference: end -->";

/// Compares the generated part and docs/costs.svg. `UPDATE_GOLDEN=1` rewrites both.
#[test]
fn the_document_holds_the_table_of_inference() {
    let path = crate::root().join("docs/COSTS.md");
    let document = fs::read_to_string(&path).unwrap();
    let mut shipped = Validation::shipped();
    let plot = shipped.svg();
    // Training has a separate table.
    shipped.rows.retain(|row| row.class != Class::Training);
    let table = shipped.text(None);
    let (head, rest) = document.split_once(BEGIN).unwrap();
    let (held, tail) = rest.split_once(END).unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, format!("{head}{BEGIN}{table}{END}{tail}")).unwrap();
        fs::write(path.with_file_name("costs.svg"), plot).unwrap();
    } else {
        let drawn = fs::read_to_string(path.with_file_name("costs.svg")).unwrap();
        assert!(drawn == plot, "docs/costs.svg is not what the code draws: UPDATE_GOLDEN=1 writes it");
        assert_eq!(held, table, "docs/COSTS.md is not what the code prints: UPDATE_GOLDEN=1 writes it");
    }
}
