//! Each case is one misuse with its code, message and report of strict mode.
//!
//! `golden/misuse-PART.txt` has the expected text, with addresses as ADDRESS; `UPDATE_GOLDEN=1`
//! rewrites it.
#![expect(unsafe_code, reason = "tests call C functions")]
#![expect(non_snake_case, reason = "fields of C structures")]

mod acl;
mod aclnn;
mod bench;
mod hccl;

use std::fmt::Write;
use std::path::Path;

use crate::common::*;
use ascend_tp_sys::HcclCommConfig;
use bench::Bench;

/// Name, and program, which returns the code of the wrong call.
type Case = (&'static str, fn(&Bench<'_>) -> i64);

/// Returns what `HcclCommConfigInit` creates (version 1: size, magic number, version).
fn config() -> HcclCommConfig {
    // SAFETY: zeros are valid numbers and characters.
    let mut config: HcclCommConfig = unsafe { std::mem::zeroed() };
    let size = size_of::<HcclCommConfig>() as u64;
    let header: Vec<u8> = size
        .to_le_bytes()
        .into_iter()
        .chain(0xf0f0_f0f0_u32.to_le_bytes())
        .chain(1_u32.to_le_bytes())
        .collect();
    for (into, from) in config.reserved.iter_mut().zip(header) {
        *into = from.cast_signed() as std::ffi::c_char;
    }
    (config.hcclBufferSize, config.hcclDeterministic) = (u32::MAX, u32::MAX);
    config
}

/// Addresses are hexadecimal numbers of at least six digits.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits >= 6 {
            out.push_str("ADDRESS");
            out.push_str(&part[digits..]);
        } else {
            out.push_str("0x");
            out.push_str(part);
        }
    }
    out
}

fn outcome(name: &str, program: fn(&Bench<'_>) -> i64) -> String {
    let run = || {
        let emulator = Bench::machine();
        let table = emulator.table();
        let bench = Bench::new(&table);
        let code = program(&bench);
        let mut text = format!("{name}\n  code    {code}\n  message {}\n", message(&table));
        for report in emulator.reports() {
            let _ = writeln!(text, "  report  {report}");
        }
        without_addresses(&text)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("program".into());
        thread.spawn_scoped(scope, run).expect("a thread starts").join().unwrap_or_else(|_| panic!("{name}"))
    })
}

fn check(part: &str, cases: &[Case]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/misuse-{part}.txt"));
    let found: String = cases.iter().map(|(name, program)| outcome(name, *program)).collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).expect("it can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).expect("it can be read");
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected, "in {}", path.display());
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "lines of {}", path.display());
}

#[test]
fn misuse_of_ascend_cl() {
    check("acl", acl::CASES);
}

#[test]
fn misuse_of_aclnn() {
    check("aclnn", aclnn::CASES);
}

#[test]
fn misuse_of_hccl() {
    check("hccl", hccl::CASES);
}

#[test]
fn there_are_many_cases_and_each_has_its_name() {
    let names: Vec<&str> =
        [acl::CASES, aclnn::CASES, hccl::CASES].concat().iter().map(|(name, _)| *name).collect();
    let distinct: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(distinct.len(), names.len(), "two cases have one name");
    assert!(names.len() >= 150, "{} cases", names.len());
}
