//! When and where: a lowered program becomes one static [`Plan`] a rank.
//!
//! Input → output: a lowered [`Placed`] program → for each rank `emit` (local shards, aclnn calls, collectives) →
//! `with_exchange` (products that are one call with an exchange) →
//! `overlap` (of training: operators run while data is exchanged) → `memory` (one arena, fixed offsets) → `order` (the events between
//! streams) → [`verify`]. Invariants:
//! all ranks have the same collectives in the same order, by construction and checked; no two buffers that are live
//! together overlap; accesses of several streams to the same bytes are ordered by events. Plans hold no pointers: what
//! a run gives anew are the contents of the inputs.

mod emit;
mod join;
pub mod launch;
mod memory;
mod order;
mod overlap;
pub mod parts;
pub mod pipeline;
pub mod plan;
pub mod served;
pub mod text;
mod verify;
mod with_exchange;

pub use emit::{OpPhase, OpPlace, Staged, StagedStep, micro_batch, numbered, unnumbered};
pub use plan::Plan;
pub use verify::verify;

use ascend_tp_machine::Soc;
use rayon::prelude::*;

use crate::base::{Diagnostics, Kernels};
use crate::placement::Placed;
use join::Joins;
use memory::Reserved;
use overlap::Emitted;

/// Whether a product and the exchange beside it may be one call of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exchanges {
    /// Each is a call of its own, as all cards have them.
    Apart,
    /// They are one where the operators of an Atlas A2 take them and the cost model has it that this is the faster.
    WithProducts,
}

impl Exchanges {
    /// The operators that multiply and exchange.
    pub const OPERATORS: [&str; 3] = ["aclnnMatmulAllReduce", "aclnnAllGatherMatmul", "aclnnMatmulReduceScatter"];

    /// As cards of a chip have them.
    #[must_use]
    pub fn on(chip: Soc) -> Self {
        if chip.series() == "Atlas A2" { Self::WithProducts } else { Self::Apart }
    }
}

/// What cards have besides what all have: programs call it, so they are compiled for cards that have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Kernels that are launched in the place of calls that they do the work of. Stages of a pipeline launch none.
    pub kernels: Kernels,
    /// Whether products may be one call with the exchanges beside them.
    pub exchanges: Exchanges,
}

impl Target {
    /// Any cards: programs of it run on all.
    pub const ANY: Self = Self::with_kernels(Kernels::NONE);

    /// All cards, with these kernels.
    #[must_use]
    pub const fn with_kernels(kernels: Kernels) -> Self {
        Self { kernels, exchanges: Exchanges::Apart }
    }

    /// The same with products and exchanges in calls of their own.
    #[must_use]
    pub const fn apart(self) -> Self {
        Self::with_kernels(self.kernels)
    }

    /// Cards of a chip, with these kernels.
    #[must_use]
    pub fn of(chip: Soc, kernels: Kernels) -> Self {
        Self { kernels, exchanges: Exchanges::on(chip) }
    }
}

/// Which ops share a launch, where one operator of the card computes several. Numbers are those of ops by themselves, but that a bias and
/// a gate are rounded with what they are combined with, once.
#[derive(Clone, Copy, Debug, Default)]
pub enum Joining<'a> {
    /// Each op is a launch by itself, or several.
    #[default]
    None,
    /// Those that read params and states one by one, wherever they lie: a sum and its norm, rotary embeddings of queries and keys.
    InPlace,
    /// Also the products of one activation and the cache writes of a layer. Their weights and caches lie side by side for it, so all
    /// programs that share weights are scheduled so, or none.
    SideBySide,
    /// As side by side, on weights and caches that lie as this other program of the same model has them.
    Like(&'a Placed),
}

/// The order of a rank's steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepOrder {
    /// That of the program, and of a pipeline's passes.
    #[default]
    Program,
    /// Operators run while data is exchanged, for at most 1/32 more of a card's bytes.
    Overlapped,
}

/// How a program is scheduled; by default so that it shows the program best: each op by itself, in the program's order, on any cards.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheduling<'a> {
    /// Which ops share a launch.
    pub joining: Joining<'a>,
    /// The order of the steps.
    pub order: StepOrder,
    /// What the cards have. Of overlapped steps with and without what [`Target::exchanges`] joins those count that end first by the cost
    /// model. In a program's order what is joined takes no less memory than it does apart, so that the programs of a deployment can be
    /// joined or not.
    pub target: Target,
}

impl Default for Target {
    fn default() -> Self {
        Self::ANY
    }
}

/// The plans of all ranks.
///
/// # Errors
/// What `verify` finds.
pub fn schedule(lowered: &Placed, how: Scheduling<'_>) -> Result<Vec<Plan>, Diagnostics> {
    let Target { kernels, exchanges } = how.target;
    let joins = match how.joining {
        Joining::None => Joins::default(),
        Joining::InPlace => Joins::of_any_memory(lowered, kernels),
        Joining::SideBySide => Joins::of(lowered, kernels),
        Joining::Like(other) => Joins::of(lowered, kernels).on_memory_of(lowered, other),
    };
    planned(vec![emitted(lowered, &joins)], how.order, exchanges)
}

/// What each rank does, of one stage.
fn emitted(lowered: &Placed, joins: &Joins) -> Vec<Emitted> {
    (0..lowered.mesh.cards()).into_par_iter().map(|rank| emit::emit(lowered, joins, rank)).collect()
}

/// The plans of all ranks of a pipeline, one of the whole step each: stage after stage, and in a stage as on its mesh. Its steps launch no
/// kernels.
///
/// # Errors
/// Programs that stages cannot share out, or what `verify` finds.
pub fn schedule_stages(step: &StagedStep<'_>, order: StepOrder, target: Target) -> Result<Vec<Plan>, Diagnostics> {
    // One micro-batch has one order.
    let times = if step.micro_batches.len() > 1 { parts::times(step) } else { parts::Times::default() };
    let ranks = emit::emit_stages(step, (&|part, pass| times.pass_us(part, pass), times.transfer_us))?;
    planned(ranks, order, target.exchanges)
}

/// The plans of all ranks of all stages. A program whose steps keep their order may share memory with others, joined or not, and has no
/// less of an arena joined than apart.
fn planned(mut apart: Vec<Vec<Emitted>>, order: StepOrder, exchanges: Exchanges) -> Result<Vec<Plan>, Diagnostics> {
    let joined = match exchanges {
        Exchanges::Apart => None,
        Exchanges::WithProducts => overlap::with_products(&mut apart),
    };
    let (plans, least) = match (order, joined) {
        (StepOrder::Program, None) => (overlap::in_order(apart), Vec::new()),
        (StepOrder::Program, Some(joined)) => {
            let bytes = |rank: Emitted| memory::arena_bytes(rank.plan, &rank.reserved);
            (overlap::in_order(joined), apart.into_par_iter().flatten().map(bytes).collect())
        }
        (StepOrder::Overlapped, joined) => (overlap::overlap(apart, joined), Vec::new()),
    };
    let mut plans = finished(plans)?;
    plans.iter_mut().zip(least).for_each(|(plan, bytes)| plan.hold_arena(bytes));
    Ok(plans)
}

/// Plans with offsets and events, verified.
fn finished(plans: Vec<(Plan, Vec<Reserved>)>) -> Result<Vec<Plan>, Diagnostics> {
    let finish = |(mut plan, reserved): (Plan, Vec<Reserved>)| {
        memory::assign(&mut plan, &reserved);
        order::insert_events(&mut plan);
        plan
    };
    let plans: Vec<Plan> = plans.into_par_iter().map(finish).collect();
    verify(&plans)?;
    Ok(plans)
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
        plans_of(preset, cards, RunShape { batch: 2, sequence: 9, cache_length: 32 }, precision, residual)
    }

    fn plans_of(preset: &str, cards: usize, run: RunShape, precision: Precision, residual: Residual) -> Vec<Plan> {
        let mut config = ModelConfig::preset(preset).unwrap();
        config.layers = 2;
        let program = decoder(&config, run, precision, Head::LastToken).unwrap();
        let mesh = Mesh::tensor_parallel(cards, config.kv_heads, config.heads_per_kv_head()).unwrap();
        let found = parallelize(&program, &mesh, &Pins::auto(residual)).unwrap();
        schedule(&found.lowered, Scheduling::default()).unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn every_preset_has_sound_plans_also_where_sizes_do_not_divide() {
        for preset in ModelConfig::PRESETS {
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
                let run = RunShape { batch, sequence, cache_length: 32 };
                let plans = plans_of("qwen2.5-0.5b", 2, run, DType::BF16.into(), Residual::Replicate);
                let name = |step: &plan::Step| match &step.action {
                    plan::Action::Launch(call) => Some(call.name()),
                    _ => None,
                };
                plans[0].steps.iter().filter_map(name).collect::<Vec<_>>()
            };
            let of_one = names(1);
            assert_eq!(of_one, names(64), "{sequence} tokens a sequence");
            // Keys and values of two layers.
            let writes = of_one.iter().filter(|name| **name == "aclnnInplaceScatterUpdate").count();
            assert_eq!(writes, 2 * 2);
        }
    }

    #[test]
    fn what_several_products_read_is_quantised_once() {
        for plan in plans("qwen2-72b", 4, Precision::w8a8(DType::BF16), Residual::Replicate) {
            let calls = |wanted: fn(&Call) -> bool| {
                let launched = |step: &&plan::Step| matches!(&step.action, plan::Action::Launch(call) if wanted(call));
                plan.steps.iter().filter(launched).count()
            };
            // Two layers: q, k and v of one norm, gate and up of the other; attention's and the hidden layer's outputs.
            assert_eq!(calls(|call| matches!(call, Call::QuantMatmul { .. })), 2 * 7);
            assert_eq!(calls(|call| matches!(call, Call::DynamicQuant { .. })), 2 * 4);
        }
    }
}
