//! Cost of an operator on a card: its duration and the limiting resource.
//!
//! | kernel | cost in addition to a fixed time |
//! |---|---|
//! | product | the longer of cube and memory time, plus the fraction `serial` of the shorter of multiplying and memory, because the first tiles must arrive first. waves of tiles over the cores, each the longer of multiplying and of loading from the cache. The fastest tile shape counts |
//! | grouped products | the longer of the two: the weight of one group is loaded while another is multiplied. Groups are random, so the last tile of a group is half full on average. Few cores share the weights, so they have a separate load rate |
//! | attention | a time per wave of tasks and per query row of a task, and the longest of cube, softmax, and reading keys and values |
//! | vector | a time per started core, and the longer of its busiest core and memory. Each row has a fixed time in addition to its operations |
//!
//! Weights, caches and tables are read from HBM. Activations, up to half the second-level cache,
//! are read from the cache.
//!
//! Invariants: the cost is monotone in every size. Docs: `docs/COSTS.md`.

use crate::launch::Element;
use crate::profile::Profile;
use crate::work::{Gemm, Work, WorkKind};

/// The resource that limits an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Bound {
    /// Rate of the cube units.
    Cube,
    /// Rate of the vector units.
    Vector,
    /// HBM or cache bandwidth.
    Memory,
    /// Minimum time of a kernel.
    Launch,
}

impl Bound {
    /// Returns the table name.
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

/// Units that a kernel occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ComputeUnit {
    /// Cube units, with feeding vector units.
    Cube,
    /// Vector units without the cube units.
    Vector,
    /// Data transfer between cards.
    Communication,
}

/// Cost on the card.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OperatorCost {
    /// Time from start to end on the card.
    pub duration_us: f64,
    /// Time of the cube units alone.
    pub cube_us: f64,
    /// Time of the vector units alone.
    pub vector_us: f64,
    /// Time of the memory alone.
    pub memory_us: f64,
    /// Units that the call occupies.
    pub engine: ComputeUnit,
    /// Resource with the longest time.
    pub bound: Bound,
}

/// Sides of a result tile, which one core computes.
const SIDES: [f64; 5] = [16.0, 32.0, 64.0, 128.0, 256.0];

/// 32-bit sums in an L0C of 128 KiB (Ascend C `MatmulApi` tilings).
const TILE: f64 = 32_768.0;

/// Rows and columns of the smallest block that the cube multiplies.
const BLOCK: f64 = 16.0;

/// Multiply-adds per cycle at 16 bits.
const MULTIPLICATIONS_PER_CYCLE: f64 = 4096.0;

impl OperatorCost {
    /// Returns the cost of `work` on a card.
    #[must_use]
    pub fn of(profile: &Profile, work: &Work) -> Self {
        let c = &profile.coefficients;
        let vector_us = vector_us(profile, work);
        let cube_us: f64 = match work.kind {
            WorkKind::Attention { is_prompt, .. } => {
                let flops = work.cube_flops * multiplication(work.element).0;
                let efficiency = if is_prompt { c.attention_efficiency } else { c.cube_efficiency };
                waves(profile, work).unevenness * flops / (profile.soc.cube_flops_per_us() * efficiency)
            }
            _ => work.products.iter().map(|gemm| product_us(profile, work, gemm)).sum(),
        };
        let memory_us = memory_us(profile, work);
        let (bound, longest) =
            [(Bound::Cube, cube_us), (Bound::Vector, vector_us), (Bound::Memory, memory_us)]
                .into_iter()
                .fold((Bound::Launch, 0.0), |best, part| if part.1 > best.1 { part } else { best });
        let fixed_us = match work.kind {
            WorkKind::Product => {
                let multiply_us: f64 =
                    work.products.iter().map(|gemm| multiply_us(profile, work, gemm)).sum();
                least_product_us(profile, work) + c.serial * multiply_us.min(memory_us)
            }
            WorkKind::Grouped | WorkKind::GroupedSums => c.grouped_us,
            WorkKind::Attention { .. } => {
                let task_us =
                    c.attention_task_us + c.attention_row_us * work.query_rows / work.tasks.max(1.0);
                c.attention_us + task_us * waves(profile, work).count
            }
            WorkKind::Vector => c.kernel_us + c.core_us * cores_of(profile, work),
        };
        let engine = if work.products.is_empty() { ComputeUnit::Vector } else { ComputeUnit::Cube };
        let bound = if longest < fixed_us { Bound::Launch } else { bound };
        Self { duration_us: fixed_us + longest, cube_us, vector_us, memory_us, engine, bound }
    }

    /// Returns the cost of a kernel that starts all vector cores and counts its own work: `cycles`
    /// of the slowest core, and `bytes` of global memory over all cores.
    #[must_use]
    pub fn of_kernel(profile: &Profile, cycles: f64, bytes: f64) -> Self {
        let (soc, c) = (profile.soc, &profile.coefficients);
        let vector_us = cycles / soc.cycles_per_us();
        let memory_us = bytes / (soc.hbm_bytes_per_us() * c.stream_efficiency);
        let (bound, longest) =
            if vector_us > memory_us { (Bound::Vector, vector_us) } else { (Bound::Memory, memory_us) };
        let fixed_us = c.kernel_us + c.core_us * f64::from(soc.vector_cores());
        let bound = if longest < fixed_us { Bound::Launch } else { bound };
        let duration_us = fixed_us + longest;
        Self { duration_us, cube_us: 0.0, vector_us, memory_us, engine: ComputeUnit::Vector, bound }
    }
}

/// Tasks of attention over the cores.
struct Waves {
    count: f64,
    /// Time of the busiest core relative to the mean.
    unevenness: f64,
}

fn waves(profile: &Profile, work: &Work) -> Waves {
    let (cores, tasks) = (f64::from(profile.soc.cube_cores()), work.tasks.max(1.0));
    let count = (tasks / cores).ceil();
    // Cores without a task take a part of the keys of others.
    let unevenness = if tasks < cores { 1.0 } else { count * cores / tasks };
    Waves { count, unevenness }
}

fn cores_of(profile: &Profile, work: &Work) -> f64 {
    work.tasks.ceil().clamp(1.0, f64::from(profile.soc.vector_cores()))
}

fn vector_us(profile: &Profile, work: &Work) -> f64 {
    let (soc, c) = (profile.soc, &profile.coefficients);
    let efficiency = match work.kind {
        WorkKind::Attention { .. } => c.softmax_efficiency,
        WorkKind::Product | WorkKind::Grouped | WorkKind::GroupedSums | WorkKind::Vector => {
            c.vector_efficiency
        }
    };
    let all_us = work.vector_operations / (soc.vector_lanes_per_us() * efficiency);
    match work.kind {
        WorkKind::Attention { .. } => return all_us * waves(profile, work).unevenness,
        WorkKind::Product | WorkKind::Grouped | WorkKind::GroupedSums => return all_us,
        WorkKind::Vector => {}
    }
    let cores = f64::from(soc.vector_cores());
    (work.tasks / cores).ceil() * (c.row_us + all_us * cores / work.tasks.max(1.0))
}

fn memory_us(profile: &Profile, work: &Work) -> f64 {
    let (soc, c) = (profile.soc, &profile.coefficients);
    let efficiency = match work.kind {
        WorkKind::Attention { key_heads: 2.., .. } => c.strided_keys_efficiency,
        WorkKind::Attention { .. } => c.keys_efficiency,
        WorkKind::Product if !is_8bit(work.element) => c.hbm_efficiency,
        _ => c.stream_efficiency,
    };
    let kept = work.passing_bytes.clamp(0.0, soc.l2_bytes() as f64 / 2.0);
    let from_cache = match work.kind {
        // The tile time already includes loads from the cache.
        WorkKind::Product | WorkKind::Grouped | WorkKind::GroupedSums => 0.0,
        WorkKind::Attention { .. } | WorkKind::Vector => kept + work.cached_bytes,
    };
    let far = (work.bytes() - kept - work.cached_bytes).max(0.0) / (soc.hbm_bytes_per_us() * efficiency);
    (far + from_cache / (soc.l2_bytes_per_us() * c.l2_efficiency)).max(work.bytes() / soc.l2_bytes_per_us())
}

/// Cost of a multiplication relative to 16 bits, and bytes per element.
const fn multiplication(element: Element) -> (f64, f64) {
    match element {
        Element::I8 => (0.5, 1.0),
        // The cube has no 4-bit products, so weights are widened first.
        Element::I4 => (0.5, 1.0),
        Element::F32 => (4.0, 4.0),
        Element::F64 | Element::I64 | Element::I32 => (16.0, 8.0),
        Element::F16 | Element::Bf16 | Element::I16 => (1.0, 2.0),
    }
}

const fn is_8bit(element: Element) -> bool {
    matches!(element, Element::I8 | Element::I4)
}

fn cube_efficiency(profile: &Profile, work: &Work) -> f64 {
    let c = &profile.coefficients;
    if is_8bit(work.element) { c.cube_8bit_efficiency } else { c.cube_efficiency }
}

fn least_product_us(profile: &Profile, work: &Work) -> f64 {
    let c = &profile.coefficients;
    if is_8bit(work.element) {
        c.product_8bit_us
    } else if work.products.iter().any(|gemm| gemm.batch > 1.0) {
        c.batched_us
    } else {
        c.product_us
    }
}

fn in_blocks(size: f64) -> f64 {
    (size / BLOCK).ceil() * BLOCK
}

/// Multiplications alone, without loads and on all cores.
fn multiply_us(profile: &Profile, work: &Work, gemm: &Gemm) -> f64 {
    let flops = 2.0 * gemm.batch * in_blocks(gemm.m) * in_blocks(gemm.n) * gemm.k;
    let rate = profile.soc.cube_flops_per_us() * cube_efficiency(profile, work);
    flops * multiplication(work.element).0 / rate
}

fn product_us(profile: &Profile, work: &Work, gemm: &Gemm) -> f64 {
    let (soc, c) = (profile.soc, &profile.coefficients);
    let is_grouped = matches!(work.kind, WorkKind::Grouped | WorkKind::GroupedSums);
    let weight_efficiency = if is_grouped { c.grouped_load_efficiency } else { 1.0 };
    // The last tile of a randomly drawn group is half full on average.
    let high = |rows: f64| match work.kind {
        WorkKind::Grouped => (gemm.m / rows + 0.5).max(1.0),
        _ => (gemm.m / rows).ceil(),
    };
    let cores = f64::from(soc.cube_cores());
    let (slow, bytes) = multiplication(work.element);
    let efficiency = cube_efficiency(profile, work);
    let shapes = SIDES.iter().flat_map(|rows| SIDES.iter().map(move |columns| (*rows, *columns)));
    let cycles = shapes.filter(|(rows, columns)| rows * columns <= TILE).map(|(rows, columns)| {
        let (rows, columns) = (in_blocks(gemm.m).min(rows), in_blocks(gemm.n).min(columns));
        let tiles = gemm.batch * high(rows) * (gemm.n / columns).ceil();
        let multiply = rows * columns * slow / MULTIPLICATIONS_PER_CYCLE / efficiency;
        let load = (rows * bytes + columns * work.weight_bytes / weight_efficiency)
            / soc.l2_bytes_per_cycle_and_core();
        (tiles / cores).ceil() * gemm.k * multiply.max(load)
    });
    cycles.fold(f64::INFINITY, f64::min) / soc.cycles_per_us()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::launch::{Access, Launch, LaunchOperand};
    use crate::soc::Soc;

    fn matmul(element: Element, m: usize, k: usize, n: usize) -> Work {
        let operands = vec![
            LaunchOperand::dense(element, [m, k], Access::Read),
            LaunchOperand::dense(element, [k, n], Access::Read),
            LaunchOperand::dense(Element::Bf16, [m, n], Access::Write),
        ];
        let operator = if element == Element::I8 { "aclnnQuantMatmulV4" } else { "aclnnMatmul" };
        Work::of(&Launch { operator, operands })
    }

    fn attention(batch: usize, query: usize, positions: usize, mask: &[usize]) -> Work {
        let dense = |dims: &[usize], access| LaunchOperand::dense(Element::Bf16, dims, access);
        let mut operands = vec![
            dense(&[batch, query, 8, 128], Access::Read),
            dense(&[batch, positions, 2, 128], Access::Read),
            dense(&[batch, positions, 2, 128], Access::Read),
        ];
        operands.extend((!mask.is_empty()).then(|| LaunchOperand::dense(Element::I8, mask, Access::Read)));
        operands.push(dense(&[batch, query, 8, 128], Access::Write));
        Work::of(&Launch { operator: "aclnnFusedInferAttentionScoreV2", operands })
    }

    #[test]
    fn the_compressed_mask_halves_the_products_of_a_prompt() {
        let (whole, past) = (attention(1, 1024, 1024, &[]), attention(1, 1024, 1024, &[2048, 2048]));
        // The average of 1024 queries attends to 512.5 positions.
        assert!((past.flops() / whole.flops() - 512.5 / 1024.0).abs() < 1e-12);
        assert_eq!(attention(1, 1, 1024, &[2048, 2048]).flops(), attention(1, 1, 1024, &[]).flops());
    }

    #[test]
    fn rows_of_a_table_are_read_not_the_table() {
        let operands = vec![
            LaunchOperand::dense(Element::Bf16, [1000, 64], Access::Read),
            LaunchOperand::dense(Element::I64, [3], Access::Read),
            LaunchOperand::dense(Element::Bf16, [3, 64], Access::Write),
        ];
        let work = Work::of(&Launch { operator: "aclnnEmbedding", operands });
        assert_eq!((work.read_bytes, work.written_bytes), (3.0 * 128.0 + 24.0, 3.0 * 128.0));
        let operands = vec![
            LaunchOperand::dense(Element::Bf16, [1000, 64], Access::Update),
            LaunchOperand::dense(Element::I64, [3], Access::Read),
            LaunchOperand::dense(Element::Bf16, [3, 64], Access::Read),
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

    /// Randomly drawn rows fill the last tile of a group by half. Evenly distributed rows fill it
    /// as far as they reach.
    #[test]
    fn a_group_of_drawn_rows_has_half_a_tile_more() {
        let profile = Profile::of(Soc::Ascend910B3);
        let us = |kind, m| {
            let gemm = Gemm { batch: 640.0, m, n: 256.0, k: 4096.0 };
            let mut work = matmul(Element::Bf16, 16, 16, 16);
            (work.kind, work.products) = (kind, vec![gemm]);
            OperatorCost::of(&profile, &work).cube_us
        };
        let (even, drawn) = (us(WorkKind::GroupedSums, 4096.0), us(WorkKind::Grouped, 4096.0));
        assert!((drawn / even - 16.5 / 16.0).abs() < 1e-3, "{drawn} {even}");
        assert_eq!(us(WorkKind::Grouped, 8.0), us(WorkKind::GroupedSums, 8.0));
    }

    fn vector(operator: &'static str, rows: usize, width: usize) -> Work {
        let operands = vec![
            LaunchOperand::dense(Element::Bf16, [rows, width], Access::Read),
            LaunchOperand::dense(Element::Bf16, [rows, width], Access::Write),
        ];
        Work::of(&Launch { operator, operands })
    }

    #[test]
    fn a_kernel_pays_for_the_cores_it_starts_and_for_each_row() {
        let profile = Profile::of(Soc::Ascend910B3);
        let us = |rows, width| OperatorCost::of(&profile, &vector("aclnnRmsNorm", rows, width)).duration_us;
        let c = &profile.coefficients;
        assert!(us(1, 64) < c.kernel_us + c.core_us + 0.1, "{}", us(1, 64));
        assert!(us(40, 64) > us(1, 64) + 38.0 * c.core_us);
        assert!(us(32_768, 128) > 1.5 * us(4096, 1024));
        let flat = OperatorCost::of(&profile, &vector("aclnnNeg", 32_768, 128)).duration_us;
        assert!(
            (flat / OperatorCost::of(&profile, &vector("aclnnNeg", 4096, 1024)).duration_us - 1.0).abs()
                < 1e-9
        );
    }

    proptest! {
        #[test]
        fn more_rows_or_wider_ones_are_never_faster(
            soc in prop::sample::select(Soc::ALL.to_vec()),
            operator in prop::sample::select(vec!["aclnnRmsNorm", "aclnnNeg", "aclnnSwiGlu", "aclnnIndexSelect"]),
            sizes in (1_usize..5000, 1_usize..5000), more in (0_usize..300, 0_usize..300),
        ) {
            let profile = Profile::of(soc);
            let us = |rows, width| OperatorCost::of(&profile, &vector(operator, rows, width)).duration_us;
            let (small, large) = (us(sizes.0, sizes.1), us(sizes.0 + more.0, sizes.1 + more.1));
            prop_assert!(large >= small * (1.0 - 1e-12), "{small} {large}");
        }

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
