//! The programs of a serving session, by shape.
//!
//! Input: a [`Deployment`]. Output: [`ServingPrograms`]: chunks of prompts, decode steps, and
//! verification of drafts.
//!
//! Invariants: all programs have the same memory for weights and caches. No other program is
//! compiled while requests run. Not here: which shape a step uses.

use rayon::prelude::*;

use super::Deployment;
use super::caches::Windowed;
use crate::base::{Diagnostics, KvType};
use crate::config::ModelConfig;
use crate::placement::Residual;
use crate::program::Program;
use crate::program::models::{
    CacheGroup, CandidateSizes, Head, LayeredProgram, PROPOSING_TOKENS, PredictionPart, RunShape,
    decoder_of_layers, predicting_decoder,
};
use crate::program::npu::fused_attention_takes;
use crate::schedule::Plan;

/// Tokens of the shortest chunk. Cards multiply very few rows with other algorithms, which round
/// differently.
const SHORTEST_CHUNK: usize = 32;

/// Tokens of the longest chunk.
const LONGEST_CHUNK: usize = 2048;

/// Tokens of the longest chunk of a model with recurrent layers. Its chunks of 64 tokens follow
/// each other, so a longer program saves no time.
const LONGEST_RECURRENT_CHUNK: usize = 512;

/// Largest number of tokens of a chunk that returns all logits: one row per token, with a value for
/// each token of the vocabulary.
const LONGEST_SCORED_CHUNK: usize = 128;

/// Width of the narrowest block tables, in blocks, if the width of a table costs time.
const NARROWEST_TABLE: usize = 4;

/// Sizes and outputs of a serving program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServingShape {
    /// Sizes of the program.
    pub run: RunShape,
    /// Outputs of the program.
    pub head: Head,
    /// The part of the layer for multi-token prediction, if the session drafts by it.
    pub prediction: Option<PredictionPart>,
}

impl ServingShape {
    /// Returns the index of the program with `rows` rows of `tokens` tokens whose attention reads
    /// the fewest keys, and all that rows from the positions `starts` need.
    #[must_use]
    pub fn find(
        shapes: &[Self],
        [rows, tokens]: [usize; 2],
        head: Head,
        starts: &(impl Iterator<Item = usize> + Clone),
    ) -> Option<usize> {
        let fits = |shape: &Self| {
            let run = shape.run;
            (run.batch, run.sequence, shape.head) == (rows, tokens, head)
                && starts.clone().all(|start| run.fits(start))
        };
        let fitting = shapes.iter().enumerate().filter(|(_, shape)| fits(shape));
        fitting.min_by_key(|(_, shape)| shape.run.caches.table).map(|(index, _)| index)
    }
}

/// The programs of a serving session.
#[derive(Clone, Debug)]
pub struct ServingPrograms {
    /// Shapes of the programs that compute tokens.
    pub shapes: Vec<ServingShape>,
    /// Row counts per pool of the programs that return kept logits, ascending. Empty if the others
    /// return all logits.
    pub logit_rows: Vec<usize>,
    /// Plans of each program by rank: in the order of the shapes, then of `logit_rows`.
    pub plans: Vec<Vec<Plan>>,
}

impl Deployment {
    /// Returns the token counts of chunk programs, ascending: powers of two up to the longest
    /// chunk. Chunks of models with recurrent layers are multiples of a block, because states are
    /// kept at block borders.
    #[must_use]
    #[doc(hidden)]
    pub fn chunks(&self, config: &ModelConfig) -> Vec<usize> {
        let (shortest, longest) = if config.remembered_tokens().is_some() {
            let longest = self.longest_prompt.min(LONGEST_RECURRENT_CHUNK);
            (self.block_tokens, longest.next_multiple_of(self.block_tokens))
        } else {
            (SHORTEST_CHUNK, self.longest_prompt.min(LONGEST_CHUNK))
        };
        let powers = std::iter::successors(Some(shortest), |tokens| Some(tokens * 2));
        powers.take_while(|tokens| *tokens < longest).chain([longest]).collect()
    }

    /// Returns the token counts of chunk programs that return the logits of all positions,
    /// ascending.
    #[must_use]
    #[doc(hidden)]
    pub fn scored_chunks(&self, config: &ModelConfig) -> Vec<usize> {
        let mut chunks = if self.scores_prompts { self.chunks(config) } else { Vec::new() };
        chunks.retain(|tokens| *tokens <= LONGEST_SCORED_CHUNK);
        chunks
    }

    /// Returns the row counts of decode programs in each pool of blocks, ascending. The last one is
    /// the maximum number of running sequences.
    #[must_use]
    #[doc(hidden)]
    pub fn decode_rows(&self) -> Vec<usize> {
        let most = self.batch.div_ceil(self.grid.depth.max(1));
        let small = [1, 2, 4, 8, 16, 24, 32, 48, 64].into_iter();
        let large = std::iter::successors(Some(64), |rows: &usize| rows.checked_mul(2));
        let large = large.flat_map(|rows| [rows.saturating_add(rows / 2), rows.saturating_mul(2)]);
        small.chain(large).take_while(|rows| *rows < most).chain([most]).collect()
    }

    /// Returns the widths of block tables for runs of `tokens` tokens per row, ascending.
    ///
    /// Fused attention reads as many blocks as the host says, so one width suffices. Otherwise the
    /// blocks of the whole width are collected first.
    fn tables(&self, config: &ModelConfig, tokens: usize) -> Vec<usize> {
        let mut widest = (self.context + tokens - 1).div_ceil(self.block_tokens);
        if let Windowed::All(window) = self.windowed(config) {
            widest = widest.min(CacheGroup::widest_table(window, tokens, self.block_tokens));
        }
        let is_fused = fused_attention_takes(self.precision.activations, config.head_dim);
        // Fused attention over 8-bit integers has one token per row.
        let is_fused = is_fused && (tokens == 1 || self.precision.kv == KvType::Activations);
        if is_fused && config.attentions().all(|attention| attention.score_cap.is_none()) {
            return vec![widest];
        }
        let narrow = std::iter::successors(Some(NARROWEST_TABLE), |blocks| Some(blocks * 4));
        let reach = tokens.div_ceil(self.block_tokens);
        narrow
            .skip_while(|blocks| *blocks < reach)
            .take_while(|blocks| *blocks < widest)
            .chain([widest])
            .collect()
    }

    /// Returns the sizes of the candidates that the cards of a serving session select, or nothing
    /// if the session returns all logits or no logits.
    fn candidate_sizes(&self, config: &ModelConfig) -> Option<CandidateSizes> {
        if self.candidates == 0 || self.head != Head::LastLogits || self.stages > 1 {
            return None;
        }
        let (pools, vocabulary) = (self.grid.depth, config.vocab_size);
        let cards = self.cards / pools;
        let parts = if vocabulary.is_multiple_of(cards) { cards } else { 1 };
        // A step has at most one chunk per pool. The chunk keeps one row, at the last place.
        let kept = self.batch.div_ceil(pools).saturating_mul(self.drafts + 1).saturating_add(1);
        Some(CandidateSizes { count: self.candidates.min(vocabulary / parts), parts, kept, pools })
    }

    /// Returns the shapes of all serving programs, the longest chunk first.
    fn serving_shapes(&self, config: &ModelConfig) -> Vec<ServingShape> {
        let (caches, states, pools) = (&self.caches(config), self.serving_states(config), self.grid.depth);
        let shapes_with = |rows: usize, tokens: usize, head: Head, prediction: Option<PredictionPart>| {
            let shape = move |table| {
                let run = self.run(caches, states, [rows, tokens, table]);
                ServingShape { run, head, prediction }
            };
            self.tables(config, tokens).into_iter().rev().map(shape)
        };
        let shapes = |rows: usize, tokens: usize, head: Head| {
            shapes_with(rows, tokens, head, self.predicts.then_some(PredictionPart::Fills))
        };
        let (last, all) = match self.candidate_sizes(config) {
            Some(sizes) => (Head::LastCandidates(sizes), Head::AllCandidates(sizes)),
            None => (self.head, Head::AllLogits),
        };
        let chunks = self.chunks(config).into_iter().rev().flat_map(|tokens| shapes(pools, tokens, last));
        let rows = self.decode_rows();
        let scored = self.scored_chunks(config);
        let scored = scored.iter().flat_map(|tokens| shapes(pools, *tokens, Head::AllLogits));
        if self.predicts {
            let part = Some(PredictionPart::Proposes);
            let decode = rows.iter().flat_map(|rows| shapes_with(rows * pools, PROPOSING_TOKENS, all, part));
            return chunks.chain(decode).chain(scored).collect();
        }
        let decode = rows.iter().flat_map(|rows| shapes(rows * pools, 1, last));
        let wide = rows.iter().filter(|_| self.drafts > 0);
        let wide = wide.flat_map(|rows| shapes(rows * pools, self.drafts + 1, all));
        chunks.chain(decode).chain(wide).chain(scored).collect()
    }

    /// Compiles all programs of a serving session.
    ///
    /// # Errors
    /// Returns everything that does not fit the model, or all problems of the first pass that
    /// fails.
    pub fn compile_serving(&self, config: &ModelConfig) -> Result<ServingPrograms, Diagnostics> {
        self.check(config)?;
        let mesh = self.mesh(config)?;
        let parts = self.parts(config, &mesh)?;
        let shapes = self.serving_shapes(config);
        let build = |shape: &ServingShape, like: Option<&Program>| -> Result<LayeredProgram, Diagnostics> {
            let (precision, order) = (self.on_cards(self.precision), self.order);
            let ServingShape { run, head, prediction } = *shape;
            match prediction {
                Some(part) => predicting_decoder(config, run, precision, head, order, part, like),
                None => decoder_of_layers(config, run, precision, head, order, parts.parts > 1, like),
            }
        };
        let longest_program = build(&shapes[0], None)?;
        let first = self.place(config, &mesh, &longest_program, self.residual, None, &parts)?;
        let longest = Some(&first.placed);
        let compile = |shape: &ServingShape| {
            let is_scored = || {
                let RunShape { batch, sequence, .. } = shape.run;
                batch == self.grid.depth && sequence >= SHORTEST_CHUNK
            };
            let is_chunk = shape.run.sequence > 1 && (!shape.head.is_of_all() || is_scored());
            let residual = if is_chunk { self.residual } else { Residual::Replicate };
            let program = build(shape, Some(&longest_program.program))?;
            self.schedule(&self.place(config, &mesh, &program, residual, longest, &parts)?, longest)
        };
        let sizes = self.candidate_sizes(config);
        let logit_rows = sizes.map_or_else(Vec::new, |sizes| {
            let powers = std::iter::successors(Some(1), |rows| Some(rows * 4));
            powers.take_while(|rows| *rows < sizes.kept).chain([sizes.kept]).collect()
        });
        let compile_logits = |(sizes, rows): (CandidateSizes, usize)| {
            let program = sizes.logits_program(rows, &longest_program.program)?;
            let placed = self.place(config, &mesh, &program, Residual::Replicate, longest, &parts)?;
            self.schedule(&placed, longest)
        };
        let (plans, others) = rayon::join(
            || self.schedule(&first, None),
            || {
                let compiled = shapes[1..].par_iter().map(compile);
                let logits = sizes
                    .into_par_iter()
                    .flat_map_iter(|sizes| logit_rows.iter().map(move |rows| (sizes, *rows)));
                compiled.chain(logits.map(compile_logits)).collect::<Result<Vec<_>, _>>()
            },
        );
        let plans = std::iter::once(plans?).chain(others?).collect();
        Ok(ServingPrograms { shapes, logit_rows, plans })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;

    #[test]
    fn all_programs_have_weights_and_caches_in_the_same_places() {
        for preset in ModelConfig::dense_presets() {
            let mut config = ModelConfig::preset(preset).unwrap();
            config.layers = 2;
            for (cards, residual) in [(1, Residual::Replicate), (3, Residual::Seq), (8, Residual::Replicate)]
            {
                let deployment = Deployment {
                    precision: DType::BF16.into(),
                    residual,
                    batch: 3,
                    longest_prompt: 200,
                    context: 208,
                    cache_blocks: Some(4),
                    drafts: 2,
                    ..Deployment::of(&config, cards)
                };
                let ServingPrograms { shapes, plans, .. } = deployment.compile_serving(&config).unwrap();
                let sizes = |run: RunShape| (run.batch, run.sequence);
                let found: Vec<_> = shapes.iter().map(|shape| sizes(shape.run)).collect();
                let chunks = [(1, 200), (1, 128), (1, 64), (1, 32)];
                let rows = [(1, 1), (2, 1), (3, 1), (1, 3), (2, 3), (3, 3)];
                assert_eq!(found, [&chunks[..], &rows[..]].concat(), "{preset}");
                for program in &plans[1..] {
                    for (first, plan) in plans[0].iter().zip(program) {
                        assert_eq!(plan.groups, first.groups, "{preset}, {}", plan.name);
                        let kept = [(&first.params, &plan.params), (&first.states, &plan.states)];
                        for (a, b) in kept.into_iter().flat_map(|(a, b)| a.iter().zip(b)) {
                            assert_eq!(
                                (&a.name, &a.ranges, first.buffers[a.buffer]),
                                (&b.name, &b.ranges, plan.buffers[b.buffer])
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn shapes_grow_with_the_batch_and_the_prompt() {
        let config = ModelConfig::preset("qwen2.5-0.5b").unwrap();
        let of = |batch, longest_prompt| Deployment { batch, longest_prompt, ..Deployment::of(&config, 1) };
        assert_eq!(of(1, 1).chunks(&config), [1]);
        assert_eq!(of(1, 100).chunks(&config), [32, 64, 100]);
        assert_eq!(of(1, 9999).chunks(&config), [32, 64, 128, 256, 512, 1024, 2048]);
        assert_eq!(of(1, 1).decode_rows(), [1]);
        assert_eq!(of(20, 1).decode_rows(), [1, 2, 4, 8, 16, 20]);
        assert_eq!(of(300, 1).decode_rows(), [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 300]);
        assert!(of(usize::MAX, 1).decode_rows().len() < 128, "a batch without a limit ends");
        // Attention in f32 collects the whole table.
        let float = Deployment { precision: DType::F32.into(), context: 4096, ..of(1, 512) };
        assert_eq!(
            (float.tables(&config, 1), float.tables(&config, 512)),
            (vec![4, 16, 32], vec![4, 16, 36])
        );
        assert_eq!(Deployment { context: 4096, ..of(1, 512) }.tables(&config, 1), [32]);
    }
}
