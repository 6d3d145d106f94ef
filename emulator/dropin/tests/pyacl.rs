//! CANN's Python package `acl`: its functions match CANN's list, and a sample program runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ascend_tp_emulator_dropin::{exports, real_library, write_libraries};
use ascend_tp_sys::{Library, for_each_symbol};

const FUNCTIONS: &str = include_str!("../python/acl/functions.txt");

macro_rules! declared {
    (
        required { $( [$library:ident] fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty; )* }
        optional { $( [$young_library:ident, $since:literal]
                      fn $young:ident($($young_arg:ident: $young_ty:ty),* $(,)?) -> $young_ret:ty; )* }
        operators { $( $run:ident, $plan:ident($($op_arg:ident: $op_ty:ty),* $(,)?); )* }
        dropin {
            functions { $( [$dropin_library:ident, $dropin_since:literal]
                           fn $dropin:ident($($dropin_arg:ident: $dropin_ty:ty),* $(,)?) -> $dropin_ret:ty; )* }
            operators { $( [$dropin_op_since:literal]
                           $dropin_run:ident, $dropin_plan:ident($($dropin_op_arg:ident: $dropin_op_ty:ty),* $(,)?); )* }
        }
    ) => {
        BTreeMap::from([
            $( (stringify!($name), vec![$(stringify!($ty)),*]), )*
            $( (stringify!($young), vec![$(stringify!($young_ty)),*]), )*
            $( (stringify!($dropin), vec![$(stringify!($dropin_ty)),*]), )*
        ])
    };
}

/// Returns true for equal width and direction.
fn fits(parameter: &str, c: &str) -> bool {
    let (kind, name) = parameter.split_once(' ').expect("a type and a name");
    let target = c.strip_prefix("*mut ");
    if name.starts_with('*') {
        return match kind {
            "ptr" => target.is_some_and(|to| to.starts_with("*mut ") || to.starts_with("aclrt")),
            "size" => c == "*mut usize",
            "float" => c == "*mut f32",
            "int64" | "uint64" => c == format!("*mut {}", kind.replace("uint", "u").replace("int", "i")),
            // An enumeration has 32 bits.
            _ => target.is_some_and(|to| ["i32", "u32"].contains(&to) || to.starts_with("acl")),
        };
    }
    match kind {
        "ptr" | "object" => c.starts_with('*') || ["aclrtStream", "aclrtEvent", "aclrtContext"].contains(&c),
        "text" => c == "*const c_char",
        "size" => c == "usize",
        "uint64" => c == "u64",
        "uint32" => c == "u32",
        "callback" => c == "aclrtCallback",
        "int32" => c == "i32" || (c.starts_with("acl") && !c.starts_with("aclrtStream")),
        other => panic!("{other} is no type of the list"),
    }
}

#[test]
fn the_functions_of_the_list_are_those_of_cann() {
    let declared: BTreeMap<&str, Vec<&str>> = for_each_symbol!(declared);
    let exported = exports();
    let lines: Vec<&str> =
        FUNCTIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert!(lines.len() > 80, "{} functions", lines.len());
    let mut wrong = Vec::new();
    for line in lines {
        let (_, prototype) = line.split_once(' ').expect("a name in Python and a function in C");
        let (symbol, parameters) = prototype.trim().split_once('(').expect("parameters");
        let parameters = parameters.split_once(')').expect("the end of the parameters").0;
        if !exported.iter().any(|export| export.library == Library::AscendCl && export.name == symbol) {
            wrong.push(format!("{symbol} is not exported"));
        }
        let parameters: Vec<&str> =
            parameters.split(", ").filter(|parameter| !parameter.is_empty()).collect();
        // Refused functions have no declaration.
        let Some(types) = declared.get(symbol) else { continue };
        let all = types.iter().zip(&parameters).all(|(c, parameter)| fits(parameter, &c.replace("* ", "*")));
        if types.len() != parameters.len() || !all {
            wrong.push(format!("{symbol} takes {types:?}, not {parameters:?}"));
        }
    }
    assert!(wrong.is_empty(), "python/acl/functions.txt: {wrong:#?}");
}

#[test]
fn a_program_of_the_samples_shape_runs() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: no python3");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the libraries");
    write_libraries(folder.path(), &real_library().expect("cargo built the shared library"))
        .expect("written");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pyacl.py");
    for mode in ["", "strict,seed=3"] {
        let mut command = Command::new("python3");
        command.arg("-B").arg(&program).env("PYTHONPATH", folder.path().join("python"));
        let ended = command
            .env_remove("LD_LIBRARY_PATH")
            .env("ASCEND_EMULATOR", mode)
            .output()
            .expect("python3 runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(told.ends_with("pyacl: as it should be\n"), "`{mode}`: {told}{said}");
        let expected = if mode.is_empty() { 0 } else { 66 };
        assert_eq!(ended.status.code(), Some(expected), "`{mode}`: {said}");
    }
}
