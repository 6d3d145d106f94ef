//! A text generated with the trained weights of the last checkpoint.
//!
//! The weights are the optimizer's weights in f32. Each card reads its own shards, so the layout
//! can differ from the layout of training.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ascend_tp::Cann;
use ascend_tp::base::{DType, Diagnostic, Diagnostics};
use ascend_tp::compile::Deployment;
use ascend_tp::config::{Lora, ModelConfig};
use ascend_tp::exec::{EngineOptions, Shards};
use ascend_tp::generate::sampling::SamplingOptions;
use ascend_tp::generate::tokenizer::Tokenizer;
use ascend_tp::generate::{Model, Request, Session};
use ascend_tp::program::models::Head;
use ascend_tp::train::checkpoint::{Checkpoint, export_adapter};
use ascend_tp::weights;

use super::super::failure::Failure;
use super::super::{interrupt, print};

/// Number of tokens of a sample, if the model's context allows.
const TOKENS: usize = 120;

/// Returns sampling settings with a fixed seed, so the same weights give the same text.
fn sampling() -> SamplingOptions {
    SamplingOptions { temperature: 0.7, top_p: Some(0.9), ..SamplingOptions::default() }
}

#[derive(Debug)]
pub(super) struct SamplePrompt {
    ids: Vec<u32>,
    tokenizer: Tokenizer,
    options: Deployment,
}

impl SamplePrompt {
    /// Encodes a prompt for a model on this number of cards, with the tokenizer in `folder`.
    pub(super) fn new(
        prompt: &str,
        folder: &Path,
        config: &ModelConfig,
        cards: usize,
    ) -> Result<Self, Diagnostics> {
        let tokenizer = Tokenizer::open(folder, config.vocab_size)?;
        let ids = tokenizer.encode(prompt)?;
        if ids.is_empty() || ids.len() >= config.max_positions {
            return Err(Diagnostic::new("--sample", "cannot be continued")
                .expected(format!("1 to {} tokens", config.max_positions.saturating_sub(1)))
                .found(ids.len())
                .into());
        }
        let options = Deployment {
            cards,
            precision: DType::F32.into(),
            longest_prompt: ids.len(),
            context: (ids.len() + TOKENS).min(config.max_positions),
            head: Head::LastLogits,
            ..Deployment::of(config, cards)
        };
        options
            .compile(config)
            .map_err(|error| Diagnostic::new("--sample", "cannot be compiled").found(error))?;
        Ok(Self { ids, tokenizer, options })
    }

    /// Generates the text. The first process prints it.
    ///
    /// `adapted` is the folder of the frozen weights and the adapters of the run.
    pub(super) fn show(
        &self,
        config: &ModelConfig,
        checkpoint: &Path,
        adapted: Option<(&Path, &Lora)>,
        cann: &Arc<Cann>,
        engine: &EngineOptions,
    ) -> Result<(), Failure> {
        let checkpoint = Checkpoint::open(checkpoint)?;
        let folder = tempfile::tempdir()?;
        let merged = |(base, lora): (&Path, &Lora)| {
            let adapter = folder.path().join("adapter");
            export_adapter(&checkpoint, base, lora, &adapter)?;
            Ok::<_, Failure>(Model::open(base)?.with_adapter(&adapter)?.checkpoint)
        };
        let merged = adapted.map(merged).transpose()?;
        let fill = |shards: &Shards<'_>| {
            if let Some(merged) = &merged {
                return weights::fill_from(merged, shards, &|_| ());
            }
            for part in shards.parts() {
                let tensor = part.tensor();
                part.write(0, &checkpoint.read(&tensor.name, &tensor.shape, tensor.dtype, &tensor.ranges)?)?;
            }
            Ok(())
        };
        let mut session = Session::start_filled(cann, config, &self.options, engine, fill)?;
        let request = Request { sampling: sampling(), ..Request::new(self.ids.as_slice()) };
        let go_on =
            || if interrupt::is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let made = session.generate(&[request], &mut |_| go_on())?;
        let ids = made.sequences.into_iter().flat_map(|sequence| sequence.ids);
        let ids: Vec<u32> = self.ids.iter().copied().chain(ids).collect();
        let text = self.tokenizer.decode(&ids)?;
        if engine.group.is_first() { print(&format!("{text}\n")) } else { Ok(()) }
    }
}
