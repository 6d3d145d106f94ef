//! Steps of training on meshes, recipes and orders of passes that a seed draws, in strict mode: no report, and the bits of a run in
//! which nothing is held back.
//!
//! A few seeds run here; `cargo xtask meshes --runs N --seed S` runs as many as are asked for, by the variable [`ASKED`].

use std::collections::BTreeMap;

use ascend_tp::config::ModelConfig;
use ascend_tp::emulator::Mode;
use ascend_tp::placement::{Grid, Residual};
use ascend_tp::schedule::pipeline::Pipeline;
use ascend_tp::train::data::Batch;
use ascend_tp::train::recipe::Precision;
use ascend_tp::train::{Layout, Recipe, Recompute, Zero, compile};

use crate::common::trainers::{cards, start, whole_parts};
use crate::equivalence::random::Random;
use crate::training::Golden;

/// `RUNS SEED`: how many runs, and the number that names the first.
const ASKED: &str = "ASCEND_TP_MESHES";
/// Runs of each test of the suite.
const FEW: u64 = 12;
/// Threads of the host take turns, so more cards show no more orders of any two.
const MOST_CARDS: usize = 8;

/// What a seed names.
struct Drawn {
    config: ModelConfig,
    recipe: Recipe,
    layout: Layout,
}

fn one_of<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

impl Drawn {
    /// What a layout cannot be is drawn again, so each seed names a step that runs.
    fn of(seed: u64) -> (Self, usize) {
        let mut random = Random(seed);
        let mut refused = 0;
        loop {
            let drawn = Self::any(&mut random);
            let fits = drawn.layout.cards() <= MOST_CARDS && drawn.layout.cards() > 1;
            if fits && compile(&drawn.config, &drawn.recipe, &drawn.layout).is_ok() {
                return (drawn, refused);
            }
            refused += usize::from(fits);
        }
    }

    fn any(random: &mut Random) -> Self {
        use Pipeline::{GPipe, Interleaved, OneForwardOneBackward, ZeroBubbleH1, ZeroBubbleV};
        let pipelines = [
            GPipe,
            OneForwardOneBackward,
            Interleaved { chunks: 2 },
            Interleaved { chunks: 3 },
            ZeroBubbleH1,
            ZeroBubbleV,
        ];
        let config = Golden::read("qwen2-gqa-adamw").model.config;
        let config = ModelConfig {
            layers: one_of(random, &[2, 4, 5, 6]),
            tied_embeddings: one_of(random, &[false, true]),
            ..config
        };
        let data = one_of(random, &[1, 1, 2, 3, 4]);
        let layout = Layout {
            data,
            replicas: if data == 4 { one_of(random, &[1, 2]) } else { 1 },
            context: one_of(random, &[1, 1, 1, 2]),
            tensor: one_of(random, &[1, 2, 3]),
            grid: Grid::LINE,
            stages: one_of(random, &[1, 2, 2, 3]),
            residual: one_of(random, &[Residual::Replicate, Residual::Seq]),
            zero: one_of(random, &[Zero::None, Zero::Moments, Zero::Gradients, Zero::Weights]),
            micro_batch: one_of(random, &[1, 2]),
            recompute: one_of(random, &[Recompute::None, Recompute::Selective, Recompute::Full]),
        };
        let recipe = Recipe {
            seq: one_of(random, &[4, 6, 7]),
            global_batch: one_of(random, &[1, 3, 4, 6]) * layout.batch(),
            precision: one_of(random, &[Precision::F32, Precision::F32, Precision::Bf16, Precision::F16]),
            pipeline: one_of(random, &pipelines),
            ..Recipe::default()
        };
        Self { config, recipe, layout }
    }

    /// The loss and the bytes of all that is kept behind a step, and what the cards report.
    fn step(&self, mode: Mode) -> (u64, BTreeMap<String, Vec<u8>>, Vec<String>) {
        let Self { config, recipe, layout } = self;
        let (emulator, cann) = cards(mode, layout.cards());
        let mut trainer = start(&cann, config, recipe, *layout);
        let loss = trainer.step(&Batch::scattered(0, recipe.global_batch, recipe.seq, config.vocab_size)).unwrap().loss;
        let kept = whole_parts(&mut trainer);
        drop((trainer, cann));
        (loss.to_bits(), kept, emulator.reports().iter().map(ToString::to_string).collect())
    }
}

#[test]
fn steps_on_random_meshes_have_no_report_and_the_same_bits() {
    let asked = std::env::var(ASKED).ok();
    let numbers: Vec<u64> = asked.iter().flat_map(|text| text.split(' ')).map(|word| word.parse().unwrap()).collect();
    let (runs, first) = match numbers.as_slice() {
        [] => (FEW, 1),
        [runs, first] => (*runs, *first),
        _ => panic!("{ASKED}: expected `RUNS SEED`, found {asked:?}"),
    };
    let (mut refused, mut failed) = (0, Vec::new());
    for seed in first..first + runs {
        let (drawn, others) = Drawn::of(seed);
        refused += others;
        let free = drawn.step(Mode::Parallel);
        let strict = drawn.step(Mode::Strict { seed });
        if !strict.2.is_empty() || (strict.0, &strict.1) != (free.0, &free.1) {
            let Drawn { config, recipe, layout } = &drawn;
            let what = format!("{} layers, {}, {:?}", config.layers, recipe.pipeline, recipe.precision);
            let same = (strict.0, &strict.1) == (free.0, &free.1);
            failed.push(format!("seed {seed}: {what}, {layout:?}: same bits: {same}, reports: {:?}", strict.2));
        }
        if asked.is_some() {
            println!("seed {seed}: {} findings so far", failed.len());
        }
    }
    println!("{runs} steps from seed {first} on, {refused} drawn again, {} findings", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
