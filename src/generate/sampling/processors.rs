//! Changes of the logits before a token is chosen.
//!
//! - Input: the options, the tokens of the sequence, and the mask of a grammar.
//! - Output: changed logits.
//! - Invariants: a logit of one token depends on no other token. A larger logit never becomes
//!   smaller than the same token's smaller logit would. A change of a row and a change of one of
//!   its logits give the same bits.
//!
//! The order is the order of vLLM (`vllm/v1/sample/sampler.py`):
//!
//! 1. The mask of a grammar forbids tokens: −∞.
//! 2. Stop ids are forbidden before the sequence has `min_tokens` new tokens.
//! 3. `logit_bias` is added.
//! 4. `repetition_penalty` scales the logits of tokens of the prompt and of generated tokens.
//!    vLLM and transformers count the prompt too.
//! 5. `frequency_penalty`, times the number of occurrences, is subtracted.
//! 6. `presence_penalty` is subtracted. Both count generated tokens only, as OpenAI defines them
//!    and vLLM does.
//!
//! Temperature, `top_k`, `top_p` and `min_p` follow, in `choice`.

use std::collections::BTreeMap;

use super::options::SamplingOptions;

/// The tokens that a grammar allows at one position.
///
/// Bit `i % 32` of word `i / 32` is 1 if token `i` is allowed, as in the masks of llguidance and
/// xgrammar. Tokens behind the last word are forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenMask<'a>(&'a [u32]);

impl<'a> From<&'a [u32]> for TokenMask<'a> {
    fn from(words: &'a [u32]) -> Self {
        Self(words)
    }
}

impl TokenMask<'_> {
    fn allows(self, token: u32) -> bool {
        self.0.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
    }

    fn apply(self, row: &mut [f32]) {
        for (at, logits) in row.chunks_mut(32).enumerate() {
            let word = self.0.get(at).copied().unwrap_or(0);
            match word {
                u32::MAX => {}
                0 => logits.fill(f32::NEG_INFINITY),
                _ => {
                    for (bit, logit) in logits.iter_mut().enumerate() {
                        *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
                    }
                }
            }
        }
    }
}

/// The tokens of one sequence, as far as they change logits.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Tokens that penalties change, with the number of times they were generated. Tokens of the
    /// prompt have 0.
    seen: BTreeMap<u32, u32>,
    generated: usize,
    /// Ids that are forbidden before `min_tokens`.
    stop_ids: Vec<u32>,
}

impl History {
    pub(super) fn new(stop_ids: &[u32]) -> Self {
        Self { stop_ids: stop_ids.to_vec(), ..Self::default() }
    }

    pub(super) fn add_prompt(&mut self, options: &SamplingOptions, tokens: &[u32]) {
        if options.repetition_penalty != 1.0 {
            tokens.iter().for_each(|token| _ = self.seen.entry(*token).or_default());
        }
    }

    pub(super) fn add_generated(&mut self, options: &SamplingOptions, token: u32) {
        self.generated += 1;
        if options.has_penalties() {
            *self.seen.entry(token).or_default() += 1;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Processors<'a> {
    pub(super) options: &'a SamplingOptions,
    pub(super) history: &'a History,
    pub(super) allowed: Option<TokenMask<'a>>,
}

impl<'a> Processors<'a> {
    /// Returns whether all logits stay as they are.
    pub(super) fn is_identity(self) -> bool {
        self.allowed.is_none() && self.changed().next().is_none()
    }

    /// Returns the tokens that something other than the mask may change. Some occur twice.
    pub(super) fn changed(self) -> impl Iterator<Item = u32> + 'a {
        let biased = self.options.logit_bias.keys();
        self.forbidden().iter().chain(biased).chain(self.history.seen.keys()).copied()
    }

    pub(super) fn apply(self, row: &mut [f32]) {
        if let Some(mask) = self.allowed {
            mask.apply(row);
        }
        let mut change = |token: u32, new: &dyn Fn(f32) -> f32| {
            if let Some(logit) = row.get_mut(token as usize) {
                *logit = new(*logit);
            }
        };
        for token in self.forbidden() {
            change(*token, &|_| f32::NEG_INFINITY);
        }
        for (token, bias) in &self.options.logit_bias {
            change(*token, &|logit| logit + bias);
        }
        for (token, times) in &self.history.seen {
            change(*token, &|logit| self.penalised(logit, *times));
        }
    }

    pub(super) fn logit(self, token: u32, logit: f32) -> f32 {
        let is_forbidden =
            self.allowed.is_some_and(|mask| !mask.allows(token)) || self.forbidden().contains(&token);
        if is_forbidden {
            return f32::NEG_INFINITY;
        }
        let biased = self.options.logit_bias.get(&token).map_or(logit, |bias| logit + bias);
        self.history.seen.get(&token).map_or(biased, |times| self.penalised(biased, *times))
    }

    fn forbidden(self) -> &'a [u32] {
        if self.history.generated < self.options.min_tokens { &self.history.stop_ids } else { &[] }
    }

    fn penalised(self, logit: f32, times: u32) -> f32 {
        let SamplingOptions { repetition_penalty, presence_penalty, frequency_penalty, .. } = *self.options;
        let scaled = if logit > 0.0 { logit / repetition_penalty } else { logit * repetition_penalty };
        if times == 0 { scaled } else { scaled - frequency_penalty * times as f32 - presence_penalty }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::{Strategy, any, prop};
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn changed(options: &SamplingOptions, history: &History, logits: &[f32]) -> Vec<f32> {
        let mut row = logits.to_vec();
        Processors { options, history, allowed: None }.apply(&mut row);
        row
    }

    #[test]
    fn presence_and_frequency_count_generated_tokens_only() {
        let options =
            SamplingOptions { presence_penalty: 0.5, frequency_penalty: 0.25, ..SamplingOptions::default() };
        let mut history = History::new(&[]);
        history.add_prompt(&options, &[0, 1]);
        assert_eq!(changed(&options, &history, &[1.0, 1.0, 1.0, -1.0]), [1.0, 1.0, 1.0, -1.0]);
        for token in [1, 2, 2, 3] {
            history.add_generated(&options, token);
        }
        assert_eq!(changed(&options, &history, &[1.0, 1.0, 1.0, -1.0]), [1.0, 0.25, 0.0, -1.75]);
    }

    #[test]
    fn repetition_counts_the_prompt_too_and_follows_the_bias() {
        let options = SamplingOptions {
            repetition_penalty: 2.0,
            presence_penalty: 1.0,
            logit_bias: BTreeMap::from([(0, -3.0), (2, 1.0), (99, 5.0)]),
            ..SamplingOptions::default()
        };
        let mut history = History::new(&[]);
        history.add_prompt(&options, &[0, 0, 99]);
        history.add_generated(&options, 1);
        // The bias makes the first logit negative, so the penalty multiplies.
        assert_eq!(changed(&options, &history, &[2.0, 3.0, 4.0]), [-2.0, 0.5, 5.0]);
    }

    #[test]
    fn stop_ids_are_forbidden_until_there_are_enough_tokens() {
        let options = SamplingOptions {
            min_tokens: 2,
            logit_bias: BTreeMap::from([(1, 100.0)]),
            ..SamplingOptions::default()
        };
        let mut history = History::new(&[1, 7]);
        history.add_prompt(&options, &[0, 0, 0]);
        for _ in 0..2 {
            assert_eq!(changed(&options, &history, &[0.0, 3.0]), [0.0, f32::NEG_INFINITY]);
            history.add_generated(&options, 0);
        }
        assert_eq!(changed(&options, &history, &[0.0, 3.0]), [0.0, 103.0]);
    }

    #[test]
    fn a_mask_forbids_every_token_without_a_bit() {
        let (options, history) = (SamplingOptions::default(), History::default());
        let words = [u32::MAX, 0, 0b101];
        let processors =
            Processors { options: &options, history: &history, allowed: Some(words.as_slice().into()) };
        let mut row = vec![1.0; 130];
        processors.apply(&mut row);
        let allowed: Vec<usize> = (0..130).filter(|token| row[*token] == 1.0).collect();
        assert_eq!(allowed, (0..32).chain([64, 66]).collect::<Vec<_>>());
        assert!(row.iter().all(|logit| *logit == 1.0 || *logit == f32::NEG_INFINITY));
    }

    pub(in super::super) fn any_options() -> impl Strategy<Value = SamplingOptions> {
        let penalty = || prop::sample::select(vec![0.0f32, 0.0, 0.5, -0.7, 2.0]);
        let bias = prop::sample::select(vec![-100.0f32, -1.5, 0.25, 3.0, 100.0]);
        let biases = prop::collection::btree_map(0u32..400, bias, 0..4);
        let repetition = prop::sample::select(vec![1.0f32, 1.0, 1.3, 0.8]);
        let biases =
            (any::<bool>(), biases).prop_map(|(has, biases)| if has { biases } else { BTreeMap::new() });
        (repetition, penalty(), penalty(), biases, 0usize..3).prop_map(
            |(repetition_penalty, presence_penalty, frequency_penalty, logit_bias, min_tokens)| {
                SamplingOptions {
                    repetition_penalty,
                    presence_penalty,
                    frequency_penalty,
                    logit_bias,
                    min_tokens,
                    ..SamplingOptions::default()
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_row_and_single_logits_change_alike(
            options in any_options(),
            prompt in prop::collection::vec(0u32..400, 0..20),
            generated in prop::collection::vec(0u32..400, 0..20),
            words in prop::option::of(prop::collection::vec(any::<u32>(), 0..14)),
            logits in prop::collection::vec(-20f32..20.0, 1..400),
        ) {
            let mut history = History::new(&[5, 6]);
            history.add_prompt(&options, &prompt);
            generated.iter().for_each(|token| history.add_generated(&options, *token));
            let allowed = words.as_deref().map(TokenMask::from);
            let processors = Processors { options: &options, history: &history, allowed };
            let mut row = logits.clone();
            processors.apply(&mut row);
            for (token, (logit, new)) in logits.iter().zip(&row).enumerate() {
                let token = token as u32;
                prop_assert_eq!(processors.logit(token, *logit).to_bits(), new.to_bits(), "token {}", token);
                prop_assert!(processors.logit(token, logit + 0.5) >= *new);
                let is_changed = processors.changed().any(|changed| changed == token);
                prop_assert!(is_changed || logit == new || !allowed.unwrap().allows(token));
            }
            prop_assert!(!processors.is_identity() || row == logits);
        }
    }
}
