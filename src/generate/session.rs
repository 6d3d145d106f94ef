//! A model on cards: compiled, loaded, ready for requests.
//!
//! Input → output: a [`Model`] and [`Deployment`] → a [`Session`]. Invariants: all that can be
//! known to be wrong is said before a card is opened; programs for prompts of other lengths are
//! made when they are first needed, on the same memory. What it does with requests stands in
//! `serve`.

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

/// A model on cards, ready to generate.
#[derive(Debug)]
pub struct Session {
    pub(super) config: ModelConfig,
    pub(super) deployment: Deployment,
    pub(super) engine: Engine,
    pub(super) group: Arc<ProcessGroup>,
    pub(super) load_seconds: f64,
    /// Ids that end sequences of requests that name none.
    pub(super) stop_ids: Vec<u32>,
    /// Or why there is none.
    pub(super) tokenizer: Result<Arc<Tokenizer>, Diagnostics>,
    /// The programs that read prompts, by the tokens they have room for.
    prompt_programs: BTreeMap<usize, ProgramId>,
}

/// The program that reads the prompts, of a session's engine.
pub const PREFILL: ProgramId = ProgramId(0);

/// The program that makes one token a sequence.
pub const DECODE: ProgramId = ProgramId(1);

/// What makes a [`Session`]; what is not said follows from the model.
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
    /// Number of cards; all there are by default, or one for each process of the world.
    pub const fn cards(mut self, cards: usize) -> Self {
        self.cards = Some(cards);
        self
    }

    /// What the model computes in; its own type by default.
    pub fn precision(mut self, precision: impl Into<Precision>) -> Self {
        self.deployment.precision = precision.into();
        self
    }

    /// How the residual stream lies during prefill; whole by default.
    pub const fn residual(mut self, residual: Residual) -> Self {
        self.deployment.residual = residual;
        self
    }

    /// Requests at once; 1 by default.
    pub const fn batch(mut self, batch: usize) -> Self {
        self.deployment.batch = batch;
        self
    }

    /// Tokens of a prompt and its continuation together; up to 4096 by default. The longest prompt
    /// leaves room for one token, unless [`longest_prompt`](Self::longest_prompt) says otherwise
    /// after this.
    pub const fn context(mut self, tokens: usize) -> Self {
        self.deployment.context = tokens;
        self.deployment.longest_prompt = tokens.saturating_sub(1);
        self
    }

    /// Tokens of the longest prompt: the memory of a run grows with it.
    pub const fn longest_prompt(mut self, tokens: usize) -> Self {
        self.deployment.longest_prompt = tokens;
        self
    }

    /// What the cards give back of a step, which says what requests may ask for: the logits by
    /// default. With [`Head::LastToken`] no logits leave the cards, and requests that need more are
    /// refused.
    pub const fn head(mut self, head: Head) -> Self {
        self.deployment.head = head;
        self
    }

    /// All of it at once.
    pub const fn deployment(mut self, deployment: Deployment) -> Self {
        self.cards = Some(deployment.cards);
        self.deployment = deployment;
        self
    }

    /// How the engine runs: the processes of a world of several, launching, marks.
    pub fn engine(mut self, engine: EngineOptions) -> Self {
        self.engine = engine;
        self
    }

    /// The weights are those of another session, which are neither read nor held again.
    pub const fn weights_of(mut self, session: &'a Session) -> Self {
        self.weights_of = Some(session);
        self
    }

    /// Is told the bytes of each piece that has reached a card, and the bytes that the cards of
    /// this process will get.
    pub const fn progress(mut self, progress: &'a (dyn Fn(Bytes, Bytes) + Sync)) -> Self {
        self.progress = progress;
        self
    }

    /// Splits the model over the cards and loads the weights. In a world of several processes each
    /// makes the same session and gets the same tokens.
    ///
    /// # Errors
    /// Before any card is opened: options that do not fit the model, all of them. Then the failure
    /// of a card or of another process.
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
    /// What makes a session of a model on the cards of `cann`.
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

    /// A session with weights from wherever `fill` takes them. It has no tokenizer: requests are
    /// ids.
    ///
    /// # Errors
    /// As for [`SessionBuilder::start`].
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

    /// What the session was made for.
    #[must_use]
    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Lengths in tokens for which there is a program that reads prompts, ascending. The longest
    /// has one from the start, others are compiled and prepared when a prompt first needs them, and
    /// kept.
    #[cfg(test)]
    fn prompt_lengths(&self) -> impl Iterator<Item = usize> {
        self.prompt_programs.keys().copied()
    }

    /// The program that reads prompts of up to `longest` tokens, and how many tokens it has room
    /// for.
    pub(super) fn prompt_program(&mut self, longest: usize) -> Result<(ProgramId, usize), Error> {
        let tokens = bucket::rounded_up(longest, self.deployment.longest_prompt);
        if let Some(program) = self.prompt_programs.get(&tokens) {
            return Ok((*program, tokens));
        }
        let compile = |of: &Deployment| of.compile_shorter(&self.config, tokens);
        let mut plans = compile(&self.deployment)?;
        if !self.engine.has_room(&plans) {
            // Where the cards have as many rows each, and of the longest prompt had not, the
            // matrices of a gather live longer.
            plans = compile(&Deployment { target: self.deployment.target.apart(), ..self.deployment })?;
        }
        let program = self.engine.add_program(plans)?;
        self.prompt_programs.insert(tokens, program);
        Ok((program, tokens))
    }
}

/// The deployment as these cards run it.
fn on_cards(cann: &Cann, deployment: &Deployment, options: &EngineOptions) -> Deployment {
    let has = target_of(cann, &options.group, &options.kernels);
    let target = match deployment.target.exchanges {
        Exchanges::Apart => has.apart(),
        Exchanges::WithProducts => has,
    };
    Deployment { target, ..*deployment }
}

/// The programs in the order of [`PREFILL`] and [`DECODE`].
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
                    let run = RunShape { batch: 2, sequence: room, cache_length: room };
                    let inputs = inputs(&model.config, run, DType::BF16, Head::LastLogits, &rows);
                    session.engine.run(program, &inputs).unwrap()
                };
                // The longest leaves more in the caches, which the shorter one must not see.
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
