//! The plans of a serving setting: one program for prompts, one for each further token.
//!
//! Input → output: a [`ModelConfig`] and a [`Setting`] → the plans of all ranks, those that `generate` runs. Invariant: the
//! decode program lays weights and caches out as the prefill program does, so that both run on the same memory.

use crate::base::{Diagnostic, Diagnostics, Precision};
use crate::collective::parallelize;
use crate::config::ModelConfig;
use crate::placement::{Mesh, Pins, Placed, Residual};
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
        let prefill = self.place(config, &mesh, self.input_tokens, &Pins::auto(self.residual))?;
        let decode = self.place(config, &mesh, 1, &Pins::auto(Residual::Replicate).like(&prefill))?;
        Ok(Programs { prefill: schedule(&prefill)?, decode: schedule(&decode)? })
    }

    /// The plans of a program that reads prompts of fewer tokens, on the memory of the others.
    ///
    /// # Errors
    /// As [`Setting::compile`].
    pub fn compile_shorter(&self, config: &ModelConfig, input_tokens: usize) -> Result<Vec<Plan>, Diagnostics> {
        let mesh = self.mesh(config)?;
        let pins = Pins::auto(self.residual);
        let longest = self.place(config, &mesh, self.input_tokens, &pins)?;
        schedule(&self.place(config, &mesh, input_tokens, &pins.like(&longest))?)
    }

    fn place(&self, config: &ModelConfig, mesh: &Mesh, sequence: usize, pins: &Pins) -> Result<Placed, Diagnostics> {
        let run = RunShape { batch: self.batch, sequence, cache_length: self.cache_length() };
        let program = decoder(config, run, self.precision, self.head)?;
        Ok(parallelize(&program, mesh, pins)?.lowered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;
    use crate::schedule::plan::Region;

    #[test]
    fn shorter_programs_take_no_more_memory_in_the_same_places() {
        for preset in ModelConfig::PRESETS {
            let mut config = ModelConfig::preset(preset).unwrap();
            config.layers = 2;
            for (cards, residual) in [(1, Residual::Replicate), (3, Residual::Seq), (8, Residual::Replicate)] {
                let precision = DType::BF16.into();
                let (input_tokens, output_tokens, head) = (200, 8, Head::LastToken);
                let setting = Setting { cards, precision, residual, batch: 2, input_tokens, output_tokens, head };
                let longest = setting.compile(&config).unwrap().prefill;
                for tokens in [32, 48, 96, 192] {
                    let shorter = setting.compile_shorter(&config, tokens).unwrap();
                    for (long, short) in longest.iter().zip(&shorter) {
                        let fits = |region| short.region_bytes(region) <= long.region_bytes(region);
                        assert!(Region::ALL.into_iter().all(fits), "{preset}, {tokens} tokens on {cards} cards");
                        assert_eq!(short.groups, long.groups);
                        for (a, b) in long.params.iter().zip(&short.params) {
                            assert_eq!((&a.ranges, long.buffers[a.buffer]), (&b.ranges, short.buffers[b.buffer]));
                        }
                    }
                }
            }
        }
    }
}
