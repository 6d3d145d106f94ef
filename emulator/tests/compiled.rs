//! Ascend C kernels compiled for this host: arguments, findings, order, races, time.
//!
//! Skipped, with a message, if no C++ compiler supports the types.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};

use ascend_tp_emulator::compiler::Compiler;
use ascend_tp_emulator::{Config, Emulator, KernelRun, Numbers, Recording, ReportKind, Soc};
use ascend_tp_machine::{OperatorCost, Profile};
use ascend_tp_sys::{
    ACL_ERROR_INVALID_FILE, ACL_ERROR_KERNEL_NOT_FOUND, ACL_ERROR_RT_PARAM_INVALID,
    ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, ACL_ERROR_RT_VECTOR_CORE_TIMEOUT, Table, aclError, aclrtFuncHandle,
    aclrtStream,
};

use crate::common::strict::{strict, texts};
use crate::common::{Card, call, machine, machine_of, ok, refused};

/// Kernels that each break a rule.
const FAULTY: &str = r#"
#include "kernel_operator.h"
using namespace AscendC;

// Waits for a tensor that nobody queued.
extern "C" __global__ __aicore__ void waits(GM_ADDR x) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, 1, 32);
    queue.DeQue<float>();
}

// Adds 1 to eight floats a block, of which there may be more than cores.
extern "C" __global__ __aicore__ void increment(GM_ADDR x) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> in;
    TQue<TPosition::VECOUT, 1> out;
    GlobalTensor<float> global;
    global.SetGlobalBuffer((__gm__ float *)x + 8 * GetBlockIdx(), 8);
    pipe.InitBuffer(in, 1, 32);
    pipe.InitBuffer(out, 1, 32);
    LocalTensor<float> tile = in.AllocTensor<float>();
    DataCopy(tile, global, 8);
    in.EnQue(tile);
    tile = in.DeQue<float>();
    LocalTensor<float> sum = out.AllocTensor<float>();
    Adds(sum, tile, 1.0f, 8);
    out.EnQue(sum);
    in.FreeTensor(tile);
    sum = out.DeQue<float>();
    DataCopy(global, sum, 8);
    out.FreeTensor(sum);
}
"#;

/// Returns `None` without a compiler.
#[expect(clippy::print_stderr, reason = "says what did not run")]
fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let compiler =
            Compiler::find().map_err(|why| eprintln!("skipped the compiled kernels: {why}")).ok()?;
        // Nothing would remove a temporary folder at the end. The name contains a space on purpose.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled kernels");
        std::fs::create_dir_all(&folder).expect("a folder");
        let faulty = folder.join("faulty kernels.cpp");
        std::fs::write(&faulty, FAULTY).expect("written");
        let add = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/examples/add_custom.cpp");
        let out = folder.join("libkernels.so");
        let entries = compiler.build(&[add, faulty], &[], &out).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["add_custom", "waits", "increment"]);
        assert_eq!(entries[0].params, ["x", "y", "z", "totalLength"]);
        Some(out)
    });
    built.as_deref()
}

fn function(table: &Table, path: &Path, name: &str) -> aclrtFuncHandle {
    let (mut binary, mut function) = (null_mut(), null_mut());
    let path = CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
    ok(table, call!(table, aclrtBinaryLoadFromFile(path.as_ptr(), null_mut(), &raw mut binary)));
    let name = CString::new(name).expect("no NUL");
    ok(table, call!(table, aclrtBinaryGetFunction(binary, name.as_ptr(), &raw mut function)));
    function
}

fn launch(
    table: &Table,
    kernel: aclrtFuncHandle,
    blocks: u32,
    stream: aclrtStream,
    addresses: &[*mut c_void],
    count: Option<u32>,
) -> aclError {
    let (mut list, mut place) = (null_mut(), null_mut());
    ok(table, call!(table, aclrtKernelArgsInit(kernel, &raw mut list)));
    for address in addresses {
        let mut address = *address;
        ok(table, call!(table, aclrtKernelArgsAppend(list, (&raw mut address).cast(), 8, &raw mut place)));
    }
    if let Some(mut count) = count {
        ok(table, call!(table, aclrtKernelArgsAppend(list, (&raw mut count).cast(), 4, &raw mut place)));
    }
    ok(table, call!(table, aclrtKernelArgsFinalize(list)));
    call!(table, aclrtLaunchKernelWithConfig(kernel, blocks, stream, null_mut(), list, null_mut()))
}

fn halves(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect()
}

fn watched(emulator: &Emulator) -> Arc<Mutex<Vec<KernelRun>>> {
    let runs: Arc<Mutex<Vec<KernelRun>>> = Arc::default();
    let kept = Arc::clone(&runs);
    emulator.watch_kernels(move |run| kept.lock().expect("not poisoned").push(run.clone()));
    runs
}

const COUNT: usize = 16 * 8 * 40;

fn operands(card: &Card<'_>) -> [*mut c_void; 3] {
    let x = card.upload(&halves((0..COUNT).map(|at| (at % 100) as f32)));
    let y = card.upload(&halves((0..COUNT).map(|at| (at % 7) as f32 * 0.5)));
    [x, y, card.malloc(2 * COUNT)]
}

#[test]
fn a_compiled_kernel_runs_as_on_a_card_and_says_what_it_did() {
    let Some(path) = library() else { return };
    let (emulator, table) = machine(1);
    let runs = watched(&emulator);
    let card = Card::new(&table, 0);
    let [x, y, z] = operands(&card);
    let kernel = function(&table, path, "add_custom");
    ok(&table, launch(&table, kernel, 8, card.stream, &[x, y, z], Some(COUNT as u32)));
    card.synchronize();
    let expected = halves((0..COUNT).map(|at| (at % 100) as f32 + (at % 7) as f32 * 0.5));
    assert!(card.download(z, 2 * COUNT) == expected, "the sum is exact");
    let runs = runs.lock().expect("not poisoned");
    let [run] = runs.as_slice() else { panic!("{runs:?}") };
    assert_eq!((run.kernel, run.card, run.blocks, &run.finding), ("add_custom", 0, 8, &None));
    assert_eq!((run.global_bytes, run.local_bytes), (6 * COUNT as u64, 2 * 3 * 4096));
    let touched: Vec<(u64, u64, bool)> =
        run.touched.iter().map(|touch| (touch.address, touch.bytes, touch.is_write)).collect();
    for (address, is_write) in [(x, false), (y, false), (z, true)] {
        assert!(touched.contains(&(address.addr() as u64, 2 * COUNT as u64, is_write)), "{touched:?}");
    }
    assert_eq!(touched.len(), 3);
}

#[test]
fn what_does_not_fit_a_kernel_is_refused_before_it_runs() {
    let Some(path) = library() else { return };
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let [x, y, z] = operands(&card);
    let kernel = function(&table, path, "add_custom");
    let code = launch(&table, kernel, 8, card.stream, &[x, y, z], None);
    let text = refused(&table, code, ACL_ERROR_RT_PARAM_INVALID);
    assert!(text.contains("takes 4 parameters (x, y, z, totalLength), the list has 3"), "{text}");
    let code = launch(&table, kernel, 8, card.stream, &[x, y, z, z], None);
    let text = refused(&table, code, ACL_ERROR_RT_PARAM_INVALID);
    assert!(text.contains("takes 4 bytes for `totalLength`, the list has 8"), "{text}");
    let (mut binary, mut handle) = (null_mut(), null_mut());
    let place = CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
    ok(&table, call!(table, aclrtBinaryLoadFromFile(place.as_ptr(), null_mut(), &raw mut binary)));
    let code = call!(table, aclrtBinaryGetFunction(binary, c"add".as_ptr(), &raw mut handle));
    let text = refused(&table, code, ACL_ERROR_KERNEL_NOT_FOUND);
    assert!(text.contains("no kernel \"add\", it has [\"add_custom\", \"waits\", \"increment\"]"), "{text}");
}

/// Sources are compiled in parallel.
#[test]
fn of_several_sources_the_first_that_is_refused_is_named() {
    let Some(_) = library() else { return };
    let compiler = Compiler::find().expect("it built the library");
    let folder = tempfile::tempdir().expect("a folder");
    let kernel = |name: &str, body: &str| {
        let path = folder.path().join(name);
        let entry = name.trim_end_matches(".cpp");
        let head = "#include \"kernel_operator.h\"\nextern \"C\" __global__ __aicore__ void";
        std::fs::write(&path, format!("{head} {entry}(GM_ADDR x) {{ {body} }}\n")).expect("written");
        path
    };
    let sources = ["first.cpp", "second.cpp", "third.cpp", "fourth.cpp"];
    let sources = sources.map(|name| kernel(name, if name == "first.cpp" { "" } else { "no_such_call(x);" }));
    let problem =
        compiler.build(&sources, &[], &folder.path().join("out.so")).expect_err("it calls what is not there");
    let text = problem.to_string();
    assert!(text.contains("second.cpp") && text.contains("no_such_call"), "{text}");
}

#[test]
fn a_library_of_another_version_is_refused() {
    let Some(_) = library() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (source, old) = (folder.path().join("old.cpp"), folder.path().join("old.so"));
    std::fs::write(&source, "extern \"C\" void ascend_host_kernels_0() {}\n").expect("written");
    let compiler = Compiler::find().expect("it built the library");
    let output =
        compiler.command().args(["-shared", "-fPIC", "-o"]).arg(&old).arg(&source).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (_emulator, table) = machine(1);
    let _card = Card::new(&table, 0);
    let (mut handle, path) = (null_mut(), CString::new(old.to_str().expect("UTF-8")).expect("no NUL"));
    let code = call!(table, aclrtBinaryLoadFromFile(path.as_ptr(), null_mut(), &raw mut handle));
    let text = refused(&table, code, ACL_ERROR_INVALID_FILE);
    assert!(text.contains("it exports ascend_host_kernels_0") && text.contains("build it again"), "{text}");
}

#[test]
fn a_kernel_that_breaks_a_rule_ends_its_stream_with_the_code_of_a_card() {
    let Some(path) = library() else { return };
    let (_emulator, table) = machine(2);
    let other = Card::new(&table, 1);
    let foreign = other.malloc(2 * COUNT);
    let card = Card::new(&table, 0);
    let [x, y, z] = operands(&card);
    let short = card.malloc(COUNT);
    let kernel = function(&table, path, "add_custom");
    let failed = |kernel, addresses: &[*mut c_void], count| {
        let stream = card.stream();
        ok(&table, launch(&table, kernel, 8, stream, addresses, count));
        let code = call!(table, aclrtSynchronizeStream(stream));
        (code, crate::common::message(&table))
    };
    let (code, text) = failed(kernel, &[x, y, short], Some(COUNT as u32));
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "{text}");
    // A card reserves 32 bytes more than asked for.
    let end = COUNT + 32;
    assert!(text.contains("add_custom.cpp:58: DataCopy dst: [range]"), "{text}");
    assert!(text.contains(&format!("expected bytes 0 to {end} of `z`, found bytes ")), "{text}");
    let (code, text) = failed(kernel, &[x, foreign, z], Some(COUNT as u32));
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "{text}");
    assert!(text.contains("found memory of card 1; the kernel runs on card 0"), "{text}");
    let (code, text) = failed(function(&table, path, "waits"), &[x], None);
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_TIMEOUT, "{text}");
    assert!(
        text.contains("faulty kernels.cpp:10: DeQue: [queue]") && text.contains("waits for ever"),
        "{text}"
    );
}

#[test]
fn blocks_beyond_the_cores_follow_in_waves() {
    let Some(path) = library() else { return };
    let (emulator, table) = machine(1);
    let runs = watched(&emulator);
    let card = Card::new(&table, 0);
    let x = card.upload(&[0; 32 * 100]);
    let kernel = function(&table, path, "increment");
    for blocks in [1, 100] {
        ok(&table, launch(&table, kernel, blocks, card.stream, &[x], None));
    }
    card.synchronize();
    let found = card.download(x, 32 * 100);
    let expected: Vec<u8> =
        (0..800).flat_map(|at| if at < 8 { 2.0_f32 } else { 1.0 }.to_le_bytes()).collect();
    assert_eq!(found, expected);
    let runs = runs.lock().expect("not poisoned");
    assert_eq!(runs[1].cycles, runs[0].cycles * u64::from(100_u32.div_ceil(Soc::Ascend910B3.vector_cores())));
}

#[test]
fn strict_mode_knows_what_a_kernel_touched() {
    let Some(path) = library() else { return };
    for (is_ordered, of_one_half) in [(false, true), (true, true), (false, false)] {
        let (emulator, table) = strict(1, 3);
        let card = Card::new(&table, 0);
        let x = card.upload(&[0; 64]);
        let kernel = function(&table, path, "increment");
        let second = card.stream();
        let event = card.event();
        ok(&table, launch(&table, kernel, 1, card.stream, &[x], None));
        if is_ordered {
            ok(&table, call!(table, aclrtRecordEvent(event, card.stream)));
            ok(&table, call!(table, aclrtStreamWaitEvent(second, event)));
        }
        let place = x.wrapping_byte_add(if of_one_half { 0 } else { 32 });
        ok(&table, launch(&table, kernel, 1, second, &[place], None));
        ok(&table, call!(table, aclrtSynchronizeDevice()));
        let races: Vec<String> = emulator
            .reports()
            .iter()
            .filter(|report| report.kind() == ReportKind::Race)
            .map(ToString::to_string)
            .collect();
        assert_eq!(races.len(), usize::from(of_one_half && !is_ordered), "{races:?}");
        if let Some(race) = races.first() {
            assert!(race.contains("bytes 0 to 31") && race.contains("`x` of increment"), "{race}");
        }
    }
}

#[test]
fn a_finding_is_a_report_of_strict_mode() {
    let Some(path) = library() else { return };
    let (emulator, table) = strict(1, 1);
    let card = Card::new(&table, 0);
    let x = card.malloc(64);
    ok(&table, launch(&table, function(&table, path, "waits"), 1, card.stream, &[x], None));
    assert_eq!(card.outcome().0, ACL_ERROR_RT_VECTOR_CORE_TIMEOUT);
    let texts = texts(&emulator);
    let [text] = texts.as_slice() else { panic!("{texts:?}") };
    assert!(text.starts_with("kernel: waits, core 0, faulty kernels.cpp:10: DeQue"), "{text}");
    assert!(text.contains("aclrtLaunchKernelWithConfig"), "{text}");
}

#[test]
fn what_a_kernel_counts_is_its_time() {
    let Some(path) = library() else { return };
    let soc = Soc::Ascend910B3;
    let config = Config::timed(soc, 1, Numbers::Real);
    let (emulator, table) = machine_of(config);
    emulator.record_timeline(Recording::Everything);
    let runs = watched(&emulator);
    let card = Card::new(&table, 0);
    let [x, y, z] = operands(&card);
    let kernel = function(&table, path, "add_custom");
    for blocks in [1, 40] {
        ok(&table, launch(&table, kernel, blocks, card.stream, &[x, y, z], Some(COUNT as u32)));
    }
    card.synchronize();
    let spans = emulator.timeline();
    let took: Vec<u64> = spans
        .iter()
        .filter(|span| span.name == "aclrtLaunchKernelWithConfig")
        .map(|span| span.end_ns - span.start_ns)
        .collect();
    let cost = |run: &KernelRun| {
        let cost = OperatorCost::of_kernel(&Profile::of(soc), run.cycles as f64, run.global_bytes as f64);
        (cost.duration_us * 1e3).round() as u64
    };
    let runs = runs.lock().expect("not poisoned");
    assert_eq!(took, runs.iter().map(cost).collect::<Vec<_>>());
    assert!(took[0] > took[1], "one core takes longer than forty: {took:?}");
}
