//! A model on cards: compiled, loaded, and ready for requests.
//!
//! - Input: a [`Model`] and a [`Deployment`].
//! - Output: a [`Session`].
//! - Invariants: problems that can be known in advance are reported before a card is opened. All
//!   programs are compiled and prepared before the first request.
//! - Not here: steps (`steps`), and a static batch (`batch`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::base::{Bytes, Diagnostic, Diagnostics, Precision};
use crate::compile::{Deployment, ServingPrograms};
use crate::config::ModelConfig;
use crate::device::Cann;
use crate::exec::{self, Engine, EngineOptions, Launching, ProgramId, Shards, target_of};
use crate::placement::Residual;
use crate::program::models::Head;
use crate::schedule::Exchanges;
use crate::serving::{Scheduler, SchedulerConfig};
use crate::weights::fill_from;
use crate::world::ProcessGroup;

use super::drafts::{LookupOptions, Speculation};
use super::error::Error;
use super::grammar::ConstraintCompiler;
use super::inputs::InputBuilder;
use super::limits::RequestLimits;
use super::model::Model;
use super::runner::StepRunner;
use super::sequence::RunningSequence;
use super::steps::{SequenceKey, StepInFlight};

/// A model on cards that is ready to generate.
///
/// ```
/// # use ascend_tp::emulator::{Config, Emulator};
/// # let emulator = Emulator::new(Config::with_cards(2))?;
/// # let cann = ascend_tp::Cann::new(emulator.table())?;
///
/// use std::ops::ControlFlow;
///
/// use ascend_tp::generate::{Model, Request, RequestEvent, Session};
///
/// let model = Model::open("models/kjv-qwen2".as_ref())?;
/// let mut session = Session::builder(&cann, &model).cards(2).batch(2).context(32).start()?;
/// let requests = ["In the beginning", "The king"]
///     .map(|prompt| Request { max_new_tokens: Some(3), ..Request::new(prompt) });
/// let answers = session.generate(&requests, &mut |event| {
///     if let RequestEvent::Token(token) = event {
///         println!("request {}: {}", token.request, token.text);
///     }
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(answers.sequences.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Session {
    pub(super) config: ModelConfig,
    pub(super) deployment: Deployment,
    pub(super) runner: StepRunner,
    /// A scheduler for each pool of cache blocks.
    pub(super) pools: Vec<Scheduler>,
    pub(super) sequences: BTreeMap<SequenceKey, RunningSequence>,
    /// Steps on the cards, the oldest first.
    pub(super) in_flight: VecDeque<StepInFlight>,
    /// Number of decode steps before one is timed, if a static batch wants it.
    pub(super) until_timed: Option<usize>,
    /// Number of requests that share no prefix with other ones.
    pub(super) salts: u64,
    pub(super) prefix_cache: PrefixCache,
    pub(super) lookup: Option<LookupOptions>,
    pub(super) group: Arc<ProcessGroup>,
    pub(super) load_seconds: f64,
    /// Default stop ids of requests.
    pub(super) stop_ids: Vec<u32>,
    pub(super) limits: RequestLimits,
}

/// Whether requests share the blocks of equal prefixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PrefixCache {
    /// A request reads the blocks that earlier requests computed for its first tokens.
    #[default]
    Shared,
    /// Each request computes its whole prompt. Its samples share it.
    Off,
}

/// The prefill program of [`Deployment::compile`].
pub const PREFILL: ProgramId = ProgramId(0);

/// The decode program of [`Deployment::compile`], which makes one token per sequence.
pub const DECODE: ProgramId = ProgramId(1);

/// Options of a [`Session`]. Defaults follow from the model.
#[must_use = "nothing is done before `start`"]
pub struct SessionBuilder<'a> {
    cann: &'a Arc<Cann>,
    model: &'a Model,
    deployment: Deployment,
    cards: Option<usize>,
    lookup: Option<LookupOptions>,
    constraints: Option<Arc<dyn ConstraintCompiler>>,
    prefix_cache: PrefixCache,
    engine: EngineOptions,
    weights_of: Option<&'a Session>,
    progress: &'a (dyn Fn(Bytes, Bytes) + Sync),
}

impl std::fmt::Debug for SessionBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionBuilder")
            .field("deployment", &self.deployment)
            .field("engine", &self.engine)
            .finish()
    }
}

impl<'a> SessionBuilder<'a> {
    /// Sets the number of cards. Default: all cards, or one per process.
    pub const fn cards(mut self, cards: usize) -> Self {
        self.cards = Some(cards);
        self
    }

    /// Sets the precision. Default: the element type of the model.
    pub fn precision(mut self, precision: impl Into<Precision>) -> Self {
        self.deployment.precision = precision.into();
        self
    }

    /// Sets the layout of the residual stream during prefill. Default: replicated.
    #[doc(hidden)]
    pub const fn residual(mut self, residual: Residual) -> Self {
        self.deployment.residual = residual;
        self
    }

    /// Sets the maximum number of sequences that run at once. Default: 1.
    pub const fn batch(mut self, batch: usize) -> Self {
        self.deployment.batch = batch;
        self
    }

    /// Sets the capacity for prompt and continuation together, in tokens. The default is the
    /// model's limit, at most 4096.
    ///
    /// This also sets [`longest_prompt`](Self::longest_prompt) to `tokens - 1`. To change that,
    /// call it later.
    pub const fn context(mut self, tokens: usize) -> Self {
        self.deployment.context = tokens;
        self.deployment.longest_prompt = tokens.saturating_sub(1);
        self
    }

    /// Sets the maximum number of prompt tokens in a step. Longer prompts are read in chunks.
    #[doc(hidden)]
    pub const fn longest_prompt(mut self, tokens: usize) -> Self {
        self.deployment.longest_prompt = tokens;
        self
    }

    /// Sets the output of a step. Default: the logits. With [`Head::LastToken`] logits stay on the
    /// cards, and requests that need them are refused.
    pub const fn head(mut self, head: Head) -> Self {
        self.deployment.head = head;
        self
    }

    /// Sets how many of the most likely tokens of a row each card returns. The host receives all
    /// logits of a row only if these tokens do not suffice to choose from. The output does not
    /// depend on it. Default: 64. With 0, and with stages, the host receives all logits.
    pub const fn candidates(mut self, count: usize) -> Self {
        self.deployment.candidates = count;
        self
    }

    /// Sets the number of cache blocks of 128 tokens that each group of cards shares. Default:
    /// enough for [`batch`](Self::batch) sequences of full length.
    pub const fn cache_blocks(mut self, blocks: usize) -> Self {
        self.deployment.cache_blocks = Some(blocks.saturating_add(1));
        self
    }

    /// Drafts tokens, and verifies them in one run. The output does not change.
    pub fn speculate(mut self, speculation: impl Into<Speculation>) -> Self {
        let speculation = speculation.into();
        self.deployment.drafts = speculation.drafts();
        self.deployment.predicts = speculation == Speculation::Prediction;
        self.lookup = speculation.lookup().cloned();
        self
    }

    /// Lets requests ask for the log-probabilities of their prompts. The session then has more
    /// programs.
    pub const fn prompt_log_probabilities(mut self) -> Self {
        self.deployment.scores_prompts = true;
        self
    }

    /// Sets the compiler for the grammars of requests.
    pub fn constraints(mut self, compiler: Arc<dyn ConstraintCompiler>) -> Self {
        self.constraints = Some(compiler);
        self
    }

    /// Sets whether requests share the blocks of equal prefixes. Default: they do.
    pub const fn prefix_cache(mut self, prefix_cache: PrefixCache) -> Self {
        self.prefix_cache = prefix_cache;
        self
    }

    /// Sets every field of the deployment.
    #[doc(hidden)]
    pub const fn deployment(mut self, deployment: Deployment) -> Self {
        self.cards = Some(deployment.cards);
        self.deployment = deployment;
        self
    }

    /// Sets the engine options: process group, launch mode, markers.
    pub fn engine(mut self, engine: EngineOptions) -> Self {
        self.engine = engine;
        self
    }

    /// Shares the weights of another session instead of loading them again.
    pub const fn weights_of(mut self, session: &'a Session) -> Self {
        self.weights_of = Some(session);
        self
    }

    /// Sets a callback for loading progress: bytes of the piece that reached a card, and total
    /// bytes for the cards of this process.
    #[doc(hidden)]
    pub const fn progress(mut self, progress: &'a (dyn Fn(Bytes, Bytes) + Sync)) -> Self {
        self.progress = progress;
        self
    }

    /// Splits the model over the cards and loads the weights. In a world of several processes, each
    /// process starts the same session.
    ///
    /// # Errors
    /// Before any card is opened: all options that do not fit the model. Later: the failure of a
    /// card or process.
    pub fn start(mut self) -> Result<Session, Error> {
        self.lookup.as_ref().map_or(Ok(()), LookupOptions::check)?;
        let world = self.engine.group.size();
        self.deployment.cards = match self.cards {
            Some(cards) => cards,
            None if world > 1 => world,
            None => self.cann.device_count().map_err(exec::Error::from)?,
        };
        if let Some(other) = self.weights_of {
            self.engine.weights = Some(other.runner.engine.weights());
        }
        let (model, progress) = (self.model, self.progress);
        if self.deployment.predicts {
            model.check_prediction()?;
        }
        let mut session =
            Session::start_filled(self.cann, &model.config, &self.deployment, &self.engine, |shards| {
                let total = shards.bytes();
                fill_from(&model.checkpoint, shards, &|piece| progress(piece, total))
            })?;
        session.limits.tokenizer = model.tokenizer();
        session.stop_ids = model.stop_ids();
        session.lookup = self.lookup;
        session.limits.constraints = self.constraints;
        session.prefix_cache = self.prefix_cache;
        Ok(session)
    }
}

impl Session {
    /// Returns a builder for a session of `model` on the cards of `cann`.
    pub fn builder<'a>(cann: &'a Arc<Cann>, model: &'a Model) -> SessionBuilder<'a> {
        SessionBuilder {
            cann,
            model,
            deployment: Deployment::of(&model.config, 1),
            cards: None,
            lookup: None,
            constraints: None,
            prefix_cache: PrefixCache::default(),
            engine: EngineOptions::default(),
            weights_of: None,
            progress: &|_, _| (),
        }
    }

    /// Starts a session with the weights that `fill` provides. Without a tokenizer, prompts must be
    /// ids.
    ///
    /// # Errors
    /// The deployment cannot be compiled, a card refuses a call, or `fill` fails.
    #[doc(hidden)]
    pub fn start_filled(
        cann: &Arc<Cann>,
        config: &ModelConfig,
        deployment: &Deployment,
        engine: &EngineOptions,
        fill: impl FnOnce(&Shards<'_>) -> Result<(), exec::Error>,
    ) -> Result<Self, Error> {
        let started = Instant::now();
        let deployment = &on_cards(cann, deployment, engine);
        let ServingPrograms { shapes, logit_rows, plans } = compiled(deployment, config)?;
        let pools =
            (0..deployment.grid.depth).map(|_| Scheduler::new(SchedulerConfig::of(deployment, config)));
        let pools = pools.collect::<Result<Vec<_>, _>>()?;
        let mut ranks = Engine::start(cann, plans, engine)?;
        ranks.load(fill)?;
        let load_seconds = started.elapsed().as_secs_f64();
        let inputs = InputBuilder::new(config, deployment.precision.activations);
        let sequences = deployment.batch.div_ceil(pools.len());
        let sizes = [pools.len(), sequences];
        let mut runner = StepRunner::new(ranks, shapes, logit_rows, inputs, sizes, config.vocab_size);
        if engine.launching == Launching::Captured {
            runner.record_graphs()?;
        }
        Ok(Self {
            config: config.clone(),
            deployment: *deployment,
            runner,
            pools,
            sequences: BTreeMap::new(),
            in_flight: VecDeque::new(),
            until_timed: None,
            salts: 0,
            prefix_cache: PrefixCache::default(),
            lookup: None,
            group: Arc::clone(&engine.group),
            load_seconds,
            stop_ids: Vec::new(),
            limits: RequestLimits {
                vocabulary: config.vocab_size,
                context: deployment.longest_sequence(config),
                head: deployment.head,
                scores_prompts: deployment.scores_prompts,
                adapters: Arc::clone(&config.adapters),
                constraints: None,
                tokenizer: Err(Diagnostic::new("session", "was made without a tokenizer").into()),
            },
        })
    }

    /// Returns the deployment of the session.
    #[must_use]
    #[doc(hidden)]
    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }
}

fn on_cards(cann: &Cann, deployment: &Deployment, options: &EngineOptions) -> Deployment {
    let has = target_of(cann, &options.group, &options.kernels);
    let target = match deployment.target.exchanges {
        Exchanges::Apart => has.apart(),
        Exchanges::WithProducts => has,
    };
    Deployment { target, ..*deployment }
}

fn compiled(deployment: &Deployment, config: &ModelConfig) -> Result<ServingPrograms, Diagnostics> {
    if !matches!(deployment.head, Head::LastLogits | Head::LastToken) {
        let problem = Diagnostic::new("head", "a session looks at the last position alone");
        let found = deployment.head.output();
        return Err(problem.expected("the last logits, or the last token").found(found).into());
    }
    deployment.compile_serving(config)
}
