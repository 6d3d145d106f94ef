//! A model on cards: compiled, loaded, and ready for requests.
//!
//! - Input: a [`Model`] and a [`Deployment`].
//! - Output: a [`Session`].
//! - Invariants: problems that can be known in advance are reported before a card is opened.
//!   Programs for other prompt lengths are compiled when needed, on the same memory.
//! - Not here: the loop over a batch, in `batch`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crate::base::{Bytes, Diagnostic, Diagnostics, Precision};
use crate::compile::Deployment;
use crate::config::ModelConfig;
use crate::device::Cann;
use crate::exec::{self, Engine, EngineOptions, ProgramId, Shards, target_of};
use crate::placement::Residual;
use crate::program::models::Head;
use crate::schedule::{Exchanges, Plan};
use crate::weights::fill_from;
use crate::world::ProcessGroup;

use super::bucket;
use super::error::Error;
use super::model::Model;
use super::tokenizer::Tokenizer;

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
    pub(super) engine: Engine,
    pub(super) group: Arc<ProcessGroup>,
    pub(super) load_seconds: f64,
    /// Default stop ids of requests.
    pub(super) stop_ids: Vec<u32>,
    /// The tokenizer, or the reason it could not be loaded.
    pub(super) tokenizer: Result<Arc<Tokenizer>, Diagnostics>,
    /// Prefill programs by their length in tokens.
    prompt_programs: BTreeMap<usize, ProgramId>,
}

/// The prefill program of a session's engine.
pub const PREFILL: ProgramId = ProgramId(0);

/// The decode program, which makes one token per sequence.
pub const DECODE: ProgramId = ProgramId(1);

/// Options of a [`Session`]. Defaults follow from the model.
#[must_use = "nothing is done before `start`"]
pub struct SessionBuilder<'a> {
    cann: &'a Arc<Cann>,
    model: &'a Model,
    deployment: Deployment,
    cards: Option<usize>,
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

    /// Sets the maximum number of concurrent requests. Default: 1.
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

    /// Sets the maximum length of a prompt, in tokens. Longer prompts need more memory.
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
        let world = self.engine.group.size();
        self.deployment.cards = match self.cards {
            Some(cards) => cards,
            None if world > 1 => world,
            None => self.cann.device_count().map_err(exec::Error::from)?,
        };
        if let Some(other) = self.weights_of {
            self.engine.weights = Some(other.engine.weights());
        }
        let (model, progress) = (self.model, self.progress);
        let mut session =
            Session::start_filled(self.cann, &model.config, &self.deployment, &self.engine, |shards| {
                let total = shards.bytes();
                fill_from(&model.checkpoint, shards, &|piece| progress(piece, total))
            })?;
        session.tokenizer = model.tokenizer();
        session.stop_ids = model.stop_ids();
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
        let programs = compiled(deployment, config)?;
        let mut ranks = Engine::start(cann, programs, engine)?;
        ranks.load(fill)?;
        let load_seconds = started.elapsed().as_secs_f64();
        let prompt_programs = BTreeMap::from([(deployment.longest_prompt, PREFILL)]);
        Ok(Self {
            config: config.clone(),
            deployment: *deployment,
            engine: ranks,
            group: Arc::clone(&engine.group),
            load_seconds,
            stop_ids: Vec::new(),
            tokenizer: Err(Diagnostic::new("session", "was made without a tokenizer").into()),
            prompt_programs,
        })
    }

    /// Returns the deployment of the session.
    #[must_use]
    #[doc(hidden)]
    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    #[cfg(test)]
    fn prompt_lengths(&self) -> impl Iterator<Item = usize> {
        self.prompt_programs.keys().copied()
    }

    /// Returns the prefill program for prompts of up to `longest` tokens, and its length. Compiles
    /// the program at its first use.
    pub(super) fn prompt_program(&mut self, longest: usize) -> Result<(ProgramId, usize), Error> {
        let tokens = bucket::rounded_up(longest, self.deployment.longest_prompt);
        if let Some(program) = self.prompt_programs.get(&tokens) {
            return Ok((*program, tokens));
        }
        let compile = |of: &Deployment| of.compile_shorter(&self.config, tokens);
        let mut plans = compile(&self.deployment)?;
        if !self.engine.has_room(&plans) {
            // Fused exchanges need equal rows per card. If only this program has them, its gathered
            // matrices need more memory than was reserved.
            plans = compile(&Deployment { target: self.deployment.target.apart(), ..self.deployment })?;
        }
        let program = self.engine.add_program(plans)?;
        self.prompt_programs.insert(tokens, program);
        Ok((program, tokens))
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

/// Compiles the programs in the order [`PREFILL`], [`DECODE`].
fn compiled(deployment: &Deployment, config: &ModelConfig) -> Result<Vec<Vec<Plan>>, Diagnostics> {
    if deployment.head == Head::AllLogits {
        let problem = Diagnostic::new("head", "a session looks at the last position alone");
        return Err(problem.expected("the last logits, or the last token").found("all logits").into());
    }
    Ok(deployment.compile(config)?.into_vec())
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::path::Path;

    use ascend_tp_emulator::{Config, Emulator};

    use super::super::inputs::{SequenceInput, inputs};
    use super::super::request::Request;
    use super::*;
    use crate::base::DType;
    use crate::program::models::RunShape;

    fn session(cann: &Arc<Cann>, model: &Model, cards: usize, residual: Residual) -> Session {
        let deployment = Deployment {
            precision: DType::BF16.into(),
            residual,
            batch: 2,
            longest_prompt: 100,
            context: 104,
            head: Head::LastLogits,
            ..Deployment::of(&model.config, cards)
        };
        Session::builder(cann, model).deployment(deployment).start().unwrap()
    }

    fn prompts(tokens: [usize; 2]) -> Vec<Vec<u32>> {
        tokens.map(|tokens| (0..tokens).map(|at| (at * 37 % 4000) as u32 + 3).collect()).to_vec()
    }

    #[test]
    fn a_shorter_program_gives_the_bits_of_the_longest_and_is_made_once() {
        let model = Model::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/kjv-qwen2")).unwrap();
        let emulator = Emulator::new(Config::with_cards(3)).unwrap();
        let cann = Cann::new(emulator.table()).unwrap();
        for (cards, residual) in [(1, Residual::Replicate), (3, Residual::Replicate), (3, Residual::Seq)] {
            let mut session = session(&cann, &model, cards, residual);
            for (tokens, room, lengths) in [
                ([20, 9], 32, vec![32, 100]),
                ([3, 31], 32, vec![32, 100]),
                ([1, 33], 48, vec![32, 48, 100]),
                ([97, 50], 100, vec![32, 48, 100]),
            ] {
                let prompts = prompts(tokens);
                let rows: Vec<SequenceInput<'_>> = prompts
                    .iter()
                    .map(|ids| SequenceInput { ids, start: 0, prompt_length: ids.len() })
                    .collect();
                let longest = *tokens.iter().max().unwrap();
                let (program, found) = session.prompt_program(longest).unwrap();
                assert_eq!((found, session.prompt_lengths().collect::<Vec<_>>()), (room, lengths));
                let run = |session: &mut Session, program, room| {
                    let run = RunShape::new(2, room, room);
                    let inputs = inputs(&model.config, run, DType::BF16, Head::LastLogits, &rows);
                    session.engine.run(program, &inputs).unwrap()
                };
                // The longest program writes cache rows that the shorter one must not read.
                let longest = run(&mut session, PREFILL, 100);
                assert_eq!(run(&mut session, program, room), longest, "{tokens:?} on {cards} cards");
                let request = |ids: &Vec<u32>| {
                    let (stop_ids, max_new_tokens) = (Some(Vec::new()), Some(4));
                    Request { stop_ids, max_new_tokens, ..Request::new(ids.as_slice()) }
                };
                let requests: Vec<Request> = prompts.iter().map(request).collect();
                let found = session.generate(&requests, &mut |_| ControlFlow::Continue(())).unwrap();
                assert!(found.sequences.iter().all(|sequence| sequence.ids.len() == 4));
            }
        }
    }
}
