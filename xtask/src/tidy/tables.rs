//! That an op and a call of an operator are one entry each: nothing beside the tables and the bodies lists them.

use std::collections::BTreeSet;

use crate::project;
use crate::project::source::{Source, words};
use crate::tidy::paths::children;

const OPS: &str = "src/program/op/table.rs";
const CALLS: &str = "src/program/call/table.rs";

/// Files of the library that may name ops beside the table: those that hold their bodies, and those that write programs.
const MAY_NAME_OPS: [&str; 13] = [
    "src/program/interpret.rs",
    "src/program/interpret/",
    "src/program/npu.rs",
    "src/program/npu/",
    "src/program/grad.rs",
    "src/program/op.rs",
    "src/program/build.rs",
    "src/program/models/",
    "src/train/init.rs",
    "src/train/optimizer.rs",
    "src/train/program.rs",
    // Which ops belong to which stage of a pipeline, and what stages share.
    "src/train/stages.rs",
    "src/schedule/emit/stages.rs",
];

/// The ops that passes insert or give their axes, and where they are made, checked, fused and lowered.
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
const MAY_NAME_MOVEMENTS: [&str; 4] =
    ["src/collective/", "src/placement/transition.rs", "src/schedule/emit.rs", "src/compile/order.rs"];

/// Files that may name calls beside their table: those that make them, the one that says what they ask of a card, and the verifier of
/// those that exchange beside what they multiply.
const MAY_NAME_CALLS: [&str; 7] = [
    "src/program/npu.rs",
    "src/program/npu/",
    "src/schedule/emit.rs",
    "src/schedule/emit/",
    "src/schedule/launch.rs",
    "src/schedule/verify.rs",
    "src/schedule/with_exchange.rs",
];

/// The variants of the table that a macro is given in `path`.
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

/// Where code of the library that is no test names a variant of `root`: path, line, variant.
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
    let mut check =
        |root: &str, variants: &BTreeSet<String>, table: &str, allowed: &dyn Fn(&str) -> Vec<&'static str>| {
            for (source, line, name) in named(&sources, root).filter(|(_, _, name)| variants.contains(*name)) {
                let place = allowed(name).into_iter().find(|place| source.is_below(&[place]));
                used.extend(place);
                if place.is_none() && source.path != table {
                    violations
                        .push(format!("{}:{line}: names {root}::{name}; make it a column of {table}", source.path));
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
    assert_eq!(unused, [] as [&str; 0], "these name none; take them off the lists");
}

/// An op is an entry, a meaning, its calls and its gradient; a call is an entry, and stands where ops become calls.
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
        assert!(files.len() <= 4 && files.contains(&OPS), "{op} stands in {files:?}, expected at most 4 files");
    }
    for call in ["aclnnSilu", "aclnnRmsNorm", "aclnnLerp", "aclnnSoftmax"] {
        let literal = format!("\"{call}\"");
        let files: Vec<&str> =
            library().filter(|source| source.text.contains(&literal)).map(|source| source.path.as_str()).collect();
        assert_eq!(files, [CALLS], "{call}");
    }
}
