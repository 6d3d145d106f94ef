//! Tests that each op, call and C function has few entries, mostly in tables.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};

use crate::house;
use crate::project;
use crate::project::source::{Source, is_word, words};
use crate::tidy::paths::children;

const OPS: &str = "src/program/op/table.rs";
const CALLS: &str = "src/call/table.rs";

/// Library files that may name ops: their bodies, and builders of programs.
const MAY_NAME_OPS: [&str; 15] = [
    "src/program/interpret.rs",
    "src/program/interpret/",
    "src/program/npu.rs",
    "src/program/npu/",
    "src/program/grad.rs",
    "src/program/grad/",
    "src/program/op.rs",
    "src/program/build.rs",
    "src/program/models/",
    // Quantised products and attention have their own error bounds.
    "src/generate/verify/",
    "src/train/init.rs",
    "src/train/optimizer.rs",
    "src/train/program.rs",
    // Assignment of ops to pipeline stages, and sharing between stages.
    "src/train/stages.rs",
    "src/schedule/emit/stages.rs",
];

/// Ops that passes insert, or to which passes add axes, and the files of these passes.
const MOVEMENTS: [&str; 12] = [
    "Reshard",
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "AllToAll",
    "CompressedSum",
    "RingAttention",
    "RingAttentionGrad",
    "Slice",
    "Leader",
    "Pad",
    "Assign",
];
const MAY_NAME_MOVEMENTS: [&str; 5] = [
    "src/collective/",
    "src/placement/transition.rs",
    "src/schedule/emit.rs",
    "src/schedule/emit/windows.rs",
    "src/compile/order.rs",
];

/// Library files that may name calls: they create, describe or verify calls.
const MAY_NAME_CALLS: [&str; 7] = [
    "src/program/npu.rs",
    "src/program/npu/",
    "src/schedule/emit.rs",
    "src/schedule/emit/",
    "src/schedule/launch.rs",
    "src/schedule/verify.rs",
    "src/schedule/with_exchange.rs",
];

/// Returns the variants in the macro's table in `path`.
fn entries(sources: &[Source], path: &str, after: &str) -> BTreeSet<String> {
    let source = sources.iter().find(|source| source.path == path).expect(path);
    let code = &source.code[source.code.rfind(after).expect(after)..];
    let name = |line: &str| -> Option<String> {
        let rest = line.strip_prefix("    ")?;
        let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
        name.starts_with(|letter: char| letter.is_ascii_uppercase()).then_some(name)
    };
    code.lines().filter_map(name).collect()
}

/// Lists uses of variants of `root` in library code: file, line, variant.
fn named<'a>(sources: &'a [Source], root: &'a str) -> impl Iterator<Item = (&'a Source, usize, &'a str)> {
    let library = sources.iter().filter(|source| source.path.starts_with("src/"));
    library.flat_map(move |source| {
        let names = children(&source.code, root).into_iter().filter(|(at, _)| !source.is_test(*at));
        names.map(move |(at, name)| (source, source.line(at), name))
    })
}

#[test]
fn ops_and_calls_are_listed_in_their_tables_alone() {
    let sources = project::read(&project::root()).expect("the project's files");
    let (ops, calls) = (entries(&sources, OPS, "ops! {"), entries(&sources, CALLS, "calls! {"));
    assert!(ops.len() > 40 && calls.len() > 30, "{} ops, {} calls", ops.len(), calls.len());
    let mut violations = Vec::new();
    let mut used = BTreeSet::new();
    let mut check = |root: &str,
                     variants: &BTreeSet<String>,
                     table: &str,
                     allowed: &dyn Fn(&str) -> Vec<&'static str>| {
        for (source, line, name) in named(&sources, root).filter(|(_, _, name)| variants.contains(*name)) {
            let place = allowed(name).into_iter().find(|place| source.is_below(&[place]));
            used.extend(place);
            if place.is_none() && source.path != table {
                violations.push(format!(
                    "{}:{line}: names {root}::{name}; make it a column of {table}",
                    source.path
                ));
            }
        }
    };
    check("Kind", &ops, OPS, &|name| {
        let movements = if MOVEMENTS.contains(&name) { &MAY_NAME_MOVEMENTS[..] } else { &[] };
        [&MAY_NAME_OPS[..], movements].concat()
    });
    check("Call", &calls, CALLS, &|_| MAY_NAME_CALLS.to_vec());
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    let unused: Vec<&str> = [&MAY_NAME_OPS[..], &MAY_NAME_MOVEMENTS, &MAY_NAME_CALLS]
        .concat()
        .into_iter()
        .filter(|place| !used.contains(place) && *place != "src/program/op.rs")
        .collect();
    assert_eq!(unused, [] as [&str; 0], "unused entries; remove them from the lists");
}

/// Reads the generated list of C functions.
fn symbols() -> String {
    std::fs::read_to_string(project::root().join("sys/src/symbols.rs")).expect("the list of C functions")
}

/// Returns the CANN operators in the headers.
fn operators() -> BTreeSet<String> {
    let symbols = symbols();
    let first_phases =
        symbols.lines().filter_map(|line| line.split_once("GetWorkspaceSize(")?.0.rsplit_once(", "));
    first_phases.map(|(_, name)| name.to_owned()).collect()
}

/// Returns all other C functions in the headers.
fn functions() -> BTreeSet<String> {
    let symbols = symbols();
    let declared =
        symbols.lines().filter_map(|line| line.trim_start().strip_prefix('[')?.split_once("] fn "));
    declared.filter_map(|(_, rest)| Some(rest.split_once('(')?.0.to_owned())).collect()
}

/// Code that calls C functions like any program. It needs no change for a new function.
const CALLERS: [&str; 8] = [
    "src/device/",
    "cli/",
    "planner/",
    "emulator/src/abi/aclnn/joined.rs",
    "emulator/dropin/",
    "emulator/storm/",
    "emulator/operators/unit/",
    "xtask/",
];

/// Lists of C functions with exceptional properties.
const OF_THEIR_OWN: [&str; 14] = [
    // Unusual host costs of calls, and requirements of exchanges.
    "machine/src/host.rs",
    "emulator/src/hccl/mod.rs",
    "emulator/src/hccl/rules.rs",
    "src/schedule/mod.rs",
    // Calls without ordering, calls that free resources, and calls that work after a failure.
    "emulator/src/strict/mod.rs",
    "emulator/src/strict/leaks.rs",
    "emulator/src/faults/overlay.rs",
    "emulator/src/faults/strike.rs",
    // Messages that name the call.
    "emulator/src/nn/objects.rs",
    "emulator/src/runtime/events.rs",
    "emulator/src/runtime/graph/",
    "emulator/src/runtime/profile.rs",
    // Operators with special treatment.
    "emulator/operators/src/shape/fractal_rows.rs",
    "emulator/src/timed/load.rs",
];

/// Returns the files with an entry for each C name: a prototype in a header, or an identifier or
/// string in code that is not a test.
fn places(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut add = |name: &str, path: &str| {
        let name = name.strip_suffix("GetWorkspaceSize").unwrap_or(name);
        places.entry(name.to_owned()).or_default().insert(path.to_owned());
    };
    for file in house::source::read(&project::root()).expect("the project's files") {
        if !CALLERS.iter().any(|caller| file.path.starts_with(caller)) {
            names(&file.shipped, &mut |name| add(name, &file.path));
        }
    }
    for header in sources.iter().filter(|source| source.path.starts_with("sys/include/")) {
        let code = header.text.lines().filter(|line| !line.trim_start().starts_with(['/', '*']));
        let code = code.flat_map(|line| line.split("//").next());
        code.flat_map(|line| line.split(|c: char| !is_word(c))).for_each(|name| add(name, &header.path));
    }
    places
}

/// Visits identifiers and literals, except in doc comments.
fn names(tokens: &TokenStream, add: &mut dyn FnMut(&str)) {
    let is_doc = matches!(tokens.clone().into_iter().next(), Some(TokenTree::Ident(word)) if word == "doc");
    for token in tokens.clone().into_iter().filter(|_| !is_doc) {
        match token {
            TokenTree::Ident(name) => add(&name.to_string()),
            TokenTree::Literal(text) => add(text.to_string().trim_matches('"')),
            TokenTree::Group(group) => names(&group.stream(), add),
            TokenTree::Punct(_) => {}
        }
    }
}

/// An op has an entry, a meaning, calls and a gradient. A call has an entry only.
#[test]
fn an_op_and_a_call_stand_in_few_files() {
    let sources = project::read(&project::root()).expect("the project's files");
    let library = || sources.iter().filter(|source| source.path.starts_with("src/"));
    let naming = |word: &str| -> Vec<&str> {
        let has = |source: &&Source| words(&source.code, word).any(|at| !source.is_test(at));
        library().filter(has).map(|source| source.path.as_str()).collect()
    };
    for op in ["silu", "swiglu", "quant_matmul", "sum_exp", "clip_factor"] {
        let files = naming(op);
        assert!(files.len() <= 4 && files.contains(&OPS), "{op}: expected at most 4 files, found {files:?}");
    }
    for call in ["aclnnSilu", "aclnnRmsNorm", "aclnnLerp", "aclnnSoftmax"] {
        let literal = format!("\"{call}\"");
        let files: Vec<&str> = library()
            .filter(|source| source.text.contains(&literal))
            .map(|source| source.path.as_str())
            .collect();
        assert_eq!(files, [CALLS], "{call}");
    }
}

/// A C function has a prototype and a method of the emulator. An operator has a prototype and a row
/// of the emulator, a cost class unless it makes a single pass, and an entry in the table of calls
/// if programs call it.
#[test]
fn a_c_function_stands_in_two_files_and_an_operator_in_four() {
    let sources = project::read(&project::root()).expect("the project's files");
    let places = places(&sources);
    let (operators, functions) = (operators(), functions());
    assert!(operators.len() > 500 && functions.len() > 200, "{} and {}", operators.len(), functions.len());
    let calls = sources.iter().find(|source| source.path == CALLS).expect(CALLS);
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    let limits =
        operators.iter().map(|name| (name, if calls.text.contains(&format!("\"{name}\"")) { 4 } else { 3 }));
    for (name, limit) in limits.chain(functions.iter().map(|name| (name, 2))) {
        let (lists, files): (Vec<&str>, Vec<&str>) = places[name]
            .iter()
            .map(String::as_str)
            .partition(|file| OF_THEIR_OWN.iter().any(|list| file.starts_with(list)));
        used.extend(lists);
        if files.len() > limit {
            wrong.push(format!("{name}: expected at most {limit} files, found {files:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unused: Vec<&&str> =
        OF_THEIR_OWN.iter().filter(|list| !used.iter().any(|file| file.starts_with(**list))).collect();
    assert_eq!(unused, [] as [&&str; 0], "unused entries; remove them from the list");
}
