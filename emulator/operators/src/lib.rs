//! CPU implementations of the CANN operators, over strided memory.
//!
//! - Layers, bottom up: [`dtype`], [`raw`] and [`fractal`]; [`view`], `lane` and `math`;
//!   [`operator`], the form of a row and of a call; one folder per family of operators. In a
//!   family, `rows` has one row per aclnn operator with its documented rules and plan, and
//!   `kernels` computes. [`combine`] has the arithmetic of collectives, [`limits`] the limits of
//!   this host.
//! - Invariants: this crate uses no C ABI, stream or thread. Results do not depend on the number of
//!   threads. f16 and bf16 accumulate in f32 and are rounded once.

mod attention;
pub mod combine;
mod compression;
mod convolution;
mod distance;
pub mod dtype;
mod elementwise;
mod experts;
pub mod fractal;
mod gradient;
mod indexing;
mod lane;
pub mod limits;
mod linear_algebra;
mod loss;
mod math;
mod matmul;
mod normalization;
pub mod operator;
mod optimizer;
mod pooling;
mod prototypes;
mod quantization;
mod random;
pub mod raw;
mod reduction;
mod resampling;
pub mod saturate;
mod shape;
pub mod simd;
pub mod view;

/// An executor of independent tiles, in any order and on any threads.
pub trait Tiles: Sync {
    /// Calls `tile(i)` for each `i` in `0..count` and returns when all calls have finished.
    fn run(&self, count: usize, tile: &(dyn Fn(usize) + Sync));
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Serial;

impl Tiles for Serial {
    fn run(&self, count: usize, tile: &(dyn Fn(usize) + Sync)) {
        for i in 0..count {
            tile(i);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::AclType;
    use crate::elementwise::kernels::{each, map1};
    use crate::matmul::kernels::{OperandRounding, matmul};
    use crate::raw::tests::span_of;
    use crate::reduction::kernels::{SoftmaxForm, softmax};
    use crate::view::{StridedView, contiguous_strides};

    pub(crate) struct Threads(pub(crate) usize);

    impl Tiles for Threads {
        fn run(&self, count: usize, tile: &(dyn Fn(usize) + Sync)) {
            let next = std::sync::atomic::AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for _ in 0..self.0 {
                    scope.spawn(|| {
                        loop {
                            let taken = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            if taken >= count {
                                break;
                            }
                            tile(count - 1 - taken);
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn results_do_not_depend_on_threads_or_the_order_of_tiles() {
        let (m, k, n) = (150, 70, 600);
        let values =
            |len: usize| (0..len).map(|i| ((i * 7919) % 1009) as f32 / 997.0 - 0.5).collect::<Vec<_>>();
        let run = |tiles: &dyn Tiles| {
            let (mut a, mut b, mut c) = (values(m * k), values(k * n), vec![0f32; m * n]);
            let view = |data: &mut [f32], dims: &[usize]| {
                StridedView::new(span_of(data), AclType::F32, dims, &contiguous_strides(dims), 0).unwrap()
            };
            let out = view(&mut c, &[m, n]);
            matmul(tiles, &view(&mut a, &[m, k]), &view(&mut b, &[k, n]), OperandRounding::Keep, &out);
            softmax(tiles, &out, n, &out, SoftmaxForm::Plain);
            map1::<f32>(tiles, &out, &out, |block| each(block, |v| v * 1.1));
            c.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
        };
        let alone = run(&Serial);
        for threads in [1, 2, 5] {
            assert!(run(&Threads(threads)) == alone, "{threads} threads");
        }
    }
}
