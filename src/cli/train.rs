//! `train`: trains a model on cards.
//!
//! Input → output: a model, data and a recipe → a line a step on stderr, metrics in files, checkpoints. Everything that can be
//! wrong is reported together before a card is given anything. A run that is asked to end saves first; one that begins again
//! goes on behind the last complete checkpoint, on whatever cards.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ascend_tp::base::{Diagnostic, Diagnostics};
use ascend_tp::config::ModelConfig;
use ascend_tp::exec::EngineOptions;
use ascend_tp::generate::Model;
use ascend_tp::train::checkpoint::{Checkpoint, Writer};
use ascend_tp::train::data::{DataOptions, Encoder, Loader, Source, State};
use ascend_tp::train::metrics::{self, EventLog, StepLog};
use ascend_tp::train::{Compiled, Layout, Optimizer, Recipe, ScheduleKind, Step, Trainer, Zero, compile, init};
use ascend_tp::weights::{file, fill_from};
use ascend_tp::world::ProcessGroup;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::arguments::{DeviceKind, LayoutOptions};
use super::cards;
use super::failure::{Failure, Outcome};
use super::{interrupt, model, note, processes};

pub(super) const EXAMPLES: &str = "\
A line a step goes to stderr. Ctrl-C and SIGTERM save, if --save is given, and end with exit code 130.

Examples:
  ascend-tp train --model models/kjv-qwen2 --data text.txt --steps 20 --global-batch 4 --seq 64 --cards 2
  ascend-tp train --model DIR --data corpus --recipe recipe.toml --cards 8 --mesh dp=2,tp=4 --zero 1 \\
      --micro-batch 2 --save runs/a --save-every 50 --resume --metrics m.jsonl --tensorboard runs/a
  ascend-tp train --model DIR --init-seed 1 --data corpus.jsonl --cards 8
      weights are drawn; the folder needs a config.json and, for texts, a tokenizer";

/// Options of `train`.
#[derive(Debug, Args)]
pub(super) struct TrainOptions {
    /// Folder with config.json and, unless --init-seed is given, weights [default: the shipped model]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Draw the weights by this seed instead of reading them
    #[arg(long, value_name = "SEED")]
    init_seed: Option<u64>,
    /// Data: FILE.txt, FILE.jsonl, PREFIX of Megatron's .bin and .idx, or FILE.safetensors; may be given again
    #[arg(long, value_name = "PATH", required = true)]
    data: Vec<PathBuf>,
    /// Folder of the tokenizer for texts [default: the model's]
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Decides the order of the samples
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    data_seed: u64,
    /// The recipe; options below stand above it
    #[arg(long, value_name = "FILE")]
    recipe: Option<PathBuf>,
    #[command(flatten)]
    over: Overrides,
    /// Cards [default: 1, or one a process]
    #[arg(long, value_name = "N")]
    cards: Option<usize>,
    /// How the cards are used, outermost first, such as dp=2,tp=4 [default: all for tp]
    #[arg(long, value_name = "AXES")]
    mesh: Option<String>,
    #[command(flatten)]
    layout: LayoutOptions,
    /// What is cut over data-parallel cards: 0 nothing, 1 moments, 2 gradients too
    #[arg(long, value_name = "STAGE", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    zero: u8,
    /// Sequences that a data-parallel card passes at once [default: all of its share]
    #[arg(long, value_name = "N")]
    micro_batch: Option<NonZero<usize>>,
    /// Folder for checkpoints
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Steps between checkpoints [default: only the last]
    #[arg(long, value_name = "STEPS", requires = "save")]
    save_every: Option<NonZero<usize>>,
    /// Keep so many checkpoints [default: all]
    #[arg(long, value_name = "N", requires = "save")]
    keep: Option<NonZero<usize>>,
    /// Go on behind the newest complete checkpoint of --save, if there is one
    #[arg(long, requires = "save")]
    resume: bool,
    /// Append a line of JSON a step to this file
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Write TensorBoard events into this folder
    #[arg(long, value_name = "DIR")]
    tensorboard: Option<PathBuf>,
    /// What computes
    #[arg(long, value_enum, default_value = "auto")]
    device: DeviceKind,
}

/// Keys of the recipe as options.
#[derive(Debug, Args)]
struct Overrides {
    /// Steps of the optimizer
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// Sequences of a step
    #[arg(long, value_name = "N")]
    global_batch: Option<usize>,
    /// Tokens of a sequence
    #[arg(long, value_name = "N")]
    seq: Option<usize>,
    /// The largest norm of all gradients; 0: none
    #[arg(long, value_name = "NORM")]
    clip_norm: Option<f64>,
    /// adamw or sgd
    #[arg(long, value_enum)]
    optimizer: Option<OptimizerName>,
    /// Shares of the old moments of adamw
    #[arg(long, value_name = "B1,B2", value_delimiter = ',', num_args = 1..=2)]
    betas: Option<Vec<f64>>,
    /// Added outside the root by adamw
    #[arg(long, value_name = "EPS")]
    eps: Option<f64>,
    /// Decay of matrices by adamw
    #[arg(long, value_name = "SHARE")]
    weight_decay: Option<f64>,
    /// Share of the old update of sgd
    #[arg(long, value_name = "SHARE")]
    momentum: Option<f64>,
    /// How the rate goes on after the warm-up
    #[arg(long, value_enum)]
    schedule: Option<ScheduleName>,
    /// The largest rate
    #[arg(long, value_name = "RATE")]
    lr: Option<f64>,
    /// The rate of the end
    #[arg(long, value_name = "RATE")]
    min_lr: Option<f64>,
    /// Steps until the largest rate
    #[arg(long, value_name = "N")]
    warmup_steps: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OptimizerName {
    Adamw,
    Sgd,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScheduleName {
    Constant,
    Linear,
    Cosine,
    Wsd,
}

impl Overrides {
    /// The recipe with what was said on the command line.
    fn over(&self, mut recipe: Recipe, problems: &mut Diagnostics) -> Recipe {
        fn set<T: Copy>(to: &mut T, from: Option<T>) {
            *to = from.unwrap_or(*to);
        }
        set(&mut recipe.steps, self.steps);
        set(&mut recipe.global_batch, self.global_batch);
        set(&mut recipe.seq, self.seq);
        set(&mut recipe.clip_norm, self.clip_norm);
        match (self.optimizer, recipe.optimizer) {
            (Some(OptimizerName::Adamw), Optimizer::Sgd { .. }) => recipe.optimizer = Optimizer::default(),
            (Some(OptimizerName::Sgd), Optimizer::Adamw { .. }) => recipe.optimizer = Optimizer::Sgd { momentum: 0.0 },
            _ => {}
        }
        let mut misplaced = |option: &str, is_given: bool, of: &str| {
            if is_given {
                let problem = Diagnostic::new(option, "is no option of the optimizer");
                problems.push(problem.expected(format!("--optimizer {of}")));
            }
        };
        match &mut recipe.optimizer {
            Optimizer::Adamw { betas, eps, weight_decay } => {
                for (beta, given) in betas.iter_mut().zip(self.betas.iter().flatten()) {
                    *beta = *given;
                }
                set(eps, self.eps);
                set(weight_decay, self.weight_decay);
                misplaced("--momentum", self.momentum.is_some(), "sgd");
            }
            Optimizer::Sgd { momentum } => {
                set(momentum, self.momentum);
                misplaced("--betas", self.betas.is_some(), "adamw");
                misplaced("--eps", self.eps.is_some(), "adamw");
                misplaced("--weight-decay", self.weight_decay.is_some(), "adamw");
            }
        }
        let kind = self.schedule.map(|name| match name {
            ScheduleName::Constant => ScheduleKind::Constant,
            ScheduleName::Linear => ScheduleKind::Linear,
            ScheduleName::Cosine => ScheduleKind::Cosine,
            ScheduleName::Wsd => ScheduleKind::Wsd,
        });
        set(&mut recipe.schedule.name, kind);
        set(&mut recipe.schedule.lr, self.lr);
        // A rate that is given alone is not below the one of the end.
        let least = recipe.schedule.min_lr.min(recipe.schedule.lr);
        recipe.schedule.min_lr = self.min_lr.unwrap_or(least);
        set(&mut recipe.schedule.warmup_steps, self.warmup_steps);
        recipe
    }
}

/// Cards by axis.
fn mesh(text: Option<&str>, cards: usize) -> Result<(usize, usize), Diagnostic> {
    let Some(text) = text else { return Ok((1, cards)) };
    let problem =
        |what: &str| Diagnostic::new("--mesh", what).expected("axes dp and tp, such as dp=2,tp=4").found(text);
    let (mut data, mut tensor) = (None, None);
    for part in text.split(',') {
        let (axis, size) = part.split_once('=').ok_or_else(|| problem("no axis with its size"))?;
        let size: usize = size.parse().ok().filter(|size| *size > 0).ok_or_else(|| problem("no number of cards"))?;
        let slot = match axis {
            "dp" => &mut data,
            "tp" => &mut tensor,
            _ => return Err(problem("an axis that training does not have")),
        };
        if slot.replace(size).is_some() {
            return Err(problem("an axis is given twice"));
        }
    }
    let (data, tensor) = (data.unwrap_or(1), tensor.unwrap_or(1));
    match data * tensor == cards {
        true => Ok((data, tensor)),
        false => Err(Diagnostic::new("--mesh", "is not of the cards")
            .expected(format!("a product of {cards}, as --cards says"))
            .found(format!("{data} × {tensor} = {}", data * tensor))),
    }
}

/// Runs the command.
pub(super) fn run(options: &TrainOptions) -> Result<Outcome, Failure> {
    let group = processes::join()?;
    let done = run_in(options, &group);
    if let Some(text) = done.as_ref().err().and_then(Failure::for_peers) {
        group.fail(&text);
    }
    done
}

fn run_in(options: &TrainOptions, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
    let stop = interrupt::catch(group);
    let folder = model::folder(options.model.as_deref())?;
    let wanted = processes::cards(options.cards, group, Some(1)).map_err(Diagnostics::from)?;
    let cards = cards::open_at_least(options.device, group, if group.size() == 1 { wanted } else { 0 })?;
    cards.require_numbers()?;
    let mut job = processes::agree(group, &format!("{options:?}"), Job::new(options, &folder, wanted))?;
    // A run that was told to stop ends after a step, so the engine does not hear of it.
    drop(stop);
    let engine = EngineOptions { group: Arc::clone(group), marks: cards.marks, ..EngineOptions::default() };
    let mut trainer = job.start(&cards.cann, &engine)?;
    let done = job.train(&mut trainer, group)?;
    cards.check_reports()?;
    Ok(done)
}

/// What a checkpoint keeps besides tensors.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The folder that the model came from.
    model: PathBuf,
    recipe: Recipe,
    data: State,
}

/// What to do, checked.
struct Job<'a> {
    options: &'a TrainOptions,
    folder: PathBuf,
    config: ModelConfig,
    /// None: weights are drawn.
    model: Option<Model>,
    recipe: Recipe,
    layout: Layout,
    /// Until the engine has it.
    compiled: Option<Compiled>,
    loader: Loader,
    /// Where to go on.
    checkpoint: Option<Checkpoint>,
    first: usize,
}

impl<'a> Job<'a> {
    /// # Errors
    /// All problems of options, recipe, model, data and checkpoint.
    fn new(options: &'a TrainOptions, folder: &Path, cards: usize) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let read = |path: &PathBuf| {
            let text = file::read_text(path)
                .map_err(|error| Diagnostic::new(path.display().to_string(), "cannot be read").found(error))?;
            Recipe::from_toml(&text)
        };
        let recipe = options.recipe.as_ref().map_or_else(|| Ok(Recipe::default()), read);
        let recipe = recipe.map_err(|found| problems.append(found)).ok();
        let recipe = recipe.map(|recipe| options.over.over(recipe, &mut problems));
        let model = match options.init_seed {
            None => Some(Model::open(folder)),
            Some(_) => None,
        };
        let model = model.and_then(|model| model.map_err(|found| problems.append(found)).ok());
        let config = match (&model, options.init_seed) {
            (Some(model), _) => Some(model.config.clone()),
            (None, Some(_)) => Model::open_config(folder).map_err(|found| problems.append(found)).ok(),
            (None, None) => None,
        };
        let axes = mesh(options.mesh.as_deref(), cards).map_err(|problem| problems.push(problem)).ok();
        let (Some(recipe), Some(config), Some((data, tensor))) = (recipe, config, axes) else { return Err(problems) };
        let share = recipe.global_batch.div_ceil(data).max(1);
        let layout = Layout {
            data,
            tensor,
            residual: options.layout.residual(),
            zero: Zero::of_stage(options.zero).unwrap_or_default(),
            micro_batch: options.micro_batch.map_or(share, NonZero::get),
        };
        let compiled = compile(&config, &recipe, &layout).map_err(|found| problems.append(found)).ok();
        let checkpoint = match options.save.as_ref().filter(|folder| folder.exists()) {
            Some(folder) => Checkpoint::latest(folder).map_err(|found| problems.append(found)).ok().flatten(),
            None => None,
        };
        if let Some(found) = checkpoint.as_ref().filter(|_| !options.resume) {
            let problem = Diagnostic::new("--save", "the folder has checkpoints of a run");
            let help = "go on with it by --resume, or choose another folder";
            problems.push(problem.found(found.path().display()).help(help));
        }
        let kept = checkpoint.as_ref().map(|checkpoint| kept(checkpoint, &mut problems));
        let kept = kept.flatten();
        let first =
            checkpoint.as_ref().map_or(0, |checkpoint| usize::try_from(checkpoint.index().step).unwrap_or(usize::MAX));
        let data = sources(options, folder, &config, &mut problems).map(|sources| DataOptions {
            sources,
            sequence: recipe.seq,
            global_batch: recipe.global_batch,
            seed: options.data_seed,
            vocabulary: config.vocab_size,
            steps: recipe.steps as u64,
        });
        let loader = data.and_then(|data| match Loader::start(&data, first as u64) {
            Ok(loader) => Some(loader),
            Err(ascend_tp::train::data::Error::Refused(found)) => {
                problems.append(found);
                None
            }
            Err(error) => {
                problems.push(Diagnostic::new("--data", "cannot be read").found(error));
                None
            }
        });
        if let (Some(loader), Some(kept)) = (&loader, &kept)
            && let Err(found) = loader.state().check_continues(&kept.data)
        {
            problems.append(found);
        }
        match (compiled, loader) {
            (Some(compiled), Some(loader)) if problems.is_empty() => {
                let (folder, compiled) = (folder.to_path_buf(), Some(compiled));
                Ok(Self { options, folder, config, model, recipe, layout, compiled, loader, checkpoint, first })
            }
            _ => Err(problems),
        }
    }

    fn start(&mut self, cann: &Arc<ascend_tp::Cann>, engine: &EngineOptions) -> Result<Trainer, Failure> {
        // It is there once.
        let Some(compiled) = self.compiled.take() else { return Err(Failure::Elsewhere) };
        let inits = compiled.inits.clone();
        let fill = |shards: &ascend_tp::exec::Shards<'_>| match (&self.checkpoint, &self.model) {
            (Some(_), _) => Ok(()),
            (None, Some(model)) => fill_from(&model.checkpoint, shards, &|_| ()),
            (None, None) => init::fill(shards, &inits, self.options.init_seed.unwrap_or_default()),
        };
        let mut trainer = Trainer::start(cann, &self.config, &self.recipe, self.layout, compiled, engine, fill)?;
        if let Some(checkpoint) = &self.checkpoint {
            trainer.restore(checkpoint, self.first)?;
        }
        Ok(trainer)
    }

    fn train(&mut self, trainer: &mut Trainer, group: &Arc<ProcessGroup>) -> Result<Outcome, Failure> {
        let speaks = group.is_first();
        let mut writer = match &self.options.save {
            Some(folder) => {
                Some(Writer::new(folder, self.options.keep, trainer.sharding().clone(), Arc::clone(group))?)
            }
            None => None,
        };
        let mut logs = Logs::begin(self.options, self.first, speaks)?;
        if speaks && self.first > 0 {
            note(&format!("goes on at step {}", self.first));
        }
        let mut saved = self.first;
        while trainer.next_step() < self.recipe.steps {
            let ends = group.size() == 1 && interrupt::is_requested();
            if ends {
                break;
            }
            let batch = self.loader.next()?;
            let began = Instant::now();
            let step = trainer.step(&batch)?;
            logs.write(&step, self.recipe.steps, began.elapsed().as_secs_f64())?;
            let done = step.step + 1;
            let is_due = self.options.save_every.is_some_and(|every| done.is_multiple_of(every.get()));
            if let Some(writer) = writer.as_mut().filter(|_| is_due) {
                self.save(trainer, writer)?;
                saved = done;
            }
        }
        if let Some(writer) = &mut writer {
            if saved < trainer.next_step() {
                self.save(trainer, writer)?;
            }
            if let Some(found) = writer.finish()?.filter(|_| speaks) {
                note(&format!("saved {}", found.path.display()));
            }
        }
        if trainer.next_step() < self.recipe.steps { Err(Failure::Interrupted) } else { Ok(Outcome::Done) }
    }

    fn save(&self, trainer: &mut Trainer, writer: &mut Writer) -> Result<(), Failure> {
        let kept = Kept { model: self.folder.clone(), recipe: self.recipe, data: self.loader.state() };
        let state = serde_json::to_value(kept).map_err(|error| Failure::Run(error.into()))?;
        writer.begin(trainer.next_step() as u64, state, trainer.parts()?)?;
        Ok(())
    }
}

/// What a checkpoint says of its run.
fn kept(checkpoint: &Checkpoint, problems: &mut Diagnostics) -> Option<Kept> {
    match serde_json::from_value(checkpoint.index().state.clone()) {
        Ok(kept) => Some(kept),
        Err(error) => {
            let place = checkpoint.path().display().to_string();
            problems.push(Diagnostic::new(place, "its state is not of a training run").found(error));
            None
        }
    }
}

fn sources(
    options: &TrainOptions,
    folder: &Path,
    config: &ModelConfig,
    problems: &mut Diagnostics,
) -> Option<Vec<Source>> {
    let is_text = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "txt" || extension == "jsonl");
    let encoder = options.data.iter().any(is_text).then(|| {
        let folder = options.tokenizer.as_deref().unwrap_or(folder);
        Encoder::open(folder, config.vocab_size).map(Arc::new).map_err(|found| problems.append(found)).ok()
    });
    // A text without its tokenizer is no second problem.
    let encoder = match encoder {
        Some(found) => Some(found?),
        None => None,
    };
    let mut found = Vec::new();
    for path in &options.data {
        match Source::of(path, encoder.as_ref(), None) {
            Ok(source) => found.push(source),
            Err(problem) => problems.push(problem),
        }
    }
    (found.len() == options.data.len()).then_some(found)
}

/// Where the numbers of steps go.
struct Logs {
    steps: Option<StepLog>,
    events: Option<EventLog>,
    speaks: bool,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Logs {
    fn begin(options: &TrainOptions, first: usize, speaks: bool) -> Result<Self, Failure> {
        let first = first as u64;
        let steps = options.metrics.as_ref().filter(|_| speaks).map(|path| StepLog::begin(path, first)).transpose()?;
        let events = options.tensorboard.as_ref().filter(|_| speaks);
        let events =
            events.map(|folder| EventLog::begin(folder, first, now())).transpose().map_err(Diagnostics::from)?;
        Ok(Self { steps, events, speaks })
    }

    fn write(&mut self, step: &Step, steps: usize, seconds: f64) -> Result<(), Failure> {
        let failed = |problem: Diagnostic| Failure::Run(Diagnostics::from(problem).into());
        let (number, rate) = (step.step as u64, step.labels as f64 / seconds);
        if self.speaks {
            note(&format!(
                "step {:>5} of {steps}  loss {:.4}  norm {:.3}  lr {:.2e}  {rate:.0} tokens/s",
                step.step, step.loss, step.grad_norm, step.rate
            ));
        }
        if let Some(log) = &mut self.steps {
            let line = metrics::Step {
                step: number,
                loss: step.loss,
                grad_norm: step.grad_norm,
                lr: step.rate,
                tokens: step.labels as u64,
                seconds,
                more: std::collections::BTreeMap::default(),
            };
            log.write(&line).map_err(failed)?;
        }
        if let Some(log) = &mut self.events {
            let numbers =
                [("loss", step.loss), ("grad_norm", step.grad_norm), ("lr", step.rate), ("tokens_per_second", rate)];
            log.write(number, now(), &numbers).map_err(failed)?;
        }
        Ok(())
    }
}
