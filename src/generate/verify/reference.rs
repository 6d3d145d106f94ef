//! Tokens, logits and greedy tokens of another implementation, from a safetensors file.

use std::path::Path;

use crate::base::{DType, Diagnostic, Diagnostics};
use crate::config::ModelConfig;
use crate::generate::error::Error;
use crate::program::models::RunShape;
use crate::weights::Checkpoint;

/// Results of another implementation to compare with.
#[derive(Clone, Debug)]
pub struct Reference {
    pub(super) batch: usize,
    pub(super) sequence: usize,
    pub(super) input_ids: Vec<u32>,
    pub(super) logits: Option<Vec<f32>>,
    pub(super) greedy: Option<Continuation>,
}

/// A prompt and its greedy continuation by the reference.
#[derive(Clone, Debug)]
pub(super) struct Continuation {
    pub(super) prompt: Vec<u32>,
    pub(super) ids: Vec<u32>,
}

impl Reference {
    /// Reads a safetensors file with `input_ids [b,s]`, and `logits [b,s,v]` in f32, or
    /// `greedy_prompt [1,p]` and `greedy_ids [1,n]`, or all four.
    ///
    /// # Errors
    /// Returns everything in the file that does not fit the model.
    pub fn open(path: &Path, vocab_size: usize) -> Result<Self, Error> {
        let file = Checkpoint::open_file(path)?;
        let place = |name: &str| format!("{}: {name}", path.display());
        let mut problems = Diagnostics::new();
        let ids = |name: &str, problems: &mut Diagnostics| -> Result<(Vec<usize>, Vec<u32>), Error> {
            let (shape, ids) = file.read_i64(name)?;
            if shape.rank() != 2 {
                problems.push(
                    Diagnostic::new(place(name), "has another rank")
                        .expected("[batch, sequence]")
                        .found(&shape),
                );
            }
            let checked =
                ids.iter().map(|id| u32::try_from(*id).ok().filter(|id| (*id as usize) < vocab_size));
            let Some(checked) = checked.collect::<Option<Vec<u32>>>() else {
                let problem = Diagnostic::new(place(name), "has an id outside the vocabulary");
                problems.push(
                    problem
                        .expected(format!("0 to {}", vocab_size.saturating_sub(1)))
                        .found(format!("{ids:?}")),
                );
                return Ok((shape.to_vec(), Vec::new()));
            };
            Ok((shape.to_vec(), checked))
        };
        let (shape, input_ids) = ids("input_ids", &mut problems)?;
        let (batch, sequence) = (shape.first().copied().unwrap_or(0), shape.get(1).copied().unwrap_or(0));
        let logits = match file.tensor("logits") {
            None => None,
            Some(stored) => {
                let (shape, logits) = file.read_f32("logits")?;
                if stored.dtype != DType::F32 {
                    let problem = Diagnostic::new(place("logits"), "were rounded");
                    let help = "compute the reference in f32, because logits are compared in f32";
                    problems.push(problem.expected(DType::F32).found(stored.dtype).help(help));
                }
                if shape.sizes() != [batch, sequence, vocab_size] {
                    let problem = Diagnostic::new(place("logits"), "has another shape");
                    problems
                        .push(problem.expected(format!("[{batch},{sequence},{vocab_size}]")).found(&shape));
                }
                Some(logits)
            }
        };
        let one = |name: &str, problems: &mut Diagnostics| -> Result<Option<Vec<u32>>, Error> {
            if file.tensor(name).is_none() {
                return Ok(None);
            }
            let (shape, ids) = ids(name, problems)?;
            if shape.first() != Some(&1) || shape.last() == Some(&0) {
                let problem = Diagnostic::new(place(name), "is not one sequence of tokens");
                problems.push(problem.expected("[1, tokens]").found(format!("{shape:?}")));
            }
            Ok(Some(ids))
        };
        let greedy = match (one("greedy_prompt", &mut problems)?, one("greedy_ids", &mut problems)?) {
            (Some(prompt), Some(ids)) => Some(Continuation { prompt, ids }),
            (None, None) => None,
            (prompt, _) => {
                let absent = if prompt.is_none() { "greedy_prompt" } else { "greedy_ids" };
                problems.push(Diagnostic::new(place(absent), "missing: both are needed"));
                None
            }
        };
        if logits.is_none() && greedy.is_none() && problems.is_empty() {
            let problem = Diagnostic::new(path.display().to_string(), "nothing to compare with");
            problems.push(problem.expected("logits, or greedy_prompt and greedy_ids"));
        }
        Ok(problems.into_result(Self { batch, sequence, input_ids, logits, greedy })?)
    }

    /// Returns the run of all tokens. As in a session, layers with a window have separate caches.
    pub(super) fn run(&self, config: &ModelConfig) -> RunShape {
        RunShape::new(self.batch, self.sequence, self.sequence).with_layers_of(config)
    }

    /// Returns token ids for a run without reference: 16 tokens spread over the vocabulary.
    #[must_use]
    pub fn without(vocab_size: usize) -> Self {
        // Steps of the golden ratio cover the range evenly.
        let id = |i: u64| ((i * 0x9E37_79B9) % vocab_size.max(1) as u64) as u32;
        Self { batch: 1, sequence: 16, input_ids: (1..=16).map(id).collect(), logits: None, greedy: None }
    }
}
