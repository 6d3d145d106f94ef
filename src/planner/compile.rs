//! The plans of a serving setting: one program for prompts, one for each further token.
//!
//! Input → output: a [`ModelConfig`] and a [`Setting`] → the plans of all ranks, those that `generate` runs. Invariant: the
//! decode program lays weights and caches out as the prefill program does, so that both run on the same memory.

use crate::base::{Diagnostic, Diagnostics, Precision};
use crate::collective::parallelize;
use crate::config::ModelConfig;
use crate::placement::{Mesh, Pins, Residual};
use crate::program::models::{Head, RunShape, decoder};
use crate::schedule::{Plan, schedule};

/// How a model is to be run on one group of cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Setting {
    /// Cards to split over.
    pub cards: usize,
    /// Element type of activations, and how weights are held.
    pub precision: Precision,
    /// How the residual stream lies during prefill. A decode step has one token a sequence, so its stream stays whole.
    pub residual: Residual,
    /// Sequences at once.
    pub batch: usize,
    /// Tokens of the longest prompt.
    pub input_tokens: usize,
    /// Tokens to generate a sequence at most.
    pub output_tokens: usize,
    /// What the programs give back.
    pub head: Head,
}

/// The plans of both programs, by rank.
#[derive(Clone, Debug)]
pub struct Programs {
    /// All prompts at once.
    pub prefill: Vec<Plan>,
    /// One token a sequence.
    pub decode: Vec<Plan>,
}

impl Setting {
    /// Positions of the KV cache of each sequence.
    #[must_use]
    pub const fn cache_length(&self) -> usize {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// The cards as a mesh, with key heads on a sub-axis where that leaves a card fewer query heads.
    ///
    /// # Errors
    /// There are none.
    pub fn mesh(&self, config: &ModelConfig) -> Result<Mesh, Diagnostics> {
        Mesh::tensor_parallel(self.cards, config.kv_heads, config.heads_per_kv_head())
            .map_err(|error| Diagnostic::new("cards", error.to_string()).into())
    }

    /// Runs all passes of both programs.
    ///
    /// # Errors
    /// What the first pass that finds a problem finds.
    pub fn compile(&self, config: &ModelConfig) -> Result<Programs, Diagnostics> {
        let mesh = self.mesh(config)?;
        let run = |sequence| RunShape { batch: self.batch, sequence, cache_length: self.cache_length() };
        let prefill = decoder(config, run(self.input_tokens), self.precision, self.head)?;
        let prefill = parallelize(&prefill, &mesh, &Pins::auto(self.residual))?.lowered;
        let decode = decoder(config, run(1), self.precision, self.head)?;
        let decode = parallelize(&decode, &mesh, &Pins::auto(Residual::Replicate).like(&prefill))?.lowered;
        Ok(Programs { prefill: schedule(&prefill)?, decode: schedule(&decode)? })
    }
}
