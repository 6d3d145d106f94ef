//! Checks the rules of the project: layers, purity, unsafe code, headers, lengths, banned words,
//! whitespace, printing.
//!
//! Each rule is a function from a file to its violations. The output is `file:line: problem and
//! remedy`. Exceptions are constants at the top of this file.

mod dead;
mod packages;
mod paths;
mod prose;
#[cfg(test)]
mod tables;

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::house;
use crate::project;
use crate::project::imports::Imports;
use crate::project::source::{Source, words};
use paths::{children, root_names_by_super};

/// Top-level modules of the library in data-flow order, with their allowed imports.
const LAYERS: [(&str, &[&str]); 17] = [
    ("base", &[]),
    // Device calls as data, shared by compiler and executor.
    ("call", &["base"]),
    ("config", &["base"]),
    ("program", &["base", "call", "config"]),
    ("placement", &["base", "config", "program"]),
    ("collective", &["base", "config", "program", "placement"]),
    ("schedule", &["base", "call", "config", "program", "placement", "collective"]),
    ("compile", &["base", "config", "program", "placement", "collective", "schedule"]),
    // Re-exports the passes under one name.
    ("compiler", &["collective", "compile", "placement", "program", "schedule"]),
    // The device and the executor do not depend on models or on how a plan was made.
    ("device", &["base"]),
    ("world", &["base"]),
    ("timeline", &["base", "call", "schedule"]),
    ("exec", &["base", "call", "schedule", "timeline", "device", "world"]),
    ("weights", &["base", "config", "program", "placement", "collective", "schedule", "device", "exec"]),
    ("serving", &["base", "config", "compile"]),
    (
        "generate",
        &[
            "base",
            "config",
            "program",
            "placement",
            "collective",
            "schedule",
            "compile",
            "timeline",
            "device",
            "world",
            "exec",
            "weights",
            "serving",
        ],
    ),
    (
        "train",
        &[
            "base",
            "config",
            "program",
            "placement",
            "collective",
            "schedule",
            "compile",
            "timeline",
            "device",
            "world",
            "exec",
            "weights",
            "generate",
        ],
    ),
];

/// Folders and files of the emulator, with allowed imports.
///
/// Folders import each other, because a step of the machine involves several folders. Files do not:
/// types are below `state`, behaviour is above it.
const ARROWS: [(&str, &[&str]); 16] = [
    ("base", &["config"]),
    ("compiler", &[]),
    ("config", &["base", "faults"]),
    ("environment", &["base", "config", "faults"]),
    ("memory", &["base", "config", "scheduler"]),
    ("scheduler", &["base", "memory", "hccl", "strict", "runtime", "state", "machine"]),
    ("nn", &["base", "memory", "scheduler", "timed"]),
    ("hccl", &["base", "config", "memory", "scheduler", "runtime", "state", "machine"]),
    ("faults", &["base", "memory", "hccl", "runtime", "state", "machine"]),
    ("timed", &["base", "config", "memory", "scheduler", "hccl", "strict", "runtime", "state", "machine"]),
    ("strict", &["base", "config", "memory", "scheduler", "hccl", "runtime", "state", "machine"]),
    ("runtime", &["base", "memory", "scheduler", "hccl", "timed", "strict", "state", "machine"]),
    ("state", &["base", "scheduler", "hccl", "faults", "timed", "strict", "runtime"]),
    (
        "machine",
        &[
            "base",
            "config",
            "memory",
            "scheduler",
            "nn",
            "hccl",
            "faults",
            "timed",
            "strict",
            "runtime",
            "state",
        ],
    ),
    // Functions outside the table are looked up by name through `emulator`.
    (
        "abi",
        &[
            "base",
            "config",
            "memory",
            "scheduler",
            "nn",
            "hccl",
            "timed",
            "strict",
            "runtime",
            "state",
            "machine",
            "emulator",
        ],
    ),
    (
        "emulator",
        &["base", "config", "memory", "scheduler", "faults", "timed", "strict", "runtime", "machine", "abi"],
    ),
];

const EMULATOR: &str = "emulator/src/";
const OPERATORS: &str = "emulator/operators/src/";

/// Maximum number of files in an import cycle.
const LARGEST_CIRCLE: usize = 2;

/// Pure and deterministic modules.
const PURE: [&str; 8] =
    ["base", "call", "config", "program", "placement", "collective", "schedule", "compile"];

/// Pure files of modules that also have effects.
const PURE_FILES: [&str; 6] = [
    "src/serving/blocks.rs",
    "src/serving/blocks/",
    "src/serving/scheduler.rs",
    "src/serving/scheduler/",
    "src/serving/step.rs",
    "src/serving/step/",
];

/// The planner is pure, except rehearsals and calibrations, which run on cards.
const PURE_FOLDER: &str = "planner/src/";
const IMPURE_FOLDERS: [&str; 2] = ["planner/src/calibrate/", "planner/src/rehearse/"];

/// Modules of `std` and other names with effects.
const IMPURE_STD: [&str; 8] = ["fs", "io", "net", "thread", "time", "process", "env", "os"];
const IMPURE_WORDS: [&str; 5] = ["Instant", "SystemTime", "rand", "memmap2", "indicatif"];

/// Places for unsafe code. All but the first three have a reason.
const UNSAFE_ALLOWED: [&str; 18] = [
    "sys/",
    "src/device/",
    "emulator/src/abi/",
    // Memory at raw addresses: mappings, copies, words shared between processes, the fault handler.
    "emulator/src/memory/fault.rs",
    "emulator/src/memory/guard.rs",
    "emulator/src/memory/pages.rs",
    "emulator/src/memory/raw.rs",
    "emulator/src/memory/shared_words.rs",
    // A borrowed closure, lent to the threads of the pool.
    "emulator/src/memory/tiles.rs",
    // Typed access of the kernels to device memory.
    "emulator/operators/src/raw.rs",
    // Functions for detected instruction sets, explicit vector instructions, and non-temporal
    // stores.
    "emulator/operators/src/simd/",
    // Calls of the emulator's C functions, like a C program.
    "emulator/tests/",
    "emulator/benches/",
    "emulator/storm/src/",
    // C functions for linked programs, and the dynamic linker.
    "emulator/dropin/",
    // Calls through any table.
    "tests/abi/",
    // A counting allocator.
    "tests/allocations.rs",
    // A wrong collective instead of the emulator's.
    "tests/verify.rs",
];

/// Places that may print.
const PRINTING_ALLOWED: [&str; 11] = [
    "cli/src/",
    "examples/",
    "benches/",
    "xtask/",
    "build.rs",
    // The only output of the emulator.
    "emulator/src/base/stderr.rs",
    "cli/build.rs",
    // Options for cargo, lists of written files, and the only output of the drop-in libraries.
    "emulator/dropin/build.rs",
    "emulator/dropin/src/main.rs",
    "emulator/dropin/src/bin/",
    "emulator/dropin/src/notice.rs",
];

/// Maximum number of lines of a file.
const MAX_LINES: usize = 750;

/// Files with one long table.
const TABLES: [&str; 1] = ["src/program/op/table.rs"];

/// Maximum width of a comment line in Rust. rustfmt limits code; table rows have no limit.
const MAX_COLUMNS: usize = 100;

/// Files with comments of generated code in string literals.
const GENERATORS: [&str; 2] = ["emulator/dropin/build.rs", "xtask/src/bindings/generate.rs"];

/// A forbidden word or text, and its replacement.
struct Ban {
    text: &'static str,
    place: BanPlace,
    instead: &'static str,
}

/// Scope of a [`Ban`].
#[derive(PartialEq, Eq)]
enum BanPlace {
    /// Rust code without comments and strings.
    Code,
    /// Rust code of tests.
    TestCode,
    /// Anywhere, as a whole word with this case.
    Marker,
    /// Anywhere, as the start of an absolute path.
    Path,
}

const BANS: [Ban; 11] = [
    Ban {
        text: "todo!",
        place: BanPlace::Code,
        instead: "finish the code, or return an error that names the missing feature",
    },
    Ban {
        text: "unimplemented!",
        place: BanPlace::Code,
        instead: "finish the code, or return an error that names the missing feature",
    },
    Ban { text: "static mut", place: BanPlace::Code, instead: "use a field, an atomic or OnceLock" },
    Ban { text: "#[ignore", place: BanPlace::Code, instead: "make the test fast enough to always run" },
    Ban {
        text: "thread::sleep",
        place: BanPlace::TestCode,
        instead: "wait for the event itself: join, a channel, a condition variable",
    },
    Ban { text: "TODO", place: BanPlace::Marker, instead: "finish the work, or open an issue" },
    Ban { text: "FIXME", place: BanPlace::Marker, instead: "fix the problem, or open an issue" },
    Ban { text: "XXX", place: BanPlace::Marker, instead: "write the missing text" },
    Ban {
        text: "/work/",
        place: BanPlace::Path,
        instead: "pass the path as an argument, or use CARGO_MANIFEST_DIR",
    },
    Ban { text: "/home/", place: BanPlace::Path, instead: "pass the path as an argument" },
    Ban { text: "/tmp/", place: BanPlace::Path, instead: "use tempfile or std::env::temp_dir" },
];

/// Checks all rules and returns a summary.
///
/// # Errors
/// Returns all violations.
pub(crate) fn check() -> anyhow::Result<String> {
    let sources = project::read(&project::root())?;
    let mut violations = project_violations(&sources);
    violations.extend(house::unused_items(&sources)?);
    violations.extend(dead::files(&project::root())?);
    violations.extend(prose::violations(&sources, &prose::LIMITS));
    violations.extend(untranslated_code(&project::root())?);
    violations.extend(packages::without_target(&sources, |path| project::root().join(path).is_file()));
    anyhow::ensure!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
    Ok(format!("{} files keep the rules", sources.len()))
}

/// Finds the code, commands and options of the README that its translation lacks: it has other
/// words, but the same code.
fn untranslated_code(root: &Path) -> anyhow::Result<Vec<String>> {
    let sorted_code = |path: &str| -> anyhow::Result<Vec<String>> {
        let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        // The text between two of the three marks of a block is empty.
        let mut code: Vec<String> = text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        code.sort_unstable();
        Ok(code)
    };
    Ok(differences("docs/README.zh-CN.md", &sorted_code("README.md")?, &sorted_code("docs/README.zh-CN.md")?))
}

/// Compares two sorted lists: the second must have each text as often as the first.
fn differences(path: &str, original: &[String], translated: &[String]) -> Vec<String> {
    let count = |list: &[String], text: &String| list.iter().filter(|one| *one == text).count();
    let mut texts: Vec<&String> = original.iter().chain(translated).collect();
    texts.sort_unstable();
    texts.dedup();
    let counted = texts.into_iter().map(|text| (text, count(original, text), count(translated, text)));
    let different = counted.filter(|(_, expected, found)| expected != found);
    different
        .map(|(text, expected, found)| {
            format!("{path}: expected `{}` {expected} times as in README.md, found {found}", text.trim())
        })
        .collect()
}

fn project_violations(sources: &[Source]) -> Vec<String> {
    let mut all_violations: Vec<String> = sources.iter().flat_map(violations).collect();
    all_violations.extend(emulator_violations(sources));
    for place in UNSAFE_ALLOWED {
        let is_unsafe = |source: &Source| words(&source.code, "unsafe").next().is_some();
        if !sources.iter().any(|source| source.is_below(&[place]) && is_unsafe(source)) {
            all_violations
                .push(format!("UNSAFE_ALLOWED: {place} has no unsafe code: remove it from the list"));
        }
    }
    all_violations
}

fn emulator_violations(sources: &[Source]) -> Vec<String> {
    let folders = [EMULATOR, OPERATORS].map(|folder| Imports::new(sources, folder));
    let mut wrong = folders[0].wrong_arrows(&ARROWS);
    for circle in folders.iter().flat_map(Imports::circles).filter(|circle| circle.len() > LARGEST_CIRCLE) {
        wrong.push(format!(
            "{} files form an import cycle, at most {LARGEST_CIRCLE} may: move a type down, or pass it as an argument: {}",
            circle.len(),
            circle.join(", ")
        ));
    }
    wrong
}

fn violations(source: &Source) -> Vec<String> {
    let mut violations = Vec::new();
    check_layers(source, &mut violations);
    check_fence(source, &mut violations);
    check_purity(source, &mut violations);
    check_unsafe(source, &mut violations);
    check_header_and_length(source, &mut violations);
    check_bans(source, &mut violations);
    check_whitespace(source, &mut violations);
    check_printing(source, &mut violations);
    violations.sort();
    violations.into_iter().map(|(line, what)| format!("{}:{line}: {what}", source.path)).collect()
}

type FoundLines = Vec<(usize, String)>;

fn check_layers(source: &Source, violations: &mut FoundLines) {
    let module = source.module();
    let Some(top) = module.first() else { return };
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| layer == top) else {
        violations.push((
            1,
            format!("module `{top}` has no row in LAYERS of xtask/src/tidy.rs: add its allowed imports"),
        ));
        return;
    };
    let is_layer = |name| LAYERS.iter().any(|(layer, _)| *layer == name);
    let by_super =
        root_names_by_super(&source.code, module.len()).into_iter().filter(|(_, name)| is_layer(*name));
    let imports = children(&source.code, "crate").into_iter().chain(by_super);
    for (offset, name) in imports.filter(|(offset, _)| !source.is_test(*offset)) {
        if name == *top || allowed.contains(&name) {
            continue;
        }
        let what = if is_layer(name) {
            format!("`{top}` imports `{name}`: it may import {}", list(allowed))
        } else {
            format!("`crate::{name}` is no top-level module: import the item from the module that defines it")
        };
        violations.push((source.line(offset), what));
    }
}

/// Types that `exec` may not import must not reach it as re-exports of `schedule`.
fn check_fence(source: &Source, violations: &mut FoundLines) {
    let module = source.module();
    if module.first() != Some(&"schedule") {
        return;
    }
    let seen = LAYERS.iter().find(|(layer, _)| *layer == "exec").map_or(&[][..], |(_, allowed)| allowed);
    for offset in words(&source.code, "use").filter(|offset| !source.is_test(*offset)) {
        let before = source.code[..offset].rsplit('\n').next().unwrap_or_default().trim_start();
        let statement = source.code[offset..].split(';').next().unwrap_or_default();
        let roots =
            children(statement, "crate").into_iter().chain(root_names_by_super(statement, module.len()));
        for (_, name) in roots.filter(|(_, name)| before.starts_with("pub") && !seen.contains(name)) {
            let what = format!(
                "`schedule` re-exports `{name}`, which `exec` must not see: move the type to `base` or `call`"
            );
            violations.push((source.line(offset), what));
        }
    }
}

fn check_purity(source: &Source, violations: &mut FoundLines) {
    let module = source.module();
    let is_planner = source.is_below(&[PURE_FOLDER]) && !source.is_below(&IMPURE_FOLDERS);
    let is_pure_file = source.is_below(&PURE_FILES);
    let top = if is_planner {
        Some(&"planner")
    } else {
        module.first().filter(|top| is_pure_file || PURE.contains(*top))
    };
    let Some(top) = top else { return };
    let modules = children(&source.code, "std").into_iter().filter(|(_, name)| IMPURE_STD.contains(name));
    let modules = modules.map(|(at, name)| (at, format!("std::{name}")));
    let words = IMPURE_WORDS
        .iter()
        .flat_map(|word| words(&source.code, word).map(move |at| (at, (*word).to_owned())));
    for (at, name) in modules.chain(words).filter(|(at, _)| !source.is_test(*at)) {
        let what = format!(
            "`{top}` is pure, `{name}` is not: pass the value as an argument, or move the code to an impure module"
        );
        violations.push((source.line(at), what));
    }
}

fn check_unsafe(source: &Source, violations: &mut FoundLines) {
    if source.is_below(&UNSAFE_ALLOWED) {
        return;
    }
    for at in words(&source.code, "unsafe") {
        let what = format!("unsafe code outside {}: use the safe layer", list(&UNSAFE_ALLOWED));
        violations.push((source.line(at), what));
    }
}

fn check_header_and_length(source: &Source, violations: &mut FoundLines) {
    if !source.path.ends_with(".rs") {
        return;
    }
    // The expected compiler messages contain the line numbers of compile-fail cases.
    if !source.text.starts_with("//!") && !source.path.contains("/compile_fail/") {
        violations
            .push((1, "no header: start the file with a `//!` comment that says its purpose".to_owned()));
    }
    let lines = source.text.lines().count();
    if lines > MAX_LINES && !source.is_below(&TABLES) {
        violations.push((lines, format!("{lines} lines, at most {MAX_LINES}: split the file")));
    }
}

fn check_bans(source: &Source, violations: &mut FoundLines) {
    // These files contain the banned words.
    if source.is_below(&["xtask/src/tidy.rs", "xtask/src/project/"]) {
        return;
    }
    for Ban { text, place, instead } in &BANS {
        let positions: Vec<usize> = match place {
            BanPlace::Code | BanPlace::TestCode => {
                source.code.match_indices(text).map(|(at, _)| at).collect()
            }
            BanPlace::Marker => words(&source.text, text).collect(),
            BanPlace::Path => source.text.match_indices(text).map(|(at, _)| at).collect(),
        };
        for at in positions {
            let is_code_of_tests_only = *place == BanPlace::TestCode && !source.is_test(at);
            let is_end_of_longer_path = *place == BanPlace::Path
                && source.text[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.})".contains(c));
            if !is_code_of_tests_only && !is_end_of_longer_path {
                violations.push((source.line(at), format!("`{text}`: {instead}")));
            }
        }
    }
}

fn check_whitespace(source: &Source, violations: &mut FoundLines) {
    for (index, line) in source.text.split('\n').enumerate() {
        if line.ends_with(|c: char| c.is_whitespace()) {
            violations.push((index + 1, "whitespace at the end of the line: remove it".to_owned()));
        }
        if line.contains('\t') {
            violations.push((index + 1, "a tab: use spaces".to_owned()));
        }
        let comment = line
            .trim_start()
            .strip_prefix("//")
            .filter(|_| source.path.ends_with(".rs") && !source.is_below(&GENERATORS));
        let is_text = |text: &str| !text.trim_start_matches(['/', '!', ' ']).starts_with('|');
        if comment.is_some_and(is_text) && line.chars().count() > MAX_COLUMNS {
            violations.push((index + 1, format!("a comment of more than {MAX_COLUMNS} columns: wrap it")));
        }
    }
    if !source.text.is_empty() && !source.text.ends_with('\n') {
        violations
            .push((source.line(source.text.len()), "no newline at the end of the file: add it".to_owned()));
    }
}

fn check_printing(source: &Source, violations: &mut FoundLines) {
    if source.is_below(&PRINTING_ALLOWED) {
        return;
    }
    for name in ["print", "println", "eprint", "eprintln", "dbg"] {
        for offset in words(&source.code, name) {
            if source.code[offset + name.len()..].starts_with('!') && !source.is_test(offset) {
                let what = format!(
                    "`{name}!` outside {}: return the value and print it in the caller",
                    list(&PRINTING_ALLOWED)
                );
                violations.push((source.line(offset), what));
            }
        }
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
/// Tests of the rules on small files: forbidden and allowed code.
mod rules {
    use super::*;

    #[test]
    fn the_project_is_tidy() {
        super::check().unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn a_translation_without_a_piece_of_code_is_found() {
        let list = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        assert!(differences("zh.md", &list("a b b"), &list("a b b")).is_empty());
        assert_eq!(
            differences("zh.md", &list("a b b"), &list("a b")),
            ["zh.md: expected `b` 2 times as in README.md, found 1"]
        );
    }

    fn check(path: &str, body: &str) -> Vec<String> {
        let header = if path.ends_with(".rs") { "//! What it is for.\n" } else { "" };
        violations(&Source::new(path, &format!("{header}{body}\n")))
    }

    #[track_caller]
    fn assert_found(path: &str, body: &str, expected: &[&str]) {
        let found = check(path, body);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "expected {expected:?}, found {found:?}");
        }
    }

    #[track_caller]
    fn assert_clean(path: &str, body: &str) {
        assert_found(path, body, &[]);
    }

    #[test]
    fn imports_run_downward() {
        assert_clean(
            "src/schedule/order.rs",
            "use crate::program::Graph;\nuse crate::{base::Shape, collective};",
        );
        assert_clean(
            "src/exec/mod.rs",
            "use crate::{\n    device::Stream,\n    schedule::plan::{Plan, Step},\n};",
        );
        assert_found(
            "src/program/op.rs",
            "use crate::schedule::Plan;",
            &["src/program/op.rs:2: `program` imports `schedule`: it may import base, call, config"],
        );
        assert_found(
            "src/exec/trace.rs",
            "use crate::{\n    base::{Id, IdVec},\n    program::Graph,\n    weights,\n};",
            &[":4: `exec` imports `program`", ":5: `exec` imports `weights`"],
        );
        assert_found("src/base/shape.rs", "fn f(x: crate :: config::Rope) {}", &["it may import nothing"]);
    }

    #[test]
    fn nothing_passes_the_fence_by_a_re_export() {
        assert_clean(
            "src/schedule/plan.rs",
            "pub use crate::base::Reduce;\nuse crate::program::OpId;\npub use self::a::B;",
        );
        let expected = &["plan.rs:2: `schedule` re-exports `program`, which `exec` must not see"];
        assert_found("src/schedule/plan.rs", "pub use crate::program::Reduce;", expected);
        assert_found(
            "src/schedule/plan.rs",
            "pub(crate) use crate::{\n    base::Bytes,\n    program::OpId,\n};",
            expected,
        );
        assert_found("src/schedule/plan.rs", "pub use super::super::program::OpId;", expected);
    }

    #[test]
    fn items_are_imported_from_their_module() {
        assert_found(
            "src/weights/mod.rs",
            "use crate::split_axis;",
            &["`crate::split_axis` is no top-level module"],
        );
        assert_found("src/weights/mod.rs", "use crate::*;", &["`crate::*` is no top-level module"]);
        assert_found("src/helpers/mod.rs", "", &["module `helpers` has no row in LAYERS"]);
        assert_clean("src/lib.rs", "pub use crate::placement::shard::split_axis;\npub mod exec;");
    }

    #[test]
    fn super_is_no_way_around_the_layers() {
        assert_found("src/program/op.rs", "use super::super::exec::run;", &["`program` imports `exec`"]);
        assert_found("src/program/mod.rs", "use super::{base, exec::run};", &["`program` imports `exec`"]);
        assert_clean(
            "src/program/models/qwen.rs",
            "use super::super::graph::Graph;\nuse super::{llama, Options};",
        );
        assert_clean("src/exec/mod.rs", "mod inner {\n    use super::Step;\n}");
        assert_found(
            "src/exec/mod.rs",
            "mod inner {\n    use super::super::train::run;\n}",
            &[":3: `exec` imports `train`"],
        );
    }

    #[test]
    fn comments_strings_and_tests_import_nothing() {
        assert_clean(
            "src/base/ids.rs",
            "/// As it is in [`crate::exec`].\n// crate::exec\n/* /* */ crate::exec */ const A: u8 = 0;",
        );
        assert_clean(
            "src/base/ids.rs",
            "const A: &str = \"\\\" crate::exec\";\nconst B: &str = r#\"crate::\"exec\"#;",
        );
        assert_clean(
            "src/base/ids.rs",
            "const Q: [char; 2] = ['\"', '\\''];\nfn f<'a>(x: &'a str) {} // crate::exec '",
        );
        assert_clean(
            "src/base/ids.rs",
            "#[cfg(test)]\nmod tests {\n    use crate::exec::run;\n    fn f() { unreachable!() }\n}",
        );
        assert_clean("src/base/tests.rs", "use crate::exec::run;");
        assert_found(
            "src/base/ids.rs",
            "const R: &[u8] = br\"\\\";\n#[cfg(test)]\nuse crate::exec;\nuse crate::train;",
            &[":5: `base` imports `train`"],
        );
    }

    #[test]
    fn nothing_above_the_fence_has_effects() {
        assert_found("src/config/mod.rs", "use std::fs::File;", &[":2: `config` is pure, `std::fs` is not"]);
        assert_found(
            "src/schedule/plan.rs",
            "use std::{\n    collections::HashMap,\n    io::{self, Read},\n    time::Instant,\n};",
            &[
                ":4: `schedule` is pure, `std::io`",
                ":5: `schedule` is pure, `Instant`",
                ":5: `schedule` is pure, `std::time`",
            ],
        );
        assert_found(
            "planner/src/fit.rs",
            "fn f() -> u8 { rand::random() }",
            &["`planner` is pure, `rand` is not"],
        );
        assert_clean("planner/src/rehearse/run.rs", "use std::io::Write;");
        assert_clean("planner/src/calibrate/exchanges.rs", "fn f() { std::thread::yield_now() }");
        assert_clean("src/exec/mod.rs", "use std::time::Instant;");
        assert_clean(
            "src/program/mod.rs",
            "use std::fmt;\nconst operand: u8 = 0;\n#[cfg(test)]\nuse std::fs;",
        );
    }

    #[test]
    fn unsafe_code_stays_inside_the_fence() {
        assert_clean("src/device/buffer.rs", "fn f() { unsafe { g() } }");
        assert_clean("src/exec/mod.rs", "#![forbid(unsafe_code)] // unsafe");
        assert_found(
            "src/exec/mod.rs",
            "fn f() {\n    unsafe { g() }\n}",
            &["src/exec/mod.rs:3: unsafe code outside sys/"],
        );
        assert_found("src/exec/mod.rs", "#[cfg(test)]\nunsafe fn f() {}", &[":3: unsafe code"]);
    }

    #[test]
    fn files_open_with_a_header_and_end_in_time() {
        let found = violations(&Source::new("emulator/src/scheduler/pool.rs", "use std::fmt;\n"));
        assert_eq!(
            found,
            [
                "emulator/src/scheduler/pool.rs:1: no header: start the file with a `//!` comment that says its purpose"
            ]
        );
        assert_clean("src/exec/mod.rs", &"\n".repeat(MAX_LINES - 2));
        assert_found("src/exec/mod.rs", &"\n".repeat(MAX_LINES - 1), &["751 lines, at most 750"]);
        assert_clean(TABLES[0], &"\n".repeat(MAX_LINES));
        assert!(violations(&Source::new("tests/compile_fail/a.rs", "fn main() {}\n")).is_empty());
    }

    #[test]
    fn banned_words_are_found_where_they_count() {
        assert_found("src/exec/mod.rs", "fn f() { todo!() }", &["`todo!`: finish the code"]);
        assert_found("docs/A.md", "FIXME\nA fixme.", &["docs/A.md:1: `FIXME`"]);
        assert_found(
            "src/exec/mod.rs",
            "#[cfg(test)]\nfn f() { std::thread::sleep(d) }",
            &["`thread::sleep`"],
        );
        assert_found("emulator/tests/a.rs", "fn f() { thread::sleep(d) }", &["`thread::sleep`"]);
        assert_found("src/exec/mod.rs", "const A: &str = \"/tmp/a\";", &["`/tmp/`: use tempfile"]);
        assert_clean("src/exec/mod.rs", "const A: &str = \"target/tmp/a\"; // shacks, for nowhere");
        assert_clean("src/exec/mod.rs", "fn f() { std::thread::sleep(d) }");
    }

    #[test]
    fn whitespace_is_clean() {
        let long = format!("//! A.\n/// {}\n/// | {} |\n", "a".repeat(100), "a".repeat(100));
        assert_found("src/base/a.rs", &long, &["src/base/a.rs:3: a comment of more than 100 columns"]);
        assert_found("Cargo.toml", "a = 1 \n\tb = 2", &["Cargo.toml:1: whitespace", "Cargo.toml:2: a tab"]);
        assert_eq!(
            violations(&Source::new("a.md", "a\nb")),
            ["a.md:2: no newline at the end of the file: add it"]
        );
    }

    #[test]
    fn only_the_command_line_prints() {
        assert_clean("cli/src/generate.rs", "fn f() { println!(); }");
        assert_clean("examples/01_buffer.rs", "fn main() { eprintln!(); }");
        assert_clean("src/exec/mod.rs", "#[cfg(test)]\nmod tests { fn f() { println!(); } }");
        assert_found("src/exec/mod.rs", "fn f() { eprintln!(); }", &[":2: `eprintln!` outside cli/src/"]);
    }
}
