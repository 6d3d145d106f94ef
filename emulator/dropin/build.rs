//! Link options of the shared library, and the functions it refuses.
//!
//! Invariants: the library has its own SONAME, so all users share one copy. It is never unloaded,
//! because its threads run in it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use ascend_tp_sys::{DROPIN_SYMBOLS, Library, Table};

/// Operators that CANN supports on another chip only; the chip follows.
const ELSEWHERE: &str = "elsewhere ";

struct ExportSection<'a> {
    library: Library,
    kind: &'a str,
    names: Vec<String>,
}

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=exports.txt");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libascend_tp_emulator_dropin.so");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
    let text = fs::read_to_string("exports.txt").unwrap_or_else(|error| panic!("exports.txt: {error}"));
    let folder = env::var_os("OUT_DIR").unwrap_or_else(|| panic!("OUT_DIR is not set; cargo sets it"));
    let path = Path::new(&folder).join("exports.rs");
    fs::write(&path, code(&sections(&text))).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn sections(text: &str) -> Vec<ExportSection<'_>> {
    let mut sections: Vec<ExportSection<'_>> = Vec::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    for (index, line) in lines {
        let heading = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
        match (heading.map(|heading| heading.split_once(' ')), sections.last_mut()) {
            (Some(Some((file, kind))), _) => {
                let library = Library::ALL.into_iter().find(|library| library.file_name() == file);
                let library = library
                    .unwrap_or_else(|| panic!("exports.txt:{}: {file} is not a library of CANN", index + 1));
                sections.push(ExportSection { library, kind, names: Vec::new() });
            }
            (None, Some(ExportSection { kind, names, .. }))
                if *kind == "operators" || kind.starts_with(ELSEWHERE) =>
            {
                names.extend([line.to_owned(), format!("{line}GetWorkspaceSize")]);
            }
            (None, Some(section)) => section.names.push(line.to_owned()),
            _ => panic!(
                "exports.txt:{}: expected [library kind] or a name below one, found `{line}`",
                index + 1
            ),
        }
    }
    sections
}

fn code(sections: &[ExportSection<'_>]) -> String {
    let mut exported = BTreeSet::new();
    for ExportSection { library, names, .. } in sections {
        for name in names {
            assert!(
                exported.insert((name.as_str(), *library)),
                "exports.txt: {name} of {library} is listed twice"
            );
        }
    }
    let mut declared = BTreeSet::new();
    for (name, library, _) in Table::SYMBOLS.iter().chain(DROPIN_SYMBOLS) {
        assert!(
            exported.contains(&(*name, *library)),
            "exports.txt: {name}, which sys/include declares for {library}, is missing from the exports of that library"
        );
        declared.insert(*name);
    }
    let (mut answered, mut refused, mut functions) = (String::new(), String::new(), String::new());
    let mut elsewhere = String::new();
    for ExportSection { library, kind, names } in sections {
        let names: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !declared.contains(name)).collect();
        let chip = kind.strip_prefix(ELSEWHERE);
        let list = match (*kind, chip) {
            ("answered", _) => &mut answered,
            (_, Some(_)) => &mut elsewhere,
            _ => &mut refused,
        };
        for name in &names {
            let _ = writeln!(list, "    (Library::{library:?}, \"{name}\"),");
        }
        let macro_kind = match (*kind, chip) {
            (_, Some(chip)) => format!("elsewhere \"{chip}\""),
            ("operators", _) => "status".to_owned(),
            (kind, _) => kind.to_owned(),
        };
        if *kind != "answered" {
            let _ = writeln!(functions, "refuse! {{ {library:?} {macro_kind} {{ {} }} }}", names.join(" "));
        }
    }
    format!(
        "/// What functions of this package answer and no table has.\nconst ANSWERED: &[(Library, &str)] = &[\n{answered}];\n\
         /// What CANN refuses on the cards that are modelled.\nconst ELSEWHERE: &[(Library, &str)] = &[\n{elsewhere}];\n\
         /// What is refused by name.\nconst REFUSED: &[(Library, &str)] = &[\n{refused}];\n{functions}"
    )
}
