//! A checkpoint folder, opened and checked.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::base::{DType, Diagnostic, Diagnostics, Shape};
use crate::config::{GenerationConfig, ModelConfig};
use crate::program::models::{Head, IGNORED_TENSORS, RunShape, checkpoint_tensors, decoder};
use crate::weights::{Checkpoint, ExpectedTensor, file};

use super::tokenizer::Tokenizer;

/// A model as it lies on disk.
#[derive(Debug)]
pub struct Model {
    /// What `config.json` says.
    pub config: ModelConfig,
    /// `generation_config.json`, or what `config.json` says of it.
    pub generation: GenerationConfig,
    /// The weights, on disk.
    pub checkpoint: Arc<Checkpoint>,
    /// The checkpoint's folder.
    pub dir: PathBuf,
    /// Once somebody has asked for it.
    tokenizer: OnceLock<Result<Arc<Tokenizer>, Diagnostics>>,
}

impl Model {
    /// Opens a folder with `config.json`, safetensors files and perhaps `generation_config.json`, and checks that the
    /// checkpoint has the tensors that the configuration asks for.
    ///
    /// # Errors
    /// All problems of all files.
    pub fn open(dir: &Path) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let (config, generation) = keep(read_configs(dir), &mut problems).unzip();
        let checkpoint = keep(Checkpoint::open(dir), &mut problems);
        if let (Some(config), Some(checkpoint)) = (&config, &checkpoint) {
            keep(check(config, checkpoint), &mut problems);
        }
        match (config, generation, checkpoint) {
            (Some(config), Some(generation), Some(checkpoint)) if problems.is_empty() => {
                let (checkpoint, dir) = (Arc::new(checkpoint), dir.to_owned());
                Ok(Self { config, generation, checkpoint, dir, tokenizer: OnceLock::new() })
            }
            _ => Err(problems),
        }
    }

    /// The model with low-rank adapters added to its weights; see [`Checkpoint::with_adapter`].
    ///
    /// # Errors
    /// The weights are in use; every problem of the folder.
    pub fn with_adapter(self, folder: &Path) -> Result<Self, Diagnostics> {
        let checkpoint = Arc::into_inner(self.checkpoint)
            .ok_or_else(|| Diagnostic::new(folder.display().to_string(), "the model's weights are in use already"))?;
        Ok(Self { checkpoint: Arc::new(checkpoint.with_adapter(folder)?), ..self })
    }

    /// The tokenizer of the folder, which is read once.
    ///
    /// # Errors
    /// The folder has none, or it does not fit the model.
    pub fn tokenizer(&self) -> Result<Arc<Tokenizer>, Diagnostics> {
        let open = || Tokenizer::open(&self.dir, self.config.vocab_size).map(Arc::new);
        self.tokenizer.get_or_init(open).clone()
    }

    /// The ids that end a sequence. The original Qwen's files often name none; its tokenizer knows.
    #[must_use]
    pub fn stop_ids(&self) -> Vec<u32> {
        match self.generation.eos_ids.as_slice() {
            [] => self.tokenizer().ok().and_then(|tokenizer| tokenizer.id_of("<|endoftext|>")).into_iter().collect(),
            named => named.to_vec(),
        }
    }

    /// Only the configuration of a folder, which needs no weights.
    ///
    /// # Errors
    /// All problems of `config.json`.
    pub fn open_config(dir: &Path) -> Result<ModelConfig, Diagnostics> {
        ModelConfig::from_json(&read_text(&dir.join("config.json"))?)
    }
}

/// The value, or its problems added to the others.
fn keep<T>(found: Result<T, Diagnostics>, problems: &mut Diagnostics) -> Option<T> {
    found.map_err(|found| problems.append(found)).ok()
}

fn read_text(path: &Path) -> Result<String, Diagnostics> {
    file::read_text(path).map_err(|error| {
        let help = "the folder of a model has config.json, *.safetensors and tokenizer.json";
        Diagnostic::new(path.display().to_string(), "cannot be read").found(error).help(help).into()
    })
}

fn read_configs(dir: &Path) -> Result<(ModelConfig, GenerationConfig), Diagnostics> {
    let text = read_text(&dir.join("config.json"))?;
    let path = dir.join("generation_config.json");
    let generation_text = if path.exists() { Some(read_text(&path)?) } else { None };
    let config = ModelConfig::from_json(&text)?;
    let generation = GenerationConfig::from_json(generation_text.as_deref(), &text, config.vocab_size)?;
    Ok((config, generation))
}

fn check(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<(), Diagnostics> {
    let run = RunShape { batch: 1, sequence: 1, cache_length: 1 };
    let program = decoder(config, run, DType::F32, Head::AllLogits)?;
    let tensor = |(name, shape): (String, Shape)| ExpectedTensor { name, shape };
    let expected: Vec<ExpectedTensor> = checkpoint_tensors(&program).into_iter().map(tensor).collect();
    let mut ignored = IGNORED_TENSORS.to_vec();
    if config.tied_embeddings {
        ignored.push("lm_head.weight");
    }
    checkpoint.check(&expected, &ignored)
}
