//! Formats that this project writes, as published checkpoints have them.
//!
//! Input: a [`ModelConfig`] with float weights, and a [`QuantisedFormat`]. Output: the
//! configuration of the quantised model, and the texts that describe its weights.
//!
//! Invariants: embeddings, head, norms, biases and routers stay floats. The texts describe the same
//! formats as the configuration.
//!
//! Not here: numbers and files (`weights/quantised.rs`).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Formats, WeightFormat};
use crate::base::{Diagnostic, Diagnostics, Packing, ScaleGroup};
use crate::config::ModelConfig;
use crate::config::tensors::{CheckpointTensor, TensorKind};

/// End of the names of weights.
const WEIGHT: &str = ".weight";

/// A format of quantised checkpoints that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuantisedFormat {
    /// `W8A8_DYNAMIC` of msModelSlim: 8-bit integers with one scale per output. Inputs are
    /// quantised with one scale per token.
    W8A8Dynamic,
    /// `pack-quantized` of compressed-tensors: symmetric integers of 4 bits, with one scale per
    /// output and group of inputs.
    W4A16 {
        /// Inputs per scale: 32, 64 or 128.
        group: usize,
    },
}

impl QuantisedFormat {
    /// All formats.
    pub const ALL: [Self; 4] =
        [Self::W8A8Dynamic, Self::W4A16 { group: 32 }, Self::W4A16 { group: 64 }, Self::W4A16 { group: 128 }];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::W8A8Dynamic => "w8a8-dynamic",
            Self::W4A16 { group: 32 } => "w4a16-g32",
            Self::W4A16 { group: 64 } => "w4a16-g64",
            Self::W4A16 { .. } => "w4a16-g128",
        }
    }

    /// Returns the format of the weight of a linear layer.
    #[must_use]
    pub const fn of_linear(self) -> WeightFormat {
        match self {
            Self::W8A8Dynamic => WeightFormat::Int8,
            Self::W4A16 { group } => WeightFormat::Packed(Packing::Rows {
                group: ScaleGroup::Of(group),
                has_zeros: false,
                has_order: false,
            }),
        }
    }

    /// Returns whether the format has this tensor in its own numbers. Programs read the absorbed
    /// weights of latent attention as floats, so they have no product of integers.
    const fn has(self, tensor: &CheckpointTensor) -> bool {
        match tensor.kind {
            TensorKind::Linear => true,
            TensorKind::Absorbed => matches!(self, Self::W4A16 { .. }),
            TensorKind::Float | TensorKind::Interleaved | TensorKind::Other => false,
        }
    }

    /// Returns whether a layer with this number of inputs has whole groups.
    const fn fits(self, inputs: usize) -> bool {
        match self {
            Self::W8A8Dynamic => true,
            Self::W4A16 { group } => inputs.is_multiple_of(group),
        }
    }

    /// Reports a linear layer whose last group of inputs would be partial.
    fn check(self, tensor: &CheckpointTensor, problems: &mut Diagnostics) {
        let (Self::W4A16 { group }, Some(inputs)) = (self, tensor.shape.last()) else { return };
        if !self.fits(*inputs) {
            let problem = Diagnostic::new(&tensor.name, "the last group of inputs would be partial");
            let problem = problem.expected(format!("a multiple of {group} inputs")).found(inputs);
            let smaller = Self::ALL.into_iter().filter(|other| other.fits(*inputs));
            let names: Vec<&str> = smaller.map(Self::name).collect();
            problems.push(problem.help(format!("{} can have this layer", names.join(", "))));
        }
    }
}

impl fmt::Display for QuantisedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text does not name a format that can be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a format; expected one of w8a8-dynamic, w4a16-g32, w4a16-g64, w4a16-g128")]
pub struct UnknownFormat(pub String);

impl FromStr for QuantisedFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let known = Self::ALL.into_iter().find(|format| format.name() == text);
        known.ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

impl ModelConfig {
    /// Returns the configuration of this model with linear layers in a quantised format.
    ///
    /// # Errors
    /// All problems: the weights are quantised already, a last group would be partial, and experts
    /// that are stored in one tensor with their inputs first.
    pub fn quantised(&self, format: QuantisedFormat) -> Result<Self, Diagnostics> {
        let mut problems = Diagnostics::new();
        if let Some(found) = self.formats.iter().next() {
            let problem = Diagnostic::new("config.json", "the weights are quantised already");
            problems.push(problem.expected("float weights").found(found));
        }
        let mut formats = Formats::default();
        for tensor in self.all_tensors() {
            if tensor.kind == TensorKind::Interleaved {
                let problem = Diagnostic::new(&tensor.name, "experts in one tensor cannot be quantised");
                problems.push(problem.expected("one tensor per expert and projection"));
            }
            if format.has(&tensor) {
                format.check(&tensor, &mut problems);
                let layer = tensor.name.strip_suffix(WEIGHT).unwrap_or(&tensor.name);
                formats.named.insert(layer.to_owned(), format.of_linear());
            }
        }
        problems.into_result(Self { formats: Arc::new(formats), ..self.clone() })
    }

    /// Returns the keys of `config.json` that describe the weights of [`Self::quantised`].
    pub(crate) fn quantised_keys(&self, format: QuantisedFormat) -> Map<String, Value> {
        let (key, value) = match format {
            QuantisedFormat::W8A8Dynamic => ("quantize", json!("w8a8_dynamic")),
            QuantisedFormat::W4A16 { group } => {
                let tensors = self.all_tensors();
                let floats = tensors.iter().filter(|tensor| tensor.kind == TensorKind::Float);
                // A tied head has no tensor, but other programs have the layer.
                let head = self.tied_embeddings.then_some(self.family.table().tensors.head);
                let ignored: Vec<&str> = head
                    .into_iter()
                    .chain(floats.map(|tensor| tensor.name.as_str()))
                    .map(|name| name.strip_suffix(WEIGHT).unwrap_or(name))
                    .collect();
                ("quantization_config", pack_quantized(group, &ignored))
            }
        };
        Map::from_iter([(key.to_owned(), value)])
    }

    fn all_tensors(&self) -> Vec<CheckpointTensor> {
        let layers = (0..self.layers).flat_map(|layer| self.layer_tensors(layer));
        self.outer_tensors().into_iter().chain(layers).collect()
    }
}

impl Formats {
    /// Returns the description that msModelSlim writes next to these tensors.
    pub(crate) fn description<'a>(&self, tensors: impl Iterator<Item = &'a str>) -> Map<String, Value> {
        let file = [
            ("model_quant_type", json!("W8A8_DYNAMIC")),
            ("version", json!("1.0.0")),
            ("group_size", json!(0)),
        ];
        let file = file.into_iter().map(|(key, value)| (key.to_owned(), value));
        let scheme = |name: &str| {
            let is_int8 = name
                .rsplit_once('.')
                .is_some_and(|(layer, suffix)| self.of(layer) == WeightFormat::Int8 && suffix != "bias");
            (name.to_owned(), json!(if is_int8 { "W8A8_DYNAMIC" } else { "FLOAT" }))
        };
        file.chain(tensors.map(scheme)).collect()
    }
}

/// Returns the `quantization_config` of compressed-tensors for 4-bit groups.
fn pack_quantized(group: usize, ignored: &[&str]) -> Value {
    json!({
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "global_compression_ratio": null,
        "kv_cache_scheme": null,
        "ignore": ignored,
        "config_groups": { "group_0": {
            "targets": ["Linear"],
            "input_activations": null,
            "output_activations": null,
            "weights": {
                "num_bits": 4,
                "type": "int",
                "symmetric": true,
                "strategy": "group",
                "group_size": group,
                "block_structure": null,
                "dynamic": false,
                "actorder": null,
                "observer": "minmax",
                "observer_kwargs": {},
            },
        } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;
    use crate::program::models::{Head, RunShape, decoder};

    #[test]
    fn formats_survive_their_names() {
        for format in QuantisedFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        let message = "w4a16".parse::<QuantisedFormat>().unwrap_err().to_string();
        assert!(message.contains("`w4a16` is not a format"), "{message}");
    }

    #[test]
    fn programs_of_every_preset_read_the_formats_or_name_the_layer() {
        for preset in ModelConfig::presets() {
            let config = ModelConfig { layers: 4, ..ModelConfig::preset(preset).unwrap() };
            for format in [QuantisedFormat::W8A8Dynamic, QuantisedFormat::W4A16 { group: 32 }] {
                let built = config.quantised(format).and_then(|config| {
                    decoder(&config, RunShape::new(1, 1, 16), DType::BF16, Head::AllLogits)
                });
                if let Err(problems) = built {
                    let problems = problems.to_string();
                    let is_named = problems.contains("experts in one tensor cannot be quantised")
                        || problems.contains("the scales of rows in blocks are not read")
                        || problems.contains("the weights are quantised already");
                    assert!(is_named, "{preset} in {format}: {problems}");
                }
            }
        }
    }

    #[test]
    fn a_partial_group_is_refused_in_every_layer() {
        let config = ModelConfig::preset("qwen2.5-0.5b").unwrap();
        let config = ModelConfig { layers: 2, ..config };
        assert!(config.quantised(QuantisedFormat::W4A16 { group: 64 }).is_ok());
        let message = config.quantised(QuantisedFormat::W4A16 { group: 128 }).err();
        assert_eq!(message.map(|problems| problems.to_string()), None);
        let odd = ModelConfig { intermediate_size: 96, ..config };
        let message = odd.quantised(QuantisedFormat::W4A16 { group: 64 }).unwrap_err().to_string();
        for layer in 0..2 {
            let expected = format!(
                "model.layers.{layer}.mlp.down_proj.weight: the last group of inputs would be partial: \
                 expected a multiple of 64 inputs, found 96; w8a8-dynamic, w4a16-g32 can have this layer"
            );
            assert!(message.contains(&expected), "{message}");
        }
    }
}
