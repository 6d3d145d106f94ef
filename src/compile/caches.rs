//! Cache blocks of a deployment, by groups of layers that share a table.
//!
//! Input: a [`Deployment`] and a model. Output: the number of blocks of each group, the runs of a
//! static batch, and the number of blocks that fits a card.
//!
//! Invariants: layers with a window have a separate group only if a sequence then holds fewer
//! blocks. All programs of a deployment have the same groups.
//!
//! Not here: which sequence holds a block (`serving`).

use super::Deployment;
use crate::base::{Bytes, Diagnostic, Diagnostics, KvType};
use crate::config::ModelConfig;
use crate::program::models::{
    CHUNK, CacheBlocks, CacheGroup, KEPT_LOGITS, PROPOSING_TOKENS, RunShape, StatePool, check_prediction,
    layer_of,
};
use crate::schedule::Plan;

/// Recurrent states per running sequence of a serving session: the current one, one at a block
/// border in each of two steps in flight, and one at the end of a prefix for later requests.
const STATES_OF_SEQUENCE: usize = 4;

/// Unit of the tokens of a block of 8-bit integers (CANN's documentation of the fused attention).
const INT8_BLOCK: usize = 32;

/// Caches of layers that share a table, with the blocks that a serving session shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// Number of keys that a query reads, itself included. `None`: all keys.
    pub window: Option<usize>,
    /// Blocks of the caches.
    pub blocks: CacheBlocks,
}

/// Layers with a window that have a separate table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Windowed {
    /// No layer. All layers share one table of all tokens.
    No,
    /// All layers of the model have this window.
    All(usize),
    /// The layers with this window. Other layers have the table of all tokens.
    Some(usize),
}

impl Deployment {
    /// Returns the maximum number of planned steps that have not completed.
    pub(crate) fn steps_in_flight(&self) -> usize {
        // Drafts follow a known token, so the next step is planned after the last one.
        match (self.stages, self.drafts) {
            (1, 1..) => 1,
            (stages, _) => stages.max(2),
        }
    }

    /// Returns the maximum number of steps in flight that one sequence is in.
    fn steps_of_sequence(&self) -> usize {
        if self.stages == 1 { self.steps_in_flight() } else { 1 }
    }

    pub(super) fn windowed(&self, config: &ModelConfig) -> Windowed {
        let Some(window) = config.window() else { return Windowed::No };
        if self.blocks_behind(window, self.drafts + 1) >= self.blocks_of_context() {
            return Windowed::No;
        }
        if config.softmax_attentions().all(|attention| attention.window == Some(window)) {
            Windowed::All(window)
        } else {
            Windowed::Some(window)
        }
    }

    const fn blocks_of_context(&self) -> usize {
        self.context.div_ceil(self.block_tokens)
    }

    /// Returns the largest number of blocks that a sequence holds for the keys before and in its
    /// steps in flight, with `tokens` tokens per step.
    fn blocks_behind(&self, window: usize, tokens: usize) -> usize {
        let keys = (window - 1).saturating_add(tokens.saturating_mul(self.steps_of_sequence()));
        keys.div_ceil(self.block_tokens) + 1
    }

    fn longest_chunk(&self, config: &ModelConfig) -> usize {
        self.chunks(config).last().copied().unwrap_or(1)
    }

    /// Returns the blocks that are cached for all tokens.
    const fn blocks_of_all_tokens(&self) -> CacheBlocks {
        let pools = self.grid.depth;
        let whole = CacheBlocks::of_sequences(self.batch, self.context, self.block_tokens, pools);
        match self.cache_blocks {
            Some(blocks) => CacheBlocks { count: blocks.saturating_mul(pools), ..whole },
            None => whole,
        }
    }

    /// Returns the blocks that are cached for the keys in windows.
    ///
    /// Each sequence holds the blocks of its window. One sequence at a time reads a prompt, and
    /// also holds the blocks of its chunks. A sequence never holds more blocks than in the caches
    /// of all tokens.
    fn blocks_of_windows(&self, config: &ModelConfig, window: usize) -> CacheBlocks {
        let (all, pools) = (self.blocks_of_all_tokens(), self.grid.depth);
        let sequences = self.batch.div_ceil(pools.max(1));
        let each = self.blocks_behind(window, self.drafts + 1);
        let chunks = self.longest_chunk(config).saturating_mul(self.steps_of_sequence());
        let own = sequences.saturating_mul(each).saturating_add(chunks.div_ceil(self.block_tokens));
        let own = own.min(sequences.saturating_mul(self.blocks_of_context())).min(all.in_pool());
        CacheBlocks { count: own.saturating_add(1).saturating_mul(pools), ..all }
    }

    /// Returns the caches of a serving session, all pools included, with the caches of all tokens
    /// first.
    #[must_use]
    #[doc(hidden)]
    pub fn caches(&self, config: &ModelConfig) -> Vec<CacheSize> {
        let all = CacheSize { window: None, blocks: self.blocks_of_all_tokens() };
        let of = |window, blocks| CacheSize { window: Some(window), blocks };
        match self.windowed(config) {
            Windowed::No => vec![all],
            Windowed::All(window) => vec![match self.cache_blocks {
                Some(_) => of(window, all.blocks),
                None => of(window, self.blocks_of_windows(config, window)),
            }],
            Windowed::Some(window) => vec![all, of(window, self.blocks_of_windows(config, window))],
        }
    }

    /// Returns the states of recurrent layers, with `each` states per sequence, if the model has
    /// such layers.
    pub(super) fn states(&self, config: &ModelConfig, each: usize) -> Option<StatePool> {
        let pools = self.grid.depth;
        let sequences = self.batch.div_ceil(pools.max(1)).saturating_mul(pools);
        config
            .remembered_tokens()
            .map(|tokens| StatePool::of_sequences(sequences.saturating_mul(each), pools, tokens))
    }

    /// Reports sizes that do not fit recurrent layers.
    pub(super) fn check_states(&self, config: &ModelConfig, problems: &mut Diagnostics) {
        if config.remembered_tokens().is_none() {
            return;
        }
        if self.drafts > 0 {
            let problem =
                Diagnostic::new("drafts", "a refused draft cannot be removed from a recurrent state");
            let problem = problem.expected("0, because the model has recurrent layers").found(self.drafts);
            problems.push(problem.help("generate without drafts"));
        }
        if !self.block_tokens.is_multiple_of(CHUNK) {
            let problem = Diagnostic::new("cache blocks", "end within the chunks of recurrent layers");
            let expected = format!("a multiple of {CHUNK} tokens");
            problems.push(problem.expected(expected).found(self.block_tokens));
        }
    }

    /// Reports everything that caches of 8-bit integers do not fit.
    #[doc(hidden)]
    pub fn check_cache_type(&self, config: &ModelConfig, problems: &mut Diagnostics) {
        if self.precision.kv != KvType::Int8 {
            return;
        }
        let problem = |message: &str| Diagnostic::new("--kv-dtype int8", message);
        if (0..config.layers).any(|layer| config.layer(layer).latent().is_some()) {
            let problem = problem("latent attention has no key and value heads with a scale each");
            let problem = problem.expected("a model with key and value heads").found("latent attention");
            problems.push(problem.help("remove --kv-dtype int8"));
        }
        if !self.block_tokens.is_multiple_of(INT8_BLOCK) {
            let problem = problem("cache blocks have a number of tokens that CANN does not take");
            problems.push(problem.expected(format!("a multiple of {INT8_BLOCK}")).found(self.block_tokens));
        }
    }

    /// Reports everything that drafts by prediction do not fit.
    pub(super) fn check_prediction(&self, config: &ModelConfig, problems: &mut Diagnostics) {
        if !self.predicts {
            return;
        }
        if let Err(found) = check_prediction(config) {
            problems.append(found);
        }
        let sizes = [
            ("stages", "the stage of the last layer would send drafts back to the first one", self.stages),
            ("tp_depth", "drafts by prediction need one pool of caches", self.grid.depth),
            ("drafts", "a prediction layer proposes one draft", self.drafts),
        ];
        if self.scores_prompts && self.longest_prompt == PROPOSING_TOKENS {
            let problem = Diagnostic::new("prompt tokens", "are as many as in a run that proposes drafts");
            problems.push(problem.expected("another number than 2").found(self.longest_prompt));
        }
        for (place, message, found) in sizes.into_iter().filter(|(_, _, found)| *found != 1) {
            let problem = Diagnostic::new(place, message).expected(1).found(found);
            problems.push(problem.help("use --speculate ngram=K, or no drafts"));
        }
    }

    /// Returns the states of recurrent layers that a serving session shares, if the model has such
    /// layers.
    #[must_use]
    #[doc(hidden)]
    pub fn serving_states(&self, config: &ModelConfig) -> Option<StatePool> {
        self.states(config, STATES_OF_SEQUENCE)
    }

    /// Returns the number of blocks in the caches of all tokens that a sequence needs for the whole
    /// context, without the null block. If all layers have a window, these are the blocks that a
    /// sequence holds at once.
    #[must_use]
    #[doc(hidden)]
    pub fn least_cache_blocks(&self, config: &ModelConfig) -> usize {
        let all = self.blocks_of_context();
        match self.windowed(config) {
            Windowed::All(window) => {
                all.min(self.blocks_behind(window, self.longest_chunk(config).max(self.drafts + 1)))
            }
            Windowed::No | Windowed::Some(_) => all,
        }
    }

    /// Returns the maximum number of tokens of a sequence that fits the caches.
    #[must_use]
    #[doc(hidden)]
    pub fn longest_sequence(&self, config: &ModelConfig) -> usize {
        let held = self.caches(config)[0].blocks.in_pool();
        if held >= self.least_cache_blocks(config) {
            self.context
        } else {
            self.context.min(held * self.block_tokens)
        }
    }

    /// Returns the run of `batch` rows of `tokens` tokens with a table of at most `table` blocks.
    pub(super) fn run(
        &self,
        caches: &[CacheSize],
        states: Option<StatePool>,
        [batch, tokens, table]: [usize; 3],
    ) -> RunShape {
        let group = |size: &CacheSize| {
            let CacheSize { window, blocks } = *size;
            let widest =
                window.map_or(table, |window| CacheGroup::widest_table(window, tokens, self.block_tokens));
            CacheGroup { window, table: table.min(widest), blocks }
        };
        RunShape {
            batch,
            sequence: tokens,
            caches: group(&caches[0]),
            windowed: caches.get(1).map(group),
            states,
        }
    }

    /// Returns the run of all prompts of a static batch, padded to `tokens` tokens.
    #[must_use]
    #[doc(hidden)]
    pub fn prompts(&self, config: &ModelConfig, tokens: usize) -> RunShape {
        let caches = self.static_caches(config);
        let sizes = [self.batch, tokens, tokens.div_ceil(self.block_tokens)];
        let run = self.run(&caches, self.states(config, 1), sizes);
        // A prompt starts at position 0, so tables have no blocks before the window.
        let whole = |group: CacheGroup| CacheGroup { table: tokens.div_ceil(self.block_tokens), ..group };
        RunShape { caches: whole(run.caches), windowed: run.windowed.map(whole), ..run }
    }

    /// Returns the run of one token per sequence of a static batch.
    #[must_use]
    #[doc(hidden)]
    pub fn step(&self, config: &ModelConfig) -> RunShape {
        let sizes = [self.batch, 1, self.blocks_of_context()];
        self.run(&self.static_caches(config), self.states(config, 1), sizes)
    }

    /// Returns the caches of a static batch. Behind a window, the blocks of a sequence are a ring,
    /// which has all blocks of a prompt.
    fn static_caches(&self, config: &ModelConfig) -> Vec<CacheSize> {
        let mut caches = self.caches(config);
        for CacheSize { window, blocks } in &mut caches {
            if let Some(window) = *window
                && !(self.cache_blocks.is_some() && self.windowed(config) == Windowed::All(window))
            {
                let read = CacheGroup::widest_table(window, 1, self.block_tokens);
                let ring = self.longest_prompt.div_ceil(self.block_tokens).max(read);
                let length = ring.min(self.blocks_of_context()).saturating_mul(self.block_tokens);
                *blocks = CacheBlocks::of_sequences(self.batch, length, self.block_tokens, self.grid.depth);
            }
        }
        caches
    }

    /// Returns the largest [`Self::cache_blocks`] with caches of at most `bytes` on each card.
    /// `plans` belong to a serving program of this deployment, by rank.
    #[must_use]
    #[doc(hidden)]
    pub fn cache_blocks_within(&self, config: &ModelConfig, plans: &[Plan], bytes: Bytes) -> usize {
        plans.iter().map(|plan| self.cache_blocks_of(config, plan, bytes)).min().unwrap_or(0)
    }

    fn cache_blocks_of(&self, config: &ModelConfig, plan: &Plan, bytes: Bytes) -> usize {
        let caches = self.caches(config);
        // Bytes of one block of each group, and of the states that do not depend on it.
        let (mut each, mut fixed) = (vec![0; caches.len()], 0);
        for state in &plan.states {
            let elems: usize = state.ranges.iter().map(std::ops::Range::len).product();
            let of_state = Bytes::of(elems, state.dtype.size_bytes()).0;
            let layer = layer_of(&state.name).map(|layer| config.layer(layer));
            if state.name == KEPT_LOGITS || layer.is_some_and(|layer| layer.delta().is_some()) {
                fixed += of_state;
                continue;
            }
            let window = layer.and_then(|layer| layer.grouped()).and_then(|attention| attention.window);
            let own = caches.iter().position(|size| size.window == window).unwrap_or(0);
            let in_pool = caches[own].blocks.in_pool() + 1;
            each[own] += of_state.div_ceil(in_pool as u64);
        }
        let blocks = |blocks: u64| {
            let of = Self { cache_blocks: usize::try_from(blocks).ok(), ..*self };
            let sizes = of.caches(config).into_iter().map(|size| size.blocks.in_pool() as u64 + 1);
            sizes
                .zip(&each)
                .fold(0_u64, |sum, (blocks, each)| sum.saturating_add(blocks.saturating_mul(*each)))
        };
        // More blocks take more bytes, so the largest number is found by bisection.
        let bytes = bytes.0.saturating_sub(fixed);
        let (mut fits, mut exceeds) = (0, bytes / each[0].max(1) + 1);
        while exceeds - fits > 1 {
            let middle = fits + (exceeds - fits) / 2;
            if blocks(middle) <= bytes { fits = middle } else { exceeds = middle }
        }
        usize::try_from(fits).unwrap_or(usize::MAX)
    }
}
