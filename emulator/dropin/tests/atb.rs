//! ATB functions as C++ calls them.
#![expect(unsafe_code, reason = "loads a library and calls functions of C++ objects")]

use std::ffi::c_void;
use std::mem::{offset_of, size_of};
use std::ptr;

use ascend_tp_emulator_dropin::{real_library, write_libraries};
use libloading::Library;

const FLOAT: i32 = 0;
const INT32: i32 = 3;
const FLOAT16: i32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
struct Tensor {
    dtype: i32,
    format: i32,
    dims: [i64; 8],
    rank: u64,
    device: *mut c_void,
    host: *mut c_void,
    bytes: u64,
}

#[repr(C)]
struct Tensors {
    capacity: usize,
    len: usize,
    inline: [Tensor; 65],
    heap: *const Tensor,
}

#[repr(C)]
struct Pack {
    inputs: Tensors,
    outputs: Tensors,
}

fn tensors(given: &[Tensor]) -> Tensors {
    let nothing = Tensor {
        dtype: -1,
        format: -1,
        dims: [0; 8],
        rank: 0,
        device: ptr::null_mut(),
        host: ptr::null_mut(),
        bytes: 0,
    };
    let mut inline = [nothing; 65];
    inline[..given.len()].copy_from_slice(given);
    Tensors { capacity: 64, len: given.len(), inline, heap: ptr::null() }
}

struct Card {
    library: Library,
    stream: *mut c_void,
    context: *mut c_void,
    _folder: tempfile::TempDir,
}

type Code = i32;

impl Card {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the libraries");
        write_libraries(folder.path(), &real_library().expect("cargo built the shared library"))
            .expect("written");
        // SAFETY: the library's constructors have no requirements.
        let library = unsafe { Library::new(folder.path().join("libatb.so")) }.expect("libatb.so opens");
        let mut card = Self { library, stream: ptr::null_mut(), context: ptr::null_mut(), _folder: folder };
        let init = card.function::<unsafe extern "C" fn(*const c_void) -> Code>("aclInit");
        // SAFETY: as AscendCL declares it. Tests share a machine, so the call may return
        // "repeated".
        let _ = unsafe { init(ptr::null()) };
        // SAFETY: as AscendCL declares it.
        assert_eq!(unsafe { card.function::<unsafe extern "C" fn(i32) -> Code>("aclrtSetDevice")(0) }, 0);
        let create = card.function::<unsafe extern "C" fn(*mut *mut c_void) -> Code>("aclrtCreateStream");
        // SAFETY: as AscendCL declares it.
        assert_eq!(unsafe { create(&raw mut card.stream) }, 0);
        let name = "_ZN3atb13CreateContextEPPNS_7ContextE";
        let create = card.function::<unsafe extern "C" fn(*mut *mut c_void) -> Code>(name);
        // SAFETY: as ATB declares it.
        assert_eq!(unsafe { create(&raw mut card.context) }, 0);
        let set = virtual_function::<unsafe extern "C" fn(*mut c_void, *mut c_void) -> Code>(card.context, 2);
        // SAFETY: `SetExecuteStream` follows the two destructors.
        assert_eq!(unsafe { set(card.context, card.stream) }, 0);
        card
    }

    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the caller names the function's type.
        *unsafe { self.library.get::<F>(name.as_bytes()) }.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn tensor(&self, dtype: i32, dims: &[i64], bytes: &[u8]) -> Tensor {
        let mut device = ptr::null_mut();
        let malloc =
            self.function::<unsafe extern "C" fn(*mut *mut c_void, usize, i32) -> Code>("aclrtMalloc");
        // SAFETY: as AscendCL declares it.
        assert_eq!(unsafe { malloc(&raw mut device, bytes.len(), 0) }, 0);
        self.copy(device, bytes.as_ptr().cast(), bytes.len(), 1);
        let mut all = [0; 8];
        all[..dims.len()].copy_from_slice(dims);
        let (rank, size) = (dims.len() as u64, bytes.len() as u64);
        Tensor { dtype, format: 2, dims: all, rank, device, host: ptr::null_mut(), bytes: size }
    }

    fn copy(&self, to: *mut c_void, from: *const c_void, bytes: usize, kind: i32) {
        type Copy = unsafe extern "C" fn(*mut c_void, usize, *const c_void, usize, i32) -> Code;
        // SAFETY: as AscendCL declares it, with as many bytes on both sides.
        assert_eq!(unsafe { self.function::<Copy>("aclrtMemcpy")(to, bytes, from, bytes, kind) }, 0);
    }

    fn bytes(&self, tensor: Tensor) -> Vec<u8> {
        let mut bytes = vec![0; tensor.bytes as usize];
        self.copy(bytes.as_mut_ptr().cast(), tensor.device, bytes.len(), 2);
        bytes
    }

    fn operation<P>(&self, mangled: &str, param: &P) -> Result<*mut c_void, Code> {
        type Create<P> = unsafe extern "C" fn(*const P, *mut *mut c_void) -> Code;
        let name = format!("_ZN3atb15CreateOperationINS_5infer{mangled}EEEiRKT_PPNS_9OperationE");
        let mut operation = ptr::null_mut();
        // SAFETY: as ATB declares it.
        match unsafe { self.function::<Create<P>>(&name)(param, &raw mut operation) } {
            0 => Ok(operation),
            code => Err(code),
        }
    }

    fn run(&self, operation: *mut c_void, inputs: &[Tensor], outputs: &[Tensor]) -> Result<(), Code> {
        type Setup = unsafe extern "C" fn(*mut c_void, *const Pack, *mut u64, *mut c_void) -> Code;
        type Execute = unsafe extern "C" fn(*mut c_void, *const Pack, *mut c_void, u64, *mut c_void) -> Code;
        let pack = Box::new(Pack { inputs: tensors(inputs), outputs: tensors(outputs) });
        let mut size = 0;
        let setup = virtual_function::<Setup>(operation, 6);
        // SAFETY: `Setup` is the seventh virtual function.
        match unsafe { setup(operation, &raw const *pack, &raw mut size, self.context) } {
            0 => {}
            code => return Err(code),
        }
        let workspace = self.tensor(INT32, &[], &vec![0xEE; size as usize]);
        let execute = virtual_function::<Execute>(operation, 7);
        // SAFETY: `Execute` is the eighth.
        assert_eq!(unsafe { execute(operation, &raw const *pack, workspace.device, size, self.context) }, 0);
        let wait = self.function::<unsafe extern "C" fn(*mut c_void) -> Code>("aclrtSynchronizeStream");
        // SAFETY: as AscendCL declares it.
        assert_eq!(unsafe { wait(self.stream) }, 0);
        Ok(())
    }
}

fn virtual_function<F: Copy>(object: *mut c_void, place: usize) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    // SAFETY: an object with virtual functions begins with their table.
    let functions = unsafe { object.cast::<*const usize>().read() };
    // SAFETY: the caller passes a valid index for the class.
    let function = unsafe { functions.add(place) };
    // SAFETY: the caller names the function's type.
    unsafe { function.cast::<F>().read() }
}

/// Returns a small whole number: 1 is 0x3C00, and each doubling adds 0x0400.
fn half(value: i32) -> u16 {
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    let exponent = magnitude.ilog2();
    let fraction = (magnitude << (10 - exponent)) & 0x3FF;
    (if value < 0 { 0x8000 } else { 0 }) | ((15 + exponent as u16) << 10) | fraction as u16
}

fn halves(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|&value| half(value).to_ne_bytes()).collect()
}

fn unsigned_zeros(bytes: &[u8]) -> Vec<u8> {
    let halves = bytes.chunks_exact(2).map(|two| u16::from_ne_bytes([two[0], two[1]]));
    halves.flat_map(|half| if half == 0x8000 { [0; 2] } else { half.to_ne_bytes() }).collect()
}

fn numbers(count: usize, seed: i32) -> Vec<i32> {
    (0..count as i32).map(|i| (i * 7 + seed * 5).rem_euclid(17) - 8).collect()
}

#[test]
fn layouts_are_those_of_the_headers() {
    assert_eq!((size_of::<Tensor>(), offset_of!(Tensor, device)), (104, 80));
    assert_eq!((size_of::<Tensors>(), offset_of!(Tensors, heap)), (0x1A80, 0x1A78));
    assert_eq!(offset_of!(Pack, outputs), 0x1A80);
}

#[test]
fn halves_of_heads_are_turned() {
    let card = Card::new();
    let operation = card.operation("9RopeParam", &[2i32, 0, 0, 0]).expect("modelled");
    for (tokens, heads, key_heads, depth) in [(5usize, 4usize, 2usize, 8usize), (3, 1, 1, 4), (1, 3, 1, 2)] {
        let (q, k) = (numbers(tokens * heads * depth, 1), numbers(tokens * key_heads * depth, 2));
        let turns = |seed| -> Vec<i32> { numbers(tokens * depth, seed).iter().map(|x| x % 2).collect() };
        let (cos, sin) = (turns(3), turns(4));
        let turned = |x: &[i32], heads: usize| -> Vec<i32> {
            (0..x.len())
                .map(|i| {
                    let (token, at) = (i / (heads * depth), i % depth);
                    let other = if at < depth / 2 { -x[i + depth / 2] } else { x[i - depth / 2] };
                    x[i] * cos[token * depth + at] + other * sin[token * depth + at]
                })
                .collect()
        };
        let matrix = |values: &[i32]| {
            card.tensor(FLOAT16, &[tokens as i64, (values.len() / tokens) as i64], &halves(values))
        };
        let lengths = card.tensor(INT32, &[1], &(tokens as i32).to_ne_bytes());
        let (on_q, on_k, on_cos, on_sin) = (matrix(&q), matrix(&k), matrix(&cos), matrix(&sin));
        card.run(operation, &[on_q, on_k, on_cos, on_sin, lengths], &[on_q, on_k]).expect("runs");
        assert_eq!(unsigned_zeros(&card.bytes(on_q)), halves(&turned(&q, heads)), "query of {heads} heads");
        assert_eq!(
            unsigned_zeros(&card.bytes(on_k)),
            halves(&turned(&k, key_heads)),
            "key of {key_heads} heads"
        );
        let narrow = Tensor { dims: [tokens as i64 + 1, depth as i64, 0, 0, 0, 0, 0, 0], ..on_cos };
        assert_eq!(card.run(operation, &[on_q, on_k, narrow, narrow, lengths], &[on_q, on_k]), Err(8));
        let wide = Tensor { dtype: FLOAT, ..on_cos };
        assert_eq!(card.run(operation, &[on_q, on_k, wide, wide, lengths], &[on_q, on_k]), Err(8));
    }
    assert_eq!(card.operation("9RopeParam", &[4i32, 0, 0, 0]), Err(1), "quarters are not modelled");
}

#[test]
fn tokens_go_to_their_slots() {
    let card = Card::new();
    let operation = card.operation("20ReshapeAndCacheParam", &[0i32; 6]).expect("modelled");
    let (blocks, places, heads, depth) = (3i64, 4i64, 2i64, 2i64);
    let (line, rows) = ((heads * depth) as usize, (blocks * places) as usize);
    let slots = [7i32, 0, 11, 4, 2];
    let tokens = slots.len();
    let mut caches = [numbers(rows * line, 1), numbers(rows * line, 2)];
    let given = [numbers(tokens * line, 3), numbers(tokens * line, 4)];
    let on_card = [0, 1].map(|i| card.tensor(FLOAT16, &[blocks, places, heads, depth], &halves(&caches[i])));
    let lines = [0, 1].map(|i| card.tensor(FLOAT16, &[tokens as i64, heads, depth], &halves(&given[i])));
    let places_of = slots.iter().flat_map(|slot| slot.to_ne_bytes()).collect::<Vec<u8>>();
    let index = card.tensor(INT32, &[tokens as i64], &places_of);
    card.run(operation, &[lines[0], lines[1], on_card[0], on_card[1], index], &on_card).expect("runs");
    for i in 0..2 {
        for (token, &slot) in slots.iter().enumerate() {
            let slot = slot as usize;
            caches[i][slot * line..][..line].copy_from_slice(&given[i][token * line..][..line]);
        }
        assert_eq!(card.bytes(on_card[i]), halves(&caches[i]), "cache {i}");
    }
    let few = Tensor { dims: [4, 0, 0, 0, 0, 0, 0, 0], ..index };
    assert_eq!(card.run(operation, &[lines[0], lines[1], on_card[0], on_card[1], few], &on_card), Err(8));
}

#[test]
fn a_product_is_added_in_single_precision() {
    /// `LinearParam`: transposed factors, bias, output type, and accumulation.
    #[repr(C)]
    struct AtbLinear {
        transpose: [bool; 2],
        bias: bool,
        out: i32,
        accumulate: bool,
        rest: [u8; 24],
    }
    let card = Card::new();
    let (rows, inner, columns) = (3usize, 5usize, 4usize);
    let (x, weight, sum) =
        (numbers(rows * inner, 1), numbers(inner * columns, 2), numbers(rows * columns, 3));
    let floats =
        |values: &[i32]| -> Vec<u8> { values.iter().flat_map(|&v| (v as f32 + 0.5).to_ne_bytes()).collect() };
    let expected: Vec<i32> = (0..rows * columns)
        .map(|at| {
            let (row, column) = (at / columns, at % columns);
            sum[at] + (0..inner).map(|k| x[row * inner + k] * weight[k * columns + column]).sum::<i32>()
        })
        .collect();
    let matrix = |values: &[i32], rows: usize, columns: usize, transpose: bool| {
        let turned: Vec<i32> = (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect();
        let (dims, values) =
            if transpose { ([columns, rows], &turned[..]) } else { ([rows, columns], values) };
        card.tensor(FLOAT16, &dims.map(|dim| dim as i64), &halves(values))
    };
    for transpose in [[false, false], [true, false], [false, true], [true, true]] {
        let param = AtbLinear { transpose, bias: false, out: -1, accumulate: true, rest: [0; 24] };
        let operation = card.operation("11LinearParam", &param).expect("modelled");
        let on_x = matrix(&x, rows, inner, transpose[0]);
        let on_weight = matrix(&weight, inner, columns, transpose[1]);
        let on_sum = card.tensor(FLOAT, &[rows as i64, columns as i64], &floats(&sum));
        card.run(operation, &[on_x, on_weight, on_sum], &[on_sum]).expect("runs");
        assert_eq!(card.bytes(on_sum), floats(&expected), "{transpose:?}");
        assert_eq!(card.run(operation, &[on_weight, on_weight, on_sum], &[on_sum]), Err(8), "{transpose:?}");
    }
    let plain = AtbLinear { transpose: [false, true], bias: true, out: -1, accumulate: false, rest: [0; 24] };
    assert_eq!(card.operation("11LinearParam", &plain), Err(1), "other products are not modelled");
}
