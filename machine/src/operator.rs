//! What an operator costs on a card.
//!
//! Input: a [`Profile`] and the [`Work`] of a call. Output: its duration on the card, and what bounds it.
//!
//! A kernel takes what its slowest part takes (cube, vector, memory: they run side by side), and a fixed time beside.
//!
//! | part | form |
//! |---|---|
//! | cube | products cut into tiles, dealt out to the cores in waves; a core's time for a tile is that of its multiplications or of loading both its sides from the cache, whichever is longer; of the tile shapes the fastest |
//! | vector | operations over the lanes of all vector cores |
//! | memory | weights, caches and tables at HBM's rate; activations at the cache's rate as far as half of it holds them |
//!
//! Invariants: monotone in every size; no part is faster than the chip's facts allow. Docs: `docs/COSTS.md`.

use crate::launch::Element;
use crate::profile::Profile;
use crate::work::{Gemm, Work};

/// What bounds an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bound {
    /// The rate of the cube units.
    Cube,
    /// The rate of the vector units.
    Vector,
    /// The bandwidth of HBM or of the cache.
    Memory,
    /// The least time a kernel takes.
    Launch,
}

impl Bound {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cube => "cube",
            Self::Vector => "vector",
            Self::Memory => "memory",
            Self::Launch => "launch",
        }
    }
}

/// The units of a card a kernel keeps busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    /// The cube units, and the vector units that feed them.
    Cube,
    /// The vector units alone.
    Vector,
    /// What moves data between cards.
    Communication,
}

/// What a call costs on the card, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatorCost {
    /// From its start on the card to its end.
    pub duration_us: f64,
    /// The part the cube units would take alone.
    pub cube_us: f64,
    /// The part the vector units would take alone.
    pub vector_us: f64,
    /// The part the memory would take alone.
    pub memory_us: f64,
    /// What it keeps busy.
    pub engine: Engine,
    /// The largest part.
    pub bound: Bound,
}

/// Tiles of a result that one core makes at a time, in rows and columns at 16 bits (Ascend C `MatmulApi` tilings: both sides
/// in L0A and L0B of 64 KiB, the sums in L0C of 128 KiB).
const TILES: [(f64, f64); 5] = [(128.0, 256.0), (256.0, 128.0), (128.0, 128.0), (64.0, 256.0), (256.0, 64.0)];

/// Rows and columns of the least block the cube multiplies.
const BLOCK: f64 = 16.0;

/// Multiplications a cube unit makes in a cycle at 16 bits.
const MULTIPLICATIONS_PER_CYCLE: f64 = 4096.0;

impl OperatorCost {
    /// The cost of `work` on a card.
    #[must_use]
    pub fn of(profile: &Profile, work: &Work) -> Self {
        let (soc, c) = (profile.soc, &profile.coefficients);
        let cube_us = work.products.iter().map(|gemm| product_us(profile, work.element, gemm)).sum();
        let vector_us = work.vector_operations / (soc.vector_lanes_per_us() * c.vector_efficiency);
        let kept = work.passing_bytes.clamp(0.0, soc.l2_bytes() as f64 / 2.0);
        let memory_us = (work.bytes() - kept) / (soc.hbm_bytes_per_us() * c.hbm_efficiency)
            + kept / (soc.l2_bytes_per_us() * c.hbm_efficiency);
        // An efficiency is fitted for HBM and may be above 1; the cores' links carry no more for that.
        let memory_us = memory_us.max(work.bytes() / soc.l2_bytes_per_us());
        let (bound, longest) = [(Bound::Cube, cube_us), (Bound::Vector, vector_us), (Bound::Memory, memory_us)]
            .into_iter()
            .fold((Bound::Launch, 0.0), |best, part| if part.1 > best.1 { part } else { best });
        let engine = if work.products.is_empty() { Engine::Vector } else { Engine::Cube };
        let bound = if longest < c.kernel_us { Bound::Launch } else { bound };
        Self { duration_us: c.kernel_us + longest, cube_us, vector_us, memory_us, engine, bound }
    }

    /// The cost of a kernel of the vector cores that counts its own work: `cycles` of its slowest core, `bytes` of global
    /// memory over all cores.
    #[must_use]
    pub fn of_kernel(profile: &Profile, cycles: f64, bytes: f64) -> Self {
        let (soc, c) = (profile.soc, &profile.coefficients);
        let vector_us = cycles / soc.cycles_per_us();
        let memory_us = bytes / (soc.hbm_bytes_per_us() * c.hbm_efficiency);
        let (bound, longest) =
            if vector_us > memory_us { (Bound::Vector, vector_us) } else { (Bound::Memory, memory_us) };
        let bound = if longest < c.kernel_us { Bound::Launch } else { bound };
        let duration_us = c.kernel_us + longest;
        Self { duration_us, cube_us: 0.0, vector_us, memory_us, engine: Engine::Vector, bound }
    }
}

/// Microseconds of all cores for a product: the fastest tile shape.
fn product_us(profile: &Profile, element: Element, gemm: &Gemm) -> f64 {
    let up = |size: f64| (size / BLOCK).ceil() * BLOCK;
    let cores = f64::from(profile.soc.cube_cores());
    // Multiplications at this type take this many times those at 16 bits; bytes are those of the type.
    let (slow, bytes) = match element {
        Element::I8 => (0.5, 1.0),
        // The cube has no 4-bit products: weights are widened on the way.
        Element::I4 => (0.5, 1.0),
        Element::F32 => (4.0, 4.0),
        Element::F64 | Element::I64 | Element::I32 => (16.0, 8.0),
        Element::F16 | Element::Bf16 | Element::I16 => (1.0, 2.0),
    };
    let cycles = TILES.iter().map(|(rows, columns)| {
        let (rows, columns) = (up(gemm.m).min(*rows), up(gemm.n).min(*columns));
        let tiles = gemm.batch * (gemm.m / rows).ceil() * (gemm.n / columns).ceil();
        let multiply = rows * columns * slow / MULTIPLICATIONS_PER_CYCLE / profile.coefficients.cube_efficiency;
        let load = (rows + columns) * bytes / profile.soc.l2_bytes_per_cycle_and_core();
        // Fewer tiles than cores: the sum over k is cut instead, down to a core's share.
        let waves = if tiles < cores { tiles / cores } else { (tiles / cores).ceil() };
        waves * gemm.k * multiply.max(load)
    });
    cycles.fold(f64::INFINITY, f64::min) / profile.soc.cycles_per_us()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::launch::{Access, Launch, Operand};
    use crate::soc::Soc;

    fn matmul(element: Element, m: usize, k: usize, n: usize) -> Work {
        let operands = vec![
            Operand::dense(element, [m, k], Access::Read),
            Operand::dense(element, [k, n], Access::Read),
            Operand::dense(Element::Bf16, [m, n], Access::Write),
        ];
        let operator = if element == Element::I8 { "aclnnQuantMatmulV4" } else { "aclnnMatmul" };
        Work::of(&Launch { operator, operands })
    }

    fn attention(batch: usize, query: usize, positions: usize, mask: &[usize]) -> Work {
        let dense = |dims: &[usize], access| Operand::dense(Element::Bf16, dims, access);
        let mut operands = vec![
            dense(&[batch, query, 8, 128], Access::Read),
            dense(&[batch, positions, 2, 128], Access::Read),
            dense(&[batch, positions, 2, 128], Access::Read),
        ];
        operands.extend((!mask.is_empty()).then(|| Operand::dense(Element::I8, mask, Access::Read)));
        operands.push(dense(&[batch, query, 8, 128], Access::Write));
        Work::of(&Launch { operator: "aclnnFusedInferAttentionScoreV2", operands })
    }

    #[test]
    fn the_compressed_mask_halves_the_products_of_a_prompt() {
        let (whole, past) = (attention(1, 1024, 1024, &[]), attention(1, 1024, 1024, &[2048, 2048]));
        // Of 1024 positions the average query sees 512.5.
        assert!((past.flops() / whole.flops() - 512.5 / 1024.0).abs() < 1e-12);
        assert_eq!(attention(1, 1, 1024, &[2048, 2048]).flops(), attention(1, 1, 1024, &[]).flops());
    }

    #[test]
    fn rows_of_a_table_are_read_not_the_table() {
        let operands = vec![
            Operand::dense(Element::Bf16, [1000, 64], Access::Read),
            Operand::dense(Element::I64, [3], Access::Read),
            Operand::dense(Element::Bf16, [3, 64], Access::Write),
        ];
        let work = Work::of(&Launch { operator: "aclnnEmbedding", operands });
        assert_eq!((work.read_bytes, work.written_bytes), (3.0 * 128.0 + 24.0, 3.0 * 128.0));
        let operands = vec![
            Operand::dense(Element::Bf16, [1000, 64], Access::Update),
            Operand::dense(Element::I64, [3], Access::Read),
            Operand::dense(Element::Bf16, [3, 64], Access::Read),
        ];
        let work = Work::of(&Launch { operator: "aclnnInplaceIndexCopy", operands });
        assert_eq!((work.read_bytes, work.written_bytes), (3.0 * 128.0 + 24.0, 3.0 * 128.0));
    }

    #[test]
    fn a_decode_product_is_bound_by_its_weight_and_a_prompt_s_by_the_cube() {
        let profile = Profile::of(Soc::Ascend910B3);
        assert_eq!(OperatorCost::of(&profile, &matmul(Element::Bf16, 1, 8192, 6144)).bound, Bound::Memory);
        assert_eq!(OperatorCost::of(&profile, &matmul(Element::Bf16, 4096, 8192, 6144)).bound, Bound::Cube);
        assert_eq!(OperatorCost::of(&profile, &matmul(Element::Bf16, 1, 16, 16)).bound, Bound::Launch);
    }

    proptest! {
        #[test]
        fn more_work_is_never_faster(
            soc in prop::sample::select(Soc::ALL.to_vec()),
            element in prop::sample::select(vec![Element::Bf16, Element::I8, Element::F32]),
            sizes in (1_usize..5000, 1_usize..5000, 1_usize..5000),
            more in (0_usize..300, 0_usize..300, 0_usize..300),
        ) {
            let profile = Profile::of(soc);
            let small = OperatorCost::of(&profile, &matmul(element, sizes.0, sizes.1, sizes.2)).duration_us;
            let large =
                OperatorCost::of(&profile, &matmul(element, sizes.0 + more.0, sizes.1 + more.1, sizes.2 + more.2));
            prop_assert!(large.duration_us >= small * (1.0 - 1e-12), "{small} {}", large.duration_us);
        }

        #[test]
        fn a_product_is_never_faster_than_the_cube_or_the_cores_links_to_memory(
            soc in prop::sample::select(Soc::ALL.to_vec()),
            sizes in (1_usize..9000, 1_usize..9000, 1_usize..9000),
        ) {
            let work = matmul(Element::Bf16, sizes.0, sizes.1, sizes.2);
            let cost = OperatorCost::of(&Profile::of(soc), &work);
            prop_assert!(cost.duration_us >= work.flops() / soc.cube_flops_per_us());
            prop_assert!(cost.duration_us >= work.bytes() / soc.l2_bytes_per_us());
            let weight = 2.0 * (sizes.1 * sizes.2) as f64;
            prop_assert!(cost.duration_us >= weight / (2.0 * soc.hbm_bytes_per_us()));
        }

        #[test]
        fn longer_sequences_are_never_faster(
            batch in 1_usize..9, query in 1_usize..300, context in 0_usize..5000, more in (0_usize..9, 0_usize..300, 0_usize..900),
        ) {
            let profile = Profile::of(Soc::Ascend910B2);
            let us = |batch, query: usize, context: usize| {
                OperatorCost::of(&profile, &attention(batch, query, context + query, &[2048, 2048])).duration_us
            };
            let small = us(batch, query, context);
            let large = us(batch + more.0, query + more.1, context + more.2);
            prop_assert!(large >= small * (1.0 - 1e-12), "{small} {large}");
        }
    }
}
