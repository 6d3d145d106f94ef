//! Compiles programs to plans for all ranks, and builds the programs of a deployment.
//!
//! Input: a [`Program`] over global tensors, a mesh and pins. Output: a [`CompiledProgram`]. A
//! [`ModelConfig`] and a [`Deployment`] give two plans per rank ([`Programs`]), which `generate`
//! runs and the planner predicts.
//!
//! Invariant: the decode program uses the weight and cache layout of the prefill program, so both
//! run on the same memory.
//!
//! Not here: training. Its programs share one layout and are all placed before scheduling
//! (`train::compile`).

mod adapters;
mod caches;
mod order;
mod serving;

use std::ops::Range;

use crate::base::{DType, Diagnostic, Diagnostics, Kernels, Packing, Precision, Weights};
use crate::collective::{Parallelized, parallelize, parallelize_apart};
use crate::config::{ModelConfig, WeightFormat};
use crate::placement::{ExpertShards, Grid, Mesh, Pins, Placed, Residual};
use crate::program::Program;
use crate::program::models::{CacheBlocks, Head, LayeredProgram, RunShape, decoder_of_layers};
use crate::program::tree::SumOrder;
use crate::schedule::parts::{Cut, PartMarks, cut};
use crate::schedule::pipeline::Pipeline;
use crate::schedule::{
    Exchanges, Joining, Plan, Ranks, Scheduling, Staged, StagedStep, StepOrder, Target, schedule,
    schedule_stages,
};

pub(crate) use adapters::with_adapters;
pub use caches::CacheSize;
pub(crate) use order::{check_axes, check_order};
pub use serving::{ServingPrograms, ServingShape};

/// The result of compiling a program.
#[derive(Clone, Debug)]
pub struct CompiledProgram {
    /// The layouts, and the program with collectives.
    pub split: Parallelized,
    /// The plan of each rank.
    pub plans: Vec<Plan>,
}

/// Compiles a program: chooses layouts, inserts and lowers collectives, and schedules all ranks.
///
/// ```
/// use ascend_tp::compiler::Builder;
/// use ascend_tp::{DType, Mesh, Pins, Target, compile};
///
/// let mut build = Builder::new("linear");
/// let x = build.input("x", [2, 4], DType::F32);
/// let w = build.param("w", [6, 4], DType::F32);
/// let y = build.matmul("bi,oi->bo", x, w);
/// build.output("y", y);
/// let mesh = Mesh::new(&[("tp", 2)])?;
/// let pins = Pins::default().split_axis("w", 0);
/// let compiled = compile(&build.finish()?, &mesh, &pins, Target::ANY)?;
/// assert_eq!(compiled.plans.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Returns all problems of the first pass that fails.
pub fn compile(
    program: &Program,
    mesh: &Mesh,
    pins: &Pins,
    target: Target,
) -> Result<CompiledProgram, Diagnostics> {
    compile_ranks(program, mesh, pins, target, Ranks::All)
}

/// As [`compile`](fn@compile), with the plans of these ranks.
///
/// # Errors
/// As [`compile`](fn@compile).
#[doc(hidden)]
pub fn compile_ranks(
    program: &Program,
    mesh: &Mesh,
    pins: &Pins,
    target: Target,
    ranks: Ranks,
) -> Result<CompiledProgram, Diagnostics> {
    let split = parallelize(program, mesh, pins)?;
    let how = Scheduling { joining: Joining::SideBySide, target, ranks, ..Scheduling::default() };
    let plans = schedule(&split.lowered, how)?;
    Ok(CompiledProgram { split, plans })
}

const DEFAULT_CONTEXT: usize = 4096;

/// Default of [`Deployment::candidates`]: more than usual limits of `top_k`.
const CANDIDATES: usize = 64;

/// Returns the [`Pins::decoder`] of a model on a mesh of [`Mesh::of_grid`].
#[must_use]
pub fn pins(
    config: &ModelConfig,
    program: &Program,
    mesh: &Mesh,
    residual: Residual,
    experts: ExpertShards,
) -> Pins {
    Pins::decoder(program, mesh, residual, experts, [config.kv_heads, config.heads_per_kv_head()])
}

/// How a model runs on one group of cards.
///
/// ```
/// use ascend_tp::ModelConfig;
/// use ascend_tp::compiler::{Deployment, Region};
///
/// let config = ModelConfig::preset("qwen2.5-0.5b").expect("a preset");
/// let deployment = Deployment { context: 64, longest_prompt: 32, ..Deployment::of(&config, 2) };
/// let programs = deployment.compile(&config)?;
/// assert_eq!(programs.decode.len(), 2);
/// println!("{} of weights on each card", programs.decode[0].region_bytes(Region::Weights));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deployment {
    /// Total number of cards.
    pub cards: usize,
    /// Number of pipeline stages, for models that are too large for cards with fast links. Each
    /// stage has some of the layers and an equal number of cards.
    pub stages: usize,
    /// Mesh sizes within a stage.
    pub grid: Grid,
    /// Precision of activations, weights and KV caches. Convertible from an element type:
    /// `DType::BF16.into()`.
    pub precision: Precision,
    /// Layout of the residual stream during prefill. Decode always replicates it, because a step
    /// has one token per sequence.
    pub residual: Residual,
    /// How cards share the experts of mixtures.
    pub experts: ExpertShards,
    /// Maximum number of sequences that run at once.
    pub batch: usize,
    /// Length of the longest prompt, in tokens. A session reads longer prompts in chunks.
    pub longest_prompt: usize,
    /// Maximum number of tokens of a sequence, prompt and continuation together.
    pub context: usize,
    /// Blocks of the KV cache that each group of cards shares, the null block included. Default:
    /// enough for all sequences at full length. Caches of layers with a window may have fewer
    /// blocks ([`Self::caches`]).
    pub cache_blocks: Option<usize>,
    /// Tokens in a cache block: a multiple of 16, or of 32 for caches of 8-bit integers.
    pub block_tokens: usize,
    /// Maximum number of draft tokens per sequence and step that a session verifies.
    pub drafts: usize,
    /// Whether a session drafts by the layer for multi-token prediction. It then verifies one draft
    /// per sequence and step.
    pub predicts: bool,
    /// Whether some chunk programs of a serving session return the logits of all positions.
    pub scores_prompts: bool,
    /// The outputs of the programs.
    pub head: Head,
    /// Number of most likely tokens that each card of a serving session selects for a row. The host
    /// receives all logits of a row only if the selected ones do not suffice. 0: it always does.
    /// This applies to [`Head::LastLogits`] without stages.
    pub candidates: usize,
    /// Order of sums over ranks. With tree order, the logits of a sequence have the same bits for
    /// any number of cards and any batch. Programs that cannot do so are rejected.
    pub order: SumOrder,
    /// Features of the target cards. Pipelines launch no kernels. A session uses the engine's
    /// kernels. It fuses products with exchanges only if the cards can
    /// ([`exec::target_of`](crate::exec::target_of)).
    pub target: Target,
}

/// The plans of the two serving programs, by rank.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Processes all prompts at once.
    pub prefill: Vec<Plan>,
    /// Processes one token per sequence.
    pub decode: Vec<Plan>,
}

impl Programs {
    /// Returns the plans in the order of an engine: [`PREFILL`](crate::generate::PREFILL), then
    /// [`DECODE`](crate::generate::DECODE).
    #[must_use]
    pub fn into_vec(self) -> Vec<Vec<Plan>> {
        vec![self.prefill, self.decode]
    }
}

struct LoweredProgram {
    placed: Placed,
    /// Empty if there is only one stage.
    marks: PartMarks,
}

impl Deployment {
    /// Creates a deployment of one sequence with the model's own type. The context is 4096 tokens
    /// or the limit of the model. Outputs are the logits of the last position.
    #[must_use]
    pub fn of(config: &ModelConfig, cards: usize) -> Self {
        let context = config.max_positions.min(DEFAULT_CONTEXT);
        Self {
            cards,
            stages: 1,
            grid: Grid::LINE,
            precision: config.dtype.into(),
            residual: Residual::Replicate,
            experts: ExpertShards::Whole,
            batch: 1,
            longest_prompt: context.saturating_sub(1),
            context,
            cache_blocks: None,
            block_tokens: CacheBlocks::ROWS,
            drafts: 0,
            predicts: false,
            scores_prompts: false,
            head: Head::LastLogits,
            candidates: CANDIDATES,
            order: SumOrder::AsTheyCome,
            target: Target { kernels: Kernels::NONE, exchanges: Exchanges::WithProducts },
        }
    }

    /// Returns the mesh of a stage. Key heads get a sub-axis if a card then has fewer query heads.
    ///
    /// # Errors
    /// Fails if a stage has no cards.
    #[doc(hidden)]
    pub fn mesh(&self, config: &ModelConfig) -> Result<Mesh, Diagnostics> {
        let columns = self.cards / (self.stages * self.grid.cards()).max(1);
        Mesh::of_grid(columns, self.grid, config.kv_heads, config.heads_per_kv_head())
            .map_err(|error| Diagnostic::new("cards", error.to_string()).into())
    }

    /// Compiles both programs.
    ///
    /// # Errors
    /// Returns everything that does not fit the model, or all problems of the first pass that
    /// fails.
    pub fn compile(&self, config: &ModelConfig) -> Result<Programs, Diagnostics> {
        self.check(config)?;
        let mesh = self.mesh(config)?;
        let parts = self.parts(config, &mesh)?;
        // Decode needs the layouts of prefill, but not its plans. So decode is built while prefill
        // is placed, and placed while prefill is scheduled.
        let (prefill, decode) = rayon::join(
            || {
                let prompts = self.decoder(config, self.prompts(config, self.longest_prompt), &parts)?;
                self.place(config, &mesh, &prompts, self.residual, None, &parts)
            },
            || self.decoder(config, self.step(config), &parts),
        );
        let (prefill, decode) = (prefill?, decode?);
        let longest = Some(&prefill.placed);
        let (prompts, decode) = rayon::join(
            || self.schedule(&prefill, None),
            || {
                self.schedule(
                    &self.place(config, &mesh, &decode, Residual::Replicate, longest, &parts)?,
                    longest,
                )
            },
        );
        Ok(Programs { prefill: prompts?, decode: decode? })
    }

    fn place(
        &self,
        config: &ModelConfig,
        mesh: &Mesh,
        layered: &LayeredProgram,
        residual: Residual,
        memory_of: Option<&Placed>,
        parts: &Cut,
    ) -> Result<LoweredProgram, Diagnostics> {
        let pins = pins(config, &layered.program, mesh, residual, self.experts);
        let pins = match memory_of {
            Some(longest) => pins.like(longest),
            None if config.adapters.rank() > 0 => with_adapters(pins, &layered.program, mesh)?.0,
            None => pins,
        };
        self.lower_with(mesh, &layered.program, &layered.layers, &pins, parts)
    }

    fn lower_with(
        &self,
        mesh: &Mesh,
        program: &Program,
        layers: &[Range<usize>],
        pins: &Pins,
        parts: &Cut,
    ) -> Result<LoweredProgram, Diagnostics> {
        let (placed, marks) = match self.stages {
            1 => (parallelize(program, mesh, pins)?.lowered, PartMarks::default()),
            _ => {
                let marks = PartMarks::of_forward(program, layers, program.ops.len(), parts);
                // Ops of different stages share no collective.
                (parallelize_apart(program, mesh, pins, |program| marks.apart(program))?.lowered, marks)
            }
        };
        check_order(self.order, &placed)?;
        Ok(LoweredProgram { placed, marks })
    }

    /// Compiles any program of the model with its own memory, given the ops of each layer. With
    /// several stages, a tied head is a copy of the embedding.
    pub(crate) fn compile_program(
        &self,
        config: &ModelConfig,
        program: &Program,
        layers: &[Range<usize>],
    ) -> Result<Vec<Plan>, Diagnostics> {
        let mesh = self.mesh(config)?;
        let parts = self.parts(config, &mesh)?;
        let pins = pins(config, program, &mesh, self.residual, self.experts);
        self.schedule(&self.lower_with(&mesh, program, layers, &pins, &parts)?, None)
    }

    fn schedule(
        &self,
        lowered: &LoweredProgram,
        memory_of: Option<&Placed>,
    ) -> Result<Vec<Plan>, Diagnostics> {
        let LoweredProgram { placed, marks } = lowered;
        if self.stages == 1 {
            let joining = memory_of.map_or(Joining::SideBySide, Joining::Like);
            return schedule(placed, Scheduling { joining, target: self.target, ..Scheduling::default() });
        }
        let step = StagedStep {
            name: &format!("{} in {} stages", placed.program.name, self.stages),
            pipeline: Pipeline::GPipe,
            stages: self.stages,
            programs: &[Staged {
                placed,
                places: &marks.places(&placed.program),
                like: Some(memory_of.unwrap_or(placed)),
            }],
            homes: &marks.homes(&placed.program),
            micro_batches: &[0],
        };
        schedule_stages(&step, StepOrder::Program, self.target, Ranks::All)
    }

    /// Assigns the layers to stages. All programs use the assignment that balances decode steps.
    fn parts(&self, config: &ModelConfig, mesh: &Mesh) -> Result<Cut, Diagnostics> {
        if self.stages == 1 {
            return Ok(Cut::whole(config.layers));
        }
        let each = Cut { parts: config.layers + 2, of_layer: (1..=config.layers).collect() };
        let LayeredProgram { program, layers } = self.decoder(config, self.step(config), &each)?;
        let marks = PartMarks::of_forward(&program, &layers, program.ops.len(), &each);
        let lowered =
            parallelize(&program, mesh, &pins(config, &program, mesh, Residual::Replicate, self.experts))?
                .lowered;
        Ok(cut(&lowered, &marks, config.layers, self.stages))
    }

    /// Builds a program, and the ops of each layer. With several stages, a tied head is a copy of
    /// the embedding.
    fn decoder(
        &self,
        config: &ModelConfig,
        run: RunShape,
        parts: &Cut,
    ) -> Result<LayeredProgram, Diagnostics> {
        let precision = self.on_cards(self.precision);
        decoder_of_layers(config, run, precision, self.head, self.order, parts.parts > 1, None)
    }

    /// Returns a precision as the programs of this deployment have it. Sums in a fixed order and
    /// grids with rows have no packed weights.
    #[must_use]
    #[doc(hidden)]
    pub fn on_cards(&self, precision: Precision) -> Precision {
        let is_unpacked = self.order == SumOrder::Tree || self.grid.rows > 1;
        match precision.weights {
            Weights::Float if is_unpacked => Precision { weights: Weights::Unpacked, ..precision },
            _ => precision,
        }
    }

    pub(crate) fn check(&self, config: &ModelConfig) -> Result<(), Diagnostics> {
        let mut problems = Diagnostics::new();
        let mut at_least_one = |name: &str, value: usize| {
            if value == 0 {
                problems.push(Diagnostic::new(name, "nothing to do").expected("at least 1").found(0));
            }
        };
        at_least_one("cards", self.cards);
        at_least_one("stages", self.stages);
        at_least_one("batch", self.batch);
        at_least_one("prompt tokens", self.longest_prompt);
        if self.stages > config.layers {
            let problem = Diagnostic::new("stages", "need one layer each");
            problems.push(problem.expected(format!("at most {}", config.layers)).found(self.stages));
        }
        if self.stages > 0 && !self.cards.is_multiple_of(self.stages) {
            let problem = Diagnostic::new("stages", "need equal numbers of cards");
            problems.push(problem.expected(format!("a divisor of {} cards", self.cards)).found(self.stages));
        }
        let Grid { rows, depth } = self.grid;
        if self.grid.cards() == 0 || !(self.cards / self.stages.max(1)).is_multiple_of(self.grid.cards()) {
            let problem = Diagnostic::new("grid", "does not match the cards of a stage");
            let expected = format!("rows × depth to divide {}", self.cards / self.stages.max(1));
            problems.push(problem.expected(expected).found(format!("{rows} × {depth}")));
        }
        if depth > 1 && self.scores_prompts {
            let problem = Diagnostic::new("tp_depth", "log-probabilities of prompts need one pool of caches");
            problems.push(problem.expected(1).found(depth));
        }
        if depth > self.batch {
            let problem = Diagnostic::new(
                "tp_depth",
                "distributes the sequences of a batch, and some cards would have none",
            );
            let help = "use more prompts in a batch, or cards along tp_row or tp_col instead";
            problems.push(problem.expected(format!("at most {}", self.batch)).found(depth).help(help));
        }
        if self.context <= self.longest_prompt {
            let problem =
                Diagnostic::new("context", "has no capacity for a new token after the longest prompt");
            let expected = format!("more than {} tokens", self.longest_prompt);
            problems.push(problem.expected(expected).found(self.context));
        }
        if self.block_tokens == 0 || !self.block_tokens.is_multiple_of(16) {
            let problem = Diagnostic::new("cache blocks", "have a number of tokens that CANN does not take");
            problems.push(problem.expected("a multiple of 16").found(self.block_tokens));
        }
        if let Some(blocks) = self.cache_blocks.filter(|blocks| *blocks < 2) {
            let problem = Diagnostic::new("cache blocks", "too few");
            problems.push(problem.expected("at least 2, one of which is the null block").found(blocks));
        }
        self.check_states(config, &mut problems);
        self.check_prediction(config, &mut problems);
        if self.context > config.max_positions {
            let new = self.context.saturating_sub(self.longest_prompt);
            let found = format!("{} of the prompt and {new} new tokens", self.longest_prompt);
            problems.push(
                Diagnostic::new("prompt", "is longer than the model's context")
                    .expected(format!("at most {} tokens", config.max_positions))
                    .found(found)
                    .help("shorten the prompt or generate fewer tokens"),
            );
        }
        self.check_numbers(config, &mut problems);
        problems.into_result(())
    }

    fn check_numbers(&self, config: &ModelConfig, problems: &mut Diagnostics) {
        let Precision { activations, weights, .. } = self.precision;
        self.check_cache_type(config, problems);
        let stored = config.formats.iter().find(|format| format.is_integer());
        if self.order == SumOrder::Tree {
            let columns = self.cards / (self.stages * self.grid.cards()).max(1);
            check_axes(&[("tp", columns)], self.grid, problems);
            if weights != Weights::Float || stored.is_some() {
                let text = "quantised products are rounded on each card before the sum";
                let problem = Diagnostic::new("--exact", text).expected("f32, f16 or bf16");
                let found = stored.map_or_else(|| self.precision.to_string(), |format| format.to_string());
                problems.push(problem.found(found).help("use another --dtype, or remove --exact"));
            }
        }
        let is_fp8 = |format: &WeightFormat| matches!(format, WeightFormat::Packed(Packing::Fp8 { .. }));
        if weights == Weights::Fp8AsInt8 && !config.formats.iter().any(|format| is_fp8(&format)) {
            let problem = Diagnostic::new("--fp8-as int8", "the checkpoint has no weights in fp8 blocks");
            let found = config.formats.iter().next().unwrap_or_default();
            problems
                .push(problem.expected("fp8 blocks").found(found).help("use --dtype w8a8 for float weights"));
        }
        if let Some(format) = config.formats.iter().next().filter(|_| weights == Weights::W8A8) {
            let problem = Diagnostic::new("dtype", "the weights of the checkpoint are quantised already");
            let problem = problem.expected("f32, f16 or bf16").found(format!("w8a8 of {format}"));
            let help = match is_fp8(&format) {
                true => "use --fp8-as int8",
                false => "remove --dtype w8a8: the weights keep their own format",
            };
            problems.push(problem.help(help));
        }
        let is_within = self.experts == ExpertShards::Inner || self.grid.rows > 1;
        let is_quantised = stored.is_some() || weights != Weights::Float;
        if is_quantised && is_within && config.has_mixture() {
            let text = "a row of a quantised expert has one scale, so it stays on one card";
            let problem = Diagnostic::new("experts", text).expected("whole experts on each card");
            let format = stored.map_or_else(|| self.precision.to_string(), |format| format.to_string());
            let problem = problem.found(format!("parts of experts in {format}"));
            problems.push(problem.help("use --experts ep, without tp_row"));
        }
        if !activations.is_float() {
            problems.push(
                Diagnostic::new("dtype", "activations are floats")
                    .expected("f32, f16 or bf16")
                    .found(activations),
            );
        } else if weights != Weights::Float && activations == DType::F32 {
            let problem = Diagnostic::new("dtype", "only 16-bit activations can be quantised");
            problems.push(problem.expected("f16 or bf16 activations").found(activations));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::launch::launch;
    use crate::schedule::plan::Action;

    #[test]
    fn a_prompt_is_read_at_the_same_cost_however_many_tokens_may_follow() {
        let mut config = ModelConfig::preset("qwen2.5-72b").unwrap();
        config.layers = 1;
        let keys = |context: usize| -> Vec<usize> {
            let deployment =
                Deployment { batch: 2, longest_prompt: 100, context, ..Deployment::of(&config, 8) };
            let Programs { prefill, decode } = deployment.compile(&config).unwrap();
            let of = |plan: &Plan| {
                let calls = plan.steps.iter().filter_map(|step| match &step.action {
                    Action::Launch(call) => Some(launch(call)),
                    _ => None,
                });
                calls
                    .filter(|call| call.operator.contains("Attention"))
                    .map(|call| call.operands[1].dims[1])
                    .sum()
            };
            [&prefill[0], &decode[0]].map(of).to_vec()
        };
        // Whole blocks of 128 rows.
        assert_eq!((keys(104), keys(4000)), (vec![128, 128], vec![128, 4096]));
    }
}
