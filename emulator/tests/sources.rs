//! Kernels as they are written for CANN's compiler: pointers of global memory, tiling data,
//! variants of a kernel, calls that move elements by index, synchronisations of the compiler.
//!
//! The tests print a message and end if no C++ compiler supports the types.
#![expect(unsafe_code, reason = "tests call C functions")]

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, OnceLock};

use ascend_tp_emulator::compiler::{AutoSync, Compiler};
use ascend_tp_emulator::{Emulator, KernelRun};
use ascend_tp_sys::{ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, Table};

use crate::common::strict::strict;
use crate::common::{Card, call, machine, ok};

/// Relies on the compiler for the order of two vector calls, and of a scalar read after them.
const UNORDERED: &str = r#"
#include "kernel_operator.h"
using namespace AscendC;

extern "C" __global__ __aicore__ void unordered(__gm__ float *y) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 256);
    LocalTensor<float> tile = buffer.Get<float>();
    Duplicate(tile, 3.0f, 16);
    Adds(tile, tile, 1.0f, 16);
    *y = tile.GetValue(5);
}
"#;

/// Libraries of both sources with synchronisations of the compiler, and of the second without.
struct Libraries {
    on: PathBuf,
    off: PathBuf,
}

#[expect(clippy::print_stderr, reason = "says what did not run")]
fn libraries() -> Option<&'static Libraries> {
    static BUILT: OnceLock<Option<Libraries>> = OnceLock::new();
    let build = || {
        let compiler = Compiler::find()
            .map_err(|why| eprintln!("skipped the sources: {why}"))
            .ok()?
            .with_checked_pointers();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernel sources");
        std::fs::create_dir_all(&folder).expect("a folder");
        let unordered = folder.join("unordered.cpp");
        std::fs::write(&unordered, UNORDERED).expect("written");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sources.cpp");
        let build = |auto_sync, sources: &[PathBuf], name: &str| {
            let (out, compiler) = (folder.join(name), compiler.clone().with_auto_sync(auto_sync));
            // The kernels are small: compiling them costs more than running them.
            let entries = compiler.build(sources, &["-O0".into()], &out);
            let entries = entries.unwrap_or_else(|error| panic!("{error}"));
            assert!(entries.iter().all(|entry| entry.notes.is_empty()), "{entries:?}");
            out
        };
        let on = build(AutoSync::On, &[source, unordered.clone()], "on.so");
        let off = build(AutoSync::Off, &[unordered], "off.so");
        Some(Libraries { on, off })
    };
    BUILT.get_or_init(build).as_ref()
}

struct Runs(Arc<Mutex<Vec<KernelRun>>>);

impl Runs {
    fn watch(emulator: &Emulator) -> Self {
        let runs: Arc<Mutex<Vec<KernelRun>>> = Arc::default();
        let kept = Arc::clone(&runs);
        emulator.watch_kernels(move |run| kept.lock().expect("not poisoned").push(run.clone()));
        Self(runs)
    }

    fn last(&self) -> KernelRun {
        self.0.lock().expect("not poisoned").last().expect("a kernel ran").clone()
    }
}

/// A kernel of a library and its arguments: addresses, then numbers.
struct Launch<'a> {
    library: &'a Path,
    name: &'a str,
    addresses: &'a [*mut c_void],
    numbers: &'a [u32],
}

/// Returns the code and message of the stream.
fn launch_on(table: &Table, card: &Card<'_>, blocks: u32, launch: &Launch<'_>) -> (i32, String) {
    let Launch { library, name, addresses, numbers } = *launch;
    let (mut binary, mut kernel) = (null_mut(), null_mut());
    let path = CString::new(library.to_str().expect("UTF-8")).expect("no NUL");
    ok(table, call!(table, aclrtBinaryLoadFromFile(path.as_ptr(), null_mut(), &raw mut binary)));
    let name = CString::new(name).expect("no NUL");
    ok(table, call!(table, aclrtBinaryGetFunction(binary, name.as_ptr(), &raw mut kernel)));
    let (mut list, mut place) = (null_mut(), null_mut());
    ok(table, call!(table, aclrtKernelArgsInit(kernel, &raw mut list)));
    for mut address in addresses.iter().copied() {
        ok(table, call!(table, aclrtKernelArgsAppend(list, (&raw mut address).cast(), 8, &raw mut place)));
    }
    for mut number in numbers.iter().copied() {
        ok(table, call!(table, aclrtKernelArgsAppend(list, (&raw mut number).cast(), 4, &raw mut place)));
    }
    ok(table, call!(table, aclrtKernelArgsFinalize(list)));
    let stream = card.stream();
    ok(
        table,
        call!(table, aclrtLaunchKernelWithConfig(kernel, blocks, stream, null_mut(), list, null_mut())),
    );
    let code = call!(table, aclrtSynchronizeStream(stream));
    (code, crate::common::message(table))
}

fn words<const BYTES: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; BYTES]> {
    bytes.chunks_exact(BYTES).map(|chunk| chunk.try_into().expect("whole chunks"))
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    words(bytes).map(f32::from_le_bytes).collect()
}

fn of_floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn of_ints(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[test]
fn pointers_of_global_memory_are_accesses_of_the_scalar_unit() {
    let Some(Libraries { on, .. }) = libraries() else { return };
    for (emulator, table) in [machine(1), strict(1, 5)] {
        let runs = Runs::watch(&emulator);
        let card = Card::new(&table, 0);
        let x = card.upload(&of_ints(0..100));
        let y = card.malloc(400);
        assert_eq!(
            launch_on(
                &table,
                &card,
                3,
                &Launch { library: on, name: "pointers", addresses: &[x, y], numbers: &[100] }
            )
            .0,
            0
        );
        assert_eq!(card.download(y, 400), of_ints((0..100).map(|value| 2 * value)));
        let run = runs.last();
        assert_eq!((run.bare_loads, run.bare_stores, run.global_bytes), (100, 100, 800));
        // A load is a miss of the cache.
        assert_eq!(run.busy_cycles[0], 40 * (64 + 1));
        assert!(run.note().is_some_and(|note| note.contains("100 loads and 100 stores")), "{run:?}");
        let writes: u64 = run.touched.iter().filter(|touch| touch.is_write).map(|touch| touch.bytes).sum();
        assert_eq!(writes, 400);
        assert_eq!(emulator.reports().len(), 0);
    }
}

#[test]
fn a_pointer_beyond_its_buffer_is_a_finding() {
    let Some(Libraries { on, .. }) = libraries() else { return };
    let (_emulator, table) = strict(1, 5);
    let card = Card::new(&table, 0);
    let x = card.upload(&of_ints(0..100));
    let (code, text) = launch_on(
        &table,
        &card,
        3,
        &Launch { library: on, name: "pointers", addresses: &[x, card.malloc(396)], numbers: &[100] },
    );
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "{text}");
    assert!(text.contains("store through a `__gm__` pointer: [range]"), "{text}");
    assert!(text.contains("expected bytes 0 to 396 of `y`, found bytes 396 to 400"), "{text}");
    let (code, text) = launch_on(
        &table,
        &card,
        3,
        &Launch { library: on, name: "pointers", addresses: &[null_mut(), x], numbers: &[100] },
    );
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "{text}");
    assert!(text.contains("load through a `__gm__` pointer: [range]"), "{text}");
}

#[test]
fn a_pointer_reads_what_a_copy_wrote_once_the_cache_is_cleaned() {
    let Some(Libraries { on: library, .. }) = libraries() else { return };
    let (_emulator, table) = strict(1, 5);
    let card = Card::new(&table, 0);
    let (x, y) = (card.malloc(32), card.upload(&[0; 4]));
    // One block: the kernel writes the same memory on each.
    let stale = |is_cleaned| {
        launch_on(
            &table,
            &card,
            1,
            &Launch { library, name: "stale", addresses: &[x, y], numbers: &[is_cleaned] },
        )
    };
    let (code, text) = stale(1);
    assert_eq!(code, 0, "{text}");
    assert_eq!(card.download(y, 4), of_ints([7]));
    let (code, text) = stale(0);
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "{text}");
    assert!(text.contains("[order] expected DataCacheCleanAndInvalid after the write"), "{text}");
}

#[test]
fn tiling_data_and_the_variant_come_with_the_launch() {
    let Some(Libraries { on, .. }) = libraries() else { return };
    let (_emulator, table) = strict(1, 2);
    let card = Card::new(&table, 0);
    let mut tiling = of_ints([21]);
    tiling.extend(of_floats([1.5]));
    let tiling = card.upload(&tiling);
    let workspace = card.malloc(32);
    let values: Vec<f32> = (0..21).map(|at| at as f32 * 0.75 - 4.0).collect();
    let halves = |scale: f32| -> Vec<u8> {
        values.iter().flat_map(|x| half::f16::from_f32(x * scale).to_le_bytes()).collect()
    };
    let bfloats = |scale: f32| -> Vec<u8> {
        values.iter().flat_map(|x| half::bf16::from_f32(x * scale).to_le_bytes()).collect()
    };
    for (name, given, expected) in
        [("scale_1", halves(1.0), halves(1.5)), ("scale_2", bfloats(1.0), bfloats(1.5))]
    {
        let (x, y) = (card.upload(&given), card.malloc(42));
        let (code, text) = launch_on(
            &table,
            &card,
            1,
            &Launch { library: on, name, addresses: &[x, y, workspace, tiling], numbers: &[] },
        );
        assert_eq!(code, 0, "{name}: {text}");
        assert_eq!(card.download(y, 42), expected, "{name}");
    }
    let short = card.malloc(4);
    let (code, text) = launch_on(
        &table,
        &card,
        1,
        &Launch { library: on, name: "scale_1", addresses: &[short, short, workspace, short], numbers: &[] },
    );
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "{text}");
    assert!(text.contains("GET_TILING_DATA tiling: [range] expected bytes 0 to 4"), "{text}");
}

#[test]
fn elements_move_by_value_and_by_index() {
    let Some(Libraries { on, .. }) = libraries() else { return };
    let (_emulator, table) = strict(1, 3);
    let card = Card::new(&table, 0);
    let values: Vec<f32> = (0..128_u32).map(|at| (at * 73 % 101) as f32 - 50.0).collect();
    let by: Vec<u32> = (0..128).map(|at| (at * 37 + 5) % 128).collect();
    let x = card.upload(&of_floats(values.iter().copied()));
    let offsets = card.upload(&of_ints(by.iter().map(|at| 4 * at)));
    let [y, indices, gathered] = [(); 3].map(|()| card.malloc(512));
    let arguments = [x, offsets, y, indices, gathered];
    let (code, text) = launch_on(
        &table,
        &card,
        1,
        &Launch { library: on, name: "sorted", addresses: &arguments, numbers: &[] },
    );
    assert_eq!(code, 0, "{text}");
    let mut order: Vec<u32> = (0..128).collect();
    order.sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]));
    let of = |order: &[u32]| order.iter().map(|at| values[*at as usize]).collect::<Vec<f32>>();
    assert_eq!(floats(&card.download(y, 512)), of(&order));
    assert_eq!(floats(&card.download(gathered, 512)), of(&by));
    // Equal values may be in any order.
    let found: Vec<u32> = words(&card.download(indices, 512)).map(u32::from_le_bytes).collect();
    assert_eq!(of(&found), of(&order));
    let odd = card.upload(&of_ints((0..128).map(|at| 4 * at + 1)));
    let (code, text) = launch_on(
        &table,
        &card,
        1,
        &Launch { library: on, name: "sorted", addresses: &[x, odd, y, indices, gathered], numbers: &[] },
    );
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "{text}");
    assert!(
        text.contains("Gather srcOffset: [alignment] expected offsets that are multiples of 4"),
        "{text}"
    );
}

#[test]
fn pairs_are_summed_and_the_largest_has_its_index() {
    let Some(Libraries { on, .. }) = libraries() else { return };
    let (_emulator, table) = strict(1, 3);
    let card = Card::new(&table, 0);
    let values: Vec<f32> = (0..128_u32).map(|at| (at * 29 % 127) as f32).collect();
    let x = card.upload(&of_floats(values.iter().copied()));
    let (pairs, largest, repeated) = (card.malloc(256), card.malloc(32), card.malloc(256));
    let (code, text) = launch_on(
        &table,
        &card,
        1,
        &Launch { library: on, name: "reduced", addresses: &[x, pairs, largest, repeated], numbers: &[] },
    );
    assert_eq!(code, 0, "{text}");
    let sums: Vec<f32> = values.chunks(2).map(|pair| pair[0] + pair[1]).collect();
    assert_eq!(floats(&card.download(pairs, 256)), sums);
    let rows: Vec<f32> = values[..8].iter().flat_map(|value| [*value; 8]).collect();
    assert_eq!(floats(&card.download(repeated, 256)), rows);
    let found: Vec<[u8; 4]> = words(&card.download(largest, 32)).collect();
    for (half, part) in values.chunks(64).enumerate() {
        let most = part.iter().copied().fold(f32::MIN, f32::max);
        let at = part.iter().position(|value| *value == most).expect("it is one of them");
        assert_eq!(
            (f32::from_le_bytes(found[2 * half]), u32::from_le_bytes(found[2 * half + 1])),
            (most, at as u32)
        );
    }
}

#[test]
fn a_dim_of_a_matrix_is_reduced() {
    let Some(Libraries { on, .. }) = libraries() else { return };
    let (_emulator, table) = strict(1, 3);
    let card = Card::new(&table, 0);
    // Whole numbers, so every order of the sum has the same bits.
    let values: Vec<f32> = (0..128_u32).map(|at| (at * 53 % 97) as f32 - 40.0).collect();
    let x = card.upload(&of_floats(values.iter().copied()));
    let (sums, largest, fourth) = (card.malloc(32), card.malloc(64), card.malloc(128));
    let addresses = &[x, sums, largest, fourth];
    let launch = Launch { library: on, name: "rows", addresses, numbers: &[] };
    let (code, text) = launch_on(&table, &card, 1, &launch);
    assert_eq!(code, 0, "{text}");
    let rows: Vec<f32> = values.chunks(16).map(|row| row.iter().sum()).collect();
    assert_eq!(floats(&card.download(sums, 32)), rows);
    let column = |at: usize| values.iter().skip(at).step_by(16).copied().fold(f32::MIN, f32::max);
    assert_eq!(floats(&card.download(largest, 64)), (0..16).map(column).collect::<Vec<f32>>());
    let some: Vec<f32> = values.iter().skip(1).step_by(4).copied().collect();
    assert_eq!(floats(&card.download(fourth, 128)), some);
}

#[test]
fn the_compilers_synchronisations_are_an_option() {
    let Some(Libraries { on, off }) = libraries() else { return };
    let (_emulator, table) = strict(1, 3);
    let card = Card::new(&table, 0);
    let y = card.malloc(4);
    let (code, text) = launch_on(
        &table,
        &card,
        1,
        &Launch { library: on, name: "unordered", addresses: &[y], numbers: &[] },
    );
    assert_eq!(code, 0, "{text}");
    assert_eq!(floats(&card.download(y, 4)), [4.0]);
    let (code, text) = launch_on(
        &table,
        &card,
        1,
        &Launch { library: off, name: "unordered", addresses: &[y], numbers: &[] },
    );
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "{text}");
    assert!(text.contains("Adds src: [order] expected PipeBarrier<PIPE_V> between"), "{text}");
}

#[test]
fn a_trap_ends_the_kernel() {
    let Some(Libraries { on, .. }) = libraries() else { return };
    let (_emulator, table) = machine(1);
    let card = Card::new(&table, 0);
    let (code, text) =
        launch_on(&table, &card, 1, &Launch { library: on, name: "trapped", addresses: &[], numbers: &[] });
    assert_eq!(code, ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "{text}");
    assert!(text.contains("trap: [trap] expected no trap, found one"), "{text}");
}
