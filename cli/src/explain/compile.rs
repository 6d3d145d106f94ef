//! Compiles the explained program and the programs for comparison.

use std::collections::BTreeMap;

use ascend_tp::base::{Diagnostic, Diagnostics, Precision};
use ascend_tp::compile::Deployment;
use ascend_tp::config::ModelConfig;
use ascend_tp::placement::{Residual, TENSOR};
use ascend_tp::program::Program;
use ascend_tp::program::models::{Head, RunShape, decoder};
use ascend_tp::schedule::{Plan, Ranks, Target};
use ascend_tp::{Mesh, Parallelized, compile};

use crate::arguments::ExplainOptions;
use crate::cards;

/// Number of tokens in the prefill that is compared with a decode step, unless the longest chunk of
/// a session is shorter. The prompt is long, but its mask and activations are small compared with
/// the weights.
const PREFILL_TOKENS: usize = 2048;

#[derive(Debug)]
pub(super) struct ExplainRequest<'a> {
    config: &'a ModelConfig,
    pub(super) deployment: Deployment,
    pub(super) mesh: Mesh,
    sequence: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PassShape {
    pub(super) sequence: usize,
    pub(super) head: Head,
}

#[derive(Debug)]
pub(super) struct ExplainedProgram {
    pub(super) pass: PassShape,
    pub(super) program: Program,
    pub(super) split: Parallelized,
    pub(super) reasons: BTreeMap<String, String>,
    /// Of all ranks for the shown program, of the first rank for the others.
    pub(super) plans: Vec<Plan>,
}

/// The explained program, and the programs summarised in one line each: its greedy form, and the
/// prefill of a decode step.
#[derive(Debug)]
pub(super) struct ExplainedPrograms {
    pub(super) shown: ExplainedProgram,
    pub(super) alternatives: Vec<ExplainedProgram>,
}

impl<'a> ExplainRequest<'a> {
    pub(super) fn new(
        config: &'a ModelConfig,
        precision: Precision,
        options: &ExplainOptions,
    ) -> Result<Self, Diagnostics> {
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
        let kernels =
            cards::kernels(false).map_err(|found| problems.append(found)).unwrap_or_default().kernels();
        let divided =
            options.step.serving("explain", options.cards, &[TENSOR]).map_err(|found| problems.append(found));
        let deployed = divided.and_then(|(_, grid)| {
            let of = Deployment::of(config, options.cards);
            let deployment = Deployment {
                grid,
                precision,
                residual: options.layout.residual(),
                experts: options.layout.experts(),
                batch: options.batch,
                context,
                target: Target { kernels, ..of.target },
                ..of
            };
            deployment.check_cache_type(config, &mut problems);
            let mesh = deployment.mesh(config).map_err(|found| problems.append(found))?;
            Ok((deployment, mesh))
        });
        let Ok((deployment, mesh)) = deployed else { return Err(problems) };
        problems.into_result(Self { config, deployment, mesh, sequence: options.sequence })
    }

    /// Returns the layout of the residual stream in a pass. In a decode step it is replicated,
    /// because a sequence has only one token.
    pub(super) const fn residual(&self, pass: PassShape) -> Residual {
        if pass.sequence == 1 { Residual::Replicate } else { self.deployment.residual }
    }

    /// Returns the number of tokens in the prefill that determines the sharding of weights.
    pub(super) fn prefill_tokens(&self) -> usize {
        if self.sequence > 1 {
            return self.sequence;
        }
        let longest_chunk = self.deployment.chunks(self.config).last().copied();
        PREFILL_TOKENS.min(self.deployment.context).min(longest_chunk.unwrap_or(PREFILL_TOKENS))
    }

    pub(super) fn compile(&self) -> Result<ExplainedPrograms, Diagnostics> {
        let prefill = PassShape { sequence: self.prefill_tokens(), head: Head::LastLogits };
        let greedy = |sequence| PassShape { sequence, head: Head::LastToken };
        let is_shown = self.sequence == prefill.sequence;
        let decides = self.compile_pass(prefill, None, if is_shown { Ranks::All } else { Ranks::First })?;
        if is_shown {
            let other = self.compile_pass(greedy(self.sequence), Some(&decides), Ranks::First)?;
            return Ok(ExplainedPrograms { shown: decides, alternatives: vec![other] });
        }
        // As in a session, the decode step uses the weights and caches of the prefill.
        let step = PassShape { sequence: self.sequence, ..prefill };
        let shown = self.compile_pass(step, Some(&decides), Ranks::All)?;
        let other = self.compile_pass(greedy(self.sequence), Some(&decides), Ranks::First)?;
        Ok(ExplainedPrograms { shown, alternatives: vec![other, decides] })
    }

    /// Compiles a pass for all ranks, or only for the first one, which has the largest shards.
    fn compile_pass(
        &self,
        pass: PassShape,
        decides: Option<&ExplainedProgram>,
        ranks: Ranks,
    ) -> Result<ExplainedProgram, Diagnostics> {
        let Deployment { batch, context, precision, target, .. } = self.deployment;
        let run = RunShape::new(batch, pass.sequence, context);
        let program = decoder(self.config, run, self.deployment.on_cards(precision), pass.head)?;
        let residual = self.residual(pass);
        let pins = compile::pins(self.config, &program, &self.mesh, residual, self.deployment.experts);
        let pins = decides.map_or_else(|| pins.clone(), |decides| pins.clone().like(&decides.split.lowered));
        let compile::CompiledProgram { split, plans } =
            compile::compile_ranks(&program, &self.mesh, &pins, target, ranks)?;
        let own = split.placement.reasons.iter().map(|(id, reason)| (program.label(*id), reason.clone()));
        let reasons = decides.map_or_else(|| own.collect(), |decides| decides.reasons.clone());
        Ok(ExplainedProgram { pass, program, split, reasons, plans })
    }
}
