//! `train`: trains a model on cards.
//!
//! - Input: a model, data and a recipe.
//! - Output: one line per step on stderr, metrics in files, and checkpoints.
//! - Invariants: all problems of the input are reported together before a card is used. An
//!   interrupted run saves first. A resumed run continues from the newest checkpoint, on any number
//!   of cards.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use ascend_tp::Cann;
use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::config::{Lora, ModelConfig};
use ascend_tp::exec::{EngineOptions, Timed, target_of};
use ascend_tp::generate::Model;
use ascend_tp::schedule::Target;
use ascend_tp::timeline::trace::Trace;
use ascend_tp::timeline::{Phase, side_by_side};
use ascend_tp::train::checkpoint::{Checkpoint, DamagedCheckpoint};
use ascend_tp::train::data::{CorpusSource, DataOptions, Encoder, Loader, TextFile};
use ascend_tp::train::metrics::straggler::{Pace, Paces};
use ascend_tp::train::recipe::TrainingPrecision;
use ascend_tp::train::{Compiled, Layout, Progress, Recipe, Trainer, compile};
use ascend_tp::world::{Launcher, ProcessGroup, World};
use ascend_tp_planner::decoder::Decoder;
use clap::Args;
use serde_json::Value;
use tempfile::TempDir;

use super::bind::{self, Bind};
use super::cards;
use super::data::{note_skipped, unescaped};
use super::failure::{Failure, Outcome};
use super::processes::Inputs;
use super::site::{Site, keep};
use super::template::TemplateOptions;
use super::values::{DeviceKind, LayoutOptions};
use super::{files, interrupt, model, note, print, processes};

mod checkpoints;
mod digest;
mod efficiency;
mod logs;
mod mesh;
mod planned;
mod restarts;
mod resume;
mod sample;
mod step;

use checkpoints::Checkpoints;
use efficiency::Efficiency;
use logs::Logs;
pub(super) use mesh::{ServingMesh, cards_of_mesh, replicated_mesh, serving_mesh};
pub(super) use planned::mesh_words;
use restarts::RestartOptions;
use resume::{KeptState, Resumed, check_save};
pub(super) use resume::{is_exact, sharding};
use sample::SamplePrompt;
pub(super) use step::{StepContext, StepOptions};

pub(super) const EXAMPLES: &str = "\
Prints one line per step to stderr and a sample to stdout. With --save, Ctrl-C
and SIGTERM save a checkpoint and end with exit code 130. A second signal ends
the run at once.

Examples:
  ascend-tp train
      learns a small text from random weights on 8 cards in a minute or two
  ascend-tp train --model models/kjv-qwen2 --data text.txt --cards 2 \\
      --steps 20 --global-batch 4 --seq 64
  ascend-tp train --model DIR --data corpus --recipe recipe.toml --cards 8 \\
      --mesh dp=2,tp=4 --zero 1 --micro-batch 2 --metrics m.jsonl \\
      --save runs/a --save-every 50 --resume
  ascend-tp train --model models/kjv-qwen2 --data text.txt --cards 4 \\
      --mesh dp=2,tp=2 --exact --digest
      the digest is the same for every --mesh, --zero, --micro-batch,
      --recompute and --residual
  ascend-tp train --model DIR --data corpus --processes 4:8 --mesh dp=*,tp=2 \\
      --save runs/a --save-every 50 --max-restarts 3
      one process per card; after a failure, all restart on the remaining cards
  ascend-tp train --model DIR --init-seed 1 --data corpus.jsonl --cards 8
      random weights; DIR needs a config.json and, for text, a tokenizer";

/// Options of `train`.
#[derive(Clone, Debug, Args)]
pub(super) struct TrainOptions {
    /// Folder with config.json and, unless --init-seed is given, weights [default: the shipped
    /// model with --data; without --data, a tiny model with random weights, which learns the
    /// shipped text]
    #[arg(long, value_name = "DIR", requires = "data", help_heading = "Model")]
    model: Option<PathBuf>,
    /// Initialize the weights randomly with this seed
    #[arg(long, value_name = "SEED", help_heading = "Model")]
    init_seed: Option<u64>,
    /// Training data: FILE.txt, FILE.jsonl, PREFIX of Megatron's .bin and .idx, or
    /// FILE.safetensors. Can be repeated
    #[arg(long, value_name = "PATH", help_heading = "Data")]
    data: Vec<PathBuf>,
    /// Folder of the tokenizer for text data [default: the model's folder]
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    tokenizer: Option<PathBuf>,
    /// Text between two documents of a .txt, with \n, \r, \t and \\ [default: the whole file is one
    /// document]
    #[arg(long, value_name = "TEXT", value_parser = unescaped, allow_hyphen_values = true, help_heading = "Data")]
    separator: Option<String>,
    /// Maximum number of invalid lines to skip, over all files
    #[arg(long, default_value = "0", value_name = "N", help_heading = "Data")]
    skip_bad_lines: usize,
    /// Seed of the order of the samples
    #[arg(long, value_name = "SEED", default_value_t = 0, help_heading = "Data")]
    data_seed: u64,
    #[command(flatten)]
    template: TemplateOptions,
    #[command(flatten)]
    step: StepOptions,
    /// Element type of matrix products: f32, bf16 or f16. Weights, optimizer state and sums stay
    /// f32
    #[arg(long, value_name = "TYPE", help_heading = "Model")]
    dtype: Option<TrainingPrecision>,
    /// Number of cards [default: the product of --mesh, else 8 for the shipped text and 1 for other
    /// data; the number of processes under a launcher]
    #[arg(long, value_name = "N", help_heading = "Parallelism", display_order = 1)]
    cards: Option<usize>,
    #[command(flatten)]
    restarts: RestartOptions,
    #[command(flatten)]
    layout: LayoutOptions,
    /// Folder for checkpoints
    #[arg(long, value_name = "DIR", help_heading = "Checkpoints")]
    save: Option<PathBuf>,
    /// Number of steps between checkpoints [default: only after the last step]
    #[arg(long, value_name = "STEPS", requires = "save", help_heading = "Checkpoints")]
    save_every: Option<NonZero<usize>>,
    /// Number of checkpoints to keep [default: all]
    #[arg(long, value_name = "N", requires = "save", help_heading = "Checkpoints")]
    keep: Option<NonZero<usize>>,
    /// Continue from the newest checkpoint in --save, if there is one
    #[arg(long, requires = "save", help_heading = "Checkpoints")]
    resume: bool,
    /// With --resume, skip damaged checkpoints and continue from the newest undamaged one. Restarts
    /// always do so
    #[arg(long, requires = "resume", help_heading = "Checkpoints")]
    skip_damaged: bool,
    /// Append one line of JSON per step to this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    metrics: Option<PathBuf>,
    /// Folder for TensorBoard events
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    tensorboard: Option<PathBuf>,
    /// Write the timeline of the second step of this run as a trace for Perfetto
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    trace: Option<PathBuf>,
    /// Prompt that the trained model continues at the end, with the weights of the last checkpoint
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    sample: Option<String>,
    /// Print a final line with `digest` and the SHA-256 of all weights and optimizer states, over
    /// unsharded tensors sorted by name
    #[arg(long, help_heading = "Output")]
    digest: bool,
    /// Device to run on; auto uses the NPUs if a CANN toolkit is installed, else the emulator
    #[arg(long, value_enum, default_value = "auto", help_heading = "Execution")]
    device: DeviceKind,
    /// Processors to bind to: auto (five near each NPU), none, or a list such as 0-4,48-52
    #[arg(long, default_value = "none", value_name = "CPUS", help_heading = "Execution")]
    bind: Bind,
}

/// Prompt of the sample after training on the shipped text.
const TINY_SAMPLE: &str = "And God said";

/// Mesh for the shipped text on [`TINY_CARDS`] cards.
const TINY_MESH: &str = "dp=2,tp=4";
const TINY_CARDS: usize = 8;

impl TrainOptions {
    /// Returns whether neither a model nor data is given.
    const fn learns_the_shipped_text(&self) -> bool {
        self.model.is_none() && self.data.is_empty()
    }

    /// Adds the defaults: the shipped text, configuration and recipe if neither a model nor data is
    /// given, and `--resume` for a restarted run.
    fn complete(&self, group: &ProcessGroup) -> Result<Self, Diagnostics> {
        let mut options = self.clone();
        options.resume |= options.restarts.is_restart();
        if !self.learns_the_shipped_text() {
            return Ok(options);
        }
        let folder = model::tiny()?;
        options.data = vec![folder.join("text.txt")];
        options.step.recipe.get_or_insert_with(|| folder.join("recipe.toml"));
        options.init_seed.get_or_insert_default();
        if group.size() == 1 && !options.restarts.is_started() {
            let cards = options.step.cards().unwrap_or(TINY_CARDS);
            options.cards.get_or_insert(cards);
        }
        if group.size() == 1 || options.save.is_some() {
            options.sample.get_or_insert_with(|| TINY_SAMPLE.to_owned());
        }
        if options.cards.unwrap_or(group.size()) == TINY_CARDS {
            options.step.mesh.get_or_insert_with(|| TINY_MESH.to_owned());
        }
        options.model = Some(folder);
        Ok(options)
    }
}

pub(super) fn run(options: &TrainOptions) -> Result<Outcome, Failure> {
    if let Some(outcome) = restarts::supervise(options)? {
        return Ok(outcome);
    }
    processes::run(|group| run_in(options, group))
}

fn run_in(options: &TrainOptions, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
    let stop = interrupt::catch(group);
    if options.restarts.is_started() {
        interrupt::ignore_second_signal();
    }
    let is_tiny = options.learns_the_shipped_text();
    // A sample and a digest need only weights, so they are made even if no step is left.
    let asks_for_more = options.sample.is_some() || options.digest;
    let options = &options.complete(group)?;
    let folder = model::folder(options.model.as_deref())?;
    if is_tiny && group.is_first() {
        let folder = folder.display();
        note(&format!("no --model and no --data: trains a small model on the shipped text in {folder}"));
    }
    let alone = options.step.cards().unwrap_or(1);
    let is_launched = World::from_env().is_ok_and(|world| world.launcher != Launcher::Alone);
    let is_said = options.cards.is_some() || is_launched || options.restarts.is_started();
    if options.step.is_planned() && !is_said {
        let problem =
            Diagnostic::new("--mesh auto", "the number of cards is not given").expected("--cards N");
        return Err(Diagnostics::from(problem).into());
    }
    let wanted = processes::cards(options.cards, group, Some(alone)).map_err(Diagnostics::from)?;
    bind::apply(&options.bind, group, wanted)?;
    let cards = cards::open_at_least(options.device, group, if group.size() == 1 { wanted } else { 0 })?;
    cards.require_numbers()?;
    let (site, target) = (cards.site(), target_of(&cards.cann, group, &cards.kernels()?));
    let resumed = Resumed::find(options, group)?;
    let made = TrainJob::new(options, &folder, wanted, site.as_ref(), target, group, resumed);
    let inputs = made.as_ref().map(|(job, _)| job.inputs()).unwrap_or_default();
    let (mut job, compiled) = processes::agree(group, inputs, made)?;
    if let Some(text) = job.nothing_left().filter(|_| !asks_for_more) {
        if group.is_first() {
            note(&text);
        }
        return Ok(Outcome::Done);
    }
    if options.step.is_planned() && group.is_first() {
        note(&format!("--mesh auto: {}", mesh_words(&job.layout)));
    }
    // An interrupted run ends after a step, so the engine must not stop earlier.
    drop(stop);
    let engine = EngineOptions { clock: cards.clock(), ..cards.engine_options(group)? };
    let mut trainer = job.start(&cards.cann, compiled, &engine)?;
    // Without `--save`, the sample uses a temporary checkpoint.
    let temporary =
        if job.sample.is_some() && options.save.is_none() { Some(tempfile::tempdir()?) } else { None };
    let save = options.save.as_deref().or(temporary.as_ref().map(TempDir::path));
    let last = job.train(&mut trainer, group, save, cards.peak_flops(job.recipe.precision.dtype()))?;
    let digest = if options.digest { Some(digest::of(&mut trainer, group)?) } else { None };
    // Free the memory of the cards for the sample.
    drop(trainer);
    if let (Some(sample), Some(checkpoint)) = (&job.sample, last) {
        let engine = EngineOptions { stop: interrupt::end_soon(), ..engine };
        sample.show(&job.config, &checkpoint, job.adapted(), &cards.cann, &engine)?;
    }
    cards.check_reports()?;
    if let Some(digest) = digest.filter(|_| group.is_first()) {
        print(&format!("digest {digest}\n"))?;
    }
    Ok(Outcome::Done)
}

/// Error message for a run with only skipped steps.
const ALL_SKIPPED: &str = "every step was skipped, because no loss scale gave finite gradients: the weights are unchanged and no \
                           checkpoint is written; lower loss_scale.initial or loss_scale.hysteresis in the recipe, or use --dtype bf16";

struct TrainJob<'a> {
    options: &'a TrainOptions,
    folder: PathBuf,
    config: ModelConfig,
    /// None: the weights are initialized randomly.
    model: Option<Model>,
    recipe: Recipe,
    layout: Layout,
    loader: Loader,
    /// The checkpoint to continue from.
    checkpoint: Option<(Checkpoint, Progress)>,
    /// Newer checkpoints that are damaged.
    skipped: Vec<DamagedCheckpoint>,
    sample: Option<SamplePrompt>,
}

impl<'a> TrainJob<'a> {
    fn new(
        options: &'a TrainOptions,
        folder: &Path,
        cards: usize,
        site: Option<&Site>,
        target: Target,
        group: &ProcessGroup,
        resumed: Resumed,
    ) -> Result<(Self, Compiled), Diagnostics> {
        let Resumed { checkpoint, skipped, mut problems } = resumed;
        restarts::problem(options).into_iter().for_each(|found| problems.push(found));
        let trace = options.trace.as_ref().filter(|_| group.is_first());
        trace
            .and_then(|path| files::check("--trace", path).err())
            .into_iter()
            .for_each(|found| problems.push(found));
        let save = options.save.as_ref().filter(|_| group.is_first());
        save.and_then(|folder| check_save(folder).err()).into_iter().for_each(|found| problems.push(found));
        let model = match options.init_seed {
            None => Some(model::open(folder, group, false)),
            Some(_) => None,
        };
        let model = model.and_then(|model| model.map_err(|found| problems.append(found)).ok());
        let config = match (&model, options.init_seed) {
            (Some(model), _) => Some(model.config.clone()),
            (None, Some(_)) => Model::open_config(folder).map_err(|found| problems.append(found)).ok(),
            (None, None) => None,
        };
        let (residual, experts) = (options.layout.residual(), options.layout.experts());
        let on = StepContext { cards, residual, experts, model: config.as_ref(), site };
        let step = options.step.resolve(on, options.dtype, &mut problems);
        let (Some((recipe, layout)), Some(config)) = (step, config) else { return Err(problems) };
        if recipe.lora.is_some() && options.init_seed.is_some() {
            let problem = Diagnostic::new("--lora", "adapters need trained weights").found("--init-seed");
            problems.push(problem.help("leave --init-seed out"));
        }
        let compiled =
            compile(&config, &recipe, &layout, target).map_err(|found| problems.append(found)).ok();
        if let (Some((found, _)), Some(compiled)) = (&checkpoint, &compiled)
            && let Err(found) = compiled.check_checkpoint(found)
        {
            problems.append(found);
        }
        let first = checkpoint
            .as_ref()
            .map_or(0, |(found, _)| usize::try_from(found.index().step).unwrap_or(usize::MAX));
        let data = sources(options, folder, &config, &mut problems).map(|sources| DataOptions {
            sources,
            sequence: recipe.seq,
            global_batch: recipe.global_batch,
            seed: options.data_seed,
            vocabulary: config.vocab_size,
            steps: recipe.steps as u64,
            skip_bad_lines: options.skip_bad_lines,
        });
        let loader = data
            .and_then(|data| start_loader(&data, first as u64).map_err(|found| problems.append(found)).ok());
        if let (Some(loader), Some((_, kept))) = (&loader, &checkpoint)
            && let Err(found) = loader.state().check_continues(&kept.data)
        {
            problems.append(found);
        }
        let sample = options.sample.as_ref().and_then(|text| {
            if group.size() > 1 && options.save.is_none() {
                let problem =
                    Diagnostic::new("--sample", "the sample needs a checkpoint that all processes can read");
                problems.push(problem.expected("--save with a shared folder"));
            }
            let cards = if group.size() == 1 { layout.tensor } else { group.size() };
            let tokenizer = options.tokenizer.as_deref().unwrap_or(folder);
            SamplePrompt::new(text, tokenizer, &config, cards).map_err(|found| problems.append(found)).ok()
        });
        match (compiled, loader) {
            (Some(compiled), Some(loader)) if problems.is_empty() => {
                let folder = folder.to_path_buf();
                let checkpoint = checkpoint.map(|(found, kept)| (found, kept.progress));
                let job = Self {
                    options,
                    folder,
                    config,
                    model,
                    recipe,
                    layout,
                    loader,
                    checkpoint,
                    skipped,
                    sample,
                };
                Ok((job, compiled))
            }
            _ => Err(problems),
        }
    }

    /// Returns the inputs that must be equal in all processes, in addition to their options.
    fn inputs(&self) -> Inputs {
        let mut inputs = if self.model.is_some() {
            Inputs::of_model(&self.folder)
        } else {
            Inputs::of_config(&self.folder)
        };
        inputs.add("--data (digest of the files)", self.loader.state().digest);
        let step =
            self.checkpoint.as_ref().map(|(checkpoint, _)| format!("step {}", checkpoint.index().step));
        inputs.add("--save (checkpoint to continue from)", step.unwrap_or_else(|| "none".to_owned()));
        inputs
    }

    /// Returns the message for a run that is already complete.
    fn nothing_left(&self) -> Option<String> {
        let (checkpoint, progress) = self.checkpoint.as_ref()?;
        let steps = self.recipe.steps;
        let path = checkpoint.path().display();
        (progress.next >= steps).then(|| {
            format!("nothing is left to do: {path} is at step {}, and --steps is {steps}", progress.next)
        })
    }

    /// Returns the folder of the frozen weights and the adapters that were trained.
    fn adapted(&self) -> Option<(&Path, &Lora)> {
        self.recipe.lora.as_ref().map(|lora| (self.folder.as_path(), lora))
    }

    fn start(
        &self,
        cann: &Arc<Cann>,
        compiled: Compiled,
        engine: &EngineOptions,
    ) -> Result<Trainer, Failure> {
        let builder = match &self.model {
            Some(model) => Trainer::of_model(cann, model),
            None => Trainer::of_seed(cann, &self.config, self.options.init_seed.unwrap_or_default()),
        };
        let builder =
            builder.recipe(self.recipe.clone()).layout(self.layout).compiled(compiled).engine(engine.clone());
        let builder = match &self.checkpoint {
            Some((checkpoint, progress)) => builder.resume(checkpoint, *progress),
            None => builder,
        };
        Ok(builder.start()?)
    }

    /// Trains, with checkpoints in `save` if given. Returns the last checkpoint after all steps are
    /// done.
    ///
    /// # Errors
    /// A step, a checkpoint or a log fails. [`Failure::Interrupted`] after the work has been saved.
    fn train(
        &mut self,
        trainer: &mut Trainer,
        group: &Arc<ProcessGroup>,
        save: Option<&Path>,
        peak: Option<f64>,
    ) -> Result<Option<PathBuf>, Failure> {
        let (speaks, first) = (group.is_first(), trainer.next_step());
        let keep = self.options.keep;
        let mut checkpoints =
            save.map(|folder| Checkpoints::begin(folder, keep, trainer, group)).transpose()?;
        if speaks {
            resume::set_aside(&self.skipped, first)?;
            note_skipped(self.loader.skipped());
        }
        let mut logs = Logs::begin(self.options, first, self.pace(peak), speaks)?;
        if speaks && first > 0 {
            note(&format!("goes on at step {first}"));
        }
        // The first step is a warm-up.
        let traced_step = (first + 1).min(self.recipe.steps.saturating_sub(1)).max(first);
        let memory_peak = trainer.memory_peak();
        // Each process sees only its own cards.
        let has_clock = trainer.has_clock() && group.size() == 1;
        let mut efficiency = Efficiency::default();
        let mut paces = Paces::new(self.layout.stages);
        let mut slow = Vec::new();
        interrupt::end_in_order();
        let mut is_asked_to_end = false;
        let is_logged = self.options.metrics.is_some() || self.options.tensorboard.is_some();
        let untraced = if is_logged || has_clock { Timed::Streams } else { Timed::No };
        while trainer.next_step() < self.recipe.steps {
            is_asked_to_end = before_step(group, trainer, &mut paces)?;
            self.tell_of_stragglers(group, &paces, &mut slow);
            if is_asked_to_end {
                break;
            }
            let batch = self.loader.next()?;
            let traced = self.options.trace.as_ref().filter(|_| trainer.next_step() == traced_step);
            let timed = traced.map_or(untraced, |_| Timed::Steps);
            let (step, phases) = trainer.timed_step(&batch, timed)?;
            if has_clock {
                efficiency.add(phases.clone(), &trainer.programs(), self.layout.cards());
            }
            logs.write(&step, trainer.times(), memory_peak, &paces)?;
            if let Some(path) = traced {
                self.write_trace(path, step.step, &phases, trainer, group)?;
            }
            if step.step == first {
                self.options.restarts.say_begun(speaks);
            }
            if let Some(checkpoints) = &mut checkpoints {
                checkpoints.after(&step, self.options.save_every, trainer, |progress| self.kept(progress))?;
            }
        }
        logs.finish();
        efficiency.line(self.layout.cards(), self.layout.stages).iter().for_each(|line| note(line));
        if let Some(path) =
            self.options.trace.as_ref().filter(|_| speaks && trainer.next_step() <= traced_step)
        {
            note(&format!("{} is not written: step {traced_step} was not reached", path.display()));
        }
        if !is_asked_to_end && trainer.progress().updates == 0 {
            return Err(Failure::Run(anyhow!(ALL_SKIPPED)));
        }
        let mut path = self.checkpoint.as_ref().map(|(checkpoint, _)| checkpoint.path().to_path_buf());
        if let Some(checkpoints) = checkpoints {
            // On an interruption, a checkpoint that is only for the sample is not written.
            let is_kept = self.options.save.is_some();
            let state = (is_kept || !is_asked_to_end).then(|| self.kept(trainer.progress())).transpose()?;
            let last = checkpoints.finish(trainer, state)?;
            if let Some(last) = last.as_ref().filter(|_| speaks && is_kept) {
                note(&format!("saved {}", last.display()));
            }
            path = last.or(path);
        }
        // A signal during the last checkpoint ends the run before the sample.
        if is_asked_to_end || before_step(group, trainer, &mut paces)? {
            Err(Failure::Interrupted)
        } else {
            Ok(path)
        }
    }

    /// Reports the stragglers when the set of stragglers has changed.
    fn tell_of_stragglers(&self, group: &ProcessGroup, paces: &Paces, known: &mut Vec<usize>) {
        let found = paces.stragglers();
        let ranks: Vec<usize> = found.iter().map(|pace| pace.rank).collect();
        if group.is_first() && ranks != *known {
            for Pace { rank, over_median } in found.iter().filter(|pace| !known.contains(&pace.rank)) {
                let who =
                    group.peers().get(*rank).map_or_else(|| format!("rank {rank}"), ToString::to_string);
                let stage = if self.layout.stages > 1 { "its stage" } else { "all" };
                note(&format!(
                    "{who} is a straggler: it computes {over_median:.1} times as long as the median of {stage}"
                ));
            }
        }
        *known = ranks;
    }

    /// Writes the trace of a step, combined from all processes.
    fn write_trace(
        &self,
        path: &Path,
        step: usize,
        phases: &[Phase],
        trainer: &Trainer,
        group: &ProcessGroup,
    ) -> Result<(), Failure> {
        let mine = serde_json::to_vec(phases).map_err(|error| Failure::Run(error.into()))?;
        let all = group.exchange("the trace", mine).map_err(|failure| Failure::Run(failure.into()))?;
        if !group.is_first() {
            return Ok(());
        }
        let seen = all.iter().map(|bytes| serde_json::from_slice(bytes)).collect::<Result<Vec<_>, _>>();
        let programs = trainer.programs();
        let phases = side_by_side(seen.map_err(|error| Failure::Run(error.into()))?, &programs);
        let about = serde_json::json!({
            "model": self.folder, "cards": self.layout.cards(), "mesh": self.layout.mesh(&self.config)?.to_string(), "step": step,
        });
        let ranks = (0..self.layout.cards()).map(|rank| format!("rank {rank}")).collect();
        let trace = Trace { about, ranks, programs: &programs, phases: &phases, links: None };
        files::write("--trace", path, |out| trace.write(out))?;
        note(&format!("wrote {}: step {step}", path.display()));
        Ok(())
    }

    /// Returns the values for computing the speed of steps. `peak` is the number of operations per
    /// second of one card.
    fn pace(&self, peak: Option<f64>) -> logs::RunPace {
        let Recipe { steps, seq, .. } = self.recipe;
        let flops_per_token = 3.0 * Decoder::of(&self.config).forward_flops_per_token(seq);
        logs::RunPace { steps, flops_per_token, peak: peak.map(|peak| peak * self.layout.cards() as f64) }
    }

    /// Returns the state of this run that a checkpoint stores in addition to tensors.
    fn kept(&self, progress: Progress) -> Result<Value, Failure> {
        let (model, recipe, data) = (self.folder.clone(), self.recipe.clone(), self.loader.state());
        serde_json::to_value(KeptState { model, recipe, data, progress })
            .map_err(|error| Failure::Run(error.into()))
    }
}

/// Exchanges between steps whether any process was asked to end, and the compute times of the
/// previous step.
///
/// All processes get the same answer, so they end after the same step.
fn before_step(group: &ProcessGroup, trainer: &Trainer, paces: &mut Paces) -> Result<bool, Failure> {
    let failed = |error: serde_json::Error| Failure::Run(error.into());
    let mine = (interrupt::is_requested(), trainer.compute_seconds().values().copied().collect::<Vec<f64>>());
    let mine = serde_json::to_vec(&mine).map_err(failed)?;
    let all = group.exchange("whether to end", mine).map_err(|failure| Failure::Run(failure.into()))?;
    let all = all.iter().map(|bytes| serde_json::from_slice::<(bool, Vec<f64>)>(bytes).map_err(failed));
    let (asked, seconds): (Vec<bool>, Vec<Vec<f64>>) =
        all.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    paces.add(seconds.concat());
    Ok(asked.contains(&true))
}

/// Starts loading batches from step `first`.
fn start_loader(data: &DataOptions, first: u64) -> Result<Loader, Diagnostics> {
    Loader::start(data, first).map_err(|error| match error {
        ascend_tp::train::data::Error::Refused(found) => found,
        error => Diagnostic::new("--data", "cannot be read").found(error).into(),
    })
}

fn sources(
    options: &TrainOptions,
    folder: &Path,
    config: &ModelConfig,
    problems: &mut Diagnostics,
) -> Option<Vec<CorpusSource>> {
    let is_text = |path: &PathBuf| TextFile::of(path, None).is_ok();
    let encoder = options.data.iter().any(is_text).then(|| {
        let folder = options.tokenizer.as_deref().unwrap_or(folder);
        let encoder = keep(Encoder::open(folder, config.vocab_size), problems);
        let template = keep(options.template.open_changed(folder), problems)?;
        encoder.map(|encoder| Arc::new(encoder.with_template(template)))
    });
    let TrainOptions { separator, skip_bad_lines, template, .. } = options;
    if encoder.is_none() && (separator.is_some() || *skip_bad_lines > 0 || !template.is_default()) {
        let text = "no text, which --separator, --skip-bad-lines and the options of chat templates are for";
        problems.push(Diagnostic::new("--data", text).expected("FILE.txt or FILE.jsonl"));
    }
    // A missing tokenizer has been reported.
    let encoder = match encoder {
        Some(found) => Some(found?),
        None => None,
    };
    let mut sources = Vec::new();
    for path in &options.data {
        match CorpusSource::of(path, encoder.as_ref(), options.separator.as_deref()) {
            Ok(source) => sources.push(source),
            Err(problem) => problems.push(problem),
        }
    }
    (sources.len() == options.data.len()).then_some(sources)
}
