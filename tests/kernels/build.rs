//! Tests build.rs alone, with a shell script as compiler.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use ascend_tp::device::kernels;

/// Creates a toolkit with a compiler and a linker that write `object` to the `-o` file, or print
/// `fault` and fail.
fn toolkit(folder: &Path, fault: &str) -> PathBuf {
    let binaries = folder.join("toolkit/compiler/ccec_compiler/bin");
    fs::create_dir_all(&binaries).expect("a folder");
    let act = if fault.is_empty() {
        "echo object > \"$last\"".to_owned()
    } else {
        format!("echo '{fault}' >&2; exit 1")
    };
    for tool in ["bisheng", "ld.lld"] {
        let path = binaries.join(tool);
        fs::write(&path, format!("#!/bin/sh\nfor last; do :; done\n{act}\n")).expect("the tool is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("the tool is made a program");
    }
    folder.join("toolkit")
}

#[test]
fn a_build_compiles_kernels_if_it_finds_a_compiler() {
    let folder = tempfile::Builder::new().prefix("a build").tempdir().expect("a folder");
    let program = folder.path().join("build");
    let root = env!("CARGO_MANIFEST_DIR");
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut compile = Command::new(rustc);
    compile.env("CARGO_MANIFEST_DIR", root).args(["--edition", "2024", "-o"]).arg(&program);
    let made = compile.arg(format!("{root}/build.rs")).output().expect("rustc starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let build = |home: Option<&Path>, wanted: &str| {
        let mut command = Command::new(&program);
        command
            .env_remove("ASCEND_TOOLKIT_HOME")
            .env_remove("ASCEND_HOME_PATH")
            .env("OUT_DIR", folder.path());
        command.env("ASCEND_TP_KERNELS", wanted).envs(home.map(|home| ("ASCEND_TOOLKIT_HOME", home)));
        let table = folder.path().join("kernels.rs");
        fs::write(&table, "").expect("the table is emptied");
        let output = command.output().expect("the build starts");
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        (output.status.success(), said, fs::read_to_string(table).expect("a table"))
    };

    assert_eq!(build(None, "").2, "&[\n]\n");
    let (is_well, said, _) = build(None, "require");
    assert!(!is_well && said.contains("cargo::error=ASCEND_TP_KERNELS=require, but"), "{said}");

    let home = toolkit(folder.path(), "");
    let (is_well, said, table) = build(Some(&home), "require");
    assert!(
        is_well && !said.contains("warning") && said.contains("cargo::rerun-if-changed=kernels"),
        "{said}"
    );
    let names = super::names(&super::kernels_folder(), ".cpp");
    let rows = table.lines().filter(|line| line.contains("include_bytes!"));
    let found: Vec<String> =
        rows.map(|row| format!("{}.cpp", row.split('"').nth(1).expect("a name"))).collect();
    assert_eq!(found, names);
    assert_eq!(build(Some(&home), "off").2, "&[\n]\n");

    toolkit(folder.path(), "x.cpp:1: error: no such name");
    let (is_well, said, table) = build(Some(&home), "");
    assert!(is_well && said.contains("cargo::warning=x.cpp:1: error: no such name"), "{said}");
    assert_eq!(table, "&[\n]\n");
    let (is_well, said, _) = build(Some(&home), "require");
    assert!(!is_well && said.contains("cargo::error=x.cpp:1: error: no such name"), "{said}");
}

#[test]
fn what_is_built_in_is_found_by_name() {
    for name in kernels::names() {
        assert!(kernels::object(name).is_some_and(|object| !object.is_empty()), "{name}");
    }
    assert_eq!(kernels::object("no kernel"), None);
}
