//! The arithmetic of the emulated card: kernels over strided device memory, and the rules of each aclnn operator.
//!
//! Input: views of device memory and host attributes. Output: the operator's output views.
//! Layers, each using those above it: [`dtype`] and [`raw`]; [`view`] and [`lane`]; the kernels ([`elementwise`],
//! [`matmul`], [`attention`], [`norm`], [`rotary`], [`reduce`], [`order`], [`index`]); and [`operator`], which holds one
//! row per aclnn operator (what it accepts, where that is documented) and the plan that ends in a kernel.
//! Invariants: nothing here sees the C ABI, a stream or a thread; results do not depend on how many threads run the
//! tiles; f16 and bf16 accumulate in f32 and are rounded once.
//! Not here: clocks, races, memory accounting, and operators without a row, which the ABI refuses by name.

pub(crate) mod attention;
pub(crate) mod dtype;
pub(crate) mod elementwise;
pub(crate) mod index;
pub(crate) mod lane;
pub(crate) mod matmul;
pub(crate) mod norm;
pub(crate) mod operator;
pub(crate) mod order;
pub(crate) mod raw;
pub(crate) mod reduce;
pub(crate) mod rotary;
pub(crate) mod view;

/// Something that runs independent tiles, in any order and on any threads.
pub(crate) trait Tiles: Sync {
    /// Calls `tile(i)` for each `i` in `0..count` and returns when all are done.
    fn run(&self, count: usize, tile: &(dyn Fn(usize) + Sync));
}

/// Runs tiles one after the other on the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serial;

impl Tiles for Serial {
    fn run(&self, count: usize, tile: &(dyn Fn(usize) + Sync)) {
        for i in 0..count {
            tile(i);
        }
    }
}
