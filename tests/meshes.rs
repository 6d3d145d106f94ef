//! Random meshes, recipes and pipelines in strict mode. Training steps give no reports and the bits
//! of parallel mode; in exact mode also the bits of one card.
//!
//! A few seeds run here. `cargo xtask soak suite meshes::` runs more.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ascend_tp::config::ModelConfig;
use ascend_tp::emulator::Mode;
use ascend_tp::placement::{ExpertShards, Grid, Residual};
use ascend_tp::program::compress::Compression;
use ascend_tp::schedule::Target;
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::data::Batch;
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Compiled, Compress, Layout, Recipe, Recompute, Zero, compile};

use crate::common::cases::{cases, seed};
use crate::common::random::Random;
use crate::common::trainers::{cards, start_compiled, whole_parts};
use crate::training::Golden;

const FEW: usize = 2;
/// More ranks show no additional orders of two ranks, because host threads take turns.
const MOST_CARDS: usize = 8;

struct Drawn {
    config: ModelConfig,
    recipe: Recipe,
    layout: Layout,
}

struct Step {
    drawn: Drawn,
    compiled: Compiled,
    refused: usize,
}

fn one_of<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

impl Drawn {
    fn of(seed: u64) -> Step {
        let mut random = Random::new(seed);
        let golden = Golden::read("qwen2-gqa-adamw").model.config;
        let mut refused = 0;
        loop {
            let drawn = Self::any(&mut random, &golden);
            if !(2..=MOST_CARDS).contains(&drawn.layout.cards()) {
                continue;
            }
            match compile(&drawn.config, &drawn.recipe, &drawn.layout, Target::ANY) {
                Ok(compiled) => return Step { drawn, compiled, refused },
                Err(_) => refused += 1,
            }
        }
    }

    fn any(random: &mut Random, golden: &ModelConfig) -> Self {
        use Pipeline::{GPipe, Interleaved, OneForwardOneBackward, ZeroBubbleH1, ZeroBubbleV};
        let pipelines = [
            GPipe,
            OneForwardOneBackward,
            Interleaved { chunks: 2 },
            Interleaved { chunks: 3 },
            ZeroBubbleH1,
            ZeroBubbleV,
        ];
        let (exact, compress) = match random.below(6) {
            0 | 1 => (true, None),
            2 => (false, Some(one_of(random, &[Compression::OneBit, Compression::TopK { share: 0.1 }]))),
            _ => (false, None),
        };
        let config = ModelConfig {
            layers: one_of(random, &[2, 4, 5, 6]),
            tied_embeddings: one_of(random, &[false, true]),
            ..golden.clone()
        };
        let data = one_of(random, &[1, 1, 2, 3, 4]);
        let grid = Grid { rows: one_of(random, &[1, 1, 2, 3]), depth: one_of(random, &[1, 1, 1, 2]) };
        let layout = Layout {
            data,
            expert: 1,
            replicas: if data == 4 { one_of(random, &[1, 2]) } else { 1 },
            context: one_of(random, &[1, 1, 1, 2]),
            ring: false,
            tensor: one_of(random, if exact { &[1, 2, 4, 8] } else { &[1, 2, 3, 4] }),
            grid: if exact { Grid::LINE } else { grid },
            stages: one_of(random, &[1, 2, 2, 3]),
            residual: one_of(random, &[Residual::Replicate, Residual::Seq]),
            experts: ExpertShards::Whole,
            zero: match compress {
                Some(_) => Zero::None,
                None => one_of(random, &[Zero::None, Zero::Moments, Zero::Gradients, Zero::Weights]),
            },
            micro_batch: one_of(random, &[1, 2]),
            recompute: one_of(random, &[Recompute::None, Recompute::Selective, Recompute::Full]),
        };
        let recipe = Recipe {
            seq: one_of(random, &[4, 6, 7]),
            global_batch: one_of(random, &[1, 3, 4, 6]) * layout.batch(),
            precision: match compress {
                Some(_) => one_of(random, &[TrainingPrecision::F32, TrainingPrecision::Bf16]),
                None => one_of(
                    random,
                    &[
                        TrainingPrecision::F32,
                        TrainingPrecision::F32,
                        TrainingPrecision::Bf16,
                        TrainingPrecision::F16,
                    ],
                ),
            },
            pipeline: one_of(random, &pipelines),
            exact,
            compress: compress.map(|by| Compress { by, warmup_steps: Some(1) }),
            ..Recipe::default()
        };
        let ring = layout.context > 1 && !exact && one_of(random, &[false, true]);
        Self { config, recipe, layout: Layout { ring, ..layout } }
    }

    const fn what(&self) -> &'static str {
        match (self.recipe.exact, self.recipe.compress, self.layout.grid.cards()) {
            (true, ..) => "in one order",
            (_, Some(_), 1) => "compressed",
            (_, Some(_), _) => "compressed on a grid",
            (_, _, 1) => "usual",
            _ => "on a grid",
        }
    }

    const fn steps(&self) -> usize {
        if self.recipe.compress.is_some() { 2 } else { 1 }
    }

    fn run(&self, mode: Mode, layout: Layout, compiled: Compiled) -> StepsResult {
        let Self { config, recipe, .. } = self;
        let (emulator, cann) = cards(mode, layout.cards());
        let mut trainer = start_compiled(&cann, config, recipe, layout, compiled);
        let batch =
            |at: usize| Batch::scattered(at as u64, recipe.global_batch, recipe.seq, config.vocab_size);
        let losses = (0..self.steps()).map(|at| trainer.step(&batch(at)).unwrap().loss.to_bits()).collect();
        let kept = whole_parts(&mut trainer);
        drop((trainer, cann));
        StepsResult { losses, kept, reports: emulator.reports().iter().map(ToString::to_string).collect() }
    }

    /// Returns the result of one card, if it must have the same bits.
    fn alone(&self) -> Option<StepsResult> {
        let layout = Layout { micro_batch: self.recipe.global_batch.next_power_of_two(), ..Layout::ONE };
        let run = || {
            self.run(
                Mode::Parallel,
                layout,
                compile(&self.config, &self.recipe, &layout, Target::ANY).unwrap(),
            )
        };
        self.recipe.exact.then(run)
    }
}

impl Step {
    fn finding(&self, seed: u64) -> Option<String> {
        let Self { drawn, compiled, .. } = self;
        let run = |mode| drawn.run(mode, drawn.layout, compiled.clone());
        let (free, strict) = (run(Mode::Parallel), run(Mode::Strict { seed }));
        let same = strict.has_bits_of(&free);
        let same_alone = drawn.alone().map(|alone| alone.has_bits_of(&free));
        let is_found = !strict.reports.is_empty() || !same || same_alone == Some(false);
        is_found.then(|| {
            let Drawn { config, recipe, layout } = drawn;
            let what = format!("{} layers, {recipe:?}, {layout:?}", config.layers);
            let bits = format!("same bits: {same}, on one card: {same_alone:?}");
            format!("seed {seed}: {what}: {bits}, reports: {:?}", strict.reports)
        })
    }
}

struct StepsResult {
    losses: Vec<u64>,
    kept: BTreeMap<String, Vec<u8>>,
    reports: Vec<String>,
}

impl StepsResult {
    fn has_bits_of(&self, other: &Self) -> bool {
        (&self.losses, &self.kept) == (&other.losses, &other.kept)
    }
}

#[derive(Default)]
struct Found {
    seen: BTreeMap<&'static str, u64>,
    refused: usize,
    findings: Vec<String>,
}

#[test]
fn steps_on_random_meshes_have_no_report_and_the_same_bits() {
    let (runs, first) = (cases(FEW) as u64, seed());
    let (next, all) = (AtomicU64::new(first), Mutex::new(Found::default()));
    // Ranks take turns, so parallel runs use the other processors.
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + runs {
                return;
            }
            let step = Drawn::of(seed);
            let finding = step.finding(seed);
            let mut all = all.lock().unwrap();
            all.refused += step.refused;
            *all.seen.entry(step.drawn.what()).or_default() += 1;
            all.findings.extend(finding);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let Found { seen, refused, findings } = all.into_inner().unwrap();
    println!(
        "{runs} runs from seed {first} on, {seen:?}, {refused} drawn again, {} findings",
        findings.len()
    );
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
