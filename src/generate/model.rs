//! A checkpoint folder, opened and checked.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::base::{DType, Diagnostic, Diagnostics};
use crate::config::{DESCRIPTIONS, Description, GenerationConfig, ModelConfig};
use crate::program::models::{
    Head, IGNORED_TENSORS, PROPOSING_TOKENS, PredictionPart, RunShape, StoredTensor, decoder,
    embedding_tensor, predicting_decoder, stored_tensors,
};
use crate::program::tree::SumOrder;
use crate::weights::{Checkpoint, ExpectedTensor, file};

use super::tokenizer::Tokenizer;

/// A model on disk: its configuration and its weights.
///
/// ```
/// use ascend_tp::generate::Model;
///
/// let model = Model::open("models/kjv-qwen2".as_ref())?;
/// println!("{} layers, vocabulary of {}", model.config.layers, model.config.vocab_size);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Model {
    /// The configuration in `config.json`.
    pub config: ModelConfig,
    /// Generation settings from `generation_config.json`, or from `config.json` without that file.
    pub generation: GenerationConfig,
    /// The weights, on disk.
    pub checkpoint: Arc<Checkpoint>,
    /// Folder of the checkpoint files.
    pub dir: PathBuf,
    tokenizer: OnceLock<Result<Arc<Tokenizer>, Diagnostics>>,
}

impl Model {
    /// Opens a folder with `config.json`, safetensors files and an optional
    /// `generation_config.json`, and checks the tensors against the configuration.
    ///
    /// # Errors
    /// Returns all problems of all files.
    pub fn open(dir: &Path) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        let checkpoint = keep(Checkpoint::open(dir), &mut problems);
        let dtype = checkpoint.as_ref().and_then(Checkpoint::dtype).unwrap_or(DType::F32);
        let (config, generation) = keep(read_configs(dir, dtype), &mut problems).unzip();
        let described = config.and_then(|config| described(dir, config, &mut problems));
        let (config, description) = described.unzip();
        let checkpoint = match &config {
            Some(config) if config.tied_embeddings => {
                checkpoint.map(|checkpoint| checkpoint.with_tied_embedding(embedding_tensor(config.family)))
            }
            _ => checkpoint,
        };
        if let (Some(config), Some(checkpoint)) = (&config, &checkpoint) {
            keep(check(config, checkpoint, description.flatten().as_ref()), &mut problems);
        }
        match (config, generation, checkpoint) {
            (Some(config), Some(generation), Some(checkpoint)) if problems.is_empty() => {
                let (checkpoint, dir) = (Arc::new(checkpoint), dir.to_owned());
                Ok(Self { config, generation, checkpoint, dir, tokenizer: OnceLock::new() })
            }
            _ => Err(problems),
        }
    }

    /// Adds low-rank adapters to the weights; see [`Checkpoint::with_adapter`].
    ///
    /// # Errors
    /// The weights are already shared, or the folder has problems.
    pub fn with_adapter(self, folder: &Path) -> Result<Self, Diagnostics> {
        Ok(Self { checkpoint: Arc::new(own(self.checkpoint)?.with_adapter(folder)?), ..self })
    }

    /// Adds low-rank adapters next to the weights. A [`Request`](super::Request) can choose one by
    /// its name; see [`Checkpoint::with_adapters`].
    ///
    /// # Errors
    /// The weights are already shared, or the folders have problems.
    pub fn with_adapters(self, named: &[(&str, &Path)]) -> Result<Self, Diagnostics> {
        let (checkpoint, set) = own(self.checkpoint)?.with_adapters(named)?;
        let config = ModelConfig { adapters: Arc::new(set), ..self.config };
        Ok(Self { config, checkpoint: Arc::new(checkpoint), ..self })
    }

    /// Checks that the model has a layer for multi-token prediction, and that programs with it can
    /// be built.
    ///
    /// # Errors
    /// All layers that do not fit drafts by prediction, and all missing or different tensors.
    #[doc(hidden)]
    pub fn check_prediction(&self) -> Result<(), Diagnostics> {
        check_prediction_layer(&self.config, &self.checkpoint)
    }

    /// Returns the tokenizer of the folder, which is read once.
    ///
    /// # Errors
    /// The folder has no tokenizer that fits the model.
    pub fn tokenizer(&self) -> Result<Arc<Tokenizer>, Diagnostics> {
        let open = || Tokenizer::open(&self.dir, self.config.vocab_size).map(Arc::new);
        self.tokenizer.get_or_init(open).clone()
    }

    /// Returns the ids that end a sequence. If the files name none, as for the original Qwen, this
    /// is `<|endoftext|>`.
    #[must_use]
    #[doc(hidden)]
    pub fn stop_ids(&self) -> Vec<u32> {
        match self.generation.eos_ids.as_slice() {
            [] => self
                .tokenizer()
                .ok()
                .and_then(|tokenizer| tokenizer.id_of("<|endoftext|>"))
                .into_iter()
                .collect(),
            named => named.to_vec(),
        }
    }

    /// Reads the configuration only, without weights. If it names no element type and weights
    /// exist, their type is used.
    ///
    /// # Errors
    /// Returns all problems of `config.json`.
    #[doc(hidden)]
    pub fn open_config(dir: &Path) -> Result<ModelConfig, Diagnostics> {
        let weights =
            || Checkpoint::open(dir).ok().and_then(|checkpoint| checkpoint.dtype()).unwrap_or(DType::F32);
        let config = ModelConfig::from_json_of(&read_text(&dir.join("config.json"))?, weights)?;
        let mut problems = Diagnostics::new();
        match described(dir, config, &mut problems) {
            Some((config, _)) if problems.is_empty() => Ok(config),
            _ => Err(problems),
        }
    }
}

/// Returns the checkpoint if nobody shares it.
fn own(checkpoint: Arc<Checkpoint>) -> Result<Checkpoint, Diagnostic> {
    Arc::into_inner(checkpoint)
        .ok_or_else(|| Diagnostic::new("adapters", "the model's weights are in use already"))
}

/// Returns the value, or collects its problems.
fn keep<T>(found: Result<T, Diagnostics>, problems: &mut Diagnostics) -> Option<T> {
    found.map_err(|found| problems.append(found)).ok()
}

fn read_text(path: &Path) -> Result<String, Diagnostics> {
    file::read_text(path).map_err(|error| {
        let help = "the folder of a model has config.json, *.safetensors and tokenizer.json";
        Diagnostic::new(path.display().to_string(), "cannot be read").found(error).help(help).into()
    })
}

fn read_configs(dir: &Path, dtype: DType) -> Result<(ModelConfig, GenerationConfig), Diagnostics> {
    let text = read_text(&dir.join("config.json"))?;
    let path = dir.join("generation_config.json");
    let generation_text = if path.exists() { Some(read_text(&path)?) } else { None };
    let config = ModelConfig::from_json_of(&text, || dtype)?;
    let generation = GenerationConfig::from_json(generation_text.as_deref(), &text, config.vocab_size)?;
    Ok((config, generation))
}

/// End of the names of tensors with the offsets of 8-bit weights. No program reads them.
const OFFSET: &str = ".weight_offset";

/// A description of quantised weights, with the name of its file.
struct DescriptionFile {
    name: String,
    description: Description,
}

/// Reads the description of quantised weights in a folder, if there is one, and sets the formats.
fn described(
    dir: &Path,
    config: ModelConfig,
    problems: &mut Diagnostics,
) -> Option<(ModelConfig, Option<DescriptionFile>)> {
    let found: Vec<&str> = DESCRIPTIONS.into_iter().filter(|name| dir.join(name).exists()).collect();
    let name = match found[..] {
        [] => {
            let Some(scheme) = &config.formats.described else { return Some((config, None)) };
            let problem =
                Diagnostic::new("config.json: quantize", "the description of the weights is missing");
            let help = "copy the file that msModelSlim wrote next to the weights";
            problems.push(problem.expected(DESCRIPTIONS[0]).found(format!("`{scheme}`")).help(help));
            return None;
        }
        [name] => name,
        _ => {
            let problem = Diagnostic::new(dir.display().to_string(), "several descriptions of the weights");
            problems.push(problem.expected("one of them").found(found.join(", ")));
            return None;
        }
    };
    let text = keep(read_text(&dir.join(name)), problems)?;
    let description = Description::from_json(name, &text, problems)?;
    if config.formats.is_quantised() {
        let problem = Diagnostic::new(name, "the weights have two descriptions");
        problems.push(problem.expected("no quantization_config in config.json"));
        return None;
    }
    let formats = Arc::new(description.formats.clone());
    Some((ModelConfig { formats, ..config }, Some(DescriptionFile { name: name.to_owned(), description })))
}

/// Checks the tensors of the first layer for multi-token prediction.
fn check_prediction_layer(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<(), Diagnostics> {
    let run = RunShape::new(1, PROPOSING_TOKENS, 1);
    let (order, part) = (SumOrder::AsTheyCome, PredictionPart::Proposes);
    let decoder = predicting_decoder(config, run, DType::F32.into(), Head::AllLogits, order, part, None)?;
    let tensors = stored_tensors(&decoder.program).into_iter();
    let expected: Vec<ExpectedTensor> = tensors
        .filter(|(name, _)| config.is_prediction_tensor(name))
        .map(|(name, StoredTensor { shape, dtypes })| ExpectedTensor { name, shape, dtypes })
        .collect();
    checkpoint.check(&expected, &|_| true)
}

fn check(
    config: &ModelConfig,
    checkpoint: &Checkpoint,
    description: Option<&DescriptionFile>,
) -> Result<(), Diagnostics> {
    let run = RunShape::new(1, 1, 1);
    let program = decoder(config, run, DType::F32, Head::AllLogits)?;
    // The tensors of a layer with an unknown scheme cannot be checked.
    let is_unknown = |name: &str| {
        let unknown = description.map(|file| &file.description.unknown);
        unknown.zip(name.rsplit_once('.')).is_some_and(|(unknown, (layer, _))| unknown.contains(layer))
    };
    let expected: Vec<ExpectedTensor> = stored_tensors(&program)
        .into_iter()
        .filter(|(name, _)| !is_unknown(name))
        .map(|(name, StoredTensor { shape, dtypes })| ExpectedTensor { name, shape, dtypes })
        .collect();
    let is_unread = |name: &str| {
        let Some((layer, suffix)) = name.rsplit_once('.') else { return false };
        config.formats.of(layer).ignored().contains(&suffix)
    };
    let is_ignored = |name: &str| {
        IGNORED_TENSORS.iter().any(|suffix| name.ends_with(suffix))
            || config.tied_embeddings && name.ends_with("lm_head.weight")
            || config.is_prediction_tensor(name)
            || is_unread(name)
            || is_unknown(name)
    };
    let mut problems = Diagnostics::new();
    keep(checkpoint.check(&expected, &is_ignored), &mut problems);
    let offsets = checkpoint.tensors().map(|(name, _)| name).filter(|name| name.ends_with(OFFSET));
    for name in offsets.filter(|name| is_unread(name)) {
        match checkpoint.read_f32(name).map(|(_, offsets)| offsets.into_iter().find(|offset| *offset != 0.0))
        {
            Ok(None) => {}
            Ok(Some(offset)) => {
                let problem = Diagnostic::new(name, "8-bit weights with an offset are not supported");
                problems.push(problem.expected("offsets of 0").found(offset));
            }
            Err(error) => problems.push(Diagnostic::new(name, "cannot be read").found(error)),
        }
    }
    if let Some(DescriptionFile { name: file, description }) = description {
        for name in description.tensors.iter().filter(|name| checkpoint.tensor(name).is_none()) {
            if !is_ignored(name) {
                let problem =
                    Diagnostic::new(format!("{file}: {name}"), "describes a tensor that does not exist");
                problems.push(problem.help("the description and the weights are of different checkpoints"));
            }
        }
    }
    problems.into_result(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use tempfile::TempDir;

    use super::*;

    fn repository(folder: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
    }

    fn with_config(model: &str, change: impl FnOnce(String) -> String) -> TempDir {
        let folder = TempDir::new().unwrap();
        for entry in std::fs::read_dir(repository(model)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "config.json" {
                symlink(entry.path(), folder.path().join(entry.file_name())).unwrap();
            }
        }
        let text = std::fs::read_to_string(repository(model).join("config.json")).unwrap();
        std::fs::write(folder.path().join("config.json"), change(text)).unwrap();
        folder
    }

    #[test]
    fn a_configuration_without_an_element_type_has_that_of_the_weights() {
        const NAMED: &str = "\"dtype\": \"bfloat16\",";
        for without in ["", "\"dtype\": null,", "\"torch_dtype\": \"auto\","] {
            let folder = with_config("models/kjv-qwen2", |text| {
                assert!(text.contains(NAMED), "{text}");
                text.replace(NAMED, without)
            });
            assert_eq!(Model::open(folder.path()).unwrap().config.dtype, DType::BF16, "{without}");
            assert_eq!(Model::open_config(folder.path()).unwrap().dtype, DType::BF16, "{without}");
        }
        // The file has priority over the weights.
        let named = with_config("models/kjv-qwen2", |text| text.replace("bfloat16", "float16"));
        assert_eq!(Model::open(named.path()).unwrap().config.dtype, DType::F16);
        let bare = with_config("models/kjv-qwen2", |text| text.replace(NAMED, ""));
        std::fs::remove_file(bare.path().join("model.safetensors.index.json")).unwrap();
        assert_eq!(Model::open_config(bare.path()).unwrap().dtype, DType::F32);
    }

    /// The published file of Qwen-7B names no type: all three flags are false.
    #[test]
    fn the_original_qwens_file_has_the_type_of_the_weights() {
        let folder = with_config("tests/fixtures/qwen-v1-mha", |text| {
            let mut config: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
            config.remove("torch_dtype").unwrap();
            for flag in ["bf16", "fp16", "fp32"] {
                config.insert(flag.to_owned(), false.into());
            }
            serde_json::to_string(&config).unwrap()
        });
        let model = Model::open(folder.path()).unwrap();
        assert_eq!(Some(model.config.dtype), model.checkpoint.dtype());
        assert_eq!(model.config.dtype, DType::BF16);
    }

    #[test]
    fn layers_for_prediction_are_left_alone() {
        let model = Model::open(&repository("models/kjv-qwen2")).unwrap();
        let layers = model.config.layers - 1;
        let config = ModelConfig { layers, prediction_layers: 1, ..model.config.clone() };
        check(&config, &model.checkpoint, None).unwrap();
        let config = ModelConfig { layers, ..model.config };
        let message = check(&config, &model.checkpoint, None).unwrap_err().to_string();
        assert!(message.contains(&format!("model.layers.{layers}.")), "{message}");
        assert!(message.contains("unexpected tensor"), "{message}");
    }

    /// Some programs store the table of a tied model under the head's name only.
    #[test]
    fn a_tied_model_may_have_the_head_alone() {
        let folder = with_config("tests/fixtures/qwen2-tied-uneven", |text| text);
        let path = folder.path().join("model.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        let name = b"\"model.embed_tokens.weight\":";
        let at = bytes.windows(name.len()).position(|bytes| bytes == name).unwrap();
        // White space in the header keeps offsets unchanged.
        bytes[at..at + name.len()].copy_from_slice(b"\"lm_head.weight\":           ");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        let model = Model::open(folder.path()).unwrap();
        let whole = Model::open(&repository("tests/fixtures/qwen2-tied-uneven")).unwrap();
        let table = "model.embed_tokens.weight";
        assert_eq!(model.checkpoint.read_f32(table).unwrap(), whole.checkpoint.read_f32(table).unwrap());
        assert!(model.checkpoint.tensor("lm_head.weight").is_none());
        // An untied model needs both.
        let text = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
        let untied = text.replace("\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
        assert_ne!(untied, text);
        std::fs::write(folder.path().join("config.json"), untied).unwrap();
        let message = Model::open(folder.path()).unwrap_err().to_string();
        assert!(message.contains("model.embed_tokens.weight: missing tensor"), "{message}");
    }
}
