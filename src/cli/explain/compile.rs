//! The passes of the compiler for the program that is shown and for those it is compared with.

use ascend_tp::base::{DType, Diagnostic, Diagnostics};
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::Residual;
use ascend_tp::program::Program;
use ascend_tp::program::models::{Head, RunShape, decoder};
use ascend_tp::schedule::{Plan, schedule};
use ascend_tp::{Mesh, Parallelized, Pins, parallelize};

use crate::cli::arguments::ExplainOptions;

/// Tokens of the prefill that is compared with a decode step: a long prompt, yet one whose mask and activations are
/// small beside the weights.
const PREFILL_TOKENS: usize = 2048;

/// What is asked.
#[derive(Debug)]
pub(super) struct Request<'a> {
    config: &'a ModelConfig,
    pub(super) mesh: Mesh,
    pub(super) dtype: DType,
    residual: Residual,
    pub(super) batch: usize,
    sequence: usize,
    pub(super) context: usize,
}

/// One program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// New tokens of each sequence.
    pub(super) sequence: usize,
    /// What it gives back.
    pub(super) head: Head,
}

/// One program, split and scheduled.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) pass: Pass,
    pub(super) program: Program,
    pub(super) split: Parallelized,
    pub(super) plans: Vec<Plan>,
}

impl<'a> Request<'a> {
    /// # Errors
    /// All sizes that do not fit the model.
    pub(super) fn new(config: &'a ModelConfig, options: &ExplainOptions) -> Result<Self, Diagnostics> {
        let context = options.context.unwrap_or(config.max_positions);
        let mut problems = Diagnostics::new();
        if context > config.max_positions {
            problems.push(
                Diagnostic::new("--context", "longer than the model's context")
                    .expected(format!("at most {} positions", config.max_positions))
                    .found(context),
            );
        }
        if options.sequence > context {
            problems.push(
                Diagnostic::new("--sequence", "longer than the KV cache")
                    .expected(format!("at most --context, which is {context}"))
                    .found(options.sequence),
            );
        }
        let mesh = Mesh::tensor_parallel(options.cards, config.kv_heads, config.heads_per_kv_head());
        let mesh = mesh.map_err(|error| problems.push(Diagnostic::new("--cards", error.to_string())));
        let Ok(mesh) = mesh else { return Err(problems) };
        problems.into_result(Self {
            config,
            mesh,
            dtype: options.numerics.dtype(config.dtype),
            residual: options.numerics.residual(),
            batch: options.batch,
            sequence: options.sequence,
            context,
        })
    }

    /// The program that is shown in full.
    pub(super) const fn shown(&self) -> Pass {
        Pass { sequence: self.sequence, head: Head::LastLogits }
    }

    /// How the residual stream lies in a program. A session keeps it whole in a decode step, which has one token a
    /// sequence and nothing to cut.
    pub(super) const fn residual(&self, pass: Pass) -> Residual {
        if pass.sequence == 1 { Residual::Replicate } else { self.residual }
    }

    /// The programs that one figure each is given of: the greedy form of the shown one, and a prefill beside a decode
    /// step.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub(super) fn alternatives(&self) -> Result<Vec<Compiled>, Diagnostics> {
        let mut passes = vec![Pass { head: Head::LastToken, ..self.shown() }];
        let prefill = PREFILL_TOKENS.min(self.context);
        if self.sequence == 1 && prefill > 1 {
            passes.push(Pass { sequence: prefill, head: Head::LastLogits });
        }
        passes.into_iter().map(|pass| self.compile(pass)).collect()
    }

    /// Runs all passes.
    ///
    /// # Errors
    /// What the first pass that finds a problem finds.
    pub(super) fn compile(&self, pass: Pass) -> Result<Compiled, Diagnostics> {
        let run = RunShape { batch: self.batch, sequence: pass.sequence, cache_length: self.context };
        let program = decoder(self.config, run, self.dtype, pass.head)?;
        let split = parallelize(&program, &self.mesh, &Pins::auto(self.residual(pass)))?;
        let plans = schedule(&split.lowered)?;
        Ok(Compiled { pass, program, split, plans })
    }
}
