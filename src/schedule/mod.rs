//! Turns a lowered program into one static [`Plan`] per rank.
//!
//! The passes run in this order:
//!
//! - `emit` writes the steps of each rank.
//! - `with_exchange` fuses a product with the exchange next to it.
//! - `overlap` reorders training steps so that operators run during exchanges.
//! - `memory` assigns fixed offsets in one arena.
//! - `order` inserts the events between streams.
//! - [`verify`] checks the result.
//!
//! Invariants: all ranks have the same collectives in the same order. Buffers that are live at the
//! same time do not overlap. Events order the accesses of different streams to the same bytes.
//! Plans hold no pointers.

mod emit;
mod join;
pub mod launch;
mod memory;
mod order;
mod overlap;
pub mod parts;
pub mod pipeline;
pub mod plan;
pub mod text;
mod verify;
mod with_exchange;

pub use emit::{OpPhase, OpPlace, Staged, StagedStep, micro_batch, numbered, unnumbered};
pub use plan::Plan;
pub use verify::verify;

use std::ops::Range;

use ascend_tp_machine::Soc;
use rayon::prelude::*;
use tracing::debug_span;

use crate::base::{Diagnostics, Kernels};
use crate::placement::Placed;
use join::Joins;
use memory::Reserved;
use overlap::Emitted;

/// Fusion of products and exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exchanges {
    /// Separate calls, on all devices.
    Apart,
    /// One call where the Atlas A2 operators support it and the cost model predicts a gain.
    WithProducts,
}

impl Exchanges {
    /// Names of the aclnn operators that multiply and exchange.
    pub const OPERATORS: [&str; 3] =
        ["aclnnMatmulAllReduce", "aclnnAllGatherMatmul", "aclnnMatmulReduceScatter"];

    /// Returns a chip's mode.
    #[must_use]
    pub fn on(chip: Soc) -> Self {
        if chip.series() == "Atlas A2" { Self::WithProducts } else { Self::Apart }
    }
}

/// Features of the devices that a program is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Kernels that replace aclnn calls, except on pipeline stages.
    pub kernels: Kernels,
    /// Fusion of products with exchanges.
    pub exchanges: Exchanges,
}

impl Target {
    /// Runs on all devices.
    pub const ANY: Self = Self::with_kernels(Kernels::NONE);

    /// Uses kernels, without fused exchanges.
    #[must_use]
    #[doc(hidden)]
    pub const fn with_kernels(kernels: Kernels) -> Self {
        Self { kernels, exchanges: Exchanges::Apart }
    }

    /// Returns the same target without fused exchanges.
    #[must_use]
    #[doc(hidden)]
    pub const fn apart(self) -> Self {
        Self::with_kernels(self.kernels)
    }

    /// Returns a chip's target with these kernels.
    #[must_use]
    #[doc(hidden)]
    pub fn of(chip: Soc, kernels: Kernels) -> Self {
        Self { kernels, exchanges: Exchanges::on(chip) }
    }
}

/// Ops that share a launch.
///
/// Results are bitwise equal to separate launches, except that a bias or a gate is rounded once,
/// together with its product.
#[derive(Clone, Copy, Debug, Default)]
pub enum Joining<'a> {
    /// Every op has its own launches.
    #[default]
    None,
    /// Joins that do not depend on where params and states are stored: a sum with its norm, and the
    /// rotary embeddings of queries and keys.
    InPlace,
    /// `InPlace`, and the products of one activation and the cache writes of a layer. Their weights
    /// and caches are contiguous, so all programs that share weights must use this mode, or none.
    SideBySide,
    /// [`Self::SideBySide`], with the weight and cache layout of another program of the
    /// model.
    Like(&'a Placed),
}

/// Order of a rank's steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepOrder {
    /// Program order, or a pipeline's pass order.
    #[default]
    Program,
    /// Operators run during exchanges, for at most 1/32 more device memory.
    Overlapped,
}

/// Ranks whose plans a schedule returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranks {
    /// Every rank, verified.
    #[default]
    All,
    /// The first rank of each stage, which predicts the time of ranks with equal shards. These
    /// plans cannot run, and are not verified.
    First,
    /// As [`Self::First`], of a program with fewer layers than the model. The order of its steps
    /// spends as many spare bytes as the order of the whole model.
    Sample {
        /// Layers of the program.
        layers: usize,
        /// Layers of the model.
        of: usize,
    },
}

impl Ranks {
    fn among(self, cards: usize) -> Range<usize> {
        match self {
            Self::All => 0..cards,
            Self::First | Self::Sample { .. } => 0..cards.min(1),
        }
    }

    /// Returns the bytes of a model with all layers.
    const fn bytes_of_all(self, of_layers: u64, others: u64) -> u64 {
        match self {
            Self::Sample { layers, of } => others + of_layers * of as u64 / layers as u64,
            Self::All | Self::First => others + of_layers,
        }
    }
}

/// Scheduler options. The default keeps each op separate, in program order, for any device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheduling<'a> {
    /// Ops that share a launch.
    pub joining: Joining<'a>,
    /// Order of the steps.
    pub order: StepOrder,
    /// Device features.
    ///
    /// With [`StepOrder::Overlapped`], the scheduler keeps the variant, with or without fused
    /// exchanges, that is predicted to end first. With [`StepOrder::Program`], a plan with fused
    /// exchanges reserves at least the arena of the plan without, so a deployment can mix both.
    pub target: Target,
    /// Ranks whose plans are returned.
    pub ranks: Ranks,
}

impl Default for Target {
    fn default() -> Self {
        Self::ANY
    }
}

/// Returns the plans of the ranks in `how`.
///
/// # Errors
/// The problems that `verify` finds.
pub fn schedule(lowered: &Placed, how: Scheduling<'_>) -> Result<Vec<Plan>, Diagnostics> {
    let Target { kernels, exchanges } = how.target;
    let joins = match how.joining {
        Joining::None => Joins::default(),
        Joining::InPlace => Joins::of_any_memory(lowered, kernels),
        Joining::SideBySide => Joins::of(lowered, kernels),
        Joining::Like(other) => Joins::of(lowered, kernels).on_memory_of(lowered, other),
    };
    planned(vec![emitted(lowered, &joins, how.ranks)], how.order, exchanges, how.ranks)
}

fn emitted(lowered: &Placed, joins: &Joins, ranks: Ranks) -> Vec<Emitted> {
    let _span = debug_span!("emit", program = lowered.program.name).entered();
    let emitted = |rank| emit::emit(lowered, joins, rank, ranks);
    ranks.among(lowered.mesh.cards()).into_par_iter().map(emitted).collect()
}

/// Returns one plan of the whole step for each of the `ranks` of a pipeline, by stage. Pipeline
/// steps launch no kernels.
///
/// # Errors
/// The programs cannot be split into stages, or `verify` finds problems.
pub fn schedule_stages(
    step: &StagedStep<'_>,
    order: StepOrder,
    target: Target,
    ranks: Ranks,
) -> Result<Vec<Plan>, Diagnostics> {
    let times = if step.micro_batches.len() > 1 { parts::times(step) } else { parts::Times::default() };
    let takes = |part, pass| times.pass_us(part, pass);
    let emitted = emit::emit_stages(step, ranks, &takes, times.transfer_us)?;
    planned(emitted, order, target.exchanges, ranks)
}

fn planned(
    mut apart: Vec<Vec<Emitted>>,
    order: StepOrder,
    exchanges: Exchanges,
    ranks: Ranks,
) -> Result<Vec<Plan>, Diagnostics> {
    let joined = match exchanges {
        Exchanges::Apart => None,
        Exchanges::WithProducts => overlap::with_products(&mut apart),
    };
    let span = debug_span!("order").entered();
    let (plans, least) = match (order, joined) {
        (StepOrder::Program, None) => (overlap::in_order(apart), Vec::new()),
        (StepOrder::Program, Some(joined)) => {
            let bytes = |rank: Emitted| memory::arena_bytes(rank.plan, &rank.reserved);
            (overlap::in_order(joined), apart.into_par_iter().flatten().map(bytes).collect())
        }
        (StepOrder::Overlapped, joined) => (overlap::overlap(apart, joined, ranks), Vec::new()),
    };
    span.exit();
    let mut plans = finished(plans);
    if ranks == Ranks::All {
        debug_span!("verify_plans").in_scope(|| verify(&plans))?;
    }
    plans.iter_mut().zip(least).for_each(|(plan, bytes)| plan.hold_arena(bytes));
    Ok(plans)
}

fn finished(plans: Vec<(Plan, Vec<Reserved>)>) -> Vec<Plan> {
    let finish = |(mut plan, reserved): (Plan, Vec<Reserved>)| {
        memory::assign(&mut plan, &reserved);
        order::insert_events(&mut plan);
        plan
    };
    debug_span!("assign_memory").in_scope(|| plans.into_par_iter().map(finish).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, Precision};
    use crate::call::Call;
    use crate::collective::parallelize;
    use crate::config::ModelConfig;
    use crate::placement::{Mesh, Pins, Residual};
    use crate::program::models::{Head, RunShape, decoder};

    fn plans(preset: &str, cards: usize, precision: Precision, residual: Residual) -> Vec<Plan> {
        plans_of(preset, cards, RunShape::new(2, 9, 32), precision, residual)
    }

    fn plans_of(
        preset: &str,
        cards: usize,
        run: RunShape,
        precision: Precision,
        residual: Residual,
    ) -> Vec<Plan> {
        let mut config = ModelConfig::preset(preset).unwrap();
        config.layers = 2;
        let program = decoder(&config, run, precision, Head::LastToken).unwrap();
        let mesh = Mesh::tensor_parallel(cards, config.kv_heads, config.heads_per_kv_head()).unwrap();
        let found = parallelize(&program, &mesh, &Pins::auto(residual)).unwrap();
        schedule(&found.lowered, Scheduling::default()).unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn every_preset_has_sound_plans_also_where_sizes_do_not_divide() {
        for preset in ModelConfig::dense_presets() {
            for cards in [1, 3, 5, 8, 16] {
                for (precision, residual) in [
                    (DType::BF16.into(), Residual::Replicate),
                    (DType::F32.into(), Residual::Seq),
                    (Precision::w8a8(DType::BF16), Residual::Seq),
                ] {
                    let plans = plans(preset, cards, precision, residual);
                    assert_eq!(plans.len(), cards);
                    let last = &plans[cards - 1];
                    assert_eq!(text::parse(&last.to_string()).unwrap(), *last, "{preset} on {cards} cards");
                }
            }
        }
    }

    #[test]
    fn a_step_has_as_many_calls_at_any_batch() {
        for sequence in [1, 9] {
            let names = |batch| {
                let run = RunShape::new(batch, sequence, 32);
                let plans = plans_of("qwen2.5-0.5b", 2, run, DType::BF16.into(), Residual::Replicate);
                let name = |step: &plan::Step| match &step.action {
                    plan::Action::Launch(call) => Some(call.name()),
                    _ => None,
                };
                plans[0].steps.iter().filter_map(name).collect::<Vec<_>>()
            };
            let of_one = names(1);
            assert_eq!(of_one, names(64), "{sequence} tokens a sequence");
            let writes = of_one.iter().filter(|name| **name == "aclnnInplaceIndexCopy").count();
            assert_eq!(writes, 2 * 2);
        }
    }

    #[test]
    fn what_several_products_read_is_quantised_once() {
        for plan in plans("qwen2-72b", 4, Precision::w8a8(DType::BF16), Residual::Replicate) {
            let calls = |wanted: fn(&Call) -> bool| {
                let launched =
                    |step: &&plan::Step| matches!(&step.action, plan::Action::Launch(call) if wanted(call));
                plan.steps.iter().filter(launched).count()
            };
            assert_eq!(calls(|call| matches!(call, Call::QuantMatmul { .. })), 2 * 7);
            assert_eq!(calls(|call| matches!(call, Call::DynamicQuant { .. })), 2 * 4);
        }
    }
}
