//! Tests of `ascend-tp kernel`. Without a suitable C++ compiler only the refusals run, and stderr
//! says so.

use std::fs;
use std::path::Path;
use std::process::Output;

use ascend_tp::emulator::compiler::Compiler;
use serde_json::Value;

use crate::{command, root, stderr, stdout};

const KERNEL: &str = "kernels/examples/add_custom.cpp";

fn kernel(line: &str) -> Output {
    command().arg("kernel").args(line.split(' ')).output().unwrap()
}

#[expect(clippy::print_stderr, reason = "reports skipped tests")]
pub(crate) fn has_compiler() -> bool {
    let found = Compiler::find();
    if let Err(why) = &found {
        eprintln!("skipped `ascend-tp kernel`: {why}");
    }
    found.is_ok()
}

/// Checks `add_custom` over `count` elements on `blocks` cores.
fn add(count: usize, blocks: usize, out: &str, more: &str) -> Output {
    kernel(&format!(
        "check {KERNEL} --launch add_custom --blocks {blocks} --arg in:f16:{count}:random=1 --arg \
         in:f16:{count}:random=2 --arg {out} --arg u32:{count}{more}"
    ))
}

#[test]
fn a_kernel_that_is_right_is_told_with_its_cost() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("z.bin");
    let output = add(4096, 8, &format!("out:f16:4096:{}", file.display()), "");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(
        said.starts_with("add_custom on 8 blocks: no findings in 3 core schedules\n24576 bytes of"),
        "{said}"
    );
    assert_eq!(fs::metadata(&file).unwrap().len(), 8192);
    // Compare with the first result; sums of random numbers differ from each other.
    let output = add(4096, 16, &format!("out:f16:4096:expect={}", file.display()), " --json");
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["findings"], &report["cost"]["global_bytes"]),
        (&Value::Array(Vec::new()), &24576.into())
    );
    let mut bytes = fs::read(&file).unwrap();
    assert!(bytes.chunks(2).any(|pair| pair != &bytes[..2]));
    bytes[7] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let output = add(4096, 8, &format!("out:f16:4096:expect={}", file.display()), "");
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("add_custom, `z`: [value] expected 0x") && said.contains("at element 3, found 0x"),
        "{said}"
    );
    assert!(said.contains("(1 of 4096 elements differ)"), "{said}");
}

#[test]
fn what_breaks_a_rule_is_named_with_exit_code_1() {
    if !has_compiler() {
        return;
    }
    let output = add(4096, 8, "out:f16:4000", " --json");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["rule"], &finding["call"], &finding["line"]),
        (&"range".into(), &"DataCopy".into(), &58.into())
    );
    assert!(finding["file"].as_str().unwrap().ends_with(KERNEL), "{finding}");
    assert_eq!(finding["expected"], "bytes 0 to 8000 of `z`");
    // No core writes the end.
    let output = kernel(&format!(
        "check {KERNEL} --launch add_custom --arg in:f16:32:random=1 --arg in:f16:32:random=2 --arg out:f16:48 --arg u32:32"
    ));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stdout(&output),
        "add_custom, `z`: [unwritten] expected all 96 bytes written, found 64 written\n"
    );
}

#[test]
fn a_library_has_the_kernels_of_all_its_sources() {
    if !has_compiler() {
        return;
    }
    let folder = tempfile::Builder::new().prefix("two words").tempdir().unwrap();
    let out = folder.path().join("libkernels.so");
    let sources = [KERNEL, "kernels/ordered_sum.cpp"].map(|source| root().join(source));
    let output = command().args(["kernel", "build"]).args(sources).arg("--out").arg(&out).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    assert!(
        said.starts_with("add_custom(x, y, z, totalLength)\nordered_sum_float(x, y, chunks, n)\n"),
        "{said}"
    );
    assert!(out.is_file());
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["libkernels.so"], "nothing else is left");
}

#[test]
fn bad_usage_ends_with_exit_code_2() {
    let refused = |output: Output, says: &str| {
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says) && output.stdout.is_empty(), "{says}: {said}");
    };
    refused(
        kernel(&format!("check {KERNEL} --launch add_custom --arg in:f16:16")),
        "expected FILE or random=SEED",
    );
    refused(
        kernel(&format!("check {KERNEL} --launch add_custom --arg in:f16:16:/no/file")),
        "cannot be read",
    );
    refused(kernel(&format!("check {KERNEL} --launch add_custom --card 910x")), "no such chip");
    let without =
        |path: &Path| command().env("CXX", path).args(["kernel", "check", KERNEL, "--launch", "x"]).output();
    refused(without(Path::new("/no/compiler")).unwrap(), "none of /no/compiler compiles C++17 with _Float16");
    if !has_compiler() {
        return;
    }
    refused(kernel(&format!("check {KERNEL} --launch add")), "add_custom(x, y, z, totalLength)");
    refused(kernel(&format!("check {KERNEL} --launch add_custom --arg u32:1")), "wrong number of arguments");
    refused(kernel("check kernels/part.h --launch x"), "has no kernel");
    let wrong = "--arg in:f16:16:random=1 --arg in:f16:16:random=1 --arg out:f16:16 --arg u64:16";
    refused(
        kernel(&format!("check {KERNEL} --launch add_custom {wrong}")),
        "takes 4 bytes for `totalLength`",
    );
}
