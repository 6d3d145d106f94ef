//! docs/EMULATOR.md matches the exports and settings.

use std::fmt::Write as _;
use std::path::Path;

use ascend_tp_emulator::{WORDS, coverage};
use ascend_tp_emulator_dropin::{Coverage, exports};
use ascend_tp_sys::{Library, Table};

const START: &str = "<!-- drop-in: written by `UPDATE_GOLDEN=1 cargo test -p ascend-tp-emulator-dropin --test document` -->\n";
const END: &str = "<!-- end of drop-in -->";

fn expected() -> String {
    let mut text = String::from("\n| `ASCEND_EMULATOR` | |\n|---|---|\n");
    for word in WORDS {
        let _ = writeln!(text, "| `{}` | {} |", word.form, word.meaning);
    }
    text.push_str(
        "\n| library | exported | modelled | for other chips | refused by name |\n|---|---|---|---|---|\n",
    );
    let exports = exports();
    let row = |text: &mut String, name: &str, of: &dyn Fn(Library) -> bool| {
        let exported = exports.iter().filter(|export| of(export.library)).count();
        let [modelled, elsewhere, refused] = [Coverage::Modelled, Coverage::Elsewhere, Coverage::Refused]
            .map(|answer| {
                exports.iter().filter(|export| of(export.library) && export.answer == answer).count()
            });
        let _ = writeln!(text, "| {name} | {exported} | {modelled} | {elsewhere} | {refused} |");
    };
    for library in Library::ALL {
        row(&mut text, library.file_name(), &|other| other == library);
    }
    row(&mut text, "together", &|_| true);
    let own: Vec<(&str, bool)> = coverage()
        .into_iter()
        .filter(|(name, ..)| Table::SYMBOLS.iter().any(|(symbol, ..)| symbol == name))
        .map(|(name, _, modelled)| (name, modelled))
        .collect();
    let unmodelled: Vec<&str> = own.iter().filter(|(_, modelled)| !modelled).map(|(name, _)| *name).collect();
    let listed = if unmodelled.is_empty() { "none".to_owned() } else { unmodelled.join(", ") };
    let _ = writeln!(
        text,
        "\nOf the {} functions this project itself calls, {} are modelled. Refused: {listed}.",
        own.len(),
        own.len() - unmodelled.len()
    );
    text
}

#[test]
fn the_tables_of_the_drop_in_libraries_are_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/EMULATOR.md");
    let text = std::fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = text.split_once(START).expect("the page has the start mark");
    let (found, after) = rest.split_once(END).expect("the page has the end mark");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, format!("{before}{START}{}{END}{after}", expected())).expect("written");
        return;
    }
    assert!(
        found == expected(),
        "docs/EMULATOR.md lags behind the drop-in libraries; run the command in its comment"
    );
}
