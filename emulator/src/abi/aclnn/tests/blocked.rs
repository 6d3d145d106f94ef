//! Products with `FRACTAL_NZ` weights have the same bits as with plain weights.

use super::*;
use crate::abi::dropin;

const F16: aclDataType = aclDataType::ACL_FLOAT16;
const NZ: aclFormat = aclFormat(29);
/// Neither extent is a multiple of 16.
const EXTENTS: [usize; 2] = [20, 40];
const STORAGE: [i64; 4] = [3, 2, 16, 16];

macro_rules! also {
    ($emulator:expr, $name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: as for `call`.
        unsafe { dropin::$name(&$emulator, $($arg),*) }.expect("a modelled function")
    };
}

macro_rules! run {
    ($emulator:expr, $plan:ident, $run:ident($($arg:expr),* $(,)?)) => {{
        let (mut size, mut executor) = (0, null_mut());
        let code = also!($emulator, $plan($($arg,)* &raw mut size, &raw mut executor));
        if code == 0 {
            let workspace = upload(&$emulator.table(), &vec![0u8; size as usize]);
            let code = also!($emulator, $run(workspace, size, executor, null_mut()));
            ok(&$emulator.table(), call!($emulator.table(), aclrtSynchronizeStream(null_mut())));
            code
        } else {
            code
        }
    }};
}

fn emulator() -> Emulator {
    let emulator = Emulator::new(Config::with_cards(1)).unwrap();
    let table = emulator.table();
    ok(&table, call!(table, aclInit(null())));
    ok(&table, call!(table, aclrtSetDevice(0)));
    emulator
}

fn halves(count: usize, seed: usize) -> Vec<f16> {
    (0..count).map(|at| f16::from_f32(((at * 37 + seed * 11) % 101) as f32 / 16.0 - 3.0)).collect()
}

fn laid(
    table: &Table,
    dims: &[i64],
    strides: *const i64,
    format: aclFormat,
    address: *mut c_void,
) -> *mut aclTensor {
    let storage: &[i64] = if format == NZ { &STORAGE } else { &[800] };
    let (rank, depth) = (dims.len() as u64, storage.len() as u64);
    let made = call!(
        table,
        aclCreateTensor(dims.as_ptr(), rank, F16, strides, 0, format, storage.as_ptr(), depth, address)
    );
    assert!(!made.is_null(), "{}", message(table));
    made
}

fn product(emulator: &Emulator, weight: *const aclTensor, [depth, columns]: [usize; 2]) -> Vec<u16> {
    let table = emulator.table();
    let x = tensor(&table, F16, &[3, depth as i64], upload(&table, &halves(3 * depth, 1)));
    let address = upload(&table, &vec![0u16; 3 * columns]);
    let out = tensor(&table, F16, &[3, columns as i64], address);
    ok(&table, run!(emulator, aclnnMmGetWorkspaceSize, aclnnMm(x, weight, out, 0)));
    download(&table, address, 3 * columns)
}

/// Creates a weight in plain layout, in memory that is large enough for the blocks.
fn weight(emulator: &Emulator) -> (Vec<f16>, *mut c_void) {
    let table = emulator.table();
    let shape = call!(table, aclCreateIntArray([20i64, 40].as_ptr(), 2));
    let mut room = 0;
    ok(&table, also!(emulator, aclnnCalculateMatmulWeightSizeV2(shape, F16, &raw mut room)));
    let mut values = halves(800, 0);
    let plain = values.clone();
    values.resize(room as usize, f16::ONE);
    (plain, upload(&table, &values))
}

#[test]
fn a_product_of_a_weight_in_blocks_has_the_bits_of_one_without() {
    let emulator = emulator();
    let table = emulator.table();
    let (plain, memory) = weight(&emulator);
    let before = laid(&table, &[20, 40], null(), aclFormat::ACL_FORMAT_ND, upload(&table, &plain));
    let expected = product(&emulator, before, EXTENTS);
    let swapped = [1i64, 40];
    let turned = laid(&table, &[40, 20], swapped.as_ptr(), aclFormat::ACL_FORMAT_ND, upload(&table, &plain));
    let expected_turned = product(&emulator, turned, [40, 20]);

    let weight = laid(&table, &[20, 40], null(), aclFormat::ACL_FORMAT_ND, memory);
    ok(&table, run!(emulator, aclnnTransMatmulWeightGetWorkspaceSize, aclnnTransMatmulWeight(weight)));
    let stored: Vec<f16> = download(&table, memory, 3 * 2 * 16 * 16);
    for (at, &found) in stored.iter().enumerate() {
        let (row, column) = (at / 16 % 32, at / 512 * 16 + at % 16);
        let wanted = if row < 20 && column < 40 { plain[row * 40 + column] } else { f16::ZERO };
        assert_eq!(found, wanted, "element {at}");
    }
    assert_eq!(product(&emulator, weight, EXTENTS), expected, "the tensor itself");
    let again = laid(&table, &[20, 40], null(), NZ, memory);
    assert_eq!(product(&emulator, again, EXTENTS), expected, "another of the same memory");
    let again = laid(&table, &[40, 20], swapped.as_ptr(), NZ, memory);
    assert_eq!(product(&emulator, again, [40, 20]), expected_turned, "with its dims swapped");
}

#[test]
fn the_storage_says_which_way_a_row_lies() {
    let emulator = emulator();
    let table = emulator.table();
    let row = halves(40, 2);
    let mut stored = vec![f16::ZERO; 768];
    row.iter().enumerate().for_each(|(at, value)| stored[at / 16 * 256 + at % 16] = *value);
    let memory = upload(&table, &stored);
    let column = tensor(&table, F16, &[40, 1], upload(&table, &row));
    let expected = product(&emulator, column, [40, 1]);
    let (dims, storage) = ([40i64, 1], [3i64, 1, 16, 16]);
    for strides in [[1i64, 40], [1, 1]] {
        let weight = call!(
            table,
            aclCreateTensor(dims.as_ptr(), 2, F16, strides.as_ptr(), 0, NZ, storage.as_ptr(), 4, memory)
        );
        assert_eq!(product(&emulator, weight, [40, 1]), expected, "strides {strides:?}");
    }
}

#[test]
fn a_cast_to_blocks_and_back_gives_the_same_elements() {
    let emulator = emulator();
    let table = emulator.table();
    let plain = halves(800, 5);
    let source = laid(&table, &[20, 40], null(), aclFormat::ACL_FORMAT_ND, upload(&table, &plain));
    let (mut dims, mut count, mut format) = (null_mut(), 0, 0);
    let places = (&raw mut dims, &raw mut count, &raw mut format);
    let code = also!(
        emulator,
        aclnnNpuFormatCastCalculateSizeAndFormat(source, NZ.0, -1, places.0, places.1, places.2)
    );
    ok(&table, code);
    // SAFETY: the function returned the number of dims.
    let found = unsafe { std::slice::from_raw_parts(dims, count as usize) };
    assert_eq!((found, format), (&STORAGE[..], NZ.0));
    // SAFETY: the caller frees the array.
    unsafe { libc::free(dims.cast()) };
    let memory = upload(&table, &vec![f16::ONE; 1536]);
    let blocked = laid(&table, &[20, 40], null(), NZ, memory);
    ok(&table, run!(emulator, aclnnNpuFormatCastGetWorkspaceSize, aclnnNpuFormatCast(source, blocked)));
    let stored: Vec<f16> = download(&table, memory, 1536);
    assert_eq!(stored[(2 * 2 + 1) * 256 + 3 * 16 + 7], plain[19 * 40 + 39], "the last element");
    let ones = |values: &[f16]| values.iter().filter(|value| **value == f16::ONE).count();
    assert_eq!(ones(&stored), ones(&plain), "what is beside the elements is not what was there");
    let address = upload(&table, &vec![f16::ZERO; 800]);
    let target = laid(&table, &[20, 40], null(), aclFormat::ACL_FORMAT_ND, address);
    ok(&table, run!(emulator, aclnnNpuFormatCastGetWorkspaceSize, aclnnNpuFormatCast(blocked, target)));
    assert_eq!(download::<f16>(&table, address, 800), plain);
    let code = run!(emulator, aclnnNpuFormatCastGetWorkspaceSize, aclnnNpuFormatCast(source, target));
    refused(&table, code, 161_002, &["dstTensor", "expected FRACTAL_NZ for one tensor"]);
}

#[test]
fn blocks_that_do_not_hold_the_weight_are_refused() {
    let emulator = emulator();
    let table = emulator.table();
    let (_, memory) = weight(&emulator);
    let x = tensor(&table, F16, &[3, 24], upload(&table, &halves(72, 1)));
    let out = tensor(&table, F16, &[3, 70], upload(&table, &halves(210, 1)));
    let wrong = laid(&table, &[24, 70], null(), NZ, memory);
    let code = run!(emulator, aclnnMmGetWorkspaceSize, aclnnMm(x, wrong, out, 0));
    refused(&table, code, 161_002, &["mat2", "expected a storage of [5, 2, 16, 16]", "found [3, 2, 16, 16]"]);
    // Blocks of another matrix of this size.
    let x = tensor(&table, F16, &[3, 40], upload(&table, &halves(120, 1)));
    let out = tensor(&table, F16, &[3, 20], upload(&table, &halves(60, 1)));
    let code = run!(
        emulator,
        aclnnMmGetWorkspaceSize,
        aclnnMm(x, laid(&table, &[40, 20], null(), NZ, memory), out, 0)
    );
    refused(&table, code, 161_002, &["mat2", "expected a storage of [2, 3, 16, 16]", "found [3, 2, 16, 16]"]);
    let plain = laid(&table, &[20, 40], null(), aclFormat::ACL_FORMAT_ND, memory);
    let code = run!(emulator, aclnnMatmulWeightNzGetWorkspaceSize, aclnnMatmulWeightNz(x, plain, out, 0));
    refused(&table, code, 161_002, &["mat2", "expected format FRACTAL_NZ (29), found 2"]);
    // Large enough for the weight but not for its blocks.
    let tight = upload(&table, &vec![f16::ONE; 800]);
    let weight = laid(&table, &[20, 40], null(), aclFormat::ACL_FORMAT_ND, tight);
    let code = run!(emulator, aclnnTransMatmulWeightGetWorkspaceSize, aclnnTransMatmulWeight(weight));
    refused(&table, code, 361_001, &["tensor 0", "3072 bytes", "an allocation of 1600 bytes"]);
    let shape = call!(table, aclCreateIntArray([510i64, 270].as_ptr(), 2));
    let mut room = 0;
    ok(
        &table,
        also!(emulator, aclnnCalculateMatmulWeightSizeV2(shape, aclDataType::ACL_INT8, &raw mut room)),
    );
    assert_eq!(room, 147_456, "the example of the page");
    let code =
        also!(emulator, aclnnCalculateMatmulWeightSizeV2(shape, aclDataType::ACL_FLOAT, &raw mut room));
    refused(&table, code, 161_002, &["tensorShape", "aclDataType 0"]);
}

/// Creates two blocked weights with small whole numbers.
fn batch<T: Copy>(
    emulator: &Emulator,
    dtype: aclDataType,
    zero: T,
    element: impl Fn(i64) -> T,
) -> *mut aclTensor {
    let table = emulator.table();
    let shape = call!(table, aclCreateIntArray([2i64, 20, 40].as_ptr(), 3));
    let mut room = 0;
    ok(&table, also!(emulator, aclnnCalculateMatmulWeightSizeV2(shape, dtype, &raw mut room)));
    let mut values: Vec<T> =
        (0..1600).map(|at| element(of_weight(at / 800, at / 40 % 20, at % 40))).collect();
    values.resize(room as usize, zero);
    let weight = tensor(&table, dtype, &[2, 20, 40], upload(&table, &values));
    ok(&table, run!(emulator, aclnnTransMatmulWeightGetWorkspaceSize, aclnnTransMatmulWeight(weight)));
    weight
}

fn of_weight(batch: i64, row: i64, column: i64) -> i64 {
    (batch * 5 + row * 3 + column * 7) % 3 - 1
}

fn of_row(batch: i64, row: i64, at: i64) -> i64 {
    (batch * 2 + row * 7 + at * 5) % 3 - 1
}

fn dot(batch: i64, row: i64, column: i64) -> i64 {
    (0..20).map(|at| of_row(batch, row, at) * of_weight(batch, at, column)).sum()
}

#[test]
fn batches_of_weights_in_blocks_are_multiplied_as_their_formulas_say() {
    let emulator = emulator();
    let table = emulator.table();
    let whole = |value: i64| f16::from_f32(value as f32);
    let weight = batch(&emulator, F16, f16::ZERO, whole);
    let rows: Vec<f16> = (0..120).map(|at| whole(of_row(at / 20 % 2, at / 40, at % 20))).collect();
    let x = tensor(&table, F16, &[3, 2, 20], upload(&table, &rows));
    let address = upload(&table, &[f16::ONE; 240]);
    let out = tensor(&table, F16, &[3, 2, 40], address);
    let order = |dims: [i64; 3]| call!(table, aclCreateIntArray(dims.as_ptr(), 3));
    let (plain, swapped) = (order([0, 1, 2]), order([1, 0, 2]));
    let code = run!(
        emulator,
        aclnnTransposeBatchMatMulWeightNzGetWorkspaceSize,
        aclnnTransposeBatchMatMulWeightNz(x, weight, null(), null(), swapped, plain, swapped, 0, 1, out)
    );
    ok(&table, code);
    let wanted: Vec<f16> = (0..240).map(|at| whole(dot(at / 40 % 2, at / 80, at % 40))).collect();
    assert_eq!(download::<f16>(&table, address, 240), wanted);

    let weight = batch(&emulator, aclDataType::ACL_INT8, 0i8, |value| value as i8);
    let rows: Vec<i8> = (0..120).map(|at| of_row(at / 60, at / 20 % 3, at % 20) as i8).collect();
    let x = tensor(&table, aclDataType::ACL_INT8, &[2, 3, 20], upload(&table, &rows));
    let by_row = upload(&table, &[1.0f32, 2.0, 0.5, 2.0, 1.0, 4.0]);
    let by_row = tensor(&table, aclDataType::ACL_FLOAT, &[2, 3], by_row);
    let columns: Vec<bf16> = (0..40).map(|at| bf16::from_f32(if at % 2 == 0 { 1.0 } else { 0.25 })).collect();
    let by_column = tensor(&table, aclDataType::ACL_BF16, &[40], upload(&table, &columns));
    let address = upload(&table, &[bf16::ONE; 120]);
    let out = tensor(&table, aclDataType::ACL_BF16, &[3, 40], address);
    let (none, first) = (null(), call!(table, aclCreateIntArray([0i64].as_ptr(), 1)));
    let code = run!(
        emulator,
        aclnnQuantMatmulReduceSumWeightNzGetWorkspaceSize,
        aclnnQuantMatmulReduceSumWeightNz(
            x, weight, by_row, by_column, none, none, none, none, none, false, false, 0, first, false, out
        )
    );
    ok(&table, code);
    let scales = [[1.0, 2.0, 0.5], [2.0, 1.0, 4.0]];
    let sum = |row: usize, column: i64| {
        let products =
            [0usize, 1].map(|batch| dot(batch as i64, row as i64, column) as f32 * scales[batch][row]);
        bf16::from_f32(products.into_iter().sum::<f32>() * if column % 2 == 0 { 1.0 } else { 0.25 })
    };
    let wanted: Vec<bf16> = (0..120).map(|at| sum(at as usize / 40, at % 40)).collect();
    assert_eq!(download::<bf16>(&table, address, 120), wanted);
}
